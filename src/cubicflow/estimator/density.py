"""A density of the rows of a table, for scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from cubicflow.estimator import inputs
from cubicflow.estimator.density_columns import fit_columns
from cubicflow.estimator.density_members import fit_ensemble
from cubicflow.estimator.flow_estimator import FlowEstimator, draw_seed, private_randomness, whole_number
from cubicflow.estimator.many_rows import MANY
from cubicflow.estimator.weighted_rows import Floats, encode
from cubicflow.tables import TableEncoder
from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.columns_likelihood import draw_rows
from cubicflow.tables.fitted import score_numbers
from cubicflow.tables.fitting import MODELS, suited_model
from cubicflow.tables.source import Missing

SAMPLE_ROWS = 1 << 14
COLUMN_SETTINGS = ("hidden_features", "num_bins", "dropout")  # of the model of columns


@dataclass(eq=False, repr=False)
class CubicFlowDensity(DensityMixin, FlowEstimator):  # type: ignore[misc] # sklearn has no types
    """The density of a table's rows, by cubic-spline flows or by a model of its columns.

    Frames with words, steps, missing values or atoms get the model of columns, as ``cubicflow fit`` does: masses are
    exact, missing values are values of their own, and a word that no training row had gets, at scoring, the probability
    that is left for the unseen.

    Real numbers get flows. Up to 5,000 rows it is a mixture of members that each leave out one fold of the rows:
    mixtures of normals, the same behind a spline for each column, and coupling flows. Held-out rows decide the sizes,
    when to stop, and how much of each kind to take. With more rows it is one flow, trained as the command line trains
    one.

    NumPy arrays are real numbers in every column. Columns of pandas, polars and arrow frames are typed as
    ``cubicflow fit`` types them, so the log likelihood counts the mass of a word or a step and the density of a real
    number, and samples come back as such a frame.

    Args:
        n_members: folds with a member of each kind; by default 5. With many rows, and of a model of columns, ignored.
        num_layers, hidden_features, num_bins, dropout: of the coupling layers; None for what suits the rows. 0 layers
            for none. The last three are also of the model of columns, which has no such layers.
        max_components: the most normals in a mixture.
        model: ``"columns"``, ``"flow"``, or ``"auto"`` for what suits the table. Arrays may lack values (NaN) only with
            ``"columns"``, and with ``"flow"`` frames may not.
        learning_rate: of the coupling layers, or of the model of columns.
        max_steps: the most steps of training; None for what suits the rows.
        kinds: what a column holds, where the guess is wrong: a mapping from its name (its number, for an array) to
            real, stepped, integer, boolean, categorical, datetime or constant.
        device: where to evaluate, and with many rows to train: ``"auto"``, or a name such as ``"cpu"`` or ``"cuda:1"``.
        verbose: show progress on standard error.
        random_state: of folds, starts and dropout.

    Attributes:
        model_: ``"columns"`` or ``"flow"``, what the table got.
        flow_: the density on the encoded columns, a :class:`~cubicflow.Mixture`, a :class:`~cubicflow.Flow` or a
            :class:`~cubicflow.tables.columns_model.ColumnsModel`.
        schema_: what each column was taken for.
        shares_: of each kind of member in the mixture; empty with many rows and of a model of columns.
        held_out_score_: the mean log likelihood of rows under members that have not seen them; with many rows and of a
            model of columns, that of the tenth of the rows that decided when to stop.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(40, 2))
    >>> density = CubicFlowDensity(random_state=0).fit(x)
    >>> density.score_samples(x[:3]).shape, density.sample(5, random_state=0).shape
    ((3,), (5, 2))
    """

    max_components: int = field(default=32, kw_only=True)
    model: str = field(default="auto", kw_only=True)
    cells_: CellEncoder | None = field(init=False)  # what a model of columns sees; None for a flow
    shares_: dict[str, float] = field(init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002, N803 - sklearn's names
        """Fit the density. A weight of 2 is a row that occurs twice, a weight of 0 a row left out; ``y`` is ignored."""
        if self.model not in ("auto", *MODELS):
            raise ValueError(f"model must be auto, {' or '.join(MODELS)}, got {self.model!r}")
        self.pattern_ = inputs.empty_like(X) if inputs.is_frame(X) else None
        gaps = self.model == "columns" or (self.model == "auto" and self.pattern_ is not None)
        rows, weights = self._weighed(self._x_table(X, fitting=True, gaps=gaps), sample_weight, X)
        seed = draw_seed(self.random_state)
        self.model_ = self._choose_model(rows, weights)
        if self.model_ == "columns":
            training = {"device": self.device, "seed": seed, **self._given("learning_rate", max_steps="steps")}
            how: dict[str, Any] = {"progress": bool(self.verbose)}
            with private_randomness(seed):
                found = fit_columns(self.schema_, rows, weights, self._given(*COLUMN_SETTINGS), training, **how)
            self._place_flow(found.model)
            self.cells_, self.shares_, self.held_out_score_ = found.cells, {}, found.held_out_score
        else:
            self.cells_ = None
            self._fit_flow(rows, weights, seed)
        return self

    def _choose_model(self, rows: pa.Table, weights: Floats) -> str:
        """Learn the schema; what the table gets."""
        kinds = dict(self.kinds or {})
        if self.model == "flow" or (self.model == "auto" and self.pattern_ is None and not kinds):
            self._learn_schema(rows, weights)
            return "flow"
        told = kinds if self.pattern_ is not None else inputs.array_kinds(kinds, rows.column_names)
        found = inputs.infer_typed(rows, weights, (), told, Missing.MODEL)
        self.schema_ = found.schema
        return suited_model(found) if self.model == "auto" else self.model

    def _fit_flow(self, rows: pa.Table, weights: Floats, seed: int) -> None:
        encoder = TableEncoder(self.schema_)
        numbers = inputs.read(encoder, rows)
        with private_randomness(seed) as generator, self._progress() as shown:
            if len(weights) > MANY:
                self._fit_recipe(encoder, numbers, weights, seed)
                self.shares_ = {}
                return
            found = encode(encoder, numbers, weights, generator)
            folds = self._folds(found, generator)
            ensemble = fit_ensemble(found, folds, self._settings(seed), shown)
            self._place_flow(ensemble.flow)
            self.shares_ = ensemble.shares
            judged = folds.judged
            scores = ensemble.held_out + found.log_det[judged]
            self.held_out_score_ = float(np.average(scores, weights=found.weights[judged]))

    def score_samples(self, X: Any) -> Floats:  # noqa: N803
        """The log likelihood of each row, in nats and in the data's own units, computed in float64."""
        check_is_fitted(self)
        encoder = self._encoder if self.cells_ is None else self.cells_
        numbers = inputs.read(encoder, self._x_table(X, gaps=self.cells_ is not None))
        return score_numbers(self.flow_, encoder, numbers)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """The mean log likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """New rows: an array, or a frame like the one that was fitted."""
        check_is_fitted(self)
        count = whole_number("n_samples", n_samples, 1)
        generator = torch.Generator(self._flow_device).manual_seed(draw_seed(random_state))
        if self.cells_ is None:
            x = self.flow_.sample(count, batch_size=SAMPLE_ROWS, generator=generator).cpu().numpy()
            batches = [self._encoder.decode(x)]
        else:
            sizes = [min(SAMPLE_ROWS, count - first) for first in range(0, count, SAMPLE_ROWS)]
            drawn = (draw_rows(self.flow_, self.cells_, size, None, generator) for size in sizes)
            batches = [self.cells_.decode(y) for y in drawn]
        rows = pa.Table.from_batches(batches)
        if self.pattern_ is None:
            return np.stack([column.to_numpy() for column in rows.columns], axis=1)
        return inputs.like(self.pattern_, rows)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return state if state.get("cells_") is None else {**state, "cells_": state["cells_"].to_json()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if isinstance(state.get("cells_"), dict):
            self.cells_ = CellEncoder.from_json(self.schema_, state["cells_"])
