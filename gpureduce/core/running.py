"""Running sums: each entry is the sum of the elements up to it, rounded once.

C adds up rows, columns and segments: csrc/exact/running.h.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, dtypes, exact, groups
from gpureduce.core.checks import flag
from gpureduce.core.dtypes import Array, load_of
from gpureduce.core.groups import Segments
from gpureduce.core.moments import in_floats


class Entries(NamedTuple):
    """Running sums of an array along an axis, and where they go: into `entries`, a part of `all`.

    Both arrays are views that begin with the first element that is added.
    """

    array: Array
    axis: int
    entries: Array
    all: Array


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
    return made.all if out is None else out


def entries_of(
    array: Array, axis: int | None, dtype: npt.DTypeLike | None, out: Any, reverse: object,
    include_initial: object,
) -> Entries:  # fmt: skip
    """Checks the arguments, and makes the array of the entries. A first 0 is stored there."""
    array, along = _along(array, axis)
    result = _result(array.dtype, dtype)
    more = flag("include_initial", include_initial)
    shape = tuple(n + (more and i == along) for i, n in enumerate(array.shape))
    found = (
        np.empty(shape, result) if out is None else groups.checked_out(out, array, shape, result)
    )
    entries = found
    if flag("reverse", reverse):
        array, entries = np.flip(array, along), np.flip(found, along)
    if more:
        first, entries = np.split(entries, [1], along)
        first[...] = 0
    return Entries(array, along, entries, found)


def by_segment(values: object, groups_of: Segments, dtype: npt.DTypeLike | None) -> Any:
    """See gpureduce.exact.segment_cumsum."""
    array = arrays.as_array(values)[...]
    if array.ndim not in (1, 2):
        raise ValueError(f"values must have 1 or 2 dimensions, (n,) or (n, d), not {array.ndim}")
    result, segments = _result(array.dtype, dtype), groups_of.checked(array)
    found = np.empty(array.shape, result)
    if segments.ids is None:
        store(array, 0, segments.offsets, found)
        return found
    ids = segments.ids_of(0, len(array))
    short = ids.astype(np.uint16) if segments.size <= 1 << 16 else ids  # NumPy sorts these sooner
    order = np.argsort(short, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=segments.size))
    sums = np.empty_like(found)
    store(array[order], 0, np.concatenate([[0], ends]).astype(np.int64), sums)
    found[order] = sums
    return found


def _along(array: Array, axis: object) -> tuple[Array, int]:
    """The array, flat if there is no axis, and its axis."""
    if axis is None:
        return array.reshape(-1), 0
    return array, groups.one_axis(axis, array.ndim)


def _result(source: np.dtype[Any], dtype: npt.DTypeLike | None) -> np.dtype[Any]:
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


def store(array: Array, axis: int, offsets: Array | None, entries: Array) -> None:
    """Stores the entries, which have the shape of the array."""
    if not array.size:
        return
    if entries.dtype.kind in "iu":
        _store_integers(array, axis, offsets, entries)
    elif entries.dtype.kind == "c":
        store(array.real, axis, offsets, entries.real)
        store(array.imag, axis, offsets, entries.imag)
    else:
        pieces = in_floats(array)
        if len(pieces) > 1:  # integers that no float64 number holds
            whole = np.empty(array.shape, object)
            _store_integers(array.astype(object), axis, offsets, whole)
            rounded = np.frompyfunc(lambda x: exact.rounded([Fraction(x)], entries.dtype), 1, 1)
            entries[...] = rounded(whole)
            return
        loads = load_of(pieces[0].dtype), load_of(entries.dtype)
        _host.running_sums(pieces[0], axis, offsets, *loads, entries)


def _store_integers(array: Array, axis: int, offsets: Array | None, entries: Array) -> None:
    """By NumPy, which adds integers without rounding."""
    np.cumsum(array, axis, entries.dtype, entries)
    if offsets is not None:
        before = np.concatenate([np.zeros_like(entries[:1]), entries])[offsets[:-1]]
        entries -= np.repeat(before, np.diff(offsets), axis=0)
