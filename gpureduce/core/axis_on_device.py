"""Sums along axes by kernels, of arrays on a GPU and of host arrays.

The sums of an array on a GPU lie on the same GPU, in an array of the same library, whose allocator
provides the memory. The launches are put on a stream, and nothing waits for them.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from gpureduce import _host
from gpureduce.core import (
    arrays,
    device_array,
    device_results,
    devices,
    digits,
    dtypes,
    gpu_arrays,
    reduction,
    registry,
)
from gpureduce.core.dtypes import Array
from gpureduce.core.reduction import Reduction
from gpureduce.core.request import CHOOSE, Arguments, Request, launch_sizes
from gpureduce.core.results import Outcome, SumResult, Timing
from gpureduce.core.schedule import current
from gpureduce.lazy_import import load_other


def check_strategy(strategy: registry.Strategy) -> None:
    """Raises if the strategy has no kernel for sums along an axis."""
    if strategy.name not in ("auto", "exact", "fast") and strategy.kind != "axis":
        able = [s.name for s in registry.strategies() if s.kind == "axis"]
        raise ValueError(
            f"{strategy.name} has no kernel for sums along an axis; auto, exact, fast, "
            f"{', '.join(able)} have"
        )


def _number(strategy: registry.Strategy) -> int:
    """The strategy's number for C. Sums of integers are exact however they are made."""
    return CHOOSE if strategy.kind != "axis" else strategy.index


def _name(strategy: registry.Strategy, exactly: bool, ran: int, launches: int) -> str:
    """The strategy for a timing: the kernel that `fast` chose, or what was asked for."""
    if strategy.kind == "axis" or not launches:
        return strategy.name
    return "exact" if exactly else registry.name_at(ran)


def is_exact(strategy: registry.Strategy, result: np.dtype[Any]) -> bool:
    """Whether sums in this dtype are rounded once. Sums of integers are never rounded."""
    if strategy.name == "exact_levels" and not dtypes.is_exact(result):
        raise ValueError("exact_levels adds up floats; sums of integers are exact without it")
    return strategy.name in ("auto", "exact", "exact_levels") and dtypes.is_exact(result)


def _memory_order(steps: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    """The axes that stay, from the one with the largest step in memory to the smallest."""
    kept = [i for i in range(len(steps)) if i not in axes]
    return sorted(kept, key=lambda i: -abs(steps[i]))


def _new_result(
    make: device_results.Make, transpose: device_results.Transpose, shape: tuple[int, ...],
    steps: tuple[int, ...], axes: tuple[int, ...], keepdims: object,
) -> Any:  # fmt: skip
    """An array for the sums, whose order in memory is that of the array's axes that stay."""
    order = _memory_order(steps, axes)
    made = make(tuple(shape[i] for i in order))
    kept = sorted(order)
    if order != kept:
        made = transpose(made, tuple(order.index(i) for i in kept))
    if keepdims and shape:
        made = made[tuple(None if i in axes else slice(None) for i in range(len(shape)))]
    return made


# --- host arrays -------------------------------------------------------------------------------


def _elements(request: Request, source: np.dtype[Any]) -> np.dtype[Any] | None:
    """The dtype that the elements of a host array are converted to; None to leave them."""
    conversion = request.conversion
    to_complex = conversion.is_complex and source.kind != "c"
    if is_exact(request.strategy, conversion.result):
        device_results.refuse_wide(source.kind, source.itemsize)
        if to_complex:
            return np.dtype(np.complex128)
        return np.dtype(np.float64) if source.kind in "biu" else None
    if conversion.is_complex:
        return conversion.result if to_complex or conversion.cast is not None else None
    return conversion.cast


def add_host(request: Request, array: Array, how: Reduction) -> Outcome:
    """The sums of a host array: it is copied to the device, and the sums are copied back."""
    schedule, device = current(), devices.choose_device(request.device)
    module = devices.module_of(device, traced=schedule.traced)
    conversion = request.conversion
    result = conversion.result
    check_strategy(request.strategy)
    job = reduction.checked(how, array, result)
    initial, exactly = (
        device_results.initial_of(how.initial, result),
        is_exact(request.strategy, result),
    )
    array = arrays.without_gaps(array, _elements(request, array.dtype) or array.dtype)
    mask = None if job.mask is None else arrays.without_gaps(job.mask, job.mask.dtype)
    sums = _new_result(
        lambda shape: np.empty(shape, result), np.transpose, array.shape, array.strides,
        job.axes, job.keepdims,
    )  # fmt: skip
    details = (
        conversion.acc, exactly, dtypes.load_of(result), initial, _number(request.strategy),
        request.block, request.grid, schedule.number, schedule.seed, request.timed, False,
    )  # fmt: skip
    kind = "B" if dtypes.is_bfloat16(array.dtype) else array.dtype.kind
    ran, block, grid, launches, ms = module.sum_axis_of_host(
        array, job.mask_of_axes, bool(job.keepdims), sums, mask, kind, device.index, details
    )
    source = "emulator" if device.backend == "emulator" else "cuda_event"
    outcome = Outcome(None, source, device.backend, device.name, peak_gb_s=device.peak_gb_s)
    outcome.strategy = _name(request.strategy, exactly, ran, launches)
    outcome.block, outcome.grid, outcome.launches = block or None, grid or None, launches
    outcome.h2d_ms, outcome.kernel_ms, outcome.d2h_ms = ms or (0.0, 0.0, 0.0)
    if job.out is not None:
        job.out[...] = sums
    outcome.value = how.out if job.out is not None else sums if sums.ndim else sums[()]
    return outcome


# --- arrays on a GPU ---------------------------------------------------------------------------


class _Plan:
    """Tells C, which has read the array's description, where the sums go and how to make them."""

    def __init__(
        self, asked: Arguments, strategy: registry.Strategy, arr: Any, how: Reduction, module: Any
    ) -> None:
        self.asked, self.strategy, self.arr, self.how = asked, strategy, arr, how
        self.library = device_results.library_of(arr, module)
        self.kind, self.nbytes, self.device, self.n = "", 0, 0, 0
        self.value: Any = None
        self.result, self.exactly = "", False

    def __call__(
        self, kind: str, nbytes: int, device: int, shape: tuple[int, ...], steps: tuple[int, ...],
        stream: int,
    ) -> tuple[Any, ...]:  # fmt: skip
        asked, how = self.asked, self.how
        gpu_arrays.check_same_device(asked.device, device)
        self.kind, self.nbytes, self.device = kind, nbytes, device
        self.n = math.prod(shape)
        check_strategy(self.strategy)
        conversion, name = device_results.conversion_of(
            lambda result: is_exact(self.strategy, result), kind, nbytes, asked.dtype
        )
        axes = reduction.reduced_axes(how.axis, len(shape))
        initial = device_results.initial_of(how.initial, conversion.result)
        target = dtypes.load_of(conversion.result) if name != "bfloat16" else _host.LOAD_BF16
        mask = None if how.where is True else _broadcast(how.where, shape)
        out = how.out
        if out is None:
            out = _new_result(
                lambda size: self.library.make(self.arr, size, name, device, stream),
                self.library.transpose, shape, steps, axes, how.keepdims,
            )  # fmt: skip
        else:
            device_results.check_out(
                out, self.arr, name, reduction.shape_of_result(shape, axes, how.keepdims)
            )
        self.value, self.result = out, name
        self.exactly = is_exact(self.strategy, conversion.result)
        block, grid = launch_sizes(asked.block, asked.grid)
        details = (
            conversion.acc, self.exactly, target, initial,
            _number(self.strategy), block, grid, 0, 0, bool(asked.timing), False,
        )  # fmt: skip
        return out, mask, reduction.bits(axes), details


def _broadcast(where: Any, shape: tuple[int, ...]) -> Any:
    """The mask in the array's shape, as a view by its own library."""
    dtype = str(getattr(where, "dtype", "")).rpartition(".")[2]
    if dtype != "bool":
        raise TypeError(
            f"where must be an array of booleans on the same GPU, not {type(where).__name__}"
            + (f" of {dtype}" if dtype else "")
        )
    own = getattr(where, "shape", None)
    if not isinstance(own, tuple):
        raise TypeError(f"where must be an array with a shape, not {type(where).__name__}")
    if own == shape:
        return where
    root = type(where).__module__.partition(".")[0]
    if root not in device_results.LIBRARIES:
        raise ValueError(
            f"where has the shape {tuple(own)}; a mask of {type(where).__name__} must have the "
            f"array's, {shape}"
        )
    try:
        if root == "torch":
            return where.broadcast_to(shape)
        return load_other(root).broadcast_to(where, shape)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"where has the shape {tuple(own)}, which does not broadcast to the array's, {shape}"
        ) from error


def add_gpu(
    asked: Arguments, strategy: registry.Strategy, arr: Any, how: Reduction, start: float
) -> SumResult:
    """The sums of an array on a GPU, on that GPU."""
    module = gpu_arrays.module_for(asked.device)
    if module is None:
        raise TypeError(f"{type(arr).__name__} lies on a GPU, and {devices.build_info()['why']}")
    plan = _Plan(asked, strategy, arr, how, module)
    given = plan.library.stream(arr) if asked.stream is None else asked.stream
    stream = gpu_arrays.stream_number(given)
    whole = how.axis is None and not how.keepdims and how.out is None
    waits = whole and how.result == "host"
    if waits:
        module.refuse_capture(stream)
    found = gpu_arrays.ask(module.sum_axis_on_device, arr, bool(how.keepdims), plan, stream)
    if found is None:
        raise TypeError(f"{type(arr).__name__} does not lie on a GPU")
    value = plan.value
    if waits:
        value = _on_host(value, plan.result)
    if not asked.timing:
        return SumResult(value, cast(Timing, None))
    ran, *launch = found
    name = _name(plan.strategy, plan.exactly, ran, launch[2])
    element = plan.kind, plan.nbytes
    return SumResult(
        value,
        device_results.timing_of(module.BACKEND, plan.device, element, plan.n, name, launch, start),
    )


def digits_gpu(arr: Any, axis: object, device: str | None, stream: object) -> Any:
    """The digits of the exact sums of an array on a GPU, along a last axis, on that GPU."""
    module = gpu_arrays.module_for(device)
    if module is None:
        raise TypeError(f"{type(arr).__name__} lies on a GPU, and {devices.build_info()['why']}")
    library = device_results.library_of(arr, module)
    found: Any = None

    def plan(
        kind: str, nbytes: int, index: int, shape: tuple[int, ...], steps: tuple[int, ...],
        on: int,
    ) -> tuple[Any, ...]:  # fmt: skip
        nonlocal found
        gpu_arrays.check_same_device(device, index)
        conversion, name = device_results.conversion_of(
            dtypes.is_exact, kind, nbytes, digits.dtype_for(kind)
        )
        axes = reduction.reduced_axes(axis, len(shape))
        sums = reduction.shape_of_result(shape, axes, False)
        found = library.make(arr, (*sums, digits.numbers_of(kind)), "int64", index, on)
        target = dtypes.load_of(conversion.result) if name != "bfloat16" else _host.LOAD_BF16
        details = (conversion.acc, True, target, (0, 0), CHOOSE, 0, 0, 0, 0, False, True)
        return found, None, reduction.bits(axes), details

    given = library.stream(arr) if stream is None else stream
    number = gpu_arrays.stream_number(given)
    if gpu_arrays.ask(module.sum_axis_on_device, arr, False, plan, number) is None:
        raise TypeError(f"{type(arr).__name__} does not lie on a GPU")
    return found


def _on_host(value: Any, result: str) -> Any:
    """The only sum, as a NumPy scalar. Waits for it."""
    if isinstance(value, device_array.DeviceArray):
        return value.to_numpy()[()]
    return dtypes.named(result).type(value.item())
