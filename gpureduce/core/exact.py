"""Exact sums: adds arrays of any dtype to the accumulator of csrc/exact, and reads its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.core import arrays, dtypes
from gpureduce.core.dtypes import load_of, part_of

# Integers of up to this size are exact in float64; wider ones are added as two halves.
_WHOLE_INTEGER_BYTES = 4

# A real number, or inf or nan.
Number = Fraction | float

# For each float dtype: the bits of the significand, and the exponent of the least subnormal.
FORMATS = {
    "float16": (11, -24),
    "bfloat16": (8, -133),
    "float32": (24, -149),
    "float64": (53, -1074),
}


@lru_cache  # a dtype's name takes microseconds
def precision(dtype: np.dtype[Any]) -> int:
    """Integers up to 2 to this power are exact in a real dtype."""
    bits = 1 if dtype.kind == "b" else 8 * dtype.itemsize - (dtype.kind == "i")
    return FORMATS.get(dtype.name, (bits, 0))[0]


# Layout of an accumulator's bytes and its flags: csrc/exact/exact_bytes.c, csrc/exact/exact.h.
_HEADER, _BODY, _UNIT = 16, 272, 1 << 1074
_SPECIAL = {1: math.nan, 2: math.inf, 4: -math.inf}


def new(dtype: np.dtype[Any]) -> _host.Exact:
    """An empty sum for elements of `dtype`, a float or complex one."""
    return _host.Exact(load_of(dtype), 2 if dtype.kind == "c" else 1)


def halves(integers: dtypes.Array) -> tuple[dtypes.Array, dtypes.Array]:
    """Two floats for each 64-bit integer, which add up to it."""
    whole = integers.astype(integers.dtype.newbyteorder("="), copy=False)
    low = (whole & whole.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return low, (whole >> whole.dtype.type(32)).astype(np.float64) * 2.0**32


def _pieces(array: dtypes.Array) -> Iterator[tuple[dtypes.Array, bool]]:
    """Yields flat pieces of floats that add up to the array, and whether their elements count.

    A wide integer is added as two floats, of which one counts as an element.
    """
    source = array.dtype
    if source.kind not in "biu":
        yield from ((piece, True) for piece in arrays.pieces(array))
    elif source.itemsize <= _WHOLE_INTEGER_BYTES:
        yield from ((piece, True) for piece in arrays.pieces(array, np.dtype(np.float64)))
    else:
        for flat in arrays.pieces(array):
            for first in range(0, flat.size, arrays.PACK_ELEMENTS):
                low, high = halves(flat[first : first + arrays.PACK_ELEMENTS])
                yield from ((low, True), (high, False))


def feed(total: _host.Exact, array: dtypes.Array) -> float:
    """Adds every element, uncast, on the CPU. Returns the milliseconds of the additions."""
    ms = 0.0
    in_place = array.dtype.kind not in "biu" and array.size and not arrays.is_flat(array)
    for piece, counts in ((array, True),) if in_place else _pieces(array):
        parts = 2 if piece.dtype.kind == "c" else 1
        ms += total.add(piece, load_of(piece.dtype), parts, counts, 0)
    return ms


def feed_by(
    total: _host.Exact, array: dtypes.Array, deposit: Callable[[dtypes.Array, int], bytes]
) -> None:
    """Adds every element on a device: `deposit` adds up a flat piece and returns its state."""
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    for component, part in enumerate(parts):
        for piece, counts in _pieces(part):
            state = deposit(piece, load_of(piece.dtype))
            total.add_state(state, component, counts and component == 0)


def value(total: _host.Exact, result: np.dtype[Any]) -> Any:
    """The sum as a scalar of `result`, rounded once."""
    part = part_of(result)
    parts = np.frombuffer(total.round(load_of(result)), part)
    if result.kind != "c":
        return parts[0]
    return np.append(parts, part.type(0))[:2].view(result)[0]


def right_sum(array: dtypes.Array, result: np.dtype[Any]) -> Any:
    """The right sum of real numbers. Integers wrap around. Floats are rounded once."""
    if result.kind in "iub":
        return np.sum(array, dtype=result)
    total = new(result)
    feed(total, array)
    return value(total, result)


def parts(total: _host.Exact) -> list[Number]:
    """The unrounded sum, as a list: one number, or the real and the imaginary part."""
    found: list[Number] = []
    data = total.to_bytes()
    for i in range(total.components):
        flag = data[7] >> 4 * i & 15
        body = data[_HEADER + i * _BODY : _HEADER + (i + 1) * _BODY]
        units = int.from_bytes(body, "little", signed=True)
        found.append(_SPECIAL[flag] if flag else Fraction(units, _UNIT))
    return found


def _exponent(x: Fraction) -> int:
    """The e with 2^e <= |x| < 2^(e+1)."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if abs(x) >= Fraction(2) ** e else e - 1


def _nearest(x: Number, part: str) -> float:
    """`x` rounded once to a float dtype, to nearest, ties to even. Overflow gives inf."""
    if isinstance(x, float) or x == 0:
        return float(x)
    precision, least = FORMATS[part]
    unit = max(_exponent(x) - precision + 1, least)
    whole = round(abs(x) / Fraction(2) ** unit)
    is_finite = whole.bit_length() + unit <= 3 - least - precision
    found = math.ldexp(whole, unit) if is_finite else math.inf
    return found if x > 0 else -found


def rounded(numbers: list[Number], result: np.dtype[Any]) -> Any:
    """Rounds a number, or a real and an imaginary part, to a scalar of `result`."""
    part = part_of(result)
    values = dtypes.quietly(np.array([_nearest(x, part.name) for x in numbers]).astype, part)
    if result.kind != "c":
        return values[0]
    return np.append(values, part.type(0))[:2].view(result)[0]
