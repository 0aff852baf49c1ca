"""Sums along axes: from arguments to a result that is an array.

`add` decides where a sum runs. axis_on_host.py adds up host arrays by the processors.
"""

from __future__ import annotations

import time
from typing import cast

import numpy as np
import numpy.typing as npt

from gpureduce.core import arrays, axis_on_host, dtypes, results
from gpureduce.core.checks import one_of
from gpureduce.core.host_dlpack import HOST_DEVICES, device_type
from gpureduce.core.reduction import Reduction
from gpureduce.core.request import Arguments, Request, resolve, strategy_of
from gpureduce.core.results import SumResult, Timing

RESULTS = ("host", "device")


def add(asked: Arguments, arr: npt.ArrayLike, how: Reduction) -> SumResult:
    """The sums of an array along some of its axes."""
    start = time.perf_counter()
    strategy = strategy_of(asked.strategy, asked.allow_broken)
    result = one_of("result", how.result, RESULTS)
    if _lies_on_a_gpu(arr):
        raise _not_yet("an array on a GPU")
    array = arrays.as_array(arr)
    if result == "device":
        raise ValueError(
            "result='device' leaves the sum of an array on a GPU there; this array is in host "
            "memory, and so is its sum: leave result out"
        )
    if asked.stream is not None:
        raise ValueError("stream is for arrays on a GPU; this one is in host memory")
    request = resolve(asked, strategy, array.dtype)
    if not request.on_host:
        by = strategy.name if asked.device is None else f"{strategy.name} on {asked.device}"
        raise _not_yet(by)
    outcome = axis_on_host.add(request, array, how)
    if not asked.timing:
        return SumResult(outcome.value, cast(Timing, None))
    return SumResult(outcome.value, _timing(request, array, outcome, start))


def _lies_on_a_gpu(arr: object) -> bool:
    if isinstance(arr, np.ndarray):
        return False
    device = device_type(arr)
    on_device = device is not None and device not in HOST_DEVICES
    return on_device or hasattr(arr, "__cuda_array_interface__")


def _not_yet(what: str) -> TypeError:
    """The error for all that only the processors' sums can do so far."""
    return TypeError(
        f"axis, keepdims, initial, where and out are not for {what}: so far they are for arrays "
        "in host memory, by exact, cpu, numpy or auto"
    )


def _timing(
    request: Request, array: dtypes.Array, outcome: axis_on_host.Outcome, start: float
) -> Timing:
    name = request.strategy.name
    backend = "numpy" if name == "numpy" else "cpu"
    how = results.Outcome(
        None, "perf_counter", backend, "cpu", kernel_ms=outcome.ms, pieces=outcome.pieces
    )
    return how.timing(
        name,
        dtypes.name_of(array.dtype),
        request.strategy.finishes[0],
        array.size,
        array.size * array.dtype.itemsize,
        (time.perf_counter() - start) * 1e3,
    )
