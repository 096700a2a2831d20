"""Networks that compute the parameters of layers: residual networks, a transformer, and the field of a continuous flow.
The last layer starts at zero."""

from cubicflow.nets.causal_states import CausalGRU, CausalLinear
from cubicflow.nets.causal_transformer import CausalTransformer
from cubicflow.nets.concat_squash_mlp import ConcatSquashMLP
from cubicflow.nets.fourier_mlp import FourierMLP
from cubicflow.nets.masked_residual_mlp import MaskedResidualMLP
from cubicflow.nets.residual_net import ResidualConv, ResidualMLP
from cubicflow.nets.transformer import Transformer

__all__ = [
    "CausalGRU",
    "CausalLinear",
    "CausalTransformer",
    "ConcatSquashMLP",
    "FourierMLP",
    "MaskedResidualMLP",
    "ResidualConv",
    "ResidualMLP",
    "Transformer",
]
