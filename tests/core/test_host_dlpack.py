"""Objects in host memory that NumPy cannot view: by DLPack, or by an error in the user's words."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import math
import sys

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from cases import DTYPES, array_of
from gpureduce.core import arrays, devices, gpu_arrays
from producers import ByDLPack, DLDataType, DLDevice

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class OnHost(ByDLPack):
    """A NumPy array that speaks DLPack alone; `changes` are fields of its tensor."""

    def __init__(self, array, *, device=1, old=False, major=1, **changes):
        super().__init__(array, old=old, major=major)
        self.device = device
        self.changes = changes

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **words):
        assert "stream" not in words
        capsule = super().__dlpack__(**words)
        self.managed.tensor.device = DLDevice(self.device, 0)
        for name, value in self.changes.items():
            setattr(self.managed.tensor, name, value)
        return capsule


class TorchTensor(OnHost):
    """A bfloat16 tensor of PyTorch's on the CPU: NumPy's view of it fails."""

    layout = "torch.strided"
    is_meta = is_quantized = False

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Got unsupported ScalarType BFloat16")


def sums(array, **more):
    """By default, by each way, and in an accumulator."""
    found = [gpureduce.sum(array, **more).value]
    found += [gpureduce.sum(array, device="emulator", **more).value]
    found += [gpureduce.sum(array, strategy, **more).value for strategy in ("cpu", "numpy")]
    return found


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
def test_every_dtype(dtype, old):
    array = array_of(dtype, 1000).reshape(10, 100)
    exact = gpureduce.sum(array).value
    assert gpureduce.sum(OnHost(array, old=old)).value == exact
    assert gpureduce.sum(OnHost(array, old=old, device=3)).timing.dtype == dtype
    if dtype not in ("bool", "int64"):
        assert gpureduce.Accumulator("complex128").add(OnHost(array, old=old)).count == 1000


@pytest.mark.parametrize("tensor", [OnHost, TorchTensor])
def test_bfloat16_of_any_strides(tensor):
    whole = np.arange(600).astype(ml_dtypes.bfloat16).reshape(20, 30)
    for array in (whole, whole.T, whole[::-1, ::2], whole[3:5, ::-7], whole[:0],
                  whole[2, 3:4].reshape(()), np.broadcast_to(whole[0], (4, 30))):  # fmt: skip
        expected = np.asarray(math.fsum(array.astype(float).ravel())).astype(array.dtype)
        result = gpureduce.sum(tensor(array))
        assert result.value == expected and result.value.dtype == ml_dtypes.bfloat16
        assert result.timing.dtype == "bfloat16" and result.timing.n == array.size
        found = arrays.as_array(tensor(array))
        assert found.shape == array.shape and (found == array).all()


def test_the_memory_is_not_copied_and_is_kept_as_long_as_the_array():
    array = np.ones(100, ml_dtypes.bfloat16)
    freed = []

    class Producer(OnHost):
        def __dlpack__(self, **words):
            super().__dlpack__(**words)
            deleter = DELETER(freed.append)
            self.managed.deleter = ctypes.cast(deleter, ctypes.c_void_p).value
            self.kept = deleter, self.managed
            return owning_capsule(self.managed, deleter)

    producer = Producer(array)
    view = arrays.as_array(producer)
    assert view.ctypes.data == array.ctypes.data and not view.flags.writeable
    part = view[3:]
    del view
    gc.collect()
    assert not freed and part.astype(float).sum() == 97
    del part
    gc.collect()
    assert len(freed) == 1
    gpureduce.sum(producer)
    gc.collect()
    assert len(freed) == 2


def owning_capsule(managed, deleter):
    """A capsule whose destructor frees its tensor, unless a consumer took the tensor over."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(lambda _: deleter(None))
    KEPT.append(destructor)
    address = ctypes.cast(destructor, ctypes.c_void_p)
    return new(ctypes.addressof(managed), b"dltensor_versioned", address)


KEPT: list[object] = []


def test_a_byte_offset_counts():
    array = np.arange(10).astype(ml_dtypes.bfloat16)
    for old in (False, True):
        shifted = OnHost(array[:7], old=old, byte_offset=6)
        assert arrays.as_array(shifted).tolist() == [3, 4, 5, 6, 7, 8, 9]


def test_tensors_without_strides_are_in_c_order():
    array = np.arange(24).astype(ml_dtypes.bfloat16).reshape(2, 3, 4)
    found = arrays.as_array(OnHost(array, strides=None))
    assert (found == array).all()


SHAPE = (ctypes.c_int64 * 2)(2**40, 2**40)
NEGATIVE = (ctypes.c_int64 * 2)(-1, 3)
FAR = (ctypes.c_int64 * 2)(2**62, 1)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"ndim": -1}, "its number of dimensions, -1, is not possible"),
        ({"ndim": 65}, "its number of dimensions, 65, is not possible"),
        ({"shape": None}, "its number of dimensions, 2, is not possible"),
        ({"shape": NEGATIVE}, r"it cannot have the shape \(-1, 3\)"),
        ({"shape": SHAPE, "strides": None}, "shape .* exceed the address space"),
        ({"shape": SHAPE}, "shape .* exceed the address space"),
        ({"strides": FAR}, "shape .* exceed the address space"),
        ({"data": None}, "its data pointer is null"),
        ({"device": DLDevice(2, 0)}, "its memory is on DLPack's device type 2, not"),
    ],
)
def test_tensors_that_cannot_be(changes, fault):
    array = np.ones((2, 3), ml_dtypes.bfloat16)
    producer = OnHost(array)
    producer.changes = changes
    with pytest.raises(BufferError, match=f"OnHost cannot be read by DLPack: {fault}"):
        gpureduce.sum(producer)


def test_producers_that_cannot_be():
    array = np.ones(3, ml_dtypes.bfloat16)
    with pytest.raises(BufferError, match=r"it has DLPack 2\.0, not 1\.x"):
        gpureduce.sum(OnHost(array, major=2))

    class NoCapsule(OnHost):
        def __dlpack__(self, **words):
            return 7

    with pytest.raises(BufferError, match="its __dlpack__ returned no DLPack capsule"):
        gpureduce.sum(NoCapsule(array))


def test_numpys_error_is_raised_where_dlpack_says_less():
    class NeedsGradient(TorchTensor):
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

        def __dlpack__(self, **words):
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    with pytest.raises(RuntimeError, match="Can't call numpy"):
        gpureduce.sum(NeedsGradient(np.ones(3)))


def test_numpys_own_view_comes_first():
    class Both(OnHost):
        def __array__(self, dtype=None, copy=None):
            return self.array

        def __dlpack__(self, **words):
            raise AssertionError("asked by DLPack")

    for device in (1, 3):  # the CPU; memory that CUDA has pinned
        assert gpureduce.sum(Both(np.ones(3), device=device)).value == 3
    buffer = memoryview(np.ones(3))
    assert gpureduce.sum(buffer).value == 3


def test_bfloat16_without_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="pip install ml_dtypes"):
        gpureduce.sum(TorchTensor(np.ones(3, ml_dtypes.bfloat16)))


@pytest.mark.parametrize(
    ("code", "bits", "lanes", "name"),
    [
        (2, 8, 1, "float8"), (2, 128, 1, "float128"), (0, 4, 1, "int4"), (5, 32, 1, "complex32"),
        (10, 8, 1, "float8_e4m3fn"), (17, 4, 2, "float4_e2m1fn in vectors of 2"),
        (2, 32, 4, "float32 in vectors of 4"), (6, 1, 1, "bool"),
        (99, 8, 1, "of DLPack's type code 99 and 8 bits"),
    ],
)  # fmt: skip
def test_dtypes_that_are_not_read_are_named(code, bits, lanes, name):
    array = np.ones(8, np.uint8)
    for kind in (OnHost, TorchTensor):
        producer = kind(array, dtype=DLDataType(code, bits, lanes))
        if name.startswith("float") and code > 2:
            producer.dtype = f"torch.{name.split()[0]}"
        with pytest.raises(TypeError, match=rf"arrays of dtype {name} cannot be summed; supported"):
            gpureduce.sum(producer)


def like_torch(**more):
    """As much of a tensor without plain elements as is asked for."""

    def refuse(*_, **__):
        raise TypeError("can't convert it to numpy: use Tensor.something()")

    def no_device(*_):
        raise ValueError("Unknown device type meta for Dlpack")

    names = {"__array__": refuse, "__dlpack__": refuse, "__dlpack_device__": no_device, **more}
    return type("Tensor", (), names)()


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ({"layout": "torch.sparse_coo"}, r"sparse: pass its values\(\), or tensor.to_dense\(\)"),
        ({"layout": "torch.sparse_csr"}, r"sparse: pass its values\(\), or tensor.to_dense\(\)"),
        ({"is_meta": True}, "on PyTorch's meta device, where tensors have a shape and no elements"),
        ({"is_quantized": True}, r"quantized: pass tensor.dequantize\(\), or tensor.int_repr"),
    ],
)
@pytest.mark.parametrize("has_card", [False, True])
def test_tensors_without_plain_elements(tensor, words, has_card, monkeypatch):
    monkeypatch.setattr(gpu_arrays, "_module", lambda: devices.emulator() if has_card else None)
    for add in (gpureduce.sum, gpureduce.Accumulator().add):
        with pytest.raises(TypeError, match=f"Tensor is {words}"):
            add(like_torch(**tensor))


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
def test_tensors_of_torch():
    import torch

    tensor = torch.arange(100).to(torch.bfloat16)
    assert gpureduce.sum(tensor).value == 4950 or gpureduce.sum(tensor).value == 4960
    assert gpureduce.sum(tensor.reshape(10, 10).T[::3]).value.dtype == ml_dtypes.bfloat16
    for wrong in (torch.ones(3).to_sparse(), torch.ones(3, device="meta")):
        with pytest.raises(TypeError, match="Tensor is"):
            gpureduce.sum(wrong)
    with pytest.raises(TypeError, match="float8_e4m3fn cannot be summed"):
        gpureduce.sum(torch.ones(3).to(torch.float8_e4m3fn))
