"""A user's own modules: networks and flows that are not part of cubicflow."""

from __future__ import annotations

import torch
from torch import nn

import cubicflow as cf

BINS = cf.transforms.ElementMap("cubic", num_bins=4)


class Net(nn.Module):
    """A network without a config."""

    def __init__(self, hidden=8):
        super().__init__()
        self.hidden = hidden
        last = nn.Linear(hidden, BINS.num_params)
        self.layers = nn.Sequential(nn.Linear(1, hidden), nn.Dropout(0.1), nn.SiLU(), last)

    def forward(self, x):
        return self.layers(x)


class NetWithConfig(Net):
    def config(self):
        return {"hidden": self.hidden}


class OwnFlow(nn.Module):
    """A module without any part of cubicflow. Its log_prob takes one argument. Its buffers are integers, bytes and
    half-precision numbers. Some of its tensors are not in its state_dict."""

    def __init__(self, features=2):
        super().__init__()
        self.features = features
        self.scale = nn.Parameter(torch.zeros(features))
        self.register_buffer("order", torch.arange(features, dtype=torch.int32))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("flags", torch.ones(3, dtype=torch.uint8))
        self.register_buffer("halves", torch.tensor([0.5, 0.25], dtype=torch.bfloat16))
        self.register_buffer("mask", torch.ones(features), persistent=False)
        self.base = torch.distributions.Normal(0.0, 1.0, validate_args=False)

    def log_prob(self, x):
        if self.training:
            self.calls += 1
        z = x[:, self.order] * self.scale.exp() * self.mask
        return self.base.log_prob(z).sum(1) + self.scale.sum()


class RegisteredFlow(OwnFlow):
    """An OwnFlow with a config, so that it can be registered."""

    def __init__(self, features=2):
        super().__init__(features)
        del self.halves  # all floating tensors of a registered flow have one dtype

    def config(self):
        return {"features": self.features}


def coupled(*networks):
    masks = ([True, False], [False, True])
    layers = [cf.transforms.Coupling(masks[i % 2], network, BINS) for i, network in enumerate(networks)]
    return cf.Flow(cf.distributions.StandardNormal(2), cf.transforms.Compose(layers))


def with_own_net(**settings):
    torch.manual_seed(5)
    return coupled(Net(**settings))


def shared_net(kind=Net):
    torch.manual_seed(5)
    network = kind()
    return coupled(network, network)


def mixture(kind=Net):
    torch.manual_seed(5)
    return cf.Mixture([coupled(kind()), coupled(kind(hidden=4))], [2, 1])


def own_flow():
    return OwnFlow()
