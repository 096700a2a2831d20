"""The protocol of a table's model. Whoever uses a fitted table uses this, and need not know which model it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.laws.cells import Cells
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.plain_rows import Numbers, PlainRows
from cubicflow.tables.table_error import TableError

if TYPE_CHECKING:
    from cubicflow.tables.model.columns import ModelOfColumns
    from cubicflow.tables.schema.inference import Inferred


class OlderRunError(TableError):
    """The error of a run that was right, but that this version does not read."""


class Scored(NamedTuple):
    """Scores of rows, from one pass.

    Attributes:
        log_p: log p of each row given its context, (N,), in nats and in the data's units.
        terms: log p of every cell given the cells before it, (N, D) in the model's order; None for a flow.
        baseline: log p of each row under independent columns, (N,); None if it is not known.
        unseen: which values no training row had, (N, D) in the model's order; None for a flow, which refuses them.
    """

    log_p: Floats
    terms: Floats | None = None
    baseline: Floats | None = None
    unseen: NDArray[np.bool_] | None = None


class Encoder(PlainRows, ABC):
    """The conversion between plain numbers and the numbers of a network: all of a model but its weights."""

    noise_features = 0  # columns to which training adds noise

    @abstractmethod
    def inputs(self, y: Floats, noise: Floats | None = None) -> Floats:
        """Return the network's inputs for plain numbers (N, D). ``noise`` is as :meth:`noise` returns it."""

    @abstractmethod
    def context_inputs(self, context: Floats | None) -> Floats | None:
        """Return the network's inputs for the plain numbers (N, C) of the context; None without context."""

    def noise(self, rows: int, generator: np.random.Generator) -> Floats | None:  # noqa: ARG002
        """Return the noise that training adds to rows, (rows, noise_features); None if it adds none."""
        return None


class TableModel(ABC):
    """An encoder and a network: the distribution of the rows of a table.

    Raises TableError if the network does not suit the encoder.
    """

    name: ClassVar[str]  # as the user names it
    phrase: ClassVar[str]
    takes_gaps: ClassVar[bool]  # whether values may be missing
    takes_temperature: ClassVar[bool]
    has_laws: ClassVar[bool]  # whether it has the distribution of each column given earlier columns
    encoder: Encoder
    network: Any

    def __init__(self, encoder: Any, network: Any) -> None:
        self.encoder, self.network = encoder, network
        self.schema: Schema = encoder.schema
        self.order = [column.name for column in encoder.columns]  # of the modelled columns, in the model's order
        self.cells: Mapping[str, Cells] = {}  # of each column by its name; empty for a flow
        self.notes: list[str] = []  # what the user should know about the model before it is trained

    def laws(self) -> ModelOfColumns:
        """Return the model, if it has the distribution of each column given earlier columns, else raise TableError."""
        raise TableError(f"this run is {self.phrase}, but the call needs a model of columns; fit one", model="columns")

    # --- fitting ---

    @classmethod
    @abstractmethod
    def check(cls, found: Inferred) -> None:
        """Raise TableError, with the reason, if this model cannot be fitted to a table."""

    @classmethod
    @abstractmethod
    def learn(
        cls, schema: Schema, numbers: Floats, train: NDArray[np.int64], seed: int, settings: Mapping[str, Any]
    ) -> Self:
        """Return an untrained model.

        Args:
            numbers: plain numbers (N, D + C + weight) of all rows, in memory or in a file.
            train: the numbers of the training rows.
            settings: settings of the network; others depend on the number of training rows.
        """

    @classmethod
    @abstractmethod
    def setting_names(cls) -> set[str]:
        """Return the names of the settings of the network."""

    @classmethod
    @abstractmethod
    def suited_training(cls, rows: int) -> dict[str, Any]:
        """Return default training settings for this many training rows."""

    def with_network(self, network: nn.Module) -> Self:
        """Return the model with another network."""
        return type(self)(self.encoder, network)

    # --- use ---

    @abstractmethod
    def score(self, numbers: Numbers, *, observed_only: bool = False) -> Scored:
        """Return the scores of rows that the encoder has read.

        ``observed_only`` scores the values that are present, given that they are present, and ignores which values are
        missing. Raises TableError if a score is not a number.
        """

    @abstractmethod
    def conditionals(self, numbers: Numbers) -> Floats | None:
        """Return log p of every value, (N, D) in the model's order: given the values before it, or for a flow, given
        all other values; None if it is not known."""

    def draw(self, n: int, context: Floats | None, generator: torch.Generator, temperature: float = 1.0) -> Floats:
        """Draw rows as plain numbers (n, D); codes are not rounded. A model with laws is drawn column by column, by
        :mod:`cubicflow.tables.query.walk`."""
        raise NotImplementedError

    @abstractmethod
    def usual(self, column: Column) -> Floats:
        """Return plain numbers of a context column, spread over its usual range around a usual number; for words, the
        first word."""

    # --- JSON ---

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the model's own entries of the table section of a config: all but the schema and the weights."""

    @abstractmethod
    def encoding(self) -> dict[str, Any]:
        """Return what a program in another language needs beside the columns to compute the network's inputs."""

    @classmethod
    @abstractmethod
    def read_encoder(cls, schema: Schema, section: Mapping[str, Any]) -> Encoder:
        """Return the encoder that :meth:`to_json` wrote. Raises TableError for anything invalid."""

    def resumed(self, before: Mapping[str, Any]) -> Self:  # noqa: ARG002 - for a flow
        """Return the model for a resumed run, given the run's table section."""
        return self


# --- checks: finite weights that are far too large can give NaN and inf ---


def checked_scores(scores: Floats) -> Floats:
    """Return log likelihoods (N,) unchanged. Raises TableError for NaN and inf; -inf is allowed, for a row of
    probability 0.

    >>> checked_scores(np.array([-1.0, -np.inf])).tolist()
    [-1.0, -inf]
    """
    if bad := int((np.isnan(scores) | np.isposinf(scores)).sum()):
        raise TableError(
            f"the log likelihood of {bad:,} of {len(scores):,} rows is not a number: the rows hold values far beyond "
            "the fitted values, or the weights of the model are too large; remove such rows, or fit again"
        )
    return scores


def check_drawn(*drawn: Tensor) -> None:
    """Raise TableError unless all numbers are finite.

    >>> check_drawn(torch.tensor([0.5, torch.nan]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    cubicflow.tables.table_error.TableError: the samples of this run are not finite: ...
    """
    if not all(bool(torch.isfinite(numbers).all()) for numbers in drawn):
        raise TableError("the samples of this run are not finite: its weights are too large; fit the model again")
