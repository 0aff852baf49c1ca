"""Sums along axes of arrays on a GPU of a known description: nothing is decided again."""

from __future__ import annotations

import concurrent.futures
import gc
import sys
import types

import numpy as np
import pytest

import gpureduce
from gpureduce.core import axis_on_device, device_results
from producers import ByExchange


class Shown(ByExchange):
    """With the attributes that `out` must have."""

    dtype = property(lambda self: self.array.dtype)
    shape = property(lambda self: self.array.shape)


class Other(Shown):
    """Of the same library, as torch.nn.Parameter is."""


@pytest.fixture
def asked(monkeypatch):
    """The descriptions that Python was asked about; no call takes the general way."""
    module = gpureduce.core.devices.emulator()
    library = device_results.library_of(ByExchange, module)
    for root in ("producers", __name__.partition(".")[0]):
        monkeypatch.setitem(device_results.LIBRARIES, root, library)
    monkeypatch.setattr(axis_on_device.gpu_arrays, "module_for", lambda device: module)
    monkeypatch.setattr(axis_on_device, "add_gpu", None)
    axis_on_device._plan_for.cache_clear()
    found, learn = [], axis_on_device._Plan._learn

    def counted(plan, *description):
        found.append(description)
        return learn(plan, *description)

    monkeypatch.setattr(axis_on_device._Plan, "_learn", counted)
    yield found
    axis_on_device._plan_for.cache_clear()


def numbers(*shape, dtype=np.float32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape) % 7


@pytest.mark.parametrize("strategy", ["fast", "exact", "row_block", "auto"])
@pytest.mark.parametrize("timing", [False, True])
def test_python_is_asked_once_for_each_description(asked, strategy, timing):
    first, second = numbers(5, 40), numbers(5, 40) + 1
    for array in (first, second, first):
        found = gpureduce.sum(Shown(array), strategy, axis=1, timing=timing)
        np.testing.assert_array_equal(found.value.to_numpy(), array.sum(axis=1))
        assert type(found) is gpureduce.SumResult
        assert (found.timing is not None) == timing
        if timing:
            assert (found.timing.n, found.timing.launches >= 1) == (200, True)
    assert len(asked) == 1
    others = (numbers(6, 40), numbers(5, 41), numbers(40, 5).T, numbers(5, 40, dtype=np.float64))
    if strategy == "row_block":
        others = (others[0], others[1], others[3])
    for k, array in enumerate(others):
        for _ in range(2):
            found = gpureduce.sum(Shown(array), strategy, axis=1, timing=timing)
            np.testing.assert_array_equal(found.value.to_numpy(), array.sum(axis=1))
        assert len(asked) == 2 + k
    whole = [gpureduce.sum(Shown(first), "fast", result="device", timing=timing) for _ in range(2)]
    assert whole[0].value.to_numpy() == whole[1].value.to_numpy() == first.sum()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("strategy", ["auto", "exact", "fast"])
def test_each_choice_of_axes_and_dtype_has_a_plan(asked, strategy, dtype):
    array = numbers(20, 30, dtype=dtype)
    wide = "int16" if dtype is np.int8 else "float64"
    for view in (array, array.T, array[::2]):
        for how in ({"axis": 0}, {"axis": -1}, {"axis": 1, "keepdims": True},
                    {"axis": 1, "dtype": wide}, {"axis": (1, -2)}, {"axis": (0,)}):  # fmt: skip
            found = gpureduce.sum(Shown(view), strategy, **how)
            want = view.sum(**how)
            assert found.value.dtype == want.dtype and found.timing.dtype == array.dtype.name
            np.testing.assert_array_equal(found.value.to_numpy(), want)
    for axis in (2, -3):
        with pytest.raises(np.exceptions.AxisError):
            gpureduce.sum(Shown(array), strategy, axis=axis)


def test_each_out_is_checked(asked):
    array, later = Shown(numbers(5, 40)), Shown(numbers(5, 40) + 1)
    good, own = Shown(np.zeros(5, np.float32)), Other(np.zeros(5, np.float32))

    def add(out, array=later):
        return gpureduce.sum(array, "fast", axis=1, out=out, timing=False)

    add(good, array)
    assert add(good).value is good and len(asked) == 1
    np.testing.assert_array_equal(good.array, later.array.sum(axis=1))
    wrong = [
        (np.zeros(5, np.float32), TypeError, "out must be of type Shown, shape"),
        (Shown(np.zeros(5)), TypeError, "out must have the dtype of the sum, float32"),
        (Shown(np.zeros(5, np.int32)), TypeError, "out must have the dtype of the sum, float32"),
        (Shown(np.zeros(6, np.float32)), ValueError, "out must have the shape of the sum"),
        (Shown(np.zeros((5, 1), np.float32)), ValueError, "out must have the shape of the sum"),
        (Shown(np.broadcast_to(np.float32(0), 5)), ValueError, "share memory"),
        (Shown(later.array[:, 0]), ValueError, "out overlaps the array"),
        (object(), TypeError, "out must"),
    ]
    for out, error, words in wrong:
        with pytest.raises(error, match=words):
            add(out)
        good.array[:] = 0
        assert add(good).value is good
        np.testing.assert_array_equal(good.array, later.array.sum(axis=1))
    assert add(own).value is own
    assert len(asked) == 1
    np.testing.assert_array_equal(own.array, later.array.sum(axis=1))
    strided = np.zeros(10, np.float32)
    for _ in range(2):
        add(Other(strided[::2]))
    np.testing.assert_array_equal(strided[::2], later.array.sum(axis=1))
    assert not strided[1::2].any()


def test_errors_of_the_kernel_and_of_the_allocation_leave_the_next_call_working(asked, monkeypatch):
    for _ in range(2):
        with pytest.raises(
            ValueError, match="row_group needs rows that begin at a multiple of 16 bytes"
        ):
            gpureduce.sum(Shown(numbers(3, 5)), "row_group", axis=1)
    fails = [False]
    empty = device_results.device_array.empty

    def sometimes(*how):
        if fails[0]:
            raise MemoryError("no room")
        return empty(*how)

    monkeypatch.setattr(device_results.device_array, "empty", sometimes)
    array = numbers(5, 40)
    for fails[0] in (False, True, False, True, False):
        if fails[0]:
            with pytest.raises(MemoryError, match="no room"):
                gpureduce.sum(Shown(array), "fast", axis=1, timing=False)
        else:
            found = gpureduce.sum(Shown(array), "fast", axis=1, timing=False).value
            np.testing.assert_array_equal(found.to_numpy(), array.sum(axis=1))
    misaligned = np.zeros(5 * 40 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(5, 40)
    with pytest.raises(BufferError, match="not aligned"):
        gpureduce.sum(Shown(misaligned), "fast", axis=1, timing=False)


def test_nothing_leaks(asked, monkeypatch):
    out, array = Shown(np.zeros(5, np.float32)), Shown(numbers(5, 40))
    strange = Shown(np.zeros(6, np.float32))

    def work():
        for timing in (False, True):
            gpureduce.sum(array, "fast", axis=1, timing=timing)
            gpureduce.sum(array, "exact", axis=1, timing=timing, out=out)
            with pytest.raises(ValueError, match="shape of the sum"):
                gpureduce.sum(array, "exact", axis=1, timing=timing, out=strange)

    def held():
        gc.collect()
        plan = axis_on_device._plan_for(Shown, "fast", None, False, 1, False, None)
        (known,) = plan.known.values()
        counts = [sys.getrefcount(held) for held in (out, array, strange, Shown, plan, known)]
        return [*counts, len(gc.get_objects())]

    for _ in range(20):
        work()
    before = held()
    for _ in range(300):
        work()
    after = held()
    assert after[:-1] == before[:-1]
    assert abs(after[-1] - before[-1]) < 200
    plan = axis_on_device._plan_for(Shown, "fast", None, False, 1, False, None)
    plan.known.clear()
    monkeypatch.setattr(axis_on_device, "_MOST_KNOWN", 4)
    for n in range(1, 10):
        gpureduce.sum(Shown(numbers(n, 3)), "fast", axis=1, timing=False)
        assert len(plan.known) <= 4


def test_threads_that_learn_and_forget(asked, monkeypatch):
    monkeypatch.setattr(axis_on_device, "_MOST_KNOWN", 3)
    arrays = [numbers(n, 8) for n in range(1, 9)]

    def work(first):
        for turn in range(150):
            array = arrays[(first + turn) % len(arrays)]
            found = gpureduce.sum(Shown(array), "fast", axis=1, timing=turn % 2 == 0).value
            assert np.array_equal(found.to_numpy(), array.sum(axis=1))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_how_pytorch_is_asked_for_memory(monkeypatch):
    class Tensor:
        def __init__(self, *sizes):
            self.sizes = sizes

        def new_empty(self, *sizes):
            return Tensor(*sizes)

    made = []

    def empty(shape, dtype, device):
        made.append((shape, dtype, device))
        return kinds[0](shape)

    kinds = [type("FakeTensor", (Tensor,), {})]
    torch = types.SimpleNamespace(
        Tensor=Tensor, empty=empty, float32="f", device=lambda *which: which
    )
    monkeypatch.setattr(device_results, "load_other", lambda name: torch)
    device_results._torch_like.cache_clear()
    maker = device_results.LIBRARIES["torch"].maker
    with pytest.raises(TypeError, match="PyTorch creates a FakeTensor here"):
        maker((3,), "float32", 1)
    kinds[0] = Tensor
    assert maker((3, 4), "float32", 1)(7).sizes == (3, 4)
    assert maker((), "float32", 1)(7).sizes == ((),)
    assert made == [((0,), "f", ("cuda", 1))] * 2  # nothing is kept of a failure
    device_results._torch_like.cache_clear()
