"""A synthetic MINIBOONE, and a recipe for it that takes seconds."""

from __future__ import annotations

ROWS = {"train": 400, "val": 100, "test": 150}


TINY_TABLE = """
[flow]
num_layers = 1
hidden_features = 8
num_blocks = 1
num_bins = 4

[datasets.miniboone]
seeds = [0, 1]
flow = { num_layers = 1, hidden_features = 8, num_bins = 4, dropout = 0.1 }
training = { steps = 12, batch_size = 64, validate_every = 4, log_every = 2, patience = 0 }
"""


CELLS = ("--dataset", "miniboone", "--model", "cubic", "--model", "quadratic", "--device", "cpu")
