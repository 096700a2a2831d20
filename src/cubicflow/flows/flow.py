"""Flow: a base density and a transform."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from cubicflow.arguments import whole_number
from cubicflow.distributions import Base
from cubicflow.flows.pieces import RowFunction, pieces
from cubicflow.flows.short_repr import short_repr
from cubicflow.flows.support import check_shapes
from cubicflow.nets.tracing import is_traced
from cubicflow.transforms import Transform
from cubicflow.transforms.transform import context_for

if TYPE_CHECKING:
    from cubicflow.flows.check import FlowCheck
    from cubicflow.flows.flow_distribution import FlowDistribution

# The default size of a piece of a large call, in rows (for images in pixels, with attention in tokens). The hidden
# units of one piece take a few gigabytes.
ROWS_AT_ONCE = 2**20
FEW_ROWS = 1024  # rows; a smaller call is never cut into pieces


class Flow(nn.Module):
    """A density p(x) or p(x | context) with exact log densities and exact samples.

    Rows may have any batch shape: x of shape (..., D) broadcasts against context of shape (..., C). ``batch_size`` cuts
    a large call into pieces of that many rows. To bound the memory, also call under ``torch.no_grad()``. Without
    gradients, large calls on a GPU, or with attention, are cut by default.

    Args:
        base: the density of the noise.
        transform: the map from data to noise.
        shape: the shape of one datum. The default is (base.features,). For images it is (C, H, W).

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(3, num_layers=2, hidden_features=16)
    >>> x = flow.sample(5, seed=0)
    >>> x.shape, flow.log_prob(x).shape
    (torch.Size([5, 3]), torch.Size([5]))

    The text of a flow is short. ``print(flow.transform)`` shows all modules.

    >>> flow
    Flow(
      3 features, 3,489 parameters
      base: StandardNormal
      layers: 3 LULinear, 2 Coupling(cubic, K=10, ResidualMLP)
    )
    """

    def __init__(self, base: Base, transform: Transform, shape: Sequence[int] | None = None) -> None:
        super().__init__()
        self.base = base
        self.transform = transform
        self.shape = (base.features,) if shape is None else tuple(shape)
        check_shapes(self)

    @property
    def context_features(self) -> int:
        """The number C of context features; 0 for a flow without context."""
        return self.transform.context_features or self.base.context_features

    @property
    def exact(self) -> bool:
        """Whether log densities are exact. If False, some layer estimates its log-determinant."""
        return all(getattr(module, "exact", True) for module in self.transform.modules())

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"base": self.base, "transform": self.transform, "shape": list(self.shape)}

    def __repr__(self) -> str:
        return short_repr(self)

    # --- densities ---

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return :meth:`log_prob`.

        Wrappers such as ``DistributedDataParallel`` call ``forward``: ``ddp(x)`` synchronises gradients, and
        ``ddp.module.log_prob(x)`` does not."""
        return self.log_prob(x, context)

    def log_prob(self, x: Tensor, context: Tensor | None = None, *, batch_size: int | None = None) -> Tensor:
        """Return log p(x | context) in nats, (...,), for x (..., *shape) and context (..., C)."""

        def piece(rows: Tensor, context: Tensor | None) -> tuple[Tensor]:
            z, log_det = self._forth(rows, context)
            return (self.noise_log_prob(z, context) + log_det,)

        return self._by_rows(piece, x, self.shape, context, batch_size)[0]

    def to_noise(
        self, x: Tensor, context: Tensor | None = None, *, batch_size: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map data x (..., *shape) to noise. Return z (..., base.features) and log_det (...,)."""
        z, log_det = self._by_rows(self._forth, x, self.shape, context, batch_size)
        return z, log_det

    def from_noise(
        self, z: Tensor, context: Tensor | None = None, *, batch_size: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map noise z (..., base.features) to data. Return x (..., *shape) and log_det (...,)."""
        x, log_det = self._by_rows(self._back, z, (self.base.features,), context, batch_size)
        return x, log_det

    def noise_log_prob(self, z: Tensor, context: Tensor | None = None, temperature: float = 1.0) -> Tensor:
        """Return the log density of noise z (..., base.features) under the base, (...,)."""
        if not self.base.context_features:
            return self.base.log_prob(z, temperature)
        return self.base.log_prob(z, temperature, context)  # type: ignore[call-arg] # only these bases take it

    # --- samples ---

    @torch.no_grad()
    def sample(
        self,
        n: int,
        context: Tensor | None = None,
        temperature: float = 1.0,
        *,
        batch_size: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Draw n samples, (n, D), without gradients. For context of shape (N, C), draw n samples for each row of
        context, (n, N, D).

        ``temperature`` scales the standard deviation of the base. The same ``generator`` state or ``seed`` gives the
        same samples for every batch_size.
        """
        z = self._noise(n, context, temperature, generator, seed)
        return self.from_noise(z, context, batch_size=batch_size)[0]

    def sample_and_log_prob(
        self,
        n: int,
        context: Tensor | None = None,
        temperature: float = 1.0,
        *,
        batch_size: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw samples as in :meth:`sample`, and return them with their log densities, (n,) or (n, N). One network pass
        computes both, with gradients.

        At a temperature other than 1, the log densities are those of the tempered flow.
        """
        z = self._noise(n, context, temperature, generator, seed)
        x, log_det = self.from_noise(z, context, batch_size=batch_size)
        return x, self.noise_log_prob(z, context, temperature) - log_det

    def distribution(self, context: Tensor | None = None) -> FlowDistribution:
        """Return this flow, given the context, as a ``torch.distributions.Distribution``. If Pyro has been imported,
        the result is also a Pyro distribution."""
        from cubicflow.flows.flow_distribution import distribution_class

        return distribution_class()(self, context)

    # --- housekeeping ---

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors into ``folder``. :func:`cubicflow.load` reads them."""
        from cubicflow.flows.serialization import save_flow

        save_flow(self, folder)

    def check(self, x: Tensor, context: Tensor | None = None) -> FlowCheck:
        """Check the flow on rows x (..., *shape): round trip, log-det against autograd, rows in the far tails.

        Print the result as a table, and return it.
        """
        from cubicflow.flows.check import check_flow

        report = check_flow(self, x, context)
        print(report)  # noqa: T201
        return report

    def _noise(
        self, n: int, context: Tensor | None, temperature: float, generator: torch.Generator | None, seed: int | None
    ) -> Tensor:
        """Draw noise of shape (n, *batch shape of context, base.features)."""
        generator = as_generator(generator, seed, self.base.anchor.device)
        batch = sample_shape(n, context)
        if not self.base.context_features or context is None:
            z = self.base.sample(batch.numel(), temperature, generator)
        else:
            rows = context.to(self.base.anchor.dtype).expand(*batch, -1).reshape(batch.numel(), -1)
            z = self.base.sample(batch.numel(), temperature, generator, rows)  # type: ignore[call-arg]
        return z.reshape(*batch, self.base.features)

    def _forth(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = self.transform(x, context_for(self.transform, context))
        return outputs

    def _back(self, z: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.transform.inverse(z, context_for(self.transform, context))

    def _rows_at_once(self, rows: Tensor, shape: tuple[int, ...]) -> int | None:
        """Return the number of rows per piece of a large call, or None for one piece. Attention needs memory for every
        token, so rows with tokens count more."""
        if len(rows) < FEW_ROWS:
            return None
        tokens = max(getattr(module, "tokens", 1) for module in self.modules())
        if not rows.is_cuda and tokens == 1:
            return None
        return max(1, ROWS_AT_ONCE // (math.prod(shape[1:]) * tokens))

    def _by_rows(
        self, function: RowFunction, x: Tensor, shape: tuple[int, ...], context: Tensor | None, batch_size: int | None
    ) -> list[Tensor]:
        """Flatten the batch shape to rows, apply ``function`` to pieces of the rows, and restore the batch shape."""
        x, context = as_flow("x", x, self.base.anchor), as_flow("context", context, self.base.anchor)
        rows, context, batch = flatten_rows(x, shape, context, self.context_features)
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if batch_size is None and not torch.is_grad_enabled() and not is_traced():
            batch_size = self._rows_at_once(rows, shape)
        if batch_size is None:
            outputs = function(rows, context)
        else:
            outputs = pieces.apply(function, rows, context, batch_size, self)
        return [output.reshape(batch + output.shape[1:]) for output in outputs]


Given = TypeVar("Given", Tensor, Tensor | None)


def as_flow(name: str, values: Given, anchor: Tensor) -> Given:
    """Return values in the flow's dtype. Raise a TypeError for arrays and lists, and for an integer x: integers may be
    codes, or counts that need dequantisation."""
    if isinstance(values, (np.ndarray, list, tuple)):
        raise TypeError(
            f"{name} must be a tensor, got {type(values).__name__}; convert it with torch.as_tensor({name})"
        )
    if values is None or not isinstance(values, Tensor) or values.dtype == anchor.dtype:
        return values
    if not values.is_floating_point() and name == "x":
        raise TypeError(f"{name} must be floating point, got {values.dtype}; convert it with {name}.float()")
    return values.to(anchor.dtype)


def flatten_rows(
    x: Tensor, shape: tuple[int, ...], context: Tensor | None, context_features: int
) -> tuple[Tensor, Tensor | None, torch.Size]:
    """Broadcast x (*batch, *shape) and context (*batch, C) to one batch shape, and flatten it to rows. Return the rows
    of x, the rows of context and the batch shape."""
    if x.ndim < len(shape) or tuple(x.shape[-len(shape) :]) != shape:
        raise ValueError(
            f"this flow is on data of shape {shape}: x must have shape (..., {', '.join(map(str, shape))}), got "
            f"{tuple(x.shape)}"
        )
    batch = x.shape[: x.ndim - len(shape)]
    if context is None:
        if context_features:
            raise ValueError(f"this flow is conditional: pass context= of shape (..., {context_features})")
        return x.reshape(-1, *shape) if x.numel() else x.reshape(batch.numel(), *shape), None, batch
    if not context_features:
        raise ValueError("this flow has no context; leave out context=, or build the flow with context_features=")
    if context.ndim < 1 or context.shape[-1] != context_features:
        raise ValueError(f"context must have shape (..., {context_features}), got {tuple(context.shape)}")
    try:
        batch = torch.broadcast_shapes(batch, context.shape[:-1])
    except RuntimeError:
        raise ValueError(
            f"x of shape {tuple(x.shape)} and context of shape {tuple(context.shape)} do not broadcast: give one row "
            "of context for each row of x, or x of shape (n, N, ...) for N rows of context"
        ) from None
    rows = x.expand(*batch, *shape).reshape(batch.numel(), *shape)
    return rows, context.expand(*batch, context_features).reshape(batch.numel(), context_features), batch


def sample_shape(n: int, context: Tensor | None) -> torch.Size:
    """Return (n, *batch shape of context). Raise a ValueError unless n is a whole number, 0 or more."""
    return torch.Size((whole_number("n", n, 0), *(() if context is None else context.shape[:-1])))


def as_generator(generator: torch.Generator | None, seed: int | None, device: torch.device) -> torch.Generator | None:
    """Return the given generator, or a generator with the given seed on the device, or None."""
    if generator is not None and seed is not None:
        raise ValueError("give generator= or seed=, not both")
    return generator if seed is None else torch.Generator(device).manual_seed(seed)
