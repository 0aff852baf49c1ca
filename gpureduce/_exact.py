"""Exact sums: how arrays of any dtype get into the accumulator of csrc/exact, and values out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpureduce import _emulator, _inputs
from gpureduce._registry import DTYPES

# Integers are whole float64 up to this size; wider ones go in two halves.
_WHOLE_INTEGER_BYTES = 4


def part_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the real part."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def load_of(dtype: np.dtype[Any]) -> int:
    """How kernels read the elements, or their parts."""
    return DTYPES[part_of(dtype).name].load


def is_exact(result: np.dtype[Any]) -> bool:
    """Whether sums of that dtype are rounded at all: integers are exact anyway."""
    return result.kind not in "iu"


def new(dtype: np.dtype[Any]) -> _emulator.Exact:
    """An empty sum for elements of `dtype`, a float or complex one."""
    return _emulator.Exact(load_of(dtype), 2 if dtype.kind == "c" else 1)


def _flat(array: _inputs.Array, cast: np.dtype[Any] | None = None) -> Iterator[_inputs.Array]:
    return _inputs.pieces(array, _inputs.Conversion(cast, 0, 0, array.dtype))


def _pieces(array: _inputs.Array) -> Iterator[tuple[_inputs.Array, bool]]:
    """Flat pieces of floats that add up to the array, and whether they are new elements."""
    source = array.dtype
    if source.kind not in "biu":
        yield from ((piece, True) for piece in _flat(array))
    elif source.itemsize <= _WHOLE_INTEGER_BYTES:
        yield from ((piece, True) for piece in _flat(array, np.dtype(np.float64)))
    else:
        for piece in _flat(array):
            yield (piece & piece.dtype.type(0xFFFFFFFF)).astype(np.float64), True
            yield (piece >> piece.dtype.type(32)).astype(np.float64) * 2.0**32, False


def feed(total: _emulator.Exact, array: _inputs.Array) -> float:
    """Add every element, as it is, on the CPU; returns the milliseconds of the adding."""
    ms = 0.0
    for piece, counts in _pieces(array):
        parts = 2 if piece.dtype.kind == "c" else 1
        ms += total.add(piece, load_of(piece.dtype), parts, counts, 0)
    return ms


def feed_by(
    total: _emulator.Exact, array: _inputs.Array, deposit: Callable[[_inputs.Array, int], bytes]
) -> None:
    """Add every element by `deposit`, which takes a flat piece and its load to a device."""
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    for component, part in enumerate(parts):
        for piece, counts in _pieces(part):
            state = deposit(piece, load_of(piece.dtype))
            total.add_state(state, component, counts and component == 0)


def value(total: _emulator.Exact, result: np.dtype[Any]) -> Any:
    """The sum as a scalar of `result`, rounded once."""
    part = part_of(result)
    parts = np.frombuffer(total.round(load_of(result)), part)
    if result.kind != "c":
        return parts[0]
    return np.append(parts, part.type(0))[:2].view(result)[0]
