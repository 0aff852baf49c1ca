"""Arrays in host memory that NumPy cannot view, read by DLPack: bfloat16 tensors, for example.

https://dmlc.github.io/dlpack/latest/ has the layout of the structures.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost

_MAJOR = 1
_MOST_DIMENSIONS = 64  # NumPy's limit
_MOST_BYTES = 2**63 - 1
_HIGHEST_ADDRESS = 2**61

# The names of element types, by the type codes of dlpack.h; types that are not read included.
_NAMES = {
    0: "int",
    1: "uint",
    2: "float",
    3: "opaque handle",
    4: "bfloat",
    5: "complex",
    6: "bool",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
    15: "float6_e2m3fn",
    16: "float6_e3m2fn",
    17: "float4_e2m1fn",
}
_SIZED = (0, 1, 2, 4, 5)  # codes whose names end in the number of bits


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


class _Managed(ctypes.Structure):
    """DLManagedTensor of DLPack before 1.0, which begins with the tensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
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


class View(NamedTuple):
    """An array over a producer's memory, and the name of its dtype.

    `array` is None if NumPy and this package do not know the dtype. Elements of ``"bfloat16"`` are
    uint16: the same bits.
    """

    array: np.ndarray[Any, Any] | None
    dtype: str


def dtype_name(code: int, bits: int, lanes: int = 1) -> str:
    """The name of a DLPack dtype.

    >>> dtype_name(10, 8), dtype_name(4, 16), dtype_name(2, 32, 4)
    ('float8_e4m3fn', 'bfloat16', 'float32 in vectors of 4')
    """
    name = _NAMES.get(code, f"of DLPack's type code {code} and {bits} bits")
    name += str(bits) if code in _SIZED else ""
    return name if lanes == 1 else f"{name} in vectors of {lanes}"


def view(producer: Any) -> View:
    """Views the host memory of an object that supports DLPack; BufferError if that fails."""
    try:
        capsule = producer.__dlpack__(max_version=(_MAJOR, 0))
    except TypeError:  # a producer from before DLPack 1.0
        capsule = producer.__dlpack__()
    tensor = _tensor_of(capsule)
    if tensor.device.type not in HOST_DEVICES:
        where = f"DLPack's device type {tensor.device.type}"
        raise BufferError(f"its memory is on {where}, not in host memory")
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    name = dtype_name(code, bits, lanes)
    typestr = _typestr(code, bits) if lanes == 1 else None
    if typestr is None:
        return View(None, name)
    shape, strides = _layout(tensor, bits // 8)
    if 0 in shape:
        return View(np.empty(shape, typestr), name)
    if not tensor.data:
        raise BufferError("its data pointer is null")
    address = tensor.data + tensor.byte_offset
    if address >= _HIGHEST_ADDRESS:
        raise BufferError("its data pointer plus byte_offset exceeds the address space")
    interface = {"version": 3, "typestr": typestr, "shape": shape, "data": (address, True)}
    memory = _Memory(capsule, interface | {"strides": strides})
    return View(np.asarray(memory), name)


def _typestr(code: int, bits: int) -> str | None:
    """The dtype for NumPy's array interface."""
    kind, sizes = {
        0: ("i", (8, 16, 32, 64)),
        1: ("u", (8, 16, 32, 64)),
        2: ("f", (16, 32, 64)),
        4: ("u", (16,)),
        5: ("c", (64, 128)),
        6: ("b", (8,)),
    }.get(code, ("", ()))
    return np.dtype(f"{kind}{bits // 8}").str if bits in sizes else None


def _tensor_of(capsule: object) -> _Tensor:
    """The tensor in a capsule. It lives as long as the capsule."""
    tensor: _Tensor
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != _MAJOR:
            raise BufferError(f"it has DLPack {versioned.major}.{versioned.minor}, not 1.x")
        tensor = versioned.tensor
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Managed.from_address(_get_pointer(capsule, b"dltensor")).tensor
    else:
        raise BufferError("its __dlpack__ returned no DLPack capsule")
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
