"""The one error of this package."""

from __future__ import annotations


class ExportError(ValueError):
    """A model that cannot be exported: which part of it, and why.

    >>> import cubicflow as cf
    >>> from cubicflow.export import export_model
    >>> flow = cf.flows.tabular(3, num_layers=1, hidden_features=8)
    >>> export_model(flow, "model.tflite")
    Traceback (most recent call last):
    ...
    cubicflow.export.export_error.ExportError: model.tflite: the ending says what to write: .onnx or .pt2
    """
