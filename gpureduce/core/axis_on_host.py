"""Sums along axes of host arrays, by the processors: strategies ``numpy``, ``cpu``, ``exact``."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from gpureduce.core import arrays, exact, groups
from gpureduce.core.dtypes import Array, number_of, quietly
from gpureduce.core.groups import Reduction
from gpureduce.core.on_host import by_c, outcome
from gpureduce.core.plan import Plan
from gpureduce.core.results import Outcome


class _Sums(NamedTuple):
    """The sums, the milliseconds of the additions, and the pieces that were added up in turn."""

    value: Any
    ms: float
    pieces: int = 1


class _Job(NamedTuple):
    """A checked call."""

    plan: Plan
    array: Array
    axes: tuple[int, ...]
    keepdims: bool
    shape: tuple[int, ...]
    mask: Array | None
    out: Array | None
    initial: Any  # an int, or two tuples of floats: _host.sum_axis


def add(plan: Plan, array: Array, how: Reduction) -> Outcome:
    """The sums of a host array."""
    array = array.view()  # user code that runs from here on may reshape the caller's object
    arguments = groups.checked(how, array, plan.conversion.result)
    initial = groups.initial_terms(how.initial, plan.conversion.result)
    job = _Job(plan, array, *arguments, initial)
    found = _add(job)
    value = found.value if job.out is None else how.out
    backend = "numpy" if plan.strategy.name == "numpy" else "cpu"
    return outcome(value, found.ms, backend, found.pieces)


def _add(job: _Job) -> _Sums:
    if job.plan.strategy.name == "numpy":
        return _by_numpy(job)
    if job.plan.conversion.elements is None:
        return _Sums(*by_c(job.plan.conversion, *job[1:4], job.out, job.mask, job.initial))
    return _by_pieces(job)


def _by_numpy(job: _Job) -> _Sums:
    """By numpy.sum. Sums of 16-bit floats are rounded once, at the end."""
    result, out = job.plan.conversion.result, job.out
    start = time.perf_counter()
    half = result.itemsize == 2 and result.kind not in "iu"
    keywords: dict[str, Any] = {} if job.mask is None else {"where": job.mask}
    initial = job.initial
    if result.kind not in "iu":
        initial = groups.initial_number(initial, result)
    total = np.sum(
        job.array, axis=job.axes, dtype=np.float32 if half else result, keepdims=job.keepdims,
        out=None if half else out, initial=initial, **keywords,
    )  # fmt: skip
    if half:
        total = quietly(total.astype, result)
        if out is not None:
            out[...] = total
            total = out
    return _Sums(total, (time.perf_counter() - start) * 1e3)


# --- elements that are converted first ---------------------------------------------------------


def _by_pieces(job: _Job) -> _Sums:
    """The sums of converted elements, of which arrays.PACK_ELEMENTS are in memory at once."""
    out = np.empty(job.shape, job.plan.conversion.result) if job.out is None else job.out
    # Without dimensions of size 1: an array of 64 dimensions has some, and _converted() adds one.
    kept = [i for i in range(job.array.ndim) if i not in job.axes]
    wide = [i for i, size in enumerate(job.array.shape) if size != 1]
    order = tuple(wide.index(i) for i in (*kept, *job.axes) if i in wide)
    array = job.array.squeeze().transpose(order)
    mask = None if job.mask is None else job.mask.squeeze().transpose(order)
    sums: Array = out.squeeze()
    ms, pieces = 0.0, 0
    for where in arrays.parts(array.shape, sums.ndim):
        to: Any = (*where, ...)  # a view also where it is of one sum
        some = None if mask is None else mask[to]
        more_ms, more = _add_part(job, array[to], sums[to], some)
        ms += more_ms
        pieces += more
    return _Sums(out if job.out is not None or out.ndim else out[()], ms, pieces)


def _converted(job: _Job, array: Array, mask: Array | None) -> tuple[Array, Array | None]:
    """The elements as C reads them. Integers may become two floats each, along a last axis."""
    elements = job.plan.conversion.elements
    if not job.plan.conversion.halves or not array.size:
        return quietly(array.astype, elements, order="K"), mask
    halves = np.stack(exact.halves(array), axis=-1).astype(elements)
    return halves, None if mask is None else np.broadcast_to(mask[..., None], halves.shape)


def _add_part(job: _Job, array: Array, sums: Array, mask: Array | None) -> tuple[float, int]:
    """Stores the sums of the last dimensions of a part. Returns milliseconds and pieces."""
    if array.size <= arrays.PACK_ELEMENTS:
        return _store_sums(job, array, sums, mask, job.initial), 1
    one: Any = (*(0,) * sums.ndim, ...)  # the only sum
    add = _add_exactly if job.plan.conversion.exactly else _add_long
    return add(job, array[one], sums, None if mask is None else mask[one])


def _store_sums(job: _Job, array: Array, sums: Array, mask: Array | None, initial: Any) -> float:
    converted, mask = _converted(job, array, mask)
    axes = tuple(range(sums.ndim, converted.ndim))
    return by_c(job.plan.conversion, converted, axes, False, sums, mask, initial)[1]


def _add_exactly(job: _Job, array: Array, sums: Array, mask: Array | None) -> tuple[float, int]:
    """One exact sum of more elements than are converted at once."""
    result, (real, imaginary) = job.plan.conversion.result, job.initial
    first = np.zeros(len(real) + len(imaginary), np.complex128 if imaginary else np.float64)
    first.real[: len(real)] = real
    if imaginary:
        first.imag[len(real) :] = imaginary
    total = exact.new(result)
    ms, pieces = exact.feed(total, first), 0
    for where in arrays.parts(array.shape, array.ndim):
        some = array[where]
        if mask is not None:
            some = np.where(mask[where], some, some.dtype.type(0))
        ms += exact.feed(total, some)
        pieces += 1
    sums[...] = exact.value(total, result)
    return ms, pieces


def _store_sum(
    sums: Array, total: Any, first: Any, acc: np.dtype[Any], result: np.dtype[Any]
) -> None:
    sums[...] = np.asarray(acc.type(total + first)).astype(result)


def _add_long(job: _Job, array: Array, sums: Array, mask: Array | None) -> tuple[float, int]:
    """One rounded sum of more elements than are converted at once."""
    how, ms, pieces = job.plan.conversion, 0.0, 0
    acc = number_of(how.acc)
    acc = np.result_type(acc, np.complex64) if how.is_complex else acc
    rounded = acc.type(0)
    for where in arrays.parts(array.shape, array.ndim):
        some, one = None if mask is None else mask[where], np.empty((), how.result)
        ms += _store_sums(job, array[where], one, some, ((), ()))
        rounded = quietly(lambda a, b: acc.type(a + b), rounded, one[()])
        pieces += 1
    first = groups.initial_number(job.initial, how.result)
    quietly(_store_sum, sums, rounded, acc.type(first), acc, how.result)
    return ms, pieces
