"""PyTorch's operators that add floats, made of `rows.add` and of the functions of reductions.py.

A function of an addition by index takes `add` and the operator's arguments. `add` returns a table
with rows added to it: the same table, or in compiled programs a new one. A function of a reduction
takes `of`, which has the functions of reductions.py: this module, or in compiled programs the
operators of the same names. Both return NotImplemented where PyTorch's own operator is to run: for
integers, for assignments, for maxima, for wrong arguments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

Add = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # table, ids, rows


_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def _adds_floats(x: torch.Tensor) -> bool:
    return x.dtype in _FLOATS or x.dtype in (torch.complex64, torch.complex128)


def _on_entries(
    x: torch.Tensor, front: Sequence[int], ids: torch.Tensor, rows: torch.Tensor, add: Add
) -> torch.Tensor:
    """Adds rows to the entries of the dimensions `front`, which `ids` number together."""
    if len(front) == 1 and front[0] == 0 and x.dim() <= 2 and rows.dim() == x.dim():
        return add(x, ids.reshape(-1), rows)  # the same, in less time
    order = [*front, *(k for k in range(x.dim()) if k not in front)]
    moved = x.permute(order)
    rest = moved.shape[len(front) :]
    table = moved.reshape(math.prod(moved.shape[: len(front)]), *([-1] if rest else []))
    rows = rows.reshape(ids.numel(), *([-1] if rest else []))
    found = add(table, ids.reshape(-1), rows).reshape(moved.shape)
    return found.permute([order.index(k) for k in range(x.dim())])


def index_add(
    add: Add, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, alpha: Any = 1
) -> Any:
    """As torch.index_add; `alpha` times an element is rounded, as there."""
    if not _adds_floats(x) or x.dtype != source.dtype or not -x.dim() <= dim < x.dim():
        return NotImplemented
    shape = list(x.shape)
    shape[dim] = index.numel()
    if index.dim() > 1 or index.dtype not in (torch.int32, torch.int64) or shape != [*source.shape]:
        return NotImplemented
    rows = source if alpha == 1 else source * alpha
    dim %= x.dim()
    return _on_entries(x, [dim], index, rows.movedim(dim, 0) if dim else rows, add)


def index_put(
    add: Add, x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor,
    accumulate: bool = False, unsafe: bool = False,
) -> Any:  # fmt: skip
    """As torch.index_put with ``accumulate=True``: also the gradient of ``x[indices]``.

    `unsafe`: the indices are known to be right.
    """
    if not accumulate or not _adds_floats(x) or x.dtype != values.dtype:
        return NotImplemented
    of_dim: dict[int, torch.Tensor] = {}
    at = 0
    for index in indices:
        if index is None:
            at += 1
        elif index.dtype in (torch.bool, torch.uint8):  # a mask of some dimensions
            if index.shape != x.shape[at : at + index.dim()]:
                return NotImplemented
            for places in index.nonzero(as_tuple=True):
                of_dim[at] = places
                at += 1
        elif index.dtype in (torch.int32, torch.int64) and at < x.dim():
            of_dim[at] = index
            at += 1
        else:
            return NotImplemented
    if not of_dim:
        return NotImplemented
    front = list(of_dim)
    places = torch.broadcast_tensors(*(one.long() for one in of_dim.values()))
    ids = torch.zeros_like(places[0])
    for dim, place in zip(front, places, strict=True):
        size = x.shape[dim]
        wrapped = place % size if unsafe else torch.where(place < 0, place + size, place)
        if len(front) == 1:
            ids = wrapped
        elif unsafe:
            ids = ids * size + wrapped
        else:
            ids = _numbered(ids, size, wrapped)
    rest = [n for k, n in enumerate(x.shape) if k not in front]
    first = front[0] if front == list(range(front[0], front[-1] + 1)) else 0
    shape = [*rest[:first], *ids.shape, *rest[first:]]
    of_ids = range(first, first + ids.dim())
    rows = values.expand(shape).movedim(list(of_ids), list(range(ids.dim())))
    return _on_entries(x, front, ids, rows, add)


def _numbered(ids: torch.Tensor, size: int, places: torch.Tensor) -> torch.Tensor:
    """The numbers of entries with one dimension more. A wrong place, or one before, gives -1."""
    is_wrong = (places < 0) | (places >= size) | (ids < 0)
    return torch.where(is_wrong, -1, ids * size + places)


def scatter_add(
    add: Add, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> Any:
    """As torch.scatter_add: also the gradient of torch.gather."""
    if not _adds_floats(x) or x.dtype != source.dtype or not -x.dim() <= dim < x.dim():
        return NotImplemented
    dim %= x.dim()
    if not x.dim() == index.dim() == source.dim() or any(
        n > source.shape[k] or (n > x.shape[k] and k != dim) for k, n in enumerate(index.shape)
    ):
        return NotImplemented
    source = source[tuple(slice(n) for n in index.shape)]
    others = [k for k in range(x.dim()) if k != dim]
    is_of_rows = all(
        index.shape[k] == x.shape[k] and (index.stride(k) == 0 or index.shape[k] == 1)
        for k in others
    )
    if is_of_rows and index.numel():  # as by index.expand_as(source)
        ids = index[tuple(slice(None) if k == dim else 0 for k in range(x.dim()))]
        return _on_entries(x, [dim], ids, source.movedim(dim, 0), add)
    number = torch.zeros((), dtype=torch.long, device=x.device)  # of the entry that index 0 names
    for k in others:
        shape = [-1 if one == k else 1 for one in range(x.dim())]
        places = torch.arange(index.shape[k], device=x.device).view(shape)
        number = torch.add(number, places, alpha=math.prod(x.shape[k + 1 :]))
    size = x.shape[dim]
    if dim == 0:  # a wrong index then names no entry
        ids = number.add(index.clamp(-1, size), alpha=math.prod(x.shape[1:]))
    else:
        ids = number.add(index, alpha=math.prod(x.shape[dim + 1 :]))
        ids = ids.masked_fill(index.clamp(0, size - 1) != index, -1)
    return _on_entries(x, range(x.dim()), ids, source, add)


def scatter_reduce(
    add: Add, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str,
    include_self: bool = True,
) -> Any:  # fmt: skip
    """As torch.scatter_reduce with "sum" or "mean". A mean is made of a sum in float64."""
    if reduce not in ("sum", "mean") or x.dtype not in _FLOATS:
        return NotImplemented
    first = x if include_self else x.scatter(dim, index, 0)
    if reduce == "sum":
        return scatter_add(add, first, dim, index, source)
    total = scatter_add(add, first.double(), dim, index, source.double())
    ones = torch.ones_like(index)
    count = torch.ones_like(x, dtype=torch.long) if include_self else torch.zeros_like(
        x, dtype=torch.long
    )  # fmt: skip
    count = count.scatter_add(dim, index, ones)  # of integers, in any order
    return torch.where(count > 0, total / count.clamp(min=1), first.double()).to(x.dtype)


def _gradient_of_table(
    add: Add, rows: torch.Tensor, ids: torch.Tensor, size: int, padding: int
) -> torch.Tensor:
    """The rows' sums by id. The row numbered `padding` gets none."""
    ids, leaves_out = ids.reshape(-1), padding >= 0
    if leaves_out:
        ids = torch.where(ids == padding, size, ids)  # one row more, which is then dropped
    return add(rows.new_zeros(size + leaves_out, rows.shape[1]), ids, rows)[:size]


def embedding_dense_backward(
    add: Add, gradient: torch.Tensor, indices: torch.Tensor, size: int, padding: int, scales: bool
) -> Any:
    """The gradient of an embedding's table. PyTorch's own scales by frequencies."""
    if scales or gradient.shape[-1] == 0:
        return NotImplemented
    rows = gradient.reshape(-1, gradient.shape[-1])
    return _gradient_of_table(add, rows, indices, size, padding)


def embedding_bag_backward(
    add: Add, gradient: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor,
    bag_of: torch.Tensor, bag_size: torch.Tensor, maximum: torch.Tensor, size: int, scales: bool,
    mode: int, is_sparse: bool, weights: torch.Tensor | None, padding: int = -1,
) -> Any:  # fmt: skip
    """The gradient of an embedding bag's table, for sums and means."""
    if scales or is_sparse or mode not in (0, 1) or gradient.shape[-1] == 0:
        return NotImplemented
    if bag_of.numel() < indices.numel():  # for sums, PyTorch may leave it out
        places = torch.arange(indices.numel(), device=offsets.device, dtype=offsets.dtype)
        bag_of = torch.searchsorted(offsets, places, right=True) - 1
    if mode == 1:
        sizes = bag_size[: len(gradient)]  # on a card, one more with include_last_offset
        gradient = gradient / sizes.unsqueeze(1).to(gradient.dtype)
    rows = gradient.index_select(0, bag_of)
    if weights is not None:
        rows = rows * weights.unsqueeze(1)
    return _gradient_of_table(add, rows, indices, size, padding)


def bincount(
    add: Add, x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> Any:
    """As torch.bincount with weights."""
    if weights is None or not x.numel() or weights.shape != x.shape or x.dim() != 1 or (
        x.is_floating_point() or x.min() < 0
    ):  # fmt: skip
        return NotImplemented
    weights = weights if weights.dtype == torch.float32 else weights.double()
    return add(weights.new_zeros(max(int(x.max()) + 1, minlength)), x, weights)


def segment_reduce(
    add: Add, x: torch.Tensor, reduce: str, *, lengths: torch.Tensor | None = None,
    indices: Any = None, offsets: torch.Tensor | None = None, axis: int = 0, unsafe: bool = False,
    initial: Any = None,
) -> Any:  # fmt: skip
    """As torch.segment_reduce with "sum" or "mean" of rows. A mean is made of a sum in float64."""
    given = offsets if lengths is None else lengths
    if reduce not in ("sum", "mean") or x.dtype not in _FLOATS or given is None or (
        axis != 0 or given.dim() != 1 or initial not in (None, 0)
    ):  # fmt: skip
        return NotImplemented
    counts = given.diff() if lengths is None else given
    if not unsafe and (counts.min() < 0 or counts.sum() != x.shape[0]):
        return NotImplemented
    ids = torch.repeat_interleave(counts, output_size=x.shape[0])
    wide = x.reshape(x.shape[0], math.prod(x.shape[1:]))
    wide = wide.double() if reduce == "mean" else wide
    found = add(wide.new_zeros(len(counts), wide.shape[1]), ids, wide)
    found = found / counts.unsqueeze(1) if reduce == "mean" else found
    return found.to(x.dtype).reshape(len(counts), *x.shape[1:])


# --- reductions --------------------------------------------------------------------------------


def _reduce(
    kind: str, of: Any, x: torch.Tensor, dim: Any = None, keepdim: bool = False, *,
    dtype: torch.dtype | None = None, correction: Any = None,
) -> Any:  # fmt: skip
    """As torch.sum and the statistics. Integers with a float `dtype` are cast, as there."""
    if (dtype or x.dtype) not in _FLOATS or x.is_complex() or x.dim() == 0:
        return NotImplemented
    x = x if x.dtype in _FLOATS else x.to(dtype)
    dim, dtype = dim or None, None if dtype == x.dtype else dtype
    try:
        if kind in ("sum", "nansum"):
            x = x if kind == "sum" else x.nan_to_num(0.0, math.inf, -math.inf)
            return of.sum(x, dim, keepdim, dtype, "auto")
        if kind == "logsumexp":
            return of.logsumexp(x, dim, keepdim)
        ddof = 1 if correction is None and kind in ("var", "std") else correction or 0
        return of.statistic(x, kind, dim, keepdim, dtype, float(ddof))
    except (IndexError, ValueError):  # PyTorch raises an error of its own
        return NotImplemented


def _norm(
    of: Any, x: torch.Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *,
    dtype: torch.dtype | None = None,
) -> Any:  # fmt: skip
    if dtype not in (None, x.dtype) and x.is_floating_point():
        if torch.promote_types(dtype, x.dtype) != dtype:
            return NotImplemented
        x = x.to(dtype)
    if ord not in (1, 2) or x.dtype not in _FLOATS:
        return NotImplemented
    return _reduce("norm1" if ord == 1 else "norm2", of, x, dim, keepdim)


_FEW, _MANY = 1 << 12, 1 << 20  # most elements of tensors that share a call for their norms


def _joined(every: Sequence[torch.Tensor]) -> torch.Tensor:
    """A row for each tensor, with zeros after its elements."""
    longest = max(x.numel() for x in every)
    pieces = [x.reshape(-1) for x in every]
    if any(x.numel() < longest for x in every):
        zeros = every[0].new_zeros(longest)
        pieces = [piece for x in pieces for piece in (x, zeros[x.numel() :])]
    return torch.cat(pieces).view(-1, longest)


def _norms(of: Any, every: Sequence[torch.Tensor], ord: Any = 2, dtype: Any = None) -> Any:
    """As torch.nn.utils.clip_grad_norm_ calls it. Small tensors share a call."""
    alike: dict[Any, list[int]] = {}
    for i, x in enumerate(every):
        n = x.numel()
        size = (n.bit_length() - 1) // 4 if n > _FEW else 0  # at most 16 times as large as another
        shares = 0 < n <= (_MANY if x.is_cuda else _FEW)
        alike.setdefault((x.dtype, x.device, size) if shares else i, []).append(i)
    found: list[Any] = [None] * len(every)
    for places in alike.values():
        tensors = [every[i] for i in places]
        if len(tensors) > 1:
            norms = _norm(of, _joined(tensors), ord, [1], dtype=dtype)
        else:
            norms = _norm(of, tensors[0], ord, dtype=dtype)
        if norms is NotImplemented:
            return norms
        for i, one in zip(places, norms.unbind() if len(tensors) > 1 else [norms], strict=True):
            found[i] = one
    return found


def _dot(of: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    if x.dtype not in _FLOATS or x.dtype != y.dtype or x.dim() != 1 or x.shape != y.shape:
        return NotImplemented
    return of.vecdot(x, y, 0)


def _cumsum(of: Any, x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    result = dtype or x.dtype
    if result not in _FLOATS or x.is_complex() or not -x.dim() <= dim < x.dim():
        return NotImplemented
    return of.cumsum(x if x.dtype in _FLOATS else x.to(result), dim % x.dim(), result, False)


_aten = torch.ops.aten
# In place: the functional operator, and the one that changes its first argument.
PAIRS: dict[Any, tuple[Any, Callable[..., Any]]] = {
    _aten.index_add.default: (_aten.index_add_.default, index_add),
    _aten.index_put.default: (_aten.index_put_.default, index_put),
    _aten._index_put_impl.default: (_aten._index_put_impl_.default, index_put),
    _aten.scatter_add.default: (_aten.scatter_add_.default, scatter_add),
    _aten.scatter_reduce.two: (_aten.scatter_reduce_.two, scatter_reduce),
}
NEW: dict[Any, Callable[..., Any]] = {
    _aten.embedding_dense_backward.default: embedding_dense_backward,
    _aten._embedding_bag_backward.default: embedding_bag_backward,
    _aten.bincount.default: bincount,
    _aten.segment_reduce.default: segment_reduce,
}
_by = {kind: functools.partial(_reduce, kind) for kind in
       ("sum", "nansum", "mean", "var", "std", "logsumexp")}  # fmt: skip
REDUCTIONS: dict[Any, Callable[..., Any]] = {
    _aten.sum.default: _by["sum"],
    _aten.sum.dim_IntList: _by["sum"],
    _aten.nansum.default: _by["nansum"],
    _aten.mean.default: _by["mean"],
    _aten.mean.dim: _by["mean"],
    _aten.var.correction: _by["var"],
    _aten.std.correction: _by["std"],
    _aten.logsumexp.default: _by["logsumexp"],
    _aten.linalg_vector_norm.default: _norm,
    _aten._foreach_norm.Scalar: _norms,
    _aten.dot.default: _dot,
    _aten.cumsum.default: _cumsum,
}
