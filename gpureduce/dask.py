"""Sums and means of Dask arrays: the same bits for any chunks, workers and `split_every`.

>>> import gpureduce.dask, dask.array as da  # doctest: +SKIP
>>> x = da.random.standard_normal(10**9, chunks=10**7)  # doctest: +SKIP
>>> gpureduce.dask.sum(x).compute()  # doctest: +SKIP

`import gpureduce` alone does not import Dask.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt

from gpureduce.core import arrays, dtypes
from gpureduce.core import digits as words_of
from gpureduce.core.accumulator import Accumulator
from gpureduce.core.checks import one_of
from gpureduce.core.summation import sum as _sum

__all__ = ["mean", "sum"]

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
        As in dask.array.sum.
    strategy
        ``"exact"`` rounds each sum of floats once: it has the bits of `gpureduce.sum` of the whole
        array. A chunk then becomes an array of digits, 600 bytes for each sum along its axes, which
        are added up in Dask's tree. ``"cpu"``, ``"numpy"`` and ``"fast"`` round the sum of each
        chunk, as dask.array.sum does. Integers wrap around as in NumPy by any strategy.

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
    if strategy == "exact" and dtypes.is_exact(result):
        return da.reduction(
            x, _digits, _Rounded(result), combine=_added, meta=meta, name="exact-sum", **how
        )
    partial = dtypes.rounded_later(conversion).result
    chunk = _Sums(strategy, partial)
    return da.reduction(x, chunk, _Total(result), meta=meta, name="sum", **how)


def mean(
    x: Any,
    axis: Axis = None,
    dtype: npt.DTypeLike | None = None,
    keepdims: bool = False,
    split_every: int | dict[int, int] | None = None,
) -> Any:
    """The mean of a Dask array, or of its elements along some axes, as another Dask array.

    The exact sum is rounded to float64 and divided by the number of elements; the result does not
    depend on chunks, workers and `split_every`. The mean of no elements is nan.

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
    x = da.asanyarray(x)
    wanted = np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype.newbyteorder("=")
    result = wanted if dtype is None else dtypes.named(dtype).newbyteorder("=")
    if not dtypes.is_exact(result):
        raise TypeError(f"a mean is a float or a complex number, not {result}")
    dtypes.convert(x.dtype, result)  # raises if it would lose something
    return da.reduction(
        x, _digits, _Mean(result), axis=axis, keepdims=keepdims, dtype=result, combine=_added,
        split_every=split_every, meta=_meta(x, axis, keepdims, result), name="exact-mean",
    )  # fmt: skip


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


def _float(dtype: Any) -> Any:
    return np.float64 if dtype.kind in "biu" else dtype


def _added(words: words_of.Words, axis: tuple[int, ...], keepdims: bool) -> words_of.Words:
    """The sums of digits; the last axis is not among those that Dask knows."""
    return words.sum(axis=axis, keepdims=keepdims, dtype=np.int64)


class _Rounded:
    """Adds the last digits and rounds the sums."""

    def __init__(self, result: np.dtype[Any]) -> None:
        self.result = result

    def __call__(self, words: words_of.Words, axis: tuple[int, ...], keepdims: bool) -> Any:
        total = np.ascontiguousarray(_added(words, axis, keepdims))
        return words_of.in_dtype(total, self.result)[()]


class _Mean(_Rounded):
    """Adds the last digits, rounds the sums and divides them."""

    def __call__(self, words: words_of.Words, axis: tuple[int, ...], keepdims: bool) -> Any:
        total = np.ascontiguousarray(_added(words, axis, keepdims))
        wide = np.dtype(np.complex128 if self.result.kind == "c" else np.float64)
        sums, count = words_of.in_dtype(total, wide), words_of.counts(total)
        return dtypes.quietly(lambda: np.asarray(sums / count).astype(self.result)[()])


class _Sums:
    """The sums of a chunk by another strategy, as a NumPy array."""

    def __init__(self, strategy: str, dtype: np.dtype[Any]) -> None:
        self.strategy, self.dtype = strategy, dtype

    def __call__(self, chunk: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        strategy = "auto" if self.dtype.kind in "iu" else self.strategy
        found = _sum(chunk, strategy, self.dtype, timing=False, axis=axis, keepdims=True).value
        return found.get() if arrays.lies_on_a_gpu(found) else found


class _Total:
    """Adds the sums of chunks."""

    def __init__(self, result: np.dtype[Any]) -> None:
        self.result = result

    def __call__(self, sums: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        total = dtypes.quietly(np.sum, sums, axis=axis, keepdims=keepdims, dtype=sums.dtype)
        return dtypes.quietly(np.asarray(total).astype, self.result)[()]
