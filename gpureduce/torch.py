"""Sums for PyTorch: an operator that works under autograd, torch.compile and torch.func.vmap.

>>> import gpureduce.torch, torch  # doctest: +SKIP
>>> x = torch.ones(3, 4, requires_grad=True)  # doctest: +SKIP
>>> gpureduce.torch.sum(x, dim=1).sum().backward()  # doctest: +SKIP

`import gpureduce` alone does not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gpureduce.core.dtypes import named
from gpureduce.core.summation import sum as _sum

__all__ = ["sum"]


def sum(
    x: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    strategy: str = "auto",
) -> torch.Tensor:
    """Add up a tensor, or its elements along some dimensions, on the device where it lies.

    Parameters
    ----------
    x
        A tensor in host memory or on a GPU.
    dim, keepdim
        As in torch.sum.
    dtype
        The dtype of the sums. By default that of the elements; int64 for integers and booleans.
        Elements are not rounded to a narrower float before they are added, only the sums are.
    strategy
        As in `gpureduce.sum`. ``"auto"`` rounds each sum of floats once, so it has the same bits in
        any order and on any device.

    Returns
    -------
    torch.Tensor
        The sums, on the device of `x`. The gradient of a sum is that of each of its elements.

    Raises
    ------
    IndexError
        A dimension does not exist.
    ValueError
        A dimension is named twice, or there is no such strategy.
    """
    dims = None if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = _checked(dims, x.dim()) if dims else None  # an empty one means all, as in torch.sum
    result: torch.Tensor = torch.ops.gpureduce.sum(x, dims, bool(keepdim), dtype, strategy)
    return result


def _checked(dims: list[int], count: int) -> list[int] | None:
    """The dimensions, none of them negative."""
    most = max(count, 1)
    for one in dims:
        if not -most <= one < most:
            raise IndexError(f"dim must be from {-most} to {most - 1}, not {one}")
    found = [one % most for one in dims]
    if len(set(found)) < len(found):
        raise ValueError(f"dim={dims} names a dimension twice")
    return found if count else None


def _result_dtype(x: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    return x.dtype if x.is_floating_point() or x.is_complex() else torch.int64


def _axes(x: torch.Tensor, dims: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(range(x.dim()) if dims is None else (one % x.dim() for one in dims))


def _shape(shape: Sequence[int], axes: tuple[int, ...], keepdim: bool) -> list[int]:
    sizes = (1 if i in axes else n for i, n in enumerate(shape) if keepdim or i not in axes)
    return list(sizes)


@torch.library.custom_op("gpureduce::sum", mutates_args=())
def _add(
    x: torch.Tensor,
    dim: Sequence[int] | None,
    keepdim: bool,
    dtype: torch.dtype | None,
    strategy: str,
) -> torch.Tensor:
    result, axes = _result_dtype(x, dtype), _axes(x, dim)
    if result.is_floating_point != x.is_floating_point() and not result.is_complex:
        x = x.to(result)  # as torch.sum does
    name = str(result).removeprefix("torch.")
    how: dict[str, Any] = {"axis": axes, "keepdims": keepdim, "dtype": name, "timing": False}
    if x.is_cuda:
        found: torch.Tensor = _sum(x, strategy, **how).value
        return found.contiguous()
    numbers = np.array(_sum(_host_array(x), strategy, **how).value, order="C")
    if result == torch.bfloat16:
        return torch.from_numpy(numbers.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(numbers)


def _host_array(x: torch.Tensor) -> np.ndarray[Any, Any]:
    if x.dtype != torch.bfloat16:
        return x.detach().resolve_conj().resolve_neg().numpy()
    return x.detach().view(torch.int16).numpy().view(named("bfloat16"))


@_add.register_fake
def _(
    x: torch.Tensor,
    dim: Sequence[int] | None,
    keepdim: bool,
    dtype: torch.dtype | None,
    strategy: str,
) -> torch.Tensor:
    shape = _shape(x.shape, _axes(x, dim), keepdim)
    return x.new_empty(shape, dtype=_result_dtype(x, dtype))


def _remember(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, dim, ctx.keepdim, *_ = inputs
    ctx.shape, ctx.dtype, ctx.axes = x.shape, x.dtype, _axes(x, dim)


def _gradient(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
    if not ctx.keepdim:
        for axis in sorted(ctx.axes):
            gradient = gradient.unsqueeze(axis)
    return gradient.to(ctx.dtype).expand(ctx.shape), None, None, None, None


_add.register_autograd(_gradient, setup_context=_remember)


@_add.register_vmap
def _(
    info: Any,
    in_dims: tuple[int | None, ...],
    x: torch.Tensor,
    dim: Sequence[int] | None,
    keepdim: bool,
    dtype: torch.dtype | None,
    strategy: str,
) -> tuple[torch.Tensor, int | None]:
    if in_dims[0] is None:
        return _add(x, dim, keepdim, dtype, strategy), None
    x = x.movedim(in_dims[0], 0)
    dims = range(x.dim() - 1) if dim is None else dim
    return _add(x, [one + 1 for one in dims], keepdim, dtype, strategy), 0
