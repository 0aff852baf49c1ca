"""Sums along axes of the slices of one array, which may lie on several devices.

Each part is summed along the axes where it lies. The rows of the parts then follow one another, or,
if the array was cut along an axis that is added up, are added in the order of the parts. That is
done on the device of the first part, by its library. Exact sums over such a cut are merged before
they are rounded: each part becomes digits where it lies, and the host adds these.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

from gpureduce.core import (
    axis_on_device,
    device_array,
    devices,
    digits,
    dtypes,
    gpu_arrays,
    groups,
    on_several,
)
from gpureduce.core.arrays import as_array, lies_on_a_gpu
from gpureduce.core.checks import shown, whole
from gpureduce.core.device_results import namespace_of, root_of
from gpureduce.core.dtypes import sum_in_order
from gpureduce.core.plan import Arguments
from gpureduce.core.results import SumResult, ran_on, timing_of
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
        raise ValueError("part 0 is a number: with axis, each part must have a dimension")
    (cut,) = groups.reduced_axes(whole("parts_axis", parts_axis, -(2**31), 2**31), dims)
    for number, shape in enumerate(shapes):
        if len(shape) != dims or any(i != cut and n != shapes[0][i] for i, n in enumerate(shape)):
            raise ValueError(
                f"part {number} has the shape {tuple(shape)}, and part 0 has {tuple(shapes[0])}: "
                f"parts may differ in axis {cut} only"
            )
    return Cut(groups.reduced_axes(axis, dims), bool(keepdims), cut, tuple(shapes[0]))


def check_dtypes(parts: Iterable[tuple[int, str]]) -> None:
    """Raises unless all parts have one dtype. `parts` are their numbers and dtypes' names."""
    (first, wanted), *others = parts
    for number, name in others:
        if name != wanted:
            raise TypeError(
                f"all parts must have one dtype: part {first} has {wanted}, and part {number} has "
                f"{name}"
            )


def add(call: Arguments, parts: tuple[Any, ...], how: Cut, add_whole: Whole) -> SumResult:
    """The sums of the parts; `add_whole` adds up all elements of parts to one number."""
    parts = tuple(part if lies_on_a_gpu(part) else as_array(part) for part in parts)
    check_dtypes((number, dtypes.name_of(_dtype(part))) for number, part in enumerate(parts))
    result = dtypes.convert(_dtype(parts[0]), call.dtype).result
    exactly = call.strategy in ("auto", "exact") and result.kind not in "iu"
    if not how.kept:
        return _of_all(call, parts, how, add_whole)
    if exactly and how.cut in how.axes:
        return _by_digits(call, parts, how, result)
    found = [_rows(call, number, part, how) for number, part in enumerate(parts)]
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


def _dtype(part: Any) -> np.dtype[Any]:
    """The dtype of a part, in native byte order."""
    name = str(getattr(part, "dtype", "")).rpartition(".")[2]  # torch.float32
    return dtypes.named(name).newbyteorder("=")


def _by_digits(
    call: Arguments, parts: tuple[Any, ...], how: Cut, result: np.dtype[Any]
) -> SumResult:
    """Exact sums that the cut goes through, as an array where the first part lies."""
    start = time.perf_counter()
    found = [_digits(call, number, part, how) for number, part in enumerate(parts)]
    words = _in_host_memory(found[0])
    for more in found[1:]:
        words = words + _in_host_memory(more)
    values = digits.in_dtype(words, result)
    if how.keepdims:
        values = np.expand_dims(values, how.axes)
    sums = _like(parts[0], values)
    if not call.timing:
        return SumResult(sums, None)
    ms = (time.perf_counter() - start) * 1e3
    n = sum(math.prod(part.shape) for part in parts)
    kind = _dtype(parts[0])
    fields = _places(call, found) | {"kernel_ms": ms, "n": n, "nbytes": n * kind.itemsize}
    fields |= {"strategy": "exact", "dtype": dtypes.name_of(kind), "finish": "single"}
    return SumResult(sums, timing_of(fields, start))


def _digits(call: Arguments, number: int, part: Any, how: Cut) -> Any:
    """The digits of a part's sums, where it lies. On a GPU, nothing waits for them."""
    try:
        if lies_on_a_gpu(part):
            return axis_on_device.digits_gpu(part, how.axes, call.device, None)
        return digits.of_sums(part, how.axes)
    except Exception as error:
        raise naming(f"part {number}", error) from error


def _in_host_memory(words: Any) -> digits.Words:
    """A copy of digits in host memory, or the digits themselves if they lie there."""
    if isinstance(words, np.ndarray):
        return words
    if root_of(type(words)) == "torch":
        return cast(digits.Words, words.cpu().numpy())
    if root_of(type(words)) == "cupy":
        with words.device:
            return cast(digits.Words, words.get())
    return cast(device_array.DeviceArray, words).to_numpy()


@functools.lru_cache(256)
def places(backend: str, used: tuple[int, ...], on_host: bool) -> dict[str, Any]:
    """The fields of a timing that sums on such devices have in common."""
    found: list[devices.Device | None] = [None] if on_host else []
    found += [devices.choose_device(f"{backend}:{index}") for index in used]
    clock = "perf_counter" if not used else "emulator" if backend == "emulator" else "cuda_event"
    where = "+".join(["cpu"] * on_host + [backend] * bool(used))
    peaks = [one.peak_gb_s if one else None for one in found]
    peak = sum(peak for peak in peaks if peak) if all(peaks) else None
    names = on_several.names_of(found)
    return ran_on(None, source=clock, backend=where, device=names, peak_gb_s=peak)


def _places(call: Arguments, found: list[Any]) -> dict[str, Any]:
    """Where the digits were made. The processor's clock measures GPUs, too."""
    own = [words.device for words in found if not isinstance(words, np.ndarray)]
    # PyTorch's device has an index, CuPy's an id, and a DeviceArray's is a number.
    used = tuple(dict.fromkeys(getattr(one, "index", getattr(one, "id", one)) for one in own))
    backend = cast(ModuleType, gpu_arrays.module_for(call.device)).BACKEND if used else ""
    fields = places(backend, used, len(own) < len(found)) | {"peak_gb_s": None}
    return fields if backend == "emulator" else fields | {"source": "perf_counter"}


def _rows(call: Arguments, number: int, part: Any, how: Cut) -> SumResult:
    try:
        return sum_of(part, *call[:7], None, call.timing, axis=how.axes, keepdims=how.keepdims)
    except Exception as error:
        raise naming(f"part {number}", error) from error


def _on_first_device(values: list[Any]) -> list[Any]:
    """The arrays, copied to the device of the first one; to the host if their library cannot."""
    first, root = values[0], root_of(type(values[0]))
    if all(isinstance(value, np.ndarray) for value in values):
        return values
    if any(root_of(type(value)) != root for value in values):
        raise TypeError(
            "with axis, the parts must be arrays of one library, or all lie in host memory; these "
            f"are of {', '.join(sorted({root_of(type(value)) for value in values}))}"
        )
    if root == "torch":
        return [value.to(first.device) for value in values]
    if root == "cupy":
        with first.device:
            return [load_other("cupy").asarray(value) for value in values]
    return [cast(device_array.DeviceArray, value).to_numpy() for value in values]


def _concatenated(values: list[Any], at: int) -> Any:
    library = namespace_of(type(values[0]))
    with values[0].device if library.__name__ == "cupy" else contextlib.nullcontext():
        return library.concatenate(values, at)


def _of_all(call: Arguments, parts: tuple[Any, ...], how: Cut, add_whole: Whole) -> SumResult:
    """The sum of all elements."""
    found = add_whole(call, parts)
    if not how.keepdims:
        return found
    values = np.asarray(found.value).reshape((1,) * len(how.shape))
    return SumResult(_like(parts[0], values), found.timing)


def _like(part: Any, values: dtypes.Array) -> Any:
    """The sums as an array of the part's library on its device, for those that can copy."""
    root = root_of(type(part)) if lies_on_a_gpu(part) else ""
    if root == "torch":
        torch = load_other("torch")
        if values.dtype.name == "bfloat16":
            return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16).to(part.device)
        return torch.from_numpy(values).to(part.device)
    if root == "cupy":
        with part.device:
            return load_other("cupy").asarray(values)
    return values
