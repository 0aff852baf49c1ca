"""Sums by the processors: strategies ``numpy``, ``cpu`` and ``exact``."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.core import exact
from gpureduce.core.arrays import add_pieces, is_flat, joined
from gpureduce.core.dtypes import Array, Conversion, load_of, quietly
from gpureduce.core.request import Request
from gpureduce.core.results import Outcome


def add(request: Request, array: Array, into: _host.Exact | None = None) -> Outcome:
    """The sum of a host array; an exact one is also added to `into`, before it is rounded."""
    if request.strategy.name == "numpy":
        return _by_numpy(request, array)
    if request.strategy.name == "cpu":
        return _by_cpu(request, array)
    total = into or exact.new(request.conversion.result)
    ms = exact.feed(total, array)
    return _outcome(exact.value(total, request.conversion.result), ms, "cpu")


def _outcome(value: object, ms: float, backend: str, pieces: int = 1) -> Outcome:
    return Outcome(value, "perf_counter", backend, "cpu", kernel_ms=ms, pieces=pieces)


def _is_read_in_place(conversion: Conversion, array: Array) -> bool:
    """Whether C reads the elements as they lie, with gaps or swapped bytes."""
    complex_too = array.dtype.kind == "c"
    as_it_is = conversion.cast is None and conversion.is_complex == complex_too
    return as_it_is and bool(array.size) and not is_flat(array)


def _in_place(conversion: Conversion, array: Array) -> Outcome:
    """The sum along all axes, whose code copies a few elements at a time, by threads."""
    result = conversion.result
    initial: Any = 0 if result.kind in "iu" else ((), ())
    parts = 2 if result.kind == "c" else 1
    details = (
        load_of(array.dtype), conversion.acc, parts, load_of(result), result, None, None, initial
    )  # fmt: skip
    axes = tuple(range(array.ndim))
    return _outcome(*_host.sum_axis(array, axes, False, False, None, details), "cpu")


def _rounds_between(array: Array, result: np.dtype[np.generic]) -> bool:
    """Whether NumPy rounds partial sums to `result`, a 16-bit float.

    It adds up bfloat16 in bfloat16. It adds up float16 in float32, but rounds to float16 after each
    row or buffer of an array that is not contiguous or is cast.
    """
    if result.name == "bfloat16":
        return True
    return result == np.float16 and not (array.dtype == result and is_flat(array))


def _by_numpy(request: Request, array: Array) -> Outcome:
    start = time.perf_counter()
    result = request.conversion.result
    if _rounds_between(array, result):
        total = np.sum(array, dtype=np.float32)
        value = quietly(total.astype, result)
    else:
        value = np.sum(array, dtype=result)
    return _outcome(value, (time.perf_counter() - start) * 1e3, "numpy")


def _by_cpu(request: Request, array: Array) -> Outcome:
    times: list[float] = []
    conversion = request.conversion
    if _is_read_in_place(conversion, array):
        return _in_place(conversion, array)

    def add_one(piece: Array) -> bytes:
        bits, ms = _host.cpu_sum(piece, conversion.load, conversion.acc, 1, 0)
        times.append(ms)
        return bits

    if array.dtype.kind == "c" and conversion.cast is None and is_flat(array):
        flat = array.reshape(-1, order="A")
        bits, ms = _host.cpu_sum(flat, conversion.load, conversion.acc, 2, 0)
        half = len(bits) // 2
        parts = conversion.value(bits[:half]), conversion.value(bits[half:])
        return _outcome(joined(conversion, *parts), ms, "cpu")
    value = add_pieces(array, conversion, add_one)
    return _outcome(value, sum(times), "cpu", len(times))
