"""Exact sums as arrays of int64 numbers, which anybody's integer all-reduce can add.

The words of an array:

    0       1: added up, the number of accumulators
    1       the format: 256 + 16 * components + the type of csrc/exact/exact_bytes.c
    2, 3    the low and the high 32 bits of the count of elements
    then, for each component:
    0..2    1 if there is a nan, an inf, a -inf
    3..70   the digits: word 3 + k counts 2^(32 k - 1074)

Each digit of an accumulator is below 2^32 in size, so 2^30 arrays can be added without overflow.
The other words are smaller.
"""

from __future__ import annotations

import struct
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from gpureduce import _host

MOST = 1 << 30  # accumulators that can be added
_VERSION = 256
_HEAD, _FLAGS, _DIGITS = 4, 3, 68
_COMPONENT = _FLAGS + _DIGITS
LENGTHS = (_HEAD + _COMPONENT, _HEAD + 2 * _COMPONENT)

# The bytes of csrc/exact/exact_bytes.c, and the state of csrc/exact/exact.h.
_BYTES_HEAD, _BYTES_BODY = 16, 4 * _DIGITS
_STATE = struct.Struct(f"={_DIGITS}qQII")

Words = npt.NDArray[np.int64]


def to_words(total: _host.Exact) -> Words:
    """The words of one accumulator."""
    data = total.to_bytes()
    words = np.zeros(LENGTHS[total.components - 1], np.int64)
    words[:_HEAD] = 1, _VERSION + 16 * total.components + data[6], *_halves(total.count)
    for i in range(total.components):
        flags = data[7] >> 4 * i & 15
        component = words[_HEAD + i * _COMPONENT :][:_COMPONENT]
        component[:_FLAGS] = [flags >> bit & 1 for bit in range(_FLAGS)]
        body = data[_BYTES_HEAD + i * _BYTES_BODY :][:_BYTES_BODY]
        component[_FLAGS:] = np.frombuffer(body, "<u4")
        component[-1] = np.frombuffer(body, "<i4")[-1]
    return words


def _halves(count: int) -> tuple[int, int]:
    return count & 0xFFFFFFFF, count >> 32


def checked(words: object) -> Words:
    """The words as a flat int64 array. Raises if it cannot be one of accumulators."""
    array = np.asarray(words)
    if array.dtype != np.int64:
        raise TypeError(
            f"digits are an array of int64, as to_digits returns it, not of {array.dtype}: other "
            "types lose some of them"
        )
    if array.ndim != 1 or array.size not in LENGTHS:
        raise ValueError(
            f"digits are {LENGTHS[0]} numbers, or {LENGTHS[1]} of a complex sum, not an array of "
            f"shape {array.shape}"
        )
    return array.astype(np.int64)


def from_words(words: Words) -> _host.Exact:
    """The sum of the accumulators whose words were added."""
    added, formats = map(int, words[:2])
    if not 1 <= added <= MOST:
        raise ValueError(f"digits of 1 to 2^30 accumulators can be added, not of {added}")
    kind, components = formats // added % 16, LENGTHS.index(words.size) + 1
    if formats != added * (_VERSION + 16 * components + kind) or not 1 <= kind <= len(_LOADS):
        raise ValueError(
            "these digits are not the sum of accumulators of one dtype: was each of them added "
            "once, as 64-bit integers?"
        )
    count = int(words[2]) + (int(words[3]) << 32)
    if any(not 0 <= word <= added << 32 for word in map(int, words[2:4])) or count >= 1 << 64:
        _refuse()
    total = _host.Exact(_LOADS[kind - 1], components)
    for i in range(components):
        component = [int(word) for word in words[_HEAD + i * _COMPONENT :][:_COMPONENT]]
        total.add_state(_state(component, added, count), i, i == 0)
    _host.Exact.from_bytes(total.to_bytes())  # raises if no elements have this sum
    return total


_LOADS = (_host.LOAD_F16, _host.LOAD_BF16, _host.LOAD_F32, _host.LOAD_F64)


def _state(component: list[int], added: int, count: int) -> bytes:
    """A gr_exact. Carries, so that each digit but the last is from 0 to 2^32 - 1."""
    flags, digits = component[:_FLAGS], component[_FLAGS:]
    if not all(0 <= flag <= added for flag in flags):
        _refuse()
    if any(not 0 <= digit <= added << 32 for digit in digits[:-1]):
        _refuse()
    for k in range(_DIGITS - 1):
        digits[k + 1] += digits[k] >> 32
        digits[k] &= 0xFFFFFFFF
    if not -(1 << 62) < digits[-1] < 1 << 62:
        _refuse()
    mask = sum(1 << bit for bit, flag in enumerate(flags) if flag)
    return _STATE.pack(*digits, count, mask, 1)


def _refuse() -> NoReturn:
    raise ValueError("no accumulators have these digits: were they added as 64-bit integers?")
