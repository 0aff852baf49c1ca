"""Sums of large host arrays by the processors and a GPU at the same time."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

from gpureduce import _host
from gpureduce.core import devices, exact, on_device, on_host
from gpureduce.core.arrays import is_flat
from gpureduce.core.dtypes import Array
from gpureduce.core.request import Request
from gpureduce.core.results import Outcome

_SLAB_BYTES = 1 << 30  # Ctrl-C takes effect between two slabs: a GPU's sum cannot be interrupted


class _Beside:
    """A call that runs on a thread of its own from ``with`` on, and has ended after the block.

    Not an executor of concurrent.futures, which imports logging. That sets a handler for fork()
    that takes a lock, and lazy_import.py says why a first use must not.
    """

    def __init__(self, call: Callable[[], Outcome]) -> None:
        self._call = call
        self._outcome: Outcome | BaseException
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._outcome = self._call()
        except BaseException as error:
            self._outcome = error

    def __enter__(self) -> _Beside:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.join()

    def outcome(self) -> Outcome:
        """The outcome of the call. If the call raised an exception, raises that."""
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


def add(
    request: Request,
    array: Array,
    device: devices.Device,
    share: float,
    into: _host.Exact | None = None,
) -> Outcome:
    """The GPU adds up its share of the array while the processors add up the rest."""
    by_host = request.by("exact" if request.strategy.kind == "everywhere" else "cpu")
    if not is_flat(array):  # packing it would take longer than adding it up
        return on_host.add(by_host, array, into)
    start = time.perf_counter()
    flat, result = array.reshape(-1, order="A"), request.conversion.result
    exactly = by_host.strategy.name == "exact"
    totals = [exact.new(result) if exactly else None for _ in range(2)]
    slab = max(1, _SLAB_BYTES // flat.itemsize)
    values, launches = [], 0
    for first in range(0, flat.size, slab):
        part = flat[first : first + slab]
        cut = int(part.size * share)
        by_device = functools.partial(on_device.add, request, part[:cut], device, totals[0])
        with _Beside(by_device) as job:
            values.append(on_host.add(by_host, part[cut:], totals[1]).value)
        done = job.outcome()
        values.append(done.value)
        launches += done.launches
    if totals[0] and totals[1]:
        totals[0].merge(totals[1])
        value, strategy = exact.value(totals[0], result), done.strategy
        if into:
            into.merge(totals[0])
    else:
        value = np.array(values, result).sum(dtype=result)  # integers, which wrap around
        strategy = f"cpu+{done.strategy}"
    where = f"cpu+{device.backend}", f"cpu + {device.name}"
    ms = (time.perf_counter() - start) * 1e3
    outcome = Outcome(value, "perf_counter", *where, strategy=strategy, kernel_ms=ms)
    outcome.block, outcome.grid, outcome.launches = done.block, done.grid, launches
    return outcome
