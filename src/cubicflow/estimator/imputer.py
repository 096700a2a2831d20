"""An imputer of missing values with scikit-learn's interface, by a model of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cubicflow.estimator import inputs
from cubicflow.estimator.table_estimator import TableEstimator, draw_seed, private_randomness
from cubicflow.tables import FEWEST_ROWS, Missing
from cubicflow.tables.model import PlainRows
from cubicflow.tables.query import FILLED


@dataclass(eq=False, repr=False)
class CubicFlowImputer(OneToOneFeatureMixin, TransformerMixin, TableEstimator):  # type: ignore[misc] # sklearn has no types
    """Transformer that fills missing values by draws from a model of columns, given the values that a row has.

    Every column of a NumPy array is real; a missing value is NaN. The kinds of the columns of a pandas, polars or arrow
    frame are inferred as in ``cubicflow fit``. The training rows may have missing values.

    Args:
        most_likely: whether to fill with the most likely category and the median of numbers. Default: fill with one
            draw, which preserves the spread of the data. Several draws with different ``random_state`` are multiple
            imputations.
        hidden_features, num_bins, dropout: sizes of the model. Default: chosen for the number of rows.
        learning_rate: learning rate of Adam. Default: chosen for the number of rows.
        max_steps: largest number of training steps. Default: chosen for the number of rows.
        kinds: kinds of columns whose inferred kind is wrong: a mapping from the column's name (its number, for an
            array) to real, stepped, integer, boolean, categorical, datetime or constant.
        device: device of training: ``"auto"``, or a name such as ``"cpu"`` or ``"cuda:1"``.
        verbose: whether to show progress on standard error.
        random_state: seed of the initial weights and of the draws.

    Attributes:
        fitted_: the :class:`~cubicflow.tables.FittedTable`.
        n_features_in_, feature_names_in_: number and names of the columns.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> x[::5, 1] = np.nan
    >>> filled = CubicFlowImputer(max_steps=5, random_state=0).fit_transform(x)
    >>> bool(np.isnan(filled).any()), bool((filled[:, 0] == x[:, 0]).all())
    (False, True)
    """

    most_likely: bool = False

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002, N803 - sklearn's names
        """Fit a model of the columns; ``y`` is ignored."""
        rows = self._x_table(X, fitting=True, gaps=True, fewest=FEWEST_ROWS)
        weights, seed = np.ones(len(rows)), draw_seed(self.random_state)
        kinds = self._requested_kinds(rows.column_names)
        schema = inputs.infer_typed(rows, weights, (), kinds, Missing.MODEL).schema
        with private_randomness(seed):
            self._fit_many("columns", schema, inputs.read(PlainRows(schema), rows), weights, seed)
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Return the rows with missing values filled: an array, or a frame like the fitted one."""
        check_is_fitted(self)
        rows = self._x_table(X, gaps=True)
        (filled,) = self.fitted_.impute(rows, most_likely=self.most_likely, seed=draw_seed(self.random_state))
        found = self._output(filled.drop_columns([FILLED]))
        if hasattr(X, "index") and hasattr(found, "index"):  # a pandas frame
            found.index = X.index
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = not isinstance(self.random_state, int)
        return tags
