"""The scikit-learn interface.

inputs             arrays and frames as tables with a schema, and back
weighted_rows      rows and how often each occurs
expectation_maximisation, cross_fitting     the two ways to fit few rows
density_members, conditional_members        what a density of few rows is made of
many_rows          many rows: the recipe of the command line
density_columns    words, steps and gaps: the model of columns
flow_estimator, packed_flows                seeds, devices, pickles
quantiles          exact quantiles of one column
density, conditional                        the two estimators
imputer            gaps filled, by a model of columns
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the estimators need scikit-learn, which is not installed; use: pip install 'cubicflow[sklearn]'"
    ) from error

from cubicflow.estimator.conditional import CubicFlowConditional
from cubicflow.estimator.density import CubicFlowDensity
from cubicflow.estimator.imputer import CubicFlowImputer

__all__ = ["CubicFlowConditional", "CubicFlowDensity", "CubicFlowImputer"]
