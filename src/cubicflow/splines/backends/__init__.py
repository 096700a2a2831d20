"""Implementations of the spline functions. Only ``cubicflow.splines.dispatch`` imports them, and has their contract."""
