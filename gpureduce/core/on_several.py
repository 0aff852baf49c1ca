"""Sums of host arrays by several devices at the same time: the processors, GPUs, emulated ones.

Each device has a thread, which takes a slab of the array, adds it up, and takes the next one. For
exact sums and integers, where the order of additions does not matter, a slab's size follows the
rate that the device had so far, so that all devices finish at about the same time. For other sums,
each device has the same share, and the sums of the slabs are added in the array's order: the same
call gives the same bits.

A copy to a card reads and writes host memory, and takes bandwidth that the processors could use. So
the first large sum also measures the processors alone, and so does a much larger one. Unless all
devices together are quicker by some percent, later sums of this kind leave the cards out.
"""

from __future__ import annotations

import _thread
import collections
import contextvars
import itertools
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gpureduce import _host
from gpureduce.core import devices, exact, on_device, run_host
from gpureduce.core.arrays import is_flat
from gpureduce.core.dtypes import Array, rounded_later, sum_in_order
from gpureduce.core.plan import Plan
from gpureduce.core.results import Outcome, ran_on
from gpureduce.errors import naming

# A GPU's sum cannot be interrupted: Ctrl-C takes effect between two slabs. An emulated GPU takes as
# long for the smaller one.
_SLAB_BYTES, _EMULATED_SLAB_BYTES = 1 << 30, 1 << 25
_LEAST_BYTES = 1 << 22  # a device that adds up less than this is not worth its thread
_PROBE_BYTES = 1 << 24  # the first slab of a device whose rate is not known
_JUDGED_BYTES = 1 << 30  # the least array that tells whether the processors are quicker alone
_JUDGED_AGAIN = 8  # an array so many times larger is judged again
_ALONE = 4  # a quarter of it is added up by the processors alone
_GAIN = 1.05  # least speedup by all devices together: measurements vary by some percent
_PART_OF_SHARE = 0.75  # a slab is this part of the share that the rates suggest: rates have errors

_PROCESSORS = "cpu"

# Bytes per second of each device, measured when several devices worked at the same time.
_rates: dict[str, float] = {}

# By strategy, dtype and devices: whether the processors add up alone, and the size in bytes of the
# array that was judged.
_alone: dict[tuple[Any, ...], tuple[bool, int]] = {}


def rates(found: Sequence[devices.Device | None]) -> list[float]:
    """The rates of these devices that `add` measured: bytes per second while all of them work."""
    return [_rates[one.id if one else _PROCESSORS] for one in found]


def start_rates(found: Sequence[devices.Device | None], shares: Sequence[float]) -> None:
    """Sets the rates of devices that have none yet to an earlier measurement's proportions."""
    names = [one.id if one else _PROCESSORS for one in found]
    if not any(name in _rates for name in names):
        _rates.update(zip(names, shares, strict=True))


@dataclass
class _Member:
    """A device at work; None for the processors."""

    device: devices.Device | None
    total: _host.Exact | None  # of an exact sum
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.device.id if self.device else _PROCESSORS

    @property
    def most_bytes(self) -> int:
        emulated = self.device is not None and self.device.backend == "emulator"
        return _EMULATED_SLAB_BYTES if emulated else _SLAB_BYTES


class _Job:
    """A sum that several threads work on."""

    def __init__(self, plan: Plan, flat: Array, members: list[_Member]) -> None:
        self.plan, self.flat, self.members = plan, flat, members
        self.any_order = _is_any_order(plan)
        self.values: list[tuple[int, Any]] = []
        self.failed: tuple[_Member, BaseException] | None = None
        self.stopped = False
        self._lock = threading.Lock()
        each = -(-flat.size // len(members))
        # [first, end] of the elements not yet taken: one range for all devices, or one for each.
        self._left = [[0, flat.size]] if self.any_order else [
            [min(i * each, flat.size), min((i + 1) * each, flat.size)] for i in range(len(members))
        ]  # fmt: skip
        # The first slab of each device, so that each thread has work.
        self._first: list[tuple[int, int] | None] = [self._next(i) for i in range(len(members))]

    def work(self, number: int) -> None:
        """Adds up slabs until none is left: the body of each thread."""
        member = self.members[number]
        try:
            while (slab := self._take(number)) is not None:
                start = time.perf_counter()
                self.add(member, self.flat[slab[0] : slab[1]], slab[0])
                self._note_rate(member, slab, time.perf_counter() - start)
        except BaseException as error:
            self.stopped = True
            if self.failed is None or isinstance(self.failed[1], Exception):
                self.failed = member, error

    def add(self, member: _Member, part: Array, first: int) -> None:
        """Adds up a part, whose values are joined in the order of `first`."""
        outcome = _by_one(self.plan, part, member.device, member.total)
        member.outcomes.append(outcome)
        if member.total is None:
            self.values.append((first, outcome.value))

    def _take(self, number: int) -> tuple[int, int] | None:
        with self._lock:
            if self.stopped:
                return None
            first, self._first[number] = self._first[number], None
            return first or self._next(number)

    def _next(self, number: int) -> tuple[int, int] | None:
        left = self._left[0 if self.any_order else number]
        first, end = left
        if first >= end:
            return None
        left[0] = min(end, first + self._size(self.members[number], end - first))
        return first, left[0]

    def _size(self, member: _Member, left: int) -> int:
        """The elements of a device's next slab, of those that are left."""
        itemsize = self.flat.itemsize
        most = member.most_bytes // itemsize
        if not self.any_order:
            return most
        rates = [_rates.get(one.id) for one in self.members]
        own, least = _rates.get(member.id), _LEAST_BYTES // itemsize
        if own is None:
            return min(_PROBE_BYTES // itemsize, most, left // len(self.members) or 1)
        share = own / sum(rate or own for rate in rates)
        size = min(max(int(left * share * _PART_OF_SHARE), least), most)
        return size if left - size >= least else min(left, most)

    def _note_rate(self, member: _Member, slab: tuple[int, int], seconds: float) -> None:
        nbytes = (slab[1] - slab[0]) * self.flat.itemsize
        if nbytes >= _LEAST_BYTES and seconds > 0:
            before = _rates.get(member.id, nbytes / seconds)
            _rates[member.id] = (before + nbytes / seconds) / 2


def _work(job: _Job, number: int, context: contextvars.Context, runs: _thread.LockType) -> None:
    """The body of a thread. `runs` is locked until it ends."""
    try:
        context.run(job.work, number)
    finally:
        runs.release()


def _run(job: _Job) -> None:
    """Works on all devices; the calling thread on the first one, so that Ctrl-C reaches it.

    `_thread` is C, and starts all threads in one step. A signal handler that raises within the
    Python code of `threading` may leave a lock there that a thread waits for without end.
    """
    numbers = range(1, len(job.members))
    locks = [_thread.allocate_lock() for _ in numbers]
    arguments = [
        (job, number, contextvars.copy_context(), lock)
        for number, lock in zip(numbers, locks, strict=True)
    ]
    started: list[int] = []
    try:
        for lock in locks:
            lock.acquire()
        started.extend(map(_thread.start_new_thread, itertools.repeat(_work), arguments))
        job.work(0)
    finally:
        job.stopped = job.stopped or sys.exc_info()[0] is not None
        for lock in locks[: len(started)]:
            lock.acquire()
    if job.failed:
        member, error = job.failed
        raise naming(f"on {member.id}", error)


def _chosen(plan: Plan, nbytes: int, found: Sequence[devices.Device | None]) -> list[_Member]:
    """The devices that are worth their thread, the processors first."""
    order = sorted(found, key=lambda device: device is not None)
    exactly, result = plan.strategy.kind == "everywhere", plan.conversion.result
    return [
        _Member(one, exact.new(result) if exactly else None)
        for one in order[: max(1, nbytes // _LEAST_BYTES)]
    ]


def add(
    plan: Plan,
    array: Array,
    found: Sequence[devices.Device | None],
    into: _host.Exact | None = None,
) -> Outcome:
    """The sum of a host array by all these devices, of which None stands for the processors.

    An array that is not contiguous is added up by the first of them: to pack it takes longer than
    the additions. An exact sum is also added to `into`, before it is rounded.
    """
    start = time.perf_counter()
    members = _chosen(plan, array.nbytes if is_flat(array) else 0, found)
    if len(members) == 1:
        return _by_one(plan, array, members[0].device, into)
    result, flat = plan.conversion.result, array.reshape(-1, order="A")
    kind = plan.strategy.name, array.dtype, *(member.id for member in members)
    are_alone, told_by = _alone.get(kind, (False, _JUDGED_BYTES // _JUDGED_AGAIN))
    may_be = members[0].device is None and _is_any_order(plan)
    alone = array.size // _ALONE if may_be and array.nbytes >= told_by * _JUDGED_AGAIN else 0
    if are_alone and not alone:
        return _by_one(plan, array, None, into)
    wide = replace(plan, conversion=rounded_later(plan.conversion))
    job = _Job(wide, flat[alone:], members)
    alone_s = _seconds(lambda: job.add(members[0], flat[:alone], -1)) if alone else 0
    together_s = _seconds(lambda: _run(job))
    if alone:
        quicker = alone / alone_s * _GAIN > job.flat.size / together_s
        _alone[kind] = quicker, array.nbytes
    total = members[0].total
    if total:
        for member in members[1:]:
            total.merge(cast(_host.Exact, member.total))
        value = exact.value(total, result)
        if into:
            into.merge(total)
    else:
        values = sorted(job.values, key=lambda one: one[0])
        value = sum_in_order([value for _, value in values], result)
    return _outcome(members, value, (time.perf_counter() - start) * 1e3)


def _is_any_order(plan: Plan) -> bool:
    """Whether the order of additions does not matter."""
    return plan.strategy.kind == "everywhere" or plan.conversion.result.kind in "iu"


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _by_one(
    plan: Plan, array: Array, device: devices.Device | None, into: _host.Exact | None
) -> Outcome:
    if device:
        return on_device.add(plan, array, device, into)
    on_host = plan.by("exact" if plan.strategy.kind == "everywhere" else "cpu")
    return run_host.add(on_host, array, into)


def names_of(found: Sequence[devices.Device | None]) -> str:
    """The devices in words: ``"cpu + 2 x NVIDIA H200"``."""
    counts = collections.Counter(one.name if one else _PROCESSORS for one in found)
    return " + ".join(name if n == 1 else f"{n} x {name}" for name, n in counts.items())


def _outcome(members: list[_Member], value: Any, ms: float) -> Outcome:
    done = [one.fields for member in members for one in member.outcomes]
    kernels = [one for one in done if one["launches"]]
    backends = dict.fromkeys(one.device.backend if one.device else _PROCESSORS for one in members)
    names = dict.fromkeys(one["strategy"] for one in kernels)
    if not members[0].total and not members[0].device:
        names = dict.fromkeys([_PROCESSORS, *names])
    fields = ran_on(
        None, backend="+".join(backends), device=names_of([one.device for one in members]),
        kernel_ms=ms, launches=sum(one["launches"] for one in done),
    )  # fmt: skip
    if names:
        fields["strategy"] = "+".join(names)
    if kernels:
        fields |= {name: kernels[0][name] for name in ("block", "grid")}
    return Outcome(value, fields)
