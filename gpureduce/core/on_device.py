"""Sums of host arrays by a kernel, on a GPU or on the emulator; and times of the launches."""

from __future__ import annotations

import numpy as np

from gpureduce import _host
from gpureduce.core import devices, exact, registry
from gpureduce.core.arrays import add_pieces
from gpureduce.core.dtypes import Array
from gpureduce.core.plan import Plan
from gpureduce.core.results import Outcome, launched, ran_on
from gpureduce.core.schedule import current

TIMES = ("kernel_ms", "h2d_ms", "d2h_ms", "init_ms")  # as C returns them


def add(
    plan: Plan, array: Array, device: devices.Device, into: _host.Exact | None = None
) -> Outcome:
    """The sum of a host array; an exact one is also added to `into`, before it is rounded."""
    schedule = current()
    module = devices.module_of(device, traced=schedule.traced)
    devices.check_can_run(device, plan.strategy)
    fields = ran_on(device, pieces=0)
    launch = plan.launch(device, schedule)

    def add_one(piece: Array, load: int = launch.load) -> bytes:
        nonlocal launch
        bits, *times, block, grid, launches, _, ran = module.sum(
            piece, launch if load == launch.load else launch._replace(load=load)
        )
        for name, ms in zip(TIMES, times, strict=True):
            fields[name] += ms
        launches += fields["launches"]
        if not fields["pieces"]:
            fields.update(launched(block, grid, 0), strategy=registry.name_at(ran))
            if plan.strategy.kind == "choice":
                # The choice for the first piece holds for all: the timing names one launch.
                launch = launch._replace(strategy=ran, block=block, grid=grid)
        fields["launches"] = launches
        fields["pieces"] += 1
        return bytes(bits)

    if plan.strategy.kind == "everywhere":
        total = into or exact.new(plan.conversion.result)
        exact.feed_by(total, array, add_one)
        return Outcome(exact.value(total, plan.conversion.result), fields)
    return Outcome(add_pieces(array, plan.conversion, add_one), fields)


def measure(
    plan: Plan,
    array: Array,
    device: devices.Device,
    *,
    copies: int,
    repeats: int,
    warmups: int = 2,
    offset: int = 0,
    apart: bool = False,
    load_only: bool = False,
) -> tuple[list[float], int | None, int | None]:
    """Times the launches of one sum, `repeats` times. Returns milliseconds, block and grid.

    The input lies on the device in `copies` copies that are read in turn. Each begins `offset`
    elements after a 512-byte boundary. With `apart`, a separate operation runs between two sums;
    its time is subtracted. With `load_only`, a kernel that only loads the array and stores one word
    takes the place of the sum.
    """
    how = (copies, warmups, repeats, offset, apart, load_only)
    found = devices.module_of(device).measure(array, plan.launch(device), *how)
    return measured(found)


def measured(found: tuple[bytes, int, int, int]) -> tuple[list[float], int | None, int | None]:
    """Converts a measurement from C to milliseconds, block and grid."""
    times, block, grid, _ = found
    return np.frombuffer(times).tolist(), block or None, grid or None
