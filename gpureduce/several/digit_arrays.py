"""Exact sums along axes and by segment, as integers that can be added: `digits`, `from_digits`."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from gpureduce.core import arrays, axis_on_device, dtypes, groups, segments
from gpureduce.core import digits as words_of
from gpureduce.core.checks import named_keywords


@named_keywords
def digits(
    arr: npt.ArrayLike,
    axis: int | tuple[int, ...] | None = None,
    *,
    device: str | None = None,
    stream: object = None,
) -> Any:
    """The exact sums along axes as int64 numbers, which can be added to those of other arrays.

    Each sum has 75 numbers, or 146 if it is complex, along a last axis. They are those of
    `Accumulator.to_digits`: their sums, number by number, are the digits of the total, in whatever
    order they are added. Up to 2^30 arrays of one dtype can be added.

    Parameters
    ----------
    arr
        An array in host memory, or on a GPU, where it is read in place. Sums of integers have the
        digits of float64. On a GPU, integers have 32 bits at most.
    axis
        The axes to add up along, as in numpy.sum: a number, a tuple of numbers, or None for all.
    device
        For arrays on a GPU: that GPU, or ``"emulator"`` for arrays on the emulated one.
    stream
        The CUDA stream for arrays on a GPU: by default the current one of their library. Nothing
        waits for the digits.

    Returns
    -------
    numpy.ndarray, or an array on the GPU
        The digits, an int64 array of the shape of the sums and one more axis. For an array on a
        GPU it is an array of the same library on the same GPU, or a `DeviceArray` if that library
        is neither CuPy nor PyTorch. Its numbers are those of the same array in host memory.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> above, below = np.array([[1e100, 1.0]]), np.array([[1.0, 2.0], [-1e100, 4.0]])
    >>> total = gpureduce.digits(above, axis=0) + gpureduce.digits(below, axis=0)
    >>> total.shape, gpureduce.from_digits(total)
    ((2, 75), array([1., 7.]))
    """
    if arrays.lies_on_a_gpu(arr):
        return axis_on_device.digits_gpu(arr, axis, device, stream)
    words_of.check_place(device, stream)
    array = arrays.as_array(arr)
    dtypes.convert(array.dtype, None)  # raises if the dtype cannot be summed
    return words_of.of_sums(array, groups.reduced_axes(axis, array.ndim))


@named_keywords
def segment_digits(
    values: npt.ArrayLike,
    segment_ids: npt.ArrayLike | None = None,
    *,
    offsets: npt.ArrayLike | None = None,
    num_segments: int | None = None,
    device: str | None = None,
    stream: object = None,
) -> Any:
    """The exact sums by segment as int64 numbers, which can be added to those of other elements.

    Of use if each of several workers has some elements of each segment. The numbers of a sum are
    those of `Accumulator.to_digits`, as with `digits`; `from_digits` rounds them. The result has
    the bits of one `segment_sum` of all elements.

    Parameters
    ----------
    values, segment_ids, offsets
        As in `segment_sum`, in host memory or on one GPU. Sums of integers have the digits of
        float64. On a GPU, integers have 32 bits at most.
    num_segments
        The number of sums, which must be given with `segment_ids`: the same on each worker.
    device, stream
        For arrays on a GPU, as in `digits`. The call waits until the ids or offsets are checked.

    Returns
    -------
    numpy.ndarray, or an array on the GPU
        The digits: (num_segments, 75), or (num_segments, d, 75) for rows (n, d); with 146 in place
        of 75 if they are complex. For arrays on a GPU they lie on that GPU, as with `digits`.

    Raises
    ------
    ValueError, TypeError, MemoryError
        As `segment_sum`.

    Examples
    --------
    >>> import gpureduce
    >>> one = gpureduce.segment_digits([1e100, 1.0], [0, 1], num_segments=3)
    >>> other = gpureduce.segment_digits([2.0, -1e100], [0, 0], num_segments=3)
    >>> gpureduce.from_digits(one + other)
    array([2., 1., 0.])
    """
    return segments.digits_of(values, segment_ids, offsets, num_segments, device, stream)


def from_digits(words: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Any:
    """The sums whose digits these are, each rounded once.

    Parameters
    ----------
    words
        Digits, or sums of digits, as `digits` and `segment_digits` return them, in host memory.
    dtype
        The dtype to round to; by default that of the elements.

    Returns
    -------
    numpy.ndarray or numpy scalar
        The sums.

    Raises
    ------
    ValueError
        The numbers are no such sums.
    TypeError
        They are not int64, or `dtype` is no float of that kind.

    Examples
    --------
    >>> import gpureduce
    >>> gpureduce.from_digits(gpureduce.digits([0.5, 0.25]), "float32")
    np.float32(0.75)
    """
    checked = words_of.checked(words)
    result = words_of.dtype_of(checked) if dtype is None else dtypes.rounded_to(dtype)
    found = words_of.rounded(checked, result)
    return found if found.ndim else found[()]
