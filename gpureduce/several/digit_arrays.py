"""`gpureduce.digits` and `from_digits`: exact sums along axes, as integers that can be added."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce.core import arrays, dtypes, reduction
from gpureduce.core import digits as words_of


def digits(arr: npt.ArrayLike, axis: int | tuple[int, ...] | None = None) -> npt.NDArray[np.int64]:
    """The exact sums along axes as int64 numbers, which can be added to those of other arrays.

    Each sum has 75 numbers, or 146 if it is complex, along a last axis. They are those of
    `Accumulator.to_digits`: their sums, number by number, are the digits of the total, in whatever
    order they are added. Up to 2^30 arrays of one dtype can be added.

    Parameters
    ----------
    arr
        An array in host memory. Sums of integers have the digits of float64.
    axis
        The axes to add up along, as in numpy.sum: a number, a tuple of numbers, or None for all.

    Returns
    -------
    numpy.ndarray
        The digits, of the shape of the sums and one more axis.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> above, below = np.array([[1e100, 1.0]]), np.array([[1.0, 2.0], [-1e100, 4.0]])
    >>> total = gpureduce.digits(above, axis=0) + gpureduce.digits(below, axis=0)
    >>> total.shape, gpureduce.from_digits(total)
    ((2, 75), array([1., 7.]))
    """
    array = arrays.as_array(arr)
    dtypes.convert(array.dtype, None)  # raises if the dtype cannot be summed
    return words_of.of_sums(array, reduction.reduced_axes(axis, array.ndim))


def from_digits(words: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Any:
    """The sums whose digits these are, each rounded once.

    Parameters
    ----------
    words
        Digits, or sums of digits, as `digits` returns them.
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
    result = words_of.dtype_of(checked) if dtype is None else dtypes.named(dtype)
    if result.kind in "biu" or dtypes.number_name(result) is None:
        raise TypeError(f"an exact sum is rounded to a float or complex dtype, not {result}")
    found = words_of.rounded(checked, result)
    return found if found.ndim else found[()]
