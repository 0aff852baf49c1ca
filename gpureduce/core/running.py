"""Running sums: each entry is the sum of the elements up to it, rounded once.

C adds up rows, columns and segments: csrc/exact/running.h.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, digits, dtypes, groups
from gpureduce.core.checks import flag
from gpureduce.core.dtypes import Array, load_of
from gpureduce.core.groups import Segments
from gpureduce.core.moments import in_floats


class Entries(NamedTuple):
    """Running sums of an array along an axis, and where they go: into `entries`, a part of `all`.

    `array` and `entries` are views that begin with the first element to add. `first` is the place
    of the leading zeros. They are stored last, so that an error leaves `all` as it was.
    """

    array: Array
    axis: int
    entries: Array
    all: Array
    first: Array


def cumsum(
    a: object, axis: int | None, dtype: npt.DTypeLike | None, out: Any, reverse: object,
    include_initial: object, *, skip_nan: bool = False,
) -> Any:  # fmt: skip
    """See gpureduce.exact.cumsum."""
    array = arrays.as_array(a)[...]
    if skip_nan and dtypes.is_float(array.dtype):
        array = np.where(dtypes.quietly(np.isnan, array), array.dtype.type(0), array)
    made = entries_of(array, axis, dtype, out, reverse, include_initial)
    store(made.array, made.axis, None, made.entries)
    made.first[...] = 0
    return made.all if out is None else out


def entries_of(
    array: Array, axis: int | None, dtype: npt.DTypeLike | None, out: Any, reverse: object,
    include_initial: object,
) -> Entries:  # fmt: skip
    """Checks the arguments, and makes the array of the entries."""
    along = 0 if axis is None else groups.one_axis(axis, array.ndim)
    array = array.reshape(-1) if axis is None else array
    result = result_of(array.dtype, dtype)
    more = flag("include_initial", include_initial)
    shape = tuple(n + (more and i == along) for i, n in enumerate(array.shape))
    found = (
        np.empty(shape, result) if out is None else groups.checked_out(out, array, shape, result)
    )
    entries = found
    if flag("reverse", reverse):
        array, entries = np.flip(array, along), np.flip(found, along)
    before = (slice(None),) * along  # numpy.split takes longer than a thousand sums
    first, entries = entries[*before, :more], entries[*before, more:]
    return Entries(array, along, entries, found, first)


def by_segment(values: object, groups_of: Segments, dtype: npt.DTypeLike | None) -> Any:
    """See gpureduce.exact.segment_cumsum."""
    array = arrays.as_array(values)[...]
    groups.check_rows(array.ndim)
    result, segments = result_of(array.dtype, dtype), groups_of.checked(array)
    found = np.empty(array.shape, result)
    if segments.ids is None:
        store(array, 0, segments.offsets, found)
        return found
    ids = segments.ids_of(0, len(array))
    short = ids.astype(np.uint16) if segments.size <= 1 << 16 else ids  # NumPy sorts uint16 faster
    order = np.argsort(short, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=segments.size))
    sums = np.empty_like(found)
    store(array[order], 0, np.concatenate([[0], ends]).astype(np.int64), sums)
    found[order] = sums
    return found


def sum_digits(array: Array, axis: int, result: np.dtype[Any]) -> Array:
    """The digits of the sums along an axis, which keeps size 1: for continued().

    A sum of integers is one number instead of digits.
    """
    if result.kind in "iu":
        return np.expand_dims(np.sum(array, axis, result, keepdims=True), -1)
    parts = [array.real, array.imag] if array.dtype.kind == "c" else [array]
    words = np.concatenate([digits.of_sums(part, (axis,)) for part in parts], axis=-1)
    return np.expand_dims(words, axis)


def continued(array: Array, axis: int, result: np.dtype[Any], before: Array | None) -> Array:
    """The running sums of a chunk. `before` has the digits of the sums of all earlier chunks."""
    entries = np.empty(array.shape, result)
    store(array, axis, None, entries, before if before is not None and before.any() else None)
    return entries


def result_of(source: np.dtype[Any], dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    """The dtype of the entries: that of numpy.cumsum, or the one asked for."""
    own = dtypes.convert(source, None).result  # refuses dtypes that have no sums
    if dtype is None:
        return own
    wanted = dtypes.named(dtype).newbyteorder("=")
    if not dtypes.is_float(own) and wanted.kind in "iu":
        return wanted
    wanted = dtypes.rounded_to(dtype)
    if own.kind == "c" and wanted.kind != "c":
        raise TypeError(f"dtype={wanted} would lose the imaginary parts of {own}")
    return wanted


def store(
    array: Array, axis: int, offsets: Array | None, entries: Array,
    before: Array | None = None,
) -> None:  # fmt: skip
    """Stores the entries, which have the shape of the array."""
    if not array.size:
        return
    if entries.dtype.kind in "iu":
        _store_integers(array, axis, offsets, entries)
        if before is not None:
            entries += before[..., 0]
    elif entries.dtype.kind == "c":
        for i, (part, out) in enumerate(((array.real, entries.real), (array.imag, entries.imag))):
            words = None if before is None else before[..., i * digits.REAL :][..., : digits.REAL]
            store(part, axis, offsets, out, words)
    else:
        pieces = in_floats(array)
        floats, out = pieces[0], entries
        if len(pieces) > 1:  # integers beyond 2^53: two floats for each, side by side
            shape = [n * (1 + (i == axis)) for i, n in enumerate(array.shape)]
            floats, out = np.stack(pieces, axis + 1).reshape(shape), np.empty(shape, entries.dtype)
            offsets = None if offsets is None else 2 * offsets
        words = None if before is None else np.ascontiguousarray(before)
        loads = load_of(floats.dtype), load_of(out.dtype)
        _host.running_sums(floats, axis, offsets, *loads, out, words)
        if out is not entries:
            entries[...] = out.take(range(1, out.shape[axis], 2), axis)


def _store_integers(array: Array, axis: int, offsets: Array | None, entries: Array) -> None:
    """By NumPy, which adds integers without rounding."""
    np.cumsum(array, axis, entries.dtype, entries)
    if offsets is not None:
        before = np.concatenate([np.zeros_like(entries[:1]), entries])[offsets[:-1]]
        entries -= np.repeat(before, np.diff(offsets), axis=0)
