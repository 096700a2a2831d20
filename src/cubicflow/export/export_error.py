"""The error that this package raises."""

from __future__ import annotations


class ExportError(ValueError):
    """An error raised for a model that cannot be exported. The message names the part of the model and the reason.

    >>> import cubicflow as cf
    >>> from cubicflow.export import export_model
    >>> flow = cf.flows.tabular(3, num_layers=1, hidden_features=8)
    >>> export_model(flow, "model.tflite")
    Traceback (most recent call last):
    ...
    cubicflow.export.export_error.ExportError: model.tflite: the file name must end in .onnx or .pt2
    """
