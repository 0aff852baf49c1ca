"""Sums of any array with any arguments: from arguments to result."""

from __future__ import annotations

import time
from collections.abc import Sequence

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
    on_host,
    on_several,
    timedeltas,
)
from gpureduce.core.devices import LEAST_SHARED_BYTES
from gpureduce.core.plan import Arguments, Plan, placed_on_several, resolve, strategy_of
from gpureduce.core.results import Outcome, SumResult


def add(call: Arguments, arr: npt.ArrayLike, into: _host.Exact | None = None) -> SumResult:
    """The sum of an array; an exact one of a host array is also added to `into`, unrounded."""
    start = time.perf_counter()
    strategy = strategy_of(call.strategy, call.allow_broken)
    several = devices.several(call.device)
    if several:
        call = placed_on_several(call, arr, several)
    elif not isinstance(arr, np.ndarray):
        result = gpu_arrays.add(call, strategy, arr)
        if result is not None:
            return result
    array = arrays.as_array(arr)
    if call.stream is not None:
        raise ValueError("stream is for arrays on a GPU; this one is in host memory")
    if array.dtype.kind == "m":
        how = call._replace(dtype=None)
        add_integers = lambda integers, *_: add(how, integers, into)  # noqa: E731
        return timedeltas.add(array, call.dtype, 0, None, add_integers, np.any)
    if strategy.name == "auto" and call.device is None and array.nbytes >= LEAST_SHARED_BYTES:
        device, with_processors = calibration.way_for(array.nbytes)
        call = call._replace(device=device)
        several = [None, devices.choose_device(device)] if with_processors else None
    plan = resolve(call, strategy, array.dtype)
    return plan.finished(_add_host_array(plan, array, several, into), array, start)


def _add_host_array(
    plan: Plan,
    array: dtypes.Array,
    several: Sequence[devices.Device | None] | None,
    into: _host.Exact | None,
) -> Outcome:
    if several:
        return on_several.add(plan, array, several, into)
    if plan.on_host:
        return on_host.add(plan, array, into)
    device = devices.choose_device(plan.device, or_cpu=True)
    return on_device.add(plan, array, device, into)
