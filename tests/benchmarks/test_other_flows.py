"""``python -m benchmarks.speed.other_flows``: steps of the same flows, and the record."""

from __future__ import annotations

import csv

import pytest
import torch
from benchmarks.speed import other_flows


def test_the_record(tmp_path, capsys, monkeypatch):
    pytest.importorskip("zuko")
    found = other_flows.importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "normflows" else found(name))
    other_flows.main(["-o", str(tmp_path), "--only", "maf,planar", "--pairs", "3"])
    with (tmp_path / "cpu.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert row["flow"] == "MAF, zuko"
    low, ratio, high = (float(row[name]) for name in ("lower quartile", "ratio", "upper quartile"))
    assert 0 < low <= ratio <= high
    assert "planar left out: normflows is not installed" in capsys.readouterr().out


@pytest.mark.parametrize("name", other_flows.PAIRS_BY_NAME)
def test_both_steps_train(name):
    package, make = other_flows.PAIRS_BY_NAME[name]
    pytest.importorskip(package)
    torch.manual_seed(0)
    pair = make(torch.randn(64, other_flows.FEATURES))
    pair.ours()
    pair.theirs()


def test_networks_of_maf_have_the_same_sizes():
    """Their masked networks have as many weights as ours. (Ours also have no batch norm here.)"""
    zuko = pytest.importorskip("zuko")
    ours = other_flows.published("maf", 6, normalise=None, num_layers=2, hidden_features=8)
    theirs = zuko.flows.MAF(6, transforms=2, hidden_features=[8, 8])
    counts = [sum(parameter.numel() for parameter in module.parameters()) for module in (ours, theirs)]
    assert counts[0] == counts[1]


def test_unknown_flows(tmp_path, capsys):
    with pytest.raises(SystemExit):
        other_flows.main(["-o", str(tmp_path), "--only", "glow"])
    assert "unknown flow 'glow'; the flows are maf," in capsys.readouterr().err
