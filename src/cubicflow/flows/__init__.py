"""Flows, mixtures of flows, and recipes: the paper's plane, tabular and image flows, and flows on boxes."""

from cubicflow.flows.box_recipe import BoxConfig, box
from cubicflow.flows.descriptions import register
from cubicflow.flows.flow import Flow
from cubicflow.flows.flow_distribution import FlowDistribution
from cubicflow.flows.image_recipe import ImageConfig, bits_per_dim, dequantise, image
from cubicflow.flows.mixture import Mixture
from cubicflow.flows.plane_recipe import PlaneConfig, plane
from cubicflow.flows.published_models import published
from cubicflow.flows.serialization import FlowFileError, load
from cubicflow.flows.tabular_recipe import TabularConfig, tabular
from cubicflow.flows.whitening import whiten

__all__ = [
    "BoxConfig",
    "Flow",
    "FlowDistribution",
    "FlowFileError",
    "ImageConfig",
    "Mixture",
    "PlaneConfig",
    "TabularConfig",
    "bits_per_dim",
    "box",
    "dequantise",
    "image",
    "load",
    "plane",
    "published",
    "register",
    "tabular",
    "whiten",
]
