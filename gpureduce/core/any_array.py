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
from gpureduce.core.request import Arguments, Request, placed_on_several, resolve, strategy_of
from gpureduce.core.results import Outcome, SumResult, Timing


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
    request = resolve(call, strategy, array.dtype)
    outcome = _add_host_array(request, array, several, into)
    if not call.timing:
        return SumResult(outcome.value, None)
    return SumResult(outcome.value, _timing(request, array, outcome, start))


def _add_host_array(
    request: Request,
    array: dtypes.Array,
    several: Sequence[devices.Device | None] | None,
    into: _host.Exact | None,
) -> Outcome:
    if several:
        return on_several.add(request, array, several, into)
    if request.on_host:
        return on_host.add(request, array, into)
    device = devices.choose_device(request.device, or_cpu=True)
    return on_device.add(request, array, device, into)


def _timing(request: Request, array: dtypes.Array, outcome: Outcome, start: float) -> Timing:
    return outcome.timing(
        request.strategy.name,
        dtypes.name_of(array.dtype),
        request.finish or request.strategy.finishes[0],
        array.size,
        array.size * array.dtype.itemsize,
        (time.perf_counter() - start) * 1e3,
    )
