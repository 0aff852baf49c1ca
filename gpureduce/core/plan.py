"""The plan of a call: `resolve` decides strategy, conversion, place and launch, once.

Nothing below asks what ``"auto"`` means, whether a sum is exact, or how elements are converted.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, dtypes, registry
from gpureduce.core.checks import one_of, shown, whole
from gpureduce.core.devices import Device, choose_device
from gpureduce.core.dtypes import Conversion, convert, convert_for
from gpureduce.core.registry import Strategy
from gpureduce.core.results import Outcome, SumResult, timing_of
from gpureduce.core.schedule import Schedule

# Numbers that stand for a strategy in calls of C. CHOOSE: `fast`, whose kernel the engine chooses
# by size and dtype. AUTO: `exact` for floats, `fast` for integers.
CHOOSE, AUTO = -1, -2
ROUND_ONCE = ("auto", "exact", "exact_levels")


class Arguments(NamedTuple):
    """The arguments of `gpureduce.sum` except the array."""

    strategy: str = "auto"
    dtype: npt.DTypeLike | None = None
    block: int | None = None
    grid: int | None = None
    finish: str | None = None
    device: Any = None  # as in gpureduce.sum: a name, or a list of names
    allow_broken: bool = False
    stream: object = None
    timing: bool = True


class Launch(NamedTuple):
    """A launch for C: csrc/bindings/device/request.c reads these fields, in this order."""

    strategy: int
    load: int = -1  # set for arrays on a GPU and for samples
    acc: int = -1  # set for arrays on a GPU
    block: int = 0
    grid: int = 0
    finish: int = 0
    device: int = 0
    order: int = 0
    seed: int = 0
    timed: bool = True


@dataclass(frozen=True)
class Plan:
    """What is decided about a sum of a host array. `strategy` is never ``"auto"``.

    `block` and `grid` are 0 for the strategy's own choice. `device` is None if none was named.
    """

    strategy: Strategy
    conversion: Conversion
    block: int = 0
    grid: int = 0
    finish: str | None = None
    device: str | None = None
    timed: bool = True

    @property
    def on_host(self) -> bool:
        """Whether the strategy runs on the processors."""
        on_host = self.device in (None, "cpu")
        return self.strategy.kind == "host" or (self.strategy.kind == "everywhere" and on_host)

    def finished(self, outcome: Outcome, n: int, source: np.dtype[Any], start: float) -> SumResult:
        """The result of a call for `n` elements that began at `start`."""
        if not self.timed:
            return SumResult(outcome.value, None)
        own = {
            "strategy": self.strategy.name,
            "dtype": dtypes.name_of(source),
            "finish": self.finish or self.strategy.finishes[0],
            "n": n,
            "nbytes": n * source.itemsize,
        }
        return SumResult(outcome.value, timing_of(own | outcome.fields, start))

    def by(self, name: str) -> Plan:
        """The same plan with another strategy."""
        return replace(self, strategy=registry.STRATEGIES[name])

    def launch(self, device: Device, schedule: Schedule = Schedule()) -> Launch:  # noqa: B008
        """The launch on a device."""
        return Launch(
            number_of(self.strategy),
            self.conversion.load,
            self.conversion.acc,
            self.block,
            self.grid,
            registry.finish_number(self.finish),
            device.index,
            schedule.number,
            schedule.seed,
            self.timed,
        )


def number_of(strategy: Strategy) -> int:
    """The strategy's number for C: its line in strategies.def, or the number of a choice."""
    return {"fast": CHOOSE, "auto": AUTO}.get(strategy.name, strategy.index)


def launch_of(
    strategy: Strategy, block: int | None, grid: int | None, finish: str | None
) -> tuple[int, int, str | None]:
    """Block, grid (0 for the default) and finish, checked for this strategy."""
    if finish is not None and one_of("finish", finish, registry.FINISHES) not in strategy.finishes:
        raise ValueError(
            f"{strategy.name} cannot use finish={finish!r}: it takes "
            f"{' or '.join(map(repr, strategy.finishes))}"
        )
    for name, number in (("block", block), ("grid", grid)):
        if number is not None and not strategy.launches_kernels:
            raise ValueError(f"{strategy.name} chooses its own block and grid: leave {name} out")
    if strategy.finishes == ("host",):  # a kernel of a user that cannot add up its own sums
        finish = "host"
    # A strategy that chooses another one may choose one with several launches, even for "single".
    finish = None if strategy.kind == "choice" else finish
    return *launch_sizes(block, grid), finish


def launch_sizes(block: int | None, grid: int | None) -> tuple[int, int]:
    """Block and grid for the engine: 0 for the default."""
    return (
        0 if block is None else whole("block", block, 32, 1024, step=32),
        0 if grid is None else whole("grid", grid, 1, 2**31 - 1),
    )


def strategy_of(name: Any, allow_broken: bool = False) -> Strategy:
    """The strategy of a sum. Raises if it is wrong on purpose, unless `allow_broken`."""
    every = name if isinstance(name, tuple) and name else (name,)
    if all(one is None or isinstance(one, (int, np.integer)) for one in every):
        raise TypeError(
            f"strategy must be the name of a strategy, not {shown(name)}: to sum along an axis, "
            f"write axis={shown(name)}"
        )
    found = registry.find(name)
    registry.check_allowed(found, allow_broken)
    return found


def placed(
    strategy: Strategy, device: str | None, result: np.dtype[Any], groups: int = _host.ALL
) -> Strategy:
    """The strategy for sums of a dtype: resolves `auto`, and raises if it cannot run there.

    Segments on processors, and by ids on a GPU, have exact sums only: `fast` is `exact` there.
    """
    if not (device is None or isinstance(device, str)):
        choose_device(device, or_cpu=True)  # raises an error that lists the devices
    on_host = device in (None, "cpu")
    is_fast = strategy.name == "fast" and (
        groups == _host.IDS or (groups == _host.OFFSETS and on_host)
    )
    if strategy.name == "auto" or is_fast:
        strategy = registry.STRATEGIES["exact"]
    if strategy.name == "exact" and not dtypes.is_exact(result):  # integers are never rounded
        strategy = registry.STRATEGIES["cpu" if on_host else "fast"]
    if strategy.kind == "host" and not on_host:
        raise ValueError(f"{strategy.name} runs on the CPU, not on device={device!r}: leave it out")
    if strategy.kind not in ("host", "everywhere") and device == "cpu":
        raise ValueError(
            f"{strategy.name} is a GPU kernel: device must be 'cuda' or 'emulator', or left out"
        )
    return strategy


def check_levels(strategy: Strategy, conversion: Conversion) -> None:
    """Raises for integers by a kernel that adds up floats."""
    if strategy.name == "exact_levels" and not conversion.exactly:
        raise ValueError("exact_levels sums floats only: use auto, which sums integers exactly")


def placed_on_several(call: Arguments, arr: object, found: list[Device | None]) -> Arguments:
    """The arguments for one of several devices: a GPU if there is one."""
    if arrays.lies_on_a_gpu(arr):
        raise TypeError(
            f"{type(arr).__name__} is on one GPU and is summed there: leave device out; "
            "gpureduce.sum_parts sums arrays that are on several GPUs"
        )
    first = next((one for one in found if one), None)
    if first and None in found and call.strategy not in ("auto", "exact"):
        raise ValueError(
            f"{shown(call.strategy)} cannot share an array between the CPU and GPUs: use auto or "
            "exact, or pass only GPUs as device"
        )
    return call._replace(device=first.id if first else "cpu")


def resolve(
    call: Arguments, strategy: Strategy, source: np.dtype[Any], groups: int = _host.ALL
) -> Plan:
    """The plan for a host array of dtype `source`, by the strategy of the arguments."""
    how: Any = (strategy, *call[:6], bool(call.timing), source, groups)
    try:
        return _known(*how)
    except TypeError:  # not hashable; or refused, which is raised again
        pass
    return _resolve(*how)


def _resolve(
    strategy: Strategy, name: Any, dtype: npt.DTypeLike | None, block: int | None,
    grid: int | None, finish: str | None, device: str | None, timed: bool, source: np.dtype[Any],
    groups: int,
) -> Plan:  # fmt: skip
    conversion = convert_for(source, dtype, strategy.pair)
    if conversion.is_complex and "complex64" not in strategy.dtypes:
        able = [s.name for s in registry.strategies()
                if "complex64" in s.dtypes and s.kind not in ("axis", "segments")]  # fmt: skip
        raise TypeError(f"{strategy.name} cannot add complex numbers; {', '.join(able)} can")
    launch = launch_of(strategy, block, grid, finish)
    chosen = placed(strategy, device, conversion.result, groups)
    plan = Plan(chosen, conversion, *launch, device, timed)
    if plan.on_host and (block is not None or grid is not None):
        raise ValueError(
            f"on the CPU, {name} has no block and grid: leave them out, or name a device"
        )
    place = _host.ON_PROCESSORS if plan.on_host else _host.SENT_TO_GPU
    exactly = chosen.name in (ROUND_ONCE if groups == _host.AXES else ("exact",))
    if strategy.pair is None:
        conversion = convert(source, dtype, exactly, place, groups)
    if groups == _host.AXES:
        check_levels(chosen, conversion)
    return replace(plan, conversion=conversion)


_known = functools.lru_cache(1024, typed=True)(_resolve)  # typed: 128.0 is no block
