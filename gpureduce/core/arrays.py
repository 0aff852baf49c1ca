"""Converts any input that NumPy can view to flat pieces for the kernels, and joins their sums."""

from __future__ import annotations

import _thread
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.core.dtypes import Array, Conversion, named, no_sum_of, quietly
from gpureduce.core.refusals import refuse_missing, refuse_objects, refuse_rounded
from gpureduce.lazy_import import load, load_other

# Strided, byte-swapped, unaligned or cast input is packed through a buffer of this many elements,
# so that a memory-mapped file larger than memory can be summed. Many more would not stay
# in the processor's cache.
PACK_ELEMENTS = 1 << 20

# NumPy's own stub does not know "contig".
_PACKED: Any = [["readonly", "nbo", "aligned", "contig"]]


def as_array(arr: object) -> Array:
    """`arr` as an array of numbers in host memory. One on a device is never copied implicitly."""
    array = viewed(arr)
    if array.dtype.kind == "O" and array.size:
        refuse_objects(array)
    return array if array.dtype.kind != "b" else _booleans(array)


def viewed(arr: object, cure: str = "") -> Array:
    """`arr` as an array in host memory, of numbers or not. Missing entries are refused."""
    if isinstance(arr, np.ndarray):
        return _plain(arr, cure)
    refuse_missing(arr, cure)
    if why := without_elements(arr):
        raise TypeError(f"{type(arr).__name__} {why}")
    device = load("core.host_dlpack").device_type(arr)
    if lies_on_a_gpu(arr):
        raise TypeError(
            f"{type(arr).__name__} is on a GPU, and this call reads host memory (a CPU strategy, "
            "or no CUDA build): pass a host copy, which gpureduce never makes silently"
        )
    if device is not None:
        return _host_array(arr)
    array = np.asanyarray(arr)
    refuse_rounded(arr, array)
    return _plain(array, cure)


def lies_on_a_gpu(arr: object) -> bool:
    """Whether an object says that it is an array on a GPU."""
    if isinstance(arr, np.ndarray):
        return False
    host_dlpack = load("core.host_dlpack")
    device = host_dlpack.device_type(arr)
    on_device = device is not None and device not in host_dlpack.HOST_DEVICES
    return on_device or hasattr(arr, "__cuda_array_interface__")


def _plain(array: Array, cure: str = "") -> Array:
    """The array as an ndarray: a subclass may redefine shape and size, or mask elements."""
    if type(array) is np.ndarray:
        return array
    refuse_missing(array, cure)
    return np.asarray(array)


def _booleans(array: Array) -> Array:
    """An array of booleans whose bytes are 0 and 1. To NumPy, any other byte is True, too."""
    own = array[tuple(slice(None) if step else slice(1) for step in array.strides)].view(np.uint8)
    if is_flat(own):
        are_bools = _host.are_bools(own.reshape(-1, order="A"))
    else:
        are_bools = all(own[where].max() <= 1 for where in parts(own.shape, own.ndim))
    return array if are_bools else np.broadcast_to(own != 0, array.shape)


def without_elements(arr: object) -> str | None:
    """Why a PyTorch tensor has no readable elements, and what to pass instead."""
    if str(getattr(arr, "layout", "")).startswith("torch.sparse"):
        return "is sparse: pass its values(), or tensor.to_dense()"
    if getattr(arr, "is_meta", False) is True:
        return "is on PyTorch's meta device, where tensors have a shape and no elements"
    if getattr(arr, "is_quantized", False) is True:
        return "is quantized: pass tensor.dequantize(), or tensor.int_repr()"
    return None


def _views_memory(arr: object) -> bool:
    """Whether the object has an array protocol that NumPy reads."""
    if any(hasattr(arr, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        return True
    try:
        memoryview(arr).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _host_array(arr: object) -> Array:
    """The array of a host object that supports DLPack: NumPy's own view if there is one."""
    refused: Exception | None = None
    array: Array | None
    if _views_memory(arr):
        try:
            found: Array = np.asanyarray(arr)
        except (TypeError, RuntimeError, BufferError) as error:  # PyTorch refuses bfloat16
            refused = error
        else:
            return _plain(found)
    try:
        array, name = load("core.host_dlpack").view(arr)
    except (BufferError, RuntimeError) as error:
        if refused:
            raise refused from None
        raise BufferError(f"{type(arr).__name__} cannot be read by DLPack: {error}") from error
    if array is None:
        raise no_sum_of(name)
    return array.view(named("bfloat16")) if name == "bfloat16" else array


def _import_random(imported: _thread.LockType) -> None:
    try:
        load_other("numpy.random")
    finally:
        imported.release()


def random_numbers(seed: int) -> np.random.Generator:
    """A generator of random numbers. NumPy imports numpy.random when it is first used."""
    if "numpy.random" not in sys.modules:
        # In the main thread, Cython's code may drop what a signal handler raises meanwhile, and
        # threading.Thread.start() may turn it into another exception.
        imported = _thread.allocate_lock()
        imported.acquire()
        _thread.start_new_thread(_import_random, (imported,))
        imported.acquire()
    generator: np.random.Generator = load_other("numpy.random").default_rng(seed)
    return generator


def repeated(part: Array, n: int) -> Array:
    """An array of `n` elements: `part`, repeated."""
    if len(part) == n:
        return part
    whole = np.empty(n, part.dtype)
    for start in range(0, n, len(part)):
        whole[start : start + len(part)] = part[: n - start]
    return whole


def is_flat(array: Array) -> bool:
    """Whether the elements are contiguous, aligned and in native byte order."""
    contiguous = array.flags.c_contiguous or array.flags.f_contiguous
    return contiguous and array.flags.aligned and array.dtype.isnative


def pieces(array: Array, cast: np.dtype[Any] | None = None) -> Iterator[Array]:
    """Yields the elements as flat, aligned, native arrays: one view of all where possible."""
    wanted = array.dtype.newbyteorder("=") if cast is None else cast
    if array.size == 0:
        # The engine checks its arguments for an empty array, too.
        yield np.empty(0, wanted)
        return
    if is_flat(array) and wanted == array.dtype:
        yield array.reshape(-1, order="A")
        return
    packed = quietly(
        np.nditer,
        np.atleast_1d(array),  # before 2.3, NumPy leaves the buffer of a 0-d array unwritten
        flags=["external_loop", "buffered", "growinner"],
        op_flags=_PACKED,
        op_dtypes=[wanted],  # `convert` has refused lossy casts
        casting="unsafe",
        order="K",
        buffersize=PACK_ELEMENTS,
    )
    while not packed.finished:
        yield packed[0]
        quietly(packed.iternext)


def parts(shape: tuple[int, ...], dims: int) -> Iterator[tuple[slice, ...]]:
    """Divides an array along its first `dims` dimensions into parts of PACK_ELEMENTS at most."""
    rest = math.prod(shape[dims:])
    room = max(1, PACK_ELEMENTS // max(rest, 1))
    steps = []
    for size in reversed(shape[:dims]):
        steps.append(max(1, min(size, room)))
        room = max(1, room // max(size, 1))
    steps.reverse()
    for at in np.ndindex(*(-(-size // step) for size, step in zip(shape, steps, strict=False))):
        yield tuple(
            slice(i * step, (i + 1) * step) for i, step in zip(at, steps, strict=True)
        )  # fmt: skip


def without_gaps(array: Array, dtype: np.dtype[Any]) -> Array:
    """The elements in `dtype` and native byte order, aligned, with no gaps between them in memory.

    Elements may share memory, as those of `numpy.broadcast_to` do. A copy has one entry of each
    dimension of step 0, and signals are handled between its parts.
    """
    wanted = dtype.newbyteorder("=")
    extent = array.itemsize + sum(
        (size - 1) * abs(step) for size, step in zip(array.shape, array.strides, strict=True)
    )
    if array.dtype == wanted and array.flags.aligned and (not array.size or extent <= array.nbytes):
        return array
    own = array[tuple(slice(None) if step else slice(1) for step in array.strides)]
    copy = np.empty_like(own, wanted, order="K", subok=False)
    order = sorted(range(own.ndim), key=lambda i: -abs(copy.strides[i]))
    to, source = copy.transpose(order), own.transpose(order)
    where: Any
    for where in parts(to.shape, to.ndim):
        quietly(np.copyto, to[(*where, ...)], source[where], casting="unsafe")
    return np.broadcast_to(copy, array.shape)


Add = Callable[[Array], bytes]  # takes a flat piece, returns the bits of its sum


def add_pieces(array: Array, conversion: Conversion, add: Add) -> Any:
    """Adds up an array piece by piece, and real and imaginary parts separately."""
    if not conversion.is_complex:
        return conversion.value(_total(array, conversion, add))
    real = conversion.value(_total(array.real, conversion, add))
    if array.dtype.kind != "c":
        return conversion.result.type(real)
    return joined(conversion, real, conversion.value(_total(array.imag, conversion, add)))


def _total(array: Array, conversion: Conversion, add: Add) -> bytes:
    every = pieces(array, conversion.cast)
    bits = add(next(every))  # usually the only piece
    for piece in every:
        more = conversion.total(add(piece))
        bits = quietly(np.add, conversion.total(bits), more).tobytes()
    return bits


def joined(conversion: Conversion, real: Any, imaginary: Any) -> Any:
    """A complex scalar from its parts. ``real + 1j * imaginary`` would turn inf into nan."""
    parts = np.array([real, imaginary])
    return parts.view(conversion.result)[0]
