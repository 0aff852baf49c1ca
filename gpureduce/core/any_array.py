"""Sums of any array with any arguments, from arguments to result: of all elements, or along axes.

`add` decides where a sum runs: on the processors (run_host.py), by kernels, or by both.
"""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import (
    arrays,
    calibration,
    devices,
    dtypes,
    gpu_arrays,
    on_device,
    on_several,
    run_host,
    timedeltas,
)
from gpureduce.core.checks import no_stream, one_of
from gpureduce.core.devices import LEAST_SHARED_BYTES
from gpureduce.core.groups import Reduction
from gpureduce.core.plan import Arguments, placed_on_several, resolve, strategy_of
from gpureduce.core.results import SumResult
from gpureduce.lazy_import import load

RESULTS = ("host", "device")


def add(
    call: Arguments, arr: npt.ArrayLike, how: Reduction | None = None,
    into: _host.Exact | None = None,
) -> SumResult:  # fmt: skip
    """The sum of all elements, or the reduction that `how` describes.

    An exact sum of a host array is also added to `into`, unrounded.
    """
    start = time.perf_counter()
    strategy = strategy_of(call.strategy, call.allow_broken)
    result = "host" if how is None else one_of("result", how.result, RESULTS)
    several = devices.several(call.device)
    if several and how is not None:
        raise ValueError(
            "with axis, initial, where or out, a sum runs on one device: pass one device; "
            "gpureduce.sum_parts sums slices of an array along axes on several devices"
        )
    if several:
        call = placed_on_several(call, arr, several)
    elif how is not None and arrays.lies_on_a_gpu(arr):
        add_gpu = load("core.axis_on_device").add_gpu  # imported when it is first used
        return cast(SumResult, add_gpu(call, strategy, arr, how, start))
    elif how is None and not isinstance(arr, np.ndarray):
        found = gpu_arrays.add(call, strategy, arr)
        if found is not None:
            return found
    array = arrays.as_array(arr)
    if result == "device":
        raise ValueError(
            "result='device' is only for arrays on a GPU, and this array is in host memory: leave "
            "result out"
        )
    no_stream(call.stream)
    if array.dtype.kind == "m":
        return _add_timedeltas(call, array, how, into)
    if how is not None:
        plan = resolve(call, strategy, array.dtype, _host.AXES)
        if plan.on_host:
            outcome = run_host.add_along_axes(plan, array, how)
        else:
            outcome = load("core.axis_on_device").add_host(plan, array, how)
        outcome.fields["initial"] = bool(how.initial)
        return plan.finished(outcome, array.size, array.dtype, start)
    if strategy.name == "auto" and call.device is None and array.nbytes >= LEAST_SHARED_BYTES:
        device, with_processors = calibration.way_for(array.nbytes)
        call = call._replace(device=device)
        several = [None, devices.choose_device(device)] if with_processors else None
    plan = resolve(call, strategy, array.dtype)
    if several:
        outcome = on_several.add(plan, array, several, into)
    elif plan.on_host:
        outcome = run_host.add(plan, array, into)
    else:
        chosen = devices.choose_device(plan.device, or_cpu=True)
        outcome = on_device.add(plan, array, chosen, into)
    return plan.finished(outcome, array.size, array.dtype, start)


def _add_timedeltas(
    call: Arguments, array: dtypes.Array, how: Reduction | None, into: _host.Exact | None
) -> SumResult:
    given = how or Reduction()

    def add_integers(integers: dtypes.Array, initial: int, out: Any) -> SumResult:
        along = how and how._replace(initial=initial, out=out)
        return add(call._replace(dtype=None), integers, along, into)

    return timedeltas.add(array, call.dtype, given.initial, given.out, add_integers)
