"""Base densities: the distributions of the noise."""

from cubicflow.distributions.autoregressive import AutoregressiveMixture
from cubicflow.distributions.base import Base
from cubicflow.distributions.normal_mixture import NormalMixture
from cubicflow.distributions.parametric import DiagonalNormal, StudentT
from cubicflow.distributions.plain import ByColumn, StandardNormal, Uniform
from cubicflow.distributions.several import BaseMixture, ByClass
from cubicflow.distributions.torch_distribution import TorchDistribution
from cubicflow.distributions.von_mises import VonMises

__all__ = [
    "AutoregressiveMixture",
    "Base",
    "BaseMixture",
    "ByClass",
    "ByColumn",
    "DiagonalNormal",
    "NormalMixture",
    "StandardNormal",
    "StudentT",
    "TorchDistribution",
    "Uniform",
    "VonMises",
]
