"""Statistics of Dask arrays: the same bits for any chunks, workers and `split_every`.

>>> import gpureduce.dask, dask.array as da  # doctest: +SKIP
>>> x = da.random.standard_normal(10**9, chunks=10**7)  # doctest: +SKIP
>>> gpureduce.dask.sum(x).compute()  # doctest: +SKIP

`import gpureduce` alone does not import Dask.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask import config
from dask.array.utils import validate_axis
from dask.core import flatten

from gpureduce import exact
from gpureduce.core import arrays, chunk_sums, digits, dtypes, groups, running
from gpureduce.core.checks import finite, one_of, shown
from gpureduce.core.summation import sum as _sum

__all__ = ["cumsum", "mean", "nanmean", "nanstd", "nansum", "nanvar", "norm", "std", "sum", "var"]

_STRATEGIES = ("exact", "cpu", "numpy", "fast")

Axis = int | tuple[int, ...] | None


def sum(
    x: Any,
    axis: Axis = None,
    dtype: npt.DTypeLike | None = None,
    keepdims: bool = False,
    split_every: int | dict[int, int] | None = None,
    strategy: str = "exact",
) -> Any:
    """Add up a Dask array, or its elements along some axes, as another Dask array.

    Parameters
    ----------
    x
        A Dask array of NumPy or CuPy chunks, or what dask.array.asanyarray takes.
    axis, dtype, keepdims, split_every
        As in dask.array.sum. By default, 16 chunks are added up at once if they have few sums each.
    strategy
        ``"exact"`` rounds each sum of floats once: it has the bits of `gpureduce.sum` of the whole
        array. A chunk that lacks elements of its sums becomes three floats for each sum along its
        axes, which are added up in Dask's tree. If they cannot hold the sums without an error, it
        becomes digits, 600 bytes for each sum. ``"cpu"``, ``"numpy"`` and ``"fast"`` round the sum
        of each chunk, as dask.array.sum does. Integers wrap around as in NumPy by any strategy.

    Returns
    -------
    dask.array.Array
        The sums, in host memory.

    Raises
    ------
    ValueError
        There is no such strategy or axis.
    TypeError
        The dtype cannot be summed that way.

    Examples
    --------
    >>> import dask.array as da, gpureduce.dask
    >>> x = da.from_array([[1e100, 1.0], [2.0, -1e100]], chunks=1)
    >>> float(gpureduce.dask.sum(x).compute())
    3.0
    """
    x = da.asanyarray(x)
    one_of("strategy", strategy, _STRATEGIES)
    conversion = dtypes.convert(x.dtype, dtype)
    result = conversion.result
    is_exact = strategy == "exact" and dtypes.is_exact(result)
    if is_exact and not _are_whole(x, axis):
        last = partial(_rounded, result=result)
        return _tree("sum", x, _partial, last, axis, result, keepdims, split_every)
    part: Any = result if is_exact else dtypes.rounded_later(conversion).result
    strategy = "auto" if part.kind in "iu" else strategy
    part = None if part == dtypes.convert(x.dtype, None).result else part  # in less time
    return da.reduction(
        x, partial(_sums, strategy=strategy, dtype=part),
        _only if is_exact else partial(_total, result=result), axis=axis, keepdims=keepdims,
        dtype=result, split_every=split_every, name="sum", concatenate=not is_exact,
        meta=_meta(x, axis, keepdims, result),
    )  # fmt: skip


def _tree(
    name: str, x: Any, chunk: Any, last: Any, axis: Axis, result: np.dtype[Any], keepdims: bool,
    split_every: int | dict[int, int] | None,
) -> Any:  # fmt: skip
    """The tree of sums. More than Dask's 4 chunks are added up at once if they have few sums."""
    sums = math.prod(max(sizes) for i, sizes in enumerate(x.chunks) if i not in _axes(x, axis))
    at_once = split_every or config.get("split_every", 16 if sums <= 2**13 else 4)
    return da.reduction(
        x, chunk, last, axis=axis, keepdims=keepdims, dtype=result, combine=_merged,
        split_every=at_once, meta=_meta(x, axis, keepdims, result), concatenate=False,
        name=f"{name}-exact",
    )  # fmt: skip


def mean(
    x: Any,
    axis: Axis = None,
    dtype: npt.DTypeLike | None = None,
    keepdims: bool = False,
    split_every: int | dict[int, int] | None = None,
) -> Any:
    """The mean of a Dask array, or of its elements along some axes, as another Dask array.

    The mean is the exact sum over the number of elements, rounded once. It has the bits of
    `gpureduce.exact.mean` of the whole array. The mean of no elements is nan.

    Parameters
    ----------
    x
        A Dask array of NumPy or CuPy chunks, or what dask.array.asanyarray takes.
    axis, dtype, keepdims, split_every
        As in dask.array.mean.

    Returns
    -------
    dask.array.Array
        The means, in host memory.

    Raises
    ------
    TypeError
        The dtype has no mean.

    Examples
    --------
    >>> import dask.array as da, gpureduce.dask
    >>> x = da.from_array([[1.0, 2.0], [3.0, 5.0]], chunks=1)
    >>> gpureduce.dask.mean(x, axis=1).compute()
    array([1.5, 4. ])
    """
    return _statistic(x, digits.MEAN, axis, dtype, keepdims, split_every)


def var(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    ddof: float = 0, split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The variance, with the arguments of dask.array.var and the bits of `gpureduce.exact.var`.

    A chunk that lacks elements of its variances becomes 19 floats for each variance. If they cannot
    hold its sums without an error, it becomes digits, 2,400 bytes for each variance.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.var(da.from_array([1e8, 1e8 + 1, 1e8 + 2], chunks=1)).compute())
    0.6666666666666666
    """
    return _statistic(x, digits.VAR, axis, dtype, keepdims, split_every, ddof)


def std(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    ddof: float = 0, split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The standard deviation: the root of the unrounded variance, rounded once.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.std(da.from_array([1.0, 3.0, 5.0], chunks=2), ddof=1).compute())
    2.0
    """
    return _statistic(x, digits.STD, axis, dtype, keepdims, split_every, ddof)


def nansum(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The sum of the elements that are no nan.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.nansum(da.from_array([1.0, float("nan")], chunks=1)).compute())
    1.0
    """
    x = da.asanyarray(x)
    result = dtypes.convert(x.dtype, dtype).result
    if not dtypes.is_float(x.dtype) or not dtypes.is_exact(result):
        return sum(x, axis, dtype, keepdims, split_every)
    chunk, last = partial(_partial, skips_nan=True), partial(_rounded, result=result)
    return _tree("nansum", x, chunk, last, axis, result, keepdims, split_every)


def nanmean(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The mean of the elements that are no nan.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.nanmean(da.from_array([1.0, float("nan")], chunks=1)).compute())
    1.0
    """
    return _statistic(x, digits.MEAN, axis, dtype, keepdims, split_every, skips_nan=True)


def nanvar(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    ddof: float = 0, split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The variance of the elements that are no nan.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.nanvar(da.from_array([1.0, 3.0, float("nan")], chunks=1)).compute())
    1.0
    """
    return _statistic(x, digits.VAR, axis, dtype, keepdims, split_every, ddof, skips_nan=True)


def nanstd(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    ddof: float = 0, split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The standard deviation of the elements that are no nan.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.nanstd(da.from_array([1.0, 3.0, float("nan")], chunks=1)).compute())
    1.0
    """
    return _statistic(x, digits.STD, axis, dtype, keepdims, split_every, ddof, skips_nan=True)


def norm(
    x: Any, ord: float = 2, axis: Axis = None, keepdims: bool = False,
    split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The vector norm of order 1, 2 or inf, with the bits of `gpureduce.exact.norm`.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.norm(da.full(4, 1e200, chunks=3)).compute())
    2e+200
    """
    x = da.asanyarray(x)
    if not isinstance(ord, (int, float)) or ord not in (1, 2, np.inf):
        raise ValueError(f"ord must be 1, 2 or inf, not {shown(ord)}")
    if ord == 2:
        return _statistic(x, digits.NORM, axis, None, keepdims, split_every)
    if x.dtype.kind == "c":
        raise TypeError(f"the norm of order {ord} of complex numbers takes roots: use ord=2")
    sizes = abs(x.astype(np.float64) if x.dtype.kind in "biu" else x)
    if ord == np.inf:
        return da.max(sizes, axis=axis, keepdims=keepdims, split_every=split_every)
    return sum(sizes, axis, None, keepdims, split_every)


def cumsum(x: Any, axis: int | None = None, dtype: npt.DTypeLike | None = None) -> Any:
    """Each entry is the sum of the elements up to it, rounded once: `gpureduce.exact.cumsum`.

    Without an axis, it is of all elements, flat. The digits of each chunk's sums along the axis are
    added up first, 600 bytes for each; then each chunk is added up after the digits before it. Each
    chunk of `x` is computed once, and read twice. Sums of integers are integers, as Dask's.

    Parameters
    ----------
    x
        A Dask array of NumPy or CuPy chunks, or what dask.array.asanyarray takes.
    axis, dtype
        As in dask.array.cumsum.

    Returns
    -------
    dask.array.Array
        The sums, in host memory, of the chunks of `x`.

    Examples
    --------
    >>> import dask.array as da, gpureduce.dask
    >>> gpureduce.dask.cumsum(da.from_array([1e16, 1.0, -1e16, 1.0], chunks=2)).compute()
    array([1.e+16, 1.e+16, 1.e+00, 2.e+00])
    """
    x = da.asanyarray(x)
    if axis is None:
        x, axis = x.reshape(-1), 0
    along = groups.one_axis(axis, x.ndim)
    result = running.result_of(x.dtype, dtype)
    part = result if x.dtype.kind == "c" else dtypes.part_of(result)
    index, before = tuple(range(x.ndim)), []
    if x.numblocks[along] > 1:
        width = 1 if part.kind in "iu" else digits.REAL * (1 + (part.kind == "c"))
        meta = np.empty((0,) * (x.ndim + 1), part if width == 1 else np.int64)
        words = da.blockwise(
            _chunk_digits, (*index, x.ndim), x.blocks[(slice(None),) * along + (slice(-1),)], index,
            axis=along, result=part, new_axes={x.ndim: width}, adjust_chunks={along: lambda n: 1},
            meta=meta,
        )  # fmt: skip
        none = words.blocks[(slice(None),) * along + (slice(1),)] * 0
        words = da.concatenate([none, words], axis=along)
        before = [da.cumsum(words, along, meta.dtype), (*index, x.ndim)]
    return da.blockwise(
        _chunk_entries, index, x, index, *before, axis=along, result=part, align_arrays=False,
        concatenate=True, meta=np.empty((0,) * x.ndim, part),
    ).astype(result)  # fmt: skip


def _statistic(
    x: Any, kind: int, axis: Axis, dtype: npt.DTypeLike | None, keepdims: bool,
    split_every: int | dict[int, int] | None, ddof: float = 0, skips_nan: bool = False,
) -> Any:  # fmt: skip
    x = da.asanyarray(x)
    own = np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype.newbyteorder("=")
    wanted = own if dtype is None else dtypes.named(dtype).newbyteorder("=")
    if not dtypes.is_float(wanted):
        dtypes.convert(x.dtype, None)  # raises for elements that have no sums
        raise TypeError(f"dtype must be a float or complex dtype, not {wanted}")
    dtypes.convert(x.dtype, wanted)  # raises if it would lose something
    result = wanted if kind == digits.MEAN else dtypes.part_of(wanted)
    skips_nan = skips_nan and dtypes.is_float(x.dtype)
    name, ddof = ("mean", "var", "std", "norm")[kind], finite("ddof", ddof)
    chunk: Any = partial(_partial, kind=kind, skips_nan=skips_nan)
    last: Any = partial(_finished, kind=kind, ddof=ddof, result=result, skips_nan=skips_nan)
    if _are_whole(x, axis) and not skips_nan:
        how: dict[str, Any] = {"ddof": ddof} if kind in (digits.VAR, digits.STD) else {}
        if wanted != own:
            how["dtype"] = wanted
        chunk = partial(_made_of, function=name, how=how, sums_of=chunk, finished=last)
        last = _only
    name = "nan" * skips_nan + name
    return _tree(name, x, chunk, last, axis, result, keepdims, split_every)


def _axes(x: Any, axis: Axis) -> Any:
    return np.atleast_1d(range(x.ndim) if axis is None else validate_axis(axis, x.ndim))


def _are_whole(x: Any, axis: Axis) -> bool:
    """Whether each chunk has all elements of its sums: then they are finished at once."""
    return all(x.numblocks[i] == 1 for i in _axes(x, axis))


def _meta(x: Any, axis: Axis, keepdims: bool, result: np.dtype[Any]) -> Any:
    """An array without elements, of the dimensions and the dtype of the sums."""
    return np.empty((0,) * (x.ndim - (0 if keepdims else len(_axes(x, axis)))), result)


# The functions below run on workers. Dask calls them with `axis` as a tuple of numbers from 0 on.


def _chunk_digits(chunk: Any, axis: int, result: np.dtype[Any]) -> Any:
    return running.sum_digits(_on_host(chunk), axis, result)


def _chunk_entries(chunk: Any, before: Any = None, *, axis: int, result: np.dtype[Any]) -> Any:
    return running.continued(_on_host(chunk), axis, result, before)


def _on_host(chunk: Any) -> Any:
    return arrays.as_array(chunk.get() if arrays.lies_on_a_gpu(chunk) else chunk)


def _partial(chunk: Any, axis: tuple[int, ...], keepdims: bool, **how: Any) -> Any:
    return chunk_sums.of_chunk(chunk, axis, **how)


def _merged(found: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The sums of several chunks. The axes that are added up have size 1."""
    return chunk_sums.merged([*flatten([found])])


def _rounded(found: Any, axis: tuple[int, ...], keepdims: bool, *, result: np.dtype[Any]) -> Any:
    """Adds the last sums and rounds them."""
    return _only(chunk_sums.rounded([*flatten([found])], result), axis, keepdims)


def _finished(
    sums: Any, axis: tuple[int, ...], keepdims: bool, *, kind: int, ddof: float,
    result: np.dtype[Any], skips_nan: bool,
) -> Any:  # fmt: skip
    """Adds the last sums, and rounds what is made of them."""
    total = _merged(sums, axis, keepdims)
    found = chunk_sums.finished(total, kind, result, ddof)
    if skips_nan:
        found[chunk_sums.counts(total) <= ddof] = np.nan
    return _only(found, axis, keepdims)


def _made_of(
    chunk: Any, axis: tuple[int, ...], keepdims: bool, *, function: str, how: dict[str, Any],
    sums_of: Any, finished: Any,
) -> Any:  # fmt: skip
    """What is made of a chunk's sums."""
    if arrays.lies_on_a_gpu(chunk) or math.prod(chunk.shape[i] for i in axis) <= how.get("ddof", 0):
        return finished([sums_of(chunk, axis, True)], axis, True)
    array = arrays.as_array(chunk)
    return dtypes.quietly(getattr(exact, function), array, axis=axis, keepdims=True, **how)


def _only(found: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The only block, with axes of size 1 or without."""
    (made,) = flatten([found])
    return made if keepdims else np.squeeze(made, axis)[()]


def _sums(chunk: Any, axis: tuple[int, ...], keepdims: bool, *, strategy: str, dtype: Any) -> Any:
    """The rounded sums of a chunk, as a NumPy array."""
    found = _sum(chunk, strategy, dtype, timing=False, axis=axis, keepdims=True).value
    return found.get() if arrays.lies_on_a_gpu(found) else found


def _total(sums: Any, axis: tuple[int, ...], keepdims: bool, *, result: np.dtype[Any]) -> Any:
    """Adds the sums of chunks."""
    total = dtypes.quietly(np.sum, sums, axis=axis, keepdims=keepdims, dtype=sums.dtype)
    return dtypes.quietly(np.asarray(total).astype, result)[()]
