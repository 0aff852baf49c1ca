"""Sums, means and variances of windows, each rounded once: csrc/exact/rolling.h adds up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.core import arrays, dtypes, groups
from gpureduce.core.checks import finite, flag, whole
from gpureduce.core.dtypes import Array
from gpureduce.core.moments import RATIO, SUM, Result, in_floats

_MOST = 2**62
_ROWS = 8  # so many rows need not be contiguous: GR_ROLL_ROWS in csrc/exact/rolling.h


def rolled(
    x: object, window: object, axis: object, min_periods: object, center: object, how: Result,
    ddof: float,
) -> Any:  # fmt: skip
    """The sums of windows, or their means, variances or standard deviations."""
    array = arrays.as_array(x)[...]
    if array.dtype.kind not in "biuf" and not dtypes.is_bfloat16(array.dtype):
        raise TypeError(f"rolling functions take real numbers, not {array.dtype}")
    dtypes.convert(array.dtype, None)  # refuses dtypes that have no sums
    if array.ndim == 0:
        raise ValueError("rolling functions need an array with an axis, not a single number")
    along = groups.one_axis(axis, array.ndim)
    rows = np.moveaxis(array, along, -1)
    windows = _windows_of(window, rows.shape[-1], min_periods, center)
    result = array.dtype.newbyteorder("=") if array.dtype.kind not in "biu" else np.dtype("f8")
    flat = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
    found = _results(flat, windows, result, how, finite("ddof", ddof))
    return np.moveaxis(found.reshape(*rows.shape[:-1], found.shape[1]), -1, along)


# The starts and ends of windows, or None twice; the size of windows of one size, and how far window
# k extends past element k; and the least count of numbers in a window, or its result is nan.
_Windows = tuple[Array | None, Array | None, int, int, int]


def sizes_of(window: object, n: int, min_periods: object, center: object) -> tuple[int, int, int]:
    """The last three of _Windows."""
    if isinstance(window, tuple):
        if flag("center", center):
            raise ValueError("center is for windows of one size: leave it out with (starts, ends)")
        return 0, 0, 1 if min_periods is None else whole("min_periods", min_periods, 0, _MOST)
    size = whole("window", window, 1, _MOST)
    least = size if min_periods is None else whole("min_periods", min_periods, 0, size)
    size = min(size, 2 * n + 1)
    return size, (size - 1) // 2 if flag("center", center) else 0, least


def _windows_of(window: object, n: int, min_periods: object, center: object) -> _Windows:
    sizes = sizes_of(window, n, min_periods, center)
    if not isinstance(window, tuple):
        return None, None, *sizes
    given = tuple(np.asarray(one) for one in window)
    check_windows(given, n)
    starts, ends = (one.astype(np.int64) for one in given)
    return starts, ends, *sizes


def check_windows(window: tuple[Any, ...], n: int) -> None:
    """Raises if arrays, on a device or not, are not the starts and ends of windows."""
    if len(window) != 2:
        raise ValueError(f"window must be a size, or (starts, ends), not {len(window)} arrays")
    for name, one in zip(("starts", "ends"), window, strict=True):
        if len(one.shape) != 1 or "int" not in str(one.dtype):
            raise TypeError(
                f"{name} must be one-dimensional integers, not {one.dtype} of {len(one.shape)} "
                "dimensions"
            )
    starts, ends = window
    if len(starts) != len(ends):
        raise ValueError(f"there are {len(starts)} starts and {len(ends)} ends: they must be equal")
    wrong = (starts < 0) | (starts > ends) | (ends > n)
    if len(starts) and bool(wrong.any()):
        k = int((wrong * 1).argmax())
        raise ValueError(
            f"window {k} is from {int(starts[k])} to {int(ends[k])}: it must lie in 0 to {n}"
        )


def _results(
    rows: Array, windows: _Windows, result: np.dtype[Any], how: Result, ddof: float = 0.0
) -> Array:
    starts, ends, size, after, least = windows
    count = rows.shape[1] if starts is None else len(starts)
    pieces = in_floats(rows)
    if len(pieces) > 1:
        raise ValueError("integers beyond 2^53 cannot be used: windows convert them to float64")
    numbers = pieces[0].astype(np.float64, copy=False)
    in_columns = starts is None and len(rows) >= _ROWS and rows.strides[0] < rows.strides[1]
    numbers = np.require(numbers, requirements=["A"] if in_columns else ["A", "C"])
    found = np.empty((count, len(rows)) if in_columns else (len(rows), count), result)
    found = found.T if in_columns else found
    if not found.size:
        return found
    infinite = np.isinf(numbers) if not np.isfinite(numbers).all() else np.array(False)
    has_infinite = bool(infinite.any())
    _host.rolling(
        how.kind, how.root, how.over_n, ddof,
        np.where(infinite, 0, numbers) if has_infinite else numbers,
        starts, ends, size, after, least, dtypes.load_of(result), found,
    )  # fmt: skip
    if has_infinite:
        few, all_windows = np.isnan(found), (*windows[:4], 0)
        plus, minus = (
            _results(numbers == x, all_windows, np.dtype("f8"), SUM) > 0 for x in (np.inf, -np.inf)
        )
        found[plus], found[minus] = np.inf, -np.inf
        found[few | ((plus & minus) if how.kind == RATIO else (plus | minus))] = np.nan
    return found
