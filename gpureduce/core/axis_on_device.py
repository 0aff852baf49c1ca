"""Sums along axes by kernels, of arrays on a GPU and of host arrays.

The sums of an array on a GPU lie on the same GPU, in an array of the same library, whose allocator
provides the memory. The launches are put on a stream, and nothing waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from gpureduce import _host
from gpureduce.core import device_array, devices, dtypes, gpu_arrays, reduction, registry
from gpureduce.core.checks import shown
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


def finish_of(launches: int) -> str:
    """How the sums of shares became one: by a second launch, if there was one."""
    return "relaunch" if launches > 1 else "single"


def is_exact(strategy: registry.Strategy, result: np.dtype[Any]) -> bool:
    """Whether sums in this dtype are rounded once. Sums of integers are never rounded."""
    if strategy.name == "exact_block" and not dtypes.is_exact(result):
        raise ValueError("exact_block adds up floats; sums of integers are exact without it")
    return strategy.name in ("auto", "exact", "exact_block") and dtypes.is_exact(result)


def _initial(initial: object, result: np.dtype[Any]) -> tuple[Any, Any]:
    """The initial number's real and imaginary part."""
    if result.kind in "iu":
        return reduction.initial_integer(initial, result), 0
    parts = reduction.initial_floats(initial, result)
    if any(len(part) > 1 for part in parts):
        raise ValueError(
            f"kernels take an initial number that is a float64, such as {float(sum(parts[0]))!r}, "
            f"not {shown(initial)}"
        )
    return sum(parts[0]), sum(parts[1])


def _memory_order(steps: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    """The axes that stay, from the one with the largest step in memory to the smallest."""
    kept = [i for i in range(len(steps)) if i not in axes]
    return sorted(kept, key=lambda i: -abs(steps[i]))


Make = Callable[[tuple[int, ...]], Any]  # makes an array of a shape
Transpose = Callable[[Any, tuple[int, ...]], Any]


def _new_result(
    make: Make, transpose: Transpose, shape: tuple[int, ...], steps: tuple[int, ...],
    axes: tuple[int, ...], keepdims: object,
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


def _side_by_side(array: Array) -> Array:
    """The array, or a copy of it without gaps between its elements, aligned and in native order."""
    span = array.itemsize + sum(
        (n - 1) * abs(step) for n, step in zip(array.shape, array.strides, strict=True)
    )
    if array.dtype.isnative and array.flags.aligned and (not array.size or span == array.nbytes):
        return array
    return array.astype(array.dtype.newbyteorder("="), order="K")


def _elements(request: Request, source: np.dtype[Any]) -> np.dtype[Any] | None:
    """The dtype that the elements of a host array are converted to; None to leave them."""
    conversion = request.conversion
    to_complex = conversion.is_complex and source.kind != "c"
    if is_exact(request.strategy, conversion.result):
        _refuse_wide(source.kind, source.itemsize)
        if to_complex:
            return np.dtype(np.complex128)
        return np.dtype(np.float64) if source.kind in "biu" else None
    if conversion.is_complex:
        return conversion.result if to_complex or conversion.cast is not None else None
    return conversion.cast


def _refuse_wide(kind: str, nbytes: int) -> None:
    if kind in "iu" and nbytes == 8:
        raise TypeError(
            "kernels cannot sum 64-bit integers exactly as floats: sum them as integers, or, in "
            "host memory, by the processors"
        )


def add_host(request: Request, array: Array, how: Reduction) -> Outcome:
    """The sums of a host array: it is copied to the device, and the sums are copied back."""
    schedule, device = current(), devices.choose_device(request.device)
    module = devices.module_of(device, traced=schedule.traced)
    conversion = request.conversion
    result = conversion.result
    check_strategy(request.strategy)
    job = reduction.checked(how, array, result)
    initial, exactly = _initial(how.initial, result), is_exact(request.strategy, result)
    target = _elements(request, array.dtype)
    if target is not None:
        array = dtypes.quietly(array.astype, target, order="K")
    array = _side_by_side(array)
    mask = None if job.mask is None else _side_by_side(job.mask)
    sums = _new_result(
        lambda shape: np.empty(shape, result), np.transpose, array.shape, array.strides,
        job.axes, job.keepdims,
    )  # fmt: skip
    details = (
        conversion.acc, exactly, dtypes.load_of(result), initial, _number(request.strategy),
        request.block, request.grid, schedule.number, schedule.seed, request.timed,
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


class _Library(NamedTuple):
    """How to make an array beside `like`, how to transpose it, and on which stream work goes."""

    make: Callable[[Any, tuple[int, ...], str, int, int], Any]  # like, shape, dtype, device, stream
    transpose: Transpose
    stream: Callable[[Any], object] = lambda like: None  # None: the one that the array names


def _torch(like: Any, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> Any:
    torch = load_other("torch")
    return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)


def _cupy(like: Any, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> Any:
    cupy = load_other("cupy")
    with cupy.cuda.Device(device):
        return cupy.empty(shape, dtypes.named(dtype))


_LIBRARIES = {
    "torch": _Library(
        _torch,
        lambda array, order: array.permute(order),
        lambda like: load_other("torch").cuda.current_stream(like.device),
    ),
    "cupy": _Library(
        _cupy,
        lambda array, order: array.transpose(order),
        lambda like: load_other("cupy").cuda.get_current_stream(),
    ),
}


def _library_of(arr: object, module: Any) -> _Library:
    """Where the sums of an array go: to its library; to a DeviceArray, if we do not know that."""

    def make(like: Any, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> Any:
        return device_array.empty(module, shape, dtype, device, stream)

    root = type(arr).__module__.partition(".")[0]
    return _LIBRARIES.get(root) or _Library(make, lambda array, order: array.transpose(order))


def _conversion(
    strategy: registry.Strategy, kind: str, nbytes: int, wanted: Any
) -> tuple[dtypes.Conversion, str]:
    """How elements are added up, and the name of the sums' dtype."""
    try:
        source = gpu_arrays.source(kind, nbytes)
    except TypeError:
        raise TypeError(
            f"arrays of elements of kind {kind!r} and {nbytes} bytes on a GPU cannot be summed"
        ) from None
    conversion = dtypes.convert(source, None if wanted is None else dtypes.named(wanted))
    if kind == "B" and wanted is None:
        return conversion, "bfloat16"
    if conversion.is_complex and kind != "c":
        raise TypeError("real arrays on a GPU cannot be summed as complex: use a real dtype")
    part = dtypes.part_of(conversion.result)
    if is_exact(strategy, conversion.result):
        _refuse_wide(kind, nbytes)
    elif conversion.cast is not None and part != dtypes.number_of(conversion.acc):
        raise TypeError(
            f"arrays on a GPU cannot be cast to {conversion.cast} element by element; cast the "
            "array first"
        )
    return conversion, dtypes.name_of(conversion.result)


class _Plan:
    """Tells C, which has read the array's description, where the sums go and how to make them."""

    def __init__(
        self, asked: Arguments, strategy: registry.Strategy, arr: Any, how: Reduction, module: Any
    ) -> None:
        self.asked, self.strategy, self.arr, self.how = asked, strategy, arr, how
        self.library = _library_of(arr, module)
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
        self.n = int(np.prod(shape, dtype=np.int64))
        check_strategy(self.strategy)
        conversion, name = _conversion(self.strategy, kind, nbytes, asked.dtype)
        axes = reduction.reduced_axes(how.axis, len(shape))
        initial = _initial(how.initial, conversion.result)
        target = dtypes.load_of(conversion.result) if name != "bfloat16" else _host.LOAD_BF16
        mask = None if how.where is True else _broadcast(how.where, shape)
        out = how.out
        if out is None:
            out = _new_result(
                lambda size: self.library.make(self.arr, size, name, device, stream),
                self.library.transpose, shape, steps, axes, how.keepdims,
            )  # fmt: skip
        else:
            _check_out(out, self.arr, name, reduction.shape_of_result(shape, axes, how.keepdims))
        self.value, self.result = out, name
        self.exactly = is_exact(self.strategy, conversion.result)
        block, grid = launch_sizes(asked.block, asked.grid)
        details = (
            conversion.acc, self.exactly, target, initial,
            _number(self.strategy), block, grid, 0, 0, bool(asked.timing),
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
    if root not in _LIBRARIES:
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


def _check_out(out: Any, arr: Any, name: str, shape: tuple[int, ...]) -> None:
    """Raises if the sums cannot be written to `out`. C checks where it lies."""
    dtype = str(getattr(out, "dtype", "")).rpartition(".")[2]
    root = type(out).__module__.partition(".")[0]
    if isinstance(out, np.ndarray) or root != type(arr).__module__.partition(".")[0]:
        raise TypeError(
            f"out must be a {type(arr).__name__} of shape {shape} and dtype {name} on the same "
            f"GPU, not {type(out).__name__}"
        )
    if dtype != name:
        raise TypeError(f"out must have the dtype of the sum, {name}, not {dtype}")
    if tuple(out.shape) != shape:
        raise ValueError(f"out must have the shape of the sum, {shape}, not {tuple(out.shape)}")


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
    return SumResult(value, _timing(module.BACKEND, plan, found, start))


def _on_host(value: Any, result: str) -> Any:
    """The only sum, as a NumPy scalar. Waits for it."""
    if isinstance(value, device_array.DeviceArray):
        return value.to_numpy()[()]
    return dtypes.named(result).type(value.item())


def _timing(backend: str, plan: _Plan, found: Any, start: float) -> Timing:
    ran, block, grid, launches, elapsed = found
    device = devices.choose_device(f"{backend}:{plan.device}")
    source = "emulator" if backend == "emulator" else "cuda_event"
    outcome = Outcome(None, source, backend, device.name, peak_gb_s=device.peak_gb_s)
    outcome.block, outcome.grid, outcome.launches = block or None, grid or None, launches
    dtype = "bfloat16" if plan.kind == "B" else str(gpu_arrays.source(plan.kind, plan.nbytes))
    name = _name(plan.strategy, plan.exactly, ran, launches)
    total_ms = (time.perf_counter() - start) * 1e3
    size = plan.n, plan.n * plan.nbytes
    timing = outcome.timing(name, dtype, finish_of(launches), *size, total_ms)
    if elapsed is not None:  # read when somebody looks: results.py
        later = vars(timing)
        del later["kernel_ms"], later["d2h_ms"]
        later["_elapsed"] = elapsed
    return timing
