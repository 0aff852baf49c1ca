"""Results on a GPU, for sums along axes and by segment.

They lie beside the array, in an array of the same library, whose allocator provides the memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpureduce.core import device_array, dtypes, gpu_arrays, reduction
from gpureduce.core.checks import shown
from gpureduce.core.results import Timing
from gpureduce.lazy_import import load_other

Make = Callable[[tuple[int, ...]], Any]  # makes an array of a shape
Transpose = Callable[[Any, tuple[int, ...]], Any]


class Library(NamedTuple):
    """How to make an array beside `like`, how to transpose it, and on which stream work goes."""

    make: Callable[[Any, tuple[int, ...], str, int, int], Any]  # like, shape, dtype, device, stream
    transpose: Transpose
    stream: Callable[[Any], object] = lambda like: None  # None: the one that the array names


def _torch(like: Any, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> Any:
    torch = load_other("torch")
    return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)


def _cupy(like: Any, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> Any:
    cupy = load_other("cupy")
    with cupy.cuda.Device(device):
        return cupy.empty(shape, dtypes.named(dtype))


LIBRARIES = {
    "torch": Library(
        _torch,
        lambda array, order: array.permute(order),
        lambda like: load_other("torch").cuda.current_stream(like.device),
    ),
    "cupy": Library(
        _cupy,
        lambda array, order: array.transpose(order),
        lambda like: load_other("cupy").cuda.get_current_stream(),
    ),
}


def library_of(arr: object, module: Any) -> Library:
    """Where the sums of an array go: to its library; to a DeviceArray, if we do not know that."""

    def make(like: Any, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> Any:
        return device_array.empty(module, shape, dtype, device, stream)

    root = type(arr).__module__.partition(".")[0]
    return LIBRARIES.get(root) or Library(make, lambda array, order: array.transpose(order))


def conversion_of(
    exactly: Callable[[np.dtype[Any]], bool], kind: str, nbytes: int, wanted: Any
) -> tuple[dtypes.Conversion, str]:
    """How elements are added up, and the name of the sums' dtype."""
    try:
        source = gpu_arrays.source(kind, nbytes)
    except TypeError:
        raise TypeError(
            f"arrays of elements of kind {kind!r} and {nbytes} bytes on a GPU cannot be summed"
        ) from None
    conversion = dtypes.convert(source, None if wanted is None else dtypes.named(wanted))
    if kind == "B" and wanted is None:
        return conversion, "bfloat16"
    if conversion.is_complex and kind != "c":
        raise TypeError("real arrays on a GPU cannot be summed as complex: use a real dtype")
    part = dtypes.part_of(conversion.result)
    if exactly(conversion.result):
        refuse_wide(kind, nbytes)
    elif conversion.cast is not None and part != dtypes.number_of(conversion.acc):
        raise TypeError(
            f"arrays on a GPU cannot be cast to {conversion.cast} element by element; cast the "
            "array first"
        )
    return conversion, dtypes.name_of(conversion.result)


def initial_of(initial: object, result: np.dtype[Any]) -> tuple[Any, Any]:
    """The initial number's real and imaginary part."""
    if type(initial) is int and initial == 0:
        return 0, 0
    if result.kind in "iu":
        return reduction.initial_integer(initial, result), 0
    parts = reduction.initial_floats(initial, result)
    if any(len(part) > 1 for part in parts):
        raise ValueError(
            f"kernels take an initial number that is a float64, such as {float(sum(parts[0]))!r}, "
            f"not {shown(initial)}"
        )
    return sum(parts[0]), sum(parts[1])


def refuse_wide(kind: str, nbytes: int) -> None:
    """Raises for elements that kernels cannot add up exactly as floats."""
    if kind in "iu" and nbytes == 8:
        raise TypeError(
            "kernels cannot sum 64-bit integers exactly as floats: sum them as integers, or, in "
            "host memory, by the processors"
        )


def check_out(out: Any, arr: Any, name: str, shape: tuple[int, ...]) -> None:
    """Raises if the sums cannot be written to `out`. C checks where it lies."""
    dtype = str(getattr(out, "dtype", "")).rpartition(".")[2]
    root = type(out).__module__.partition(".")[0]
    if isinstance(out, np.ndarray) or root != type(arr).__module__.partition(".")[0]:
        raise TypeError(
            f"out must be a {type(arr).__name__} of shape {shape} and dtype {name} on the same "
            f"GPU, not {type(out).__name__}"
        )
    if dtype != name:
        raise TypeError(f"out must have the dtype of the sum, {name}, not {dtype}")
    if tuple(out.shape) != shape:
        raise ValueError(f"out must have the shape of the sum, {shape}, not {tuple(out.shape)}")


def finish_of(launches: int) -> str:
    """How the sums of shares became one: by a second launch, if there was one."""
    return "relaunch" if launches > 1 else "single"


def timing_of(
    backend: str, device: int, element: tuple[str, int], n: int, name: str, found: Any, start: float
) -> Timing:
    """The timing of sums whose launches were put on a stream: their time is read when looked at.

    `element` is its kind and bytes, and `found` is (block, grid, launches, times).
    """
    block, grid, launches, elapsed = found
    timing = Timing.__new__(Timing)
    fields = vars(timing)
    fields.update(gpu_arrays.common_fields(backend, device, *element, name, finish_of(launches)))
    fields["block"], fields["grid"], fields["launches"] = block or None, grid or None, launches
    fields["n"], fields["nbytes"] = n, n * element[1]
    if elapsed is None:
        fields["kernel_ms"] = fields["d2h_ms"] = 0.0
    else:  # read when somebody looks: results.py
        fields["_elapsed"] = elapsed
    fields["total_ms"] = (time.perf_counter() - start) * 1e3
    return timing
