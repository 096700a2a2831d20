"""Published models by their names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from cubicflow.arguments import unknown_name
from cubicflow.distributions import AutoregressiveMixture, DiagonalNormal
from cubicflow.flows.flow import Flow
from cubicflow.flows.image_recipe import image
from cubicflow.flows.tabular_recipe import tabular
from cubicflow.nets import CausalGRU

# Plain networks with the random start and without the scaling of ours, and no linear layers.
_PLAIN: dict[str, Any] = {
    "linear": False, "residual": False, "identity_start": False, "scale_logits": False, "identity_maps": False,
}  # fmt: skip

# Settings of tabular, or functions of the number of columns. Plain networks have num_blocks + 1 hidden layers.
PUBLISHED: dict[str, dict[str, Any]] = {
    # Dinh et al. 2014, section 5.1, MNIST: 4 couplings, 5 hidden layers of 1000 units. The last scaling is the base's.
    "nice": {**_PLAIN, "family": "additive", "num_layers": 4, "hidden_features": 1000, "num_blocks": 4,
             "base": DiagonalNormal},
    # Dinh et al. 2017, with the sizes for POWER of Papamakarios et al. 2017 (their program run_experiments.py).
    "realnvp": {**_PLAIN, "family": "affine", "num_layers": 10, "hidden_features": 100, "num_blocks": 1,
                "normalise": "batch"},
    # Kingma and Dhariwal 2018, figure 2: actnorm, linear layer, coupling; 32 steps, two hidden layers of 512 units.
    "glow": {**_PLAIN, "family": "affine", "num_layers": 32, "hidden_features": 512, "num_blocks": 1,
             "normalise": "act", "linear": True, "identity_start": True},
    # Papamakarios et al. 2017, section 4.2, MAF (5), with the sizes for POWER; 512 units for HEPMASS and MINIBOONE.
    "maf": {**_PLAIN, "layer": "autoregressive", "family": "affine", "num_layers": 5, "hidden_features": 100,
            "num_blocks": 1, "normalise": "batch"},
    # Kingma et al. 2016, with the sizes of van den Berg et al. 2018: 4 layers, networks of 320 units.
    "iaf": {**_PLAIN, "layer": "autoregressive", "family": "affine", "num_layers": 4, "hidden_features": 320,
            "num_blocks": 1, "direction": "noise"},
    # Rezende and Mohamed 2015, section 6: 80 layers on MNIST.
    "planar": {"layer": "planar", "num_layers": 80, "linear": False, "direction": "noise"},
    # van den Berg et al. 2018, section 6: 16 layers, here of full rank.
    "sylvester": {"layer": "sylvester", "num_layers": 16, "linear": False, "direction": "noise"},
    # Huang et al. 2018, with the sizes of their program maf_experiments.py: 5 layers, 100 units, maps of one layer
    # of 16 sigmoids. The last scaling and shift are the base's.
    "naf": {**_PLAIN, "layer": "naf", "num_layers": 5, "hidden_features": 100, "num_blocks": 1, "num_bins": 16,
            "depth": 1, "base": DiagonalNormal},
    # De Cao et al. 2019, with the sizes of their program density_estimation.py: 5 layers, 10 units for each column.
    "block-naf": {"layer": "block_naf", "linear": False, "num_layers": 5, "depth": 1,
                  "hidden_features": lambda features: 10 * features},
    # Oliva et al. 2018, with the sizes of their programs mafdata_demo.py and config.py: 4 layers of a leaky relu, a
    # scale and a recurrent shift between linear layers, recurrent conditionals of 40 normals, GRUs of 256 units.
    "tan": {"layer": "tan", "num_layers": 4, "num_blocks": 1, "hidden_features": 256,
            "base": lambda features: AutoregressiveMixture(
                features, 40, network=partial(CausalGRU, hidden_features=256, num_blocks=1))},
    # Grathwohl et al. 2019, with the sizes of their README for MINIBOONE: one flow, two hidden layers of 20 D units.
    "ffjord": {"layer": "ffjord", "linear": False, "num_layers": 1, "num_blocks": 2, "activation": "softplus",
               "identity_start": False, "hidden_features": lambda features: 20 * features},
    # Durkan et al. 2019b, with the sizes of their program uci.py. Our splines need no interval.
    "rq-nsf": {"family": "rational_quadratic", "num_layers": 10, "num_bins": 8, "identity_start": False},
    "rq-nsf-ar": {"layer": "autoregressive", "family": "rational_quadratic", "num_layers": 10, "num_bins": 8,
                  "identity_start": False},
    # Durkan et al. 2019a, as written.
    "cubic": {"paper": True},
}  # fmt: skip

# Settings of image that differ. Glow: 3 levels of 32 steps for CIFAR-10; our last convolution is 1x1 instead of 3x3.
IMAGES: dict[str, dict[str, Any]] = {
    "glow": {"family": "affine", "num_levels": 3, "num_layers": 32, "hidden_features": 512, "num_blocks": 1,
             "residual": False, "scale_logits": False, "identity_maps": False},
    "cubic": {"paper": True},
}  # fmt: skip


def published(name: str, features: int | Sequence[int], **changes: Any) -> Flow:
    """Return a published model with its authors' layers, networks and sizes.

    - ``"nice"``: additive couplings (Dinh et al. 2014)
    - ``"realnvp"``: affine couplings with batch norm (Dinh et al. 2017)
    - ``"glow"``: actnorm, linear layers, affine couplings (Kingma and Dhariwal 2018)
    - ``"maf"``: masked autoregressive flow (Papamakarios et al. 2017)
    - ``"iaf"``: inverse autoregressive flow (Kingma et al. 2016)
    - ``"planar"``: planar flow (Rezende and Mohamed 2015)
    - ``"sylvester"``: Sylvester flow (van den Berg et al. 2018)
    - ``"naf"``: neural autoregressive flow (Huang et al. 2018)
    - ``"block-naf"``: block neural autoregressive flow (De Cao et al. 2019)
    - ``"tan"``: transformation autoregressive network (Oliva et al. 2018)
    - ``"ffjord"``: continuous flow with an estimated trace (Grathwohl et al. 2019)
    - ``"rq-nsf"``, ``"rq-nsf-ar"``: rational-quadratic couplings, or autoregressive layers (Durkan et al. 2019b)
    - ``"cubic"``: cubic-spline couplings (Durkan et al. 2019a)

    Models differ from their authors' programs in how scales are computed and weights are drawn. Training is not part of
    a model.

    Args:
        name: one of the names above.
        features: D; for ``"glow"`` and ``"cubic"`` also the shape (C, H, W) of an image.
        changes: settings of :class:`TabularConfig` or :class:`ImageConfig`, instead of the authors'.

    >>> flow = published("maf", 6)
    >>> flow
    Flow(
      6 features, 60,120 parameters
      base: StandardNormal
      layers: 5 Autoregressive(affine, MaskedResidualMLP), 5 BatchNorm
    )
    >>> wider = published("maf", 43, hidden_features=512, num_layers=10)
    """
    if name not in PUBLISHED:
        raise ValueError(unknown_name("cubicflow.flows.published", "model", name, PUBLISHED))
    if isinstance(features, int):
        own = {key: value(features) if callable(value) else value for key, value in PUBLISHED[name].items()}
        return tabular(features, **{**own, **changes})
    if name not in IMAGES:
        raise ValueError(f"{name} is not a model of images; give a number of columns, or one of {', '.join(IMAGES)}")
    return image(features, **{**IMAGES[name], **changes})
