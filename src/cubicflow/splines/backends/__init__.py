"""Implementations of the spline functions. Only ``cubicflow.splines.dispatch`` knows which there are.

A backend is a module with four functions:

    at_home_on(device) -> bool              whether "auto" should ask it about tensors there
    unavailable() -> str | None             why it cannot run on this machine, or None
    refuses(spec, x, params) -> str | None  why it cannot run this call, or None
    evaluate(spec, x, params) -> (y, log_slope)

x and params have the same floating dtype, float32 or float64, and the same device.
"""
