"""Contexts of any shape: through an embedding network that is part of the flow, or as images."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.perturbed import perturbed
from torch import Tensor, nn

import cubicflow as cf

SMALL = {"num_layers": 2, "hidden_features": 16, "num_bins": 6}
IMAGES = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(1))


@cf.register
class MeanAndSquare(nn.Module):
    """From an image to two trained combinations of its mean and its mean square."""

    def __init__(self, out_features: int = 2) -> None:
        super().__init__()
        self.out_features = out_features
        self.last = nn.Linear(2, out_features)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(torch.stack([images.flatten(1).mean(1), images.flatten(1).square().mean(1)], dim=1))

    def config(self) -> dict[str, int]:
        return {"out_features": self.out_features}


def made(**settings) -> cf.Flow:
    torch.manual_seed(0)
    flow = cf.flows.tabular(
        2, context_features=2, context_shape=(1, 4, 4), embedding_net=MeanAndSquare(), **SMALL, **settings
    )
    return perturbed(flow)


def test_a_flow_with_an_embedding_is_the_flow_of_the_embedded_contexts() -> None:
    flow = made()
    plain = cf.Flow(flow.base, flow.transform)
    x, embedded = torch.randn(40, 2), flow.embedding_net(IMAGES)
    assert torch.equal(flow.log_prob(x, IMAGES), plain.log_prob(x, embedded))
    assert torch.equal(flow.sample(3, IMAGES[:5], seed=0), plain.sample(3, embedded[:5], seed=0))
    for found, expected in zip(
        (*flow.to_noise(x, IMAGES), *flow.sample_and_log_prob(3, IMAGES, seed=0)),
        (*plain.to_noise(x, embedded), *plain.sample_and_log_prob(3, embedded, seed=0)),
        strict=True,
    ):
        assert torch.equal(found, expected)
    p = flow.distribution(IMAGES[:5])
    assert p.batch_shape == (5,)
    assert p.expand((3, 5)).rsample((2,)).shape == (2, 3, 5, 2)
    assert torch.equal(p.log_prob(x[:5]), plain.log_prob(x[:5], embedded[:5]))
    assert flow.log_prob(torch.randn(7, 40, 2), IMAGES, batch_size=16).shape == (7, 40)
    assert cf.Mixture([flow, flow]).sample(2, IMAGES[:3]).shape == (2, 3, 2)
    report = flow.check(x, IMAGES)
    assert max(report.round_trip, report.jacobian_error) < 1e-3
    assert flow.log_prob(x[:0], IMAGES[:0]).shape == (0,)
    assert flow.sample(0, IMAGES[:2]).shape == (0, 2, 2)


def test_it_is_trained_end_to_end_and_saved_with_the_flow(tmp_path) -> None:
    """x is the mean of the image, which only the embedding tells."""
    flow = made()
    x = IMAGES.flatten(1).mean(1, keepdim=True).expand(-1, 2) + 0.1 * torch.randn(40, 2)
    before = flow.embedding_net.last.weight.clone()
    cf.training.fit(
        flow, (x, IMAGES), run=tmp_path, steps=5, validation_fraction=0.0, progress=False, device="cpu",
        learning_rate=0.01,
    )  # fmt: skip
    assert not torch.equal(flow.embedding_net.last.weight, before)
    again = cf.load(tmp_path)
    assert type(again.embedding_net) is MeanAndSquare
    assert torch.equal(again.log_prob(x, IMAGES), flow.log_prob(x, IMAGES))
    assert "embedding_net: MeanAndSquare" in repr(again)
    assert "contexts of shape (1, 4, 4)" in repr(again)


def test_contexts_may_be_the_numbers_of_words() -> None:
    class Words(nn.Embedding):
        def forward(self, context: Tensor) -> Tensor:
            return super().forward(context.long()).flatten(1)

    flow = cf.flows.tabular(2, context_features=12, context_shape=(4,), embedding_net=Words(10, 3), **SMALL)
    x, context = torch.randn(40, 2), torch.randint(10, (40, 4))
    assert flow.log_prob(x, context).shape == (40,)
    cf.training.fit(flow, (x, context), steps=2, progress=False, device="cpu")


def test_bases_with_context_see_the_embedding_too() -> None:
    class Shifted(cf.distributions.Base):
        context_features = 2

        def log_prob(self, z, temperature=1.0, context=None):
            return torch.distributions.Normal(context, temperature).log_prob(z).sum(-1)

        def sample(self, n, temperature=1.0, generator=None, context=None):
            return context + temperature * torch.randn(n, 2, generator=generator)

    net = MeanAndSquare()
    flow = cf.flows.tabular(2, base=Shifted(2), context_shape=(1, 4, 4), embedding_net=net, **SMALL)
    x, log_prob = flow.sample_and_log_prob(3, IMAGES, seed=0)
    torch.testing.assert_close(log_prob, flow.log_prob(x, IMAGES), rtol=1e-4, atol=1e-4)
    assert all(parameter.grad is None for parameter in net.parameters())
    log_prob.sum().backward()


def image_flow(**settings) -> cf.Flow:
    torch.manual_seed(0)
    settings = {"num_levels": 2, "num_layers": 1, "hidden_features": 8, "num_bins": 4, **settings}
    return cf.flows.image((1, 4, 4), context_features=1, context_shape=(1, 4, 4), **settings)


def test_images_are_contexts_of_image_flows() -> None:
    flow = image_flow()
    x = 255 * torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    cf.training.fit(flow, (x, IMAGES), steps=3, validation_fraction=0.0, progress=False, device="cpu")
    flow = perturbed(flow)
    assert flow.log_prob(x, IMAGES).shape == (40,)
    assert flow.sample(2, IMAGES[:3]).shape == (2, 3, 1, 4, 4)
    report = flow.check(x[:4], IMAGES[:4])
    assert max(report.round_trip, report.jacobian_error) < 1e-2
    mirrored = IMAGES.flip(-1)  # the same mean: only the places of the pixels differ
    assert not torch.allclose(flow.log_prob(x, mirrored), flow.log_prob(x, IMAGES))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda: made().log_prob(torch.zeros(2, 2)),
            r"this flow is conditional: pass context= of shape \(..., 1, 4, 4\)",
        ),
        (lambda: made().log_prob(torch.zeros(2, 2), torch.zeros(2, 3)), r"context must have shape \(..., 1, 4, 4\)"),
        (
            lambda: cf.flows.tabular(2, context_features=3, context_shape=(1, 4, 4), **SMALL),
            r"contexts of shape \(1, 4, 4\) do not fit layers with context_features=3; give an embedding_net=",
        ),
        (
            lambda: cf.flows.tabular(2, embedding_net=MeanAndSquare(), context_shape=(1, 4, 4), **SMALL),
            "need layers or a base with context_features=",
        ),
        (lambda: cf.flows.tabular(2, context_shape=(3,), **SMALL), "need layers or a base with context_features="),
        (
            lambda: cf.flows.tabular(2, context_features=3, context_shape=(), **SMALL),
            r"contexts of shape \(\) do not fit layers with context_features=3",
        ),
        (
            lambda: cf.flows.tabular(
                2, context_features=5, context_shape=(1, 4, 4), embedding_net=MeanAndSquare(), **SMALL
            ).log_prob(torch.zeros(2, 2), IMAGES[:2]),
            r"take contexts of shape \(5,\), and the embedding_net returns shape \(2, 2\) for 2 rows; change its last",
        ),
        (
            lambda: cf.flows.plane(base=cf.distributions.StandardNormal(2)),
            "need noise on .* and StandardNormal has other support",
        ),
        (lambda: cf.flows.tabular(2, base=cf.distributions.Uniform(2), base_components=3), "not both"),
        (lambda: cf.flows.tabular(3, base=cf.distributions.StandardNormal(2)), "has 3 features, but the base or"),
    ],
)
def test_refusals(act, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act()


def test_recipes_take_a_base(tmp_path) -> None:
    base = cf.distributions.NormalMixture(2, 3, correlated=True)
    flow = cf.flows.tabular(2, base=base, **SMALL)
    assert flow.base is base
    flow.save(tmp_path)
    assert type(cf.load(tmp_path).base) is cf.distributions.NormalMixture
    assert cf.flows.box([(0, 2)], base=cf.distributions.Uniform(1)).distribution().support.check(torch.tensor([1.5]))
