"""The scikit-learn interface.

    inputs             arrays and frames as tables with a schema, and back
    weighted_rows      rows and how often each occurs
    expectation_maximisation, cross_fitting     the two ways to fit few rows
    density_members    what a density of few rows is made of
    many_rows          many rows: the recipe of the command line
    base, state        seeds, devices, pickles
    density            CubicFlowDensity
"""

from cubicflow.estimator.density import CubicFlowDensity

__all__ = ["CubicFlowDensity"]
