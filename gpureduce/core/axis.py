"""Sums along axes: from arguments to a result that is an array.

`add` decides where a sum runs: on the processors (axis_on_host.py) or by kernels
(axis_on_device.py).
"""

from __future__ import annotations

import time
from typing import cast

import numpy as np
import numpy.typing as npt

from gpureduce.core import arrays, axis_on_device, axis_on_host, dtypes
from gpureduce.core.checks import one_of
from gpureduce.core.host_dlpack import HOST_DEVICES, device_type
from gpureduce.core.reduction import Reduction
from gpureduce.core.request import Arguments, resolve, strategy_of
from gpureduce.core.results import SumResult, Timing

RESULTS = ("host", "device")


def add(asked: Arguments, arr: npt.ArrayLike, how: Reduction) -> SumResult:
    """The sums of an array along some of its axes."""
    start = time.perf_counter()
    strategy = strategy_of(asked.strategy, asked.allow_broken)
    result = one_of("result", how.result, RESULTS)
    if _lies_on_a_gpu(arr):
        return axis_on_device.add_gpu(asked, strategy, arr, how, start)
    array = arrays.as_array(arr)
    if result == "device":
        raise ValueError(
            "result='device' leaves the sum of an array on a GPU there; this array is in host "
            "memory, and so is its sum: leave result out"
        )
    if asked.stream is not None:
        raise ValueError("stream is for arrays on a GPU; this one is in host memory")
    request = resolve(asked, strategy, array.dtype)
    if request.on_host:
        outcome, finish = axis_on_host.add(request, array, how), request.strategy.finishes[0]
    else:
        outcome = axis_on_device.add_host(request, array, how)
        finish = axis_on_device.finish_of(outcome.launches)
    if not asked.timing:
        return SumResult(outcome.value, cast(Timing, None))
    total_ms = (time.perf_counter() - start) * 1e3
    name = dtypes.name_of(array.dtype)
    nbytes = array.size * array.dtype.itemsize
    timing = outcome.timing(request.strategy.name, name, finish, array.size, nbytes, total_ms)
    return SumResult(outcome.value, timing)


def _lies_on_a_gpu(arr: object) -> bool:
    if isinstance(arr, np.ndarray):
        return False
    device = device_type(arr)
    on_device = device is not None and device not in HOST_DEVICES
    return on_device or hasattr(arr, "__cuda_array_interface__")
