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
from cubicflow.estimator.density_members import fit_ensemble
from cubicflow.estimator.flow_estimator import FlowEstimator, draw_seed, private_randomness, whole_number
from cubicflow.estimator.many_rows import MANY
from cubicflow.estimator.weighted_rows import Floats, encode
from cubicflow.tables.likelihood import log_likelihood

SAMPLE_ROWS = 1 << 14


@dataclass(eq=False, repr=False)
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

    max_components: int = field(default=32, kw_only=True)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002, N803 - sklearn's names
        """Fit the density. A weight of 2 is a row that occurs twice, a weight of 0 a row left out; ``y`` is ignored."""
        self.pattern_ = inputs.empty_like(X) if inputs.is_frame(X) else None
        rows, weights = self._weighed(self._x_table(X, fitting=True), sample_weight, X)
        encoder = self._learn_schema(rows, weights)
        numbers = inputs.read(encoder, rows)
        seed = draw_seed(self.random_state)
        with private_randomness(seed) as generator, self._progress() as shown:
            if len(weights) > MANY:
                self._fit_recipe(encoder, numbers, weights, seed)
                self.shares_: dict[str, float] = {}
            else:
                found = encode(encoder, numbers, weights, generator)
                folds = self._folds(found, generator)
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
        return log_likelihood(self.flow_, encoder, inputs.read(encoder, self._x_table(X)))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """The mean log likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """New rows: an array, or a frame like the one that was fitted."""
        check_is_fitted(self)
        count = whole_number("n_samples", n_samples, 1)
        generator = torch.Generator(self._flow_device).manual_seed(draw_seed(random_state))
        x = self.flow_.sample(count, batch_size=SAMPLE_ROWS, generator=generator).cpu().numpy()
        rows = pa.Table.from_batches([self._encoder.decode(x)])
        if self.pattern_ is None:
            return np.stack([column.to_numpy() for column in rows.columns], axis=1)
        return inputs.like(self.pattern_, rows)
