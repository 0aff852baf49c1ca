"""Which elements go to which sum, and where to: along axes, or by segment. Checks both.

Of sums along axes: axis, keepdims, initial, where and out. Of sums by segment: ids or offsets, the
number of segments, initial and out.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, refusals
from gpureduce.core.checks import shown, whole
from gpureduce.core.dtypes import Array
from gpureduce.core.results import SumResult


class Reduction(NamedTuple):
    """The arguments of `gpureduce.sum` that define groups of elements and where sums go."""

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


def one_axis(axis: object, dims: int) -> int:
    """The number of an axis, of which there must be one. Raises as NumPy does."""
    if axis is None or isinstance(axis, tuple):
        raise TypeError(f"axis must be a whole number, not {shown(axis)}")
    return reduced_axes(axis, dims)[0]


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
            f"`where` of shape {mask.shape} does not broadcast to the array's shape, {shape}"
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
            f"initial={shown(initial)} is not exactly a sum of float64 numbers, and is not rounded "
            "silently: pass float(initial)"
        ) from None


def initial_terms(initial: object, result: np.dtype[Any]) -> Any:
    """`initial` for processors: an integer, or tuples of a real and an imaginary part's floats."""
    if result.kind in "iu":
        return initial_integer(initial, result)
    return tuple(map(tuple, initial_floats(initial, result)))


def initial_number(parts: Any, result: np.dtype[Any]) -> Any:
    """The terms of `initial_terms` as one rounded number."""
    if result.kind in "iu":
        return parts
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


# --- segments ----------------------------------------------------------------------------------

MOST_SEGMENTS = 2**63 - 2  # C counts them in an int64
_PIECE = 1 << 24  # numbers per call of NumPy


class SomeRows(NamedTuple):
    """Ids of rows, of which negative ones are skipped, and the number of rows of each segment."""

    ids: Array
    counts: Array


def some_rows(ids: Array, size: int) -> SomeRows:
    try:
        return SomeRows(ids, np.bincount(ids, minlength=size))
    except ValueError:
        return SomeRows(ids, np.bincount(ids + 1, minlength=size + 1)[1:])


def check_rows(dims: int) -> None:
    """Raises unless values have 1 dimension, (n,), or 2, (n, d)."""
    if dims not in (1, 2):
        raise ValueError(f"values must have 1 or 2 dimensions, (n,) or (n, d), not {dims}")


class Segments(NamedTuple):
    """The arguments of `segment_sum` that define segments and where their sums go."""

    ids: Any
    offsets: Any
    size: Any = None  # the number of segments; an int once it is known
    initial: Any = None
    out: Any = None
    is_sorted: bool | None = None
    check: bool = True
    as_digits: bool = False  # return digits, not rounded sums
    largest: int | None = None  # the largest id, if the size follows from it
    given: Any = None  # the caller's offsets in host memory, of which `offsets` is a copy
    in_place: bool = False  # exact sums begin with what `out` holds; the others are left alone
    sizes: Any = None  # the numbers of rows, if rows with negative ids are skipped

    @classmethod
    def of(cls, ids: Any, offsets: Any, size: Any, *rest: Any) -> Segments:
        """The arguments. Raises unless there are either ids or offsets, and for a wrong size."""
        if (ids is None) == (offsets is None):
            how = "neither" if ids is None else "both"
            raise TypeError(f"pass either segment_ids or offsets, not {how}")
        count = None if size is None else whole("num_segments", size, 0, MOST_SEGMENTS)
        return cls(ids, offsets, count, *rest)

    @property
    def kind(self) -> int:
        """The grouping, for conversions."""
        return _host.OFFSETS if self.ids is None else _host.IDS

    @property
    def numbers(self) -> Any:
        """The ids or the offsets."""
        return self.offsets if self.ids is None else self.ids

    @property
    def name(self) -> str:
        """The argument that `numbers` is."""
        return "offsets" if self.ids is None else "segment_ids"

    def checked(self, array: Array) -> Segments:
        """The same arguments, checked for values in host memory, as arrays and with a size."""
        if self.ids is None:
            return self._with_offsets(_integers("offsets", self.offsets), len(array))
        if isinstance(self.ids, SomeRows):
            return self._replace(ids=self.ids.ids, sizes=self.ids.counts)
        found, categories = _ids(self.ids)
        if len(found) != len(array):
            raise ValueError(f"values has {len(array)} rows, but segment_ids {len(found)} ids")
        if self.is_sorted and (k := _first_fall(found)):
            raise self.wrong(0, (True, k, int(found[k]), int(found[k - 1])))
        size = self.size
        if size is None and isinstance(self.out, np.ndarray) and self.out.ndim > 0:
            size = len(self.out)
        if size is None:
            size = categories
        if size is not None:
            return Segments(found, None, size, *self[3:])  # _replace takes a microsecond longer
        return self.up_to(max((int(part.max()) for part in _pieces(found, 0)), default=-1), found)

    def up_to(self, largest: int, ids: Any) -> Segments:
        """The same with a segment for each id from 0 to the largest one."""
        size = min(max(largest + 1, 0), MOST_SEGMENTS)
        return Segments(ids, None, size, *self[3:8], largest)

    def by_offsets(self, count: int) -> int:
        """The number of segments, given the number of offsets."""
        if count == 0:
            raise ValueError(
                "offsets is empty: it must have one number more than there are segments, so [0] "
                "for none"
            )
        if self.size not in (None, count - 1):
            raise ValueError(
                f"{count} offsets define {count - 1} segments, but num_segments={self.size}"
            )
        return count - 1

    def _with_offsets(self, found: Array, rows: int) -> Segments:
        size, first, last = self.by_offsets(len(found)), int(found[0]), int(found[-1])
        if first != 0 or last != rows:
            raise ValueError(
                f"offsets must go from 0 to the number of rows, {rows}, not from {first} to {last}"
            )
        own = np.array(found, np.int64, order="C")  # C relies on what is checked here
        made = Segments(None, own, size, *self[3:8], None, found)
        if _first_fall(own) or own[0] != 0 or own[-1] != rows:
            if k := _first_fall(found):
                raise made.wrong(rows, (False, k - 1, int(found[k - 1]), int(found[k])))
            raise ValueError("offsets changed during the call")
        return made

    def wrong(self, rows: int, problem: tuple[bool, int, int, int]) -> ValueError:
        """The error for an invalid id or offset. `problem`: unsorted, index, value, neighbour.

        The neighbour of an offset is the next offset; that of an id is the id before.
        """
        is_unsorted, place, number, beside = problem
        if self.ids is None and place < self.size and beside < number:
            return ValueError(
                f"offsets must not decrease: offsets[{place}] is {number} and offsets[{place + 1}] "
                f"is {beside}"
            )
        if self.ids is None:
            return ValueError(
                f"offsets must go from 0 to the number of rows, {rows}, but offsets[{place}] is "
                f"{number}"
            )
        if is_unsorted:
            return ValueError(
                f"sorted=True, but segment_ids[{place}] is {number} and segment_ids[{place - 1}] "
                f"is {beside}: leave sorted out"
            )
        right = f"ids from 0 to {self.size - 1}" if self.size else "no ids"
        why = f"num_segments={self.size} allows {right}" if number >= 0 else "ids are not negative"
        return ValueError(f"segment_ids[{place}] is {number}, which is out of range: {why}")

    def wrong_id(self, rows: int, place: int) -> ValueError:
        """The error for the first id that is out of range."""
        return self.wrong(rows, (False, place, operator.index(self.ids[place]), 0))

    def rows_of(self, which: Array, rows: int) -> Iterator[tuple[Array, Array]]:
        """Some segments with equal numbers of rows, and a column of row numbers for each.

        Yields such a pair for each number of rows.
        """
        if not len(which):
            return
        ids = self.ids_of(0, rows)
        wanted = np.zeros(self.size + 1, np.bool_)  # the last one is for skipped rows
        wanted[which] = True
        found = np.flatnonzero(wanted[ids])
        found = found[np.argsort(ids[found], kind="stable")]
        starts, ends = (np.searchsorted(ids[found], which, side) for side in ("left", "right"))
        for n in np.unique(ends - starts).tolist():
            some = ends - starts == n
            yield which[some], found[starts[some] + np.arange(n)[:, None]]

    def no_room(self) -> MemoryError:
        """The error if there is no memory for the sums."""
        if self.largest is None:
            return MemoryError(f"there is no memory for the sums of num_segments={self.size}")
        return MemoryError(
            "there is no memory for a sum for each number from 0 to the largest id, "
            f"{self.largest}: number the segments from 0 on, as numpy.unique(segment_ids, "
            "return_inverse=True)[1] does"
        )

    def sums_of(self, array: Array, result: np.dtype[Any]) -> Array:
        """The array to store the sums of these values in: `out`, or a new one."""
        shape = (self.size, *array.shape[1:])
        if self.out is None:
            return self.empty(shape, result)
        into = checked_out(self.out, array, shape, result)
        given = self.ids if self.given is None else self.given
        refuse_overlap(into, given, self.name)
        return into

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new array, for sums or their digits."""
        try:
            return np.empty(shape, dtype)
        except (MemoryError, ValueError):
            raise self.no_room() from None

    def ids_of(self, first: int, count: int) -> Array:
        """The segments of `count` rows from row `first` on."""
        if self.ids is None:
            rows = np.arange(first, first + count)
            return np.searchsorted(self.offsets, rows, side="right") - 1
        ids: Array = self.ids[first : first + count].copy()  # kernels rely on the check
        wrong = np.flatnonzero(((ids < 0) & (self.sizes is None)) | (ids >= self.size))
        if wrong.size:
            k = int(wrong[0])
            raise self.wrong(0, (False, first + k, int(ids[k]), 0))
        return ids.astype(np.intp)


def _pieces(numbers: Array, more: int) -> Iterator[Array]:
    """Parts of a long array, each with `more` extra numbers; signals are handled in between."""
    for first in range(0, len(numbers) - more, _PIECE):
        yield numbers[first : first + _PIECE + more]


def _first_fall(numbers: Array) -> int:
    """The index of the first number that is less than the one before; 0 if there is none."""
    for i, part in enumerate(_pieces(numbers, 1)):
        falls = np.flatnonzero(part[1:] < part[:-1])
        if falls.size:
            return i * _PIECE + int(falls[0]) + 1
    return 0


def _ids(ids: Any) -> tuple[Array, int | None]:
    """The ids, and the number of categories if they are pandas' categorical ones."""
    dtype: Any = getattr(ids, "dtype", None)
    if not (hasattr(dtype, "categories") and hasattr(dtype, "ordered")):
        return _integers("segment_ids", ids), None
    codes = np.asarray(ids.codes if hasattr(ids, "codes") else ids.cat.codes)
    missing = np.flatnonzero(codes < 0)
    if missing.size:
        raise ValueError(
            f"{missing.size} segment_ids have no category (code -1), the first at {missing[0]}: "
            "keep only the rows of segment_ids.notna(), or give these rows a category of their own"
        )
    return codes, len(dtype.categories)


def few_segments(ids: Any, size: Any, array: Array, most: int) -> Segments:
    """Checked segments of an array in host memory: from 1 to `most`."""
    size = None if size is None else whole("num_segments", size, 1, most)
    found = Segments(ids, None, size).checked(array)
    if not 0 < found.size <= most:
        raise ValueError(
            f"num_segments, or the largest id plus one, must be from 1 to {most:,}, not "
            f"{found.size}"
        )
    return found


def _integers(name: str, numbers: object) -> Array:
    """Ids or offsets as an array. An empty list has no dtype: it is one of integers."""
    if isinstance(numbers, (list, tuple)) and len(numbers) == 0:
        return np.empty(0, np.int64)
    found = arrays.viewed(numbers, f"leave out these rows of values and {name}").view()
    if found.dtype.kind in "USTO":
        if found.dtype.kind == "O" and not any(isinstance(one, str) for one in found.flat):
            refusals.refuse_objects(found)
        raise TypeError(
            f"{name} must be integers, not strings: convert them by names, {name} = "
            f"numpy.unique({name}, return_inverse=True)"
        )
    if found.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {found.dtype}")
    if found.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, not {found.ndim}")
    return found
