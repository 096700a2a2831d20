"""Cut features into two sets, and put them together again.

Each feature goes to one place, so the gradient of the one is the other. Autograd cannot know that: its gradient of an
``index_select`` adds into zeros, which are more kernels than the rest of a coupling layer's backward pass has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cubicflow.splines.light_calls import with_signature


def split(x: Tensor, first: Tensor, second: Tensor, restore: Tensor) -> tuple[Tensor, Tensor]:
    """x[:, first] and x[:, second]. Between them they hold every feature once, and ``restore`` says where each of them
    is in a row of both.

    >>> x = torch.tensor([[10.0, 20.0, 30.0]])
    >>> split(x, torch.tensor([1]), torch.tensor([0, 2]), torch.tensor([1, 0, 2]))
    (tensor([[20.]]), tensor([[10., 30.]]))
    """
    places = first, second, restore
    parts: tuple[Tensor, Tensor] = _split(x, *places) if torch.compiler.is_compiling() else _Split.apply(x, *places)
    return parts


def join(x_first: Tensor, x_second: Tensor, first: Tensor, second: Tensor, restore: Tensor) -> Tensor:
    """What :func:`split` cut.

    >>> halves = torch.tensor([[20.0]]), torch.tensor([[10.0, 30.0]])
    >>> join(*halves, torch.tensor([1]), torch.tensor([0, 2]), torch.tensor([1, 0, 2]))
    tensor([[10., 20., 30.]])
    """
    places = first, second, restore
    halves = x_first, x_second
    x: Tensor = _join(*halves, *places) if torch.compiler.is_compiling() else _Join.apply(*halves, *places)
    return x


# Compilers fuse these, and do not take Functions that have a forward mode.
def _split(x: Tensor, first: Tensor, second: Tensor, restore: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return x.index_select(1, first), x.index_select(1, second)


def _join(x_first: Tensor, x_second: Tensor, first: Tensor, second: Tensor, restore: Tensor) -> Tensor:  # noqa: ARG001
    return torch.cat([x_first, x_second], dim=1).index_select(1, restore)


class _Split(torch.autograd.Function):
    generate_vmap_rule = True

    forward = staticmethod(with_signature(_split))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        places = inputs[1:]
        ctx.save_for_backward(*places)
        ctx.save_for_forward(*places)

    @staticmethod
    def backward(ctx: Any, grad_first: Tensor, grad_second: Tensor) -> tuple[Tensor, None, None, None]:
        return join(grad_first, grad_second, *ctx.saved_tensors), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        return split(tangent, *ctx.saved_tensors)


class _Join(torch.autograd.Function):
    generate_vmap_rule = True

    forward = staticmethod(with_signature(_join))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        places = inputs[2:]
        ctx.save_for_backward(*places)
        ctx.save_for_forward(*places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        return *split(grad, *ctx.saved_tensors), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent_first: Tensor, tangent_second: Tensor, *_: None) -> Tensor:
        return join(tangent_first, tangent_second, *ctx.saved_tensors)
