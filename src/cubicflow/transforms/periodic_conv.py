"""Periodic convolutions."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import positive
from cubicflow.nets.precision import widened, without_autocast
from cubicflow.transforms.emerging_conv import odd
from cubicflow.transforms.transform import Transform, check_image, no_log_det


class PeriodicConv(Transform):
    """A periodic convolution (Hoogeboom, van den Berg and Welling 2019, section 3.2): a convolution of an image whose
    edges are joined to the opposite edges.

    In the Fourier domain it multiplies the C channels of each frequency by a matrix, the transform of the kernel at
    this frequency (the convolution theorem). log|det| is the sum of the log|det| of these H W matrices, and the inverse
    solves a linear system for each.

    **It is invertible** unless one of these matrices is singular, which holds on a set of kernels without volume. The
    density of a flow is 0 there, so training stays away from it. The layer starts as the identity. In torch 2.8 the
    gradients of images with one channel raise an error on a CPU.

    Args:
        features: C, the number of channels.
        kernel_size: an odd number, at most the height and the width of the images.

    >>> x = torch.randn(5, 3, 4, 4)
    >>> z, log_det = PeriodicConv(3)(x)
    >>> torch.allclose(z, x, atol=1e-6), log_det.shape
    (True, torch.Size([5]))
    """

    affine = True
    one_pass = False  # factorisations of many matrices may not be captured as a CUDA graph

    def __init__(self, features: int, kernel_size: int = 3) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.kernel_size = odd("kernel_size", kernel_size)
        self.weight = nn.Parameter(torch.zeros(features, features, kernel_size, kernel_size))  # beyond the identity

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        matrices, log_det = self._matrices(x)
        return self._in_frequencies(x, lambda channels: matrices @ channels), log_det

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        matrices, log_det = self._matrices(z)
        return self._in_frequencies(z, lambda channels: torch.linalg.solve(matrices, channels)), -log_det

    def _matrices(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the matrices of the frequencies of real images, (H, W // 2 + 1, C, C), and log|det|, (N,)."""
        check_image(self, x, self.features)
        height, width = x.shape[2:]
        if self.kernel_size > min(height, width):
            raise ValueError(
                f"PeriodicConv with kernel_size={self.kernel_size} needs images of at least this height and width, got "
                f"shape {tuple(x.shape)}"
            )
        # Entry d of the kernel multiplies pixel i + d - p. Its transform is that of an image with the entry at p - d.
        p, k = self.kernel_size // 2, self.kernel_size
        kernel = F.pad(widened(self.weight).flip(2, 3), (0, width - k, 0, height - k)).roll((-p, -p), (2, 3))
        eye = torch.eye(self.features, dtype=kernel.dtype, device=kernel.device)
        matrices = torch.fft.fft2(kernel).permute(2, 3, 0, 1) + eye  # (H, W, C, C)
        log_det = torch.linalg.slogdet(matrices).logabsdet.sum()
        return matrices[:, : width // 2 + 1], (no_log_det(x) + log_det).to(no_log_det(x).dtype)

    def _in_frequencies(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a function to the transforms of all channels, (H, W // 2 + 1, C, N)."""
        if x.shape[0] == 0:  # torch transforms no empty batches
            return x
        with without_autocast(x.device):
            channels = function(torch.fft.rfft2(widened(x)).permute(2, 3, 1, 0))
        back: Tensor = torch.fft.irfft2(channels.permute(3, 2, 0, 1), s=x.shape[2:])
        return back.to(x.dtype)
