"""cubicflow's flow inside the real nessai: its interface, a Gaussian's evidence, and a short run on Rosenbrock's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nessai.flowmodel import FlowModel
from nessai.flowsampler import FlowSampler
from nessai.model import Model
from nessai.utils import compute_radius

from cubicflow.clients.nessai import NessaiFlow

# nessai's own code emits these warnings.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
QUICK = {"max_epochs": 15, "patience": 5}


class Gaussian(Model):
    """A standard normal with a uniform prior on [-5, 5]^D. The evidence is 10^-D, up to the tails."""

    def __init__(self, dims: int) -> None:
        self.names = [f"x{i}" for i in range(dims)]
        self.bounds = {name: [-5, 5] for name in self.names}

    def log_prior(self, x: Any) -> Any:
        return np.log(self.in_bounds(x), dtype=float) - self.dims * math.log(10)

    def log_likelihood(self, x: Any) -> Any:
        return -(self.unstructured_view(x) ** 2).sum(-1) / 2 - self.dims * math.log(2 * math.pi) / 2


class Rosenbrock(Gaussian):
    """The Rosenbrock likelihood, an example of nessai."""

    def log_likelihood(self, x: Any) -> Any:
        x = self.unstructured_view(x)
        return -(100 * (x[..., 1:] - x[..., :-1] ** 2) ** 2 + (1 - x[..., :-1]) ** 2).sum(-1)


def sampler(model: Model, folder: Path, **settings: Any) -> FlowSampler:
    return FlowSampler(
        model,
        output=str(folder),
        flow_config={"flow": NessaiFlow, "n_blocks": 2, "n_neurons": 8, "num_bins": 6},
        training_config=QUICK,
        resume=False,
        plot=False,
        signal_handling=False,
        seed=1,
        **settings,
    )


def test_the_evidence_of_a_gaussian(tmp_path: Path) -> None:
    run = sampler(Gaussian(2), tmp_path, nlive=100, poolsize=200)
    run.run(plot=False, save=False)
    assert isinstance(run.ns.proposal.flow.model, NessaiFlow)
    assert run.log_evidence_error < 0.3
    assert abs(run.log_evidence + 2 * math.log(10)) < 4 * run.log_evidence_error


def test_a_short_run_on_rosenbrock(tmp_path: Path) -> None:
    model = Rosenbrock(4)
    run = sampler(model, tmp_path, nlive=60, poolsize=120, max_iteration=250, maximum_uninformed=60, reset_weights=True)
    run.run(plot=False, save=False)
    assert run.ns.proposal.training_count > 0
    assert run.ns.proposal.populated_count > 0
    rows = run.nested_samples
    assert model.in_bounds(rows).all()
    assert (np.diff(rows["logL"][: run.ns.iteration]) >= 0).all()


def test_nessais_training_learns_a_correlated_normal(tmp_path: Path) -> None:
    """nessai's FlowModel trains, samples and inverts. Its density is compared with the exact normal density."""
    torch.manual_seed(0)
    rows = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 800)
    model = FlowModel(
        {"flow": NessaiFlow, "n_inputs": 2, "n_neurons": 8, "cover": False},
        {"max_epochs": 40, "batch_size": 200},
        output=str(tmp_path),
        rng=np.random.default_rng(1),
    )
    model.initialise()
    model.train(rows, plot=False)
    x, log_prob = model.sample_and_log_prob(2_000)
    determinant = math.log(1 - 0.9**2) / 2
    wanted = -determinant - math.log(2 * math.pi) - (x[:, 0] ** 2 + x[:, 1] ** 2 - 1.8 * x[:, 0] * x[:, 1]) / 0.38
    assert 0 <= (log_prob - wanted).mean() + 0.02 < 0.2  # the divergence is not negative; 2,000 samples estimate it
    z, again = model.forward_and_log_prob(x)
    np.testing.assert_allclose(again, log_prob, atol=1e-3)
    back, log_det = model.inverse(z)
    np.testing.assert_allclose(back, x, atol=1e-3)
    np.testing.assert_allclose(-(z**2).sum(1) / 2 - math.log(2 * math.pi) - log_det, log_prob, atol=1e-3)


def test_a_reset_restores_the_initial_flow(tmp_path: Path) -> None:
    model = FlowModel({"flow": NessaiFlow, "n_inputs": 3, "n_neurons": 8}, output=str(tmp_path))
    model.initialise()
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.add_(torch.randn_like(parameter))
    x = np.random.default_rng(0).normal(size=(5, 3))
    model.reset_model(weights=True)
    z, log_prob = model.forward_and_log_prob(x)  # the identity, up to the order of the columns
    np.testing.assert_allclose(np.sort(z, axis=1), np.sort(x, axis=1), atol=1e-5)
    np.testing.assert_allclose(log_prob, -(x**2).sum(1) / 2 - 1.5 * math.log(2 * math.pi), rtol=1e-5)
    model.model.freeze_transform()
    assert not any(parameter.requires_grad for parameter in model.model.parameters())
    model.model.unfreeze_transform()
    assert all(parameter.requires_grad for parameter in model.model.flow.parameters())


def trained_on_normal_rows(folder: Path, **settings: Any) -> FlowModel:
    """Return nessai's model after two epochs on standard normal rows. It starts at the identity, which fits them."""
    torch.manual_seed(0)
    model = FlowModel(
        {"flow": NessaiFlow, "n_inputs": 4, "n_neurons": 8, **settings},
        {"max_epochs": 2},
        output=str(folder),
        rng=np.random.default_rng(1),
    )
    model.initialise()
    model.train(np.random.default_rng(0).normal(size=(1_000, 4)), plot=False)
    return model


def outside(model: FlowModel, rows: np.ndarray) -> float:
    """Return the share of rows outside the latent contour in which nessai draws new points by default."""
    z, _ = model.forward_and_log_prob(rows)
    return float((np.linalg.norm(z, axis=1) > compute_radius(4, 0.95)).mean())


def test_nessais_contour_covers_the_live_points_and_new_points(tmp_path: Path) -> None:
    """nessai never draws points outside its contour, so a share of them outside makes the evidence too high."""
    live = np.random.default_rng(0).normal(size=(1_000, 4))
    new = np.random.default_rng(2).normal(size=(20_000, 4))
    model = trained_on_normal_rows(tmp_path)
    assert outside(model, live) <= 0.001  # the farthest point is on the contour
    assert outside(model, new) < 0.01  # beyond 1,000 points with probability 0.99^1000
    assert 0.045 < outside(trained_on_normal_rows(tmp_path, cover=False), new) < 0.055


def test_the_scaled_density_is_the_density_of_the_scaled_noise(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, again = (FlowModel({"flow": NessaiFlow, "n_inputs": 2, "n_neurons": 8}, output=str(tmp_path)) for _ in "12")
    model.initialise()
    flow = model.model.eval()
    with torch.no_grad():
        flow.scale.fill_(1.3)
        for parameter in flow.averaged.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    rows = torch.randn(20, 2)
    jacobians = torch.stack([torch.autograd.functional.jacobian(lambda r: flow(r[None])[0][0], row) for row in rows])
    z, log_det = flow(rows)
    wanted = -(z**2).sum(1) / 2 - math.log(2 * math.pi) + jacobians.det().abs().log()
    torch.testing.assert_close(flow.log_prob(rows), wanted, atol=1e-4, rtol=1e-4)
    back, log_det_back = flow.inverse(z)
    torch.testing.assert_close(back, rows, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(log_det_back, -log_det, atol=1e-3, rtol=1e-3)
    model.save_weights(str(tmp_path / "weights.pt"))
    again.load_weights(str(tmp_path / "weights.pt"))
    np.testing.assert_array_equal(again.log_prob(rows.numpy()), model.log_prob(rows.numpy()))


def test_training_sees_neither_the_scale_nor_the_average() -> None:
    """The scale and the average are computed by hand, over two epochs of two batches and one validation."""
    torch.manual_seed(0)
    flow = NessaiFlow(2, 8, 2, 1)
    flow.scale.fill_(3)
    start = [p.detach().clone() for p in flow.flow.parameters()]
    rows = torch.randn(40, 2)
    plain = flow.flow.log_prob(rows[:20])
    torch.testing.assert_close(flow.train().log_prob(rows[:20]), plain)
    flow.log_prob(100 * rows[20:])  # forgotten with its epoch
    for shift in (0.1, 0.3):
        with torch.no_grad():
            for parameter in flow.flow.parameters():
                parameter.add_(shift)
        flow.end_iteration()
        flow.train().log_prob(rows[:20])
    flow.log_prob(rows[20:30])
    flow.end_iteration()
    flow.eval().log_prob(rows[30:])
    for average, old in zip(flow.averaged.parameters(), start, strict=True):
        wanted = 0.9 * (0.9 * (0.9 * old + 0.1 * (old + 0.1)) + 0.1 * (old + 0.4)) + 0.1 * (old + 0.4)
        torch.testing.assert_close(average, wanted)
    flow.finalise()
    radius = flow.averaged.to_noise(rows)[0].norm(dim=1).max()
    torch.testing.assert_close(flow.scale, radius / math.sqrt(-2 * math.log(0.05)))  # the 95 % radius in two dimensions
    flow.log_prob(1e3 * rows)
    flow.finalise()  # rows after the training count no more
    torch.testing.assert_close(flow.scale, radius / math.sqrt(-2 * math.log(0.05)))


def test_each_row_of_a_context_gets_one_sample() -> None:
    flow = NessaiFlow(2, 8, 2, 1, context_features=3)
    x, log_prob = flow.sample_and_log_prob(5, torch.randn(5, 3))
    assert x.shape == (5, 2)
    assert log_prob.shape == (5,)


def test_another_base_and_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="NessaiFlow has a standard normal base; leave 'distribution' out"):
        NessaiFlow(2, 8, 2, 1, distribution=object())
    with pytest.raises(TypeError, match="num_binz"):
        NessaiFlow(2, 8, 2, 1, num_binz=3)
