"""Sums by segment by kernels, of arrays on a GPU and of host arrays.

The sums of arrays on a GPU lie on the same GPU, as device_results.py says. csrc/engine/segments.c
has the order of the launches.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gpureduce import _host
from gpureduce.core import (
    arrays,
    device_results,
    devices,
    digits,
    dtypes,
    gpu_arrays,
    registry,
)
from gpureduce.core.dtypes import Array
from gpureduce.core.plan import Arguments, Plan
from gpureduce.core.results import Outcome, SumResult
from gpureduce.core.schedule import current

_MOST_SEGMENTS = 2**63 - 2
_NOTHING = (None, None, None, True)  # no initial number, no out, perhaps sorted, checked
_MOST_KEYS = 2**31  # the kernels of kernels/keys count them in 32 bits


class Groups(NamedTuple):
    """The arguments of `segment_sum` that say which rows go to which sum, and where to."""

    ids: Any
    offsets: Any
    size: int | None  # the number of segments
    initial: Any
    out: Any
    is_sorted: bool | None
    check: bool
    as_digits: bool = False  # of the sums, in place of rounded sums

    @property
    def numbers(self) -> Any:
        """The ids or the offsets."""
        return self.offsets if self.ids is None else self.ids

    @property
    def kind(self) -> int:
        """The grouping, for conversions."""
        return _host.OFFSETS if self.ids is None else _host.IDS

    @property
    def name(self) -> str:
        """The argument that `numbers` is."""
        return "offsets" if self.ids is None else "segment_ids"


def out_of_range(place: int, number: int, count: int) -> ValueError:
    """The error for an id."""
    if number < 0:
        return ValueError(
            f"segment_ids[{place}] is {number}, which is out of range: ids are not negative"
        )
    right = f"ids from 0 to {count - 1}" if count else "no ids"
    return ValueError(
        f"segment_ids[{place}] is {number}, which is out of range: num_segments={count} allows "
        f"{right}"
    )


def no_room(count: int, largest: int | None) -> MemoryError:
    """The error if there is no memory for the sums. `largest` is the id that their number is of."""
    if largest is None:
        return MemoryError(f"there is no memory for the sums of num_segments={count}")
    return MemoryError(
        f"there is no memory for a sum for each number from 0 to the largest id, {largest}: number "
        "the segments from 0 on, as numpy.unique(segment_ids, return_inverse=True)[1] does"
    )


def not_sorted(place: int, number: int, before: int) -> ValueError:
    """The error for ids that were said to be sorted."""
    return ValueError(
        f"sorted=True, but segment_ids[{place}] is {number} and segment_ids[{place - 1}] is "
        f"{before}: leave sorted out"
    )


def wrong_ends(first: int, last: int, rows: int) -> ValueError:
    """The error for offsets that do not span the values."""
    return ValueError(
        f"offsets must go from 0 to the number of rows, {rows}, not from {first} to {last}"
    )


def falling(place: int, number: int, after: int) -> ValueError:
    """The error for offsets of which one is below the one before it."""
    return ValueError(
        f"offsets must not decrease: offsets[{place}] is {number} and offsets[{place + 1}] is "
        f"{after}"
    )


def _raise(problem: tuple[bool, int, int, int], groups: Groups, count: int, rows: int) -> NoReturn:
    """Raises the error for what a kernel found."""
    is_unsorted, place, number, beside = problem
    if groups.ids is None:
        if place < count and beside < number:
            raise falling(place, number, beside)
        raise ValueError(
            f"offsets must go from 0 to the number of rows, {rows}, but offsets[{place}] is "
            f"{number}"
        )
    if is_unsorted:
        raise not_sorted(place, number, beside)
    raise out_of_range(place, number, count)


def _name(conversion: dtypes.Conversion, groups: Groups) -> str:
    """The strategy for a timing."""
    if conversion.exactly:
        return "exact"
    return "segment_rows" if groups.ids is None else "segment_atomics"


def _details(
    conversion: dtypes.Conversion, target: int, groups: Groups, count: int,
    schedule: tuple[int, int], timed: bool, kernel: int = -1,
) -> tuple[Any, ...]:  # fmt: skip
    """The tuple that C reads: csrc/bindings/device/segments.c."""
    initial = device_results.initial_of(
        0 if groups.initial is None else groups.initial, conversion.result
    )
    known = -1 if groups.is_sorted is None else int(groups.is_sorted)
    return (
        conversion.acc, conversion.exactly, target, initial, groups.ids is None, known,
        groups.check, count, *schedule, timed, kernel, groups.as_digits,
    )  # fmt: skip


# --- host arrays -------------------------------------------------------------------------------


def add_host(
    plan: Plan, array: Array, groups: Groups, numbers: Array, sums: Array
) -> tuple[Outcome, str]:
    """The sums of host arrays, which are copied to the device, and the strategy for the timing.

    The arguments have been checked, but not the ids.
    """
    schedule, device = current(), devices.choose_device(plan.device, or_cpu=True)
    module = devices.module_of(device, traced=schedule.traced)
    order = schedule.number, schedule.seed
    conversion, name = plan.conversion, _name(plan.conversion, groups)
    if plan.strategy.kind == "keys":
        name = plan.strategy.name
        if groups.initial not in (None, 0):
            raise ValueError(f"initial is not for {name}")
        values, index, details = lesson_arguments(
            plan.strategy, conversion, array, numbers, len(sums), order, plan.timed
        )
    else:
        values = arrays.without_gaps(array, conversion.elements or array.dtype)
        index = arrays.without_gaps(numbers, numbers.dtype)
        target, checked = dtypes.load_of(conversion.result), groups._replace(check=True)
        details = _details(conversion, target, checked, len(sums), order, plan.timed)
    into = (
        sums if sums.flags.c_contiguous and sums.flags.aligned else np.empty_like(sums, order="C")
    )
    launch = module.sum_segments_of_host(
        values, index, into, _kind(values), index.dtype.kind, device.index, details
    )
    if launch[-1] is not None:
        _raise(launch[-1], groups, len(sums), len(values))
    if into is not sums:
        sums[...] = into
    return _outcome_of(device, launch), name


def _kind(values: Array) -> str:
    return "B" if dtypes.is_bfloat16(values.dtype) else values.dtype.kind


def _outcome_of(device: devices.Device, launch: tuple[Any, ...]) -> Outcome:
    """The outcome of a call of C for host arrays."""
    block, grid, launches, ms, _ = launch
    source = "emulator" if device.backend == "emulator" else "cuda_event"
    outcome = Outcome(None, source, device.backend, device.name, peak_gb_s=device.peak_gb_s)
    outcome.block, outcome.grid, outcome.launches = block or None, grid or None, launches
    outcome.h2d_ms, outcome.kernel_ms, outcome.d2h_ms = ms or (0.0, 0.0, 0.0)
    return outcome


def _checked_keys(name: str, ids: Array, count: int) -> Array:
    """A copy of the ids. Signals are handled between its parts."""
    own = np.empty(ids.shape, np.uint32)
    for (where,) in arrays.parts(ids.shape, 1):
        some, first = ids[where].copy(), where.start  # the kernels rely on what is checked here
        wrong = np.flatnonzero((some < 0) | (some >= count))
        if wrong.size:
            raise out_of_range(first + int(wrong[0]), int(some[wrong[0]]), count)
        own[where] = some
        if name == "key_sorted":
            begin, end = max(first, 1), first + len(some)
            falls = np.flatnonzero(own[begin:end] < own[begin - 1 : end - 1])
            if falls.size:
                k = begin + int(falls[0])
                raise ValueError(
                    f"key_sorted takes sorted ids, but segment_ids[{k}] is {own[k]} and "
                    f"segment_ids[{k - 1}] is {own[k - 1]}"
                )
    return own


def lesson_arguments(
    chosen: registry.Strategy, conversion: dtypes.Conversion, values: Array, ids: Array,
    count: int, schedule: tuple[int, int], timed: bool,
) -> tuple[Array, Array, tuple[Any, ...]]:  # fmt: skip
    """Values, ids and details for a kernel of kernels/keys. Checks what such a kernel relies on."""
    name, result = chosen.name, conversion.result
    if result.name not in chosen.dtypes:
        raise TypeError(f"{name} adds up {' or '.join(chosen.dtypes)}, not {result}")
    if values.ndim != 1:
        raise ValueError(f"{name} adds up numbers, (n,), not rows")
    if count > _MOST_KEYS:
        raise ValueError(f"{name} makes at most 2^31 sums, not num_segments={count}")
    own = _checked_keys(name, ids, count)
    groups = Groups(own, None, count, None, None, None, True)
    details = _details(
        conversion, dtypes.load_of(result), groups, count, schedule, timed, chosen.index
    )
    numbers = np.empty(values.shape, result)
    for where in arrays.parts(values.shape, 1):
        dtypes.quietly(np.copyto, numbers[where], values[where], casting="unsafe")
    return numbers, own, details


def counted_arguments(
    chosen: registry.Strategy, conversion: dtypes.Conversion, values: Array, ids: Array, count: int
) -> tuple[Any, ...]:
    """The arguments of C's sums by segment, with an array for the sums: for counts."""
    if chosen.kind == "keys":
        values, ids, details = lesson_arguments(
            chosen, conversion, values, ids, count, (0, 0), False
        )
    else:
        if not dtypes.is_exact(conversion.result):
            raise TypeError(f"exact adds up floats, not {conversion.result}")
        target, groups = dtypes.load_of(conversion.result), Groups(ids, None, count, *_NOTHING)
        how = dtypes.convert(values.dtype, conversion.result, True, _host.ON_GPU, _host.IDS)
        details = _details(how, target, groups, count, (0, 0), False)
    sums = np.empty(count, conversion.result)
    return values, ids, sums, _kind(values), ids.dtype.kind, 0, details


# --- arrays on a GPU ---------------------------------------------------------------------------


class _Plan:
    """Tells C, which has read the values' description, where the sums go and how to make them."""

    def __init__(
        self, call: Arguments, name: str, values: Any, groups: Groups, module: Any
    ) -> None:
        self.call, self.name, self.values, self.groups, self.module = (
            call, name, values, groups, module,
        )  # fmt: skip
        self.library = device_results.library_of(type(values), module)
        self.element, self.device, self.n, self.rows, self.count = ("", 0), 0, 0, 0, 0
        self.largest: int | None = None
        self.ran = ""
        self.value: Any = None

    def __call__(
        self, kind: str, nbytes: int, device: int, shape: tuple[int, ...], steps: tuple[int, ...],
        stream: int,
    ) -> tuple[Any, ...]:  # fmt: skip
        call, groups = self.call, self.groups
        gpu_arrays.check_same_device(call.device, device)
        if len(shape) not in (1, 2):
            raise ValueError(
                f"values must have 1 or 2 dimensions, (n,) or (n, d), not {len(shape)}"
            )
        self.element, self.device, self.rows = (kind, nbytes), device, shape[0]
        self.n = math.prod(shape)
        wanted = digits.dtype_for(kind) if groups.as_digits else call.dtype
        grouping = _host.AXES if groups.as_digits else groups.kind
        conversion, result = device_results.conversion_of(
            kind, nbytes, wanted, self.name != "fast", grouping
        )
        self.ran = _name(conversion, groups)
        target = device_results.target_of(conversion, result)
        self.count = self._count(device, stream)
        sums: tuple[int, ...] = (self.count, *shape[1:])
        if groups.as_digits:
            sums, result = (*sums, digits.numbers_of(kind)), "int64"
        details = _details(conversion, target, groups, self.count, (0, 0), bool(call.timing))
        if groups.out is None:
            try:
                self.value = self.library.maker(sums, result, device)(stream)
            except MemoryError as error:
                raise no_room(self.count, self.largest) from error
        else:
            self.value = groups.out
            device_results.check_out(self.value, type(self.values), result, sums)
        return self.value, details

    def _count(self, device: int, stream: int) -> int:
        """The number of segments."""
        groups = self.groups
        infers = groups.ids is not None and groups.size is None and groups.out is None
        rows = self.rows if infers else -1
        size, most = self.module.describe_index(groups.numbers, groups.name, device, stream, rows)
        if groups.ids is None:
            if size == 0:
                raise no_offsets()
            if groups.size is not None and groups.size != size - 1:
                raise other_count(size, groups.size)
            return int(size) - 1
        if size != self.rows:
            raise ValueError(f"there are {size} segment_ids for {self.rows} rows of values")
        if groups.size is not None:
            return groups.size
        if infers:
            self.largest = most
            return int(min(max(most + 1, 0), _MOST_SEGMENTS))
        shape: tuple[int, ...] = getattr(groups.out, "shape", ())
        return int(shape[0]) if len(shape) else 0


def no_offsets() -> ValueError:
    """The error for no offsets at all."""
    return ValueError(
        "offsets must have one number more than there are segments, not none: [0] if there are none"
    )


def other_count(size: int, count: int) -> ValueError:
    """The error for offsets of another number of segments."""
    return ValueError(f"{size} offsets are for {size - 1} segments, not for num_segments={count}")


def add_gpu(call: Arguments, name: str, values: Any, groups: Groups, start: float) -> SumResult:
    """The sums of arrays on a GPU, on that GPU."""
    on_gpu = values if arrays.lies_on_a_gpu(values) else groups.numbers
    module = gpu_arrays.needed_module(on_gpu, call.device)
    if name not in ("auto", "exact", "fast"):
        raise ValueError(
            f"{registry.find(name).name} makes no sums by segment of arrays on a GPU; auto, exact "
            "and fast do"
        )
    plan = _Plan(call, name, values, groups, module)
    given = plan.library.stream(values) if call.stream is None else call.stream
    stream = gpu_arrays.stream_number(given)
    found = gpu_arrays.ask(module.sum_segments_on_device, values, groups.numbers, plan, stream)
    if found is None:
        raise TypeError(
            f"{groups.name} lie on a GPU, and values, {type(values).__name__}, do not: copy one of "
            "them to where the other is"
        )
    *launch, problem = found
    if problem is not None:
        _raise(problem, groups, plan.count, plan.rows)
    value = plan.library.result(plan.value) if groups.out is None else plan.value
    if not call.timing:
        return SumResult(value, None)
    where = module.BACKEND, plan.device, plan.element, plan.n
    return SumResult(value, device_results.timing_of(*where, plan.ran, launch, start))
