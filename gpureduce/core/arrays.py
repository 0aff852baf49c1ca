"""From whatever NumPy can view to flat pieces that a kernel can read."""

from __future__ import annotations

import functools
import importlib.util
import operator
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _emulator
from gpureduce.core import host_dlpack
from gpureduce.core.registry import COMPLEX, DTYPES

Array = np.ndarray[Any, Any]

# Strided, byte-swapped, unaligned or cast input is packed through a buffer of this many elements,
# so that a memory-mapped file larger than memory can be summed.
PACK_ELEMENTS = 1 << 22

# NumPy's own stub does not know "contig".
_PACKED: Any = [["readonly", "nbo", "aligned", "contig"]]

_NUMBERS_OF: dict[int, np.dtype[Any]] = {
    _emulator.ACC_U32: np.dtype(np.uint32),
    _emulator.ACC_U64: np.dtype(np.uint64),
    _emulator.ACC_F32: np.dtype(np.float32),
    _emulator.ACC_F64: np.dtype(np.float64),
}


def number_of(acc: int) -> np.dtype[Any]:
    """The NumPy dtype of an accumulator."""
    return _NUMBERS_OF[acc]


@dataclass(frozen=True)
class Conversion:
    """How the elements of one dtype become a sum of another.

    Elements are first cast to `cast`, where that is not None, as numpy.sum does; then read as
    `load` and added up in `acc`; the sum becomes a `result`. For complex numbers `load` and `acc`
    are those of the real and imaginary parts.
    """

    cast: np.dtype[Any] | None
    load: int
    acc: int
    result: np.dtype[Any]

    @property
    def is_complex(self) -> bool:
        """Whether an element is a pair of floats."""
        return self.result.kind == "c"

    def total(self, bits: bytes) -> Array:
        """The accumulator, with which its bits begin: the engine's are padded."""
        return np.frombuffer(bits, number_of(self.acc), count=1)

    def value(self, bits: bytes) -> Any:
        """The accumulator's bits as a scalar of the result's dtype (of a part, if complex)."""
        total = self.total(bits)
        if self.is_complex or total.dtype == self.result:
            return total[0]
        with np.errstate(over="ignore"):
            return total.astype(self.result)[0]


def as_array(arr: object) -> Array:
    """`arr` as an array in host memory, never copied from a device behind the caller's back."""
    # Looked up, since np.ma is imported by whoever names it first, and a signal handler that comes
    # between calls itself until the stack is full.
    if isinstance(arr, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise TypeError("a masked array has no plain sum: pass arr.compressed() or arr.filled(0)")
    if isinstance(arr, np.ndarray):  # a subclass may mean something else by shape and size
        return _numbers(arr if type(arr) is np.ndarray else arr.view(np.ndarray))
    if why := without_elements(arr):
        raise TypeError(f"{type(arr).__name__} {why}")
    device = host_dlpack.device_type(arr)
    on_device = device is not None and device not in host_dlpack.HOST_DEVICES
    if on_device or hasattr(arr, "__cuda_array_interface__"):
        raise TypeError(
            f"{type(arr).__name__} lies on a GPU, where host strategies and a gpureduce without "
            "CUDA cannot read it, and it is not copied silently: pass a host copy"
        )
    return _numbers(np.asarray(arr) if device is None else _host_array(arr))


def _numbers(array: Array) -> Array:
    """The array; TypeError if its elements are accumulators, which have sums of their own."""
    if array.dtype.kind == "O":
        for one in array.flat:
            if words := getattr(type(one), "_not_a_number", None):
                raise TypeError(words)
    return array


def without_elements(arr: object) -> str | None:
    """Why a PyTorch tensor has no elements to read one by one, and what to pass instead."""
    if str(getattr(arr, "layout", "")).startswith("torch.sparse"):
        return "is sparse: pass its values(), or tensor.to_dense()"
    if getattr(arr, "is_meta", False) is True:
        return "is on PyTorch's meta device, where tensors have a shape and no elements"
    if getattr(arr, "is_quantized", False) is True:
        return "is quantized: pass tensor.dequantize(), or tensor.int_repr()"
    return None


def _views_memory(arr: object) -> bool:
    """Whether NumPy knows one of the object's protocols."""
    if any(hasattr(arr, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        return True
    try:
        memoryview(arr).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _host_array(arr: object) -> Array:
    """An object in host memory that speaks DLPack: NumPy's own view of it, if there is one."""
    refused: Exception | None = None
    if _views_memory(arr):
        try:
            return np.asarray(arr)
        except (TypeError, RuntimeError, BufferError) as error:  # as PyTorch's of a bfloat16 tensor
            refused = error
    try:
        array, name = host_dlpack.view(arr)
    except (BufferError, RuntimeError) as error:
        if refused:
            raise refused from None
        raise BufferError(f"{type(arr).__name__} cannot be read by DLPack: {error}") from error
    if array is None:
        raise _no_sum_of(name)
    return array.view(named("bfloat16")) if name == "bfloat16" else array


def _no_sum_of(name: str) -> TypeError:
    return TypeError(
        f"arrays of dtype {name} cannot be summed; there are {', '.join((*DTYPES, *COMPLEX))}"
    )


def named(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype of that name; NumPy knows bfloat16 once ml_dtypes is imported."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise TypeError(
                "NumPy has no bfloat16 without ml_dtypes: pip install ml_dtypes"
            ) from error

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    try:
        return np.dtype(dtype)
    except SyntaxError as error:  # NumPy parses a list of fields as Python
        raise TypeError(f"there is no dtype {dtype!r}") from error


def count(name: str, number: int, most: int) -> int:
    """A whole number from 1 to `most`, checked here: C would take its low bits for the number."""
    number = operator.index(number)
    if not 1 <= number <= most or (name == "block" and number % 32):
        what = "a multiple of 32 from 32 to 1024" if name == "block" else f"from 1 to {most}"
        raise ValueError(f"{name} must be {what}, not {number}")
    return number


def is_here(name: str) -> bool:
    """Whether there is such a dtype: ml_dtypes brings bfloat16, if it is installed."""
    return name != "bfloat16" or importlib.util.find_spec("ml_dtypes") is not None


def repeated(part: Array, n: int) -> Array:
    """`n` elements: those of `part` over and over."""
    if len(part) == n:
        return part
    whole = np.empty(n, part.dtype)
    for start in range(0, n, len(part)):
        whole[start : start + len(part)] = part[: n - start]
    return whole


@functools.lru_cache(256)
def name_of(dtype: np.dtype[Any]) -> str:
    """What NumPy calls a dtype, with its byte order; NumPy makes that up anew each time."""
    return str(dtype)


def _kind(dtype: np.dtype[Any]) -> str:
    """NumPy's kind, with bfloat16 among the floats."""
    return "f" if dtype.name == "bfloat16" else dtype.kind


def _known(dtype: np.dtype[Any]) -> bool:
    return dtype.name in DTYPES or dtype.name in COMPLEX


def _default_result(source: np.dtype[Any]) -> np.dtype[Any]:
    if source.name in COMPLEX or source.name == "bfloat16":
        return source.newbyteorder("=")
    return np.dtype(DTYPES[source.name].result)


def convert(source: np.dtype[Any], wanted: npt.DTypeLike | None) -> Conversion:
    """The conversion from elements of `source` to a sum of `wanted`, or of NumPy's own choice."""
    return _convert(source, None if wanted is None else named(wanted))


@functools.lru_cache(256)  # the names of NumPy's dtypes are made anew each time: microseconds
def _convert(source: np.dtype[Any], wanted: np.dtype[Any] | None) -> Conversion:
    if not _known(source):
        raise _no_sum_of(str(source))
    result = _default_result(source) if wanted is None else wanted.newbyteorder("=")
    if not _known(result) or result.kind == "b":
        raise TypeError(f"dtype={result} cannot hold a sum")
    if "biufc".index(_kind(result)) < "biufc".index(_kind(source)) and _kind(result) not in "iu":
        raise TypeError(f"dtype={result} would lose part of {source}; cast the array first")
    if _kind(result) in "iu" and _kind(source) in "fc":
        raise TypeError(f"dtype={result} would lose part of {source}; cast the array first")

    if result.kind in "iu":
        return _to_integers(source, result)
    part = result if result.kind != "c" else np.dtype(f"f{result.itemsize // 2}")
    parts = source if source.kind != "c" else np.dtype(f"f{source.itemsize // 2}")
    acc = DTYPES[part.name].acc
    if _read_as_is(parts, part, acc):
        return Conversion(None, DTYPES[parts.name].load, acc, result)
    return Conversion(part, DTYPES[part.name].load, acc, result)


def _to_integers(source: np.dtype[Any], result: np.dtype[Any]) -> Conversion:
    """Integers wrap around, so a wider accumulator gives the same low bits as a narrow one."""
    load = DTYPES[source.name].load
    if result.itemsize == 4 and load in (_emulator.LOAD_I32, _emulator.LOAD_U32):
        return Conversion(None, _emulator.LOAD_U32, _emulator.ACC_U32, result)
    return Conversion(None, load, _emulator.ACC_U64, result)


def _read_as_is(source: np.dtype[Any], result: np.dtype[Any], acc: int) -> bool:
    """Whether a kernel widens `source` itself: exactly, and to what NumPy would cast it to."""
    if source.kind in "biu":
        return False
    if source.newbyteorder("=") == result:
        return True
    load = DTYPES[source.name].load
    if acc == _emulator.ACC_F64:
        return load == _emulator.LOAD_F32
    return result == np.float32 and load in (_emulator.LOAD_F16, _emulator.LOAD_BF16)


def is_flat(array: Array) -> bool:
    """Whether the elements lie side by side in memory, aligned and in native order."""
    contiguous = array.flags.c_contiguous or array.flags.f_contiguous
    return contiguous and array.flags.aligned and array.dtype.isnative


def pieces(array: Array, conversion: Conversion) -> Iterator[Array]:
    """The elements as flat, aligned, native arrays: a view of all of them where that can be."""
    wanted = array.dtype.newbyteorder("=") if conversion.cast is None else conversion.cast
    if array.size == 0:
        # An empty array still tells the engine what to check.
        yield np.empty(0, wanted)
        return
    if is_flat(array) and wanted == array.dtype:
        yield array.reshape(-1, order="A")
        return
    with (
        np.errstate(over="ignore"),
        np.nditer(
            np.atleast_1d(array),  # before 2.3, NumPy leaves the buffer of a 0-d array unwritten
            flags=["external_loop", "buffered", "growinner"],
            op_flags=_PACKED,
            op_dtypes=[wanted],
            casting="same_kind",
            order="K",
            buffersize=PACK_ELEMENTS,
        ) as packed,
    ):
        yield from packed
