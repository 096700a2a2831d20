"""Saved flows load bit for bit. Damaged or hostile files are refused by name, and no code in them runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.helpers.perturbed import perturbed

import cubicflow as cf
from cubicflow.flows import FlowFileError
from cubicflow.flows.descriptions import TYPES, build, describe


def small() -> cf.Flow:
    return perturbed(cf.flows.tabular(3, num_layers=2, hidden_features=8, num_bins=4), 0.2)


def image() -> cf.Flow:
    flow = cf.flows.image((1, 4, 4), num_layers=1, hidden_features=4)
    flow.log_prob(256 * torch.rand(8, 1, 4, 4))
    return perturbed(flow, 0.2)


SAVED = {
    "tabular": small,
    "paper": lambda: perturbed(cf.flows.tabular(3, num_layers=2, hidden_features=8, paper=True), 0.2),
    "float64": lambda: small().double(),
    "autoregressive": lambda: perturbed(
        cf.flows.tabular(3, num_layers=1, hidden_features=8, layer="autoregressive"), 0.2
    ),
    "attention": lambda: perturbed(
        cf.flows.tabular(
            3, hidden_features=8, num_blocks=1, layer="autoregressive", network="transformer", order=[1, 2, 0]
        ),
        0.2,
    ),
    "towards data": lambda: perturbed(cf.flows.tabular(3, num_layers=1, hidden_features=8, direction="noise"), 0.2),
    "mixture base": lambda: perturbed(cf.flows.tabular(2, num_layers=1, hidden_features=8, base_components=3), 0.2),
    "one feature": lambda: perturbed(cf.flows.tabular(1, num_layers=2), 0.2),
    "plane": lambda: perturbed(cf.flows.plane(num_bins=8, hidden_features=8), 0.2),
    "image": image,
    "standardised": lambda: cf.Flow(
        cf.distributions.StandardNormal(2),
        cf.transforms.Compose([cf.transforms.Standardise([1.0, 2.0], [3.0, 4.0]), cf.transforms.Permutation([1, 0])]),
    ),
}


@pytest.mark.parametrize("make", SAVED.values(), ids=list(SAVED))
def test_reloaded_flows_are_bit_identical(make, tmp_path: Path) -> None:
    torch.manual_seed(0)
    flow = make()
    flow.save(tmp_path / "run")
    torch.manual_seed(1)  # the loaded permutation must not depend on the seed
    loaded = cf.load(tmp_path / "run", device="cpu")
    assert not loaded.training
    x = flow.sample(6, seed=0)
    assert torch.equal(loaded.sample(6, seed=0), x)
    assert torch.equal(loaded.log_prob(x), flow.log_prob(x))
    assert {p.dtype for p in loaded.parameters()} == {p.dtype for p in flow.parameters()}
    assert all(p.requires_grad for p in loaded.parameters())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.json", "model.safetensors"]
    loaded.save(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_conditional_flows_and_mixtures(tmp_path: Path) -> None:
    flow = perturbed(cf.flows.tabular(2, num_layers=1, hidden_features=8, context_features=3), 0.2)
    mixture = cf.Mixture(
        [flow, perturbed(cf.flows.tabular(2, num_layers=2, hidden_features=4, context_features=3), 0.2)], [2, 1]
    )
    mixture.save(tmp_path)
    loaded = cf.load(tmp_path)
    x, context = torch.randn(5, 2), torch.randn(5, 3)
    assert isinstance(loaded, cf.Mixture)
    assert torch.equal(loaded.log_prob(x, context), mixture.log_prob(x, context))
    assert torch.equal(loaded.sample(4, context, seed=0), mixture.sample(4, context, seed=0))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_a_missing_gpu_is_refused(tmp_path: Path, device: str | torch.device) -> None:
    cf.flows.tabular(2, num_layers=1, hidden_features=8).save(tmp_path)
    with pytest.raises(ValueError, match="needs a GPU, and torch finds none; leave out device="):
        cf.load(tmp_path, device=device)


def test_a_loaded_flow_can_be_trained(tmp_path: Path) -> None:
    small().save(tmp_path)
    flow = cf.load(tmp_path).train()
    flow.log_prob(torch.randn(4, 3)).sum().backward()
    torch.optim.Adam(flow.parameters()).step()
    assert torch.allclose(flow.from_noise(flow.to_noise(torch.ones(2, 3))[0])[0], torch.ones(2, 3), atol=1e-4)


def test_config_is_readable_and_versioned(tmp_path: Path) -> None:
    small().save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["format"], config["version"], config["dtype"]) == ("cubicflow", 1, "float32")
    assert config["flow"]["transform"]["transforms"][1]["element_map"]["num_bins"] == 4


def test_a_config_too_large_to_load_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubicflow.flows.serialization.MAX_CONFIG_BYTES", 100)
    with pytest.raises(
        ValueError, match=r"config\.json would have [\d,]+ bytes, and at most 100 are read: .*round them"
    ):
        cf.flows.tabular(2, num_layers=1, hidden_features=4).save(tmp_path)
    assert not (tmp_path / "config.json").exists()


def test_every_type_rebuilds_from_its_description() -> None:
    for flow in (make() for make in SAVED.values()):
        description = describe(flow)
        assert json.loads(json.dumps(description)) == description
        assert describe(build(description)) == description
    assert {"Flow", "Mixture", "Coupling", "ResidualMLP", "StandardNormal"} <= TYPES.keys()


class Homemade(torch.nn.Module):
    def forward(self, x):
        return torch.zeros(len(x), 22)


def test_the_users_own_modules_are_refused_by_name(tmp_path: Path) -> None:
    coupling = cf.transforms.Coupling([True, False], Homemade())
    flow = cf.Flow(cf.distributions.StandardNormal(2), coupling)
    assert flow.log_prob(torch.zeros(1, 2)).shape == (1,)
    with pytest.raises(TypeError, match=r"Homemade is not one of cubicflow's own modules.*register\(Homemade\)"):
        flow.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_mixed_dtypes_are_refused(tmp_path: Path) -> None:
    flow = small()
    flow.base.double()
    with pytest.raises(ValueError, match="one dtype"):
        flow.save(tmp_path / "run")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    small().save(tmp_path)
    return tmp_path


def edit(run: Path, change) -> None:
    path = run / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def refused(run: Path, file: str, reason: str) -> None:
    with pytest.raises(FlowFileError) as caught:
        cf.load(run)
    assert file in str(caught.value)
    assert reason in str(caught.value), str(caught.value)


class TestDamage:
    def test_missing(self, run: Path) -> None:
        refused(run / "nowhere", "nowhere", "no such folder")
        refused(run / "config.json", "config.json", "not a folder")
        (run / "model.safetensors").rename(run / "weights.safetensors")
        refused(run, "model.safetensors", "no such file")
        (run / "config.json").unlink()
        refused(run, "config.json", "does not hold a saved flow")

    @pytest.mark.parametrize("size", [0, 4, 8, 100, -1])
    def test_truncated_weights(self, run: Path, size: int) -> None:
        path = run / "model.safetensors"
        path.write_bytes(path.read_bytes()[:size])
        refused(run, "model.safetensors", "not a complete safetensors file")

    def test_truncated_config(self, run: Path) -> None:
        path = run / "config.json"
        path.write_text(path.read_text()[:200])
        refused(run, "config.json", "not valid JSON")

    @pytest.mark.parametrize("content", ["[]", "{}", '{"format": "other"}', "1", "null"])
    def test_a_file_that_is_no_config(self, run: Path, content: str) -> None:
        (run / "config.json").write_text(content)
        refused(run, "config.json", "not a cubicflow config")

    def test_another_version(self, run: Path) -> None:
        edit(run, lambda config: config.update(version=2))
        refused(run, "config.json", "the format has version 2; this version of cubicflow reads version 1")

    def test_edited_sizes(self, run: Path) -> None:
        def wider(config: dict) -> None:
            config["flow"]["transform"]["transforms"][1]["network"]["hidden_features"] = 16

        edit(run, wider)
        refused(run, "model.safetensors", "should be torch.float32 of shape (16,")

    def test_renamed_removed_and_extra_tensors(self, run: Path) -> None:
        path = run / "model.safetensors"
        state = load_file(path)
        state["transform.transforms.0.Bias"] = state.pop("transform.transforms.0.bias")
        save_file(state, path)
        refused(
            run, "model.safetensors", "transform.transforms.0.bias is missing; transform.transforms.0.Bias is not part"
        )

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
    def test_another_dtype(self, run: Path, dtype: torch.dtype) -> None:
        path = run / "model.safetensors"
        state = load_file(path)
        state["transform.transforms.0.bias"] = state["transform.transforms.0.bias"].to(dtype)
        save_file(state, path)
        refused(run, "model.safetensors", f"should be torch.float32 of shape (3,), but is {dtype}")


def test_batch_norm_counters_are_saved(tmp_path: Path) -> None:
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=8, norm="batch")
    flow.train().log_prob(torch.randn(20, 2))
    flow.eval().save(tmp_path)
    counts = [value for name, value in cf.load(tmp_path).state_dict().items() if name.endswith("batches_tracked")]
    assert [int(count) for count in counts] == [1] * len(counts)
    assert counts


class WithMask(torch.nn.Module):
    """A registered network with an infinite constant."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs
        self.weight = torch.nn.Parameter(torch.zeros(outputs))
        self.mask = torch.nn.Buffer(torch.tensor([-torch.inf, 0.0]))

    def forward(self, x):
        return x.sum(1, keepdim=True) * self.weight + self.mask.exp()[0]

    def config(self):
        return {"outputs": self.outputs}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["network.weight", "identity_maps.params", "network.mask"])
def test_numbers_that_are_not_finite_are_refused_beside_registered_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bad: float
) -> None:
    monkeypatch.setitem(TYPES, "WithMask", WithMask)
    cf.Flow(cf.distributions.StandardNormal(2), cf.transforms.Coupling([True, False], WithMask(22))).save(tmp_path)
    x = torch.randn(3, 2)
    assert cf.load(tmp_path).log_prob(x).isfinite().all()
    state = load_file(tmp_path / "model.safetensors")
    state[f"transform.{name}"].flatten()[-1] = bad
    save_file(state, tmp_path / "model.safetensors")
    refused(tmp_path, "model.safetensors", f"{name} holds numbers that are not finite")


class TestHostility:
    @pytest.mark.parametrize(
        "description",
        [
            {"type": "os.system", "command": "true"},
            {"type": "Module"},
            {"type": ["Flow"]},
            {"type": "Compose", "transforms": []},
            {"type": "Flow", "base": 3, "transform": 4},
            {"type": "Flow"},
            {"type": "Flow", "base": {"type": "StandardNormal", "features": -3}, "transform": None},
            {"type": "StandardNormal", "features": 2, "__class__": "x"},
            "Flow",
            None,
            [],
        ],
        ids=str,
    )
    def test_only_listed_types_with_their_own_arguments(self, run: Path, description) -> None:
        edit(run, lambda config: config.update(flow=description))
        refused(run, "config.json", "invalid description of a flow")

    def test_a_huge_model_is_refused_before_it_is_built(self, run: Path) -> None:
        def giant(config: dict) -> None:
            config["flow"]["transform"]["transforms"][1]["network"]["hidden_features"] = 10**9

        edit(run, giant)
        refused(run, "config.json", "the flow has hidden_features=1000000000, but")

    def test_endless_layers_are_not_built(self, run: Path) -> None:
        def endless(config: dict) -> None:
            config["flow"]["transform"]["transforms"][1]["network"]["num_blocks"] = 10**12

        edit(run, endless)
        refused(run, "config.json", "more layers than the weights hold")

    def test_a_pickle_is_not_opened(self, run: Path) -> None:
        import pickle

        class Bomb:
            def __reduce__(self):
                return (Path.touch, (run / "exploded",))

        (run / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
        refused(run, "model.safetensors", "not a complete safetensors file")
        assert not (run / "exploded").exists()

    def test_deep_nesting(self, run: Path) -> None:
        (run / "config.json").write_text('{"format":"cubicflow","version":1,"dtype":"float32","flow":' + "[" * 100_000)
        refused(run, "config.json", "not valid JSON")


def test_a_failed_save_leaves_the_old_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = small()
    flow.save(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with torch.no_grad():
        flow.transform.transforms[0].bias.add_(1)
    with pytest.raises(OSError, match="No space left"):
        flow.save(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
