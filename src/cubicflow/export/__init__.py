"""Export of models to files for other programs: ONNX, and torch's exported programs (.pt2)."""

from __future__ import annotations

from cubicflow.export.export_error import ExportError
from cubicflow.export.exporting import export_model, export_run

__all__ = ["ExportError", "export_model", "export_run"]
