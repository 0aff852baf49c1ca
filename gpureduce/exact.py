"""Sums and what is made of them, each rounded once: ``from gpureduce import exact``.

The functions have the arguments and the result dtypes of NumPy's, and return values without a
timing. Each result is defined as a real number, and is the float nearest to it, ties to even. So it
does not depend on the order of the elements, on the memory layout or on the number of threads.

Arrays may lie on a GPU. There, products are of real numbers. Results lie on the same GPU. Nothing
waits for them; calls by segment and of given windows wait for a check of their ids or offsets.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import (
    arrays,
    axis_on_device,
    device_results,
    dtypes,
    groups,
    ranges_on_device,
    rolling,
    running,
    running_on_device,
    segments,
    summation,
)
from gpureduce.core.checks import finite, shown
from gpureduce.core.moments import (
    COMPLEX,
    CONJUGATED,
    DEVIATION,
    ELEMENT,
    MAGNITUDE,
    MEAN,
    PRODUCT,
    RATIO,
    SQUARE,
    STD,
    SUM,
    VAR,
    WEIGHTED,
    Finish,
    Result,
    Sum,
    in_floats,
    results,
)
from gpureduce.core.statistics import (
    Axis,
    Call,
    Rows,
    along_axes,
    given_means,
    of_segments,
    products_of,
    terms_of,
)

__all__ = [
    "MomentsResult",
    "average",
    "count_nonzero",
    "cumsum",
    "dot",
    "mean",
    "moments",
    "nancumsum",
    "nanmean",
    "nanstd",
    "nansum",
    "nanvar",
    "norm",
    "rolling_mean",
    "rolling_std",
    "rolling_sum",
    "rolling_var",
    "segment_cumsum",
    "segment_mean",
    "segment_std",
    "segment_sum",
    "segment_var",
    "std",
    "sum",
    "var",
    "vecdot",
]

_NORM = {1: Result(RATIO, False, MAGNITUDE), 2: Result(RATIO, True, SQUARE)}
_DOT = Result(RATIO, False, PRODUCT)
_AVERAGES_ARE_REAL = "average takes real numbers and real weights, not complex ones"
_DOT_ON_GPU = Result(RATIO, False, COMPLEX)
_VECDOT_ON_GPU = Result(RATIO, False, CONJUGATED)
_AVERAGE = axis_on_device.Made(RATIO, False, WEIGHTED, axis_on_device.OVER_WEIGHTS)


@functools.lru_cache(64)
def _made_of(how: Result, ddof: float) -> axis_on_device.Made:
    term = max(how.first, how.second)
    return axis_on_device.Made(how.kind, how.root, term, how.over_n, finite("ddof", ddof))


def _made(
    a: Any, how: Result, axis: Any, dtype: Any = None, out: Any = None,
    keepdims: Any = False, ddof: float = 0, *, where: Any = True, mean: Any = None,
    other: Any = None, skip_nan: bool = False,
) -> Any:  # fmt: skip
    """What is made of an array on a GPU; None of other arrays."""
    if type(a) is np.ndarray:
        return None
    is_plain = where is True and mean is None and type(ddof) in (int, float) and not skip_nan
    if is_plain and type(keepdims) is bool:
        made = _made_of(how, ddof)
        found = axis_on_device.by_one_call(
            a, "exact", dtype, False, axis, keepdims, out, made, other
        )
        if found is not None:
            return found.value
    if not arrays.lies_on_a_gpu(a):
        return None
    made = _made_of(how, finite("ddof", ddof))._replace(least=1)
    if skip_nan:
        made = made._replace(least=max(1, math.floor(made.ddof) + 1))
        where = axis_on_device.numbers_in(a, where)
    if mean is not None:
        made = made._replace(kind=DEVIATION)
    if mean is not None and not arrays.lies_on_a_gpu(mean):
        if np.ndim(mean):
            raise TypeError("mean must be a number, or an array on the same GPU as the data")
        made, mean = made._replace(mean=float(given_means(mean, ())[0])), None
    found = axis_on_device.made_gpu(
        a, made, axis, dtype, out, keepdims, other, where=where, mean=mean
    )
    return found if where is True else device_results.awaited(found, type(a))


class MomentsResult(NamedTuple):
    """The number of elements, their mean and their variance."""

    count: Any
    mean: Any
    var: Any


def sum(
    a: npt.ArrayLike, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    keepdims: bool = False, initial: Any = 0, where: Any = True,
) -> Any:  # fmt: skip
    """The sum of the elements: that of `gpureduce.sum`, without its timing."""
    return summation.sum(
        a, "auto", dtype, axis=axis, keepdims=keepdims, initial=initial, where=where, out=out,
        timing=False,
    ).value  # fmt: skip


def nansum(
    a: npt.ArrayLike, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    keepdims: bool = False, initial: Any = 0, where: Any = True,
) -> Any:  # fmt: skip
    """The sum of the elements that are no nan."""
    if arrays.lies_on_a_gpu(a):
        where = axis_on_device.numbers_in(a, where)
        found = sum(a, axis, dtype, out, keepdims, initial, where)
        return device_results.awaited(found, type(a))
    call = Call(a, axis, keepdims, where, skip_nan=True)
    mask = True if call.mask is None else call.mask
    return sum(call.array, axis, dtype, out, keepdims, initial, mask)


def count_nonzero(a: npt.ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The number of elements that are not 0. A nan is not 0."""
    if arrays.lies_on_a_gpu(a):
        wide = {"float32": "float64", "complex64": "complex128"}.get(str(getattr(a, "dtype", "")))
        if wide and device_results.root_of(type(a)) == "cupy":  # which takes subnormals for 0
            a = sum(a, (), wide)
        return _counted(axis_on_device.compared(a, a != 0), axis, keepdims)
    return np.count_nonzero(arrays.as_array(a), axis=axis, keepdims=keepdims)


def mean(
    a: npt.ArrayLike, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    keepdims: bool = False, *, where: Any = True,
) -> Any:  # fmt: skip
    """The mean: the sum of the elements over their number, rounded once."""
    if dtype is None and out is None and where is True:  # as _along, without its call
        found = _host.finish_plainly(a, axis, keepdims, MEAN, 0)
        if found is not None:
            return found
    return _along(MEAN, a, axis, dtype, out, keepdims, where)


def nanmean(
    a: npt.ArrayLike, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    keepdims: bool = False, *, where: Any = True,
) -> Any:  # fmt: skip
    """The mean of the elements that are no nan."""
    return _along(MEAN, a, axis, dtype, out, keepdims, where, skip_nan=True)


def average(
    a: npt.ArrayLike, axis: Axis = None, weights: npt.ArrayLike | None = None,
    returned: bool = False, *, keepdims: bool = False,
) -> Any:  # fmt: skip
    """The weighted mean: sum(w x) over sum(w), rounded once. `returned`: also sum(w).

    Where the weights add up to 0, it raises ZeroDivisionError; for an array on a GPU, for which
    nothing waits, that result is nan or infinite.
    """
    if arrays.lies_on_a_gpu(a):
        return _average_gpu(a, axis, weights, returned, keepdims)
    if weights is None:
        call = Call(a, axis, keepdims, True)
        found = _along(MEAN, a, axis, None, None, keepdims, True)
        n = call.counts().reshape(call.shape)
        scale = n.astype(np.result_type(found)) if n.ndim else np.result_type(found).type(n[()])
        return (found, scale) if returned else found
    call = Call(a, axis, keepdims, True)
    w = Call(weights, None, False, True).array
    w = axis_on_device.spread_weights(w, call.array.shape, axis)
    if call.is_complex or w.dtype.kind == "c":
        raise TypeError(_AVERAGES_ARE_REAL)
    both = np.result_type(call.array.dtype, w.dtype, np.float64 if (
        call.array.dtype.kind in "biu") else call.array.dtype)  # fmt: skip
    above = terms_of(call.array, w, call.axes, both)
    below = [Sum(ELEMENT, piece, call.axes) for piece in in_floats(w)]
    n = call.counts()
    scale = call.stored(results(Finish(RATIO), below, (), np.ones_like(n), both), None)
    if (np.asarray(scale) == 0).any():
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    found = call.stored(results(Finish(RATIO), above, below, n, both), None)
    return (found, scale) if returned else found


def _average_gpu(a: Any, axis: Axis, weights: Any, returned: bool, keepdims: bool) -> Any:
    shape = tuple(a.shape)
    if weights is None:
        found = mean(a, axis, keepdims=keepdims)
        if not returned:
            return found
        axes = groups.reduced_axes(axis, len(shape))
        n = math.prod(shape[i] for i in axes)
        return found, axis_on_device.library_of(found).full_like(found, n)
    if not arrays.lies_on_a_gpu(weights):
        raise ValueError("weights must lie on the array's GPU: copy them there")
    weights = axis_on_device.spread_weights(weights, shape, axis)
    if any("complex" in str(getattr(one, "dtype", "")) for one in (a, weights)):
        raise TypeError(_AVERAGES_ARE_REAL)
    _check_alike(a, weights)
    found = axis_on_device.made_gpu(a, _AVERAGE, axis, keepdims=keepdims, other=weights)
    if not returned:
        return found
    return found, axis_on_device.made_gpu(weights, _made_of(SUM, 0), axis, keepdims=keepdims)


def _counted(mask: Any, axis: Axis, keepdims: bool) -> Any:
    """How many elements of a mask on a GPU are True."""
    found = summation.sum(mask, axis=axis, keepdims=keepdims, result="device", timing=False)
    return device_results.awaited(found.value, type(mask))


def _along(
    how: Result, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any, where: Any,
    ddof: Any = 0, mean: Any = None, skip_nan: bool = False,
) -> Any:  # fmt: skip
    """Means, variances or their roots."""
    if dtype is None and out is None and mean is None and where is True and not skip_nan:
        found = _host.finish_plainly(a, axis, keepdims, how, ddof)
        if found is not None:
            return found
    more = {"where": where, "mean": mean, "skip_nan": skip_nan}
    found = _made(a, how, axis, dtype, out, keepdims, ddof, **more)
    if found is not None:
        return found
    call = Call(a, axis, keepdims, where, skip_nan=skip_nan)
    return along_axes(call, how, dtype, out, ddof, mean)


def var(
    a: npt.ArrayLike, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    ddof: float = 0, keepdims: bool = False, *, where: Any = True, mean: Any = None,
) -> Any:  # fmt: skip
    """The variance, rounded once: ``(n sum |x|^2 - |sum x|^2) / (n (n - ddof))``.

    With `mean`, a real number or an array of them, it is ``sum |x - mean|^2 / (n - ddof)``.
    """
    return _along(VAR, a, axis, dtype, out, keepdims, where, ddof, mean)


def std(
    a: npt.ArrayLike, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    ddof: float = 0, keepdims: bool = False, *, where: Any = True, mean: Any = None,
) -> Any:  # fmt: skip
    """The standard deviation: the root of the unrounded variance, rounded once."""
    return _along(STD, a, axis, dtype, out, keepdims, where, ddof, mean)


def nanvar(
    a: npt.ArrayLike, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    ddof: float = 0, keepdims: bool = False, *, where: Any = True, mean: Any = None,
) -> Any:  # fmt: skip
    """The variance of the elements that are no nan."""
    return _along(VAR, a, axis, dtype, out, keepdims, where, ddof, mean, skip_nan=True)


def nanstd(
    a: npt.ArrayLike, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    ddof: float = 0, keepdims: bool = False, *, where: Any = True, mean: Any = None,
) -> Any:  # fmt: skip
    """The standard deviation of the elements that are no nan."""
    return _along(STD, a, axis, dtype, out, keepdims, where, ddof, mean, skip_nan=True)


def moments(
    a: npt.ArrayLike, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False,
    where: Any = True,
) -> MomentsResult:  # fmt: skip
    """The number of elements, their mean and their variance."""
    view: Any = a
    if not arrays.lies_on_a_gpu(a):
        call = Call(a, axis, keepdims, where)
        n = call.stored(call.counts().astype(np.int64), None)
    elif where is True:
        n = math.prod(view.shape[i] for i in groups.reduced_axes(axis, len(view.shape)))
    else:
        n = _counted(axis_on_device.broadcast(where, view.shape, "where"), axis, keepdims)
    mean = _along(MEAN, a, axis, None, None, keepdims, where)
    return MomentsResult(n, mean, _along(VAR, a, axis, None, None, keepdims, where, ddof))


def segment_sum(
    values: npt.ArrayLike, segment_ids: npt.ArrayLike | None = None, *,
    offsets: npt.ArrayLike | None = None, num_segments: int | None = None,
    dtype: npt.DTypeLike | None = None, initial: Any = None, out: Any = None,
) -> Any:  # fmt: skip
    """The sum of each segment: that of `gpureduce.segment_sum`, without its timing."""
    return segments.segment_sum(
        values, segment_ids, offsets=offsets, num_segments=num_segments, dtype=dtype,
        initial=initial, out=out, timing=False,
    ).value  # fmt: skip


def segment_mean(
    values: npt.ArrayLike, segment_ids: npt.ArrayLike | None = None, *,
    offsets: npt.ArrayLike | None = None, num_segments: int | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Any:  # fmt: skip
    """The mean of each segment. That of a segment without elements is nan."""
    return _by_segment(MEAN, values, segment_ids, offsets, num_segments, dtype)


def _by_segment(
    how: Result, values: Any, ids: Any, offsets: Any, size: Any, dtype: Any, ddof: Any = 0
) -> Any:
    if arrays.lies_on_a_gpu(values):
        made = _made_of(how, finite("ddof", ddof))
        return ranges_on_device.by_segment(values, ids, offsets, size, dtype, made)
    return of_segments(Rows(values, ids, offsets, size, dtype), how, ddof)


def segment_var(
    values: npt.ArrayLike, segment_ids: npt.ArrayLike | None = None, *,
    offsets: npt.ArrayLike | None = None, num_segments: int | None = None,
    dtype: npt.DTypeLike | None = None, ddof: float = 0,
) -> Any:  # fmt: skip
    """The variance of each segment. That of a segment without elements is nan."""
    return _by_segment(VAR, values, segment_ids, offsets, num_segments, dtype, ddof)


def segment_std(
    values: npt.ArrayLike, segment_ids: npt.ArrayLike | None = None, *,
    offsets: npt.ArrayLike | None = None, num_segments: int | None = None,
    dtype: npt.DTypeLike | None = None, ddof: float = 0,
) -> Any:  # fmt: skip
    """The standard deviation of each segment. That of a segment without elements is nan."""
    return _by_segment(STD, values, segment_ids, offsets, num_segments, dtype, ddof)


def cumsum(
    x: npt.ArrayLike, axis: int | None = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    *, reverse: bool = False, include_initial: bool = False,
) -> Any:  # fmt: skip
    """The sums of the elements up to each, each rounded once. Without an axis: of all, flat.

    `reverse`: the sums from each element to the last. `include_initial`: a 0 before the first sum,
    as in the array API. The sums of an array on a GPU stay there.
    """
    if arrays.lies_on_a_gpu(x):
        return running_on_device.cumsum(x, axis, dtype, out, reverse, include_initial)
    return running.cumsum(x, axis, dtype, out, reverse, include_initial)


def nancumsum(
    x: npt.ArrayLike, axis: int | None = None, dtype: npt.DTypeLike | None = None, out: Any = None,
    *, reverse: bool = False, include_initial: bool = False,
) -> Any:  # fmt: skip
    """The same, in which a nan counts as 0."""
    if arrays.lies_on_a_gpu(x):
        numbers = axis_on_device.library_of(x).where(axis_on_device.numbers_in(x), x, 0)
        found = running_on_device.cumsum(numbers, axis, dtype, out, reverse, include_initial)
        return device_results.awaited(found, type(x))
    return running.cumsum(x, axis, dtype, out, reverse, include_initial, skip_nan=True)


def segment_cumsum(
    values: npt.ArrayLike, segment_ids: npt.ArrayLike | None = None, *,
    offsets: npt.ArrayLike | None = None, num_segments: int | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Any:  # fmt: skip
    """Entry i is the sum of the elements up to i that are of its segment, rounded once."""
    if arrays.lies_on_a_gpu(values):
        return ranges_on_device.cumsum_by_segment(values, segment_ids, offsets, num_segments, dtype)
    given = groups.Segments.of(segment_ids, offsets, num_segments)
    return running.by_segment(values, given, dtype)


def _rolled(
    how: Result, x: Any, window: Any, axis: int, min_periods: Any, center: Any, ddof: float = 0
) -> Any:
    if arrays.lies_on_a_gpu(x):
        made = _made_of(how, finite("ddof", ddof))
        return ranges_on_device.rolled(x, window, axis, min_periods, center, made)
    return rolling.rolled(x, window, axis, min_periods, center, how, ddof)


def rolling_sum(
    x: npt.ArrayLike, window: Any, axis: int = -1, *, min_periods: int | None = None,
    center: bool = False,
) -> Any:  # fmt: skip
    """The sums of windows of elements, each rounded once.

    `window` is a number of elements, of which the last is that of the entry, or, with `center`,
    the middle one is. Or ``(starts, ends)``: window k has the elements ``starts[k]`` to
    ``ends[k] - 1``; the windows may be in any order. A nan is left out. An entry is nan if fewer
    than `min_periods` numbers are left: by default, if the window is not full, or has none.
    """
    return _rolled(SUM, x, window, axis, min_periods, center)


def rolling_mean(
    x: npt.ArrayLike, window: Any, axis: int = -1, *, min_periods: int | None = None,
    center: bool = False,
) -> Any:  # fmt: skip
    """The means of windows, as `rolling_sum` takes them."""
    return _rolled(MEAN, x, window, axis, min_periods, center)


def rolling_var(
    x: npt.ArrayLike, window: Any, axis: int = -1, *, min_periods: int | None = None,
    center: bool = False, ddof: float = 1,
) -> Any:  # fmt: skip
    """The variances of windows, as `rolling_sum` takes them; nan where `ddof` numbers are left."""
    return _rolled(VAR, x, window, axis, min_periods, center, ddof)


def rolling_std(
    x: npt.ArrayLike, window: Any, axis: int = -1, *, min_periods: int | None = None,
    center: bool = False, ddof: float = 1,
) -> Any:  # fmt: skip
    """The standard deviations of windows, as `rolling_sum` takes them."""
    return _rolled(STD, x, window, axis, min_periods, center, ddof)


def norm(x: npt.ArrayLike, ord: float = 2, axis: Axis = None, keepdims: bool = False) -> Any:
    """The vector norm of order 1, 2 or inf, as of numpy.linalg.vector_norm, rounded once."""
    if not isinstance(ord, (int, float, np.integer, np.floating)) or ord not in (1, 2, np.inf):
        raise ValueError(f"ord must be 1, 2 or inf, not {shown(ord)}")
    ord = float(ord)
    if ord != np.inf:
        found = _host.finish_plainly(x, axis, keepdims, _NORM[int(ord)], -1)
        if found is None:
            found = _made(x, _NORM[int(ord)], axis, keepdims=keepdims)
        if found is not None:
            return found
    elif arrays.lies_on_a_gpu(x):
        return _largest(x, axis, keepdims)
    call = Call(x, axis, keepdims, True)
    part = dtypes.part_of(call.result(None))
    if ord == 1 and call.is_complex:
        raise TypeError("the norm of order 1 of complex numbers is a sum of roots: use ord=2")
    if ord != np.inf:
        how, n = _NORM[int(ord)], np.ones_like(call.counts())
        sums = [one for each in call.parts() for one in call.of(how.first, each)]
        return call.stored(results(Finish(RATIO, how.root), sums, (), n, part), None)
    sizes = np.abs(call.array.astype(part)) if not call.is_complex else norm(
        np.stack(call.parts(), axis=-1), axis=-1)  # fmt: skip
    return dtypes.quietly(np.max, sizes, axis=call.axes, keepdims=keepdims, initial=0)


def _largest(x: Any, axis: Axis, keepdims: bool) -> Any:
    """The largest |x|, by the array's library, which does not round it."""
    axes = groups.reduced_axes(axis, len(x.shape))
    if "float" not in str(x.dtype):
        raise TypeError(f"on a GPU, the norm of order inf takes floats, not {x.dtype}")
    if any(x.shape[i] == 0 for i in axes):
        return norm(x, 1, axis, keepdims)  # zeros
    library = axis_on_device.library_of(x)
    found = library.amax(abs(x), axis=axes, keepdims=keepdims)
    return library.where(found == found, found, math.nan)  # the quiet nan, as on processors


def _product(a: Any, b: Any, axis: int, how: Result) -> Any:
    """The sums of the products of two arrays on a GPU; None of other arrays."""
    if type(a) is np.ndarray or not arrays.lies_on_a_gpu(a):
        return None
    _check_alike(a, b)
    return _made(a, how, axis, other=b)


def _check_alike(a: Any, b: Any) -> None:
    kinds = [
        (type(one), getattr(one, "shape", None), str(getattr(one, "dtype", ""))) for one in (a, b)
    ]
    if kinds[0] != kinds[1]:
        first, second = (
            f"a {kind.__name__} of {dtype} of shape {shape}" for kind, shape, dtype in kinds
        )
        raise TypeError(
            f"on a GPU, both arrays must have one type, dtype and shape, not {first} and {second}"
        )


def dot(a: npt.ArrayLike, b: npt.ArrayLike) -> Any:
    """The sum of the products of two one-dimensional arrays, rounded once."""
    shape = getattr(a, "shape", None)
    if isinstance(shape, tuple) and len(shape) == 1:
        found = _host.finish_plainly(a, 0, False, _DOT, -1, b)
        found = _product(a, b, 0, _DOT_ON_GPU) if found is None else found
        if found is not None:
            return found
    shapes = [getattr(one, "shape", None) for one in (a, b)]
    if not any(s is None or len(s) != 1 for s in shapes) or not arrays.lies_on_a_gpu(a):
        x, y = (arrays.as_array(one)[...] for one in (a, b))
        shapes = [x.shape, y.shape]
        if len(x.shape) == 1 and x.shape == y.shape:
            return products_of(x, y, conjugates=False)
    raise ValueError(
        f"dot takes two one-dimensional arrays of equal length, not of shapes {shapes[0]} and "
        f"{shapes[1]}: use vecdot for more dimensions"
    )


def vecdot(x1: npt.ArrayLike, x2: npt.ArrayLike, axis: int = -1) -> Any:
    """The sums of the products conj(x1) * x2 along an axis, each rounded once."""
    if isinstance(axis, np.integer):
        axis = int(axis)
    if type(axis) is int:
        found = _host.finish_plainly(x1, axis, False, _DOT, -1, x2)
        found = _product(x1, x2, axis, _VECDOT_ON_GPU) if found is None else found
        if found is not None:
            return found
    both = [arrays.as_array(one) for one in (x1, x2)]
    x, y = (np.moveaxis(one, groups.one_axis(axis, one.ndim), -1) for one in both)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"along the axis, x1 has {x.shape[-1]} elements, but x2 {y.shape[-1]}")
    return products_of(*np.broadcast_arrays(x, y), conjugates=True)
