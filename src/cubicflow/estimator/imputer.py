"""An imputer of missing values with scikit-learn's interface, by a model of columns."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cubicflow.estimator import inputs
from cubicflow.estimator.flow_estimator import draw_seed, private_randomness
from cubicflow.tables import FittedTable, TableOptions, fit_table
from cubicflow.tables.query import FILLED


@dataclass(eq=False, repr=False)
class CubicFlowImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc] # sklearn has no types
    """Transformer that fills missing values by draws from a model of columns, given the values that a row has.

    Every column of a NumPy array is real; a missing value is NaN. The kinds of the columns of a pandas, polars or arrow
    frame are inferred as in ``cubicflow fit``. The training rows may have missing values.

    Args:
        most_likely: whether to fill with the most likely category and the median of numbers. Default: fill with one
            draw, which preserves the spread of the data. Several draws with different ``random_state`` are multiple
            imputations.
        hidden_features, num_bins, dropout: sizes of the model. Default: chosen for the number of rows.
        max_steps: largest number of training steps. Default: chosen for the number of rows.
        kinds: kinds of columns whose inferred kind is wrong: a mapping from the name of a frame's column to real,
            stepped, integer, boolean, categorical, datetime or constant.
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
    _: KW_ONLY
    hidden_features: int | None = None
    num_bins: int | None = None
    dropout: float | None = None
    max_steps: int | None = None
    kinds: Mapping[str, str] | None = None
    device: str = "auto"
    verbose: bool | int = False
    random_state: Any = None
    fitted_: FittedTable = field(init=False)
    pattern_: Any = field(init=False)  # the fitted frame without its rows; None for an array

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002, N803 - sklearn's names
        """Fit a model of the columns; ``y`` is ignored."""
        self.pattern_ = inputs.empty_like(X) if inputs.is_frame(X) else None
        rows = self._table(X, fitting=True)
        kinds = dict(self.kinds or {}) if self.pattern_ is not None else dict.fromkeys(rows.column_names, "real")
        settings = {name: getattr(self, name) for name in ("hidden_features", "num_bins", "dropout")}
        settings = {name: value for name, value in settings.items() if value is not None}
        seed = draw_seed(self.random_state)
        training: dict[str, Any] = {"device": self.device, "seed": seed, "progress": bool(self.verbose)}
        if self.max_steps is not None:
            training["steps"] = self.max_steps
        with private_randomness(seed), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            parquet.write_table(rows, path)
            options = TableOptions(kinds=kinds, keep=tuple(rows.column_names), missing="model")
            self.fitted_ = fit_table(path, Path(folder) / "run", options, settings, model="columns", **training).fitted
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Return the rows with missing values filled: an array, or a frame like the fitted one."""
        check_is_fitted(self)
        rows = self._table(X)
        seed = draw_seed(self.random_state)
        (filled,) = self.fitted_.impute(rows, most_likely=self.most_likely, seed=seed)
        filled = filled.drop_columns([FILLED])
        if self.pattern_ is None:
            return np.stack([column.to_numpy() for column in filled.columns], axis=1)
        found = inputs.like(self.pattern_, filled)
        if hasattr(X, "index") and hasattr(found, "index"):  # a pandas frame
            found.index = X.index
        return found

    def _table(self, X: Any, *, fitting: bool = False) -> pa.Table:  # noqa: N803
        if self.pattern_ is None:
            checks: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
            x = validate_data(self, X, reset=fitting, ensure_min_samples=10 if fitting else 1, **checks)
            return inputs.array_table(x, "x")
        if not inputs.is_frame(X):
            raise ValueError(f"fit got a frame with the columns {inputs.names(self.pattern_)}; give such a frame")
        validate_data(self, X, reset=fitting, skip_check_array=True)
        return inputs.arrow_table(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = not isinstance(self.random_state, int)
        return tags
