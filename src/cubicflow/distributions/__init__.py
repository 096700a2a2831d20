"""Base densities: where noise lives."""

from cubicflow.distributions.base import Base
from cubicflow.distributions.normal import StandardNormal
from cubicflow.distributions.normal_mixture import NormalMixture
from cubicflow.distributions.uniform import Uniform

__all__ = ["Base", "NormalMixture", "StandardNormal", "Uniform"]
