"""Networks that compute spline parameters: pre-activation residual blocks, last layer zero at the start."""

from cubicflow.nets.fourier_mlp import FourierMLP
from cubicflow.nets.masked_residual_mlp import MaskedResidualMLP
from cubicflow.nets.residual_conv import ResidualConv
from cubicflow.nets.residual_mlp import ResidualMLP

__all__ = ["FourierMLP", "MaskedResidualMLP", "ResidualConv", "ResidualMLP"]
