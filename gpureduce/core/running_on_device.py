"""Running sums by kernels, of arrays on a GPU, which stay there, and of host arrays.

csrc/kernels/running has ours, and csrc/kernels/scan the lesson's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import (
    arrays,
    device_results,
    devices,
    dtypes,
    groups,
    registry,
    segments_on_device,
)
from gpureduce.core.checks import flag
from gpureduce.core.dtypes import Array
from gpureduce.core.plan import Arguments, Plan, launch_sizes
from gpureduce.core.results import Outcome, SumResult
from gpureduce.core.running import Entries
from gpureduce.core.schedule import Schedule
from gpureduce.errors import CudaError

_RUNNING, _BACK, _FROM_ZERO = 1, 2, 4  # csrc/engine/groups.h
OFFSETS = (1, 0, 0)  # gr_ranges: elements between two adjacent offsets form a group
_OURS = "running_tiles"


def cumsum(
    a: Any, axis: int | None, dtype: npt.DTypeLike | None, out: Any, reverse: object,
    include_initial: object, device: str | None = None, offsets: Any = None,
) -> Any:  # fmt: skip
    """See gpureduce.exact.cumsum. With `offsets`, sums begin anew at the elements they name."""
    call = Arguments("exact", dtype, device=device, timing=False)
    return add_gpu(call, a, axis, out, reverse, include_initial, 0, offsets).value


def add_gpu(
    call: Arguments, a: Any, axis: int | None, out: Any, reverse: object, include_initial: object,
    start: float, offsets: Any = None,
) -> SumResult:  # fmt: skip
    """Running sums of an array on a GPU, on that GPU."""
    chosen = registry.find(call.strategy)
    is_lesson = chosen.kind == "scan"
    if not is_lesson and call.strategy not in ("auto", "exact", "fast"):
        raise ValueError(
            f"{call.strategy} cannot make running sums of arrays on a GPU: use auto, exact, fast "
            "or a kernel from scan_hillis_steele to scan_look_back"
        )
    if axis is None:
        if not hasattr(a, "reshape"):
            raise TypeError(f"{type(a).__name__} has no reshape to flatten it: pass axis")
        a = a.reshape(-1)
    of = device_results.OnGpu.of(call, a)
    along = groups.one_axis(axis, len(of.view.shape)) if axis is not None else 0
    more = flag("include_initial", include_initial)
    shape = tuple(n + (more and i == along) for i, n in enumerate(of.view.shape))
    exactly = call.strategy in ("auto", "exact")
    conversion, name = device_results.conversion_of(*of.element, call.dtype, exactly, _host.AXES)
    how: dict[str, Any] = {
        "axes": groups.bits((along,)),
        "running": _RUNNING + _BACK * flag("reverse", reverse) + _FROM_ZERO * more,
    }
    if offsets is not None:
        how["ranges"] = OFFSETS
    if is_lesson:
        sizes = launch_sizes(call.block, call.grid)
        check_lesson(chosen, conversion.result, len(shape))
        if how["running"] != _RUNNING:
            raise ValueError(
                f"{chosen.name} does not support reverse and include_initial on a GPU: leave them "
                "out"
            )
        how |= device_results.of_lesson(chosen, *sizes)
    request, entries = of.request(conversion, name, how), of.array(shape, name, out)
    found = of.module.run(request, of.view, offsets, entries)
    ran = chosen.name if is_lesson else "exact" if conversion.exactly else _OURS
    made = of.result(entries, found, ran, start)
    if axis is None:
        device_results.awaited(made.value, of.like)  # `a` may be a flat copy, which is freed now
    return made


def add_host(plan: Plan, made: Entries) -> Outcome:
    """Running sums of a host array, which is copied to the device."""
    conversion, into = plan.conversion, made.entries
    how: dict[str, Any] = {"axes": groups.bits((made.axis,)), "running": _RUNNING}
    name = "exact" if conversion.exactly else _OURS
    if plan.strategy.kind == "scan":
        name = plan.strategy.name
        values, conversion = lesson_elements(made.array, into.dtype)
        how |= device_results.of_lesson(plan.strategy, plan.block, plan.grid)
    else:
        values = arrays.without_gaps(made.array, conversion.elements or made.array.dtype)
    _, fields, _ = device_results.send(plan, values, None, into, 0, how, conversion)
    return Outcome(made.all, fields | {"strategy": name})


def check_lesson(chosen: registry.Strategy, result: np.dtype[Any], dims: int) -> None:
    """Raises if a kernel of kernels/scan cannot make these running sums."""
    if result.name not in chosen.dtypes:
        raise TypeError(f"{chosen.name} takes {', '.join(chosen.dtypes)}, not {result}")
    if dims != 1:
        raise ValueError(
            f"{chosen.name} takes one-dimensional arrays only: leave axis out, or use auto"
        )


def lesson_elements(array: Array, result: np.dtype[Any]) -> tuple[Array, dtypes.Conversion]:
    """The elements for a kernel of kernels/scan, which adds up numbers in their own type."""
    how = dtypes.convert(result, result, False, _host.SENT_TO_GPU, _host.AXES)
    return dtypes.quietly(array.astype, result), how


def arguments_of_run(
    module: Any, chosen: registry.Strategy, array: Array, result: np.dtype[Any], block: int,
    grid: int,
) -> tuple[Any, ...]:  # fmt: skip
    """The arguments of a module's run(); the last one is an array for the entries."""
    values, conversion = lesson_elements(array, result)
    how = {"axes": 1, "running": _RUNNING} | device_results.of_lesson(chosen, block, grid)
    request = device_results.request_of(
        module, device_results.element_of(values.dtype), conversion,
        dtypes.load_of(conversion.result), False, 0, how,
    )  # fmt: skip
    return request, values, None, np.empty_like(values)


def last_sum(
    module: Any, how: str, plan: Plan, array: Array, schedule: Schedule, kept: list[Any],
    segments: groups.Segments | None = None,
) -> tuple[bytes, str]:  # fmt: skip
    """Adds up on the emulator. Returns the bytes of the sum, or of the last running sum.

    With `segments`, these are the bytes of all sums by segment. Also returns the error of a launch
    that failed, or "". `how` is "watched" or "replay": the emulator appends its record of the
    launch to `kept`.
    """
    device, call = devices.choose_device("emulator"), getattr(module, how)
    module.free_scratch()  # a failed run may have left a nonzero ticket, or sums
    try:
        launch, chosen, conversion = (plan.block, plan.grid), plan.strategy, plan.conversion
        if segments:
            run = segments_on_device.counted_arguments(chosen, conversion, array, segments, launch)
        elif chosen.kind == "scan":
            run = arguments_of_run(module, chosen, array, conversion.result, *launch)
        else:
            return bytes(call(array, plan.launch(device, schedule), kept)[0]), ""
        call(*run, device.index, schedule.number, schedule.seed, kept)
        entries: Array = run[-1] if segments else run[-1][-1:]
        return entries.tobytes().ljust(8, b"\0"), ""
    except CudaError as error:
        return b"", str(error)
    finally:
        module.free_scratch()
