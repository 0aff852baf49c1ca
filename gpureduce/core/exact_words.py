"""Sums of kernels that include gpureduce/exact_add.cuh: their words as arrays, and as digits."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce.core import digits, dtypes, exact
from gpureduce.core.checks import named_keywords, whole
from gpureduce.core.dtypes import Array

_FLAG_BITS, _OUTSIDE = 4, 8  # as in exact_add.cuh
_WIDE = {"float16": (56, 2), "bfloat16": (32, 9), "float32": (32, 9), "float64": (56, 38),
         "int64": (56, 2)}  # fmt: skip
_LIMB, _DIGITS, _UNIT = 32, 68, -1074  # as in csrc/exact/exact.h
_MASK = np.int64(2**_LIMB - 1)
_MOST_LOW = 900
_SUMS_AT_ONCE = 1 << 13  # the digits of so many sums fit the processor's cache


def include_path() -> str:
    """The folder of the header: ``nvcc -I`` it for ``#include <gpureduce/exact_add.cuh>``.

    >>> import gpureduce, pathlib
    >>> (pathlib.Path(gpureduce.include_path()) / "gpureduce" / "exact_add.cuh").is_file()
    True
    """
    return str(Path(__file__).resolve().parents[1] / "include")


@dataclass(frozen=True)
class Layout:
    """The template parameters of an ``exact_sum``: word k counts 2^(low - 4 + stride k)."""

    dtype: np.dtype[Any]
    low: int
    stride: int
    words: int


def layout(dtype: npt.DTypeLike, low: int | None, k: int | None) -> Layout:
    """The layout of ``exact_sum<dtype>``, ``exact_window<dtype, low>`` or ``<dtype, low, k>``."""
    named = dtypes.named(dtype).newbyteorder("=")
    if named.name not in _WIDE:
        raise TypeError(f"exact words are made of {', '.join(_WIDE)}, not of {named}")
    precision, least = exact.FORMATS.get(named.name, (64, 0))
    if low is None:
        if k is not None:
            raise ValueError("k is the width of a window from low on: pass low, too")
        return Layout(named, least, *_WIDE[named.name])
    low = whole("low", low, least, _MOST_LOW)
    if k is None:
        return Layout(named, low, 56, 2)
    return Layout(named, low, 64 - precision - whole("k", k, 5, 61 - precision), 2)


def to_digits(words: Array, of: Layout, counts: Any = None) -> Array:
    """The digits of sums, as `gpureduce.from_digits` takes them, from words in host memory.

    Sums that a window could not hold count as nan.
    """
    if words.dtype not in (np.int64, np.uint64) or not words.ndim or words.shape[-1] != of.words:
        raise ValueError(
            f"exact words of {of.dtype} must be int64 of shape (..., {of.words}), not "
            f"{words.dtype} of shape {words.shape}"
        )
    words = words.view(np.int64)
    flags = words[..., 0] & (2**_FLAG_BITS - 1)
    made = np.empty((*words.shape[:-1], digits.REAL), np.int64)
    made[...] = np.frombuffer(exact.new(digits.kind_of(of.dtype)).to_digits(), np.int64)
    digit = made[..., digits.REAL - _DIGITS :]
    for k in range(of.words):
        word, place = words[..., k], of.low - _FLAG_BITS + of.stride * k - _UNIT
        if k == 0:
            word, place = word >> _FLAG_BITS, place + _FLAG_BITS
        first, up = divmod(place, _LIMB)
        for half, at in ((word & _MASK, first), (word >> _LIMB, first + 1)):
            half = half << up
            digit[..., at] += half & _MASK
            digit[..., at + 1] += half >> _LIMB
    for at in range(_DIGITS - 1):
        digit[..., at + 1] += digit[..., at] >> _LIMB
        digit[..., at] &= _MASK
    digit[flags != 0] = 0
    is_nan = (flags & (1 | _OUTSIDE) != 0) | (flags & 6 == 6)
    for bit, found in enumerate((is_nan, flags == 2, flags == 4)):
        made[..., digits.REAL - _DIGITS - 3 + bit] = found
    if counts is None:  # the least number of values below 2^1024 that can have this sum
        top = (digit[..., 67] << 46) + (digit[..., 66] << 14) + (digit[..., 65] >> 18)
        counts = np.abs(top) + (digit.any(axis=-1) | (flags != 0))
    digits.set_counts(made, np.broadcast_to(np.asarray(counts, np.int64), flags.shape))
    return made


def _rounded(words: Array, of: Layout, dtype: np.dtype[Any]) -> Array:
    if dtype.kind != "i":
        flat, found = words.reshape(-1, of.words), np.empty(words.shape[:-1], dtype)
        for at in range(0, len(flat), _SUMS_AT_ONCE):
            some = slice(at, at + _SUMS_AT_ONCE)
            found.reshape(-1)[some] = digits.rounded(to_digits(flat[some], of), dtype)
        return found
    low = words[..., 0] >> _FLAG_BITS  # word 0 now counts 1, and word 1 counts 2^52
    high, low = words[..., 1] + (low >> 52), low & (2**52 - 1)
    ends = np.iinfo(np.int64)
    within = np.clip(high, -(2**11), 2**11 - 1)
    found = np.where(high > within, ends.max, (within << 52) + low)
    return np.where(high < within, ends.min, found)


class ExactWords:
    """Sums for a kernel that includes ``gpureduce/exact_add.cuh``. `exact_words` makes it.

    Attributes
    ----------
    array
        The words, an int64 array of the sums' shape and one more axis: in a kernel, an array of
        ``exact_sum`` or ``exact_window``. Zeros are empty sums.

    Examples
    --------
    >>> import gpureduce
    >>> sums = gpureduce.exact_words(2, "float64", low=-20)
    >>> sums.array[1] = 3 << 24, 0  # of a kernel that adds 1.0 and 2.0: 2^24 stands for 1
    >>> sums.sums(), sums.is_outside()
    (array([0., 3.]), array([False, False]))
    """

    def __init__(self, array: Any, of: Layout) -> None:
        self.array, self._layout = array, of

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values that are added."""
        return self._layout.dtype

    def _host(self) -> Array:
        array = self.array
        if hasattr(array, "detach"):
            array = array.detach().cpu().numpy()
        return np.asarray(array.get() if hasattr(array, "get") else array)

    def sums(self, dtype: npt.DTypeLike | None = None) -> Any:
        """The sums as a NumPy array, each rounded once. Words on a GPU are copied to the host."""
        wanted = self.dtype if dtype is None else dtypes.rounded_to(dtype)
        return _rounded(self._host(), self._layout, wanted)

    def digits(self) -> npt.NDArray[np.int64]:
        """The digits of the sums, which any engine can add: `gpureduce.from_digits` rounds them.

        So ranks, cards and streams that have words of their own merge them. Those of integers are
        digits of float64.
        """
        return to_digits(self._host(), self._layout)

    def is_outside(self) -> npt.NDArray[np.bool_]:
        """Which windows were given a value that they cannot hold. Their sums are nan."""
        return np.asarray(self._host()[..., 0] & _OUTSIDE != 0)

    def __repr__(self) -> str:
        return f"<ExactWords {self.dtype}{list(self.array.shape[:-1])}>"


@named_keywords
def exact_words(
    shape: int | tuple[int, ...],
    dtype: npt.DTypeLike = "float32",
    *,
    low: int | None = None,
    k: int | None = None,
    like: Any = None,
) -> ExactWords:
    """Empty sums for a kernel of yours that includes ``gpureduce/exact_add.cuh``.

    The kernel adds to them by ``sum.add(x)``, in any order and with the same result, and `sums`
    rounds.

    Parameters
    ----------
    shape
        The shape of the sums.
    dtype
        The dtype of the values: float16, bfloat16, float32, float64 or int64.
    low, k
        The parameters of ``exact_window<T, low>`` and ``exact_window<T, low, k>``. Without `low`,
        the sums are of ``exact_sum<T>``.
    like
        An array of CuPy or PyTorch: the words lie on its device, in an array of that library.
        By default, they are a NumPy array.

    Examples
    --------
    >>> import gpureduce
    >>> bins = gpureduce.exact_words(1000, "float32")
    >>> bins.array.shape, bins.array.nbytes
    ((1000, 9), 72000)
    >>> bins.array[3, 4] = 1 << 25  # a kernel does this by bins[3].add(1.0f)
    >>> float(bins.sums()[3])
    1.0
    """
    of = layout(dtype, low, k)
    full = (*((shape,) if isinstance(shape, int) else shape), of.words)
    if like is None or isinstance(like, np.ndarray):
        return ExactWords(np.zeros(full, np.int64), of)
    library = sys.modules[type(like).__module__.partition(".")[0]]
    if library.__name__ == "torch":
        return ExactWords(like.new_zeros(full, dtype=library.int64), of)
    if library.__name__ != "cupy":
        raise TypeError(f"like must be a NumPy, CuPy or PyTorch array, not {type(like).__name__}")
    with like.device:
        return ExactWords(library.zeros(full, np.int64), of)
