"""Implementations of the spline functions. Only ``cubicflow.splines.dispatch`` imports them.

A backend is a module with four functions:

    default_for(device) -> bool             whether "auto" considers the backend for tensors on this device
    unavailable() -> str | None             the reason why the backend cannot run on this machine, or None
    refuses(spec, x, params) -> str | None  the reason why the backend cannot run this call, or None
    evaluate(spec, x, params) -> (y, log_slope)

x and params have the same floating dtype, float32 or float64, and the same device.
"""
