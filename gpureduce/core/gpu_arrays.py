"""Arrays on a GPU: CuPy, PyTorch, JAX, Numba, and any library with their protocols.

They are read in place, by DLPack or ``__cuda_array_interface__``; nothing is copied to the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce.core import arrays, devices, dtypes, registry
from gpureduce.core.plan import Arguments, Launch, launch_of, number_of
from gpureduce.core.results import SumResult, ran_on


@functools.cache
def source(kind: str, nbytes: int) -> np.dtype[Any]:
    """The NumPy dtype of a producer's elements; float16 stands in for a missing bfloat16."""
    if kind != "B":
        return np.dtype(f"{kind}{nbytes}")
    try:
        return dtypes.named("bfloat16")
    except TypeError:
        return np.dtype(np.float16)


def _checked_stream(number: int) -> int:
    if not 0 <= number < 2**64:
        raise ValueError(f"a CUDA stream is a number from 0 to 2**64 - 1, not {number}")
    return number or 1  # CUDA calls its default stream 0, or 1


def stream_number(stream: object) -> int:
    """The cudaStream_t of a number, CuPy, PyTorch, Numba or CUDA Python stream; 0 for None."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return _checked_stream(stream)
    for name in ("cuda_stream", "ptr", "handle"):
        found = getattr(stream, name, None)
        if found is not None:
            return _checked_stream(int(getattr(found, "value", found) or 0))
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return _checked_stream(int(protocol()[1]))
    raise TypeError(f"stream must be None, a number or a CUDA stream, not {type(stream).__name__}")


@functools.cache
def _module() -> ModuleType | None:
    module = devices.load_cuda()
    if isinstance(module, str):
        return None
    devices.devices()  # also sets each GPU's table of `fast`
    return module


def module_for(device: str | None) -> ModuleType | None:
    """The build that reads GPU arrays: the emulator's if `device` names it, otherwise CUDA's."""
    devices.check_device(device)
    return devices.emulator() if devices.is_emulator(device) else _module()


def needed_module(arr: object, device: str | None) -> ModuleType:
    """The build that reads an array on a GPU, as module_for() finds it. Raises if none can."""
    module = module_for(device)
    if module is None:
        raise TypeError(f"{type(arr).__name__} is on a GPU, and {devices.build_info()['why']}")
    return module


def ask(function: Callable[..., Any], arr: object, *arguments: object) -> Any:
    """Calls C with an array that may lie on a GPU."""
    try:
        return function(arr, *arguments)
    except Exception as error:
        explain(error, arr)
        raise


def explain(error: Exception, arr: object) -> None:
    """Raises a clearer error if C's error was about a tensor without memory."""
    if why := arrays.without_elements(arr):
        raise TypeError(f"{type(arr).__name__} {why}") from error


def by_one_call(
    arr: object, strategy: str, dtype: Any, stream: object, timing: bool
) -> SumResult | None:
    """The sum of an array on a GPU; None if the general path has to add it up."""
    module, number = _module(), NUMBERS.get(strategy)
    if module is None or number is None or not is_quick(dtype):
        return None
    return _sum(module, arr, None if dtype is None else wanted(dtype), number, stream, timing)


def is_quick(dtype: object) -> bool:
    """Whether `dtype` is None or of a type that wanted() can cache."""
    return dtype is None or type(dtype) in (str, type) or isinstance(dtype, np.dtype)


@functools.lru_cache(256)
def wanted(dtype: Any) -> np.dtype[Any]:
    """The dtype of a sum, for C."""
    return dtypes.named(dtype).newbyteorder("=")


_Check = Callable[[str, int, int], None]  # takes an array's kind, bytes per element, and GPU number


def _sum(
    module: ModuleType,
    arr: object,
    dtype: np.dtype[Any] | None,
    launch: Launch | int,
    stream: object,
    timing: bool,
    check: _Check | None = None,
) -> SumResult | None:
    number = 0 if stream is None else stream_number(stream)
    common = _fields_of if timing else None
    found: SumResult | None = ask(module.sum_gpu, arr, dtype, launch, number, common, check)
    return found


@functools.lru_cache(1024, typed=True)  # typed: 128.0 is no block, though it equals 128
def _launch(
    call: str | registry.Strategy, block: int | None, grid: int | None, finish: str | None
) -> Launch:
    strategy = registry.find(call)
    threads, blocks, finish = launch_of(strategy, block, grid, finish)
    number = registry.finish_number(finish)
    return Launch(number_of(strategy), block=threads, grid=blocks, finish=number)


def launch_for(call: Arguments) -> Launch:
    """The launch of a strategy for an array on a GPU."""
    how = (call.strategy, call.block, call.grid, call.finish)
    try:
        return _launch(*how)
    except TypeError:  # unhashable: the uncached function raises a clear error
        return _launch.__wrapped__(*how)


def sent_by_one_call(arr: npt.NDArray[Any], strategy: str, device: str) -> SumResult | None:
    """The untimed sum of a host array on a GPU; None if the general path has to add it up."""
    number, send = NUMBERS.get(strategy), _sender()
    return send(arr, number, 0) if device == "cuda" and number is not None and send else None


@functools.cache
def _sender() -> Callable[[npt.NDArray[Any], int, int], SumResult | None] | None:
    """The C function that adds up a host array on a GPU.

    None without a GPU: the general path then raises the error.
    """
    module = _module()
    if module is None or devices.devices()[0].backend != "cuda":
        return None
    send: Callable[[npt.NDArray[Any], int, int], SumResult | None] = module.sum_host_untimed
    return send


# By name and alias: the numbers of the strategies that run on a GPU.
NUMBERS = {
    name: number_of(row)
    for row in registry.STRATEGIES.values()
    if row.kind in ("kernel", "library", "choice", "everywhere")
    for name in (row.name, *row.aliases)
}


def check_same_device(device: str | None, index: int) -> None:
    """Raises if the array lies on another GPU than the one that `device=` names by number."""
    backend, _, number = (device or "").partition(":")
    if number and int(number) != index:
        raise ValueError(
            f"the array is on {backend}:{index}, and is summed there, not on device={device!r}: "
            "leave device out, or pass a copy on that device"
        )


def add(
    call: Arguments, strategy: registry.Strategy, arr: object, check: _Check | None = None
) -> SumResult | None:
    """The sum of an array on a GPU; None for other arrays. `check` is called before the launch."""
    module = module_for(call.device)
    if module is None or strategy.kind == "host" or call.device == "cpu":
        return None
    if (
        call.device is None
        and (call.block, call.grid, call.finish) == (None, None, None)
        and is_quick(call.dtype)
        and type(call.strategy) is str
        and call.strategy in NUMBERS
    ):
        return None  # by_one_call() has found that it does not lie on a GPU
    if check is None and call.device is not None:

        def check(kind: str, nbytes: int, index: int) -> None:
            check_same_device(call.device, index)

    dtype = None if call.dtype is None else wanted(dtypes.named(call.dtype))
    return _sum(module, arr, dtype, launch_for(call), call.stream, call.timing, check)


@functools.lru_cache(256)
def common_fields(
    backend: str, index: int, kind: str, nbytes: int, name: str, finish: str
) -> dict[str, Any]:
    """The fields of a timing that all sums of a dtype by a strategy on a device have in common."""
    device = devices.choose_device(f"{backend}:{index}")
    dtype = "bfloat16" if kind == "B" else str(source(kind, nbytes))
    fields = ran_on(device, strategy=name, dtype=dtype, finish=finish)
    del fields["kernel_ms"], fields["d2h_ms"]  # read from the card's events when looked at
    return fields


def _fields_of(
    backend: str, index: int, strategy: int, kind: str, nbytes: int, finish: int
) -> dict[str, Any]:
    """common_fields() for C, which passes the numbers of strategy and finish."""
    name, by = registry.name_at(strategy), registry.FINISHES[finish - 1]
    return common_fields(backend, index, kind, nbytes, name, by)
