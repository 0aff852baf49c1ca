"""Arguments and results that the functions of gpureduce.exact share."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce.core import arrays, dtypes, groups, segments
from gpureduce.core.checks import finite
from gpureduce.core.dtypes import Array
from gpureduce.core.moments import (
    DEVIATION,
    ELEMENT,
    MAGNITUDE,
    PRODUCT,
    RATIO,
    SQUARE,
    VARIANCE,
    Finish,
    Result,
    Sum,
    by_segment,
    in_floats,
    results,
)

Axis = int | tuple[int, ...] | None


class Call:
    """An array, its axes and mask, and where results go."""

    def __init__(
        self, a: object, axis: Axis, keepdims: object, where: object, *, skip_nan: bool = False
    ) -> None:
        self.array = arrays.as_array(a)[...]  # other threads may change the shape of `a`
        kind = self.array.dtype.kind
        if kind not in "biufc" and not dtypes.is_bfloat16(self.array.dtype):
            raise dtypes.no_sum_of(str(self.array.dtype))
        dtypes.convert(self.array.dtype, None)  # refuses dtypes that have no sums
        self.axes = groups.reduced_axes(axis, self.array.ndim)
        self.mask = groups.checked_mask(where, self.array.shape)
        self.skips_nan = skip_nan and dtypes.is_float(self.array.dtype)
        missing: Any = self.skips_nan and dtypes.quietly(np.isnan, self.array)
        if self.skips_nan and missing.any():
            self.mask = ~missing if self.mask is None else self.mask & ~missing
        self.shape = groups.shape_of_result(self.array.shape, self.axes, keepdims)
        self.is_complex = kind == "c"

    def counts(self) -> Array:
        """The number of elements of each result, flat."""
        size = int(np.prod(self.shape, dtype=np.int64))
        if self.mask is None:
            each = int(np.prod([self.array.shape[i] for i in self.axes], dtype=np.int64))
            return np.full(size, each, np.float64)
        counted: Array = np.count_nonzero(self.mask, axis=self.axes)
        return np.asarray(counted, np.float64).reshape(-1)

    def of(self, term: int, array: Array | None = None) -> list[Sum]:
        """The sums of terms of a real array, by default this one."""
        pieces = in_floats(self.array if array is None else array)
        if len(pieces) == 1 or term == ELEMENT:
            return [Sum(term, piece, self.axes, self.mask) for piece in pieces]
        high, low = pieces[1], pieces[0]
        if term == MAGNITUDE:
            sign = np.where(high < 0, -1.0, 1.0)
            return [Sum(ELEMENT, piece * sign, self.axes, self.mask) for piece in pieces]
        masked = [p if self.mask is None else np.where(self.mask, p, 0.0) for p in (high, low)]
        high, low = masked
        pairs = ((high, high), (2 * high, low), (low, low))
        return [Sum(PRODUCT, one, self.axes, other) for one, other in pairs]

    def parts(self) -> tuple[Array, ...]:
        """The real array, or the real and the imaginary part."""
        return (self.array.real, self.array.imag) if self.is_complex else (self.array,)

    def result(self, dtype: npt.DTypeLike | None) -> np.dtype[Any]:
        """The dtype of means: of floats their own, of integers float64, or the one asked for."""
        own = self.array.dtype.newbyteorder("=")
        found = own if own.kind not in "biu" else np.dtype(np.float64)
        if dtype is None:
            return found
        wanted = dtypes.rounded_to(dtype)
        if (found.kind == "c") and wanted.kind != "c":
            raise TypeError(f"dtype={wanted} would lose the imaginary parts of {found}")
        return wanted

    def stored(self, flat: Array, out: object) -> Any:
        """The results in their shape: in `out`, or as an array, or a scalar."""
        found = flat.reshape(self.shape)
        if out is None:
            return found if found.ndim else found[()]
        to = groups.checked_out(out, self.array, self.shape, flat.dtype)
        to[...] = found
        return out


def given_means(mean: object, shape: tuple[int, ...]) -> Array:
    """The given means of all groups, flat, as float64. Raises if float64 cannot hold one."""
    found = arrays.viewed(mean)
    if found.dtype.kind not in "biuf" and not dtypes.is_bfloat16(found.dtype):
        raise TypeError(f"mean must be a real number or an array of them, not {found.dtype}")
    dtypes.convert(found.dtype, None)
    pieces = in_floats(found)
    if len(pieces) > 1:
        raise ValueError("mean must be a number that float64 holds, not an integer beyond 2^53")
    try:
        return np.broadcast_to(pieces[0].astype(np.float64), shape).reshape(-1)
    except ValueError:
        raise ValueError(
            f"mean has the shape {found.shape}, which does not broadcast to {shape}"
        ) from None


def joined(parts: list[Array], result: np.dtype[Any]) -> Array:
    """Complex numbers from real and imaginary parts, or the only part of real ones."""
    if result.kind != "c":
        return parts[0]
    joined = np.zeros((parts[0].size, 2), parts[0].dtype)
    for i, part in enumerate(parts):
        joined[:, i] = part
    return joined.view(result).reshape(-1)


def terms_of(
    x: Array, y: Array, axes: tuple[int, ...], part: np.dtype[Any], sign: int = 1
) -> list[Sum]:
    """The sums of the products of two real arrays of one shape."""
    first, second = ([p.astype(part, copy=False) for p in in_floats(of)] for of in (x, y))
    if len(first) != len(second):  # inf times a piece that is 0 would be nan
        first, second = _whole_beside(first, second, x), _whole_beside(second, first, y)
    pairs = itertools.product(first, second)
    return [Sum(PRODUCT, one if sign > 0 else -one, axes, other) for one, other in pairs]


def _whole_beside(pieces: list[Array], other: list[Array], whole: Array) -> list[Array]:
    """The pieces of integers. Where `other` is inf or nan, each piece is the whole integer."""
    if len(pieces) == 1 or np.isfinite(other[0]).all():
        return pieces
    low, high = pieces
    rounded = whole.astype(low.dtype)
    return [
        np.where(np.isfinite(other[0]), low, rounded),
        np.where(np.isfinite(other[0]), high, rounded),
    ]


def _real(call: Call, dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    if dtype is None:
        return dtypes.part_of(call.result(None))
    wanted = dtypes.rounded_to(dtype)
    if wanted.kind == "c":
        raise TypeError(f"variances are real numbers: dtype must be a real dtype, not {wanted}")
    return wanted


_TOO_FEW = {RATIO: "Mean of empty slice", VARIANCE: "Degrees of freedom <= 0 for slice"}


def along_axes(
    call: Call, how: Result, dtype: npt.DTypeLike | None, out: object, ddof: float, mean: object
) -> Any:
    """Means, variances or their roots."""
    found, few = _along_axes(call, how, dtype, ddof, mean)
    if few.any():
        warnings.warn(_TOO_FEW[how.kind], RuntimeWarning, stacklevel=4)
    return call.stored(found, out)


def _along_axes(
    call: Call, how: Result, dtype: npt.DTypeLike | None, ddof: float, mean: object = None
) -> tuple[Array, Array]:
    """The results of all groups, flat, and a mask of the groups with too few elements."""
    n, ddof = call.counts(), finite("ddof", ddof)
    if how.kind == RATIO:
        result = call.result(dtype)
        part = dtypes.part_of(result)
        parts = [results(Finish(RATIO), call.of(ELEMENT, x), (), n, part) for x in call.parts()]
        return joined(parts, result), n == 0
    part, root = _real(call, dtype), how.root
    squares = [one for each in call.parts() for one in call.of(SQUARE, each)]
    if mean is None:
        sums = [one for each in call.parts() for one in call.of(ELEMENT, each)]
        finish = Finish(VARIANCE, root, ddof, len(call.parts()))
        found = results(finish, sums, squares, n, part)
    else:
        if call.is_complex:
            raise TypeError("mean can be passed for real arrays only, not for complex ones")
        given = given_means(mean, groups.shape_of_result(call.array.shape, call.axes, True))
        finish = Finish(DEVIATION, root, ddof)
        found = results(finish, call.of(ELEMENT), squares, n, part, given)
    few = n <= ddof
    if call.skips_nan:
        found[few] = np.nan
    return found, few


class Rows:
    """The values, the groups and the result dtypes of a call by segment."""

    def __init__(
        self, values: object, ids: object, offsets: object, size: object, dtype: object,
        mask: Array | None = None,
    ) -> None:  # fmt: skip
        """`mask`: which values count. All other values must be 0."""
        given = groups.Segments.of(ids, offsets, size)
        groups.check_rows(arrays.as_array(values).ndim)
        self.call = Call(values, 0, False, True if mask is None else mask)
        self.array = self.call.array
        self.segments = given.checked(self.array)
        self.warns = self.segments.sizes is None  # not for groups of frames
        self.dtype: Any = dtype

    def made(
        self, how: Finish, part: np.dtype[Any], alone: Callable[[Call], Array],
        some: tuple[Array, ...],
    ) -> tuple[Array, Array]:  # fmt: skip
        """Flat results and numbers of rows. `alone` computes segments along the first axis."""
        mask = self.call.mask

        def again(rows: Array) -> Array:
            array = some[0][rows] if len(some) == 1 else self.array[rows]
            return alone(Call(array, 0, False, True if mask is None else mask[rows]))

        if mask is None:
            return by_segment(how, some, self.segments, part, again)
        ids, offsets, size = self.segments[:3]
        counts = segments.segment_sum(mask, ids, offsets=offsets, num_segments=size, timing=False)
        return by_segment(how, some, self.segments, part, again, counts.value)


def of_segments(rows: Rows, how: Result, ddof: float = 0.0) -> Any:
    """Means, variances or their roots."""
    ddof, is_mean, parts = finite("ddof", ddof), how.kind == RATIO, rows.call.parts()
    result = rows.call.result(rows.dtype) if is_mean else _real(rows.call, rows.dtype)
    part = dtypes.part_of(result)

    def alone(call: Call) -> Array:
        return _along_axes(call, how, part, ddof)[0]

    # Real and imaginary parts have a mean each, but one variance.
    each = [(one,) for one in parts] if is_mean else [parts]
    found = [
        rows.made(Finish(how.kind, how.root, ddof, len(some)), part, alone, some) for some in each
    ]
    flat, n = joined([one for one, _ in found], result), found[0][1]
    if rows.warns and (n <= ddof).any():
        warnings.warn(_TOO_FEW[how.kind], RuntimeWarning, stacklevel=4)
    if rows.call.skips_nan and not is_mean:
        flat[np.repeat(n.reshape(-1), flat.size // max(n.size, 1)) <= ddof] = np.nan
    return flat.reshape(rows.segments.size, *rows.array.shape[1:])


def products_of(x: Array, y: Array, *, conjugates: bool) -> Any:
    result = np.result_type(x.dtype, y.dtype)
    if result.kind in "biu":
        raise TypeError(f"exact products take floats only: numpy.dot is exact for {result}")
    part = dtypes.part_of(result)
    call = Call(np.broadcast_to(np.zeros((), result), x.shape), -1, False, True)
    n = np.ones_like(call.counts())

    def total(*pairs: tuple[Array, Array, int]) -> Array:
        terms = [one for a, b, sign in pairs for one in terms_of(a, b, call.axes, part, sign)]
        return results(Finish(RATIO), terms, (), n, part)

    if result.kind != "c":
        return call.stored(total((x, y, 1)), None)
    sign = -1 if conjugates else 1
    real = total((x.real, y.real, 1), (x.imag, y.imag, -sign))
    imag = total((x.real, y.imag, 1), (x.imag, y.real, sign))
    return call.stored(joined([real, imag], result), None)
