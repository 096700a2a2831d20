"""Pure functions on tensors that evaluate monotone splines and their log-slopes, forward and inverse."""

from cubicflow.splines.affine import additive, affine, leaky_relu
from cubicflow.splines.functions import cubic_spline, linear_spline, quadratic_spline, rational_quadratic_spline, spline
from cubicflow.splines.interpolation import cubic_interpolation
from cubicflow.splines.spec import num_params

__all__ = [
    "additive",
    "affine",
    "cubic_interpolation",
    "cubic_spline",
    "leaky_relu",
    "linear_spline",
    "num_params",
    "quadratic_spline",
    "rational_quadratic_spline",
    "spline",
]
