"""One step of training: loss, backward, sum over processes, clip, Adam, average.

Nothing here reads a number back from the device: what changes from step to step comes in as tensors, what is to be
logged stays in tensors until it is asked for, and a step whose loss or gradient is not finite changes nothing but the
record of its number. So the same code can be replayed as one captured graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.data.symmetries import Symmetries
from cubicflow.nets.precision import float32_products
from cubicflow.training.averaging import Averages
from cubicflow.training.config import TrainingConfig
from cubicflow.training.distributed import World
from cubicflow.training.losses import SINGLE_PASS, Loss
from cubicflow.training.parts import parts
from cubicflow.training.randomness import Randomness
from cubicflow.training.running_statistics import RunningStatistics

TINY = 1e-6  # a gradient of 0 is not divided by its norm


class Step:
    """What a step works on, and the step itself.

    Attributes:
        learning_rate, averaging_weight: tensors that :meth:`tell` fills before a step.
        weights: the parameters.
        adam: their optimiser.
        averages: the averaged weights, or None.
        statistics: those of batch norms.
        count: steps taken.
        loss_sum: of all global batches since it was last read.
        gradient_norm: of the last step, before clipping.
        failed_at: the number of the first step that was not finite, or -1.
        randomness: of the fit; seeds what a step draws.
        symmetries: of the training rows, or None.
        passes: makes the context in which a forward and a backward pass run; when it ends the gradients are there.
    """

    def __init__(
        self,
        flow: Any,
        loss: Loss,
        config: TrainingConfig,
        world: World,
        mean_weight: float,
        symmetries: Symmetries | None = None,
    ) -> None:
        self.flow, self.loss, self.config, self.world = flow, loss, config, world
        self.mean_weight = mean_weight
        params = [param for param in flow.parameters() if param.requires_grad]
        if not params:
            raise ValueError("this flow has no parameters to train")
        self.dtype = params[0].dtype
        self.learning_rate = torch.zeros((), dtype=torch.float32, device=world.device)
        self.averaging_weight = torch.zeros((), dtype=self.dtype, device=world.device)
        self.weights = parts.weights(params)
        self.adam = parts.adam(self.weights, config.beta2, config.weight_decay)
        self.averages = None if config.average_decay is None else Averages(self.weights)
        self.statistics = RunningStatistics(flow)
        self.randomness = Randomness(flow, world.device, known_loss=loss in SINGLE_PASS)
        self.symmetries = None if symmetries is None else symmetries.to(world.device, self.dtype)
        self.passes: Callable[[], AbstractContextManager[None]] = nullcontext
        self.count = torch.zeros((), dtype=torch.int64, device=world.device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=world.device)
        self.gradient_norm = torch.zeros((), dtype=torch.float64, device=world.device)
        self.failed_at = torch.full((), -1, dtype=torch.int64, device=world.device)

    def tell(self, learning_rate: float, averaging_weight: float) -> None:
        """What the schedule says for the next step."""
        self.learning_rate.fill_(learning_rate)
        self.averaging_weight.fill_(averaging_weight)

    def __call__(self, batch: Batch) -> None:
        """Take a step on this process's share of a global batch."""
        self.weights.forget_gradients()
        statistics = self.statistics.copy()
        with float32_products(self.config.precision != "float32", self.world.device), self.passes():
            share = self.share_of_loss(batch)
            share.backward()
        gradients = self.weights.gradients()
        loss = self.world.sum_gradients_(gradients, share.detach())
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in gradients]))
        if self.config.clip_norm is not None:
            factor = (self.config.clip_norm / (norm + TINY)).clamp(max=1)
            for part in gradients:
                part *= factor

        bad = ~torch.isfinite(loss + norm)
        self.adam.update(gradients, self.learning_rate, void=bad)
        self.weights.written()
        self.statistics.put_back(statistics, where=bad)
        if self.averages is not None:
            self.averages.update(self.averaging_weight * ~bad)

        self.failed_at.copy_(torch.where(bad & (self.failed_at < 0), self.count, self.failed_at))
        self.count += 1
        self.loss_sum += torch.where(bad, 0, loss)
        self.gradient_norm.copy_(norm)

    def share_of_loss(self, batch: Batch) -> Tensor:
        """This process's part of the mean over the global batch: the parts add up to the mean, whatever their sizes.

        Row weights are divided by the mean weight of all rows, not of the batch: that leaves the gradient unbiased.
        Where there are symmetries, each row is replaced by one of its images. Validation does not come this way.
        """
        if self.symmetries is not None:
            batch = batch._replace(x=self.symmetries.draw(batch.x))
        # Splines and log densities promote themselves to float32; the backward pass repeats the forward's choices.
        # Every weight is used once: a cache of their casts would save nothing, and a captured graph must not have one.
        bf16 = self.config.precision == "bf16"
        with torch.autocast(self.world.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            losses = self.loss(self.flow, batch)  # (B / processes,)
        if losses.shape != (len(batch.x),):
            raise ValueError(
                f"the loss must return one number for each of the {len(batch.x)} rows of its batch, shape "
                f"({len(batch.x)},), got shape {tuple(losses.shape)}; a single number is number.expand(len(batch.x))"
            )
        if batch.weights is not None:
            losses = losses * (batch.weights / self.mean_weight)
        return losses.sum() / (self.config.batch_size or 1)

    def loss_of_rows(self, batch: Batch) -> Tensor:
        """The loss of every row, without its graph."""
        with self._gradients_if_wanted():
            return self.loss(self.flow, batch).detach()

    @torch.no_grad()
    def initialise(self, batch: Batch) -> None:
        """Let layers that take their scale from the first batch do so, before anything is averaged or captured."""
        statistics = self.statistics.copy()
        with self._gradients_if_wanted():
            share = self.share_of_loss(batch).detach()
        self.statistics.put_back(statistics, where=~torch.isfinite(share))
        if self.averages is not None:
            self.averages.restart()

    def _gradients_if_wanted(self) -> AbstractContextManager[None]:
        """A loss of the user's own may differentiate on its way, as score matching does, so it always can."""
        return torch.set_grad_enabled(self.loss not in SINGLE_PASS)
