"""The scikit-learn interface.

inputs             conversion of arrays and frames to tables with a schema, and back
weighted_rows      rows with weights
expectation_maximisation, cross_fitting     the two fitting methods for few rows
density_members, conditional_members        the members of a mixture for few rows
table_estimator    common base classes: arguments, inputs, seeds, devices, and fits of many rows
quantiles          exact quantiles of one column
density, conditional                        the two estimators
imputer            imputation of missing values, by a model of columns
"""

from cubicflow.extras import need

need("scikit-learn", "cubicflow.estimator")

from cubicflow.estimator.conditional import CubicFlowConditional  # noqa: E402 - it imports scikit-learn
from cubicflow.estimator.density import CubicFlowDensity  # noqa: E402
from cubicflow.estimator.imputer import CubicFlowImputer  # noqa: E402

__all__ = ["CubicFlowConditional", "CubicFlowDensity", "CubicFlowImputer"]
