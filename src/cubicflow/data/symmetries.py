"""Symmetries of rows: linear maps under which a density is believed to stay what it is.

Where p(Mx) = p(x) for every map M of a set, a training row may be replaced by any of its images. The maps keep volumes,
|det M| = 1: any other would change the density by a factor.
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

from cubicflow.data.row_summary import Summary
from cubicflow.near_names import no_such
from cubicflow.nets.draws import own_generator
from cubicflow.nets.exact_linear import exact_linear

KINDS = ("mirror", "square")  # of the symmetries of images
LOG_DET_ERROR = 1e-4  # nats by which a map may miss |det| = 1: matrices in float32 do, by rounding


@final
class Symmetries:
    """A finite set of linear maps of rows.

    The class is final: a step that is captured as a CUDA graph repeats its kernels, and would not run the Python of a
    subclass.

    Args:
        matrices: (S, D, D), a tensor, an array or a list of arrays: one matrix M with |det M| = 1 for each map x -> Mx.
            The identity is in the set only where it is given. All S D^2 numbers are kept in memory.

    Attributes:
        matrices: (S, D, D), in float64 unless moved.

    >>> turns = Symmetries(torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, -1.0], [1.0, 0.0]]]))
    >>> turns
    Symmetries: 2 maps of 2 columns, fingerprint 081790e7
    >>> turns.images(torch.tensor([[3.0, 4.0]]))
    tensor([[ 3.,  4.],
            [-4.,  3.]])
    """

    def __init__(self, matrices: Any) -> None:
        given = matrices.detach().cpu() if isinstance(matrices, Tensor) else torch.from_numpy(np.array(matrices, float))
        self.matrices = given.double() + 0.0  # a copy, in which -0 is 0
        shape = tuple(self.matrices.shape)
        if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
            raise ValueError(
                f"matrices must have shape (maps, columns, columns), with at least one of each, got {shape}"
            )
        log_dets = torch.linalg.slogdet(self.matrices).logabsdet
        wrong = ~(log_dets.abs() <= LOG_DET_ERROR)  # NaN as well
        if bool(wrong.any()):
            first = int(wrong.nonzero()[0])
            found = float(log_dets[first].exp())
            raise ValueError(
                f"matrices must keep volumes, |det| = 1, but matrix {first} has |det| = {found:.4g}; "
                "leave it out, or scale it"
            )

    @classmethod
    def of_permutations(cls, permutations: Sequence[Sequence[int]]) -> Self:
        """Columns in other orders: the image of a row x under a permutation p is x[p].

        >>> both = Symmetries.of_permutations([[0, 1, 2], [2, 1, 0]])
        >>> both.images(torch.tensor([[5.0, 6.0, 7.0]]))
        tensor([[5., 6., 7.],
                [7., 6., 5.]])
        """
        orders = [[int(column) for column in permutation] for permutation in permutations]
        if not orders or not orders[0]:
            raise ValueError("permutations must be at least one, of at least one column")
        columns = range(len(orders[0]))
        for number, order in enumerate(orders):
            if sorted(order) != list(columns):
                raise ValueError(
                    f"permutations must hold each column from 0 to {columns[-1]} once, but number {number} is {order}"
                )
        return cls(torch.eye(len(columns), dtype=torch.float64)[torch.tensor(orders)])

    @classmethod
    def of_image(cls, shape: Sequence[int], kind: str, *, mean_removed: bool = False) -> Self:
        """Symmetries of images whose pixels are the columns, row by row of the image.

        Args:
            shape: (height, width), or (channels, height, width).
            kind: ``"mirror"`` for the image itself, left to right, top to bottom and both; ``"square"`` for those four
                and the same of the transposed image, which are all eight symmetries of the square.
            mean_removed: the mean of each image was removed and its last value dropped, so that the columns are one
                fewer. The last value is minus the sum of the others.

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
            raise ValueError(no_such("of_image", "kind", kind, KINDS))
        if kind == "square" and shape[-2] != shape[-1]:
            raise ValueError(f"kind='square' needs height = width, got shape {tuple(shape)}; use kind='mirror'")
        size = prod(shape)
        number = torch.arange(size).reshape(*shape)  # of each pixel
        seen = [number] if kind == "mirror" else [number, number.mT]
        moved = [image.flip(axes) for image in seen for axes in ((), (-1,), (-2,), (-2, -1))]
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
        """D, the columns of the rows."""
        return self.matrices.shape[1]

    def described(self) -> str:
        """A phrase that other maps do not have: their number, the columns, and a digest of the matrices."""
        digest = hashlib.sha256(self.matrices.double().cpu().numpy().tobytes()).hexdigest()[:8]
        return f"{len(self)} maps of {self.features} columns, fingerprint {digest}"

    def to(self, device: torch.device, dtype: torch.dtype) -> Symmetries:
        """The same maps on a device, in a floating dtype."""
        moved = copy.copy(self)
        moved.matrices = self.matrices.to(device, dtype)
        return moved

    def images(self, rows: Tensor) -> Tensor:
        """(S N, D): all rows (N, D) under the first map, then under the second, and so on.

        >>> Symmetries([[[1.0]], [[-1.0]]]).images(torch.tensor([[2.0], [3.0]])).flatten()
        tensor([ 2.,  3., -2., -3.])
        """
        self._check(rows)
        return torch.cat([exact_linear(rows, matrix) for matrix in self.matrices.to(rows)])

    def draw(self, x: Tensor) -> Tensor:
        """(N, D): each row of x (N, D) under a map of its own, drawn uniformly by torch's generator of x's device.

        Products are never below the precision of x, so a map that exchanges columns leaves their values as they are.
        Nothing is read back from the device. Maps that are where x is already can be drawn in a captured CUDA graph.

        >>> Symmetries([[[1.0]], [[-1.0]]]).draw(torch.full((9, 1), 2.0)).abs().unique()
        tensor([2.])
        """
        self._check(x)
        every = exact_linear(x, self.matrices.to(x).flatten(0, 1)).unflatten(1, (len(self), self.features))  # (N, S, D)
        drawn = torch.randint(len(self), (len(x), 1, 1), device=x.device, generator=own_generator(x.device))
        images: Tensor = every.gather(1, drawn.expand(-1, 1, self.features)).squeeze(1)
        return images

    def _check(self, x: Tensor) -> None:
        if x.ndim != 2 or x.shape[1] != self.features or not x.is_floating_point():
            raise ValueError(
                f"rows must be floats of shape (N, {self.features}), got {x.dtype} of shape {tuple(x.shape)}"
            )


def check_symmetries(symmetries: Symmetries | None, summary: Summary) -> None:
    """Refuse symmetries that are not for these training rows."""
    if symmetries is None:
        return
    if type(symmetries) is not Symmetries:
        raise TypeError(f"symmetries= must be cubicflow.data.symmetries.Symmetries, got {type(symmetries).__name__}")
    if summary.shape == (0,):
        raise ValueError("symmetries= is for training rows, but train=None has none; leave one of the two out")
    if len(summary.shape) != 1 or not summary.dtype.is_floating_point:
        raise ValueError(
            f"symmetries= is for rows of floats in columns, but train has rows of shape {summary.shape} and dtype "
            f"{summary.dtype}; give x.flatten(1).float()"
        )
    if summary.shape != (symmetries.features,):
        raise ValueError(
            f"symmetries= has maps of {symmetries.features} columns, but train has {summary.shape[0]}; make them for "
            "the columns of train"
        )
