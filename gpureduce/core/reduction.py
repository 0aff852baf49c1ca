"""The arguments of a sum along axes, checked: axis, keepdims, initial, where and out."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gpureduce.core import arrays
from gpureduce.core.checks import shown
from gpureduce.core.dtypes import Array
from gpureduce.core.results import SumResult


class Reduction(NamedTuple):
    """The arguments of `gpureduce.sum` that say which elements go to which sum, and where to."""

    axis: object = None
    keepdims: object = False
    initial: object = 0
    where: object = True
    out: object = None
    result: object = "host"


class Checked(NamedTuple):
    """The arguments for a host array, checked."""

    axes: tuple[int, ...]
    keepdims: bool
    shape: tuple[int, ...]
    mask: Array | None
    out: Array | None

    @property
    def mask_of_axes(self) -> int:
        """A bit per axis that is added up."""
        return bits(self.axes)


def checked(how: Reduction, array: Array, result: np.dtype[Any]) -> Checked:
    """Checks all but `initial`, for sums of a host array in the dtype `result`."""
    axes = reduced_axes(how.axis, array.ndim)
    shape = shape_of_result(array.shape, axes, how.keepdims)
    mask = checked_mask(how.where, array.shape)
    out = None if how.out is None else checked_out(how.out, array, shape, result)
    if out is not None and mask is not None and np.may_share_memory(out, mask):
        mask = mask.copy()
    return Checked(axes, bool(how.keepdims), shape, mask, out)


def bits(axes: tuple[int, ...]) -> int:
    """A bit per axis."""
    return sum(1 << axis for axis in axes)


def reduced_axes(axis: object, dims: int) -> tuple[int, ...]:
    """The axes that are added up, in ascending order. Raises as NumPy does."""
    if axis is None:
        return tuple(range(dims))
    found = axis if isinstance(axis, tuple) else (axis,)
    numbers = []
    one: Any
    for one in found:
        try:
            number = operator.index(cast(Any, None if isinstance(one, (bool, np.bool_)) else one))
        except TypeError:
            raise TypeError(
                f"axis must be a whole number, a tuple of them or None, not {shown(axis)}"
            ) from None
        if not -dims <= number < dims:
            raise np.exceptions.AxisError(number, dims)
        numbers.append(number % dims)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"axis={shown(axis)} names an axis twice")
    return tuple(sorted(numbers))


def shape_of_result(
    shape: tuple[int, ...], axes: tuple[int, ...], keepdims: object
) -> tuple[int, ...]:
    """The shape of the sums along `axes` of an array of this shape."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def checked_mask(where: object, shape: tuple[int, ...]) -> npt.NDArray[np.bool_] | None:
    """The mask, broadcast to the array's shape; None if it takes every element."""
    if where is True:
        return None
    mask = arrays.viewed(where, "where needs True or False there")
    if mask.dtype != np.bool_:
        raise TypeError(f"where must be an array of booleans, not of {mask.dtype}")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(
            f"where has the shape {mask.shape}, which does not broadcast to the array's, {shape}"
        ) from None


def checked_out(out: object, array: Array, shape: tuple[int, ...], result: np.dtype[Any]) -> Array:
    """`out` as an ndarray, if the sums can be written to it."""
    if not isinstance(out, np.ndarray):
        raise TypeError(
            f"out must be a NumPy array of shape {shape} and dtype {result}, "
            f"not {type(out).__name__}"
        )
    out = np.ndarray.view(out, np.ndarray)  # a subclass may redefine indexing, flags and shape
    if out.dtype != result:
        raise TypeError(f"out must have the dtype of the sum, {result}, not {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"out must have the shape of the sum, {shape}, not {out.shape}")
    if not out.flags.writeable:
        raise ValueError("out is read-only: pass an array that can be written to")
    refuse_overlap(out, array, "the array")
    return out


def refuse_overlap(out: Array, array: Array, name: str) -> None:
    """Raises if `out` overlaps an input, which is called `name`."""
    try:
        overlaps: bool = np.shares_memory(out, array, max_work=10**5)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        overlaps = True
    if overlaps:
        raise ValueError(f"out overlaps {name}: pass an array with memory of its own")


def _number(initial: object, words: str, result: np.dtype[Any]) -> Any:
    """`initial`, which may be a result or an array of one number. Raises for other objects."""
    one: Any = np.asarray(initial)[()] if isinstance(initial, (SumResult, np.ndarray)) else initial
    if isinstance(one, (str, bytes, bytearray, np.timedelta64, np.ndarray)) or (
        np.iscomplexobj(one) and result.kind != "c"
    ):
        raise _wrong_initial(initial, words, result)
    return one


def _wrong_initial(initial: object, words: str, result: np.dtype[Any]) -> TypeError:
    return TypeError(f"initial must be a {words} for a sum in {result}, not {shown(initial)}")


def initial_integer(initial: object, result: np.dtype[Any]) -> int:
    """`initial` for a sum of integers."""
    words = "whole number"
    try:
        number = operator.index(_number(initial, words, result))
    except TypeError:
        raise _wrong_initial(initial, words, result) from None
    limits = np.iinfo(result)
    if not limits.min <= number <= limits.max:
        raise ValueError(
            f"initial must be from {limits.min} to {limits.max} for a sum in {result}, "
            f"not {shown(number)}"
        )
    return number


def initial_floats(initial: object, result: np.dtype[Any]) -> tuple[list[float], list[float]]:
    """`initial` for a sum of floats: float64 numbers that add up to its real and imaginary part.

    A whole number beyond 2^53, a long double or a fraction may take more than one.
    """
    words = "number" if result.kind == "c" else "real number"
    one = _number(initial, words, result)
    try:
        if np.iscomplexobj(one):
            return _as_floats(one.real), _as_floats(one.imag)
        return _as_floats(one), []
    except (TypeError, ValueError):
        raise _wrong_initial(initial, words, result) from None
    except OverflowError:
        raise ValueError(f"initial must be finite in float64, not {shown(initial)}") from None
    except ArithmeticError:
        raise ValueError(
            f"initial={shown(initial)} is no sum of float64 numbers, and is not rounded silently: "
            "pass float(initial)"
        ) from None


def initial_terms(initial: object, result: np.dtype[Any]) -> Any:
    """`initial` for processors: an integer, or tuples of a real and an imaginary part's floats."""
    if result.kind in "iu":
        return initial_integer(initial, result)
    return tuple(map(tuple, initial_floats(initial, result)))


def initial_number(parts: tuple[Any, Any], result: np.dtype[Any]) -> Any:
    """What `initial_floats` found as one number, rounded."""
    real, imaginary = map(sum, parts)
    return complex(real, imaginary) if result.kind == "c" else real


def _as_floats(number: Any) -> list[float]:
    """Float64 numbers that add up to a number. ArithmeticError if there are none."""
    try:
        top, bottom = operator.index(number), 1
    except TypeError:
        if isinstance(number, float) or not hasattr(number, "as_integer_ratio"):
            return [float(number)]
        try:
            top, bottom = number.as_integer_ratio()
        except (OverflowError, ValueError):  # inf or nan
            return [float(number)]
    found = []
    while top:
        found.append(top / bottom)
        a, b = found[-1].as_integer_ratio()
        if bottom & (bottom - 1) or not a:
            raise ArithmeticError
        top, bottom = top * b - a * bottom, bottom * b
    return found
