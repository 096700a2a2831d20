"""Flow: a base density and a transform."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cubicflow.arguments import whole_number
from cubicflow.distributions import Base
from cubicflow.flows.batch_shapes import as_flow, as_generator, checked_context, expanded, flatten_rows, sample_shape
from cubicflow.flows.chunks import RowFunction, chunks
from cubicflow.flows.short_repr import short_repr
from cubicflow.flows.support import check_shapes
from cubicflow.nets.tracing import is_traced
from cubicflow.transforms import Transform
from cubicflow.transforms.transform import context_for

if TYPE_CHECKING:
    from cubicflow.flows.check import FlowCheck
    from cubicflow.flows.flow_distribution import FlowDistribution

# The default size of a chunk of a large call, in rows (for images in pixels, with attention in tokens). The hidden
# units of one chunk take a few gigabytes.
ROWS_AT_ONCE = 2**20
FEW_ROWS = 1024  # rows; a smaller call is never cut into chunks


class Flow(nn.Module):
    """A density p(x) or p(x | context) with exact log densities and exact samples.

    Rows may have any batch shape: x of shape (..., D) broadcasts against context of shape (..., C). ``batch_size`` cuts
    a large call into chunks of that many rows. To bound the memory, also call under ``torch.no_grad()``. Without
    gradients, large calls on a GPU, or with attention, are cut by default.

    Args:
        base: the density of the noise.
        transform: the map from data to noise.
        shape: the shape of one datum. The default is (base.features,). For images it is (C, H, W).
        context_shape: the shape of one context. The default is (C,), the context features of the layers and the base.
            For images it is (C, H, W); the layers then need networks for images, or the flow an ``embedding_net``.
        embedding_net: a network from contexts (N, *context_shape), in the flow's dtype, to the contexts that the layers
            and the base see, one vector for each row. It is trained with the flow and, if its class is registered,
            saved with the flow.

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

    def __init__(
        self,
        base: Base,
        transform: Transform,
        shape: Sequence[int] | None = None,
        *,
        context_shape: Sequence[int] | None = None,
        embedding_net: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.base = base
        self.transform = transform
        self.embedding_net = embedding_net
        self.shape = (base.features,) if shape is None else tuple(shape)
        size = transform.context_features or base.context_features
        self.context_shape = ((size,) if size else ()) if context_shape is None else tuple(context_shape)
        self.embedded_shape = self.context_shape if embedding_net is None else (size,)
        check_shapes(self)

    @property
    def context_features(self) -> int:
        """The first size of a context: the number of features, or of an image's channels; 0 for a flow without
        context."""
        return self.context_shape[0] if self.context_shape else 0

    @property
    def exact(self) -> bool:
        """Whether log densities are exact. If False, some layer estimates its log-determinant."""
        return all(getattr(module, "exact", True) for module in self.transform.modules())

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {"base": self.base, "transform": self.transform, "shape": list(self.shape)}
        if self.embedding_net is not None or len(self.context_shape) > 1:
            config |= {"context_shape": list(self.context_shape), "embedding_net": self.embedding_net}
        return config

    def __repr__(self) -> str:
        return short_repr(self)

    # --- densities ---

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return :meth:`log_prob`.

        Wrappers such as ``DistributedDataParallel`` call ``forward``: ``ddp(x)`` synchronises gradients, and
        ``ddp.module.log_prob(x)`` does not."""
        return self.log_prob(x, context)

    def log_prob(
        self, x: Tensor, context: Tensor | None = None, *, batch_size: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        """Return log p(x | context) in nats, (...,), for x (..., *shape) and context (..., *context_shape). At another
        ``temperature`` than 1, p is the density of tempered samples."""

        def densities(rows: Tensor, context: Tensor | None) -> tuple[Tensor]:
            z, log_det = self._forth(rows, context)
            return (self.noise_log_prob(z, context, temperature) + log_det,)

        return self._by_rows(densities, x, self.shape, self.embed(context), batch_size)[0]

    def to_noise(
        self, x: Tensor, context: Tensor | None = None, *, batch_size: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map data x (..., *shape) to noise. Return z (..., base.features) and log_det (...,)."""
        z, log_det = self._by_rows(self._forth, x, self.shape, self.embed(context), batch_size)
        return z, log_det

    def from_noise(
        self, z: Tensor, context: Tensor | None = None, *, batch_size: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map noise z (..., base.features) to data. Return x (..., *shape) and log_det (...,)."""
        x, log_det = self._by_rows(self._back, z, (self.base.features,), self.embed(context), batch_size)
        return x, log_det

    def embed(self, context: Tensor | None) -> Tensor | None:
        """Return the contexts (..., *embedded_shape) that the layers and the base see."""
        if self.embedding_net is None:
            return context
        context, batch = checked_context(as_flow("context", context, self.base.anchor), self.context_shape)
        embedded: Tensor = self.embedding_net(context.reshape(batch.numel(), *self.context_shape))
        if embedded.shape != (batch.numel(), *self.embedded_shape):
            raise ValueError(
                f"the layers and the base take contexts of shape {self.embedded_shape}, and the embedding_net returns "
                f"shape {tuple(embedded.shape)} for {batch.numel()} rows; change its last layer, or context_features="
            )
        return embedded.reshape(*batch, *self.embedded_shape)

    def noise_log_prob(self, z: Tensor, context: Tensor | None = None, temperature: float = 1.0) -> Tensor:
        """Return the log density of noise z (..., base.features) under the base, (...,), given contexts of
        :meth:`embed`."""
        given = (context,) if self.base.context_features else ()  # only bases with context take this argument
        return self.base.log_prob(z, temperature, *given)

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
        context = self.embed(context)
        z = self._noise(n, context, temperature, generator, seed)
        return self._by_rows(self._back, z, (self.base.features,), context, batch_size)[0]

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
        context = self.embed(context)  # once: a network with dropout would draw again
        z = self._noise(n, context, temperature, generator, seed)
        x, log_det = self._by_rows(self._back, z, (self.base.features,), context, batch_size)
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
        batch = sample_shape(n, context, len(self.embedded_shape))
        given: tuple[Tensor, ...] = ()
        if self.base.context_features and context is not None:
            given = (expanded(context.to(self.base.anchor.dtype), batch, self.embedded_shape),)
        return self.base.sample(batch.numel(), temperature, generator, *given).reshape(*batch, self.base.features)

    def _forth(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = self.transform(x, context_for(self.transform, context))
        return outputs

    def _back(self, z: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.transform.inverse(z, context_for(self.transform, context))

    def _rows_at_once(self, rows: Tensor, shape: tuple[int, ...]) -> int | None:
        """Return the number of rows per chunk of a large call, or None for one chunk. Attention needs memory for every
        token, so rows with tokens count more."""
        if len(rows) < FEW_ROWS:
            return None
        if not rows.is_cuda and self._tokens == 1:
            return None
        return max(1, ROWS_AT_ONCE // (math.prod(shape[1:]) * self._tokens))

    @cached_property
    def _tokens(self) -> int:
        """The number of tokens of a row; 1 without attention. Cached: a search of all modules takes as long as a small
        call."""
        return max(getattr(module, "tokens", 1) for module in self.modules())

    def _by_rows(
        self, function: RowFunction, x: Tensor, shape: tuple[int, ...], context: Tensor | None, batch_size: int | None
    ) -> list[Tensor]:
        """Flatten the batch shape to rows, apply ``function`` to chunks of the rows, and restore the batch shape."""
        x, context = as_flow("x", x, self.base.anchor), as_flow("context", context, self.base.anchor)
        rows, context, batch = flatten_rows(x, shape, context, self.embedded_shape)
        if batch_size is not None:
            batch_size = whole_number("batch_size", batch_size, 1)
        elif not torch.is_grad_enabled() and not is_traced():
            batch_size = self._rows_at_once(rows, shape)
        if batch_size is None:
            outputs = function(rows, context)
        else:
            outputs = chunks.apply(function, rows, context, batch_size, self)
        return [output.reshape(batch + output.shape[1:]) for output in outputs]
