"""`gpureduce.cumsum`: running sums by a named strategy, with their timing."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, dtypes, registry, running, running_on_device
from gpureduce.core.checks import named_keywords, no_stream
from gpureduce.core.plan import Arguments, resolve
from gpureduce.core.results import Outcome, SumResult, ran_on


@named_keywords
def cumsum(
    arr: npt.ArrayLike,
    strategy: str | registry.UserKernel = "auto",
    *,
    axis: int | None = None,
    dtype: npt.DTypeLike | None = None,
    out: Any = None,
    reverse: bool = False,
    include_initial: bool = False,
    block: int | None = None,
    grid: int | None = None,
    device: str | None = None,
    stream: object = None,
    timing: bool = True,
) -> SumResult:
    """Running sums: entry i is the sum of the elements up to i.

    Parameters
    ----------
    arr
        Anything NumPy can view, or an array on a GPU.
    strategy
        ``"auto"``, ``"exact"`` and ``"cpu"`` round each entry once, as `exact.cumsum` does.
        ``"fast"`` rounds each addition, in one order: on a GPU by the same kernel, on processors by
        NumPy. ``"numpy"`` is numpy.cumsum. ``"scan_hillis_steele"`` to ``"scan_look_back"`` are the
        rungs of a lesson: kernels that add up numbers of 4 or 8 bytes in their own type. Or a
        kernel of yours, out of `kernel` with ``operation="cumsum"``.
    axis
        Along which axis. By default the array is flat, as in NumPy. The rungs take one dimension.
    dtype
        The dtype of the entries. By default that of numpy.cumsum.
    out
        An array for the entries, with their shape and dtype, and where they are. It must not
        overlap the input.
    reverse
        The sums from each element to the last.
    include_initial
        A 0 before the first entry.
    block, grid
        For the rungs: threads per block, and for ``"scan_three_launches"`` the number of blocks.
    device
        Where to add up host arrays: ``"cpu"``, or by kernels, ``"cuda"`` or ``"emulator"``. By
        default the processors; for the rungs the first GPU, or the emulator.
    stream
        The CUDA stream for arrays on a GPU.
    timing
        False saves the little time that timing takes; the result's `timing` is then None.

    Returns
    -------
    SumResult
        The array of the entries, and its `Timing`.

    Raises
    ------
    ValueError
        The strategy makes no running sums, or an argument is not for it.
    TypeError
        The strategy does not take that dtype.

    Examples
    --------
    >>> import gpureduce
    >>> gpureduce.cumsum([1e16, 1.0, 1.0, -1e16]).value
    array([1.e+16, 1.e+16, 1.e+16, 2.e+00])
    >>> found = gpureduce.cumsum(range(1, 9), "scan_look_back", device="emulator")
    >>> found.value, found.timing.launches
    (array([ 1,  3,  6, 10, 15, 21, 28, 36]), 1)
    """
    if isinstance(strategy, registry.UserKernel):
        how = (axis, dtype, out, reverse, include_initial, block, grid, device, stream, timing)
        return cast(SumResult, strategy.call("cumsum", arr, *how))
    start = time.perf_counter()
    chosen = registry.chosen(strategy, "scan", "running sums")
    name, is_lesson = chosen.name, chosen.kind == "scan"
    call = Arguments(name, dtype, block, grid, None, device, False, stream, timing)
    if not is_lesson and (block is not None or grid is not None):
        raise ValueError(f"{name} chooses its own block and grid: leave them out")
    if arrays.lies_on_a_gpu(arr):
        return running_on_device.add_gpu(call, arr, axis, out, reverse, include_initial, start)
    no_stream(stream)
    array = arrays.as_array(arr)[...]
    by_numpy = name == "fast" and device in (None, "cpu")
    chosen = registry.STRATEGIES["numpy"] if by_numpy else chosen
    plan = resolve(call, chosen, array.dtype, _host.AXES)
    if is_lesson:
        dtype, dims = plan.conversion.result, 1 if axis is None else array.ndim
        running_on_device.check_lesson(plan.strategy, dtype, dims)
    made = running.entries_of(array, axis, dtype, out, reverse, include_initial)
    if plan.on_host:
        ms = _on_host(plan.strategy.name, made)
        outcome = Outcome(made.all, ran_on(None, kernel_ms=ms, finish="single"))
    else:
        outcome = running_on_device.add_host(plan, made)
    made.first[...] = 0
    if out is not None:
        outcome.value = out
    return plan.finished(outcome, array.size, array.dtype, start)


def _on_host(name: str, made: running.Entries) -> float:
    """Adds up by the processors. Returns milliseconds."""
    start = time.perf_counter()
    if name == "numpy":
        how = {"axis": made.axis, "dtype": made.entries.dtype, "out": made.entries}
        dtypes.quietly(np.cumsum, made.array, **how)
    else:
        running.store(made.array, made.axis, None, made.entries)
    return (time.perf_counter() - start) * 1e3
