"""Sums of timedelta64: sums of its integers; NaT if an element is NaT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np

from gpureduce.core import dtypes
from gpureduce.core.checks import shown
from gpureduce.core.dtypes import Array
from gpureduce.core.results import SumResult


def add(
    array: Array, dtype: Any, initial: object, out: Any,
    add_integers: Callable[[Array, int, Any], SumResult],
) -> SumResult:  # fmt: skip
    """The sums of an array of timedelta64.

    `add_integers` takes integers, an initial number and `out`.
    """
    unit = array.dtype.newbyteorder("=")
    if dtype is not None and dtypes.named(dtype) != unit:
        raise TypeError(f"dtype must be that of the elements, {unit}, or left out, not {dtype}")
    if out is not None and not (isinstance(out, np.ndarray) and out.dtype == unit):
        raise TypeError(f"out must be a NumPy array of dtype {unit}")
    first = _initial(0 if initial is None else initial, unit)
    into = None if out is None else np.ndarray.view(out, np.int64)
    is_nat = np.isnat(array)
    integers = array.view(np.dtype(np.int64).newbyteorder(array.dtype.byteorder))
    found = add_integers(integers, int(first.view(np.int64)), into)
    missing = np.full(np.shape(found.value), np.isnat(first))
    if is_nat.any():
        counts = np.empty(missing.shape, np.int64)  # of the NaTs in each sum
        missing |= np.asarray(add_integers(is_nat.astype(np.int64), 0, counts).value) > 0
    value = np.asarray(found.value).view(unit)
    if missing.any():
        value[missing] = np.timedelta64("NaT")
    if out is None:
        out = value if isinstance(found.value, np.ndarray) else value[()]
    timing = found.timing and replace(found.timing, dtype=str(array.dtype))
    return SumResult(out, timing)


def _initial(initial: object, unit: np.dtype[Any]) -> Any:
    """`initial` in this unit."""
    try:
        given = np.asarray(np.timedelta64(initial) if isinstance(initial, timedelta) else initial)
        found = given.astype(unit)
    except (TypeError, ValueError):
        given = found = np.empty(2)
    same = given.ndim == 0 and given.dtype.kind in "mi"
    same = same and np.can_cast(given.dtype, unit, "same_kind")  # a year has no number of seconds
    if not same or not (np.isnat(found) or found.astype(given.dtype) == given):
        raise TypeError(f"initial must be a timedelta64 of whole {unit}, not {shown(initial)}")
    return found
