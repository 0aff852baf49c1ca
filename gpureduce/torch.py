"""Sums for PyTorch: operators that work under autograd, torch.compile and torch.func.vmap.

>>> import gpureduce.torch, torch  # doctest: +SKIP
>>> x = torch.ones(3, 4, requires_grad=True)  # doctest: +SKIP
>>> gpureduce.torch.sum(x, dim=1).sum().backward()  # doctest: +SKIP
>>> gpureduce.torch.segment_sum(x, torch.tensor([0, 1, 0]), num_segments=2)  # doctest: +SKIP

`import gpureduce` alone does not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gpureduce.core.dtypes import named
from gpureduce.core.segments import segment_sum as _segment_sum
from gpureduce.core.summation import sum as _sum

__all__ = ["index_add", "segment_sum", "sum"]


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
    return _from_host(_sum(_host_array(x), strategy, **how).value, result)


def _from_host(sums: Any, result: torch.dtype) -> torch.Tensor:
    numbers = np.array(sums, order="C")
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


# --- sums by segment ---------------------------------------------------------------------------


def segment_sum(
    values: torch.Tensor,
    segment_ids: torch.Tensor | None = None,
    *,
    offsets: torch.Tensor | None = None,
    num_segments: int | None = None,
    dtype: torch.dtype | None = None,
    strategy: str = "auto",
    sorted: bool | None = None,
    check: bool = True,
) -> torch.Tensor:
    """Add up the rows of each segment: row i is added to sum number ``segment_ids[i]``.

    Parameters
    ----------
    values
        A tensor (n, ...), whose rows are added up.
    segment_ids, offsets
        n integers, or the offsets of segments whose rows lie one after another, on the device of
        `values`: as in `gpureduce.segment_sum`.
    num_segments
        The number of sums. By default the largest id plus one, which on a GPU takes a wait and in
        torch.compile a graph break.
    dtype, strategy, sorted, check
        As in `gpureduce.segment_sum`. With ``check=False`` a call on a GPU waits for nothing, and
        can be captured into a CUDA graph.

    Returns
    -------
    torch.Tensor
        The sums, (num_segments, ...). The gradient of a row is that of its sum. Each sum is rounded
        once, so it has the same bits in every run, in any order of the rows and on any device.

    Raises
    ------
    ValueError
        An id or offset is wrong, and `check` is not False.
    """
    if (segment_ids is None) == (offsets is None):
        how = "neither" if segment_ids is None else "both"
        raise TypeError(f"pass either segment_ids or offsets, not {how}")
    if values.dim() == 0:
        raise ValueError("values must have at least 1 dimension, (n, ...)")
    if num_segments is None:
        if offsets is not None:
            num_segments = max(offsets.shape[0] - 1, 0)
        else:
            assert segment_ids is not None
            num_segments = max(int(segment_ids.max()) + 1, 0) if segment_ids.numel() else 0
    rest = values.shape[1:]
    rows = values if values.dim() <= 2 else values.flatten(1)  # without rows, too
    how_ = num_segments, dtype, strategy, sorted, check
    found: torch.Tensor = torch.ops.gpureduce.segment_sum(rows, segment_ids, offsets, *how_)
    return found if values.dim() <= 2 else found.reshape(num_segments, *rest)


def index_add(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    alpha: float = 1,
    check: bool = True,
) -> torch.Tensor:
    """``torch.index_add``, with each sum rounded once: the same bits in every run.

    Parameters
    ----------
    x, dim, index, source, alpha
        As in torch.index_add. Slice i of `source` along `dim`, times `alpha`, is added to slice
        ``index[i]`` of `x`.
    check
        As in `segment_sum`.

    Returns
    -------
    torch.Tensor
        A new tensor of the shape and dtype of `x`.

    Raises
    ------
    ValueError
        An index is out of range, and `check` is not False.
    TypeError
        `source` times `alpha` does not have the dtype of `x`, or `index` is not of int32 or int64.
    """
    if x.dtype != source.dtype:
        raise TypeError(f"source must have the dtype of x, {x.dtype}, not {source.dtype}")
    if index.dtype not in (torch.int32, torch.int64):  # a narrower one cannot number all slices
        raise TypeError(f"index must be of int32 or int64, not {index.dtype}")
    count = x.shape[dim]
    added = source if alpha == 1 else source * alpha
    if added.dtype != x.dtype:
        raise TypeError(f"alpha must be a number of the dtype of x, {x.dtype}, not {alpha}")
    # The slices of x are elements like the others: x plus a rounded sum would be rounded twice. As
    # they come last, errors name an index by its place.
    values = torch.cat([added.movedim(dim, 0), x.movedim(dim, 0)])
    ids = torch.cat([index, torch.arange(count, device=index.device, dtype=index.dtype)])
    found = segment_sum(values, ids, num_segments=count, dtype=x.dtype, check=check)
    return found.movedim(0, dim)


@torch.library.custom_op("gpureduce::segment_sum", mutates_args=())
def _add_segments(
    values: torch.Tensor,
    segment_ids: torch.Tensor | None,
    offsets: torch.Tensor | None,
    num_segments: int,
    dtype: torch.dtype | None,
    strategy: str,
    sorted: bool | None,
    check: bool,
) -> torch.Tensor:
    result = _result_dtype(values, dtype)
    if result.is_floating_point != values.is_floating_point() and not result.is_complex:
        values = values.to(result)
    name = str(result).removeprefix("torch.")
    how: dict[str, Any] = {"num_segments": num_segments, "strategy": strategy, "dtype": name}
    how |= {"timing": False, "sorted": sorted, "check": check}
    if values.is_cuda:
        found: torch.Tensor = _segment_sum(values, segment_ids, offsets=offsets, **how).value
        return found
    numbers = {"segment_ids": segment_ids, "offsets": offsets}
    how |= {key: x.numpy() for key, x in numbers.items() if x is not None}
    return _from_host(_segment_sum(_host_array(values), **how).value, result)


@_add_segments.register_fake
def _(
    values: torch.Tensor,
    segment_ids: torch.Tensor | None,
    offsets: torch.Tensor | None,
    num_segments: int,
    dtype: torch.dtype | None,
    strategy: str,
    sorted: bool | None,
    check: bool,
) -> torch.Tensor:
    return values.new_empty((num_segments, *values.shape[1:]), dtype=_result_dtype(values, dtype))


def _remember_segments(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    values, segment_ids, offsets, *_ = inputs
    ctx.save_for_backward(segment_ids, offsets)
    ctx.dtype, ctx.rows = values.dtype, values.shape[0]


def _gather(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    ids, offsets = ctx.saved_tensors
    if ids is None:
        segments = torch.arange(offsets.shape[0] - 1, device=offsets.device)
        ids = torch.repeat_interleave(segments, offsets.long().diff(), output_size=ctx.rows)
    rows = gradient.to(ctx.dtype).index_select(0, ids.long())
    return rows, None, None, None, None, None, None, None


_add_segments.register_autograd(_gather, setup_context=_remember_segments)


@_add_segments.register_vmap
def _(
    info: Any,
    in_dims: tuple[int | None, ...],
    values: torch.Tensor,
    segment_ids: torch.Tensor | None,
    offsets: torch.Tensor | None,
    num_segments: int,
    dtype: torch.dtype | None,
    strategy: str,
    sorted: bool | None,
    check: bool,
) -> tuple[torch.Tensor, int | None]:
    size = info.batch_size
    if in_dims[2] is not None:
        raise NotImplementedError("offsets cannot be batched: pass segment_ids")
    how = dtype, strategy
    if segment_ids is None or in_dims[1] is None:  # one pass over wider rows
        values = values.movedim(in_dims[0] or 0, 1)
        rows = values.flatten(1)
        found = _add_segments(rows, segment_ids, offsets, num_segments, *how, sorted, check)
        return found.reshape(num_segments, size, *values.shape[2:]), 1
    ids = segment_ids.movedim(in_dims[1], 0).long()
    values = values.unsqueeze(0).expand(size, *values.shape) if in_dims[0] is None else (
        values.movedim(in_dims[0], 0)
    )  # fmt: skip
    is_right = (ids >= 0) & (ids < num_segments)
    first = torch.arange(size, device=ids.device).unsqueeze(1) * num_segments
    places = torch.where(is_right, ids + first, -1).reshape(-1)
    rows = values.flatten(0, 1)
    found = _add_segments(rows, places, None, size * num_segments, *how, None, check)
    return found.reshape(size, num_segments, *found.shape[1:]), 0
