"""Sums along axes of the slices of one array, which may lie on several devices.

Each part is summed along the axes where it lies. The rows of the parts then follow one another, or,
if the array was cut along an axis that is added up, are added in the order of the parts. That is
done on the device of the first part, by its library. Exact sums over such a cut are merged before
they are rounded: in host memory as digits, on GPUs by one call for each sum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import numpy as np

from gpureduce.core import device_array, digits, dtypes, reduction
from gpureduce.core.arrays import as_array, lies_on_a_gpu
from gpureduce.core.checks import shown, whole
from gpureduce.core.dtypes import sum_in_order
from gpureduce.core.request import Arguments
from gpureduce.core.results import Outcome, SumResult, Timing
from gpureduce.core.summation import sum as sum_of
from gpureduce.errors import naming
from gpureduce.lazy_import import load_other

Whole = Callable[[Arguments, tuple[Any, ...]], SumResult]  # one sum of all elements of parts


class Cut(NamedTuple):
    """How an array was cut into parts, and the axes that are added up."""

    axes: tuple[int, ...]
    keepdims: bool
    cut: int
    shape: tuple[int, ...]  # of the first part

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes of the result, as axes of the array."""
        return tuple(i for i in range(len(self.shape)) if i not in self.axes)


def cut_of(parts: tuple[Any, ...], axis: Any, keepdims: bool, parts_axis: Any) -> Cut:
    """Checks that the parts can be slices of one array."""
    shapes: list[Any] = []
    for number, part in enumerate(parts):
        shapes.append(getattr(part, "shape", None))
        if not isinstance(shapes[-1], tuple):
            raise TypeError(
                f"part {number}: with axis, a part is an array with a shape, not {shown(part)}"
            )
    dims = len(shapes[0])
    if dims == 0:
        raise ValueError("part 0 has no dimensions: it is no slice along an axis")
    (cut,) = reduction.reduced_axes(whole("parts_axis", parts_axis, -(2**31), 2**31), dims)
    for number, shape in enumerate(shapes):
        if len(shape) != dims or any(i != cut and n != shapes[0][i] for i, n in enumerate(shape)):
            raise ValueError(
                f"part {number} has the shape {tuple(shape)}, and part 0 {tuple(shapes[0])}: "
                f"slices of one array along axis {cut} differ there only"
            )
    return Cut(reduction.reduced_axes(axis, dims), bool(keepdims), cut, tuple(shapes[0]))


def check_dtypes(parts: Iterable[tuple[int, str]]) -> None:
    """Raises unless all parts have one dtype. `parts` are their numbers and dtypes' names."""
    (first, wanted), *others = parts
    for number, name in others:
        if name != wanted:
            raise TypeError(
                f"parts must be of one dtype: part {first} is of {wanted}, and part {number} of "
                f"{name}"
            )


def add(asked: Arguments, parts: tuple[Any, ...], how: Cut, add_whole: Whole) -> SumResult:
    """The sums of the parts; `add_whole` adds up all elements of parts to one number."""
    parts = tuple(part if lies_on_a_gpu(part) else as_array(part) for part in parts)
    check_dtypes((number, _dtype_of(part)) for number, part in enumerate(parts))
    result = dtypes.convert(dtypes.named(_dtype_of(parts[0])), asked.dtype).result
    exactly = asked.strategy in ("auto", "exact") and result.kind not in "iu"
    if how.kept and exactly and how.cut in how.axes and _in_host_memory(parts, result):
        return _by_digits(parts, how, result, asked.timing)
    if not how.kept or (exactly and how.cut in how.axes):
        return _one_by_one(asked, parts, how, add_whole)
    found = [_rows(asked, number, part, how) for number, part in enumerate(parts)]
    values = _on_first_device([one.value for one in found])
    if how.cut not in how.axes:
        at = how.cut if how.keepdims else how.kept.index(how.cut)
        return SumResult(_concatenated(values, at), found[0].timing)
    total = values[0]
    if isinstance(total, np.ndarray):
        return SumResult(sum_in_order(values, total.dtype), found[0].timing)
    for value in values[1:]:
        total = total + value
    return SumResult(total, found[0].timing)


def _dtype_of(part: Any) -> str:
    """The name of a part's dtype."""
    return str(getattr(part, "dtype", "")).rpartition(".")[2]  # torch.float32


def _in_host_memory(parts: tuple[Any, ...], result: np.dtype[Any]) -> bool:
    """Whether all parts are NumPy arrays whose digits are those of the result's kind."""
    return all(
        isinstance(part, np.ndarray) and part.dtype == parts[0].dtype
        and (part.dtype.kind == "c") == (result.kind == "c")
        for part in parts
    )  # fmt: skip


def _by_digits(parts: tuple[Any, ...], how: Cut, result: np.dtype[Any], timing: bool) -> SumResult:
    start = time.perf_counter()
    words = digits.of_sums(parts[0], how.axes)
    for part in parts[1:]:
        words = words + digits.of_sums(part, how.axes)
    values = digits.rounded(words, result)
    if how.keepdims:
        values = np.expand_dims(values, how.axes)
    if not timing:
        return SumResult(values, cast(Timing, None))
    ms = (time.perf_counter() - start) * 1e3
    outcome = Outcome(None, "perf_counter", "cpu", "cpu", kernel_ms=ms)
    size = sum(part.size for part in parts), sum(part.nbytes for part in parts)
    name = dtypes.name_of(parts[0].dtype)
    return SumResult(values, outcome.timing("exact", name, "single", *size, ms))


def _rows(asked: Arguments, number: int, part: Any, how: Cut) -> SumResult:
    try:
        return sum_of(part, *asked[:7], None, asked.timing, axis=how.axes, keepdims=how.keepdims)
    except Exception as error:
        raise naming(f"part {number}", error) from error


def _root(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _on_first_device(values: list[Any]) -> list[Any]:
    """The arrays, copied to the device of the first one; to the host if their library cannot."""
    first, root = values[0], _root(values[0])
    if all(isinstance(value, np.ndarray) for value in values):
        return values
    if any(_root(value) != root for value in values):
        raise TypeError(
            "with axis, the parts must be arrays of one library, or all lie in host memory; these "
            f"are of {', '.join(sorted({_root(value) for value in values}))}"
        )
    if root == "torch":
        return [value.to(first.device) for value in values]
    if root == "cupy":
        with first.device:
            return [load_other("cupy").asarray(value) for value in values]
    return [cast(device_array.DeviceArray, value).to_numpy() for value in values]


def _concatenated(values: list[Any], at: int) -> Any:
    library = load_other({"torch": "torch", "cupy": "cupy"}.get(_root(values[0]), "numpy"))
    if library.__name__ == "cupy":
        with values[0].device:
            return library.concatenate(values, at)
    return (
        library.cat(values, at) if library.__name__ == "torch" else library.concatenate(values, at)
    )


def _one_by_one(asked: Arguments, parts: tuple[Any, ...], how: Cut, add_whole: Whole) -> SumResult:
    """Each sum by a call for its elements of all parts."""
    shape = tuple(how.shape[i] for i in how.kept)
    sums: list[Any] = []
    if 0 in shape:  # for the dtype and the checks
        found = add_whole(asked, parts)
    for at in np.ndindex(shape):
        where: list[Any] = [slice(None)] * len(how.shape)
        for axis, i in zip(how.kept, at, strict=True):
            where[axis] = i
        found = add_whole(asked, tuple(part[tuple(where)] for part in parts))
        sums.append(found.value)
    values = np.array(sums, dtype=np.asarray(found.value).dtype).reshape(shape)
    if how.keepdims:
        values = np.expand_dims(values, how.axes)
    return SumResult(_like(parts[0], values) if values.ndim else values[()], found.timing)


def _like(part: Any, values: dtypes.Array) -> Any:
    """The sums as an array of the part's library on its device, for those that can copy."""
    root = _root(part) if lies_on_a_gpu(part) else ""
    if root == "torch":
        torch = load_other("torch")
        if values.dtype.name == "bfloat16":
            return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16).to(part.device)
        return torch.from_numpy(values).to(part.device)
    if root == "cupy":
        with part.device:
            return load_other("cupy").asarray(values)
    return values
