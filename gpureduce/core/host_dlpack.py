"""Arrays in host memory that NumPy cannot view, read by DLPack: bfloat16 tensors, for example.

https://dmlc.github.io/dlpack/latest/ has the layout of the structures.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from gpureduce.core.registry import NUMBERS

HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost

_MAJOR = 1
_MOST_DIMENSIONS = 64  # NumPy's limit
_MOST_BYTES = 2**63 - 1
_HIGHEST_ADDRESS = 2**61

# The names of element types, by the type codes of dlpack.h.
_NAMES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


def device_type(arr: object) -> int | None:
    """DLPack's device type of `arr`; None for an object without DLPack."""
    ask = getattr(arr, "__dlpack_device__", None)
    if ask is None:
        return None
    said = ask()
    if not (isinstance(said, tuple) and len(said) == 2 and all(isinstance(n, int) for n in said)):
        raise BufferError(
            "__dlpack_device__() must return the numbers of a device type and of a device, not "
            f"{said!r}"
        )
    return int(said[0])


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned. DLManagedTensor, of DLPack before 1.0, begins with the tensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Memory:
    """Memory for a NumPy view. Keeps the capsule alive, whose destructor frees the memory."""

    def __init__(self, capsule: object, interface: dict[str, Any]) -> None:
        self.capsule = capsule
        self.__array_interface__ = interface


def _name_of(dtype: _DataType, producer: Any) -> str:
    """A dtype's name; the producer's name for a dtype that is not read, as torch.float8_e5m2."""
    own = str(getattr(producer, "dtype", "")).rpartition(".")[2]
    name = own or f"of DLPack's type code {dtype.code} and {dtype.bits} bits"
    if dtype.code in _NAMES:
        name = "bool" if dtype.code == 6 else f"{_NAMES[dtype.code]}{dtype.bits}"
    return name if dtype.lanes == 1 else f"{name} in vectors of {dtype.lanes}"


def view(producer: Any) -> tuple[np.ndarray[Any, Any] | None, str]:
    """An array over the host memory of an object that supports DLPack, and its dtype's name.

    Elements of ``"bfloat16"`` are uint16: the same bits. None in place of the array if its dtype
    cannot be summed; BufferError if it cannot be viewed.
    """
    try:
        capsule = producer.__dlpack__(max_version=(_MAJOR, 0))
    except TypeError:  # a producer from before DLPack 1.0
        capsule = producer.__dlpack__()
    tensor = _tensor_of(capsule)
    if tensor.device.type not in HOST_DEVICES:
        where = f"DLPack's device type {tensor.device.type}"
        raise BufferError(f"its memory is on {where}, not in host memory")
    name, bits = _name_of(tensor.dtype, producer), tensor.dtype.bits
    if name not in NUMBERS or bits % 8:
        return None, name
    typestr = np.dtype("uint16" if name == "bfloat16" else name).str
    shape, strides = _layout(tensor, bits // 8)
    if 0 in shape:
        return np.empty(shape, typestr), name
    if not tensor.data:
        raise BufferError("its data pointer is null")
    address = tensor.data + tensor.byte_offset
    if address >= _HIGHEST_ADDRESS:
        raise BufferError("its data pointer plus byte_offset exceeds the address space")
    interface = {"version": 3, "typestr": typestr, "shape": shape, "data": (address, True)}
    memory = _Memory(capsule, interface | {"strides": strides})
    return np.asarray(memory), name


def _tensor_of(capsule: object) -> _Tensor:
    """The tensor in a capsule. It lives as long as the capsule."""
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    if not _is_valid(capsule, b"dltensor_versioned"):
        raise BufferError("its __dlpack__ returned no DLPack capsule")
    versioned = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
    if versioned.major != _MAJOR:
        raise BufferError(f"it has DLPack {versioned.major}.{versioned.minor}, not 1.x")
    tensor: _Tensor = versioned.tensor
    return tensor


def _layout(tensor: _Tensor, itemsize: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape, and strides in bytes."""
    ndim = tensor.ndim
    if not 0 <= ndim <= _MOST_DIMENSIONS or (ndim and not tensor.shape):
        raise BufferError(f"its number of dimensions, {ndim}, is not possible")
    shape = tuple(tensor.shape[:ndim]) if ndim else ()
    if min(shape, default=0) < 0:
        raise BufferError(f"it cannot have the shape {shape}")
    if tensor.strides and ndim:
        strides = tuple(stride * itemsize for stride in tensor.strides[:ndim])
    else:  # C order
        strides = tuple(itemsize * math.prod(shape[i + 1 :]) for i in range(ndim))
    reach = sum((n - 1) * abs(stride) for n, stride in zip(shape, strides, strict=True) if n)
    if itemsize * math.prod(shape) > _MOST_BYTES or reach + itemsize > _MOST_BYTES:
        raise BufferError(f"shape {shape} and strides {strides} exceed the address space")
    return shape, strides
