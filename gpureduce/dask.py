"""Statistics of Dask arrays: the same bits for any chunks, workers and `split_every`.

>>> import gpureduce.dask, dask.array as da  # doctest: +SKIP
>>> x = da.random.standard_normal(10**9, chunks=10**7)  # doctest: +SKIP
>>> gpureduce.dask.sum(x).compute()  # doctest: +SKIP

`import gpureduce` alone does not import Dask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.array.utils import validate_axis

from gpureduce import _host, exact
from gpureduce.core import arrays, dtypes, groups, running
from gpureduce.core import digits as words_of
from gpureduce.core.accumulator import Accumulator
from gpureduce.core.checks import finite, one_of, shown
from gpureduce.core.moments import ELEMENT, RATIO
from gpureduce.core.summation import sum as _sum

__all__ = ["cumsum", "mean", "nanmean", "nanstd", "nansum", "nanvar", "norm", "std", "sum", "var"]

_STRATEGIES = ("exact", "cpu", "numpy", "fast")
_FEW = 64  # sums of a chunk: digits of fewer take no time

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
        As in dask.array.sum.
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
    how = {"axis": axis, "keepdims": keepdims, "dtype": result, "split_every": split_every}
    meta = _meta(x, axis, keepdims, result)
    is_exact = strategy == "exact" and dtypes.is_exact(result)
    if is_exact and not _are_whole(x, axis):
        return da.reduction(
            x,
            _partial,
            partial(_rounded, result=result),
            combine=_merged,
            concatenate=False,
            meta=meta,
            name="exact-sum",
            **how,
        )
    part = result if is_exact else dtypes.rounded_later(conversion).result
    chunk = partial(_sums, strategy=strategy, dtype=part)
    return da.reduction(x, chunk, partial(_total, result=result), meta=meta, name="sum", **how)


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
    return _statistic(x, words_of.MEAN, axis, dtype, keepdims, split_every)


def var(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    ddof: float = 0, split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The variance, with the arguments of dask.array.var and the bits of `gpureduce.exact.var`.

    A chunk that lacks elements of its variances becomes exact sums, 2,400 bytes for each variance.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.var(da.from_array([1e8, 1e8 + 1, 1e8 + 2], chunks=1)).compute())
    0.6666666666666666
    """
    return _statistic(x, words_of.VAR, axis, dtype, keepdims, split_every, ddof)


def std(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    ddof: float = 0, split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The standard deviation: the root of the unrounded variance, rounded once.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.std(da.from_array([1.0, 3.0, 5.0], chunks=2), ddof=1).compute())
    2.0
    """
    return _statistic(x, words_of.STD, axis, dtype, keepdims, split_every, ddof)


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
    numbers = da.where(da.isnan(x), x.dtype.type(0), x) if dtypes.is_float(x.dtype) else x
    return sum(numbers, axis, dtype, keepdims, split_every)


def nanmean(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The mean of the elements that are no nan.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.nanmean(da.from_array([1.0, float("nan")], chunks=1)).compute())
    1.0
    """
    return _statistic(x, words_of.MEAN, axis, dtype, keepdims, split_every, skips_nan=True)


def nanvar(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    ddof: float = 0, split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The variance of the elements that are no nan.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.nanvar(da.from_array([1.0, 3.0, float("nan")], chunks=1)).compute())
    1.0
    """
    return _statistic(x, words_of.VAR, axis, dtype, keepdims, split_every, ddof, skips_nan=True)


def nanstd(
    x: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False,
    ddof: float = 0, split_every: int | dict[int, int] | None = None,
) -> Any:  # fmt: skip
    """The standard deviation of the elements that are no nan.

    >>> import dask.array as da, gpureduce.dask
    >>> float(gpureduce.dask.nanstd(da.from_array([1.0, 3.0, float("nan")], chunks=1)).compute())
    1.0
    """
    return _statistic(x, words_of.STD, axis, dtype, keepdims, split_every, ddof, skips_nan=True)


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
        return _statistic(x, words_of.NORM, axis, None, keepdims, split_every)
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
        width = 1 if part.kind in "iu" else words_of.REAL * (1 + (part.kind == "c"))
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
    result = wanted if kind == words_of.MEAN else dtypes.part_of(wanted)
    skips_nan = skips_nan and dtypes.is_float(x.dtype)
    name, ddof = ("mean", "var", "std", "norm")[kind], finite("ddof", ddof)
    chunk: Any = partial(_digits_of, kind=kind, skips_nan=skips_nan)
    if kind == words_of.MEAN and not skips_nan:
        chunk = _partial
    last: Any = partial(_finished, kind=kind, ddof=ddof, result=result, skips_nan=skips_nan)
    if _are_whole(x, axis) and not skips_nan:
        how: dict[str, Any] = {"ddof": ddof} if kind in (words_of.VAR, words_of.STD) else {}
        if wanted != own:
            how["dtype"] = wanted
        chunk = partial(_made_of, function=name, how=how, sums_of=chunk, finished=last)
        last = _only
    return da.reduction(
        x, chunk, last, axis=axis, keepdims=keepdims, dtype=result, combine=_merged,
        split_every=split_every, meta=_meta(x, axis, keepdims, result), concatenate=False,
        name="exact-" + name,
    )  # fmt: skip


def _are_whole(x: Any, axis: Axis) -> bool:
    """Whether each chunk has all elements of its sums: then they are finished at once."""
    axes = validate_axis(axis, x.ndim) if axis is not None else range(x.ndim)
    return all(x.numblocks[i] == 1 for i in np.atleast_1d(axes))


def _meta(x: Any, axis: Axis, keepdims: bool, result: np.dtype[Any]) -> Any:
    """An array without elements, of the dimensions and the dtype of the sums."""
    reduced = 0 if keepdims else x.ndim if axis is None else np.size(axis)
    return np.empty((0,) * (x.ndim - reduced), result)


# The functions below run on workers. Dask calls them with `axis` as a tuple of numbers from 0 on.


def _digits(chunk: Any, axis: tuple[int, ...], keepdims: bool) -> words_of.Words:
    """The digits of a chunk's sums. The axes that are added up have size 1."""
    if arrays.lies_on_a_gpu(chunk):
        if len(axis) == chunk.ndim:
            total = Accumulator(_float(chunk.dtype)).add(chunk)
            return total.to_digits().reshape((1,) * chunk.ndim + (-1,))
        chunk = chunk.get()  # as CuPy copies to the host
    array = arrays.as_array(chunk)
    words = words_of.of_sums(array, axis)
    shape = (1 if i in axis else n for i, n in enumerate(array.shape))
    return words.reshape((*shape, words.shape[-1]))


def _chunk_digits(chunk: Any, axis: int, result: np.dtype[Any]) -> Any:
    return running.sum_digits(_on_host(chunk), axis, result)


def _chunk_entries(chunk: Any, before: Any = None, *, axis: int, result: np.dtype[Any]) -> Any:
    return running.continued(_on_host(chunk), axis, result, before)


def _on_host(chunk: Any) -> Any:
    return arrays.as_array(chunk.get() if arrays.lies_on_a_gpu(chunk) else chunk)


def _float(dtype: Any) -> Any:
    return np.float64 if dtype.kind in "biu" else dtype


def _partial(chunk: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """A chunk's sums: three floats and the number of elements, one after another, or digits.

    The floats add up to the sum without an error. They take less time than digits.
    """
    array = None if arrays.lies_on_a_gpu(chunk) else arrays.as_array(chunk)
    kept = [i for i in range(chunk.ndim) if i not in axis]
    if array is None or array.dtype.kind != "f" or math.prod(chunk.shape[i] for i in kept) < _FEW:
        return _digits(chunk, axis, keepdims)
    n, found = math.prod(array.shape[i] for i in axis), None
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if n and native.flags.c_contiguous and kept == [*range(len(kept))]:
        found = _three_floats(native.reshape(-1, 1), np.arange(0, native.size + 1, n), n)
    elif n:
        rows = native.transpose((*axis, *kept)).reshape(n, -1)
        found = _three_floats(rows, np.array([0, n]), n)
    if found is None:  # digits have the dtype that those of floats have
        return _digits(array.astype(np.float64), axis, keepdims)
    return found.reshape(4, *(1 if i in axis else size for i, size in enumerate(array.shape)))


def _three_floats(rows: Any, offsets: Any, n: Any) -> Any:
    """Three floats for the sum of each segment and column, and `n`; None if a sum is not exact."""
    found = np.empty((4, (len(offsets) - 1) * rows.shape[1]))
    _host.unrounded_segments(
        rows, None, offsets, len(offsets) - 1, dtypes.load_of(rows.dtype), ELEMENT, found
    )
    if not (found[3] == 0).all():  # the bound of the error
        return None
    found[3] = n
    return found


def _merged(found: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The sums of several chunks, in either form. The axes that are added up have size 1."""
    blocks = [*_blocks(found)]
    if all(one.dtype == np.float64 for one in blocks):
        floats = np.concatenate([one[:3] for one in blocks])
        n = np.sum([one[3] for one in blocks], axis=0)
        rows = floats.reshape(len(floats), -1)
        made = _three_floats(rows, np.array([0, len(rows)]), n.reshape(-1))
        if made is not None:
            return made.reshape(4, *floats.shape[1:])
    return np.sum([_as_digits(one) for one in blocks], axis=0, dtype=np.int64)


def _blocks(found: Any) -> Iterator[Any]:
    """The blocks of nested lists, or a single one."""
    if not isinstance(found, list):
        yield found
        return
    for one in found:
        yield from _blocks(one)


def _as_digits(block: Any) -> words_of.Words:
    """Digits of a block of sums in either form."""
    if block.dtype != np.float64:
        return block
    words = words_of.of_sums(block[:3], (0,))
    words_of.set_counts(words, block[3].astype(np.int64))
    return words


def _rounded(found: Any, axis: tuple[int, ...], keepdims: bool, *, result: np.dtype[Any]) -> Any:
    """Adds the last sums and rounds them."""
    total = _merged(found, axis, keepdims)
    if total.dtype == np.float64:
        sums = _sum(total[:3], "exact", result, axis=0, timing=False).value
    else:
        sums = words_of.in_dtype(total, result)
    return _only(sums, axis, keepdims)


def _digits_of(
    chunk: Any, axis: tuple[int, ...], keepdims: bool, *, kind: int, skips_nan: bool
) -> words_of.Words:
    """The digits of a chunk's sums, and of the sums of its squares after them."""
    array = _on_host(chunk)
    numbers = None
    if skips_nan:
        numbers = ~dtypes.quietly(np.isnan, array)
        array = np.where(numbers, array, array.dtype.type(0))
    added = array
    if kind == words_of.NORM:  # digits of squares have no infinities and nans
        added = np.where(np.isfinite(array), array.dtype.type(0), abs(array))
    words = _digits(added, axis, keepdims)
    if numbers is not None:
        words_of.set_counts(words, np.count_nonzero(numbers, axis=axis, keepdims=True))
    if kind == words_of.MEAN:
        return words
    squares = words_of.of_squares(array, axis)
    return np.concatenate([words, squares.reshape((*words.shape[:-1], -1))], axis=-1)


def _finished(
    sums: Any, axis: tuple[int, ...], keepdims: bool, *, kind: int, ddof: float,
    result: np.dtype[Any], skips_nan: bool,
) -> Any:  # fmt: skip
    """Adds the last sums, and rounds what is made of them."""
    total = _merged(sums, axis, keepdims)
    if total.dtype == np.float64 and result.kind == "f":
        found, unknown = _means(total, result)
        if not unknown:
            return _only(found, axis, keepdims)
    total = _as_digits(total)
    found = words_of.finished(total, kind, result, ddof)
    if skips_nan:
        found[words_of.counts(total) <= ddof] = np.nan
    return _only(found, axis, keepdims)


def _means(floats: Any, result: np.dtype[Any]) -> tuple[Any, int]:
    """Means of sums in floats, and how many of them have no proof of their rounding."""
    size = floats[0].size
    sums = np.zeros((1, 4, size + _host.FINISH_BATCH))
    sums[0, :3, :size] = floats[:3].reshape(3, size)
    found, unknown = np.empty(size, result), np.zeros(size, np.bool_)
    left = _host.finish_sums(RATIO, False, 1, 1, 0.0, 0, sums, floats[3].reshape(-1),
                             dtypes.load_of(result), found, unknown)  # fmt: skip
    return found.reshape(floats.shape[1:]), left


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
    (made,) = _blocks(found)
    return made if keepdims else np.squeeze(made, axis)[()]


def _sums(
    chunk: Any, axis: tuple[int, ...], keepdims: bool, *, strategy: str, dtype: np.dtype[Any]
) -> Any:
    """The rounded sums of a chunk, as a NumPy array."""
    strategy = "auto" if dtype.kind in "iu" else strategy
    found = _sum(chunk, strategy, dtype, timing=False, axis=axis, keepdims=True).value
    return found.get() if arrays.lies_on_a_gpu(found) else found


def _total(sums: Any, axis: tuple[int, ...], keepdims: bool, *, result: np.dtype[Any]) -> Any:
    """Adds the sums of chunks."""
    total = dtypes.quietly(np.sum, sums, axis=axis, keepdims=keepdims, dtype=sums.dtype)
    return dtypes.quietly(np.asarray(total).astype, result)[()]
