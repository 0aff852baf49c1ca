"""Sums along axes of host arrays, by the processors: strategies ``numpy``, ``cpu``, ``exact``."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from gpureduce import _host
from gpureduce.core import arrays, exact, reduction
from gpureduce.core.dtypes import Array, load_of, number_of, part_of, quietly
from gpureduce.core.reduction import Reduction
from gpureduce.core.request import Request
from gpureduce.core.results import Outcome


class _Sums(NamedTuple):
    """The sums, the milliseconds of the additions, and the pieces that were added up in turn."""

    value: Any
    ms: float
    pieces: int = 1


class _Job(NamedTuple):
    """A checked call."""

    request: Request
    array: Array
    axes: tuple[int, ...]
    keepdims: bool
    shape: tuple[int, ...]
    mask: Array | None
    out: Array | None
    initial: Any  # an int, or two tuples of floats: _host.sum_axis


def add(request: Request, array: Array, how: Reduction) -> Outcome:
    """The sums of a host array."""
    array = array.view()  # user code that runs from here on may reshape the caller's object
    result = request.conversion.result
    arguments = reduction.checked(how, array, result)
    initial: Any
    if result.kind in "iu":
        initial = reduction.initial_integer(how.initial, result)
    else:
        initial = tuple(map(tuple, reduction.initial_floats(how.initial, result)))
    job = _Job(request, array, *arguments, initial)
    found = _add(job)
    value = found.value if job.out is None else how.out
    backend = "numpy" if request.strategy.name == "numpy" else "cpu"
    return Outcome(value, "perf_counter", backend, "cpu", kernel_ms=found.ms, pieces=found.pieces)


def _add(job: _Job) -> _Sums:
    if job.request.strategy.name == "numpy":
        return _by_numpy(job)
    cast = _cast_of(job)
    if cast is None:
        return _Sums(*_by_c(job, job.array, job.axes, job.keepdims, job.out, job.mask))
    return _by_pieces(job, cast)


def _by_numpy(job: _Job) -> _Sums:
    """By numpy.sum. Sums of 16-bit floats are rounded once, at the end."""
    result, out = job.request.conversion.result, job.out
    start = time.perf_counter()
    half = result.itemsize == 2 and result.kind not in "iu"
    keywords: dict[str, Any] = {} if job.mask is None else {"where": job.mask}
    initial = job.initial
    if result.kind not in "iu":
        initial = reduction.initial_number(initial, result)
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


def _cast_of(job: _Job) -> np.dtype[Any] | None:
    """The dtype that elements are converted to before C reads them; None if C reads them."""
    conversion, source = job.request.conversion, job.array.dtype
    if conversion.is_complex and source.kind != "c":
        exactly = job.request.strategy.name == "exact"
        return np.dtype(np.complex128) if exactly else conversion.result
    if job.request.strategy.name == "exact":
        return np.dtype(np.float64) if source.kind in "biu" else None
    if conversion.cast is None or not conversion.is_complex:
        return conversion.cast
    return conversion.result


def _by_c(
    job: _Job, array: Array, axes: tuple[int, ...], keepdims: bool, out: Array | None,
    mask: Array | None, initial: Any = None,
) -> tuple[Any, float]:  # fmt: skip
    """The sums of elements that C reads, and milliseconds."""
    result = job.request.conversion.result
    exactly = job.request.strategy.name == "exact"
    acc = _host.ACC_F64 if exactly else job.request.conversion.acc
    components = 2 if array.dtype.kind == "c" else 1
    initial = job.initial if initial is None else initial
    details = (load_of(array.dtype), acc, components, load_of(result), result, out, mask, initial)
    return _host.sum_axis(array, axes, keepdims, exactly, None, details)


# --- elements that are converted first ---------------------------------------------------------


def _by_pieces(job: _Job, cast: np.dtype[Any]) -> _Sums:
    """The sums of converted elements, of which arrays.PACK_ELEMENTS are in memory at once."""
    out = np.empty(job.shape, job.request.conversion.result) if job.out is None else job.out
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
        more_ms, more = _add_part(job, cast, array[to], sums[to], some)
        ms += more_ms
        pieces += more
    return _Sums(out if job.out is not None or out.ndim else out[()], ms, pieces)


def _converted(array: Array, mask: Array | None, cast: np.dtype[Any]) -> tuple[Array, Array | None]:
    """The elements in dtype `cast`. Wide integers are halved: exact sums add them as two floats."""
    if (
        cast in (np.float64, np.complex128)
        and array.dtype.kind in "iu"
        and array.dtype.itemsize > 4
        and array.size
    ):
        whole = array.astype(array.dtype.newbyteorder("="))
        low = (whole & whole.dtype.type(0xFFFFFFFF)).astype(np.float64)
        high = (whole >> whole.dtype.type(32)).astype(np.float64) * 2.0**32
        halves = np.stack([low, high], axis=-1).astype(cast)
        return halves, None if mask is None else np.broadcast_to(mask[..., None], halves.shape)
    return quietly(array.astype, cast, order="K"), mask


def _add_part(
    job: _Job, cast: np.dtype[Any], array: Array, sums: Array, mask: Array | None
) -> tuple[float, int]:
    """Stores the sums of the last dimensions of a part. Returns milliseconds and pieces."""
    if array.size <= arrays.PACK_ELEMENTS:
        return _store_sums(job, cast, array, sums, mask, job.initial), 1
    return _add_long(job, cast, array, sums, mask)


def _store_sums(
    job: _Job, cast: np.dtype[Any], array: Array, sums: Array, mask: Array | None, initial: Any
) -> float:
    if job.request.strategy.name != "exact" and array.dtype.itemsize > 4:
        converted = quietly(array.astype, cast, order="K")  # rounded, as numpy.sum does
    else:
        converted, mask = _converted(array, mask, cast)
    axes = tuple(range(sums.ndim, converted.ndim))
    return _by_c(job, converted, axes, False, sums, mask, initial)[1]


def _store_sum(
    sums: Array, total: Any, first: Any, acc: np.dtype[Any], result: np.dtype[Any]
) -> None:
    sums[...] = np.asarray(acc.type(total + first)).astype(result)


def _add_long(
    job: _Job, cast: np.dtype[Any], array: Array, sums: Array, mask: Array | None
) -> tuple[float, int]:
    """One sum of more elements than are converted at once."""
    result = job.request.conversion.result
    one: Any = (*(0,) * sums.ndim, ...)
    array = array[one]
    mask = None if mask is None else mask[one]
    ms, pieces = 0.0, 0
    exactly = job.request.strategy.name == "exact"
    total = exact.new(result)
    acc = part_of(result) if exactly else number_of(job.request.conversion.acc)
    acc = np.result_type(acc, np.complex64) if job.request.conversion.is_complex else acc
    rounded = acc.type(0)
    for where in arrays.parts(array.shape, array.ndim):
        some = None if mask is None else mask[where]
        if exactly:
            converted, some = _converted(array[where], some, cast)
            if some is not None:
                converted = np.where(some, converted, converted.dtype.type(0))
            parts = 2 if converted.dtype.kind == "c" else 1
            flat = np.ascontiguousarray(converted).reshape(-1)
            ms += total.add(flat, load_of(flat.dtype), parts, True, 0)
        else:
            one = np.empty((), result)
            ms += _store_sums(job, cast, array[where], one, some, ((), ()))
            rounded = quietly(lambda a, b: acc.type(a + b), rounded, one[()])
        pieces += 1
    if exactly:
        for part, terms in enumerate(job.initial):
            for term in terms:
                pair = np.array([term, 0.0] if part == 0 else [0.0, term])
                total.add(pair[:1] if result.kind != "c" else pair.view(np.complex128),
                          _host.LOAD_F64, 2 if result.kind == "c" else 1, False, 0)  # fmt: skip
        sums[...] = exact.value(total, result)
    else:
        first = reduction.initial_number(job.initial, result)
        quietly(_store_sum, sums, rounded, acc.type(first), acc, result)
    return ms, pieces
