"""Sums by the processors: strategies ``numpy``, ``cpu`` and ``exact``.

`add` is for whole arrays, `add_along_axes` and `add_by_segment` for others.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.core import arrays, exact, groups
from gpureduce.core.arrays import is_flat
from gpureduce.core.dtypes import Array, Conversion, is_half, line_of, quietly
from gpureduce.core.groups import Reduction, Segments
from gpureduce.core.plan import Plan
from gpureduce.core.results import Outcome, ran_on


def add(plan: Plan, array: Array, into: _host.Exact | None = None) -> Outcome:
    """The sum of a host array; an exact one is also added to `into`, before it is rounded."""
    result = plan.conversion.result
    if plan.strategy.name == "numpy":
        return _outcome(*_by_numpy(array, result, _rounds_between(array, result)), "numpy")
    if plan.strategy.name == "cpu":
        return _by_cpu(plan, array)
    total = into or exact.new(result)
    ms = exact.feed(total, array)
    return _outcome(exact.value(total, result), ms)


def _outcome(value: object, ms: float, backend: str = "cpu", pieces: int = 1) -> Outcome:
    return Outcome(value, ran_on(None, backend=backend, kernel_ms=ms, pieces=pieces))


def _by_c(
    how: Conversion, array: Array, axes: tuple[int, ...] | None = None, keepdims: bool = False,
    out: Array | None = None, mask: Array | None = None, initial: Any = None,
) -> tuple[Any, float]:  # fmt: skip
    """Sums along axes of elements that C reads where they lie, and milliseconds."""
    if initial is None:
        initial = 0 if how.result.kind in "iu" else ((), ())
    details = (
        line_of(array.dtype), line_of(how.result), how.result, out, mask, initial
    )  # fmt: skip
    return _host.sum_axis(array, axes, keepdims, how.exactly, None, details)


def _rounds_between(array: Array, result: np.dtype[np.generic]) -> bool:
    """Whether NumPy rounds partial sums to `result`, a 16-bit float.

    It adds up bfloat16 in bfloat16. It adds up float16 in float32, but rounds to float16 after each
    row or buffer of an array that is not contiguous or is cast.
    """
    if result.name == "bfloat16":
        return True
    return result == np.float16 and not (array.dtype == result and is_flat(array))


def _by_numpy(
    array: Array, result: np.dtype[Any], half: bool, out: Array | None = None, **how: Any
) -> tuple[Any, float]:
    """Sums by numpy.sum, and milliseconds. With `half`, rounds to 16 bits once, at the end."""
    start = time.perf_counter()
    if not half:
        total = np.sum(array, dtype=result, out=out, **how)
    else:
        total = quietly(np.sum(array, dtype=np.float32, **how).astype, result)
        if out is not None:
            out[...] = total
    return total, (time.perf_counter() - start) * 1e3


def _by_cpu(plan: Plan, array: Array) -> Outcome:
    how = plan.conversion
    if how.elements is None and how.is_complex == (array.dtype.kind == "c"):
        return _outcome(*_by_c(how, array))
    every = groups.Checked(tuple(range(array.ndim)), False, (), None, None)
    value, ms, pieces = _by_pieces(how, array, every, groups.initial_terms(0, how.result))
    return _outcome(value, ms, "cpu", pieces)


# --- along axes --------------------------------------------------------------------------------


def add_along_axes(plan: Plan, array: Array, how: Reduction) -> Outcome:
    """The sums of a host array along axes."""
    array = array.view()  # user code that runs from here on may reshape the caller's object
    conversion, result, backend, pieces = plan.conversion, plan.conversion.result, "cpu", 1
    job = groups.checked(how, array, result)
    initial = groups.initial_terms(how.initial, result)
    if plan.strategy.name == "numpy":
        some: dict[str, Any] = {} if job.mask is None else {"where": job.mask}
        some |= {"axis": job.axes, "keepdims": job.keepdims}
        some["initial"] = groups.initial_number(initial, result)
        value, ms = _by_numpy(array, result, is_half(result), job.out, **some)
        backend = "numpy"
    elif conversion.elements is None:
        value, ms = _by_c(conversion, array, job.axes, job.keepdims, job.out, job.mask, initial)
    else:
        value, ms, pieces = _by_pieces(conversion, array, job, initial)
    return _outcome(value if job.out is None else how.out, ms, backend, pieces)


def _by_pieces(
    how: Conversion, array: Array, job: groups.Checked, initial: Any
) -> tuple[Any, float, int]:
    """The sums of converted elements, of which arrays.PACK_ELEMENTS are in memory at once.

    Also returns milliseconds, and the pieces that were added up in turn.
    """
    out = np.empty(job.shape, how.result) if job.out is None else job.out
    # Without dimensions of size 1: an array of 64 dimensions has some, and _converted() adds one.
    kept = [i for i in range(array.ndim) if i not in job.axes]
    wide = [i for i, size in enumerate(array.shape) if size != 1]
    order = tuple(wide.index(i) for i in (*kept, *job.axes) if i in wide)
    array = array.squeeze().transpose(order)
    mask = None if job.mask is None else job.mask.squeeze().transpose(order)
    sums: Array = out.squeeze()
    ms, pieces = 0.0, 0
    for where in arrays.parts(array.shape, sums.ndim):
        to: Any = (*where, ...)  # a view also where it is of one sum
        some = None if mask is None else mask[to]
        more_ms, more = _add_part(how, array[to], sums[to], some, initial)
        ms += more_ms
        pieces += more
    return out if job.out is not None or out.ndim else out[()], ms, pieces


def _converted(how: Conversion, array: Array, mask: Array | None) -> tuple[Array, Array | None]:
    """The elements as C reads them. Integers may become two floats each, along a last axis."""
    if not how.halves or not array.size:
        return quietly(array.astype, how.elements or how.result, order="K"), mask
    halves = np.stack(exact.halves(array), axis=-1).astype(how.elements)
    return halves, None if mask is None else np.broadcast_to(mask[..., None], halves.shape)


def _add_part(
    how: Conversion, array: Array, sums: Array, mask: Array | None, initial: Any
) -> tuple[float, int]:
    """Stores the sums of the last dimensions of a part. Returns milliseconds and pieces."""
    if array.size <= arrays.PACK_ELEMENTS:
        converted, mask = _converted(how, array, mask)
        axes = tuple(range(sums.ndim, converted.ndim))
        return _by_c(how, converted, axes, False, sums, mask, initial)[1], 1
    one: Any = (*(0,) * sums.ndim, ...)  # the only sum
    return _add_long(how, array[one], sums, None if mask is None else mask[one], initial)


def _add_long(
    how: Conversion, array: Array, sums: Array, mask: Array | None, initial: Any
) -> tuple[float, int]:
    """One sum of more elements than are converted at once, rounded once."""
    real, imaginary = initial
    first = np.zeros(len(real) + len(imaginary), np.complex128 if imaginary else np.float64)
    first.real[: len(real)] = real
    if imaginary:
        first.imag[len(real) :] = imaginary
    total = exact.new(how.result)
    ms, pieces = exact.feed(total, first), 0
    for where in arrays.parts(array.shape, array.ndim):
        some = array[where]
        if mask is not None:
            some = np.where(mask[where], some, some.dtype.type(0))
        if not how.exactly:
            some = _converted(how, some, None)[0]
        ms += exact.feed(total, some)
        pieces += 1
    sums[...] = exact.value(total, how.result)
    return ms, pieces


# --- by segment --------------------------------------------------------------------------------


def add_by_segment(plan: Plan, array: Array, segments: Segments) -> Outcome:
    """The sums of a host array by segment."""
    result = plan.conversion.result
    first = groups.initial_terms(0 if segments.initial is None else segments.initial, result)
    start = time.perf_counter()
    sums = segments.sums_of(array, result)
    if plan.strategy.name == "numpy":
        _add_at(sums, array, segments, groups.initial_number(first, result))
        ms, name = (time.perf_counter() - start) * 1e3, "numpy"
    else:
        ms, name = store_by_segment(sums, array, segments, result, first), "cpu"
    ran = "exact" if plan.conversion.exactly and name == "cpu" else name
    fields = ran_on(None, backend=name, kernel_ms=ms, strategy=ran, finish="single")
    return Outcome(sums, fields)


def store_by_segment(
    sums: Array, array: Array, segments: Segments, result: np.dtype[Any], first: Any
) -> float:
    """Stores the sums, of dtype `result`, or their digits if `sums` has one more axis for these.

    Returns milliseconds.
    """
    how: Any = line_of(array.dtype), line_of(result), first, segments.sizes is not None
    ms, bad = _host.sum_segments(array, segments.ids, segments.offsets, sums, *how)
    if bad >= 0:
        raise segments.wrong_id(len(array), bad)
    return ms


def counts_by_segment(segments: Segments, rows: int) -> Array:
    """The number of rows of each segment. Checks ids."""
    if segments.sizes is not None:
        return np.asarray(segments.sizes)
    if segments.ids is None:
        return np.diff(segments.offsets)
    counts = segments.empty((segments.size,), np.dtype(np.int64))
    store_by_segment(counts, np.broadcast_to(np.True_, rows), segments, counts.dtype, 0)
    return counts


def _add_at(sums: Array, array: Array, segments: Segments, initial: Any) -> None:
    """By numpy.add.at. Sums of 16-bit floats are added in float32 and rounded once."""
    total = np.full(sums.shape, initial, np.float32 if is_half(sums.dtype) else sums.dtype)
    step = max(1, arrays.PACK_ELEMENTS // max(1, math.prod(array.shape[1:])))
    for first in range(0, len(array), step):  # in between, signals are handled
        some = array[first : first + step]
        ids = segments.ids_of(first, len(some))
        quietly(np.add.at, total, ids, some.astype(total.dtype, copy=False))
    sums[...] = quietly(total.astype, sums.dtype)
