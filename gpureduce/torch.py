"""Sums and statistics for PyTorch, under autograd, torch.compile and torch.func.vmap.

>>> import gpureduce.torch, torch  # doctest: +SKIP
>>> x = torch.ones(3, 4, requires_grad=True)  # doctest: +SKIP
>>> gpureduce.torch.sum(x, dim=1).sum().backward()  # doctest: +SKIP
>>> gpureduce.torch.segment_sum(x, torch.tensor([0, 1, 0]), num_segments=2)  # doctest: +SKIP

`import gpureduce` alone does not import PyTorch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from gpureduce import exact as _exact
from gpureduce.core.checks import finite, shown
from gpureduce.core.segments import segment_sum as _segment_sum
from gpureduce.training import reductions as _reductions
from gpureduce.training.mode import disable, enable, reproducible
from gpureduce.training.reductions import Axes, Dims
from gpureduce.training.reductions import axes_of as _axes
from gpureduce.training.reductions import checked as _checked
from gpureduce.training.reductions import dtype_of_sum as _result_dtype
from gpureduce.training.replaced import index_add as _by_index
from gpureduce.training.rows import added as _add_rows
from gpureduce.training.rows import from_host as _from_host
from gpureduce.training.rows import host_array as _host_array

__all__ = [
    "cumsum",
    "disable",
    "dot",
    "enable",
    "index_add",
    "logsumexp",
    "mean",
    "norm",
    "reproducible",
    "segment_mean",
    "segment_sum",
    "std",
    "sum",
    "var",
    "vecdot",
]

# Arguments of operators: the batched dimension of each argument, ids or offsets.
Batched = tuple[int | None, ...]
Numbers: TypeAlias = "torch.Tensor | None"

# --- operators ---------------------------------------------------------------------------------

_DIRECT: dict[str, Any] = {}  # by an operator's name: its function as one of autograd


def _register_gradient(op: Any, backward: Callable[..., Any], setup: Callable[..., Any]) -> None:
    op.register_autograd(backward, setup_context=setup)

    class Direct(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *args: Any) -> torch.Tensor:
            found: torch.Tensor = op._init_fn(*args)
            setup(ctx, args, found)  # as a function of its own, it would take longer
            return found

    Direct.backward = staticmethod(backward)
    _DIRECT[op._qualname] = Direct


def _resolved(x: Any) -> Any:
    return x.resolve_conj().resolve_neg() if isinstance(x, torch.Tensor) else x


def _run(op: Any, *args: Any) -> Any:
    """An operator's result. Eager programs go past PyTorch's dispatcher, which takes longer."""
    needs_gradient = False
    for x in args:
        if isinstance(x, torch.Tensor):
            if type(x) is not torch.Tensor and type(x) is not torch.nn.Parameter:
                return op(*args)
            needs_gradient = needs_gradient or x.requires_grad
    if (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    ):
        return op(*args)
    for x in args:  # PyTorch changes elements of some tensors when it reads them
        if isinstance(x, torch.Tensor) and (x.is_conj() or x.is_neg()):
            return _run(op, *map(_resolved, args))
    if needs_gradient and torch.is_grad_enabled():
        return _DIRECT[op._qualname].apply(*args)
    return op._init_fn(*args)


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
    dims = _checked(dim, x.dim())
    return _run(_add, x, dims, bool(keepdim), dtype, strategy)


def _shape(shape: Sequence[int], axes: tuple[int, ...], keepdim: bool) -> list[int]:
    sizes = (1 if i in axes else n for i, n in enumerate(shape) if keepdim or i not in axes)
    return list(sizes)


_add = torch.library.custom_op("gpureduce::sum", _reductions.sum, mutates_args=())


@_add.register_fake
def _(
    x: torch.Tensor, dim: Axes, keepdim: bool, dtype: torch.dtype | None, strategy: str
) -> torch.Tensor:
    shape = _shape(x.shape, _axes(x, dim), keepdim)
    return x.new_empty(shape, dtype=_result_dtype(x, dtype))


def _remember(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, dim, ctx.keepdim, *_ = inputs
    ctx.shape, ctx.dtype, ctx.axes = x.shape, x.dtype, _axes(x, dim)


def _with_axes(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient with dimensions of size 1 where there was a reduction."""
    for axis in () if ctx.keepdim else sorted(ctx.axes):
        gradient = gradient.unsqueeze(axis)
    return gradient


def _gradient(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
    gradient = _with_axes(ctx, gradient)
    return gradient.to(ctx.dtype).expand(ctx.shape), None, None, None, None


_register_gradient(_add, _gradient, _remember)


@_add.register_vmap
def _(
    info: Any, in_dims: Batched, x: torch.Tensor, dim: Axes, *how: Any
) -> tuple[torch.Tensor, int | None]:
    if in_dims[0] is None:
        return _add(x, dim, *how), None
    x = x.movedim(in_dims[0], 0)
    dims = range(x.dim() - 1) if dim is None else dim
    return _add(x, [one + 1 for one in dims], *how), 0


# --- running sums ------------------------------------------------------------------------------


def cumsum(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The sums of the elements up to each, as torch.cumsum: the bits of `gpureduce.exact.cumsum`.

    The gradient of an element is the sum of the gradients from its entry on, rounded once: it is
    exact. `dtype` rounds the entries: floats are not rounded to a narrower one before. The entries
    lie on the device of `x`. torch.func.vmap has no rule for it.
    """
    (axis,) = _checked(dim, x.dim()) or (0,)
    if x.dim() == 0:
        return cumsum(x.reshape(1), 0, dtype=dtype).reshape(())
    return _run(_add_before, x, axis, _result_dtype(x, dtype), False)


_add_before = torch.library.custom_op("gpureduce::cumsum", _reductions.cumsum, mutates_args=())


@_add_before.register_fake
def _(x: torch.Tensor, dim: int, dtype: torch.dtype, reverse: bool) -> torch.Tensor:
    return x.new_empty(x.shape, dtype=dtype)


def _remember_direction(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, ctx.dim, _, ctx.reverse = inputs
    ctx.dtype = x.dtype


def _add_after(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
    if gradient.is_complex() and not ctx.dtype.is_complex:
        gradient = gradient.real
    return _run(_add_before, gradient, ctx.dim, ctx.dtype, not ctx.reverse), None, None, None


_register_gradient(_add_before, _add_after, _remember_direction)


# --- statistics --------------------------------------------------------------------------------


def mean(
    x: torch.Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The mean, as torch.mean, rounded once: the bits of `gpureduce.exact.mean`.

    The gradient is that of the mean over the number of elements, one rounded division: it is
    exact. `dtype` rounds the mean; elements are not cast.
    """
    return _statistic(x, "mean", dim, keepdim, dtype)


def var(
    x: torch.Tensor, dim: Dims = None, *, correction: float = 1, keepdim: bool = False
) -> torch.Tensor:
    """The variance, as torch.var, rounded once: the bits of `gpureduce.exact.var`.

    The gradient, ``2 (x - mean) / (n - correction)``, takes the exact mean, but rounds the mean,
    the difference and the products: it is not exact.
    """
    return _statistic(x, "var", dim, keepdim, None, correction)


def std(
    x: torch.Tensor, dim: Dims = None, *, correction: float = 1, keepdim: bool = False
) -> torch.Tensor:
    """The standard deviation, as torch.std, rounded once.

    The gradient, ``(x - mean) / ((n - correction) std)``, is rounded several times: not exact.
    That of equal elements is 0.
    """
    return _statistic(x, "std", dim, keepdim, None, correction)


def norm(x: torch.Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False) -> torch.Tensor:
    """The norm of order 1 or 2, as torch.linalg.vector_norm, rounded once. Nothing overflows.

    The gradient of order 1 is a sign, and exact. That of order 2, ``x / norm``, is rounded twice or
    more: it is not exact. That of zeros is 0.
    """
    if not isinstance(ord, (int, float)) or ord not in (1, 2):
        raise ValueError(f"ord must be 1 or 2, not {shown(ord)}")
    return _statistic(x, f"norm{int(ord)}", dim, keepdim, None)


def dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum of the products of two one-dimensional tensors, as torch.dot, rounded once.

    The gradient of an element is one rounded product: it is exact, except of complex numbers.
    """
    if x.dim() != 1 or x.shape != y.shape:
        raise ValueError(
            "dot takes two one-dimensional tensors of equal length, not of shapes "
            f"{tuple(x.shape)} and {tuple(y.shape)}: use vecdot for more dimensions"
        )
    return vecdot(x.conj(), y)


def vecdot(x: torch.Tensor, y: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """The sums of conj(x) y along a dimension, as torch.linalg.vecdot, each rounded once.

    Tensors are broadcast. The gradient of an element is one rounded product: it is exact, except
    of complex numbers and of elements that were broadcast, whose gradients PyTorch adds up.
    """
    if x.dtype != y.dtype:
        raise TypeError(f"both tensors must have one dtype, not {x.dtype} and {y.dtype}")
    _refuse_integers(x, "products", "torch.dot is exact for them")
    x, y = torch.broadcast_tensors(x, y)
    (axis,) = _checked(dim, x.dim()) or (0,)
    if x.dim() == 0:
        raise ValueError("vecdot takes tensors of at least 1 dimension")
    return _run(_multiplied, x, y, axis)


def _refuse_integers(x: torch.Tensor, what: str, cure: str) -> None:
    if not (x.is_floating_point() or x.is_complex()):
        raise TypeError(f"exact {what} take floats, not {x.dtype}: {cure}")


def _statistic(
    x: torch.Tensor, kind: str, dim: Dims, keepdim: bool, dtype: torch.dtype | None,
    correction: float = 0,
) -> torch.Tensor:  # fmt: skip
    if dtype is None:
        _refuse_integers(x, f"{kind.rstrip('12')}s", "pass x.double()")
    how = _checked(dim, x.dim()), bool(keepdim), dtype, finite("correction", correction)
    return _run(_made, x, kind, *how)


def _of_mean(ctx: Any, x: torch.Tensor, found: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return (g / ctx.n).expand(ctx.shape)


def _of_var(ctx: Any, x: torch.Tensor, found: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    centred = x - _run(_made, x, "mean", ctx.axes, True, None, 0.0)
    return (
        (2 / max(ctx.n - ctx.correction, 0) if ctx.n > ctx.correction else math.nan) * g * centred
    )


def _of_std(ctx: Any, x: torch.Tensor, found: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return _of_var(ctx, x, found, (g / (2 * found)).masked_fill(found == 0, 0))


def _of_norm(ctx: Any, x: torch.Tensor, found: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return x * (g / found).masked_fill(found == 0, 0)


def _of_sizes(ctx: Any, x: torch.Tensor, found: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return x.sgn() * g


_GRADIENTS: dict[str, Callable[..., torch.Tensor]] = {
    "mean": _of_mean,
    "var": _of_var,
    "std": _of_std,
    "norm1": _of_sizes,
    "norm2": _of_norm,
}
_made = torch.library.custom_op("gpureduce::statistic", _reductions.statistic, mutates_args=())


@_made.register_fake
def _(
    x: torch.Tensor, kind: str, dim: Axes, keepdim: bool, dtype: torch.dtype | None, *how: Any
) -> torch.Tensor:
    result = _reductions.dtype_of_statistic(x, kind, dtype)
    return x.new_empty(_shape(x.shape, _axes(x, dim), keepdim), dtype=result)


def _remember_statistic(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, ctx.kind, dim, ctx.keepdim, _, ctx.correction = inputs
    ctx.shape, ctx.dtype, ctx.axes = x.shape, x.dtype, _axes(x, dim)
    ctx.n = math.prod(x.shape[axis] for axis in ctx.axes)
    ctx.save_for_backward(*(() if ctx.kind == "mean" else (x, output)))


def _statistic_gradient(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, found = ctx.saved_tensors or (gradient, gradient)
    found, gradient = _with_axes(ctx, found), _with_axes(ctx, gradient)
    made = _GRADIENTS[ctx.kind](ctx, x, found, gradient).to(ctx.dtype)
    return made, None, None, None, None, None


_register_gradient(_made, _statistic_gradient, _remember_statistic)


@_made.register_vmap
def _(
    info: Any, in_dims: Batched, x: torch.Tensor, kind: str, dim: Axes, keepdim: bool, *how: Any
) -> tuple[torch.Tensor, int | None]:
    x = x.movedim(in_dims[0] or 0, 0)
    dims = [one + 1 for one in (range(x.dim() - 1) if dim is None else dim)]
    if not dims:  # of scalars
        return _made(x.unsqueeze(1), kind, [1], False, *how), 0
    return _made(x, kind, dims, keepdim, *how), 0


_multiplied = torch.library.custom_op("gpureduce::vecdot", _reductions.vecdot, mutates_args=())


@_multiplied.register_fake
def _(x: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return x.new_empty(_shape(x.shape, (dim,), False))


def _remember_factors(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, y, ctx.dim = inputs
    ctx.save_for_backward(x, y)


def _products(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
    x, y = ctx.saved_tensors
    g = gradient.unsqueeze(ctx.dim)
    return g.conj() * y, g * x, None


_register_gradient(_multiplied, _products, _remember_factors)


@_multiplied.register_vmap
def _(
    info: Any, in_dims: Batched, x: torch.Tensor, y: torch.Tensor, dim: int
) -> tuple[torch.Tensor, int | None]:
    both = [one.unsqueeze(0).expand(info.batch_size, *one.shape) if at is None
            else one.movedim(at, 0) for one, at in zip((x, y), in_dims, strict=False)]  # fmt: skip
    return _multiplied(*both, dim + 1), 0


def logsumexp(x: torch.Tensor, dim: Dims = None, keepdim: bool = False) -> torch.Tensor:
    """``torch.logsumexp``, whose sum of exponentials is rounded once.

    So the result of a row depends on its elements alone, not on the other rows, on their number or
    on the order. Elements of 16 bits are computed in float32.
    """
    _refuse_integers(x, "logarithms of sums", "pass x.double()")
    return _run(_log, x, _checked(dim, x.dim()), bool(keepdim))


_log = torch.library.custom_op("gpureduce::logsumexp", _reductions.logsumexp, mutates_args=())


@_log.register_fake
def _(x: torch.Tensor, dim: Axes, keepdim: bool) -> torch.Tensor:
    return x.new_empty(_shape(x.shape, _axes(x, dim), keepdim))


def _remember_logarithm(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, dim, ctx.keepdim = inputs
    ctx.axes = _axes(x, dim)
    ctx.save_for_backward(x, output)


def _shares(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    x, found = ctx.saved_tensors
    found, gradient = _with_axes(ctx, found), _with_axes(ctx, gradient)
    return gradient * (x - found).exp().masked_fill(found == -math.inf, 0), None, None


_register_gradient(_log, _shares, _remember_logarithm)


@_log.register_vmap
def _(
    info: Any, in_dims: Batched, x: torch.Tensor, dim: Axes, keepdim: bool
) -> tuple[torch.Tensor, int | None]:
    x = x.movedim(in_dims[0] or 0, 0)
    dims = [one + 1 for one in (range(x.dim() - 1) if dim is None else dim)]
    if not dims:  # of scalars
        return x, 0
    return _log(x, dims, keepdim), 0


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
    more = dtype, strategy, sorted, check
    return _by_segment(values, segment_ids, offsets, num_segments, more)


def segment_mean(
    values: torch.Tensor,
    segment_ids: torch.Tensor | None = None,
    *,
    offsets: torch.Tensor | None = None,
    num_segments: int | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The mean of the rows of each segment, rounded once. That of no rows is nan.

    The arguments are those of `segment_sum`. The gradient of a row is that of its mean over the
    number of rows, one rounded division: it is exact. On a GPU, ids are sorted first and always
    checked, so a call waits for them; the values may not be integers of 64 bits.
    """
    if dtype is None:
        _refuse_integers(values, "means", "pass dtype=torch.float64")
    more = dtype, "mean", None, True
    return _by_segment(values, segment_ids, offsets, num_segments, more)


def _by_segment(
    values: torch.Tensor, segment_ids: torch.Tensor | None,
    offsets: torch.Tensor | None, num_segments: int | None, more: tuple[Any, ...],
) -> torch.Tensor:  # fmt: skip
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
    found: torch.Tensor = _run(_add_segments, rows, segment_ids, offsets, num_segments, *more)
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
        On a GPU, False waits for nothing: a wrong index then ends the CUDA context, as that of
        PyTorch's own index_add.

    Returns
    -------
    torch.Tensor
        A new tensor of the shape and dtype of `x`. Only slices that occur in `index` are added up.

    Raises
    ------
    ValueError or IndexError
        An index is out of range: on a GPU, and of a tensor in host memory.
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
    if added.is_floating_point() or added.is_complex():
        found = _by_index(lambda *rows: _run(_add_rows, *rows, check), x, dim, index, added)
        if found is not NotImplemented:
            return found
    # Each slice of x is one more element of its sum. They come last, so that the places that errors
    # give are places in `index`.
    values = torch.cat([added.movedim(dim, 0), x.movedim(dim, 0)])
    ids = torch.cat([index, torch.arange(count, device=index.device, dtype=index.dtype)])
    found = segment_sum(values, ids, num_segments=count, dtype=x.dtype, check=check)
    return found.movedim(0, dim)


def _remember_ids(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[1])


def _of_rows(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor, None]:
    (ids,) = ctx.saved_tensors
    return gradient, None, gradient.index_select(0, ids), None


_register_gradient(_add_rows, _of_rows, _remember_ids)


@_add_rows.register_vmap
def _(
    info: Any, in_dims: Batched, to: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor,
    check: bool,
) -> tuple[torch.Tensor, int]:  # fmt: skip
    size = info.batch_size
    where = 0 if in_dims[1] is not None else 1  # one table after another, or one beside another
    to, rows = (
        x.unsqueeze(where).expand(*x.shape[:where], size, *x.shape[where:]) if at is None
        else x.movedim(at, where) for x, at in zip((to, rows), in_dims[::2], strict=False)
    )  # fmt: skip
    if where == 1:  # one pass over wider rows
        found = _add_rows(to.flatten(1), ids, rows.flatten(1), check)
        return found.reshape(to.shape), 1
    ids, count = ids.movedim(in_dims[1] or 0, 0), to.shape[1]
    first = torch.arange(size, device=ids.device).unsqueeze(1) * count
    ids = torch.where((ids >= 0) & (ids < count), ids + first, -1).reshape(-1)
    return _add_rows(to.flatten(0, 1), ids, rows.flatten(0, 1), check).reshape(to.shape), 0


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
    is_mean = strategy == "mean"
    if (
        not is_mean
        and result.is_floating_point != values.is_floating_point()
        and not result.is_complex
    ):
        values = values.to(result)
    name = str(result).removeprefix("torch.")
    how: dict[str, Any] = {"num_segments": num_segments, "dtype": name}
    if not is_mean:
        how |= {"strategy": strategy, "timing": False, "sorted": sorted, "check": check}
    if values.is_cuda and is_mean:
        how["dtype"] = None if dtype is None else name
        return _exact.segment_mean(values, segment_ids, offsets=offsets, **how)
    if values.is_cuda:
        return _segment_sum(values, segment_ids, offsets=offsets, **how).value
    numbers = {"segment_ids": segment_ids, "offsets": offsets}
    how |= {key: x.numpy() for key, x in numbers.items() if x is not None}
    if not is_mean:
        return _from_host(_segment_sum(_host_array(values), **how).value, result)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a segment without rows gives nan
        return _from_host(_exact.segment_mean(_host_array(values), **how), result)


@_add_segments.register_fake
def _(
    values: torch.Tensor, segment_ids: Numbers, offsets: Numbers, num_segments: int,
    dtype: torch.dtype | None, *how: Any,
) -> torch.Tensor:  # fmt: skip
    return values.new_empty((num_segments, *values.shape[1:]), dtype=_result_dtype(values, dtype))


def _remember_segments(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    values, segment_ids, offsets, ctx.size, _, strategy, *_ = inputs
    ctx.is_mean = strategy == "mean"
    ctx.save_for_backward(segment_ids, offsets)
    ctx.dtype, ctx.rows = values.dtype, values.shape[0]


def _gather(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    ids, offsets = ctx.saved_tensors
    if ids is None:
        segments = torch.arange(offsets.shape[0] - 1, device=offsets.device)
        ids = torch.repeat_interleave(segments, offsets.long().diff(), output_size=ctx.rows)
    if ctx.is_mean:
        counts = ids.new_zeros(ctx.size, dtype=torch.long)
        counts = counts.index_add(0, ids.long(), torch.ones_like(ids, dtype=torch.long))
        gradient = gradient / counts.reshape(-1, *(1,) * (gradient.dim() - 1))
    rows = gradient.to(ctx.dtype).index_select(0, ids.long())
    return rows, None, None, None, None, None, None, None


_register_gradient(_add_segments, _gather, _remember_segments)


@_add_segments.register_vmap
def _(
    info: Any, in_dims: Batched, values: torch.Tensor, segment_ids: Numbers, offsets: Numbers,
    num_segments: int, dtype: torch.dtype | None, strategy: str, sorted: bool | None, check: bool,
) -> tuple[torch.Tensor, int | None]:  # fmt: skip
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
