"""Sums by segment by kernels, of arrays on a GPU and of host arrays.

The sums of arrays on a GPU lie on the same GPU, as device_results.py says. csrc/engine/segments.c
has the order of the launches.
"""

from __future__ import annotations

from typing import Any

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
from gpureduce.core.groups import Segments, check_rows
from gpureduce.core.plan import Arguments, Plan
from gpureduce.core.results import Outcome, SumResult

_MOST_KEYS = 2**31  # the kernels of kernels/keys count them in 32 bits


def _name(conversion: dtypes.Conversion, groups: Segments) -> str:
    """The strategy for a timing."""
    if conversion.exactly:
        return "exact"
    return "segment_rows" if groups.ids is None else "segment_atomics"


def _how(groups: Segments) -> dict[str, Any]:
    """The part of C's request that describes the segments."""
    how: dict[str, Any] = {"segments": groups.size, "check": groups.check}
    if groups.ids is None:
        how["by_offsets"] = True
    if groups.is_sorted is not None:
        how["sorted"] = int(groups.is_sorted)
    if groups.as_digits:
        how["as_digits"] = True
    if groups.in_place:
        how["in_place"] = True
    return how


# --- host arrays -------------------------------------------------------------------------------


def add_host(plan: Plan, array: Array, groups: Segments, sums: Array) -> Outcome:
    """The sums of host arrays, which are copied to the device.

    The arguments have been checked, but not the ids.
    """
    conversion, name = plan.conversion, _name(plan.conversion, groups)
    if plan.strategy.kind == "keys":
        name = plan.strategy.name
        if groups.initial not in (None, 0):
            raise ValueError(f"{name} does not support initial: leave it out")
        values, index = _lesson_arguments(plan.strategy, conversion, array, groups)
        how = _of_lesson(plan.strategy, groups, (0, 0))
    else:
        values = arrays.without_gaps(array, conversion.elements or array.dtype)
        index = arrays.without_gaps(groups.numbers, groups.numbers.dtype)
        how = _how(groups._replace(check=True))
    initial = 0 if groups.initial is None else groups.initial
    _, fields, problem = device_results.send(plan, values, index, sums, initial, how)
    if problem is not None:
        raise groups.wrong(len(values), problem)
    return Outcome(sums, fields | {"strategy": name, "finish": "single"})


def _checked_keys(name: str, groups: Segments) -> Array:
    """A copy of the ids. Signals are handled between its parts."""
    own = np.empty(groups.ids.shape, np.uint32)
    for (where,) in arrays.parts(own.shape, 1):
        first = where.start
        own[where] = some = groups.ids_of(first, where.stop - first)
        if name == "key_sorted":
            begin, end = max(first, 1), first + len(some)
            falls = np.flatnonzero(own[begin:end] < own[begin - 1 : end - 1])
            if falls.size:
                k = begin + int(falls[0])
                raise ValueError(
                    f"key_sorted needs segment_ids in ascending order, but segment_ids[{k}] is "
                    f"{own[k]} after segment_ids[{k - 1}], which is {own[k - 1]}"
                )
    return own


def _of_lesson(
    chosen: registry.Strategy, groups: Segments, launch: tuple[int, int]
) -> dict[str, Any]:
    which = device_results.of_lesson(chosen, *launch)
    return {"segments": groups.size, "check": True, **which}


def _lesson_arguments(
    chosen: registry.Strategy, conversion: dtypes.Conversion, values: Array, groups: Segments
) -> tuple[Array, Array]:
    """Values and ids for a kernel of kernels/keys. Checks what such a kernel relies on."""
    name, result = chosen.name, conversion.result
    if result.name not in chosen.dtypes:
        raise TypeError(f"{name} takes {' or '.join(chosen.dtypes)}, not {result}")
    if values.ndim != 1:
        raise ValueError(f"{name} takes values of 1 dimension, (n,), not rows, (n, d)")
    if groups.size > _MOST_KEYS:
        raise ValueError(f"{name} makes at most 2^31 sums, and num_segments is {groups.size}")
    own = _checked_keys(name, groups)
    numbers = np.empty(values.shape, result)
    for where in arrays.parts(values.shape, 1):
        dtypes.quietly(np.copyto, numbers[where], values[where], casting="unsafe")
    return numbers, own


def counted_arguments(
    chosen: registry.Strategy, conversion: dtypes.Conversion, values: Array, groups: Segments,
    launch: tuple[int, int],
) -> tuple[Any, ...]:  # fmt: skip
    """The arguments of run() of the traced emulator. The last is for the sums.

    `launch`: block and grid of a lesson's kernel, or 0 for its own choice.
    """
    how, ids = _how(groups), groups.ids
    if chosen.kind == "keys":
        values, ids = _lesson_arguments(chosen, conversion, values, groups)
        how = _of_lesson(chosen, groups, launch)
    elif not dtypes.is_exact(conversion.result):
        raise TypeError(f"exact takes floats, not {conversion.result}")
    else:
        conversion = dtypes.convert(values.dtype, conversion.result, True, _host.ON_GPU, _host.IDS)
    request = device_results.request_of(
        devices.emulator(traced=True), device_results.element_of(values.dtype), conversion,
        dtypes.load_of(conversion.result), False, 0, how,
    )  # fmt: skip
    return request, values, ids, np.empty(groups.size, conversion.result)


# --- arrays on a GPU ---------------------------------------------------------------------------


def _sized(module: Any, groups: Segments, index: Any, rows: int) -> Segments:
    """The groups, with their number of segments set. `index` describes the ids or offsets."""
    if groups.ids is None:
        return groups._replace(size=groups.by_offsets(index.count))
    if index.count != rows:
        raise ValueError(f"values has {rows} rows, but segment_ids {index.count} ids")
    if groups.size is not None:
        return groups
    if groups.out is None:
        return groups.up_to(module.largest_id(index), groups.ids)
    shape: tuple[int, ...] = (*getattr(groups.out, "shape", ()), 0)
    return groups._replace(size=int(shape[0]))


def add_rows(to: Any, ids: Any, rows: Any, check: bool = False) -> None:
    """Adds row i to row ``ids[i]`` of `to`, of floats on a GPU. Each of its sums is rounded once.

    Without `check` nothing waits for the sums, and a wrong id stops the kernel: the context ends.
    """
    groups = Segments(ids, None, out=to, check=check, in_place=True)
    add_gpu(Arguments("exact", timing=False), "exact", rows, groups, 0.0)


def add_gpu(call: Arguments, name: str, values: Any, groups: Segments, start: float) -> SumResult:
    """The sums of arrays on a GPU, on that GPU."""
    if gpu_arrays.module_for(call.device) is None and not arrays.lies_on_a_gpu(values):
        gpu_arrays.needed_module(groups.numbers, call.device)
    if name not in ("auto", "exact", "fast"):
        raise ValueError(
            f"{registry.find(name).name} cannot make segment sums of arrays on a GPU: use auto, "
            "exact or fast"
        )
    of = device_results.OnGpu.of(call, values, beside=groups.name)
    shape, kind = of.view.shape, of.view.kind
    check_rows(len(shape))
    wanted = digits.dtype_for(kind) if groups.as_digits else call.dtype
    grouping = _host.AXES if groups.as_digits else groups.kind
    conversion, result = device_results.conversion_of(*of.element, wanted, name != "fast", grouping)
    index = of.module.view_index(of.view, groups.numbers, groups.name)
    groups = _sized(of.module, groups, index, shape[0])
    initial = 0 if groups.initial is None else groups.initial
    request = of.request(conversion, result, _how(groups), initial)
    sums: tuple[int, ...] = (groups.size, *shape[1:])
    if groups.as_digits:
        sums, result = (*sums, digits.numbers_of(kind)), "int64"
    try:
        value = of.array(sums, result, groups.out)
    except MemoryError as error:
        raise groups.no_room() from error
    found = of.module.run(request, of.view, index, value)
    if found[-1] is not None:
        raise groups.wrong(shape[0], found[-1])
    return of.result(value, found, _name(conversion, groups), start)
