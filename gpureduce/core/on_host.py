"""Sums by the processors: strategies ``numpy``, ``cpu`` and ``exact``."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.core import exact
from gpureduce.core.arrays import add_pieces, is_flat
from gpureduce.core.dtypes import Array, Conversion, line_of, number_of, quietly
from gpureduce.core.plan import Plan
from gpureduce.core.results import Outcome, ran_on


def add(plan: Plan, array: Array, into: _host.Exact | None = None) -> Outcome:
    """The sum of a host array; an exact one is also added to `into`, before it is rounded."""
    if plan.strategy.name == "numpy":
        return _by_numpy(plan, array)
    if plan.strategy.name == "cpu":
        return _by_cpu(plan, array)
    total = into or exact.new(plan.conversion.result)
    ms = exact.feed(total, array)
    return outcome(exact.value(total, plan.conversion.result), ms)


def outcome(value: object, ms: float, backend: str = "cpu", pieces: int = 1) -> Outcome:
    """The outcome of a sum by the processors."""
    return Outcome(value, ran_on(None, backend=backend, kernel_ms=ms, pieces=pieces))


def by_c(
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


def _by_numpy(plan: Plan, array: Array) -> Outcome:
    start = time.perf_counter()
    result = plan.conversion.result
    if _rounds_between(array, result):
        total = np.sum(array, dtype=np.float32)
        value = quietly(total.astype, result)
    else:
        value = np.sum(array, dtype=result)
    return outcome(value, (time.perf_counter() - start) * 1e3, "numpy")


def _by_cpu(plan: Plan, array: Array) -> Outcome:
    how = plan.conversion
    if how.elements is None and how.is_complex == (array.dtype.kind == "c"):
        return outcome(*by_c(how, array))
    times: list[float] = []
    unrounded = Conversion(None, how.load, how.acc, number_of(how.acc))

    def add_one(piece: Array) -> bytes:
        value, ms = by_c(unrounded, piece)
        times.append(ms)
        return bytes(value.tobytes())

    value = add_pieces(array, how, add_one)
    return outcome(value, sum(times), "cpu", len(times))
