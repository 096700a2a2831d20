"""Benchmarks of cubicflow and of installed peers in one run: ``cubicflow bench``."""
