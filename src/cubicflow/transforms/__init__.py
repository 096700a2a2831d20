"""Invertible layers. ``forward`` maps data to noise and ``inverse`` maps noise to data. Both return ``(outputs,
log_det)``."""

from cubicflow.transforms.actnorm import ActNorm
from cubicflow.transforms.autoregressive import Autoregressive
from cubicflow.transforms.batch_norm import BatchNorm
from cubicflow.transforms.block_naf import BlockNAF
from cubicflow.transforms.compose import Compose, Inverse
from cubicflow.transforms.continuous import Continuous
from cubicflow.transforms.conv1x1 import Conv1x1
from cubicflow.transforms.coupling import Coupling
from cubicflow.transforms.element_map import ElementMap
from cubicflow.transforms.elementwise import Elementwise
from cubicflow.transforms.emerging_conv import EmergingConv
from cubicflow.transforms.linear import LinearTransform
from cubicflow.transforms.lu_linear import LULinear
from cubicflow.transforms.multi_scale import MultiScale
from cubicflow.transforms.orthogonal import Orthogonal, QRLinear, SVDLinear
from cubicflow.transforms.periodic_conv import PeriodicConv
from cubicflow.transforms.permutation import Permutation
from cubicflow.transforms.planar import Planar, Radial
from cubicflow.transforms.recurrent import Recurrent
from cubicflow.transforms.sigmoid import Logit, Sigmoid
from cubicflow.transforms.solvers import SolverError
from cubicflow.transforms.squeeze import Squeeze
from cubicflow.transforms.standardise import Standardise
from cubicflow.transforms.sylvester import Sylvester
from cubicflow.transforms.transform import NotInvertibleError, Transform

__all__ = [
    "ActNorm",
    "Autoregressive",
    "BatchNorm",
    "BlockNAF",
    "Compose",
    "Continuous",
    "Conv1x1",
    "Coupling",
    "ElementMap",
    "Elementwise",
    "EmergingConv",
    "Inverse",
    "LULinear",
    "LinearTransform",
    "Logit",
    "MultiScale",
    "NotInvertibleError",
    "Orthogonal",
    "PeriodicConv",
    "Permutation",
    "Planar",
    "QRLinear",
    "Radial",
    "Recurrent",
    "SVDLinear",
    "Sigmoid",
    "SolverError",
    "Squeeze",
    "Standardise",
    "Sylvester",
    "Transform",
]
