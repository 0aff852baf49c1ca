"""Sums by segment: `segment_sum`, from its arguments to an array of sums.

csrc/segments adds up. It says how at the top of segments.c.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import (
    arrays,
    digits,
    dtypes,
    registry,
    run_host,
    segments_on_device,
    timedeltas,
)
from gpureduce.core.checks import flag, named_keywords, no_stream
from gpureduce.core.dtypes import Array
from gpureduce.core.groups import Segments, check_rows
from gpureduce.core.plan import Arguments, resolve
from gpureduce.core.results import SumResult


@named_keywords
def segment_sum(
    values: npt.ArrayLike,
    segment_ids: npt.ArrayLike | None = None,
    *,
    offsets: npt.ArrayLike | None = None,
    num_segments: int | None = None,
    strategy: str = "auto",
    dtype: npt.DTypeLike | None = None,
    initial: Any = None,
    out: npt.NDArray[Any] | None = None,
    device: str | None = None,
    stream: object = None,
    timing: bool = True,
    sorted: bool | None = None,
    check: bool = True,
) -> SumResult:
    """Add up the elements of each segment: element i is added to sum number ``segment_ids[i]``.

    Parameters
    ----------
    values
        Numbers (n,), or rows (n, d) that are added as vectors. Anything NumPy can view, with any
        strides and byte order, or an array on a GPU: of CuPy, PyTorch, JAX, or any library with
        their protocols. The ids or offsets must lie on the same GPU.
    segment_ids
        The segment of each element or row: n integers of any integer dtype, from 0 to
        `num_segments` - 1, in any order. Or categories of pandas, which stand for their codes.
    offsets
        In place of `segment_ids`, for elements that lie segment by segment: segment k has the
        elements ``offsets[k]`` to ``offsets[k + 1] - 1``, as in the CSR form of a sparse matrix.
        The first offset is 0 and the last one n.
    num_segments
        The number of sums. By default that of `out` if it is given, and otherwise the number of
        categories, or the largest id plus one. To find that on a GPU takes a pass over the ids, and
        waits for it.
    strategy
        ``"auto"``, ``"exact"`` and ``"cpu"`` round each sum once. So does ``"fast"``, except where
        kernels add up by `offsets`: there it rounds each addition. ``"numpy"`` is numpy.add.at.
        ``"key_atomic"`` to ``"key_fixed"`` are lessons: kernels that add up host arrays.
    dtype
        The dtype of the sums, as in `sum`. Floats are not cast before they are added.
    initial
        A number that is added to each sum, before it is rounded. 0 by default.
    out
        An array for the sums, with their shape and dtype, of the library of `values`, and where
        these are. It must not overlap the input. What it held is overwritten.
    device
        Where to add up host arrays: ``"cpu"`` or None, the processors; ``"cuda"``, ``"cuda:1"`` or
        ``"emulator"``, by kernels.
    stream
        The CUDA stream for arrays on a GPU: by default the current one of their library.
    timing
        False saves the little time that timing takes; the result's `timing` is then None.
    sorted
        Whether the ids are sorted, in ascending order. True is checked. By default kernels find
        out. Sorted ids take no atomics.
    check
        For arrays on a GPU. True waits for the sums, and raises an error if an id or offset is
        wrong. False does not wait: if one is wrong, nothing is written, and nothing is raised.

    Returns
    -------
    SumResult
        An array, (num_segments,) or (num_segments, d), and its `Timing`. The sum of a segment
        without elements is 0, or `initial`. For arrays on a GPU it is an array of the same library
        on the same GPU, or a `DeviceArray` if that library is none of CuPy, PyTorch and JAX.

    Raises
    ------
    ValueError
        An id is out of range: the message names the first one and its place. Or shapes do not fit,
        or offsets decrease, or ids are not sorted that were said to be. Nothing is written to `out`
        then.
    TypeError
        The elements cannot be added up, or the ids are not integers.
    MemoryError
        There is too little memory. After any of these errors the next call works.

    Notes
    -----
    Each sum has the bits of `sum` of the segment's elements by ``exact``. They do not depend on
    the order of the elements, on the other segments, on the number of threads, or on the device.
    Integers equal those of numpy.add.at bit for bit, wrap-around included.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> gpureduce.segment_sum([1e16, 2.0, 1.0, 3.0, -1e16], [0, 1, 0, 1, 0]).value
    array([1., 5.])
    >>> gpureduce.segment_sum([1, 2, 3, 4], offsets=[0, 1, 1, 4], initial=10).value
    array([11, 10, 19])
    """
    start = time.perf_counter()
    on_a_gpu = arrays.lies_on_a_gpu(values) or arrays.lies_on_a_gpu(
        offsets if segment_ids is None else segment_ids
    )
    array = np.empty(0) if on_a_gpu else arrays.as_array(values).view()  # user code may reshape it
    is_sorted = None if sorted is None else flag("sorted", sorted)
    how = initial, out, is_sorted, flag("check", check)
    groups = Segments.of(segment_ids, offsets, num_segments, *how)
    if on_a_gpu:
        name = registry.find(strategy).name
        call = Arguments(name, dtype, device=device, stream=stream, timing=timing)
        return segments_on_device.add_gpu(call, name, values, groups, start)
    chosen = registry.chosen(strategy, "keys", "segment sums")
    name, is_lesson = chosen.name, chosen.kind == "keys"
    if is_lesson and segment_ids is None:
        raise TypeError(f"{name} does not take offsets: pass segment_ids")
    check_rows(array.ndim)
    no_stream(stream)
    if array.dtype.kind == "m":

        def add_integers(array: Array, initial: int, out: Any) -> SumResult:
            return segment_sum(
                array, segment_ids, offsets=offsets, num_segments=num_segments, strategy=strategy,
                initial=initial, out=out, device=device, timing=timing, sorted=is_sorted,
            )  # fmt: skip

        return timedeltas.add(array, dtype, initial, out, add_integers)
    call = Arguments(name, dtype, device=device, timing=timing)
    grouping = _host.ALL if is_lesson else groups.kind
    plan = resolve(call, chosen, array.dtype, grouping)
    segments = groups.checked(array)
    if plan.on_host:
        outcome = run_host.add_by_segment(plan, array, segments)
    else:
        sums = segments.sums_of(array, plan.conversion.result)
        outcome = segments_on_device.add_host(plan, array, segments, sums)
    if out is not None:
        outcome.value = out
    outcome.fields["nbytes"] = array.nbytes + segments.numbers.nbytes
    return plan.finished(outcome, array.size, array.dtype, start)


def digits_of(
    values: npt.ArrayLike, segment_ids: npt.ArrayLike | None, offsets: npt.ArrayLike | None,
    num_segments: int | None, device: str | None, stream: object,
) -> Any:  # fmt: skip
    """The digits of exact sums by segment, along a last axis, where the values lie."""
    start = time.perf_counter()
    groups = Segments.of(segment_ids, offsets, num_segments)._replace(as_digits=True)
    if segment_ids is not None and num_segments is None:
        raise TypeError(
            "segment_digits with segment_ids needs num_segments, so that all digits that are "
            "added have the same segments"
        )
    if arrays.lies_on_a_gpu(values) or arrays.lies_on_a_gpu(groups.numbers):
        call = Arguments("exact", None, device=device, stream=stream, timing=False)
        return segments_on_device.add_gpu(call, "exact", values, groups, start).value
    digits.check_place(device, stream)
    array = arrays.as_array(values).view()
    check_rows(array.ndim)
    dtypes.convert(array.dtype, None)  # raises if the dtype cannot be summed
    segments = groups.checked(array)
    result = digits.kind_of(array.dtype)
    each = digits.numbers_of(result.kind)
    words = segments.empty((segments.size, *array.shape[1:], each), np.dtype(np.int64))
    counts = run_host.counts_by_segment(segments, len(array))
    run_host.store_by_segment(words, array, segments, result, ((), ()))
    digits.set_counts(words, counts.reshape(-1, *(1,) * (array.ndim - 1)))
    return words
