"""The shape of a call's results equals torch's broadcast shape, without a call of torch.broadcast_shapes."""

from __future__ import annotations

import random

import pytest
import torch

from cubicflow.splines.spec import output_shape


def test_shapes_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    broadcast, allowed = torch.broadcast_shapes, 0
    monkeypatch.setattr(torch, "broadcast_shapes", None)  # it imports sympy, which takes most of a second
    for _ in range(2000):
        shape, own = (torch.Size(draw.choices([0, 1, 2, 3], k=draw.randint(0, 4))) for _ in range(2))
        try:
            expected = broadcast(shape, own)
        except RuntimeError:
            with pytest.raises(ValueError, match="cannot be broadcast"):
                output_shape(shape, torch.Size([*own, 8]))
            continue
        allowed += 1
        assert output_shape(shape, torch.Size([*own, 8])) == expected
    assert 500 < allowed < 1900
