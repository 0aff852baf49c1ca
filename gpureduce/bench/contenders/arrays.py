"""The contenders of the benchmark: each one runs a number of times and returns the times."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gpureduce.bench import libraries, targets
from gpureduce.core import arrays, devices, dtypes, on_device, registry
from gpureduce.core.request import Request, placed
from gpureduce.core.summation import sum as sum_of
from gpureduce.emulator.explain import Comparison, Explanation, explain

_MOST_COPIES = 1 << 14
_CALLS_NS = 2_000_000  # shorter calls are repeated for this time, and their mean is one time

# Pause after which the previous contender's threads sleep. OpenMP's threads spin for some
# milliseconds, on every processor.
_QUIET_S = 0.05


@dataclass
class Contender:
    """One row of the benchmark: its name, its function, and facts found while it runs."""

    strategy: str
    run: Callable[[int], list[float]]  # takes the number of runs, returns the microseconds of each
    value: Callable[[], Any]
    device: str
    source: str
    cache: str = "warm"
    producer: str = ""
    block: int | None = None
    grid: int | None = None
    peak_gb_s: float | None = None
    way: str = ""


@dataclass(frozen=True)
class Input:
    """An array to add up, and the arguments of the sum."""

    array: dtypes.Array
    conversion: dtypes.Conversion
    accumulate: str | None
    device: str | None
    offset: int = 0


def array_of(dtype: str, n: int) -> dtypes.Array:
    """Random numbers. A large array repeats some of them, which does not affect the times."""
    rng = arrays.random_numbers(n)
    kind = dtypes.named(dtype)
    some = min(n, 2**22 + 1)
    if kind.kind in "iu":
        part = rng.integers(0, 100, some, dtype=kind)
    else:
        part = rng.standard_normal(some).astype(kind)
    return arrays.repeated(part, n)


def timed_calls(call: Callable[[], Any], repeats: int) -> list[float]:
    """The times of a call. If the call is short, each time is the mean of several.

    Every contender has warm-up calls, which are not counted: sleeping threads wake one by one,
    during many short calls.
    """
    start = now = time.perf_counter_ns()
    took = warm_ups = 0
    while warm_ups < 2 or now - start < _CALLS_NS:
        call()
        before, now = now, time.perf_counter_ns()
        took = now - before
        warm_ups += 1
    calls = max(1, min(1000, _CALLS_NS // max(1, took)))
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - start) / calls / 1e3)
    return times


def _dtype(given: Input) -> Any:
    return given.accumulate and given.conversion.result


def rotation(device: devices.Device, nbytes: int) -> tuple[int, str]:
    """The number of input copies to read in turn, and the L2 cache's state, "cold" or "warm"."""
    if device.backend != "cuda" or not device.l2_bytes:
        return 1, "warm"
    copies = max(1, min(_MOST_COPIES, -(-3 * device.l2_bytes // max(nbytes, 1))))
    return copies, "cold" if copies * nbytes > device.l2_bytes else "warm"


def kernel(
    given: Input,
    row: registry.Strategy | registry.UserKernel,
    block: int | None,
    grid: int | None,
    *,
    apart: bool = False,
    load_only: bool = False,
) -> Contender:
    """The launches of a kernel or of CUB, without Python; or a host strategy's sum.

    With `load_only`, the launches of a kernel that loads the array and stores one word.
    """
    array = given.array
    if isinstance(row, registry.Strategy) and row.kind == "host":
        return _host_kernel(given, row)
    device = devices.choose_device(given.device)
    copies, cache = rotation(device, array.nbytes)
    measure = _of_a_user if isinstance(row, registry.UserKernel) else _of_ours
    measured = measure(given, row, device, (block, grid))

    def run(repeats: int) -> list[float]:
        times, made.block, made.grid = measured(
            copies=copies, repeats=repeats, offset=given.offset, apart=apart, load_only=load_only
        )
        return [1e3 * ms for ms in times]

    made = Contender(
        _title(row),
        run,
        lambda: sum_of(array, cast(Any, row), _dtype(given), block, grid, device=device.id).value,
        device.name,
        "emulator" if device.backend == "emulator" else "cuda_event",
        cache,
        peak_gb_s=device.peak_gb_s if device.backend == "cuda" else None,
    )
    return made


_Measure = Callable[..., tuple[list[float], int | None, int | None]]


def _of_ours(
    given: Input, row: Any, device: devices.Device, launch: tuple[int | None, int | None]
) -> _Measure:
    """A function that times the launches of a strategy, or of a user's kernel on a card."""
    devices.check_can_run(device, row)
    ran = placed(row, device.id, given.conversion.result)  # `auto` is `exact` for floats
    finish = "host" if ran.finishes == ("host",) else None
    request = Request(ran, given.conversion, launch[0] or 0, launch[1] or 0, finish)
    return functools.partial(on_device.measure, request, given.array, device)


def _of_a_user(
    given: Input, row: Any, device: devices.Device, launch: tuple[int | None, int | None]
) -> _Measure:
    """A function that times the launches of a user's kernel."""
    if device.backend == "cuda":
        placed_there = row.call("place", device, given.array.dtype, _dtype(given))
        return _of_ours(given, placed_there, device, launch)

    def measure(*, repeats: int, apart: bool, **_: Any) -> Any:
        return row.call("measure", given.array, _dtype(given), *launch, repeats, apart)

    return measure


def load_only(given: Input, *, apart: bool = False) -> Contender:
    """The limit: only the loads of a sum, measured as the launches of a sum are."""
    made = kernel(given, registry.find("fast"), None, None, apart=apart, load_only=True)
    return dataclasses.replace(made, strategy=libraries.LOAD_ONLY, value=_no_value)


def _no_value() -> Any:
    """The value of a contender whose value is no sum, or is not compared."""
    return np.float64("nan")


def _host_kernel(given: Input, row: registry.Strategy) -> Contender:
    def add() -> Any:
        return sum_of(given.array, row.name, _dtype(given))

    def run(repeats: int) -> list[float]:
        add()
        return [add().timing.kernel_ms * 1e3 for _ in range(repeats)]

    return Contender(row.name, run, lambda: add().value, "cpu", "perf_counter")


def _numpy_call(given: Input) -> Callable[[], Any]:
    return lambda: np.sum(given.array, dtype=given.conversion.result)


def _our_call(given: Input, name: Any, device: str | None) -> Callable[[], Any]:
    dtype = _dtype(given)
    return lambda: sum_of(given.array, name, dtype, device=device, timing=False).value


def on_host(given: Input, name: Any) -> Contender:
    """A whole call, from a NumPy array to the number."""
    where = "cpu"
    if name == "numpy":
        call = _numpy_call(given)
    elif libraries.is_ours(name) or name == "cub":
        device = None if _on_processor(name) else given.device
        where = sum_of(given.array, name, _dtype(given), device=device).timing.device
        call = _our_call(given, name, device)
    else:
        peer, module = libraries.load(name)
        assert peer.add_host
        call = peer.add_host(module, given.array)
        where = "cpu" if name == "torch" else devices.choose_device(None).name

    def run(repeats: int) -> list[float]:
        time.sleep(_QUIET_S)
        return timed_calls(call, repeats)

    return Contender(_title(name), run, call, where, "perf_counter", producer="numpy")


def _title(strategy: Any) -> str:
    """The name in the results. A user's kernel may have the name of a strategy."""
    if isinstance(strategy, registry.UserKernel):
        return strategy.name + " (yours)" * registry.is_known(strategy.name)
    return strategy.name if isinstance(strategy, registry.Strategy) else str(strategy)


def _on_processor(strategy: Any) -> bool:
    if isinstance(strategy, registry.UserKernel):
        return False
    return registry.find(strategy).kind == "host"


# The ways to call `sum`: whether the result has a timing, the dtype, and whether a strided view of
# the array is added up. The dtype is None, that of the default ("own"), or another one ("cast").
WAYS: dict[str, tuple[bool, str | None, bool]] = {
    "default": (True, None, False),
    "timing=False": (False, None, False),
    "dtype=": (False, "own", False),
    "strided": (False, None, True),
    "cast": (False, "cast", False),
}


def call(given: Input, name: Any, producer: str, way: str) -> Contender | None:
    """A whole call, from a library's array to a Python number; None if it cannot be called so.

    The arrays of NumPy lie in host memory, those of the other libraries on a GPU.
    """
    timing, kind, strided = WAYS[way]
    peer, module = libraries.load(producer)
    if strided and not peer.strides:
        return None
    assert peer.put and peer.add
    array = peer.put(module, np.repeat(given.array, 2) if strided else given.array)
    array = array[::2] if strided else array
    own = given.conversion.result.name
    dtype = {None: None, "own": own, "cast": "float64" if own != "float64" else "float32"}[kind]
    device = devices.choose_device(given.device)
    where, on_card = device.name, producer != "numpy"
    # An array on a GPU needs no device: a lookup would take time, and the array's is used anyway.
    named = device.id if device.backend == "emulator" else None
    if name == producer:
        run = peer.add(module, array, dtype)
        where = where if on_card else "cpu"
    else:
        if not on_card:
            named = None if _on_processor(name) else given.device
            where = sum_of(array, name, device=named).timing.device

        def run() -> Any:
            return sum_of(array, name, dtype, device=named, timing=timing).value.item()

    try:
        run()
    except TypeError:  # kernels read contiguous arrays of the dtypes that they are compiled for
        return None
    return Contender(
        _title(name),
        functools.partial(timed_calls, run),
        _no_value if kind == "cast" else run,
        where,
        "perf_counter",
        producer=producer,
        peak_gb_s=device.peak_gb_s if on_card and device.backend == "cuda" else None,
        way=way,
    )


def explaining(
    given: Input, row: Any, block: int | None, grid: int | None, *, sample: bool
) -> Contender:
    """A call of `explain`, with sampled blocks or with all of them."""

    def call() -> Explanation | Comparison:
        dtype = given.conversion.result if given.accumulate else given.array.dtype
        return explain(
            row, n=given.array.size, dtype=dtype, block=block or 256, grid=grid,
            input_dtype=given.array.dtype, sample=sample,
        )  # fmt: skip

    found = call()
    assert isinstance(found, Explanation)
    return Contender(
        _title(row),
        lambda repeats: timed_calls(call, repeats),
        _no_value,
        "gpureduce emulator",
        "perf_counter",
        block=found.block,
        grid=found.grid,
    )


def through_pinned(given: Input) -> tuple[Contender, ...]:
    """References for sums of host arrays on the GPU.

    - A copy from pinned memory to the GPU, without a sum.
    - The sum of an array in pinned memory, which needs no staging.
    - Our threads' write of an array to pinned memory.
    - That write, then a copy of the written data to the GPU.
    """
    _, torch = libraries.load("torch")
    device = devices.choose_device(given.device)
    pinned = torch.empty(given.array.nbytes, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(given.array.nbytes, dtype=torch.uint8, device="cuda")
    array = pinned.numpy().view(given.array.dtype)
    np.copyto(array, given.array)
    call = _our_call(dataclasses.replace(given, array=array), "fast", given.device)

    def copy() -> Any:
        there.copy_(pinned, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return np.float64("nan")

    def write() -> Any:
        devices.module_of(device).write_pinned(array, given.array)
        return np.float64("nan")

    def write_and_copy() -> Any:
        write()
        return copy()

    calls = (copy, call, write, write_and_copy)
    return tuple(
        Contender(
            name,
            functools.partial(timed_calls, run),
            run,
            device.name,
            "perf_counter",
            producer="torch",
        )
        for name, run in zip(targets.LIMITS, calls, strict=True)
    )
