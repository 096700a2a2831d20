"""A conditional density estimator with scikit-learn's interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted
from torch import Tensor

from cubicflow.arguments import whole_number
from cubicflow.estimator import inputs
from cubicflow.estimator.conditional_members import make_member, regressions
from cubicflow.estimator.cross_fitting import train
from cubicflow.estimator.density_members import FEWEST_ROWS
from cubicflow.estimator.quantiles import cumulative, quantile
from cubicflow.estimator.table_estimator import MANY, BaseFlowEstimator, draw_seed, joined, private_randomness
from cubicflow.estimator.weighted_rows import WeightedRows, effective_weights, encode
from cubicflow.flows import Flow, Mixture
from cubicflow.tables import FittedTable
from cubicflow.tables.model import FlowEncoder, FlowOfNumbers, Numbers, first_not_number
from cubicflow.weights import Floats, weighted_quantiles

DRAWS = 1_024  # draws for the mean of several columns
ROWS_AT_ONCE = 1 << 16
BEYOND_ALL_ROWS = 0.5 - 1e-9  # half-width in levels, used if there are too few held-out rows for a coverage
WIDEST = 0.5 - 2.0**-53  # largest half-width in levels: 0.5 + WIDEST is the largest float64 below 1


class CubicFlowConditional(RegressorMixin, BaseFlowEstimator):  # type: ignore[misc] # sklearn has no types
    """Estimator of the density p(y | X) of one or several columns y, by conditional cubic-spline flows.

    With up to 5,000 rows, the density is a mixture of members. Each member is trained without one fold of the rows. A
    member starts as a ridge regression with normal residuals. Networks then learn how location, scale and shape of the
    distribution depend on X, as long as the likelihood of held-out rows improves. With fewer than 50 rows, the
    regression is not trained further. With more than 5,000 rows, the density is one flow, trained as ``cubicflow fit``
    trains it.

    X and y are arrays or frames. Every column of an array is real. The kinds of a frame's columns are inferred as in
    ``cubicflow fit``.

    Args:
        n_members: number of folds and members. Default: 5. Ignored with more than 5,000 rows.
        num_layers, hidden_features, num_bins, dropout: sizes of the flow. Default: chosen for the number of rows.
        learning_rate: learning rate of Adam. Default: chosen for the number of rows.
        max_steps: largest number of training steps. Default: chosen for the number of rows.
        kinds: kinds of columns whose inferred kind is wrong; see :class:`CubicFlowDensity`. The columns of an array y
            are named y0, y1, ...
        device: device of evaluation, and of training with more than 5,000 rows: ``"auto"``, or a name such as
            ``"cpu"`` or ``"cuda:1"``.
        verbose: whether to show progress on standard error.
        random_state: seed of folds, initial weights and dropout.

    Attributes:
        fitted_: the :class:`~cubicflow.tables.FittedTable` of the columns of X and y.
        flow_: the density of the encoded y, a :class:`~cubicflow.Mixture` or :class:`~cubicflow.Flow`.
        schema_: the kind and encoding of each column.
        held_out_score_: mean log likelihood of held-out rows. In a mixture, each row is scored by a member that was
            trained without it. Otherwise, the held-out rows are the tenth of the rows that was used for early stopping.
        held_out_levels_: conditional distribution function at y of the same held-out rows, for a single column y.
            Uniform on (0, 1) if the model is correct.
        n_features_in_, feature_names_in_: number and names of the columns of X.

    >>> import numpy as np
    >>> x = np.linspace(0, 1, 40)[:, None]
    >>> y = 2 * x[:, 0] + 0.1 * np.random.default_rng(0).normal(size=40)
    >>> model = CubicFlowConditional(random_state=0).fit(x, y)
    >>> model.quantiles(x[:3], [0.1, 0.9]).shape, model.sample(x[:3], 7).shape
    ((3, 2), (7, 3))
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # the score is a log likelihood, not R^2
        return tags

    # --- fitting ---

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803 - sklearn's names
        """Fit p(y | X). A row with weight 2 counts as two rows; a row with weight 0 is ignored."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        check_consistent_length(X, y)
        self.template_y_ = inputs.empty_like(y) if inputs.is_frame(X) and inputs.is_frame(y) else None
        self.y_ndim_ = 2 if self.template_y_ is not None else np.asarray(y).ndim
        x_rows, y_rows = self._x_table(X, fitting=True), self._y_table(y)
        if common := sorted(set(x_rows.column_names) & set(y_rows.column_names)):
            raise ValueError(f"X and y both have a column {common[0]!r}; remove it from one of them")
        rows, weights = self._weighted(joined(x_rows, y_rows), sample_weight)
        array_y = () if self.template_y_ is not None else tuple(y_rows.column_names)
        schema = self._learn_schema(rows, weights, tuple(x_rows.column_names), array_y)
        if (odd := first_not_number(schema.model)) is not None:
            raise ValueError(
                f"column {odd.name!r} of y is {odd.kind}, but y should hold numbers or dates; use CubicFlowDensity for "
                "the columns of X and y together"
            )
        encoder = FlowEncoder(schema)
        numbers = inputs.read(encoder, rows)
        if numbers.context is None:
            raise ValueError("all columns of X are constant, so y cannot depend on X; use CubicFlowDensity for y alone")
        seed = draw_seed(self.random_state)
        with private_randomness(seed) as generator:
            if len(weights) > MANY:
                self._fit_one(encoder, numbers, weights, seed, generator)
            else:
                self._fit_few(encoder, encode(encoder, numbers, weights, generator), seed, generator)
        return self

    def _fit_few(self, encoder: FlowEncoder, rows: WeightedRows, seed: int, generator: np.random.Generator) -> None:
        folds = self._folds(rows, generator)
        settings = self._settings(seed)
        flows = [make_member(*found, settings, number) for number, found in enumerate(regressions(rows, folds))]
        schedule = settings.couplings if len(rows) >= FEWEST_ROWS else settings.couplings._replace(steps=0)
        with self._progress() as display:
            held_out = train(flows, rows, folds, schedule, display)
        judged = folds.judged
        scores = held_out[judged] + rows.log_det[judged]
        self.held_out_score_ = float(np.average(scores, weights=rows.weights[judged]))
        levels = np.full(len(rows), np.nan)
        for number, flow in enumerate(flows):
            unseen = folds.held_out(number)
            given = None if rows.context is None else rows.context[unseen]
            levels[unseen] = _levels(flow.double(), rows.x[unseen], given)
        self.held_out_levels_, self._held_out_weights = levels[judged], rows.weights[judged]
        self._keep(FittedTable(FlowOfNumbers(encoder, Mixture(flows))))

    def _fit_one(
        self, encoder: FlowEncoder, numbers: Numbers, weights: Floats, seed: int, generator: np.random.Generator
    ) -> None:
        scores, held_out = self._fit_many("flow", encoder.schema, numbers, weights, seed)
        self.held_out_score_ = float(np.average(scores, weights=weights[held_out]))
        x = encoder.inputs(numbers.y[held_out], encoder.noise(len(held_out), generator))
        given = None if numbers.context is None else encoder.context_inputs(numbers.context[held_out])
        self.held_out_levels_ = _levels(self.flow_, x, given)
        self._held_out_weights = effective_weights(weights[held_out])

    # --- densities and samples ---

    def log_prob(self, X: Any, y: Any) -> Floats:  # noqa: N803
        """Return log p(y | X) of each row, in nats and in the units of y, computed in float64. Shape (N,)."""
        check_is_fitted(self)
        x_rows, y_rows = self._x_table(X), self._y_table(y)
        check_consistent_length(x_rows.column(0), y_rows.column(0))
        return self.fitted_.model.score(inputs.read(self.fitted_.encoder, joined(x_rows, y_rows))).log_p

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the mean log likelihood of the rows. The score is not R^2, because R^2 does not measure a
        distribution."""
        return float(np.average(self.log_prob(X, y), weights=sample_weight))

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Any:  # noqa: N803
        """Draw samples of y for each row of X.

        Returns an array of shape (n_samples, N), or (n_samples, N, D) for several columns. If y was a frame, returns a
        frame of n_samples * N rows: the first sample of every row of X, then the second sample, and so on.
        """
        context = self._context(X)
        count = whole_number("n_samples", n_samples, 1)
        generator = torch.Generator(context.device).manual_seed(draw_seed(random_state))
        x = self.flow_.sample(count, context, batch_size=ROWS_AT_ONCE, generator=generator)
        rows = self._decode(x.reshape(-1, x.shape[-1]))
        if self.template_y_ is not None:
            return inputs.in_form_of(self.template_y_, rows)
        values = np.stack([column.to_numpy() for column in rows.columns], axis=1)
        return values.reshape(count, len(context), -1) if self.y_ndim_ == 2 else values.reshape(count, len(context))

    # --- one column: quantiles and intervals ---

    def quantiles(self, X: Any, q: Any) -> NDArray[Any]:  # noqa: N803
        """Return exact quantiles of y for each row of X, for a single column y.

        The shape is (N,) for one level q in (0, 1), and (N, Q) for several levels.
        """
        levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
        if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"q must be strictly between 0 and 1, got {q!r}")
        context = self._context(X)
        self._check_one_ordered_column()
        each = torch.as_tensor(levels, device=context.device).expand(len(context), -1).reshape(-1)
        x = quantile(self.flow_, each, context.repeat_interleave(len(levels), dim=0))
        values: NDArray[Any] = self._decode(x[:, None]).column(0).to_numpy().reshape(len(context), len(levels))
        return values if np.ndim(q) else values[:, 0]

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the median of a single column y, or the means of several columns.

        The means use 1,024 draws. The noise of the draws is the same for all rows.
        """
        context = self._context(X)
        if len(self.schema_.model) == 1:
            medians = self.quantiles(X, 0.5)
            return medians[:, None] if self.y_ndim_ == 2 else medians
        generator = torch.Generator(context.device).manual_seed(0)
        flows = self.flow_.flows if isinstance(self.flow_, Mixture) else [self.flow_]
        noises = [flow.base.sample(DRAWS, generator=generator)[:, None] for flow in flows]
        means = []
        for rows in context.split(max(ROWS_AT_ONCE // DRAWS, 1)):
            total = np.zeros((len(rows), len(self.schema_.model)))
            for flow, noise in zip(flows, noises, strict=True):
                with torch.no_grad():
                    x = flow.from_noise(noise.expand(-1, len(rows), -1), rows)[0]
                values = [c.to_numpy().astype(np.float64) for c in self._decode(x.reshape(-1, x.shape[-1])).columns]
                total += np.stack(values, axis=1).reshape(DRAWS, len(rows), -1).mean(axis=0) / len(flows)
            means.append(total)
        return np.concatenate(means)

    def predict_interval(self, X: Any, coverage: float = 0.9, *, calibrated: bool = True) -> NDArray[Any]:  # noqa: N803
        """Return central intervals that contain y with probability ``coverage``, of shape (N, 2).

        If ``calibrated`` is true, the levels of both quantiles are shifted by the same amount for all rows. The shift
        is chosen so that the members' intervals contain the fraction ``coverage`` of their held-out training rows. This
        is conformal prediction across folds, with the distribution function as score (Chernozhukov, Wüthrich and Zhu
        2021).
        """
        check_is_fitted(self)
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be strictly between 0 and 1, got {coverage!r}")
        half = self._half_width(coverage) if calibrated else coverage / 2
        return self.quantiles(X, [0.5 - half, 0.5 + half])

    def held_out_coverage(self, coverage: float = 0.9) -> float:
        """Return the fraction of held-out training rows in the members' uncalibrated central intervals."""
        self._check_one_ordered_column()
        inside = np.abs(self.held_out_levels_ - 0.5) <= coverage / 2
        return float(np.average(inside, weights=self._held_out_weights))

    def _half_width(self, coverage: float) -> float:
        self._check_one_ordered_column()
        distances = np.abs(self.held_out_levels_ - 0.5)
        # Conformal prediction counts the new row as one more row, farther out than all others.
        distances = np.append(distances, max(distances.max(), BEYOND_ALL_ROWS))
        weights = np.append(self._held_out_weights, 1.0)
        (half,) = weighted_quantiles(distances, weights, np.array([coverage * weights.sum()]))
        return min(float(half), WIDEST)  # the level of an outlier may round to 0 or 1, where the quantile is infinite

    # --- inputs ---

    @property
    def _encoder(self) -> FlowEncoder:
        return self.fitted_.encoder  # type: ignore[return-value] # that of a flow

    def _y_table(self, y: Any) -> pa.Table:
        if self.template_y_ is not None:
            if not inputs.is_frame(y):
                raise ValueError(
                    f"fit got a frame y with the columns {inputs.names(self.template_y_)}; give such a frame"
                )
            return inputs.without_gaps(inputs.arrow_table(y))
        # The columns of an array are y0, y1, ...; underscores in front avoid names of X.
        values = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        values = values.reshape(len(values), -1)
        taken = set() if self.template_ is None else set(inputs.names(self.template_))
        prefix = "y"
        while any(f"{prefix}{i}" in taken for i in range(values.shape[1])):
            prefix = f"_{prefix}"
        return inputs.array_table(values, prefix)

    def _context(self, X: Any) -> Tensor:  # noqa: N803
        check_is_fitted(self)
        features = inputs.read_context(self._encoder, self._x_table(X))
        return torch.as_tensor(features, device=next(self.flow_.buffers()).device)

    def _decode(self, x: Tensor) -> pa.Table:
        """Return the columns of y from encoded values (N, features)."""
        encoder = self._encoder
        rows = encoder.decode(encoder.numbers(x.cpu().numpy()))
        return pa.Table.from_batches([rows.select([column.name for column in encoder.columns])])

    def _check_one_ordered_column(self) -> None:
        check_is_fitted(self)
        columns = self.schema_.model
        if len(columns) > 1:
            raise ValueError(f"quantiles and intervals need one column y, this model has {len(columns)}; use sample")


def _levels(flow: Flow | Mixture, x: Floats, context: Floats | None) -> Floats:
    """Return the distribution function at each row of a single column; NaN for several columns."""
    if x.shape[1] > 1 or context is None:
        return np.full(len(x), np.nan)
    device = next(flow.buffers()).device
    found = cumulative(flow, torch.as_tensor(x, device=device), torch.as_tensor(context, device=device))
    return found.cpu().numpy()
