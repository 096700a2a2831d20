"""Base densities: the distributions of the noise."""

from cubicflow.distributions.base import Base
from cubicflow.distributions.by_column import ByColumn
from cubicflow.distributions.normal import StandardNormal
from cubicflow.distributions.normal_mixture import NormalMixture
from cubicflow.distributions.uniform import Uniform

__all__ = ["Base", "ByColumn", "NormalMixture", "StandardNormal", "Uniform"]
