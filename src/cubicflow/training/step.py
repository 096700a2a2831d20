"""One step of training: loss, backward, sum over processes, clip, Adam, average.

A step reads no number back from the device, so that it can be captured and replayed as a CUDA graph. Values that change
from step to step are tensors. Logged values stay in tensors until the loop reads them. A step with a loss or gradient
that is not finite changes no weights; only its number is recorded. The steps after it change no weights either: the
loop may read the number many steps later, and then needs the weights of the failed step.
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
from cubicflow.training.config import TrainingConfig
from cubicflow.training.distributed import Processes
from cubicflow.training.errors import TrainingError
from cubicflow.training.losses import Loss, is_one_pass
from cubicflow.training.optimiser import Averages, RunningStatistics
from cubicflow.training.randomness import Randomness
from cubicflow.training.step_hook import step_hook
from cubicflow.transforms.transform import initialising

TINY = 1e-6  # added to the gradient's norm, to avoid a division by 0


class Step:
    """Training step as a callable, with the tensors that it changes.

    Attributes:
        learning_rate, averaging_weight: tensors that :meth:`set_rates` fills before a step.
        weights: the parameters.
        adam: the optimiser.
        averages: the averaged weights, or None.
        statistics: the buffers that a step may change, such as the running means of batch norm layers.
        count: number of steps taken.
        loss_sum: sum of the losses of all global batches since the loop last read it.
        gradient_norm: norm of the last step's gradient, before clipping.
        failed_at: number of the first step with a loss or gradient that is not finite, or -1.
        randomness: seeds the random numbers of a step.
        symmetries: symmetries of the training rows, or None.
        passes: returns a context manager for the forward and backward pass. All gradients exist when it exits.
    """

    def __init__(
        self,
        flow: Any,
        loss: Loss,
        config: TrainingConfig,
        processes: Processes,
        mean_weight: float,
        symmetries: Symmetries | None = None,
    ) -> None:
        self.flow, self.loss, self.config, self.processes = flow, loss, config, processes
        self.mean_weight = mean_weight
        params = [param for param in flow.parameters() if param.requires_grad]
        if not params:
            raise ValueError("this flow has no parameters to train; add a layer with parameters, or set requires_grad")
        self.dtype = params[0].dtype
        self.learning_rate = torch.zeros((), dtype=torch.float32, device=processes.device)
        self.averaging_weight = torch.zeros((), dtype=self.dtype, device=processes.device)
        self.weights = step_hook.weights(params)
        self.adam = step_hook.adam(self.weights, config.beta2, config.weight_decay)
        self.averages = None if config.average_decay is None else Averages(self.weights)
        self.statistics = RunningStatistics(flow)
        self.randomness = Randomness(flow, processes.device, known_loss=is_one_pass(loss))
        self.symmetries = None if symmetries is None else symmetries.to(processes.device, self.dtype)
        self.passes: Callable[[], AbstractContextManager[None]] = nullcontext
        self.count = torch.zeros((), dtype=torch.int64, device=processes.device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=processes.device)
        self.gradient_norm = torch.zeros((), dtype=torch.float64, device=processes.device)
        self.failed_at = torch.full((), -1, dtype=torch.int64, device=processes.device)

    def set_rates(self, learning_rate: float, averaging_weight: float) -> None:
        """Set the learning rate and the averaging weight of the next step."""
        self.learning_rate.fill_(learning_rate)
        self.averaging_weight.fill_(averaging_weight)

    def __call__(self, batch: Batch) -> None:
        """Take a step. ``batch`` is this process's share of a global batch."""
        self.weights.zero_grad()
        statistics = self.statistics.copy()
        with float32_products(self.config.precision != "float32", self.processes.device), self.passes():
            share = self.share_of_loss(batch)
            if not share.requires_grad:
                raise TrainingError(
                    "the loss depends on no parameter, so there is nothing to train; a table needs a column of numbers "
                    "or a column with words that repeat"
                )
            share.backward()
        gradients = self.weights.gradients()
        loss = self.processes.sum_gradients_(gradients, share.detach())
        bad = step_hook.finish(self, gradients, loss)
        self.weights.bump_versions()
        self.statistics.restore(statistics, where=bad)

    def finish(self, gradients: list[Tensor], loss: Tensor) -> Tensor:
        """Clip the gradients, update weights and averages, and record the step. Nothing changes after a loss or
        gradient that is not finite. Return whether this was the case, as a tensor, ()."""
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in gradients]))
        if self.config.clip_norm is not None:
            factor = (self.config.clip_norm / (norm + TINY)).clamp(max=1)
            for part in gradients:
                part *= factor

        failed = self.failed_at >= 0
        bad = ~torch.isfinite(loss + norm) | failed
        self.adam.update(gradients, self.learning_rate, skip=bad)
        if self.averages is not None:
            self.averages.update(self.averaging_weight * ~bad)

        self.failed_at.copy_(torch.where(bad & ~failed, self.count, self.failed_at))
        self.count += 1
        self.loss_sum += torch.where(bad, 0, loss)
        self.gradient_norm.copy_(norm)
        return bad

    def share_of_loss(self, batch: Batch) -> Tensor:
        """Return this process's part of the mean loss of the global batch. The parts of all processes sum to the mean.

        Row weights are divided by the mean weight of all rows, not by that of the batch: so the gradient is unbiased.
        With symmetries, each row is first replaced by one of its images. Validation does not call this method.
        """
        if self.symmetries is not None:
            batch = batch._replace(x=self.symmetries.draw(batch.x))
        # Splines and log densities compute in float32 under autocast, and so do their backward passes. Autocast's cache
        # of cast weights is off: every weight is used once, and a captured graph must not hold a cache.
        bf16 = self.config.precision == "bf16"
        with torch.autocast(self.processes.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            losses = self.loss(self.flow, batch)  # (B / processes,)
        if losses.shape != (len(batch.x),):
            raise ValueError(
                f"the loss must return one number for each of the {len(batch.x)} rows of its batch, shape "
                f"({len(batch.x)},), got shape {tuple(losses.shape)}; return a single number as "
                "number.expand(len(batch.x))"
            )
        if batch.weights is not None:
            losses = losses * (batch.weights / self.mean_weight)
        return losses.sum() / (self.config.batch_size or 1)

    def loss_of_rows(self, batch: Batch) -> Tensor:
        """Return the loss of every row, of shape (B,), detached from the graph."""
        with self._gradients_for_own_losses():
            return self.loss(self.flow, batch).detach()

    def read(self) -> dict[str, float]:
        """Return the logged values: the sum of the losses since it was last 0, the learning rate and the gradient's
        norm. The program waits for the device once."""
        values = {"loss": self.loss_sum, "learning_rate": self.learning_rate, "gradient_norm": self.gradient_norm}
        numbers = torch.stack([value.double() for value in values.values()]).tolist()
        return dict(zip(values, numbers, strict=True))

    @torch.no_grad()
    def validation_sums(self, batch: Batch) -> Tensor:
        """Return the weighted sum of the losses of the rows, and the sum of their weights: shape (2,), float64."""
        losses = self.loss_of_rows(batch).double()  # (B,)
        weights = torch.ones_like(losses) if batch.weights is None else batch.weights.double()
        return torch.stack([(weights * losses).sum(), weights.sum()])

    @torch.no_grad()
    def initialise(self, batch: Batch) -> None:
        """Initialise layers that choose a start from the first batch. Must precede averaging and captures."""
        statistics = self.statistics.copy()
        with self._gradients_for_own_losses(), initialising(self.flow):
            share = self.share_of_loss(batch).detach()
        self.statistics.restore(statistics, where=~torch.isfinite(share))
        if self.averages is not None:
            self.averages.restart()

    def _gradients_for_own_losses(self) -> AbstractContextManager[None]:
        """Enable gradients for a user's loss, which may compute gradients itself, as score matching does."""
        return torch.set_grad_enabled(not is_one_pass(self.loss))
