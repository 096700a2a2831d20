"""Formulas in ONNX operators for functions that ONNX lacks, or that ONNX runtimes compute without relative precision.

The tails of a flow need relative precision: log(sigmoid(-100)) is -100, not the logarithm of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Wichura (1988), algorithm AS 241, PPND16: the normal quantile to 16 digits. Coefficients from the highest power down.
CENTRAL = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
NEAR_TAIL = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def formulas() -> dict[Any, Callable[..., Any]]:
    """Return a dict from operators of torch to functions that build them from ONNX operators."""
    from onnxscript import opset18 as op

    def number(value: float, like: Any) -> Any:
        return op.CastLike(op.Constant(value_float=value), like)

    def double(value: float) -> Any:
        import onnx

        return op.Constant(value=onnx.helper.make_tensor("value", onnx.TensorProto.DOUBLE, [], [value]))

    # The arguments have the names of torch's operators: some versions of torch match them by name.

    def log1p(self: Any) -> Any:
        """Return log(1 + x) by Kahan's formula: the rounding error of 1 + x is in both factors and cancels."""
        one = number(1.0, self)
        sum = op.Add(self, one)
        exact = op.Equal(sum, one)
        rounded = op.Where(exact, one, op.Sub(sum, one))
        return op.Where(exact, self, op.Mul(op.Log(op.Where(exact, one, sum)), op.Div(self, rounded)))

    def log_sigmoid(self: Any) -> Any:
        return op.Sub(op.Min(self, number(0.0, self)), log1p(op.Exp(op.Neg(op.Abs(self)))))

    def sigmoid(self: Any) -> Any:
        one = number(1.0, self)
        small = op.Exp(op.Neg(op.Abs(self)))
        numerator = op.Where(op.Less(self, number(0.0, self)), small, one)
        return op.Div(numerator, op.Add(one, small))

    def quantile(self: Any) -> Any:
        """Return the normal quantile, computed in float64: the coefficients need 16 digits."""
        import onnx

        p = op.Cast(self, to=onnx.TensorProto.DOUBLE)
        half, one = double(0.5), double(1.0)
        q = op.Sub(p, half)

        def ratio(tables: tuple[tuple[float, ...], tuple[float, ...]], r: Any) -> Any:
            over, under = (_horner(op, table, r, double) for table in tables)
            return op.Div(over, under)

        central = op.Mul(q, ratio(CENTRAL, op.Sub(double(0.180625), op.Mul(q, q))))
        distance = op.Sqrt(op.Neg(op.Log(op.Min(p, op.Sub(one, p)))))
        near, far = ratio(NEAR_TAIL, op.Sub(distance, double(1.6))), ratio(FAR_TAIL, op.Sub(distance, double(5.0)))
        tail = op.Where(op.LessOrEqual(distance, double(5.0)), near, far)
        tail = op.Where(op.Less(q, double(0.0)), op.Neg(tail), tail)
        return op.CastLike(op.Where(op.LessOrEqual(op.Abs(q), double(0.425)), central, tail), self)

    def scalar_tensor(s: float, dtype: int = -1, layout: str = "", device: str = "", pin_memory: bool = False) -> Any:  # noqa: ARG001
        """Return the number as a scalar of the dtype. onnxscript's own version rounds it to float32 for every dtype."""
        import onnx

        wanted = onnx.TensorProto.FLOAT if dtype == -1 else dtype
        return op.Constant(value=onnx.helper.make_tensor("value", wanted, [], [s]))

    aten = torch.ops.aten
    return {
        aten.log1p.default: log1p,
        aten.scalar_tensor.default: scalar_tensor,
        aten.log_sigmoid.default: log_sigmoid,
        aten.log_sigmoid_forward.default: lambda self: (log_sigmoid(self), self),
        aten.sigmoid.default: sigmoid,
        aten.special_ndtri.default: quantile,
    }


def _horner(op: Any, table: tuple[float, ...], r: Any, number: Callable[[float], Any]) -> Any:
    value = number(table[0])
    for coefficient in table[1:]:
        value = op.Add(op.Mul(value, r), number(coefficient))
    return value
