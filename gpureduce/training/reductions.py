"""Reductions of tensors where they lie, without gradients: each result is rounded once.

The operators of the same names, `torch.ops.gpureduce.sum` and others, are made of these functions.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from gpureduce import _host, exact
from gpureduce.core.running import store
from gpureduce.core.summation import sum as _sum
from gpureduce.training.rows import from_host, host_array

Dims = int | Sequence[int] | None
Axes = Sequence[int] | None  # dimensions that exist, none of them negative; None: all


def checked(dim: Dims, count: int) -> list[int] | None:
    """The dimensions, none of them negative. None of them means all, as in torch.sum."""
    dims = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if not dims:
        return None
    most = max(count, 1)
    for one in dims:
        if not -most <= one < most:
            raise IndexError(f"dim must be from {-most} to {most - 1}, not {one}")
    found = [one % most for one in dims]
    if len(set(found)) < len(found):
        raise ValueError(f"dim={dims} names a dimension twice")
    return found if count else None


def axes_of(x: torch.Tensor, dims: Axes) -> tuple[int, ...]:
    return tuple(range(x.dim()) if dims is None else [one % x.dim() for one in dims])


def _axis(x: torch.Tensor, dims: Axes) -> int | tuple[int, ...] | None:
    """The dimensions as the functions for arrays take them: one number in the least time."""
    if not dims:
        return None if x.is_cuda else tuple(range(x.dim()))
    return dims[0] if len(dims) == 1 else tuple(dims)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of_sum(x: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    return x.dtype if x.is_floating_point() or x.is_complex() else torch.int64


def sum(
    x: torch.Tensor, dim: Axes, keepdim: bool, dtype: torch.dtype | None, strategy: str
) -> torch.Tensor:
    axis = _axis(x, dim)
    if strategy == "auto" and dtype is None and x.is_floating_point() and not x.is_cuda:
        plain = _host.sum_axis(host_array(x), axis, keepdim, True, None)  # in the least time
        if plain is not None:
            return from_host(plain.value, x.dtype)
    result = dtype_of_sum(x, dtype)
    if result.is_floating_point != x.is_floating_point() and not result.is_complex:
        x = x.to(result)  # as torch.sum does
    how: dict[str, Any] = {"axis": axis, "keepdims": keepdim, "timing": False}
    if result != x.dtype or not (result.is_floating_point or result.is_complex):
        how["dtype"] = _name(result)
    if not x.is_cuda:
        return from_host(_sum(host_array(x), strategy, **how).value, result)
    return _sum(x, strategy, result="device", **how).value.contiguous()


def cumsum(x: torch.Tensor, dim: int, dtype: torch.dtype, reverse: bool) -> torch.Tensor:
    if x.is_floating_point() != dtype.is_floating_point and not x.is_complex():
        x = x.to(dtype)  # as torch.cumsum does
    how: dict[str, Any] = {"reverse": reverse}
    if dtype != x.dtype or not (x.is_floating_point() or x.is_complex()):
        how["dtype"] = _name(dtype)
    if x.is_cuda:
        return exact.cumsum(x, dim, **how).contiguous()
    array = host_array(x)
    if len(how) == 1 and not reverse:
        entries = np.empty(array.shape, array.dtype)
        store(array, dim, None, entries)
        return from_host(entries, dtype)
    return from_host(exact.cumsum(array, dim, **how), dtype)


def vecdot(x: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    if x.is_cuda:
        return exact.vecdot(x.contiguous(), y.contiguous(), axis=dim).contiguous()
    return from_host(exact.vecdot(host_array(x), host_array(y), axis=dim), x.dtype)


_KINDS: dict[str, Callable[..., Any]] = {
    "mean": exact.mean,
    "var": exact.var,
    "std": exact.std,
    "norm1": functools.partial(exact.norm, ord=1),
    "norm2": functools.partial(exact.norm, ord=2),
}


def dtype_of_statistic(x: torch.Tensor, kind: str, dtype: torch.dtype | None) -> torch.dtype:
    own = x.dtype if dtype is None else dtype
    return own if kind == "mean" else own.to_real()


def statistic(
    x: torch.Tensor, kind: str, dim: Axes, keepdim: bool, dtype: torch.dtype | None,
    correction: float,
) -> torch.Tensor:  # fmt: skip
    compute, result, axis = _KINDS[kind], dtype_of_statistic(x, kind, dtype), _axis(x, dim)
    how: dict[str, Any] = {"axis": axis, "keepdims": keepdim}
    if kind == "mean" and result != x.dtype:
        how["dtype"] = _name(result)
    if kind in ("var", "std"):
        how["ddof"] = correction
    if x.is_cuda:
        return compute(x, **how).contiguous()
    size = x.shape[axis] if isinstance(axis, int) else math.prod(x.shape[i] for i in axis or ())
    if size > correction:
        return from_host(compute(host_array(x), **how), result)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # too few elements give nan, as in PyTorch
        return from_host(compute(host_array(x), **how), result)


def logsumexp(x: torch.Tensor, dim: Axes, keepdim: bool) -> torch.Tensor:
    """The logarithm of a sum of exponentials, which is rounded once. 16 bits are added as 32."""
    axes = axes_of(x, checked(dim, x.dim()))
    if not all(x.shape[one] for one in axes):
        return x.new_full([1 if i in axes else n for i, n in enumerate(x.shape)
                           if keepdim or i not in axes], -math.inf)  # fmt: skip
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    most = wide.amax(axes, keepdim=True)
    most = most.masked_fill(most.abs() == math.inf, 0)
    total = sum(torch.exp(wide - most), axes, True, None, "auto").log() + most
    return (total if keepdim else total.squeeze(axes)).to(x.dtype)
