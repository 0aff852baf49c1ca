"""gpureduce.sum_parts: arrays that lie on several devices, here emulated ones."""

from __future__ import annotations

import concurrent.futures

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import pytest

import gpureduce
from cases import array_of, broken_off_after, same_bits
from gpureduce.core import devices
from gpureduce.several.parts import _Elapsed
from producers import ByInterface, OnDevice, on_device

DTYPES = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "int8",
    "int64",
    "uint64",
    "bool",
]


def cut(array, count):
    """Uneven parts, of which one is empty."""
    ends = np.sort(np.random.default_rng(count).integers(0, array.size, count - 1))
    return np.split(array, [0, *ends])


def spread(parts, count=4):
    return [OnDevice(part, i % count) for i, part in enumerate(parts)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_have_the_bits_of_the_whole(device_count, dtype):
    array = array_of(dtype, 3000)
    whole = gpureduce.sum(array).value
    for parts in (cut(array, 1), cut(array, 3), cut(array, 9)[::-1]):
        for some in (
            spread(parts, device_count),
            parts,
            [part if i % 2 else OnDevice(part, i % device_count) for i, part in enumerate(parts)],
        ):
            result = gpureduce.sum_parts(some, device="emulator")
            assert same_bits(result.value, whole)
            assert result.timing.n == array.size and result.timing.nbytes == array.nbytes
            value = gpureduce.sum_parts(some, device="emulator", timing=False)
            assert same_bits(value.value, whole) and value.timing is None


def test_the_timing_names_all_devices(four_devices):
    parts = [np.ones(100, np.float32)] * 3
    timing = gpureduce.sum_parts([*spread(parts), parts[0]], device="emulator").timing
    assert timing.backend == "cpu+emulator"
    assert timing.device == "cpu + 3 x gpureduce emulator"
    assert (timing.strategy, timing.source) == ("exact", "emulator")
    assert 0 < timing.kernel_ms <= timing.total_ms and timing.launches >= 3
    timing = gpureduce.sum_parts(parts).timing
    assert (timing.backend, timing.device, timing.launches) == ("cpu", "cpu", 0)


class Took:
    """The times of a part."""

    def __init__(self, kernel, back):
        self.read = lambda: (kernel, back)


def test_the_longest_device_tells_the_time():
    """Parts on one device follow one another; those of others run beside them."""
    times = [(0, Took(2.0, 0.5)), (1, Took(3.0, 0.0)), (0, Took(2.0, 0.25))]
    assert _Elapsed(times, 1.0).read() == (4.0, 0.75)
    assert _Elapsed(times, 9.0).read() == (9.0, 0.75)


def test_other_strategies_add_in_the_order_of_the_parts(four_devices):
    big, one = np.float32(2**24), np.float32(1)
    parts = [np.array([x]) for x in (big, one, one, -big)]
    assert gpureduce.sum_parts(spread(parts), "warp_shfl", device="emulator").value == 0
    back = spread(parts)[::-1]
    assert gpureduce.sum_parts(back, "warp_shfl", device="emulator").value == 2
    pairs = spread([np.array([x, y]) for x, y in ((one, one), (big, -big))])
    assert gpureduce.sum_parts(pairs, "warp_shfl", device="emulator").value == 2
    assert gpureduce.sum_parts(spread(parts), device="emulator").value == 2


def test_halves_are_rounded_once(four_devices):
    """2048 + 1 + 1: rounded after each part, the ones would be lost."""
    parts = [np.array([x], np.float16) for x in (2048, 1, 1)]
    for strategy in ("warp_shfl", "fast", "auto"):
        assert gpureduce.sum_parts(spread(parts), strategy, device="emulator").value == 2050
    for strategy in ("cpu", "numpy", "auto"):
        value = gpureduce.sum_parts(parts, strategy).value
        assert value == 2050 and value.dtype == np.float16


def test_integers_wrap_around(four_devices):
    parts = [np.full(3, 2**62, np.int64)] * 5
    with np.errstate(over="ignore"):
        wrapped = np.sum(np.concatenate(parts))
    for strategy in ("auto", "fast", "exact"):
        assert gpureduce.sum_parts(spread(parts), strategy, device="emulator").value == wrapped
        mixed = [*spread(parts[:2]), *parts[2:]]
        assert gpureduce.sum_parts(mixed, strategy, device="emulator").value == wrapped
    assert gpureduce.sum_parts(parts, dtype="int32").value.dtype == np.int32


def test_strided_parts(four_devices):
    square = array_of("float64", 64 * 64).reshape(64, 64)
    parts = [OnDevice(square[i::4, ::-1], i) for i in range(4)]
    assert same_bits(
        gpureduce.sum_parts(parts, device="emulator").value, gpureduce.sum(square).value
    )


def test_memory_of_the_emulator_is_on_its_device(four_devices):
    """By __cuda_array_interface__, which does not name the device."""
    module = devices.emulator()
    memory = module.allocate(64, 2, 1)
    array = np.ones(16, np.float32)
    shown = ByInterface(array, data=(memory.pointer, True))
    found = gpureduce.sum_parts([shown, OnDevice(array, 1)], "fast", device="emulator")
    assert np.isnan(found.value)  # fresh memory is filled with nan
    assert found.timing.device == "2 x gpureduce emulator"


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (0, 2), None, ()])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "complex64"])
def test_slices_of_one_array_along_axes(four_devices, dtype, axis):
    array = (np.random.default_rng(1).standard_normal((12, 5, 7)) * 1000).astype(dtype)
    for along in (0, 1, -1):
        host = np.array_split(array, 3, axis=along)
        for keepdims in (False, True):
            wanted = gpureduce.sum(array, axis=axis, keepdims=keepdims).value
            for parts, device in ((host, None), (spread(host), "emulator")):
                how = {"axis": axis, "keepdims": keepdims, "parts_axis": along, "device": device}
                found = gpureduce.sum_parts(parts, **how).value
                assert type(found) is type(wanted) and found.dtype == wanted.dtype
                assert found.shape == wanted.shape
                assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()
                if device:
                    quick = gpureduce.sum_parts(parts, "fast", **how).value
                    assert quick.shape == wanted.shape and quick.dtype == wanted.dtype
                    np.testing.assert_allclose(quick, wanted, rtol=0.02, atol=50)


@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64"])
def test_exact_sums_that_the_cut_goes_through(four_devices, dtype):
    """Digits are made where each part lies; the first one has no slices."""
    array = array_of("float64", 8 * 3000).reshape(8, 3000).astype(dtype)
    wanted = gpureduce.sum(array, axis=0).value
    parts = [on_device(array[:3]), array[3:5], OnDevice(array[5:], 2)]
    found = gpureduce.sum_parts(parts, axis=0, device="emulator")
    assert found.value.dtype == wanted.dtype and found.value.tobytes() == wanted.tobytes()
    timing = found.timing
    assert (timing.n, timing.nbytes, timing.strategy) == (array.size, array.nbytes, "exact")
    assert timing.backend == "cpu+emulator" and timing.source == "emulator"
    assert timing.device == "cpu + 2 x gpureduce emulator"
    untimed = gpureduce.sum_parts(parts, axis=0, device="emulator", timing=False)
    assert untimed.timing is None and untimed.value.tobytes() == wanted.tobytes()


def test_real_parts_have_complex_sums():
    parts = [np.array([[2**62, 1]]), np.array([[1, 2]])]
    found = gpureduce.sum_parts(parts, axis=0, dtype="complex128").value
    wanted = gpureduce.sum(np.concatenate(parts), axis=0, dtype="complex128").value
    assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


WRONG = [
    (lambda: gpureduce.sum_parts([]), ValueError, "parts must have at least one array"),
    (lambda: gpureduce.sum_parts(np.ones(3)), TypeError, "a list of arrays, not one ndarray"),
    (lambda: gpureduce.sum_parts(3), TypeError, r"parts must be a list, such as \[3\], not 3"),
    (lambda: gpureduce.sum_parts(spread([np.ones(3), np.ones(3, "f4")]), device="emulator"),
     TypeError, "one dtype: part 0 has float64, and part 1 has float32"),
    (lambda: gpureduce.sum_parts([OnDevice(np.ones(3)), np.ones(3, int)], device="emulator"),
     TypeError, "one dtype: part 0 has float64, and part 1 has int64"),
    (lambda: gpureduce.sum_parts([np.ones(3), "x"]), TypeError, "part 1: arrays of dtype <U1"),
    (lambda: gpureduce.sum_parts(spread([np.ones(3)] * 8, 8), device="emulator"),
     ValueError, "part 4: there is no emulator device 4: there are 4"),
    (lambda: gpureduce.sum_parts([np.ones(3)] * 2, "warp_shfl"), ValueError,
     "part 0: it is in host memory, which warp_shfl, a GPU kernel, cannot read"),
    (lambda: gpureduce.sum_parts([np.ones(3)], device="cpu"), ValueError,
     "device must be None or 'emulator', .*not 'cpu'"),
    (lambda: gpureduce.sum_parts([np.ones(3)], device=["emulator"]), ValueError,
     r"device must be None or 'emulator', .*not \['emulator'\]"),
    (lambda: gpureduce.sum_parts([np.ones(3)], "nope"), ValueError, "nope"),
    (lambda: gpureduce.sum_parts([np.ones(3)], stream=[1, 2]), ValueError,
     "stream must name a stream per part, 1, not 2"),
    (lambda: gpureduce.sum_parts([np.ones(3)], stream=[1]), ValueError,
     "part 0: it is in host memory, so its entry of stream"),
    (lambda: gpureduce.sum_parts([np.ones((2, 3)), np.ones((2, 4))], axis=0), ValueError,
     r"part 1 has the shape \(2, 4\), and part 0 has \(2, 3\): parts may differ in axis 0"),
    (lambda: gpureduce.sum_parts([np.ones((2, 3)), np.ones(3)], axis=0), ValueError, "part 1 has"),
    (lambda: gpureduce.sum_parts([np.ones((2, 3), int), np.ones((2, 3), "u8")], axis=1), TypeError,
     "one dtype: part 0 has int64, and part 1 has uint64"),
    (lambda: gpureduce.sum_parts([np.ones((2, 3), int), np.ones((2, 3), "u8")], "cpu", axis=0),
     TypeError, "one dtype: part 0 has int64, and part 1 has uint64"),
    (lambda: gpureduce.sum_parts(
        [OnDevice(np.ones((2, 3))), OnDevice(np.ones((2, 3), "f4"))], axis=1, device="emulator"),
     TypeError, "one dtype: part 0 has float64, and part 1 has float32"),
    (lambda: gpureduce.sum_parts([1.0], axis=0), TypeError, "part 0: with axis, a part is"),
    (lambda: gpureduce.sum_parts([np.ones(())], axis=0), ValueError, "part 0 is a number"),
    (lambda: gpureduce.sum_parts([np.ones(3)], axis=1), np.exceptions.AxisError, "axis 1"),
    (lambda: gpureduce.sum_parts([np.ones(3)], axis=0, parts_axis=1), np.exceptions.AxisError, "1"),
    (lambda: gpureduce.sum_parts([np.ones(3)], axis=0, stream=[1]), ValueError, "leave stream out"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_errors_say_what_is_wrong_and_the_next_call_works(four_devices, call, kind, text):
    with pytest.raises(kind, match=text):
        call()
    parts = spread([np.ones(10)] * 4)
    assert gpureduce.sum_parts(parts, device="emulator").value == 40


def test_an_error_on_one_device_names_it_and_leaves_all_usable(four_devices):
    """Not enough memory for one part: a cast takes scratch memory."""
    parts = spread(
        [np.ones(10, np.float32)] * 2 + [np.ones(2**20, np.float32)] + [np.ones(10, np.float32)]
    )
    with (
        gpureduce.emulator.memory_limit(2**18),
        pytest.raises(MemoryError, match="part 2, on emulator:2: cudaErrorMemoryAllocation"),
    ):
        gpureduce.sum_parts(parts, "global_tree", device="emulator")
    for strategy in ("global_tree", "exact", "last_block"):
        assert gpureduce.sum_parts(parts, strategy, device="emulator").value == 2**20 + 30


@pytest.mark.parametrize("strategy", ["exact", "last_block", "sequential"])
def test_an_interrupted_call_leaves_all_usable(four_devices, strategy):
    parts = spread([np.ones(2**22, np.float32)] * 4)
    for seconds in (0.005, 0.02, 0.05):
        broken_off_after(seconds, lambda: gpureduce.sum_parts(parts, strategy, device="emulator"))
        small = spread([np.ones(1000, np.float32)] * 4)
        assert gpureduce.sum_parts(small, strategy, device="emulator").value == 4000


def test_many_threads(four_devices):
    parts = [array_of("float32", 2000, i) for i in range(4)]
    whole = gpureduce.sum(np.concatenate(parts)).value

    def work(seed):
        order = np.random.default_rng(seed).permutation(4)
        some = [OnDevice(parts[i], int(k)) for k, i in enumerate(order)]
        return gpureduce.sum_parts(some, device="emulator").value

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        assert all(same_bits(value, whole) for value in pool.map(work, range(320)))


def test_calls_leave_the_current_device_as_it_was(four_devices):
    """Without elements, __cuda_array_interface__ names no device: the current one is taken."""
    nothing = ByInterface(np.empty((3, 0), np.float32), data=(0, False), stream=1)
    ones, module = np.ones(100, np.float32), devices.emulator()

    for call in (
        lambda: gpureduce.sum_parts([OnDevice(ones, i) for i in range(4)], device="emulator"),
        lambda: gpureduce.sum(ones, "fast", device="emulator:3"),
        lambda: gpureduce.sum(OnDevice(ones, 3), device="emulator"),
        lambda: gpureduce.sum(OnDevice(ones.reshape(10, 10), 3), axis=0, device="emulator"),
        lambda: gpureduce.sum(ones.reshape(10, 10), "fast", axis=0, device="emulator:3"),
        lambda: gpureduce.benchmark(["tiles"], [1000], device="emulator:3", repeats=1),
        gpureduce.free_scratch,
        lambda: module.allocate(10, 3, 1).read(),
    ):
        call()
        (row,) = module.begin_parts((nothing,), None, -1, None, True).end()[-1]
        assert row[0] == 0


def test_a_row_of_strategies_is_a_strategy():
    exact = next(row for row in gpureduce.strategies() if row.name == "exact")
    parts = [np.array([[1e16], [1.0]]), np.array([[1.0], [-1e16]])]
    for axis in (None, 0, (0, 1)):
        assert gpureduce.sum_parts(parts, exact, axis=axis).value == 2
