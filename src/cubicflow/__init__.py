"""Cubic-spline flows: exact densities, exact samples, one network pass in either direction."""

from cubicflow import distributions, flows, nets, splines, transforms
from cubicflow.flows import Flow, Mixture, load

__version__ = "0.1.0"

__all__ = ["Flow", "Mixture", "distributions", "flows", "load", "nets", "splines", "transforms"]
