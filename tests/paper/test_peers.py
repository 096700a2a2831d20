"""Peers in Table 1: their loss is never captured in a graph, and the time limit of a call is kept."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.command_line import Command, Outcome
from torch import Tensor, nn

from cubicflow.training.losses import is_one_pass
from paper import peers


class Normal(nn.Module):
    """A stub for another package's flow. ``pause`` makes the scoring of test rows slow."""

    def __init__(self, features: int, pause: float = 0.0) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(features))
        self.pause = pause

    def log_prob(self, x: Tensor) -> Tensor:
        time.sleep(self.pause)
        return -(x - self.mean).square().sum(-1) / 2


@pytest.fixture
def run(
    paper: Command, table_data: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    recipe = tiny_table.read_text()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    common = ["--data", table_data, "--recipe", tiny_table, "--dataset", "miniboone", "--device", "cpu", "--seed", 0]

    def call(*options: object, pause: float = 0.0, needed: float = 60.0) -> Outcome:
        tiny_table.write_text(f"{recipe}\n[peers]\nseconds = {needed}\n")
        flow = Normal(43, pause)
        monkeypatch.setitem(peers.BUILDERS, "zuko-maf", lambda *_: peers.PeerDensity(flow, flow.log_prob))
        return paper("peers", "-o", tmp_path / "out", "--model", "zuko-maf", *common, *options)

    return call


def test_the_loss_of_a_peer_is_never_captured_in_a_graph(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = []
    plain_fit = peers.fit

    def fit(*arguments: Any, **settings: Any) -> Any:
        losses.append(settings["loss"])
        return plain_fit(*arguments, **settings)

    monkeypatch.setattr(peers, "fit", fit)
    assert run("--seconds", 300).status == 0
    assert losses == [peers.peer_loss]
    assert not is_one_pass(peers.peer_loss)
    record = json.loads((tmp_path / "out/cells/miniboone/zuko-maf/seed-0/record.json").read_text())
    assert record["steps"] == 12
    assert json.loads((tmp_path / "out/table-1.json").read_text())["results"]["rows"][0]["model"] == "zuko-maf"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dataset", "iris"), "no dataset 'iris'"),
        (("--seconds", -3), "seconds must be a number, 0 or more, got -3"),
        (("--seconds", "nan"), "seconds must be a number, 0 or more, got nan"),
        (("--device", "nope"), "device must be"),
    ],
)
def test_bad_options_are_refused(run: Callable[..., Outcome], options: tuple[object, ...], message: str) -> None:
    done = run(*options)
    assert done.status == 2
    assert message in done.errors


def test_incomplete_tables_are_left_out(
    run: Callable[..., Outcome], paper: Command, table_data: Path, tmp_path: Path
) -> None:
    assert run().status == 0
    done = paper("peers", "-o", tmp_path / "all", "--data", table_data, "--device", "cpu")
    assert done.status == 0
    said = done.output
    assert "GAS is left out: the data is not here" in said
    assert "MINIBOONE is left out: only part of its test rows is here" in said
    assert not (tmp_path / "all" / "cells").exists()
    assert (tmp_path / "all" / "table-1.md").exists()


def test_a_peer_that_needs_more_time_is_not_begun(run: Callable[..., Outcome], tmp_path: Path) -> None:
    assert run("--seconds", 0).status == 75
    done = run("--seconds", 30)
    assert done.status == 75
    assert "not begun, it may take 120 seconds" in done.output
    assert "To continue: python -m paper peers" in done.errors
    assert (tmp_path / "out" / "table-1.json").exists()


def test_a_peer_that_exceeds_the_time_is_aborted(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_most = peers.at_most
    monkeypatch.setattr(peers, "at_most", lambda left: at_most(left and 0.2))
    done = run("--seconds", 10_000, pause=600)
    assert done.status == 75
    assert "given up, the time is over" in done.output
    assert not list(tmp_path.glob("out/cells/**/record.json"))


def test_the_error_of_a_peer_is_printed(run: Callable[..., Outcome]) -> None:
    done = run(pause="soon")
    assert done.status == 2
    assert "left out, TypeError" in done.output
    assert "1 of 1 cells failed, for the reasons above: miniboone, zuko-maf, seed 0" in done.errors
