"""Exact sums as int64 numbers, which any integer all-reduce adds: csrc/exact/words.h."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, devices, dtypes, exact
from gpureduce.core.checks import no_stream
from gpureduce.core.dtypes import Array, load_of

Words = npt.NDArray[np.int64]

REAL, COMPLEX = 75, 146  # numbers of one sum
SQUARES = 3 * REAL  # three sums: of small, usual and large squares (Moments.to_digits)
MEAN, VAR, STD, NORM = range(4)  # gr_digits_finish
_COUNT = slice(2, 4)  # the two numbers with the count of elements


def numbers_of(kind: str) -> int:
    """How many int64 numbers hold one sum of elements of this kind."""
    return COMPLEX if kind == "c" else REAL


def dtype_for(kind: str) -> type[np.float64] | None:
    """The accumulator dtype for elements of this kind on a GPU; None: the elements' own."""
    return np.float64 if kind in "biu" else None


def check_place(device: str | None, stream: object) -> None:
    """Raises if digits of an array in host memory are to be made on a device or a stream."""
    devices.check_device(device)
    if device not in (None, "cpu"):
        raise ValueError(
            "the array is in host memory, where its digits are made, and not on "
            f"device={device!r}: leave device out, or pass an array on that device"
        )
    no_stream(stream)


def checked(words: object) -> Words:
    """Digits as an int64 array. Raises if they cannot be those of accumulators."""
    array = np.asarray(words)
    if array.dtype != np.int64:
        raise TypeError(
            f"digits must be an array of int64, as to_digits returns it, not of {array.dtype}, "
            "which may lose some of them"
        )
    if array.ndim == 0 or array.shape[-1] not in (REAL, COMPLEX):
        raise ValueError(
            f"the last axis of digits must have {REAL} numbers, or {COMPLEX} for complex sums: the "
            f"array has the shape {array.shape}"
        )
    return array


def one(words: object) -> Words:
    """The digits of one sum."""
    array = checked(words)
    if array.ndim != 1:
        raise ValueError(
            f"the digits of one accumulator are {REAL} numbers, or {COMPLEX} for a complex one: "
            f"the array has the shape {array.shape}"
        )
    return array


def of_sums(array: Array, axes: tuple[int, ...]) -> Words:
    """The digits of the exact sums along axes. The last axis of the result is for the digits.

    Sums of integers have the digits of a float64 accumulator.
    """
    kept = tuple(i for i in range(array.ndim) if i not in axes)
    moved, dims = array.transpose(kept + axes), len(kept)
    shape = moved.shape[:dims]
    words = np.empty((*shape, numbers_of(array.dtype.kind)), np.int64)
    if dims and math.prod(moved.shape[dims:]) <= arrays.PACK_ELEMENTS:
        for where in arrays.parts(moved.shape, dims):
            words[where] = _of_part(moved[where], dims)
        return words
    for one in np.ndindex(shape):
        total = exact.new(kind_of(array.dtype))
        exact.feed(total, moved[one])
        words[one] = np.frombuffer(total.to_digits(), np.int64)
    return words


def of_squares(array: Array, axes: tuple[int, ...]) -> Words:
    """The digits of the exact sums of squared magnitudes along axes. Infinities and nans are 0."""
    kept = tuple(i for i in range(array.ndim) if i not in axes)
    moved, dims = array.transpose(kept + axes), len(kept)
    words = np.zeros((*moved.shape[:dims], 3, REAL), np.int64)
    is_long = moved.size > arrays.PACK_ELEMENTS
    every = arrays.parts(moved.shape, moved.ndim) if is_long else [(slice(None),) * moved.ndim]
    for where in every if words.size else ():
        some = moved[where]
        for part in (some.real, some.imag) if some.dtype.kind == "c" else (some,):
            words[where[:dims]] += _squares_of(part, dims)
    return words.reshape((*moved.shape[:dims], SQUARES))


def _squares_of(array: Array, kept: int) -> Words:
    x = np.ascontiguousarray(array, np.float64)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and x.size and abs(x).max() > 2**53:
        low, high = map(np.ascontiguousarray, exact.halves(array))
        pairs: tuple[tuple[Array, Array], ...] = ((low, low), (2 * low, high), (high, high))
    else:
        finite = np.isfinite(x)
        x = x if finite.all() else np.where(finite, x, 0.0)
        pairs = ((x, x),)
    words = np.zeros((*array.shape[:kept], 3, REAL), np.int64)
    for first, other in pairs:
        each = np.empty_like(words)
        rows = words.size // (3 * REAL)
        _host.sum_digits(first.reshape(-1), rows, load_of(x.dtype), 1, each, other.reshape(-1))
        words += each
    return words


def finished(words: Words, kind: int, result: np.dtype[Any], ddof: float = 0) -> Array:
    """Results from the digits of sums, followed by those of squares, each rounded once."""
    squares = 0 if kind == MEAN else SQUARES
    parts = 2 if words.shape[-1] - squares == COMPLEX else 1
    own = result if parts == 2 and kind == MEAN else dtypes.part_of(result)
    found = np.empty(words.shape[:-1], own)
    words = np.ascontiguousarray(words)
    _host.finish_digits(words, kind, parts, ddof, load_of(own), found.reshape(-1))
    return found.astype(result, copy=False)


def _of_part(array: Array, kept: int) -> Words:
    """The digits of the exact sums over all dimensions but the first `kept` ones."""
    if array.dtype.kind not in "biu":
        return _of_floats(array, kept)
    if array.dtype.itemsize < 8:
        return _of_floats(array.astype(np.float64), kept)
    low, high = exact.halves(array)
    more = _of_floats(high, kept)
    more[..., _COUNT] = 0  # each element counts once
    more += _of_floats(low, kept)
    return more


def kind_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The accumulator dtype for sums of such elements."""
    return np.dtype(np.float64) if dtype.kind in "biu" else dtype.newbyteorder("=")


def set_counts(words: Words, counts: Words) -> None:
    """Stores the number of elements of each sum."""
    words[..., _COUNT] = np.stack([counts & 0xFFFFFFFF, counts >> 32], axis=-1)


def _of_floats(array: Array, kept: int) -> Words:
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    flat = np.require(native, requirements=["C", "A"]).reshape(-1)
    parts = 2 if array.dtype.kind == "c" else 1
    words = np.empty((*array.shape[:kept], numbers_of(array.dtype.kind)), np.int64)
    if words.size:
        rows = words.size // words.shape[-1]
        _host.sum_digits(flat, rows, load_of(flat.dtype), parts, words)
    return words


def dtype_of(words: Words) -> np.dtype[Any]:
    """The dtype of the accumulators whose digits were added. Arbitrary for invalid digits."""
    if not words.size:
        return np.dtype(np.complex128 if words.shape[-1] == COMPLEX else np.float64)
    first, types = map(int, words[(0,) * (words.ndim - 1)][:2])
    added = first & 0x7FFFFFFF
    if first == added > 0:  # the layout before 1.0.0
        kind = min(max(types // added % 16, 1), 4) - 1
    else:
        kind = (types & 0x7FFFFFFF == added) + 2 * (types >> 31 == added)
    if words.shape[-1] == COMPLEX:
        return np.dtype(np.complex64 if kind == 2 else np.complex128)
    return dtypes.named(("float16", "bfloat16", "float32", "float64")[kind])


def counts(words: Words) -> npt.NDArray[np.float64]:
    """The number of elements of each sum."""
    low, high = words[..., _COUNT].transpose((-1, *range(words.ndim - 1))).astype(np.float64)
    return np.asarray(low + high * 2.0**32)


def rounded(words: Words, result: np.dtype[Any]) -> Array:
    """The sums that the digits stand for, each rounded once to a dtype."""
    parts = 2 if words.shape[-1] == COMPLEX else 1
    if (result.kind == "c") != (parts == 2):
        raise TypeError(
            f"digits of {'complex' if parts == 2 else 'real'} sums cannot be rounded to {result}"
        )
    found = np.empty(words.shape[:-1], result)
    if words.flags.c_contiguous and words.flags.aligned:
        _host.round_digits(words, load_of(result), parts, found.reshape(-1))
        return found
    for where in arrays.parts(words.shape, found.ndim):  # in between, signals are handled
        some = np.require(words[where], requirements=["C", "A"])
        sums = np.empty(some.shape[:-1], result)
        _host.round_digits(some, load_of(result), parts, sums.reshape(-1))
        found[where] = sums
    return found


def in_dtype(words: Words, result: np.dtype[Any]) -> Array:
    """The same as rounded(). Sums of real numbers may also get a complex dtype."""
    real = words.shape[-1] == REAL
    return rounded(words, dtypes.part_of(result) if real else result).astype(result, copy=False)
