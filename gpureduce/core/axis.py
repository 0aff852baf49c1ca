"""Sums along axes: from arguments to a result that is an array.

`add` decides where a sum runs: on the processors (axis_on_host.py) or by kernels
(axis_on_device.py).
"""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import (
    arrays,
    axis_on_device,
    axis_on_host,
    devices,
    dtypes,
    timedeltas,
)
from gpureduce.core.checks import one_of
from gpureduce.core.groups import Reduction
from gpureduce.core.plan import Arguments, resolve, strategy_of
from gpureduce.core.results import SumResult

RESULTS = ("host", "device")


def add(call: Arguments, arr: npt.ArrayLike, how: Reduction) -> SumResult:
    """The sums of an array along some of its axes."""
    start = time.perf_counter()
    strategy = strategy_of(call.strategy, call.allow_broken)
    result = one_of("result", how.result, RESULTS)
    if devices.several(call.device):
        raise ValueError(
            "device must name one device with axis, initial, where or out; gpureduce.sum_parts "
            "adds up slices of an array along axes on several devices"
        )
    if arrays.lies_on_a_gpu(arr):
        return axis_on_device.add_gpu(call, strategy, arr, how, start)
    array = arrays.as_array(arr)
    if result == "device":
        raise ValueError(
            "result='device' leaves the sum of an array on a GPU there; this array is in host "
            "memory, and so is its sum: leave result out"
        )
    if call.stream is not None:
        raise ValueError("stream is for arrays on a GPU; this one is in host memory")
    if array.dtype.kind == "m":
        some: Any = {"axis": how.axis, "keepdims": how.keepdims, "where": how.where}

        def add_integers(integers: dtypes.Array, initial: int, out: Any) -> SumResult:
            return add(
                call._replace(dtype=None), integers, Reduction(**some, initial=initial, out=out)
            )

        any_of = functools.partial(np.any, **some)
        return timedeltas.add(array, call.dtype, how.initial, how.out, add_integers, any_of)
    plan = resolve(call, strategy, array.dtype, _host.AXES)
    add_host = axis_on_host.add if plan.on_host else axis_on_device.add_host
    outcome = add_host(plan, array, how)
    outcome.fields["initial"] = bool(how.initial)
    return plan.finished(outcome, array, start)
