"""GPU arrays for machines without a GPU: the emulator's device memory is the host's."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import numpy as np

from gpureduce.core.dtypes import quietly


class DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DLManaged(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class DLVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class ByDLPack:
    """A NumPy array that says it lies on CUDA device 0, by DLPack 1.x or by the older form."""

    def __init__(self, array: np.ndarray, *, old: bool = False, major: int = 1) -> None:
        self.array = array
        self.old = old
        self.major = major
        self.calls: list[dict[str, object]] = []

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None, **more):
        if self.old and more:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.calls.append({"stream": stream, **more})
        a = self.array
        bf16 = a.dtype.name == "bfloat16"
        managed = DLManaged() if self.old else DLVersioned()
        self.shape = (ctypes.c_int64 * max(a.ndim, 1))(*a.shape)
        self.strides = (ctypes.c_int64 * max(a.ndim, 1))(*(s // a.itemsize for s in a.strides))
        managed.tensor.data = a.ctypes.data
        managed.tensor.device = DLDevice(2, 0)
        managed.tensor.ndim = a.ndim
        managed.tensor.dtype = DLDataType(4 if bf16 else CODES[a.dtype.kind], a.itemsize * 8, 1)
        managed.tensor.shape = self.shape
        managed.tensor.strides = self.strides
        if not self.old:
            managed.major = self.major
        self.managed = managed
        name = b"dltensor" if self.old else b"dltensor_versioned"
        return new_capsule(ctypes.addressof(managed), name, None)


class Kept(ByDLPack):
    """As ByDLPack, but keeps its capsules, and may say that they are of another device."""

    def __init__(self, array: np.ndarray, *, device: int = 0, **form: Any) -> None:
        super().__init__(array, **form)
        self.device = device
        self.capsules: list[object] = []

    def __dlpack__(self, **words):
        capsule = super().__dlpack__(**words)
        self.managed.tensor.device.id = self.device
        self.capsules.append(capsule)
        return capsule

    def held_by_others(self) -> int:
        """How many references to its capsules there are besides its own."""
        kept = [object() for _ in self.capsules]
        counts = [sum(map(sys.getrefcount, found)) for found in (self.capsules, kept)]
        return counts[0] - counts[1]


class OnDevice:
    """Part of an array on an emulated device, by DLPack; with a shape, a dtype and slices."""

    def __init__(self, array: np.ndarray, device: int = 0) -> None:
        self.array, self.device = array, device
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack_device__(self):
        return 2, self.device

    def __dlpack__(self, **words):
        self.shown = Kept(self.array, device=self.device)  # whose tensor the capsule points to
        return self.shown.__dlpack__(**words)

    def __getitem__(self, where):
        return OnDevice(np.asarray(self.array[where]), self.device)


class OfLibrary(OnDevice):
    """The same, with what gpureduce.exact takes from the array's library."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other):
        return OfLibrary(np.asarray(self.array == getattr(other, "array", other)))

    def __ne__(self, other):
        return OfLibrary(np.asarray(self.array != getattr(other, "array", other)))

    def __and__(self, other):
        return OfLibrary(np.asarray(self.array & other.array))

    def __or__(self, other):
        return OfLibrary(np.asarray(self.array | other.array))

    def __lt__(self, other):
        return OfLibrary(np.asarray(self.array < other))

    def __gt__(self, other):
        return OfLibrary(np.asarray(self.array > getattr(other, "array", other)))

    def __sub__(self, other):
        return OfLibrary(np.asarray(self.array - other.array))

    def __mul__(self, other):
        return OfLibrary(np.asarray(self.array * other))

    def __len__(self):
        return len(self.array)

    def any(self):
        return self.array.any()

    def sum(self):
        return self.array.sum()

    def argmax(self):
        return self.array.argmax()

    def __int__(self):
        return int(self.array)

    def __abs__(self):
        return OfLibrary(np.abs(self.array))

    def __setitem__(self, where, value):
        self.array[where] = value.to_numpy()

    def __getitem__(self, where):
        return OfLibrary(np.asarray(self.array[getattr(where, "array", where)]))

    def reshape(self, *shape):
        return OfLibrary(self.array.reshape(*shape))


# The functions of that library.
LIBRARY = types.SimpleNamespace(
    __name__="library",
    amax=lambda one, **how: OfLibrary(np.asarray(quietly(np.max, one.array, **how))),
    argsort=lambda one: OfLibrary(np.argsort(one.array, kind="stable")),
    broadcast_to=lambda one, shape: OfLibrary(np.broadcast_to(one.array, shape)),
    stack=lambda several, axis: OfLibrary(np.stack([one.array for one in several], axis)),
    where=lambda mask, one, zero: OfLibrary(np.where(mask.array, one.array, one.dtype.type(zero))),
)


class ByExchange:
    """As ByDLPack, but asked by the table of C functions that PyTorch's arrays have."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.asked = ByDLPack(array)
        self.asked.__dlpack__()  # creates its tensor

    def _tensor(self, tensor) -> int:
        tensor[0] = self.asked.managed.tensor
        return 0


class DLExchange(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("others", ctypes.c_void_p * 4),
        ("tensor", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))),
        (
            "stream",
            ctypes.CFUNCTYPE(
                ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
            ),
        ),
    ]


TENSOR, STREAM = (kind for _, kind in DLExchange._fields_[-2:])
EXCHANGE = DLExchange(1, 3, (None,) * 4, TENSOR(ByExchange._tensor), STREAM(lambda *_: 0))
EXCHANGE_NAME = b"dlpack_exchange_api"  # the capsule has its address only
ByExchange.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(EXCHANGE), EXCHANGE_NAME, None)


def _address(array):
    """Empty arrays of CuPy and PyTorch have none."""
    return array.ctypes.data if array.size else 0


class ByInterface:
    """A NumPy array that shows itself by ``__cuda_array_interface__``."""

    def __init__(self, array: np.ndarray, **changes: object) -> None:
        self.array = array
        self.changes = changes

    @property
    def __cuda_array_interface__(self):
        a = self.array
        contiguous = a.flags.c_contiguous
        return {
            "shape": a.shape,
            "typestr": a.dtype.str,
            "data": (a.ctypes.data, True),
            "strides": None if contiguous else a.strides,
            "version": 3,
            **self.changes,
        }


def on_device(array: np.ndarray, **changes: object) -> Any:
    """The array as one on the device, with the attributes that all libraries' arrays have."""
    shown: Any = (
        ByDLPack(array)
        if array.dtype.name == "bfloat16"
        else ByInterface(array, **{"data": (_address(array), False)} | changes)
    )
    shown.dtype, shown.shape = array.dtype, array.shape
    return shown


# The fake CuPy's current stream: the default one, unless a test changes it.
CUPYS_STREAM = types.SimpleNamespace(ptr=0)


def fake_cupy() -> dict[str, types.ModuleType]:
    """The parts of CuPy's modules that gpureduce uses."""
    cuda = types.ModuleType("cupy.cuda")
    cuda.get_current_stream = lambda: CUPYS_STREAM
    return {"cupy": types.ModuleType("cupy"), "cupy.cuda": cuda}


def like_cupy(array: np.ndarray) -> object:
    """A NumPy array that shows itself as CuPy's do, attribute by attribute."""
    return _CupyArray(array)


class _CupyArray:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.data = types.SimpleNamespace(ptr=_address(array), device_id=0)
        self.dtype = array.dtype
        self.shape = array.shape
        self.strides = array.strides


_CupyArray.__module__, _CupyArray.__name__ = "cupy", "ndarray"
