"""A density of the rows of a table, for scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from cubicflow.estimator.cross_fitting import Folds
from cubicflow.estimator.density_members import fit_ensemble
from cubicflow.estimator.flow_estimator import FEWEST_FOLDS, FlowEstimator, private_randomness, whole_number
from cubicflow.estimator.inputs import (
    array_kinds,
    array_table,
    arrow_table,
    empty_like,
    is_frame,
    learn_real,
    learn_typed,
    like,
    names,
    read,
    without_gaps,
)
from cubicflow.estimator.many_rows import MANY, fit_many
from cubicflow.estimator.weighted_rows import Floats, encode
from cubicflow.tables import TableEncoder
from cubicflow.tables.likelihood import log_likelihood

SAMPLE_ROWS = 1 << 14


class CubicFlowDensity(DensityMixin, FlowEstimator):  # type: ignore[misc] # sklearn has no types
    """The density of a table's rows, by cubic-spline flows.

    Up to 5,000 rows it is a mixture of members that each leave out one fold of the rows: mixtures of normals, the same
    behind a spline for each column, and coupling flows. Held-out rows decide the sizes, when to stop, and how much of
    each kind to take. With more rows it is one flow, trained as the command line trains one.

    NumPy arrays are real numbers in every column. Columns of pandas, polars and arrow frames are typed as
    ``cubicflow fit`` types them, so the log likelihood counts the mass of a word or a step and the density of a real
    number, and samples come back as such a frame.

    Args:
        n_members: folds with a member of each kind; by default 5. With many rows, ignored.
        num_layers, hidden_features, num_bins, dropout: of the coupling layers; None for what suits the rows. 0 layers
            for none.
        max_components: the most normals in a mixture.
        learning_rate: of the coupling layers.
        max_steps: the most steps of training; None for what suits the rows.
        kinds: what a column holds, where the guess is wrong: a mapping from its name (its number, for an array) to
            real, stepped, integer, boolean, categorical, datetime or constant.
        device: where to evaluate, and with many rows to train: ``"auto"``, or a name such as ``"cpu"`` or ``"cuda:1"``.
        verbose: show progress on standard error.
        random_state: of folds, starts and dropout.

    Attributes:
        flow_: the density on the encoded columns, a :class:`~cubicflow.Mixture` or :class:`~cubicflow.Flow`.
        schema_: what each column was taken for.
        shares_: of each kind of member in the mixture; empty with many rows.
        held_out_score_: the mean log likelihood of training rows under members that have not seen them.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(40, 2))
    >>> density = CubicFlowDensity(random_state=0).fit(x)
    >>> density.score_samples(x[:3]).shape, density.sample(5, random_state=0).shape
    ((3,), (5, 2))
    """

    def __init__(
        self,
        n_members: int = 5,
        *,
        num_layers: int | None = None,
        hidden_features: int | None = None,
        num_bins: int | None = None,
        dropout: float | None = None,
        max_components: int = 32,
        learning_rate: float | None = None,
        max_steps: int | None = None,
        kinds: Mapping[Any, str] | None = None,
        device: str = "auto",
        verbose: bool | int = False,
        random_state: Any = None,
    ) -> None:
        self.n_members = n_members
        self.num_layers = num_layers
        self.hidden_features = hidden_features
        self.num_bins = num_bins
        self.dropout = dropout
        self.max_components = max_components
        self.learning_rate = learning_rate
        self.max_steps = max_steps
        self.kinds = kinds
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002, N803 - sklearn's names
        """Fit the density. A weight of 2 is a row that occurs twice, a weight of 0 a row left out; ``y`` is ignored."""
        self.pattern_ = empty_like(X) if is_frame(X) else None
        rows, weights = self._weighed(self._table(X, fitting=True), sample_weight, X)
        kinds = dict(self.kinds or {})
        if self.pattern_ is not None:
            self.schema_ = learn_typed(rows, weights, (), kinds)
        elif kinds:
            self.schema_ = learn_typed(rows, weights, (), array_kinds(kinds, rows.column_names))
        else:
            self.schema_ = learn_real(rows, weights, ())
        encoder = TableEncoder(self.schema_)
        numbers = read(encoder, rows)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with private_randomness(seed) as generator, self._progress() as shown:
            if len(weights) > MANY:
                flow, scores, held_out = fit_many(
                    encoder,
                    numbers,
                    weights,
                    seed=seed,
                    **self._large_settings(),
                )
                self._place_flow(flow)
                self.shares_: dict[str, float] = {}
                self.held_out_score_ = float(np.average(scores, weights=weights[held_out]))
            else:
                found = encode(encoder, numbers, weights, generator)
                if len(found) < 2:
                    raise ValueError("n_samples=1: all rows are the same, and a density needs different ones")
                members = whole_number("n_members", self.n_members, 1)
                folds = Folds.draw(len(found), members, FEWEST_FOLDS, generator)
                ensemble = fit_ensemble(found, folds, self._settings(seed), shown)
                self._place_flow(ensemble.flow)
                self.shares_ = ensemble.shares
                judged = folds.judged
                scores = ensemble.held_out + found.log_det[judged]
                self.held_out_score_ = float(np.average(scores, weights=found.weights[judged]))
        return self

    def score_samples(self, X: Any) -> Floats:  # noqa: N803
        """The log likelihood of each row, in nats and in the data's own units, computed in float64."""
        check_is_fitted(self)
        encoder = self._encoder
        return log_likelihood(self.flow_, encoder, read(encoder, self._table(X, fitting=False)))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """The mean log likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """New rows: an array, or a frame like the one that was fitted."""
        check_is_fitted(self)
        count = whole_number("n_samples", n_samples, 1)
        generator = torch.Generator(self._flow_device)
        generator.manual_seed(int(check_random_state(random_state).randint(2**31 - 1)))
        x = self.flow_.sample(count, batch_size=SAMPLE_ROWS, generator=generator).cpu().numpy()
        rows = pa.Table.from_batches([self._encoder.decode(x)])
        if self.pattern_ is None:
            return np.stack([column.to_numpy() for column in rows.columns], axis=1)
        return like(self.pattern_, rows)

    def _table(self, X: Any, *, fitting: bool) -> pa.Table:  # noqa: N803
        if self.pattern_ is None:
            x = validate_data(self, X, reset=fitting, dtype=np.float64, ensure_min_samples=2 if fitting else 1)
            return array_table(x, "x")
        if not is_frame(X):
            raise ValueError(f"a frame with the columns {names(self.pattern_)} was fitted; give a frame")
        if fitting:
            self._remember_frame(X)
        return without_gaps(arrow_table(X))
