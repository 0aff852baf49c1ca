"""Producers of GPU arrays that lie, change their mind, raise or run code when they are asked."""

from __future__ import annotations

import ctypes
import gc
import sys

import numpy as np
import pytest

import gpureduce
from cases import run_python
from gpureduce import _emulator, _host
from gpureduce.core import gpu_arrays
from gpureduce.core.plan import Launch
from producers import (
    EXCHANGE_NAME,
    STREAM,
    TENSOR,
    ByDLPack,
    ByExchange,
    ByInterface,
    DLDataType,
    DLExchange,
    fake_cupy,
    like_cupy,
    new_capsule,
)

FLOATS = np.arange(1, 11, dtype=np.float32)


def add(array, strategy="fast", **more):
    return gpureduce.sum(array, strategy, device="emulator", **more)


def check_next():
    """The next sum of an honest array is right."""
    assert float(add(ByInterface(FLOATS)).value) == 55


class Running:
    def __init__(self, number, code):
        self.number, self.code = number, code

    def __index__(self):
        self.code()
        return self.number


@pytest.mark.parametrize("where", ["shape", "strides"])
def test_items_that_empty_the_interface(where):
    """The tuple that is walked stays, whatever the producer does to its dict meanwhile."""

    class Emptied:
        @property
        def __cuda_array_interface__(self):
            found = ByInterface(FLOATS).__cuda_array_interface__

            def empty():
                found.clear()
                self.litter = [bytes(24 + 8 * 25) for _ in range(500)]

            ones = (1,) * 24
            found["shape"] = (*ones, Running(10, empty) if where == "shape" else 10)
            found["strides"] = (4,) * 24 + (Running(4, empty) if where == "strides" else 4,)
            return found

    assert float(add(Emptied()).value) == 55


def test_the_interface_is_kept_until_the_sum_is_made():
    """It may be what keeps the memory."""

    class Dying(dict):
        alive = True

        def __del__(self):
            Dying.alive = False
            memory[:] = -1

    memory = FLOATS.copy()
    seen = []

    class Producer:
        @property
        def __cuda_array_interface__(self):
            return Dying(ByInterface(memory).__cuda_array_interface__)

    def check(kind, nbytes, device):
        gc.collect()
        seen.append(Dying.alive)

    value, _ = _emulator.sum_gpu(Producer(), None, -1, 0, None, check)
    assert float(value) == 55 and seen == [True] and not Dying.alive


@pytest.mark.parametrize("dtype", [None, "complex128"])
@pytest.mark.parametrize("strategy", ["fast", "exact", "auto"])
def test_producers_are_asked_once(strategy, dtype):
    class Changing:
        def __init__(self, *answers):
            self.answers = list(answers)

        @property
        def __cuda_array_interface__(self):
            return ByInterface(self.answers.pop(0)).__cuda_array_interface__

    pairs = np.arange(10) + 1j
    assert add(Changing(pairs), strategy, dtype=dtype).value == pairs.sum()
    total = gpureduce.Accumulator("float64").add(Changing(FLOATS), device="emulator")
    assert (float(total.value()), total.count) == (55.0, 10)
    with pytest.raises(TypeError, match="cannot add complex numbers"):
        gpureduce.Accumulator("float64").add(Changing(pairs), device="emulator")


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        *(
            ({"typestr": text, "strides": (4,)}, BufferError, "not a type of numbers")
            for text in ("<f", "<f-4", "<f4x", "<f99999999999999999999")
        ),
        *(({"typestr": text}, TypeError, "cannot be summed") for text in (">f4", "|V4")),
        ({"typestr": 4}, TypeError, "must be a text"),
        ({"data": None}, BufferError, "must have typestr, shape, and data"),
        ({"mask": FLOATS}, TypeError, "masked"),
        ({"data": (0, True)}, BufferError, "a null pointer"),
        ({"data": (FLOATS.ctypes.data + 1, True), "shape": (9,)}, BufferError, "aligned"),
        ({"strides": (3,)}, BufferError, "multiples of"),
        ({"shape": (-1,)}, BufferError, "the negative size -1"),
        ({"shape": (0, -2)}, BufferError, "the negative size -2"),
        ({"shape": (2**40, 2**40)}, BufferError, r"2\^63 elements or more"),
        ({"shape": (2**62,)}, BufferError, "exceed the address space"),
        ({"data": (2**63, True)}, BufferError, "exceed the address space"),
        ({"data": (2**64, True)}, BufferError, "address of an array on a GPU must be a number"),
        ({"data": ("0", True)}, TypeError, "address of an array on a GPU must be a number"),
        ({"stream": 2**64}, BufferError, "stream of an array on a GPU must be a number"),
        ({"stream": -1}, BufferError, "stream of an array on a GPU must be a number"),
        ({"shape": (2**64,)}, BufferError, r"2\^63 or more in its shape"),
        ({"shape": (2,), "strides": (2**63,)}, BufferError, r"2\^63 or more in its shape"),
        ({"shape": (2,), "strides": (-(2**63),)}, BufferError, "exceed the address space"),
        ({"shape": ("10",)}, TypeError, "integer"),
        ({"shape": [10]}, BufferError, "tuples of equal length, of at most 64 numbers"),
        ({"shape": (1,) * 65}, BufferError, "tuples of equal length, of at most 64 numbers"),
        ({"shape": (2, 5)}, None, ""),
        ({"shape": (1, 10), "strides": (2**62, 4)}, None, ""),  # of one element: leads nowhere
        ({"shape": (10,), "strides": None, "mask": None, "stream": 0}, None, ""),
    ],
)
def test_interfaces(changes, error, words):
    if error is None:
        assert float(add(ByInterface(FLOATS, **changes)).value) == 55
        return
    for strategy in ("fast", "exact"):
        for timing in (True, False):
            with pytest.raises(error, match=words):
                add(ByInterface(FLOATS, **changes), strategy, timing=timing)
    with pytest.raises(error, match=words):
        gpureduce.Accumulator().add(ByInterface(FLOATS, **changes), device="emulator")
    check_next()


class Changed(ByDLPack):
    """One whose tensor is changed before it is handed out."""

    def __init__(self, array, change, **form):
        super().__init__(array, **form)
        self.change = change

    def __dlpack__(self, **words):
        capsule = super().__dlpack__(**words)
        self.change(self.managed.tensor)
        return capsule


def changed(**fields):
    """A change of such fields; of `shape` and `strides`, their items."""

    def change(tensor):
        for name, value in fields.items():
            if isinstance(value, tuple):
                items = (ctypes.c_int64 * len(value))(*value)
                change.kept = [*getattr(change, "kept", []), items]
                value = ctypes.cast(items, ctypes.POINTER(ctypes.c_int64))
            setattr(tensor, name, value)

    return change


NOWHERE = ctypes.POINTER(ctypes.c_int64)()


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"shape": NOWHERE}, BufferError, "has no shape"),
        ({"ndim": -1}, BufferError, "has -1 dimensions"),
        ({"ndim": 65}, BufferError, "has 65 dimensions"),
        ({"shape": (3,), "strides": (2**62,)}, BufferError, "exceed the address space"),
        ({"shape": (2**63 - 1,), "strides": NOWHERE}, BufferError, "exceed the address space"),
        ({"shape": (2**40, 2**40), "ndim": 2}, BufferError, r"2\^63 elements"),
        ({"shape": (-3,)}, BufferError, "the negative size -3"),
        ({"byte_offset": 2**64 - 1}, BufferError, "byte_offset exceeds"),
        ({"data": None}, BufferError, "but a null pointer"),
        ({"data": 2**63}, BufferError, "exceed the address space"),
        ({"dtype": DLDataType(2, 32, 2)}, TypeError, "float32 in vectors of 2 on a GPU"),
        ({"dtype": DLDataType(10, 8, 1)}, TypeError, "float8_e4m3fn on a GPU"),
        ({"dtype": DLDataType(3, 64, 1)}, TypeError, "opaque handles on a GPU"),
        ({"dtype": DLDataType(200, 8, 1)}, TypeError, "DLPack's type 200"),
        ({"shape": (0,), "strides": (2**62,), "data": None}, None, "0"),
        ({"shape": (1, 10), "strides": (2**62, 1), "ndim": 2}, None, "55"),
        ({"strides": NOWHERE}, None, "55"),
        ({"ndim": 0, "shape": NOWHERE, "strides": NOWHERE}, None, "1"),
        ({"byte_offset": 4, "shape": (9,)}, None, "54"),
    ],
)
def test_dlpack_structures(fields, error, words, old):
    array = Changed(FLOATS, changed(**fields), old=old)
    if error is None:
        assert float(add(array).value) == float(words)
        return
    for strategy in ("fast", "exact"):
        with pytest.raises(error, match=words):
            add(array, strategy)
    check_next()


def test_capsules_of_another_version_or_device_than_announced():
    with pytest.raises(BufferError, match="unknown version"):
        add(ByDLPack(FLOATS, major=2))
    for type_, number in ((1, 0), (2, 1)):

        def change(tensor, type_=type_, number=number):
            tensor.device.type, tensor.device.id = type_, number

        with pytest.raises(BufferError, match="announced device 0 of type 2, and"):
            add(Changed(FLOATS, change))
    check_next()


@pytest.mark.parametrize(
    "said", [None, 2, (2,), (2, 0, 0), ("2", 0), (2, None), (2, 2**40), (2, -1)]
)
def test_devices_that_are_no_pair(said, monkeypatch):
    monkeypatch.setattr(ByDLPack, "__dlpack_device__", lambda self: said)
    with pytest.raises(BufferError, match=r"__dlpack_device__\(\) must return the numbers"):
        add(ByDLPack(FLOATS))


@pytest.mark.parametrize("fails", ["tensor", "stream"])
def test_an_exchange_that_fails_without_an_exception(fails):
    parts = {"tensor": ByExchange._tensor, "stream": lambda *_: 0, fails: lambda *_: -1}
    table = DLExchange(1, 3, (None,) * 4, TENSOR(parts["tensor"]), STREAM(parts["stream"]))

    class Failing(ByExchange):
        __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(table), EXCHANGE_NAME, None)

    with pytest.raises(BufferError, match="failed and gave no reason"):
        add(Failing(FLOATS))
    assert float(add(ByExchange(FLOATS)).value) == 55


class Raising:
    """Raises an exception where it is asked for one thing."""

    def __init__(self, where, error):
        self.where, self.error = where, error

    def __getattribute__(self, name):
        where = object.__getattribute__(self, "where")
        if name == where:
            raise object.__getattribute__(self, "error")
        if name == "__dlpack_device__":
            return lambda: (2, 0)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), MemoryError("none")])
@pytest.mark.parametrize("where", ["__cuda_array_interface__", "__dlpack_device__", "__dlpack__"])
def test_exceptions_come_out_as_they_are(where, error):
    with pytest.raises(type(error)):
        add(Raising(where, error))
    check_next()


def test_an_interrupt_in_an_item_stays_one():
    def interrupt():
        raise KeyboardInterrupt

    for changes in (
        {"shape": (Running(10, interrupt),)},
        {"shape": (2, 5), "strides": (Running(20, interrupt), 4)},
    ):
        with pytest.raises(KeyboardInterrupt):
            add(ByInterface(FLOATS, **changes))
    check_next()


def test_dtypes_whose_destructor_runs_a_sum(monkeypatch):
    """A sum within a sum does not change the facts that are cached for the outer array's dtype."""
    for name, module in fake_cupy().items():
        monkeypatch.setitem(sys.modules, name, module)

    class Dtype:
        def __init__(self, text, last=None):
            self.str, self.last = text, last

        def __del__(self):
            if self.last:
                self.last()

    def cupys(array, dtype):
        made = like_cupy(array)
        made.dtype = dtype
        return made

    def nested():
        add(cupys(np.ones(10), Dtype("<f8")), timing=False)

    add(cupys(np.ones(10, np.float32), Dtype("<f4", nested)), timing=False)
    halves = cupys(np.ones(1000, np.float16), Dtype("<f2"))
    assert float(add(halves, timing=False).value) == 1000


def test_devices_are_not_ignored(monkeypatch):
    monkeypatch.setattr(gpu_arrays, "_module", lambda: _emulator)
    there = ByDLPack(FLOATS)
    for strategy in ("auto", "exact", "fast"):
        with pytest.raises(TypeError, match="is on a GPU"):
            gpureduce.sum(there, strategy, device="cpu")
    with pytest.raises(TypeError, match="is on a GPU"):
        gpureduce.Accumulator().add(there, device="cpu")
    with pytest.raises(ValueError, match=r"the array is on cuda:0.*not on device='cuda:1'"):
        gpu_arrays.check_same_device("cuda:1", 0)
    for asked in (None, "cuda", "cuda:0", "emulator"):
        gpu_arrays.check_same_device(asked, 0)


def test_streams_are_numbers():
    for stream in (-1, 2**64):
        with pytest.raises(ValueError, match="from 0 to 2"):
            add(ByDLPack(FLOATS), stream=stream)
    with pytest.raises(OverflowError):
        _emulator.sum_gpu(ByDLPack(FLOATS), None, Launch(-1), 2**64, None)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("float64", "expected a dtype or None"),
        (3, "expected a dtype or None"),
        (np.dtype("M8[s]"), r"dtype=datetime64\[s\] cannot hold a sum"),
        (np.dtype([("a", "i4")]), "cannot hold a sum"),
        (np.dtype(bool), "dtype=bool cannot hold a sum"),
        (np.dtype("i4"), "dtype=int32 would lose part of float32"),
        (np.dtype("c8"), "real arrays on a GPU cannot be summed as complex"),
    ],
)
@pytest.mark.parametrize("strategy", [-1, -2])
def test_c_takes_dtypes_that_hold_the_sum(dtype, message, strategy):
    with pytest.raises(TypeError, match=message):
        _emulator.sum_gpu(ByInterface(FLOATS), dtype, strategy, 0, None)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("sum", (FLOATS, Launch(-2, 9, 2))),
        ("sum", (FLOATS, Launch(1000, 9, 2))),
        ("sum", (FLOATS, Launch(0, 9, 2, finish=7))),
        ("sum", (FLOATS, Launch(0, 9, 2, device=-1))),
        ("sum", (FLOATS, Launch(0, 9, 2, order=9))),
        ("sum", (FLOATS, Launch(0, 99, 2))),
        ("sum", (FLOATS, Launch(0, -1, 2))),
        ("sum", (FLOATS, Launch(0, 9, 99))),
        ("sum", (FLOATS, Launch(0, 9, -1))),
        ("measure", (FLOATS, Launch(-2, 9, 2), 1, 1, 1, 0, False, False)),
        ("measure", (FLOATS, Launch(0, 9, 2, finish=9), 1, 1, 1, 0, False, False)),
        ("sum_samples", (0, 0.0, 1.0, 9, Launch(-2, -1, 3), 0)),
        ("sum_samples", (0, 0.0, 1.0, 9, Launch(0, -1, 0), 0)),
        ("sum_samples", (99, 0.0, 1.0, 9, Launch(0, -1, 3), 0)),
        ("sum_gpu", (FLOATS, None, Launch(-3), 0, None)),
        ("sum_gpu", (FLOATS, None, Launch(0, finish=4), 0, None)),
        ("cpu_error_factor", (-1, 9, 2)),
        ("cpu_error_factor", (5, 99, 2)),
        ("cpu_error_factor", (5, 9, -1)),
        ("takes_samples", (1000,)),
    ],
)
def test_private_entry_points_check_their_numbers(name, arguments):
    with pytest.raises(ValueError, match="no such"):
        getattr(_emulator if hasattr(_emulator, name) else _host, name)(*arguments)


def test_rows_that_empty_their_table():
    class Clear:
        def __index__(self):
            rows.clear()
            return 1

    rows = [(2**30, 0, Clear(), 256, 0, 0), (2**30, 0, 1, 256, 0, 0)]
    try:
        _emulator.set_choices(0, rows)
    finally:
        _emulator.set_choices(0, [])


DTYPE_SET_MEANWHILE = """
import sys, threading
import gpureduce, ml_dtypes, numpy as np
array, ended = np.ones(2**20, ml_dtypes.bfloat16), False
def set_dtype():
    while not ended:
        for dtype in (np.uint16, ml_dtypes.bfloat16):  # threads change at the end of a loop
            array.dtype = dtype
thread = threading.Thread(target=set_dtype)
thread.start()
sys.setswitchinterval(1e-5)
found = {type(gpureduce.sum(array, "exact", timing=False).value) for _ in range(1000)}
ended = True
thread.join()
assert found <= {np.uint64, ml_dtypes.bfloat16}, found
"""


def test_another_thread_sets_the_dtype_during_a_sum():
    run_python(DTYPE_SET_MEANWHILE)
