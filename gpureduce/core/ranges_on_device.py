"""Sums, means and variances of ranges of an array on a GPU: of segments, and of moving windows.

Kernels add up each range by itself (gr_ranges in csrc/shared/axes.h), also if windows overlap.
Running sums begin anew at each segment.
"""

from __future__ import annotations

import math
from typing import Any

from gpureduce import _host
from gpureduce.core import (
    arrays,
    axis_on_device,
    device_results,
    groups,
    rolling,
    running_on_device,
    segments,
)
from gpureduce.core.axis_on_device import Made
from gpureduce.core.device_array import DeviceArray
from gpureduce.core.moments import VARIANCE
from gpureduce.core.plan import Arguments, strategy_of
from gpureduce.core.running_on_device import OFFSETS

_WINDOWS, _PAIRS = 2, 3  # gr_range_kind


def _of_ranges(
    arr: Any, made: Made | None, axis: int, count: int, ranges: tuple[int, int, int],
    offsets: Any = None, counts: Any = None, dtype: Any = None,
) -> Any:  # fmt: skip
    """The result of each range; without `made`, its sum. `counts`: its number of elements."""
    of = device_results.OnGpu.of(Arguments("exact", timing=False), arr)
    how: dict[str, Any] = {"axes": groups.bits((axis,)), "ranges": ranges}
    if made is None:
        conversion, name = device_results.conversion_of(*of.element, dtype, True, _host.AXES)
    else:
        how["made"] = made
        conversion, name = axis_on_device.result_of(made, *of.element, dtype)
    results = of.array((*of.view.shape[:axis], count, *of.view.shape[axis + 1 :]), name)
    request = of.request(conversion, name, how)
    of.module.run(request, of.view, offsets, results, 0, 0, 0, counts)
    return of.library.result(results)


def _in_int64(array: Any) -> Any:
    """A copy without gaps of an array of integers: sums along no axes."""
    call, how = Arguments("auto", "int64", timing=False), groups.Reduction((), result="device")
    return axis_on_device.add_gpu(call, strategy_of("auto"), array, how, 0.0).value


def _in_order(values: Any, ids: Any, offsets: Any, num_segments: object) -> tuple[Any, Any, Any]:
    """The rows of `values`, segment by segment, the offsets of segments, and the order of the rows.

    With ids, the rows are sorted by them. With offsets, they are as they were, and the order is
    None.
    """
    given, shape = groups.Segments.of(ids, offsets, num_segments), tuple(values.shape)
    groups.check_rows(len(shape))
    if not arrays.lies_on_a_gpu(given.numbers):
        kind = type(given.numbers).__name__
        raise TypeError(
            f"values is on a GPU, and {given.name}, {kind}, is not: copy one of them to the memory "
            "of the other"
        )
    size = given.size
    if ids is None:  # a segment sum of no columns only checks the offsets
        none = values.reshape(shape[0], math.prod(shape[1:]))[:, :0]
        segments.segment_sum(none, offsets=offsets, num_segments=size, timing=False)
        return values, _in_int64(offsets), None
    every = axis_on_device.compared(ids, ids == ids)
    counts = segments.segment_sum(every, ids, num_segments=size, timing=False).value
    offsets = running_on_device.cumsum(counts, 0, None, None, False, True)
    library = axis_on_device.library_of(ids)
    stable = {"stable": True} if library.__name__ == "torch" else {}  # the default of CuPy and JAX
    order = library.argsort(ids, **stable)
    return values[order], offsets, order


def by_segment(
    values: Any, ids: Any, offsets: Any, num_segments: object, dtype: Any, made: Made
) -> Any:
    """The result of each segment."""
    rows, offsets, _ = _in_order(values, ids, offsets, num_segments)
    count, made = int(offsets.shape[0]) - 1, made._replace(least=1)
    found = _of_ranges(rows, made, 0, count, OFFSETS, offsets, dtype=dtype)
    return device_results.awaited(found, type(values))


def cumsum_by_segment(values: Any, ids: Any, offsets: Any, num_segments: object, dtype: Any) -> Any:
    """See gpureduce.exact.segment_cumsum."""
    rows, offsets, order = _in_order(values, ids, offsets, num_segments)
    found = running_on_device.cumsum(rows, 0, dtype, None, False, False, offsets=offsets)
    if order is not None:
        if isinstance(found, DeviceArray):
            raise TypeError(
                f"{type(values).__name__} cannot hold {found.dtype} here: sort the values by their "
                "segments and pass offsets, or, for JAX, set jax_enable_x64"
            )
        found = found[axis_on_device.library_of(ids).argsort(order)]
    return device_results.awaited(found, type(values))


def _given(window: tuple[Any, ...], n: int) -> tuple[tuple[int, int, int], Any]:
    """What C needs of windows from starts to ends: their kind, and the pairs as one array."""
    if not all(arrays.lies_on_a_gpu(one) for one in window):
        raise TypeError(
            "x is on a GPU, and starts or ends is not: copy them to the GPU, or x to host memory"
        )
    rolling.check_windows(window, n)
    starts, ends = window
    count = len(starts)
    mean = float((ends - starts).sum()) / count if count else 0.0  # int32 may overflow in JAX
    usual = min(max(math.ceil(mean), 0), n)
    pairs = axis_on_device.library_of(starts).stack((starts, ends), 1)
    return (_PAIRS, 0, usual), _in_int64(pairs)


def rolled(
    x: Any, window: object, axis: object, min_periods: object, center: object, made: Made
) -> Any:
    """The result of each window, without its nans."""
    shape = tuple(x.shape)
    if "complex" in str(x.dtype):
        raise TypeError(f"rolling functions take real numbers, not {x.dtype}")
    if not shape:
        raise ValueError("rolling functions need an array with an axis, not a single number")
    along = groups.one_axis(axis, len(shape))
    n = count = shape[along]
    pairs = None
    size, after, least = rolling.sizes_of(window, n, min_periods, center)
    if isinstance(window, tuple):
        ranges, pairs = _given(window, n)
        count = len(window[0])
    else:
        ranges = (_WINDOWS, 1 + after - size, size)
    if made.kind == VARIANCE:
        least = max(least, math.floor(made.ddof) + 1)
    numbers = axis_on_device.numbers_in(x)
    counts = _of_ranges(numbers, None, along, count, ranges, pairs)
    if "float" in str(x.dtype):
        x = axis_on_device.library_of(x).where(numbers, x, 0)
    found = _of_ranges(x, made._replace(least=least), along, count, ranges, pairs, counts)
    return device_results.awaited(found, type(x))
