"""Emerging convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import positive
from cubicflow.nets.precision import exact_linear, widened, without_autocast
from cubicflow.transforms.transform import Transform, check_image, scale_log_det


class EmergingConv(Transform):
    """An emerging convolution (Hoogeboom, van den Berg and Welling 2019, section 3.1): two autoregressive convolutions,
    one in the order of reading and one in the reversed order. Together every output sees all pixels around it.

    An autoregressive convolution sees earlier pixels freely, of its own pixel the channels up to its own, and nothing
    later. **It is invertible for all parameters**: its Jacobian is triangular, and the H W diagonals are those of the
    matrix of a pixel with itself, exponentials of a parameter. log|det| is H W times the sum of both log-diagonals.

    The inverse is a substitution. A pixel needs the pixels before it in its row and, for kernels of size 2 p + 1, those
    up to p columns further in the p rows above. So pixel (r, c) can be computed in step c + (p + 1) r, together with
    all others of that step: W + (p + 1) (H - 1) steps for each convolution, not H W.

    The layer starts as the identity. In the paper, a 1 x 1 convolution stands before it:
    :class:`~cubicflow.transforms.Conv1x1`.

    Args:
        features: C, the number of channels.
        kernel_size: an odd number, 2 p + 1.

    >>> x = torch.randn(5, 3, 4, 4)
    >>> z, log_det = EmergingConv(3)(x)
    >>> torch.equal(z, x), log_det.shape
    (True, torch.Size([5]))
    """

    def __init__(self, features: int, kernel_size: int = 3) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.kernel_size = odd("kernel_size", kernel_size)
        rows = kernel_size // 2 + 1  # the rows above, and the pixel's own
        self.weight = nn.Parameter(torch.zeros(2, features, features, rows, kernel_size))
        self.log_diagonal = nn.Parameter(torch.zeros(2, features))

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_image(self, x, self.features)
        log_det = scale_log_det(x, self.log_diagonal.sum(0))
        for past, own in self._kernels():
            # The second convolution is the first one on an image with rows, columns and channels reversed.
            x = self._convolved(x, past, own).flip(1, 2, 3)
        return x, log_det

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_image(self, z, self.features)
        log_det = -scale_log_det(z, self.log_diagonal.sum(0))
        for past, own in reversed(self._kernels()):
            z = self._substituted(z.flip(1, 2, 3), past, own)
        return z, log_det

    def _kernels(self) -> list[tuple[Tensor, Tensor]]:
        """Return of both convolutions the weights of earlier pixels, (C, T C), and of the own pixel, (C, C). T is the
        number of pixels of the kernel in its rows; those from the own pixel on have weight 0."""
        p, earlier = self.kernel_size // 2, torch.ones_like(self.weight[0, 0, 0])
        earlier[-1, p:] = 0
        past = (self.weight * earlier).movedim(2, 4).flatten(2)
        own = self.weight[..., -1, p].tril(-1) + self.log_diagonal.exp().diag_embed()
        return list(zip(past, own, strict=True))

    def _convolved(self, x: Tensor, past: Tensor, own: Tensor) -> Tensor:
        """Return the autoregressive convolution of x, (N, C, H, W)."""
        n, c, height, width = x.shape
        p = self.kernel_size // 2
        around = F.unfold(F.pad(x, (p, p, p, 0)), (p + 1, self.kernel_size))  # (N, C T, H W)
        around = (
            around.unflatten(1, (c, (p + 1) * self.kernel_size))
            .permute(0, 3, 2, 1)
            .reshape(n * height * width, past.shape[1])
        )
        pixels = x.permute(0, 2, 3, 1).reshape(n * height * width, c)
        z = exact_linear(around, past) + exact_linear(pixels, own)  # (N H W, C)
        return z.view(n, height, width, c).permute(0, 3, 1, 2)

    def _substituted(self, z: Tensor, past: Tensor, own: Tensor) -> Tensor:
        """Return x with :meth:`_convolved` z, step by step."""
        n, c, height, width = z.shape
        p, k = self.kernel_size // 2, self.kernel_size
        wide = width + 2 * p  # of the image with p columns of zeros on both sides, and p rows above
        eye = torch.eye(c, dtype=own.dtype, device=own.device)
        with without_autocast(z.device):
            back = torch.linalg.solve_triangular(widened(own), widened(eye), upper=False).to(own.dtype)
        places = torch.arange((p + 1) * wide, device=z.device).view(p + 1, wide)[:, :k].flatten()  # of a kernel at 0, 0
        x = z.new_zeros(n, (height + p) * wide, c)
        pixels = z.permute(0, 2, 3, 1).flatten(1, 2)  # (N, H W, C)
        for step in range(width + (p + 1) * (height - 1)):
            first = max(0, -((width - 1 - step) // (p + 1)))
            r = torch.arange(first, min(height - 1, step // (p + 1)) + 1, device=z.device)
            column = step - (p + 1) * r
            around = x[:, (r * wide + column)[:, None] + places].flatten(0, 1).flatten(1)  # (N m, T C)
            known = exact_linear(around, past).view(n, r.shape[0], c)
            found = exact_linear((pixels[:, r * width + column] - known).flatten(0, 1), back).view_as(known)
            x = x.index_copy(1, (r + p) * wide + column + p, found)
        return x.view(n, height + p, wide, c)[:, p:, p : p + width].permute(0, 3, 1, 2)


def odd(name: str, size: int) -> int:
    """Return the size of a kernel; raise a ValueError unless it is odd.

    >>> odd("kernel_size", 3)
    3
    """
    if positive(name, size) % 2 == 0:
        raise ValueError(f"{name} must be odd, so that a kernel has a pixel in its middle; got {size}")
    return size
