"""Sums, means and variances of windows, each rounded once: csrc/exact/rolling.h adds up."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gpureduce import _host
from gpureduce.core import arrays, dtypes, groups
from gpureduce.core.checks import finite, flag, whole
from gpureduce.core.dtypes import Array
from gpureduce.core.moments import RATIO, VARIANCE, in_floats

_MOST = 2**62


def rolled(
    x: object, window: object, axis: object, min_periods: object, center: object, *,
    mean: bool = False, variance: bool = False, ddof: Any = 0, root: bool = False,
) -> Any:  # fmt: skip
    """The sums of windows; their means; or their variances, or the roots of these."""
    array = arrays.as_array(x)[...]
    if array.dtype.kind not in "biuf" and not dtypes.is_bfloat16(array.dtype):
        raise TypeError(f"windows are of real numbers, not of {array.dtype}")
    dtypes.convert(array.dtype, None)  # refuses dtypes that have no sums
    if array.ndim == 0:
        raise ValueError("windows move along an axis; a number has none")
    along = groups.one_axis(axis, array.ndim)
    rows = np.moveaxis(array, along, -1)
    windows = _windows(window, rows.shape[-1], min_periods, center)
    result = array.dtype.newbyteorder("=") if array.dtype.kind not in "biu" else np.dtype("f8")
    free = finite("ddof", ddof) if variance else None
    flat = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
    found = _results(flat, windows, result, mean, free, root)
    return np.moveaxis(found.reshape(*rows.shape[:-1], found.shape[1]), -1, along)


class _Windows(NamedTuple):
    """Windows from `starts` to `ends`, or of one size, and the numbers that each needs."""

    starts: Array | None
    ends: Array | None
    size: int
    after: int  # the window's own element
    least: int

    def bounds(self, n: int) -> tuple[Array, Array]:
        if self.starts is not None and self.ends is not None:
            return self.starts, self.ends
        last = np.arange(1, n + 1, dtype=np.int64) + self.after
        return np.clip(last - self.size, 0, n), np.minimum(last, n)


def _windows(window: object, n: int, min_periods: object, center: object) -> _Windows:
    if isinstance(window, tuple):
        if flag("center", center):
            raise ValueError("center is for windows of one size, not for (starts, ends)")
        starts, ends = _given(window, n)
        least = 1 if min_periods is None else whole("min_periods", min_periods, 0, _MOST)
        return _Windows(starts, ends, 0, 0, least)
    size = whole("window", window, 1, _MOST)
    least = size if min_periods is None else whole("min_periods", min_periods, 0, size)
    size = min(size, 2 * n + 1)
    return _Windows(None, None, size, (size - 1) // 2 if flag("center", center) else 0, least)


def _given(window: tuple[Any, ...], n: int) -> tuple[Array, Array]:
    if len(window) != 2:
        raise ValueError(f"window must be a size, or (starts, ends), not {len(window)} arrays")
    starts, ends = (np.asarray(one) for one in window)
    for name, one in (("starts", starts), ("ends", ends)):
        if one.ndim != 1 or one.dtype.kind not in "iu":
            raise TypeError(
                f"{name} must be a list of integers, not {one.dtype} of {one.ndim} dimensions"
            )
    if len(starts) != len(ends):
        raise ValueError(f"there are {len(starts)} starts and {len(ends)} ends of windows")
    wrong = np.flatnonzero((starts < 0) | (starts > ends) | (ends > n))
    if wrong.size:
        k = int(wrong[0])
        raise ValueError(f"window {k} is from {starts[k]} to {ends[k]}: it must lie in 0 to {n}")
    return starts.astype(np.int64), ends.astype(np.int64)


def _counted(which: Array, starts: Array, ends: Array) -> Array:
    """How many elements of each window are marked."""
    before = np.zeros((len(which), which.shape[1] + 1), np.int64)
    np.cumsum(which, axis=1, out=before[:, 1:])
    return before[:, ends] - before[:, starts]


def _results(
    rows: Array, windows: _Windows, result: np.dtype[Any], mean: bool, free: float | None,
    root: bool,
) -> Array:  # fmt: skip
    starts, ends, size, after, least = windows
    found = np.empty((len(rows), rows.shape[1] if starts is None else len(starts)), result)
    if not found.size:
        return found
    pieces = in_floats(rows)
    if len(pieces) > 1:
        raise ValueError("windows are of integers that float64 holds, not beyond 2^53")
    numbers = pieces[0].astype(np.float64, copy=False)
    are_finite = np.isfinite(numbers)
    has_all = bool(are_finite.all())
    bounds = (None, None) if has_all else windows.bounds(rows.shape[1])
    _host.rolling(
        RATIO if free is None else VARIANCE, root, free is not None, mean or free is not None,
        free or 0.0, np.ascontiguousarray(numbers if has_all else np.where(are_finite, numbers, 0)),
        starts, ends, size, after, None if has_all else _counted(~np.isnan(numbers), *bounds),
        least, dtypes.load_of(result), found,
    )  # fmt: skip
    if not has_all:
        few = np.isnan(found)
        plus, minus = (_counted(numbers == x, *bounds) > 0 for x in (np.inf, -np.inf))
        found[plus], found[minus] = np.inf, -np.inf
        found[few | ((plus & minus) if free is None else (plus | minus))] = np.nan
    return found
