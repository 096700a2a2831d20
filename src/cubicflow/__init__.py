"""Cubic-spline flows: exact densities, exact samples, one network pass in either direction."""

from cubicflow import splines

__version__ = "0.1.0"

__all__ = ["splines"]
