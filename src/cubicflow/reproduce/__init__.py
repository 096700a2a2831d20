"""The paper's figures and table, rerun from recipe files by ``cubicflow reproduce``."""
