"""The paper's figures and table, rerun from recipe files by ``python -m paper``."""
