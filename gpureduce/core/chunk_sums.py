"""Exact sums of the elements of a chunk, and of their squares, and the sums of several chunks.

The sums of a chunk are a block of floats. Each sum is three floats, which add up to it without an
error. The block has the first float of each sum, the second ones, the third ones, and the numbers
of elements. A sum of squares is kept as five sums, which follow the sum of the elements. A norm
needs only the squares. Where floats cannot hold the sums, the block consists of digits
(core/digits.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.core import arrays, digits, dtypes, moments
from gpureduce.core.accumulator import Accumulator
from gpureduce.core.dtypes import Array, line_of, load_of

_SQUARES = 5  # sums of a sum of squares: the last levels of gr_levels in exact/proven_kernels.h
_FEW = 16  # rows or columns
_SHORT = 96  # elements of rows that take less time as columns
_TILE = 64  # columns that are copied at a time


def of_chunk(
    chunk: Any, axes: tuple[int, ...], kind: int = digits.MEAN, skips_nan: bool = False
) -> Array:
    """The sums along axes, which then have size 1, that a result of this kind is made of."""
    if arrays.lies_on_a_gpu(chunk):
        if kind == digits.MEAN and not skips_nan:
            return digits_of(chunk, axes)
        chunk = chunk.get()  # as CuPy copies to the host
    array = arrays.as_array(chunk)
    n: Any = math.prod(array.shape[i] for i in axes)
    missing: Any = skips_nan and dtypes.quietly(np.isnan, array)
    has_missing = skips_nan and missing.any()
    if has_missing:
        n = n - np.sum(missing, axes, keepdims=True)
        array = np.where(missing, array.dtype.type(0), array)
    is_float = dtypes.is_float(array.dtype) and array.dtype.kind != "c"
    found = _floats(array, axes, kind) if is_float or kind != digits.MEAN else None
    if found is not None:
        found[-1] = n
        return found
    if is_float:  # digits have the dtype that those of floats have
        array = array.astype(np.float64)
    words = array
    if kind == digits.NORM:  # digits of squares have no infinities and nans
        sizes = abs(array.real) + abs(array.imag)  # abs(inf + nan j) is inf
        words = np.where(np.isfinite(array), array.dtype.type(0), sizes)
    words = digits_of(words, axes)
    if has_missing:
        digits.set_counts(words, n)
    if kind == digits.MEAN:
        return words
    squares = digits.of_squares(array, axes).reshape(*words.shape[:-1], digits.SQUARES)
    return np.concatenate([words, squares], axis=-1)


def digits_of(chunk: Any, axes: tuple[int, ...]) -> digits.Words:
    """The digits of a chunk's sums along axes, which then have size 1."""
    if arrays.lies_on_a_gpu(chunk):
        if len(axes) == chunk.ndim:
            total = Accumulator(digits.kind_of(chunk.dtype)).add(chunk)
            return total.to_digits().reshape((1,) * chunk.ndim + (-1,))
        chunk = chunk.get()
    array = arrays.as_array(chunk)
    words = digits.of_sums(array, axes)
    shape = (1 if i in axes else n for i, n in enumerate(array.shape))
    return words.reshape(*shape, words.shape[-1])


def _floats(array: Array, axes: tuple[int, ...], kind: int) -> Array | None:
    """A block of floats, without numbers of elements; None if these cannot hold the sums."""
    if array.dtype.kind == "c" or not array.size:
        return None
    x, *wide = moments.in_floats(array)
    if wide:  # integers
        return None
    if kind == digits.MEAN:
        return _three_floats(x, axes)
    kept = [i for i in range(array.ndim) if i not in axes]
    groups, n = (math.prod(array.shape[i] for i in some) for some in (kept, axes))
    x = x.astype(np.float32) if dtypes.is_half(x.dtype) else x
    inner = min(range(x.ndim), key=lambda i: abs(x.strides[i]), default=0)
    in_rows = n >= _SHORT and (inner in axes or groups < _FEW)
    if inner in axes and not in_rows and x.ndim > 2:
        x = np.ascontiguousarray(x)  # then reshape copies nothing
    axes = (*sorted(axes, key=lambda i: -abs(x.strides[i])),)
    x = x.transpose((*kept, *axes) if in_rows else (*axes, *kept))
    parts = 1  # of a row of the matrix
    if in_rows and inner in axes and x.shape[-1] >= _SHORT and not x.flags.c_contiguous:
        parts = n // x.shape[-1]  # reshape copies nothing
    rows = x.reshape(groups * parts if in_rows else n, -1)
    made = _with_squares(rows, in_rows, kind == digits.NORM, parts)
    shape = [1 if i in axes else n for i, n in enumerate(array.shape)]
    return None if made is None else made.reshape(-1, *shape)


def _three_floats(array: Array, axes: tuple[int, ...]) -> Array | None:
    """A block of sums along axes, without numbers of elements; None if a sum is not exact."""
    found = np.empty((4, *(1 if i in axes else n for i, n in enumerate(array.shape))))
    if not _host.unrounded_axes(array, axes, found):
        which = found[3] != 0
        special = _special(array, axes)[which]
        if not special.all():
            return None
        found[:, which] = special, *np.zeros((3, len(special)))
    return found


def _special(array: Array, axes: int | tuple[int, ...], sizes: bool = False) -> Array:
    """The sums of infinities and nans along axes, which then have size 1; 0 where there is none."""
    x = array.astype(np.float64)
    x = np.where(np.isfinite(x), 0, abs(x) if sizes else x)
    return np.asarray(dtypes.quietly(np.sum, x, axis=axes, keepdims=True))


def _with_squares(rows: Array, in_rows: bool, is_norm: bool, parts: int) -> Array | None:
    """Three floats for each sum of rows or columns, and for each of five sums of squares.

    A sum is that of several adjacent rows if these are its `parts`.
    """
    if rows.strides[1] != rows.itemsize:
        rows = _in_c_order(rows)
    levels = _host.sum_levels(rows, in_rows, not is_norm)
    lost = np.flatnonzero(np.isnan(levels[:, 0]).any(0))
    if lost.size:
        special = _special(rows[lost] if in_rows else rows[:, lost].T, 1, is_norm)[:, 0]
        if not special.all():
            return None
        levels[:, :, lost] = 0
        levels[0, 0, lost] = special
    levels = levels.reshape(*levels.shape[:2], -1, parts).transpose(0, 3, 1, 2)
    levels = levels.reshape(-1, *levels.shape[2:])
    made: list[Any] = [_three_floats(levels[:, -_SQUARES:], (0,))]
    if not is_norm:
        made.insert(0, _three_floats(levels[:, :-_SQUARES], (0, 1)))
    if any(one is None for one in made):
        return None
    found = np.concatenate(made, axis=2)
    return found.reshape(-1, found.shape[-1])[: 3 * found.shape[2] + 1]


def _in_c_order(matrix: Array) -> Array:
    """A copy, column by column: a part at a time stays in the cache."""
    found = np.empty(matrix.shape, matrix.dtype)
    for first in range(0, matrix.shape[1], _TILE):
        found[:, first : first + _TILE] = matrix[:, first : first + _TILE]
    return found


def merged(blocks: Sequence[Array]) -> Array:
    """The sums of several chunks, in either form."""
    if (floats := _floats_of(blocks)) is not None:
        made = _three_floats(floats[0], (0, 1))
        if made is not None:
            block = made.reshape(-1, *blocks[0].shape[1:])[: len(blocks[0])]
            np.add.reduce(floats[1], out=block[-1])
            return block
    return np.asarray(np.sum([_as_digits(one) for one in blocks], axis=0, dtype=np.int64))


def _floats_of(blocks: Sequence[Array]) -> tuple[Array, Array] | None:
    """The floats of blocks, three along axis 1, and the numbers of elements. None of digits."""
    if any(one.dtype != np.float64 for one in blocks):
        return None
    every = np.array(blocks)
    return every[:, :-1].reshape(len(blocks), 3, -1, *every.shape[2:]), every[:, -1]


def _as_digits(block: Array) -> digits.Words:
    """Digits of a block of sums in either form."""
    if block.dtype != np.float64:
        return block
    floats = block[:-1].reshape(3, -1, *block.shape[1:])
    if floats.shape[1] == _SQUARES:  # infinities and nans go to a sum of elements
        floats = np.insert(floats, 0, 0, axis=1)
        special = ~np.isfinite(floats[:, 1])
        np.copyto(floats[:, 0], floats[:, 1], where=special)
        floats[:, 1][special] = 0
    words = digits.of_sums(floats[:, 0], (0,))
    digits.set_counts(words, block[-1].astype(np.int64))
    if floats.shape[1] == 1:
        return words
    squares = digits.of_sums(floats[:, 1:], (0, 1))
    none = digits.of_sums(np.zeros_like(block[-1:]), (0,))  # small and large ones
    return np.concatenate([words, none, squares, none], axis=-1)


def rounded(blocks: Sequence[Array], result: np.dtype[Any]) -> Array:
    """The sums of several chunks themselves, rounded."""
    if (floats := _floats_of(blocks)) is None:
        return digits.in_dtype(merged(blocks), result)
    part = dtypes.part_of(result)
    how = line_of(floats[0].dtype), line_of(part), part, None, None, ((), ())
    found = _host.sum_axis(floats[0][:, :, 0], (0, 1), False, True, None, how)[0]
    return np.asarray(found).astype(result, copy=False)


def finished(total: Array, kind: int, result: np.dtype[Any], ddof: float = 0) -> Array:
    """What is made of the sums, each rounded once."""
    if total.dtype != np.float64 or result.kind == "c":
        return digits.finished(_as_digits(total), kind, result, ddof)
    shape, flat = total.shape[1:], total.reshape(len(total), -1)
    size = flat.shape[1]
    sums = np.zeros((len(flat) // 3, 4, size + _host.FINISH_BATCH))
    sums[:, :3, :size] = flat[:-1].reshape(3, -1, size).transpose(1, 0, 2)
    first, n, how = 1, flat[-1], moments.RATIO
    if kind == digits.NORM:
        n, first = np.ones(size), len(sums)
    elif kind != digits.MEAN:
        how = moments.VARIANCE
    found, unknown = np.empty(size, result), np.zeros(size, np.bool_)
    root = kind in (digits.STD, digits.NORM)
    _host.finish_sums(
        how, root, 1, first, ddof, len(sums) - first, sums, n, load_of(result), found, unknown
    )
    special = ~np.isfinite(flat[0])
    if special.any():  # infinities and nans
        found[special] = np.nan if how == moments.VARIANCE else flat[0, special]
        unknown &= ~special
    if unknown.any():
        found[unknown] = digits.finished(_as_digits(flat[:, unknown]), kind, result, ddof)
    return found.reshape(shape)


def counts(total: Array) -> Array:
    """The number of elements of each sum."""
    return total[-1] if total.dtype == np.float64 else digits.counts(total)
