"""Export of models to files for other programs: ONNX, and torch's exported programs (.pt2)."""

from __future__ import annotations

from cubicflow.export.exporting import export_model
from cubicflow.export.graphs import ExportError

__all__ = ["ExportError", "export_model"]
