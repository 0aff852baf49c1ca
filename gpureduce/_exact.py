"""Exact sums: how arrays of any dtype get into the accumulator of csrc/exact, and values out."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpureduce import _emulator, _inputs
from gpureduce._registry import DTYPES

# Integers are whole float64 up to this size; wider ones go in two halves.
_WHOLE_INTEGER_BYTES = 4


def part_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the real part."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def is_exact(result: np.dtype[Any]) -> bool:
    """Whether sums of that dtype are rounded at all: integers are exact anyway."""
    return result.kind not in "iu"


def new(dtype: np.dtype[Any]) -> _emulator.Exact:
    """An empty sum for elements of `dtype`, a float or complex one."""
    return _emulator.Exact(DTYPES[part_of(dtype).name].load, 2 if dtype.kind == "c" else 1)


def _pieces(array: _inputs.Array, cast: np.dtype[Any] | None) -> Any:
    return _inputs.pieces(array, _inputs.Conversion(cast, 0, 0, array.dtype))


def feed(total: _emulator.Exact, array: _inputs.Array) -> float:
    """Add every element, as it is, in host memory; returns the milliseconds of the adding."""
    source, ms = array.dtype, 0.0
    f64 = _emulator.LOAD_F64
    if source.kind not in "biu":
        load, parts = DTYPES[part_of(source).name].load, 2 if source.kind == "c" else 1
        for piece in _pieces(array, None):
            ms += total.add(piece, load, parts, True, 0)
    elif source.itemsize <= _WHOLE_INTEGER_BYTES:
        for piece in _pieces(array, np.dtype(np.float64)):
            ms += total.add(piece, f64, 1, True, 0)
    else:
        for piece in _pieces(array, None):
            low = (piece & piece.dtype.type(0xFFFFFFFF)).astype(np.float64)
            high = (piece >> piece.dtype.type(32)).astype(np.float64) * 2.0**32
            ms += total.add(low, f64, 1, True, 0) + total.add(high, f64, 1, False, 0)
    return ms


def value(total: _emulator.Exact, result: np.dtype[Any]) -> Any:
    """The sum as a scalar of `result`, rounded once."""
    part = part_of(result)
    parts = np.frombuffer(total.round(DTYPES[part.name].load), part)
    if result.kind != "c":
        return parts[0]
    return np.append(parts, part.type(0))[:2].view(result)[0]
