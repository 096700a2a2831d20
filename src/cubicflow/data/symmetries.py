"""Symmetries of rows: linear maps that are assumed not to change the density.

If p(Mx) = p(x) for every map M of a set, a training row may be replaced by any of its images. The maps preserve volume,
|det M| = 1: any other map would multiply the density by a factor.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from math import prod
from typing import Any, Self, final

import numpy as np
import torch
from torch import Tensor

from cubicflow.arguments import permutation, unknown_name
from cubicflow.data.row_summary import Summary
from cubicflow.nets.precision import exact_linear
from cubicflow.nets.rng import current_generator

KINDS = ("mirror", "square")  # kinds of image symmetries
LOG_DET_ERROR = 1e-4  # nats; tolerance of log |det| for rounding of float32 matrices


@final
class Symmetries:
    """Finite set of linear maps of rows.

    The class is final: a step that is captured as a CUDA graph replays kernels, and would not run the Python code of a
    subclass.

    Args:
        matrices: (S, D, D), a tensor, an array or a list of arrays: one matrix M with |det M| = 1 for each map x -> Mx.
            The identity is included only if it is given. All S D^2 numbers are kept in memory.

    Attributes:
        matrices: (S, D, D), in float64 unless :meth:`to` changed the dtype.

    >>> turns = Symmetries(torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, -1.0], [1.0, 0.0]]]))
    >>> turns
    Symmetries: 2 maps of 2 columns, fingerprint 081790e7
    >>> turns.images(torch.tensor([[3.0, 4.0]]))
    tensor([[ 3.,  4.],
            [-4.,  3.]])
    """

    def __init__(self, matrices: Any) -> None:
        given = matrices.detach().cpu() if isinstance(matrices, Tensor) else torch.from_numpy(np.array(matrices, float))
        self.matrices = given.double() + 0.0  # a copy; adding 0 turns -0 into 0
        shape = tuple(self.matrices.shape)
        if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
            raise ValueError(
                f"matrices must have shape (maps, columns, columns), with at least one map and one column, got {shape}"
            )
        log_dets = torch.linalg.slogdet(self.matrices).logabsdet
        wrong = ~(log_dets.abs() <= LOG_DET_ERROR)  # also True for NaN
        if bool(wrong.any()):
            first = int(wrong.nonzero()[0])
            found = float(log_dets[first].exp())
            raise ValueError(
                f"matrices must preserve volume, |det| = 1, but matrix {first} has |det| = {found:.4g}; "
                "leave it out, or scale it"
            )

    @classmethod
    def of_permutations(cls, permutations: Sequence[Sequence[int]]) -> Self:
        """Return symmetries that permute columns: the image of a row x under a permutation p is x[p].

        >>> both = Symmetries.of_permutations([[0, 1, 2], [2, 1, 0]])
        >>> both.images(torch.tensor([[5.0, 6.0, 7.0]]))
        tensor([[5., 6., 7.],
                [7., 6., 5.]])
        """
        if not len(permutations) or not (size := len(permutations[0])):
            raise ValueError("permutations must hold at least one permutation of at least one column")
        orders = [permutation(f"permutation {i}", order, size) for i, order in enumerate(permutations)]
        return cls(torch.eye(size, dtype=torch.float64)[torch.tensor(orders)])

    @classmethod
    def of_image(cls, shape: Sequence[int], kind: str, *, mean_removed: bool = False) -> Self:
        """Return symmetries of images. The columns are the pixels, row by row.

        Args:
            shape: (height, width), or (channels, height, width).
            kind: ``"mirror"`` for four maps: the identity, the two mirror images, and both mirrors together.
                ``"square"`` for these four and their transposes: the eight symmetries of the square.
            mean_removed: whether the mean of each image was subtracted and its last pixel dropped, so that there is
                one column fewer than pixels. The last pixel is minus the sum of the others.

        >>> pixels = torch.arange(6.0)[None]  # 0 1 2 above 3 4 5
        >>> Symmetries.of_image((2, 3), "mirror").images(pixels)
        tensor([[0., 1., 2., 3., 4., 5.],
                [2., 1., 0., 5., 4., 3.],
                [3., 4., 5., 0., 1., 2.],
                [5., 4., 3., 2., 1., 0.]])
        >>> Symmetries.of_image((8, 8), "square", mean_removed=True).matrices.shape
        torch.Size([8, 63, 63])
        """
        if len(shape) not in (2, 3) or min(shape) < 1:
            raise ValueError(f"shape must be (height, width) or (channels, height, width), got {tuple(shape)}")
        if kind not in KINDS:
            raise ValueError(unknown_name("of_image", "kind", kind, KINDS))
        if kind == "square" and shape[-2] != shape[-1]:
            raise ValueError(f"kind='square' needs height = width, got shape {tuple(shape)}; use kind='mirror'")
        size = prod(shape)
        numbers = torch.arange(size).reshape(*shape)  # the number of each pixel
        images = [numbers] if kind == "mirror" else [numbers, numbers.mT]
        moved = [image.flip(axes) for image in images for axes in ((), (-1,), (-2,), (-2, -1))]
        pixels = torch.eye(size, dtype=torch.float64)  # each pixel as a sum of columns
        if mean_removed:
            pixels = torch.cat([pixels[:-1, :-1], -pixels.new_ones(1, size - 1)])
        columns = pixels.shape[1]
        return cls(torch.stack([pixels[image.flatten()[:columns]] for image in moved]))

    def __len__(self) -> int:
        return len(self.matrices)

    def __repr__(self) -> str:
        return f"Symmetries: {self.described()}"

    @property
    def features(self) -> int:
        """D, the number of columns of a row."""
        return self.matrices.shape[1]

    def described(self) -> str:
        """Return a phrase with the number of maps, the number of columns, and a digest of the matrices."""
        digest = hashlib.sha256(self.matrices.double().cpu().numpy().tobytes()).hexdigest()[:8]
        return f"{len(self)} maps of {self.features} columns, fingerprint {digest}"

    def to(self, device: torch.device, dtype: torch.dtype) -> Symmetries:
        """Return the same maps on a device, in a floating dtype."""
        moved = copy.copy(self)
        moved.matrices = self.matrices.to(device, dtype)
        return moved

    def images(self, rows: Tensor) -> Tensor:
        """Return all images of rows (N, D), of shape (S N, D): under the first map, then under the second, and so on.

        >>> Symmetries([[[1.0]], [[-1.0]]]).images(torch.tensor([[2.0], [3.0]])).flatten()
        tensor([ 2.,  3., -2., -3.])
        """
        self._check(rows)
        return torch.cat([exact_linear(rows, matrix) for matrix in self.matrices.to(rows)])

    def draw(self, x: Tensor) -> Tensor:
        """Return one image of each row of x (N, D), of shape (N, D). The map of each row is drawn uniformly.

        Products use at least the precision of x, so a map that permutes columns does not change their values. Nothing
        is read back from the device. Maps on the device of x can be drawn in a captured CUDA graph.

        >>> Symmetries([[[1.0]], [[-1.0]]]).draw(torch.full((9, 1), 2.0)).abs().unique()
        tensor([2.])
        """
        self._check(x)
        every = exact_linear(x, self.matrices.to(x).flatten(0, 1)).unflatten(1, (len(self), self.features))  # (N, S, D)
        drawn = torch.randint(len(self), (len(x), 1, 1), device=x.device, generator=current_generator(x.device))
        images: Tensor = every.gather(1, drawn.expand(-1, 1, self.features)).squeeze(1)
        return images

    def _check(self, x: Tensor) -> None:
        if x.ndim != 2 or x.shape[1] != self.features or not x.is_floating_point():
            raise ValueError(
                f"rows must be floats of shape (N, {self.features}), got {x.dtype} of shape {tuple(x.shape)}"
            )


def check_symmetries(symmetries: Symmetries | None, summary: Summary) -> None:
    """Raise TypeError or ValueError if the symmetries do not fit the training rows."""
    if symmetries is None:
        return
    if type(symmetries) is not Symmetries:
        raise TypeError(f"symmetries= must be cubicflow.data.symmetries.Symmetries, got {type(symmetries).__name__}")
    if summary.shape == (0,):
        raise ValueError("symmetries= needs training rows, but train=None has no rows; leave one of the two out")
    if len(summary.shape) != 1 or not summary.dtype.is_floating_point:
        raise ValueError(
            f"symmetries= needs rows of floats in columns, but train has rows of shape {summary.shape} and dtype "
            f"{summary.dtype}; give x.flatten(1).float()"
        )
    if summary.shape != (symmetries.features,):
        raise ValueError(
            f"symmetries= has maps of {symmetries.features} columns, but train has {summary.shape[0]} columns; use "
            "matrices with one column for each column of train"
        )
