"""The common base classes of the estimators: arguments, inputs, seeds, devices, and fits of many rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from cubicflow.arguments import whole_number
from cubicflow.estimator import inputs
from cubicflow.estimator.cross_fitting import Folds, Schedule
from cubicflow.estimator.density_members import MemberSettings
from cubicflow.estimator.weighted_rows import WeightedRows
from cubicflow.nets.rng import use_generator
from cubicflow.progress import Progress, make_progress
from cubicflow.tables import FittedTable, Missing, Schema, checked_device, fit_rows, some
from cubicflow.tables.model import Numbers
from cubicflow.weights import Floats

MANY = 5_000  # rows; with more rows, training in batches is faster than training members on all rows at once
HELD_OUT = 10  # one of this many rows is held out for early stopping
COLUMN_SIZES = ("hidden_features", "num_bins", "dropout")
SIZES = ("num_layers", *COLUMN_SIZES)


@dataclass(eq=False, repr=False)
class TableEstimator(BaseEstimator):  # type: ignore[misc] # sklearn has no types
    """Abstract base class of the three estimators.

    The fields with a default are constructor arguments, which the subclasses document.
    """

    _: KW_ONLY
    hidden_features: int | None = None
    num_bins: int | None = None
    dropout: float | None = None
    learning_rate: float | None = None
    max_steps: int | None = None
    kinds: Mapping[Any, str] | None = None
    device: str = "auto"
    verbose: bool | int = False
    random_state: Any = None
    fitted_: FittedTable = field(init=False)
    template_: Any = field(init=False)  # the fitted frame without its rows; None for an array

    @property
    def flow_(self) -> Any:
        """The network of the fitted table."""
        return self.fitted_.flow

    @property
    def schema_(self) -> Schema:
        """The kind and encoding of each column."""
        return self.fitted_.schema

    def _x_table(self, X: Any, *, fitting: bool = False, gaps: bool = False, fewest: int = 2) -> pa.Table:  # noqa: N803
        """Return X as a table. If ``gaps`` is true, values may be missing. A fit needs at least ``fewest`` rows."""
        if fitting:
            self.template_ = inputs.empty_like(X) if inputs.is_frame(X) else None
        if self.template_ is None:
            finite: Any = "allow-nan" if gaps else True
            checks: dict[str, Any] = {"dtype": np.float64, "ensure_min_samples": fewest if fitting else 1}
            return inputs.array_table(validate_data(self, X, reset=fitting, ensure_all_finite=finite, **checks), "x")
        if not inputs.is_frame(X):
            raise ValueError(f"fit got a frame with the columns {inputs.names(self.template_)}; give such a frame")
        if fitting:
            validate_data(self, X, skip_check_array=True)
        rows = inputs.arrow_table(X)
        return rows if gaps else inputs.without_gaps(rows)

    def _output(self, rows: pa.Table) -> Any:
        """Return rows as an array, or as a frame like the fitted one."""
        if self.template_ is None:
            return np.stack([column.to_numpy() for column in rows.columns], axis=1)
        return inputs.in_form_of(self.template_, rows)

    def _requested_kinds(self, x_names: Sequence[str], array_y: Sequence[str] = ()) -> dict[str, str]:
        """Return the kinds that are not inferred: those in ``kinds``; the other columns of an array are real.

        ``array_y`` are the columns of a y that is an array. For an array X, the keys of ``kinds`` are numbers of
        columns of X, or names of columns of y.
        """
        kinds, are_real = dict(self.kinds or {}), dict.fromkeys(array_y, "real")
        if self.template_ is not None:
            return are_real | kinds
        known: dict[Any, str] = {**dict(enumerate(x_names)), **{name: name for name in array_y}}
        if unknown := [key for key in kinds if key not in known]:
            y_columns = f", those of y are {some(array_y)}" if array_y else ""
            raise ValueError(
                f"kinds names an unknown column {unknown[0]!r}; the columns of X are "
                f"{some(range(len(x_names)))}{y_columns}"
            )
        return dict.fromkeys(x_names, "real") | are_real | {known[key]: kind for key, kind in kinds.items()}

    def _given(self, *names: str, **renamed: str) -> dict[str, Any]:
        """Return the settings that are not None. ``renamed`` maps names of the estimator to other names."""
        all_names = {name: name for name in names} | renamed
        return {new: getattr(self, old) for old, new in all_names.items() if getattr(self, old) is not None}

    def _fit_many(
        self, name: str, schema: Schema, numbers: Numbers, weights: Floats, seed: int
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Fit the model with this name as the command line does. Return the scores of the held-out rows, and their
        numbers.

        Settings of the estimator that are not None replace the defaults.
        """
        parts = [numbers.y, numbers.context, (weights / weights.mean())[:, None]]
        rows = np.concatenate([part for part in parts if part is not None], axis=1)
        order = np.random.default_rng(seed).permutation(len(rows))
        held_out, seen = np.split(order, [max(len(order) // HELD_OUT, 1)])
        training = {"device": self.device, "seed": seed, **self._given("learning_rate", max_steps="steps")}
        sizes = self._given(*(SIZES if name == "flow" else COLUMN_SIZES))
        fitted, scores = fit_rows(name, schema, rows, (seen, held_out), sizes, training, progress=bool(self.verbose))
        self._keep(fitted)
        return scores, held_out

    def _keep(self, fitted: FittedTable) -> None:
        """Keep a trained model, in float64 and on the device of evaluation."""
        fitted.flow.double().to(self._device()).eval()
        self.fitted_ = fitted

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(checked_device(self.device) or "cpu")


@dataclass(eq=False, repr=False)
class BaseFlowEstimator(TableEstimator):
    """Abstract base class of :class:`CubicFlowDensity` and :class:`CubicFlowConditional`."""

    n_members: int = 5
    _: KW_ONLY
    num_layers: int | None = None

    def _learn_schema(
        self, rows: pa.Table, weights: Floats, given: tuple[str, ...] = (), array_y: tuple[str, ...] = ()
    ) -> Schema:
        """Return the schema of the columns.

        ``given`` are the columns to condition on. ``array_y`` are the columns of a y that is an array.
        """
        if self.template_ is None and not self.kinds:
            return inputs.learn_real(rows, weights, given)
        kinds = self._requested_kinds(given or rows.column_names, array_y)
        return inputs.infer_typed(rows, weights, given, kinds, Missing.ERROR).schema

    def _weighted(self, rows: pa.Table, sample_weight: Any) -> tuple[pa.Table, Floats]:
        """Return the rows with a positive weight, and their weights. The values of other rows are never read."""
        given = 1.0 if sample_weight is None else sample_weight
        given = np.full(len(rows), given) if np.isscalar(given) else given
        checks: dict[str, Any] = {"ensure_2d": False, "ensure_non_negative": True, "input_name": "sample_weight"}
        weights: Floats = check_array(given, dtype=np.float64, **checks)
        if weights.shape != (len(rows),):
            raise ValueError(f"Sample weights must be 1D array or scalar of {len(rows)} rows, got {weights.shape}")
        kept = weights > 0
        if not kept.any():
            raise ValueError("Sample weights must contain at least one non-zero number.")
        return rows.filter(pa.array(kept)), weights[kept]

    def _folds(self, rows: WeightedRows, generator: np.random.Generator) -> Folds:
        if len(rows) < 2:
            raise ValueError("n_samples=1: all rows are the same, but a density needs at least two distinct rows")
        return Folds.draw(len(rows), whole_number("n_members", self.n_members, 1), generator)

    def _settings(self, seed: int) -> MemberSettings:
        steps = 250 if self.max_steps is None else whole_number("max_steps", self.max_steps, 0)
        if self.num_layers is not None:
            whole_number("num_layers", self.num_layers, 0)
        return MemberSettings(
            **self._given(*SIZES),
            max_components=whole_number("max_components", getattr(self, "max_components", 1), 1),
            marginals=Schedule(min(steps, 200), 1e-2),
            couplings=Schedule(steps, 3e-3 if self.learning_rate is None else self.learning_rate),
            seed=seed,
        )

    def _progress(self) -> AbstractContextManager[Progress]:
        return closing(make_progress(bool(self.verbose), validates=True))


@contextmanager
def private_randomness(seed: int) -> Iterator[np.random.Generator]:
    """Draw random numbers inside the block from private generators of torch and NumPy; yield the NumPy generator."""
    with use_generator(torch.Generator().manual_seed(seed)):
        yield np.random.default_rng(seed)


def draw_seed(random_state: Any) -> int:
    """Return an integer seed from scikit-learn's ``random_state``."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def joined(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return one table with the columns of both tables."""
    return pa.table([*first.columns, *second.columns], schema=pa.schema([*first.schema, *second.schema]))
