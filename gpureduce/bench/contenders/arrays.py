"""Sums of whole arrays: launches, calls from an array to a number, and explanations."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from gpureduce.bench import libraries
from gpureduce.bench.clocks import Run, Timed, of_calls
from gpureduce.bench.runner import Contender
from gpureduce.core import arrays, devices, dtypes, on_device, registry
from gpureduce.core.plan import Plan, placed
from gpureduce.core.summation import sum as sum_of
from gpureduce.emulator.explain import Explanation, explained

_MOST_COPIES = 1 << 14
# Pause after which the previous contender's threads sleep. OpenMP's threads spin for some
# milliseconds, on every processor.
_QUIET_S = 0.05

# The references for sums of host arrays on the GPU, which need no sum or no write.
PINNED_COPY, OF_PINNED = "pinned copy", "fast of pinned"
WRITTEN, WRITTEN_COPY = "write to pinned", "write, pinned copy"
LIMITS = {
    PINNED_COPY: "only a copy of pinned memory to the GPU",
    OF_PINNED: "the sum of an array that is already in pinned memory",
    WRITTEN: "only the CPU threads' copy of the array to pinned memory",
    WRITTEN_COPY: "this copy and then the copy to the GPU, from data in the CPU's caches",
}


@dataclass(frozen=True)
class Input:
    """An array to add up, and the arguments of the sum."""

    array: dtypes.Array
    conversion: dtypes.Conversion
    accumulate: str | None
    device: str | None
    offset: int = 0

    @property
    def dtype(self) -> Any:
        """The dtype that a call names, or None."""
        return self.accumulate and self.conversion.result


def input_of(array: dtypes.Array, device: devices.Device) -> Input:
    """An array whose sum has the default dtype."""
    return Input(array, dtypes.convert(array.dtype, None), None, device.id)


def array_of(dtype: str, n: int, data: str = "") -> dtypes.Array:
    """Random numbers. A large array repeats some of them, which does not affect the times.

    All data are of one kind.
    """
    rng = arrays.random_numbers(n)
    kind = dtypes.named(dtype)
    some = min(n, 2**22 + 1)
    if kind.kind in "iu":
        part = rng.integers(0, 100, some, dtype=kind)
    else:
        part = rng.standard_normal(some).astype(kind)
    return arrays.repeated(part, n)


def row_of(strategy: Any) -> Any:
    """The line of the registry, or a user's kernel as it is."""
    return strategy if isinstance(strategy, registry.UserKernel) else registry.find(strategy)


def launches(strategy: Any) -> bool:
    """Whether it launches kernels itself."""
    row = row_of(strategy)
    return isinstance(row, registry.UserKernel) or row.launches_kernels


def on_processors(strategy: Any) -> bool:
    """Whether it is a strategy of the processors."""
    row = row_of(strategy)
    return not isinstance(row, registry.UserKernel) and row.kind == "host"


def _title(strategy: Any) -> str:
    """The name in the results. A user's kernel may have the name of a strategy."""
    if isinstance(strategy, registry.UserKernel):
        return strategy.name + " (yours)" * registry.is_known(strategy.name)
    return strategy.name if isinstance(strategy, registry.Strategy) else str(strategy)


def _contender(
    strategy: Any, timed: Timed, value: Run, device: str, source: str = "perf_counter", **more: Any
) -> Contender:
    fields: dict[str, Any] = {"block": None, "grid": None, "device": device, "source": source}
    fields |= {"cache": "warm", "peak_gb_s": None, "producer": "", "way": ""}
    return Contender(_title(strategy), timed, value, fields | more)


def _no_value() -> Any:
    """The value of a contender whose value is no sum, or is not compared."""
    return np.float64("nan")


# --- launches ----------------------------------------------------------------------------------


def rotation(device: devices.Device, nbytes: int) -> tuple[int, str]:
    """The number of input copies to read in turn, and the L2 cache's state, "cold" or "warm"."""
    if device.backend != "cuda" or not device.l2_bytes:
        return 1, "warm"
    copies = max(1, min(_MOST_COPIES, -(-3 * device.l2_bytes // max(nbytes, 1))))
    return copies, "cold" if copies * nbytes > device.l2_bytes else "warm"


def kernel(
    given: Input, strategy: Any, block: int | None = None, grid: int | None = None,
    finish: str | None = None, *, apart: bool = False, load_only: bool = False,
) -> Contender:  # fmt: skip
    """The launches of a kernel or of CUB, without Python; or a host strategy's sum.

    With `load_only`, the launches of a kernel that loads the array and stores one word.
    """
    row, array = row_of(strategy), given.array
    if on_processors(row):
        return _host_kernel(given, row)
    device = devices.choose_device(given.device)
    copies, cache = rotation(device, array.nbytes)
    measure = _of_a_user if isinstance(row, registry.UserKernel) else _of_ours
    measured = measure(given, row, device, (block, grid, finish))

    def timed(repeats: int) -> list[float]:
        times, ran_block, ran_grid = measured(
            copies=copies, repeats=repeats, offset=given.offset, apart=apart, load_only=load_only
        )
        if not load_only:
            made.fields |= {"block": ran_block, "grid": ran_grid}
        return [1e3 * ms for ms in times]

    on_card = device.backend == "cuda"
    made = _contender(
        row,
        timed,
        lambda: sum_of(array, cast(Any, row), given.dtype, block, grid, device=device.id).value,
        device.name,
        "cuda_event" if on_card else "emulator",
        cache=cache,
        peak_gb_s=device.peak_gb_s if on_card else None,
    )
    return replace(made, strategy=libraries.LOAD_ONLY, value=_no_value) if load_only else made


_Measure = Callable[..., tuple[list[float], int | None, int | None]]
_Launch = tuple[int | None, int | None, str | None]


def _of_ours(given: Input, row: Any, device: devices.Device, launch: _Launch) -> _Measure:
    """A function that times the launches of a strategy, or of a user's kernel on a card."""
    devices.check_can_run(device, row)
    ran = placed(row, device.id, given.conversion.result)  # `auto` is `exact` for floats
    block, grid, finish = launch
    finish = finish or ("host" if ran.finishes == ("host",) else None)
    plan = Plan(ran, given.conversion, block or 0, grid or 0, finish)
    return functools.partial(on_device.measure, plan, given.array, device)


def _of_a_user(given: Input, row: Any, device: devices.Device, launch: _Launch) -> _Measure:
    """A function that times the launches of a user's kernel."""
    if device.backend == "cuda":
        placed_there = row.call("place", device, given.array.dtype, given.dtype)
        return _of_ours(given, placed_there, device, launch)

    def measure(*, repeats: int, apart: bool, **_: Any) -> Any:
        return row.call("measure", given.array, given.dtype, *launch[:2], repeats, apart)

    return measure


def _host_kernel(given: Input, row: registry.Strategy) -> Contender:
    def add() -> Any:
        return sum_of(given.array, row.name, given.dtype)

    def timed(repeats: int) -> list[float]:
        add()
        return [add().timing.kernel_ms * 1e3 for _ in range(repeats)]

    return _contender(row.name, timed, lambda: add().value, "cpu")


# --- calls -------------------------------------------------------------------------------------


def _our_call(given: Input, name: Any, device: str | None) -> Run:
    dtype = given.dtype
    return lambda: sum_of(given.array, name, dtype, device=device, timing=False).value


def on_host(given: Input, name: Any) -> Contender:
    """A whole call, from a NumPy array to the number."""
    where = "cpu"
    if name == "numpy":
        call: Run = functools.partial(np.sum, given.array, dtype=given.conversion.result)
    elif libraries.is_ours(name) or name == "cub":
        device = None if on_processors(name) else given.device
        where = sum_of(given.array, name, given.dtype, device=device).timing.device
        call = _our_call(given, name, device)
    else:
        peer, module = libraries.load(name)
        assert peer.add_host
        call = peer.add_host(module, given.array)
        where = "cpu" if name == "torch" else devices.choose_device(None).name

    def timed(repeats: int) -> list[float]:
        time.sleep(_QUIET_S)
        return of_calls(call)(repeats)

    return _contender(name, timed, call, where, producer="numpy")


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
            named = None if on_processors(name) else given.device
            where = sum_of(array, name, device=named).timing.device

        def run() -> Any:
            return sum_of(array, name, dtype, device=named, timing=timing).value.item()

    try:
        run()
    except TypeError:  # kernels read contiguous arrays of the dtypes that they are compiled for
        return None
    return _contender(
        name,
        of_calls(run),
        _no_value if kind == "cast" else run,
        where,
        producer=producer,
        peak_gb_s=device.peak_gb_s if on_card and device.backend == "cuda" else None,
        way=way,
    )


def explaining(
    given: Input, strategy: Any, block: int | None, grid: int | None, *, sample: bool
) -> Contender:
    """A call of `explain`, with sampled blocks or with all of them."""

    def call() -> Explanation:
        dtype = given.conversion.result if given.accumulate else given.array.dtype
        return explained(
            row_of(strategy), n=given.array.size, dtype=dtype, block=block or 256, grid=grid,
            input_dtype=given.array.dtype, sample=sample,
        )  # fmt: skip

    found = call()
    made = _contender(row_of(strategy), of_calls(call), _no_value, "gpureduce emulator")
    made.fields |= {"block": found.block, "grid": found.grid}
    return made


def through_pinned(given: Input) -> Iterator[Contender]:
    """References for sums of host arrays on the GPU: `LIMITS`, in their order."""
    _, torch = libraries.load("torch")
    device = devices.choose_device(given.device)
    pinned = torch.empty(given.array.nbytes, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(given.array.nbytes, dtype=torch.uint8, device="cuda")
    array = pinned.numpy().view(given.array.dtype)
    np.copyto(array, given.array)

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

    calls = (copy, _our_call(replace(given, array=array), "fast", given.device), write,
             write_and_copy)  # fmt: skip
    for name, run in zip(LIMITS, calls, strict=True):
        yield _contender(name, of_calls(run), run, device.name, producer="torch")
