"""Measure cubicflow beside the peers that are installed, in one run: ``cubicflow bench``."""
