"""A density estimator with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from cubicflow.arguments import whole_number
from cubicflow.estimator import inputs
from cubicflow.estimator.density_members import fit_ensemble
from cubicflow.estimator.table_estimator import MANY, BaseFlowEstimator, draw_seed, private_randomness
from cubicflow.estimator.weighted_rows import encode
from cubicflow.tables import MODELS, FittedTable, Missing, Schema, suited_model
from cubicflow.tables.model import FlowEncoder, FlowOfNumbers, Numbers, PlainRows
from cubicflow.weights import Floats


@dataclass(eq=False, repr=False)
class CubicFlowDensity(DensityMixin, BaseFlowEstimator):  # type: ignore[misc] # sklearn has no types
    """Estimator of the density of a table's rows, by cubic-spline flows or by a model of columns.

    Frames with categories, stepped numbers, missing values or atoms are fitted by a model of columns, as in
    ``cubicflow fit``. Its probabilities of discrete values are exact, and a missing value is a value like any other. A
    category that is not in the training rows gets a small probability that is reserved for unseen categories.

    Real columns are fitted by flows. With up to 5,000 rows, the density is a mixture of three families of members:
    mixtures of normals, mixtures of normals after a spline for each column, and coupling flows. Each member is trained
    without one fold of the rows. Held-out rows determine the sizes, the number of steps and the share of each family.
    With more rows, the density is one flow, trained as ``cubicflow fit`` trains it.

    Every column of a NumPy array is real. The kinds of the columns of a pandas, polars or arrow frame are inferred as
    in ``cubicflow fit``. The log likelihood of a row then combines probabilities of discrete values and densities of
    real values. Samples are frames of the same library.

    Args:
        n_members: number of folds; each family has one member for each fold. Default: 5. Ignored with more than 5,000
            rows and by the model of columns.
        num_layers, hidden_features, num_bins, dropout: sizes of the coupling layers. Default: chosen for the number of
            rows. ``num_layers=0`` disables coupling layers. The last three also apply to the model of columns.
        max_components: largest number of normals in a mixture.
        model: ``"columns"``, ``"flow"``, or ``"auto"`` to choose by the kinds of the columns. Arrays may contain NaN
            only with ``"columns"``. Frames may have missing values except with ``"flow"``.
        learning_rate: learning rate of the coupling layers or of the model of columns.
        max_steps: largest number of training steps. Default: chosen for the number of rows.
        kinds: kinds of columns whose inferred kind is wrong: a mapping from the column's name (its number, for an
            array) to real, stepped, integer, boolean, categorical, datetime or constant.
        device: device of evaluation, and of training with more than 5,000 rows: ``"auto"``, or a name such as
            ``"cpu"`` or ``"cuda:1"``.
        verbose: whether to show progress on standard error.
        random_state: seed of folds, initial weights and dropout.

    Attributes:
        model_: the model that was fitted, ``"columns"`` or ``"flow"``.
        fitted_: the :class:`~cubicflow.tables.FittedTable`.
        flow_: the density of the encoded columns, a :class:`~cubicflow.Mixture`, a :class:`~cubicflow.Flow` or a
            :class:`~cubicflow.tables.model.network.ColumnsModel`.
        schema_: the kind and encoding of each column.
        shares_: share of each family of members in the mixture; empty if there is no mixture.
        held_out_score_: mean log likelihood of held-out rows. In a mixture, each row is scored by a member that was
            trained without it. Otherwise, the held-out rows are the tenth of the rows that was used for early stopping.
        n_features_in_, feature_names_in_: number and names of the columns.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(40, 2))
    >>> density = CubicFlowDensity(random_state=0).fit(x)
    >>> density.score_samples(x[:3]).shape, density.sample(5, random_state=0).shape
    ((3,), (5, 2))
    """

    max_components: int = field(default=32, kw_only=True)
    model: str = field(default="auto", kw_only=True)
    shares_: dict[str, float] = field(init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002, N803 - sklearn's names
        """Fit the density. A row with weight 2 counts as two rows; a row with weight 0 is ignored. ``y`` is ignored."""
        if self.model not in ("auto", *MODELS):
            raise ValueError(f"model must be auto, {' or '.join(MODELS)}, got {self.model!r}")
        gaps = self.model == "columns" or (self.model == "auto" and inputs.is_frame(X))
        rows, weights = self._weighted(self._x_table(X, fitting=True, gaps=gaps), sample_weight)
        self.model_, schema = self._choose_model(rows, weights)
        numbers = inputs.read((PlainRows if self.model_ == "columns" else FlowEncoder)(schema), rows)
        seed = draw_seed(self.random_state)
        with private_randomness(seed) as generator:
            if self.model_ == "flow" and len(weights) <= MANY:
                self._fit_few(FlowEncoder(schema), numbers, weights, seed, generator)
            else:
                scores, held_out = self._fit_many(self.model_, schema, numbers, weights, seed)
                self.shares_, self.held_out_score_ = {}, float(np.average(scores, weights=weights[held_out]))
        return self

    def _choose_model(self, rows: pa.Table, weights: Floats) -> tuple[str, Schema]:
        """Return the name of the model for these rows, and their schema."""
        if self.model == "flow" or (self.model == "auto" and self.template_ is None and not self.kinds):
            return "flow", self._learn_schema(rows, weights)
        found = inputs.infer_typed(rows, weights, (), self._requested_kinds(rows.column_names), Missing.MODEL)
        return suited_model(found) if self.model == "auto" else self.model, found.schema

    def _fit_few(
        self, encoder: FlowEncoder, numbers: Numbers, weights: Floats, seed: int, generator: np.random.Generator
    ) -> None:
        rows = encode(encoder, numbers, weights, generator)
        folds = self._folds(rows, generator)
        with self._progress() as display:
            flow, self.shares_, held_out = fit_ensemble(rows, folds, self._settings(seed), display)
        self._keep(FittedTable(FlowOfNumbers(encoder, flow)))
        judged = folds.judged
        scores = held_out + rows.log_det[judged]
        self.held_out_score_ = float(np.average(scores, weights=rows.weights[judged]))

    def score_samples(self, X: Any) -> Floats:  # noqa: N803
        """Return the log likelihood of each row, in nats and in the data's units, in float64. Shape (N,)."""
        check_is_fitted(self)
        model = self.fitted_.model
        return model.score(inputs.read(model.encoder, self._x_table(X, gaps=model.takes_gaps))).log_p

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """Return the mean log likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw new rows: an array (n_samples, D), or a frame with the library and the columns of the fitted frame."""
        check_is_fitted(self)
        count = whole_number("n_samples", n_samples, 1)
        return self._output(self.fitted_.sample(count, seed=draw_seed(random_state)))
