"""Benchmarks of cubicflow and of installed peers in one run: ``python -m benchmarks.speed``."""
