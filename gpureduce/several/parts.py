"""`gpureduce.sum_parts`: one sum of several arrays, each added up where it lies.

One thread puts the launches of all arrays on their streams, in one call of C, adds up the parts in
host memory meanwhile, and then waits for the GPUs. No thread, no peer-to-peer copy and no NCCL is
needed: a GPU's result is some seventy numbers, or one.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import (
    arrays,
    devices,
    dtypes,
    exact,
    gpu_arrays,
    registry,
    run_host,
)
from gpureduce.core.checks import listed, named_keywords, shown
from gpureduce.core.dtypes import Conversion, rounded_later, sum_in_order
from gpureduce.core.plan import Arguments, resolve, strategy_of
from gpureduce.core.results import SumResult, Timing, launched, timing_of
from gpureduce.errors import naming
from gpureduce.several import parts_along_axes


class _OnGpu(NamedTuple):
    """The sum of a part on a GPU: a row of what csrc/bindings/device/gpu_parts.c returns."""

    device: int
    strategy: int
    times: Any
    bits: bytes
    imaginary: bytes | None
    n: int
    init_ms: float
    block: int
    grid: int
    launches: int
    finish: int


class _Part(NamedTuple):
    """The sum of one part, or of several: `total` if it is exact, otherwise `value`."""

    number: int

    dtype: str
    conversion: Conversion
    total: _host.Exact | None
    value: Any
    n: int
    nbytes: int


@named_keywords
def sum_parts(
    parts: Iterable[Any],
    strategy: str = "auto",
    dtype: npt.DTypeLike | None = None,
    block: int | None = None,
    grid: int | None = None,
    finish: str | None = None,
    device: str | None = None,
    allow_broken: bool = False,
    stream: Sequence[object] | None = None,
    timing: bool = True,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    parts_axis: int = 0,
) -> SumResult:
    """Add up several arrays to one sum, each where it lies: on a GPU, or in host memory.

    All GPUs work at the same time, and the processors add up the parts in host memory meanwhile.

    Parameters
    ----------
    parts
        The arrays, of one dtype, as `gpureduce.sum` takes them. They may lie on different GPUs,
        several on one, and in host memory.
    strategy, dtype, block, grid, finish, allow_broken, timing
        As in `gpureduce.sum`. The exact sum of all parts is rounded once. Integers wrap around as
        in NumPy. Of any other strategy, the sums of the parts are added in the order of the parts.
    device
        ``"emulator"`` reads parts on a GPU as arrays of the emulator.
    stream
        A CUDA stream per part, or None for that of its producer.
    axis
        The axes to add up along, if the parts are slices of one array: None for all.
    keepdims
        Whether the reduced axes stay in the result, with size 1.
    parts_axis
        With `axis`: the axis along which the array was cut into parts.

    Returns
    -------
    SumResult
        The value and its `Timing`, whose `kernel_ms` is the time of the device that took longest.
        With an axis, the sums lie on the GPU of the first part, if this is an array of PyTorch or
        CuPy, and otherwise in host memory.

    Raises
    ------
    ValueError, TypeError, MemoryError, CudaError
        As `gpureduce.sum`. The message names the part and its device. The other devices' results
        are dropped. The next call works.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> halves = np.array([1e100, 1.0]), np.array([1.0, -1e100])
    >>> float(gpureduce.sum_parts(halves).value)
    2.0

    Rows of one array, in two parts:

    >>> rows = np.arange(6.0).reshape(3, 2)
    >>> gpureduce.sum_parts([rows[:2], rows[2:]], axis=1).value
    array([1., 5., 9.])
    """
    start = time.perf_counter()
    found = _checked(parts)
    streams = _streams(stream, len(found))
    row = strategy_of(strategy, allow_broken)
    call = Arguments(strategy, dtype, block, grid, finish, device, allow_broken, None, timing)
    if axis is None and not keepdims:
        return _sum(call, row, found, streams, start)
    if streams:
        raise ValueError(
            "with axis, the sums run on the streams of the parts' producers: leave stream out"
        )
    cut = parts_along_axes.cut_of(found, axis, keepdims, parts_axis)
    return parts_along_axes.add(
        call._replace(strategy=row.name),
        found,
        cut,
        lambda how, some: _sum(how, row, some, None, time.perf_counter()),
    )


def _checked(parts: Iterable[Any]) -> tuple[Any, ...]:
    if type(parts) in (list, tuple) and parts:
        return tuple(parts)
    if isinstance(parts, np.ndarray) or arrays.lies_on_a_gpu(parts):
        raise TypeError(
            f"parts must be a list of arrays, not one {type(parts).__name__}: gpureduce.sum adds "
            "up one array"
        )
    found = listed("parts", parts)
    if not found:
        raise ValueError("parts must have at least one array, which sets the dtype of the sum")
    return found


def _streams(given: Sequence[object] | None, count: int) -> tuple[int, ...] | None:
    if given is None:
        return None
    numbers = tuple(map(gpu_arrays.stream_number, listed("stream", given)))
    if len(numbers) != count:
        raise ValueError(f"stream must name a stream per part, {count}, not {len(numbers)}")
    return numbers


def _module(call: Arguments, strategy: registry.Strategy) -> ModuleType | None:
    """The build that reads parts on GPUs; None if there is none."""
    is_name = isinstance(call.device, str)
    if not (call.device is None or (is_name and devices.is_emulator(call.device))):
        raise ValueError(
            "device must be None or 'emulator', because each part is summed where it is, not "
            f"{shown(call.device)}"
        )
    return None if strategy.kind == "host" else gpu_arrays.module_for(call.device)


def _sum(
    call: Arguments, strategy: registry.Strategy, parts: tuple[Any, ...],
    streams: tuple[int, ...] | None, start: float,
) -> SumResult:  # fmt: skip
    module = _module(call, strategy)
    begun, on_gpu = None, (False,) * len(parts)
    if module:
        wanted = None if call.dtype is None else gpu_arrays.wanted(dtypes.named(call.dtype))
        launch = gpu_arrays.launch_for(call)
        begun = module.begin_parts(parts, wanted, launch, streams, bool(call.timing))
        on_gpu = begun.on_gpu()
    since = time.perf_counter()
    sums = [
        _on_host(call, strategy, number, part, streams)
        for number, part in enumerate(parts)
        if not on_gpu[number]
    ]
    host_ms = (time.perf_counter() - since) * 1e3 if sums else 0.0
    found = begun.end() if begun else None
    own = [_OnGpu(*row) for row in found[2]] if found else []
    if found:
        sums.insert(0, _on_gpus(own, found[0], found[1], on_gpu.index(True), call.dtype))
    parts_along_axes.check_dtypes([(part.number, part.dtype) for part in sums])
    value = _merged(sums, sums[0].conversion.result)
    if not call.timing:
        return SumResult(value, None)
    return SumResult(value, _timing(strategy, sums, own, module, host_ms, start))


def _on_host(
    call: Arguments, strategy: registry.Strategy, number: int, part: Any,
    streams: tuple[int, ...] | None,
) -> _Part:  # fmt: skip
    try:
        array = arrays.as_array(part)
        if streams and streams[number]:
            raise ValueError("it is in host memory, so its entry of stream must be None")
        plan = resolve(call._replace(device=None), strategy, array.dtype)
        if not plan.on_host:
            if not (strategy.name == "fast" and plan.conversion.result.kind in "iu"):
                raise ValueError(
                    f"it is in host memory, which {strategy.name}, a GPU kernel, cannot read: use "
                    "auto or exact"
                )
            plan = plan.by("cpu")
        total = value = None
        if plan.strategy.name == "exact":
            total = exact.new(plan.conversion.result)
            exact.feed(total, array)
        else:
            wide = replace(plan, conversion=rounded_later(plan.conversion))
            value = run_host.add(wide, array).value
    except Exception as error:
        raise naming(f"part {number}", error) from error
    size = array.size, array.size * array.dtype.itemsize
    return _Part(number, dtypes.name_of(array.dtype), plan.conversion, total, value, *size)


@functools.lru_cache(256)
def _conversion(kind: str, nbytes: int, dtype: Any) -> tuple[str, Conversion]:
    """The name of a dtype of an array on a GPU, and its conversion to the sum's."""
    source = gpu_arrays.source(kind, nbytes)
    if kind == "B" and source == np.float16:  # NumPy has no bfloat16: the sum is in float32
        single = dtypes.convert(np.dtype(np.float32), dtype)
        return "bfloat16", replace(single, load=_host.LOAD_BF16)
    return dtypes.name_of(source), dtypes.convert(source, dtype)


def _on_gpus(own: list[_OnGpu], kind: str, nbytes: int, first: int, dtype: Any) -> _Part:
    """The sum of all parts on GPUs, of which `first` is the number of the first one."""
    wanted = None if dtype is None else dtypes.named(dtype)
    name, conversion = _conversion(kind, nbytes, wanted)
    total, value = None, None
    if registry.name_at(own[0].strategy) == "exact":
        total = exact.new(conversion.result)
        for part in own:
            total.add_state(part.bits, 0, True)
            if part.imaginary is not None:
                total.add_state(part.imaginary, 1, False)
    else:
        wide = rounded_later(conversion)
        values = [wide.value(_added(wide, [part.bits for part in own]))]
        if own[0].imaginary is not None:
            values.append(wide.value(_added(wide, [cast(bytes, part.imaginary) for part in own])))
        value = values[0] if len(values) == 1 else arrays.joined(wide, *values)
    n = sum(part.n for part in own)
    return _Part(first, name, conversion, total, value, n, n * nbytes)


def _added(conversion: Conversion, bits: list[bytes]) -> bytes:
    """The sum of accumulators, in their type and order."""
    totals = map(conversion.total, bits)
    return functools.reduce(lambda a, b: dtypes.quietly(np.add, a, b), totals).tobytes()


def _merged(sums: list[_Part], result: np.dtype[Any]) -> Any:
    total = sums[0].total
    if total is None:
        return sum_in_order([part.value for part in sums], result)
    for part in sums[1:]:
        total.merge(cast(_host.Exact, part.total))
    return exact.value(total, result)


class _Elapsed:
    """The times of several devices, which `read` fetches."""

    def __init__(self, times: list[tuple[int, Any]], host_ms: float) -> None:
        self._times, self._host_ms = times, host_ms

    def read(self) -> tuple[float, float]:
        """Milliseconds of the kernels and of the copies back, of the device that took longest."""
        kernel: dict[int, float] = {}
        back: dict[int, float] = {}
        for device, elapsed in self._times:
            ms = elapsed.read()
            kernel[device] = kernel.get(device, 0.0) + ms[0]
            back[device] = back.get(device, 0.0) + ms[1]
        return max(self._host_ms, *kernel.values()), max(back.values())


def _timing(
    strategy: registry.Strategy, sums: list[_Part], own: list[_OnGpu],
    module: ModuleType | None, host_ms: float, start: float,
) -> Timing:  # fmt: skip
    on_host = len(sums) > bool(own)
    ran = list(dict.fromkeys(registry.name_at(part.strategy) for part in own))
    if on_host:
        ran.insert(0, "exact" if sums[0].total else "numpy" if strategy.name == "numpy" else "cpu")
    backend = cast(ModuleType, module).BACKEND if own else ""
    used = tuple(dict.fromkeys(part.device for part in own))
    fields = parts_along_axes.places(backend, used, on_host) | {
        "strategy": "+".join(dict.fromkeys(ran)),
        "dtype": sums[0].dtype,
        "finish": registry.FINISHES[own[0].finish - 1] if own else strategy.finishes[0],
        "n": sum(part.n for part in sums),
        "nbytes": sum(part.nbytes for part in sums),
        "kernel_ms": host_ms,
    }
    if own:  # the kernels' times are read when somebody looks: results.py
        del fields["kernel_ms"], fields["d2h_ms"]
        fields |= launched(own[0].block, own[0].grid, sum(part.launches for part in own))
        fields |= {
            "_elapsed": _Elapsed([(part.device, part.times) for part in own], host_ms),
            "init_ms": sum(part.init_ms for part in own),
        }
    return timing_of(fields, start)
