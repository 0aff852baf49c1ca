"""Results that are made of exact sums, rounded once: means, variances, norms, products.

C adds up terms (x, |x|, x^2, x y) and finishes: csrc/exact/finish.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpureduce import _host
from gpureduce.core import exact, run_host
from gpureduce.core.dtypes import Array, load_of
from gpureduce.core.groups import Segments

ELEMENT, MAGNITUDE, SQUARE, PRODUCT, WEIGHTED, COMPLEX, CONJUGATED = range(7)  # gr_term
RATIO, VARIANCE, DEVIATION = range(3)  # gr_finish_kind
_WIDE = 1 << 53  # integers up to this size are float64 numbers


class Sum(NamedTuple):
    """The sums of terms of an array along axes. `other`: the other factors, a mask, or None."""

    term: int
    array: Array
    axes: tuple[int, ...]
    other: Array | None = None

    def given(self) -> tuple[int, int, Array, Array | None]:
        """The arguments for C. A sum of no elements becomes that of one 0."""
        array, other = np.asarray(self.array), self.other  # a product of 0-d arrays is a scalar
        other = None if other is None else np.asarray(other)
        if not array.size:
            shape = [1 if i in self.axes else n for i, n in enumerate(array.shape)]
            array = np.zeros(shape, array.dtype)
            other = None if other is None else np.zeros(shape, other.dtype)
        return self.term, load_of(array.dtype), array, other


class Result(NamedTuple):
    """What is made of the sums of one or two terms, as C takes it: csrc/exact/finish.h."""

    kind: int
    root: bool
    first: int
    second: int = -1
    over_n: bool = False


SUM = Result(RATIO, False, ELEMENT)
MEAN = Result(RATIO, False, ELEMENT, over_n=True)
VAR = Result(VARIANCE, False, ELEMENT, SQUARE, True)
STD = Result(VARIANCE, True, ELEMENT, SQUARE, True)


class Finish(NamedTuple):
    """Which result is made of the sums S and Q: see csrc/exact/finish.h."""

    kind: int
    root: bool = False
    ddof: float = 0.0
    parts: int = 1


def results(
    how: Finish, first: Sequence[Sum], second: Sequence[Sum], n: Array, part: np.dtype[Any],
    mean: Array | None = None,
) -> Array:  # fmt: skip
    """The results of all groups, of a float dtype: flat, rounded once."""
    out = np.empty(n.size, part)
    n = np.ascontiguousarray(n, np.float64).reshape(-1)
    if mean is not None:
        mean = np.ascontiguousarray(mean, np.float64).reshape(-1)
    if n.size:
        above, below = (tuple(one.given() for one in sums) for sums in (first, second))
        _host.finish(
            how.kind, how.root, how.parts, above, below, first[0].axes, n, mean, how.ddof,
            load_of(part), out,
        )  # fmt: skip
    return out


def by_segment(
    how: Finish, arrays: Sequence[Array], segments: Segments, part: np.dtype[Any],
    alone: Callable[[Array], Array], counts: Array | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """The results of all segments, flat, and the number of rows of each segment.

    `counts` are the numbers of values of each segment and column, if missing ones are 0.

    `arrays` are the real parts of the values. `alone` computes segments with equal numbers of rows,
    where the sums do not prove the result, from a column of row numbers for each.
    """
    rows, columns = len(arrays[0]), int(np.prod(arrays[0].shape[1:], dtype=np.int64))
    if counts is None:
        counts = run_host.counts_by_segment(segments, rows)
    counts = np.ascontiguousarray(counts, np.int64)
    size = (segments.size * columns,)
    out, unknown = (segments.empty(size, dtype) for dtype in (part, np.dtype(np.bool_)))
    pieces = [piece for array in arrays for piece in in_floats(array)]
    unknown[...] = False
    if len(pieces) > len(arrays):  # C adds up no products by segment
        out[...] = np.nan  # 0 / 0
        many = counts > (0 if how.kind == RATIO else min(how.ddof, 1))
        unknown[...] = np.repeat(many, columns)
    else:
        values = pieces[0]
        if len(pieces) > 1:
            values = np.stack(pieces, axis=-1).reshape(rows, 2 * columns)
        bad = _host.finish_segments(
            how.kind, how.root, how.parts, how.ddof, values, segments.ids, segments.offsets,
            segments.size, load_of(values.dtype), counts, load_of(part), out, unknown,
            segments.sizes is not None,
        )  # fmt: skip
        if bad >= 0:
            raise segments.wrong_id(rows, bad)
    if not unknown.any():
        return out, counts
    found, marks = out.reshape(-1, columns), unknown.reshape(-1, columns)
    for which, some in segments.rows_of(np.flatnonzero(marks.any(1)), rows):
        again = alone(some).reshape(-1, columns)
        found[which] = np.where(marks[which], again, found[which])
    return out, counts


def in_floats(array: Array) -> list[Array]:
    """Arrays of native floats, which add up to the array: two of wide integers.

    Where elements share memory, as those of `numpy.broadcast_to`, theirs do, too.
    """
    if array.dtype.kind == "f" and array.dtype.isnative:
        return [array]
    own = array
    if 0 in array.strides:
        own = array[tuple(slice(None) if step else slice(1) for step in array.strides)]
    own = own.view(np.uint8) if own.dtype.kind == "b" else own
    is_wide = own.dtype.kind in "iu" and own.dtype.itemsize == 8 and own.size and max(
        -int(own.min()), int(own.max())) > _WIDE  # fmt: skip
    found = np.dtype(np.float64) if own.dtype.kind in "iu" else own.dtype.newbyteorder("=")
    pieces = exact.halves(own) if is_wide else [own.astype(found, copy=False)]
    return [p if p.shape == array.shape else np.broadcast_to(p, array.shape) for p in pieces]
