"""gpureduce.digits and segment_digits: sums that any integer all-reduce merges, wherever they lie.

Those of processors are the digits of an accumulator for each sum, and those of kernels the same.
"""

from __future__ import annotations

import os

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import pytest
from hypothesis import strategies as st

import gpureduce
from axis_cases import random_array
from gpureduce import Accumulator, _host
from gpureduce.core import device_results, dtypes
from producers import ByInterface, on_device
from segment_calls import in_order

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
INTEGERS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
EXAMPLES = int(os.environ.get("GPUREDUCE_SEGMENT_EXAMPLES", "20"))
seeds = st.integers(0, 2**32 - 1)


class Host:
    device = None
    put = staticmethod(lambda array: array)
    get = staticmethod(lambda found: found)


class Emulated:
    """Arrays that say that they lie on the emulated card."""

    device = "emulator"
    put = staticmethod(on_device)

    @staticmethod
    def get(found):
        assert isinstance(found, gpureduce.DeviceArray)
        return found.to_numpy()


class Torch:
    """Tensors on a card. Those of 16- and 32-bit unsigned integers have few functions."""

    device = None

    @staticmethod
    def put(array):
        torch = pytest.importorskip("torch")
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.astype(np.float32)).cuda().to(torch.bfloat16)
        return torch.from_numpy(array.copy()).cuda()

    @staticmethod
    def get(found):
        torch = pytest.importorskip("torch")
        assert isinstance(found, torch.Tensor) and found.is_cuda and found.dtype == torch.int64
        return found.cpu().numpy()


class Cupy:
    device = None

    @staticmethod
    def put(array):
        if array.dtype.name == "bfloat16":
            pytest.skip("CuPy has no bfloat16")
        return pytest.importorskip("cupy").asarray(array)

    @staticmethod
    def get(found):
        cupy = pytest.importorskip("cupy")
        assert isinstance(found, cupy.ndarray) and found.dtype == np.int64
        return cupy.asnumpy(found)


PLACES = [Emulated, *(pytest.param(place, marks=pytest.mark.gpu) for place in (Torch, Cupy))]
on_cards = pytest.mark.parametrize("card", PLACES)
anywhere = pytest.mark.parametrize("card", [Host, *PLACES])


def along_axes(card, array, axis):
    return card.get(gpureduce.digits(card.put(array), axis, device=card.device))


def by_segment(card, values, ids=None, *, offsets=None, count=None):
    numbers = (
        {"offsets": card.put(offsets)}
        if ids is None
        else {"segment_ids": card.put(ids), "num_segments": count}
    )
    return card.get(gpureduce.segment_digits(card.put(values), **numbers, device=card.device))


def check_segments(card, values, ids, count):
    want = gpureduce.segment_digits(values, ids, num_segments=count)
    found = by_segment(card, values, ids, count=count)
    assert found.dtype == np.int64 and np.array_equal(found, want)
    ordered, offsets = in_order(values, ids, count)
    assert np.array_equal(by_segment(card, ordered, offsets=offsets), want)


def hard_floats(dtype, n, seed=3):
    """Any bits at all, and finite ones."""
    size = np.dtype(dtype).itemsize
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2 ** (8 * size) - 1, n, f"u{size}", endpoint=True).view(dtype)
    with np.errstate(invalid="ignore"):  # of signalling nans
        finite = np.isfinite(bits.astype(np.float64))
    return bits, np.where(finite, bits, dtype.type(0))


def by_accumulators(values, ids, count):
    """The digits of each segment's elements, by an accumulator for each sum."""
    kind = np.float64 if values.dtype.kind in "biu" else values.dtype
    columns = values.reshape(len(values), -1)
    sums = [
        [Accumulator(kind).add(columns[ids == k, i]).to_digits() for i in range(columns.shape[1])]
        for k in range(count)
    ]
    each = 146 if values.dtype.kind == "c" else 75
    return np.array(sums, np.int64).reshape(count, *values.shape[1:], each)


@pytest.mark.parametrize("shape", [(600,), (200, 3)])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "int64", "uint64"])
def test_digits_by_segment_are_those_of_accumulators(dtype, shape):
    rng, count = np.random.default_rng(2), 7
    values = random_array(rng, dtype, shape)
    ids = rng.integers(0, count - 1, len(values))  # the last one has no elements
    words = gpureduce.segment_digits(values, ids, num_segments=count)
    assert words.dtype == np.int64
    assert np.array_equal(words, by_accumulators(values, ids, count))
    ordered, offsets = in_order(values, ids, count)
    assert np.array_equal(gpureduce.segment_digits(ordered, offsets=offsets), words)
    swapped = values.astype(values.dtype.newbyteorder())[::-1]
    assert np.array_equal(gpureduce.segment_digits(swapped, ids[::-1], num_segments=count), words)


def wide(n, seed=0):
    """Numbers of all exponents, subnormal ones among them."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n) * 2.0 ** rng.integers(-1074, 1020, n)


@pytest.mark.parametrize("columns", [1, 3])
def test_numbers_of_any_exponents(columns):
    """They fit no 128-bit integers; nor do a few of them beside many that do; or are not finite."""
    n, rng = 3000 * columns, np.random.default_rng(4)
    for few in ([], [1e300, 5e-324, -1e-300], [np.inf, np.nan, -np.inf], [1e308, 1e308, 1e308]):
        values = np.append(rng.standard_normal(n - len(few)), few) if few else wide(n)
        for some in (values, np.concatenate([values, wide(n)])):
            rows = some.reshape(-1, columns)
            ids = rng.integers(0, 7, len(rows))
            words = gpureduce.segment_digits(rows, ids, num_segments=7)
            assert np.array_equal(words, by_accumulators(rows, ids, 7))
            right = gpureduce.segment_sum(rows, ids, num_segments=7).value
            assert gpureduce.from_digits(words).tobytes() == right.tobytes()


def test_more_segments_than_one_pass_takes():
    """The digits of all segments would take more memory than the passes may."""
    count = 140_000
    values, ids = wide(3 * count), np.random.default_rng(5).integers(0, count, 3 * count)
    words = gpureduce.segment_digits(values, ids, num_segments=count)
    right = gpureduce.segment_sum(values, ids, num_segments=count).value
    assert gpureduce.from_digits(words).tobytes() == right.tobytes()
    lengths = np.bincount(ids, minlength=count)
    assert np.array_equal(words[:, 2], lengths) and not words[:, 3].any()


@on_cards
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_segments_have_the_processors_digits(card, dtype):
    rng = np.random.default_rng(1)
    for n, count, columns in ((1, 1, None), (3000, 7, None), (3000, 5000, None), (900, 40, 3)):
        values = random_array(rng, dtype, n if columns is None else (n, columns))
        check_segments(card, values, rng.integers(0, max(count - 1, 1), n), count)


@on_cards
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_axes_have_the_processors_digits(card, dtype):
    rng = np.random.default_rng(2)
    for shape in ((1,), (300, 7), (7, 300), (4, 30, 5), (3, 20_000)):
        array = random_array(rng, dtype, shape)
        for axis in (None, 0, len(shape) - 1, (0, len(shape) - 1) if len(shape) > 1 else ()):
            found = along_axes(card, array, axis)
            assert found.dtype == np.int64
            assert np.array_equal(found, gpureduce.digits(array, axis)), (shape, axis)


@on_cards
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_any_bits(card, dtype):
    """Numbers of all exponents, infinities and nan."""
    for some in hard_floats(np.dtype(dtype), 4000):
        ids = np.random.default_rng(4).integers(0, 50, some.size)
        check_segments(card, some, ids, 50)
        check_segments(card, some.reshape(-1, 4), ids[: some.size // 4], 50)
        for shape, axis in (((40, 100), 0), ((40, 100), 1), ((4000,), None), ((2, 2000), 1)):
            array = some.reshape(shape)
            assert np.array_equal(along_axes(card, array, axis), gpureduce.digits(array, axis))


@on_cards
def test_the_largest_integers(card):
    """2^32 times the largest number would leave 64 bits; their sums do not."""
    n = 70_000
    for dtype in ("int32", "uint32"):
        limits = np.iinfo(dtype)
        for number in (limits.min, limits.max):
            values = np.full(n, number, dtype)
            check_segments(card, values, np.arange(n) % 3, 3)
            assert np.array_equal(along_axes(card, values, 0), gpureduce.digits(values, 0))


@on_cards
def test_sorted_and_frequent_ids(card):
    """Sorted ids count the elements of large arrays; beyond 2^20, frequent ids are sampled."""
    rng = np.random.default_rng(5)
    for n in (70_000, (1 << 20) + 5):
        values = rng.standard_normal(n).astype(np.float32)
        ids = np.where(rng.random(n) < 0.5, 3, rng.integers(0, 20_000, n))
        check_segments(card, values, ids, 20_000)
        check_segments(card, values, np.sort(ids), 20_000)


@on_cards
def test_a_word_that_overflows_is_added_up_again(card):
    n = 1 << 12
    values = np.full(n, 2.0**29 - 2.0**5, np.float32)
    values[0] = 2.0**-23
    ids = np.zeros(n, np.int64)
    ids[-1] = 1
    for count in (3, 4000):
        check_segments(card, values, ids, count)


@on_cards
def test_long_sums_are_shared_among_warps(card):
    rng = np.random.default_rng(6)
    for dtype in ("float32", "float64", "complex64"):
        array = random_array(rng, dtype, (2, 200_000))
        array[0, 7], array[1, 9] = 1e30, -1e-30
        assert np.array_equal(along_axes(card, array, 1), gpureduce.digits(array, 1))
    array[0, 8], array[1, 10] = np.inf, np.nan
    assert np.array_equal(along_axes(card, array, 1), gpureduce.digits(array, 1))


@anywhere
@pytest.mark.parametrize("dtype", [*FLOATS, "bool", "int8", "int32"])
def test_digits_of_shares_merge_to_the_bits_of_one_sum(card, dtype):
    """Each of several workers has some elements of every segment; one has none."""
    rng = np.random.default_rng(7)
    values = random_array(rng, dtype, 9000)
    ids, of = rng.integers(0, 30, 9000), rng.integers(0, 4, 9000)
    total = sum(by_segment(card, values[of == i], ids[of == i], count=30) for i in range(5))
    wanted = "float64" if values.dtype.kind in "biu" else None
    want = gpureduce.segment_sum(values, ids, num_segments=30, dtype=wanted).value
    found = gpureduce.from_digits(total)
    assert found.dtype == want.dtype and found.tobytes() == want.tobytes()
    rows = values.reshape(90, 100)
    total = along_axes(card, rows[:40], 0) + along_axes(card, rows[40:], 0)
    want = gpureduce.sum(rows, axis=0, dtype=wanted).value
    assert gpureduce.from_digits(total).tobytes() == want.tobytes()


def test_strides_of_no_digits_do_not_matter(monkeypatch):
    """An empty array of CuPy has other strides than a full array."""

    def maker(shape, dtype, device):
        strides = (0,) * len(shape)
        return lambda stream: ByInterface(np.empty(shape, dtype), strides=strides, data=(1, False))

    library = device_results.Library(maker, None)
    monkeypatch.setattr(device_results, "library_of", lambda like, module: library)
    none = Emulated.put(np.zeros((0, 3)))
    assert gpureduce.digits(none, 1, device="emulator").array.shape == (0, 75)
    offsets = Emulated.put(np.zeros(1, np.int64))
    values = Emulated.put(np.ones(0))
    found = gpureduce.segment_digits(values, offsets=offsets, device="emulator")
    assert found.array.shape == (0, 75)


@anywhere
def test_nothing_to_add(card):
    ids = np.zeros(0, np.int64)
    for shape, each in (((0,), (4, 75)), ((0, 2), (4, 2, 75))):
        found = by_segment(card, np.ones(shape), ids, count=4)
        assert found.shape == each and not gpureduce.from_digits(found).any()
    assert by_segment(card, np.ones((3, 0)), np.zeros(3, int), count=4).shape == (4, 0, 75)
    assert by_segment(card, np.ones(0), offsets=np.zeros(1, np.int64)).shape == (0, 75)
    for shape, axis in (((0, 3), 0), ((0, 3), 1), ((3, 0), 1)):
        found = along_axes(card, np.ones(shape), axis)
        assert np.array_equal(found, gpureduce.digits(np.ones(shape), axis))


@anywhere
def test_errors(card):
    ones, ids = np.ones(3), np.array([0, 1, 2])
    with pytest.raises(ValueError, match=r"segment_ids\[2\] is 2"):
        by_segment(card, ones, ids, count=2)
    with pytest.raises(ValueError, match=r"offsets\[1\] is 3 and offsets\[2\] is 2"):
        by_segment(card, ones, offsets=np.array([0, 3, 2, 3]))
    with pytest.raises(ValueError, match=r"rows, 3, (but offsets\[1\] is 2|not from 0 to 2)"):
        by_segment(card, ones, offsets=np.array([0, 2]))
    with pytest.raises(TypeError, match="with segment_ids needs num_segments"):
        by_segment(card, ones, ids)
    for dtype in (np.int64, np.uint64) if card is not Host else ():
        with pytest.raises(TypeError, match="64-bit integers exactly"):
            by_segment(card, np.ones(3, dtype), ids, count=3)
        with pytest.raises(TypeError, match="64-bit integers exactly"):
            along_axes(card, np.ones(3, dtype), 0)
    with pytest.raises(ValueError, match="axis 1 is out of bounds"):
        along_axes(card, ones, 1)
    assert gpureduce.from_digits(by_segment(card, ones, ids, count=3)).tolist() == [1, 1, 1]


def test_arrays_in_host_memory_stay_there():
    with pytest.raises(ValueError, match="the array is in host memory, where its digits are made"):
        gpureduce.digits(np.ones(3), device="emulator")
    with pytest.raises(ValueError, match="the array is in host memory, where its digits are made"):
        gpureduce.segment_digits(np.ones(3), [0, 0, 0], num_segments=1, device="emulator")
    with pytest.raises(ValueError, match="stream is for arrays on a GPU"):
        gpureduce.digits(np.ones(3), stream=1)
    with pytest.raises(TypeError, match="segment_ids is on a GPU, and values"):
        gpureduce.segment_digits(
            np.ones(3), Emulated.put(np.zeros(3, int)), num_segments=1, device="emulator"
        )
    assert gpureduce.from_digits(gpureduce.digits(np.ones(3), device="cpu")) == 3


def test_sums_of_more_elements_than_a_launch_reads():
    """2^23 on the emulator. A longer sum takes one launch, and so do the parts of a complex one."""
    half = (1 << 22) + 1
    for array, axis in (
        (np.broadcast_to(np.array([[1.5, -2.5e-9]], np.float32), (half, 2)), None),
        (np.broadcast_to(np.complex64(2j - 1e-9), half), 0),
    ):
        found = along_axes(Emulated, array, axis)
        assert np.array_equal(found, gpureduce.digits(array, axis))


@pytest.mark.parametrize("order", ["forward", "reverse", "random", "lockstep"])
def test_no_order_of_threads_shows(order):
    rng = np.random.default_rng(8)
    values = (rng.standard_normal(3000) * 2.0 ** rng.integers(-30, 30, 3000)).astype(np.float32)
    ids = rng.integers(0, 30, 3000)
    with gpureduce.emulator.schedule(order, seed=3):
        check_segments(Emulated, values, ids, 30)
        found = along_axes(Emulated, values.reshape(3, 1000), 1)
    assert np.array_equal(found, gpureduce.digits(values.reshape(3, 1000), 1))


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda f: f([1.0]), TypeError, "either segment_ids or offsets, not neither"),
        (
            lambda f: f([1.0, 2], [0], num_segments=2),
            ValueError,
            "values has 2 rows, but segment_ids 1 ids",
        ),
        (lambda f: f([1.0], [0], num_segments=-1), ValueError, "num_segments"),
        (lambda f: f([1.0], [0], num_segments=2**60), MemoryError, "num_segments="),
        (lambda f: f(np.ones((1, 1, 1)), [0], num_segments=1), ValueError, "1 or 2 dimensions"),
        (lambda f: f(["a"], [0], num_segments=1), TypeError, "cannot be summed"),
        (lambda f: f([1.0], [0.0], num_segments=1), TypeError, "must be integers"),
    ],
)
def test_errors_of_host_arrays(call, kind, text):
    with pytest.raises(kind, match=text):
        call(gpureduce.segment_digits)
    assert gpureduce.from_digits(gpureduce.segment_digits([1.0], [0], num_segments=1)) == [1]


def test_c_checks_the_array_of_digits():
    ids = np.zeros(10, np.int64)
    real, pair = dtypes.line_of(np.dtype(np.float64)), dtypes.line_of(np.dtype(np.complex128))
    good = np.zeros((2, 75), np.int64)
    for words, wanted in (
        (good[:, :74].copy(), real),
        (good.astype(np.float64), real),
        (np.zeros((75, 2), np.int64).T, real),
        (np.zeros((2, 1, 75), np.int64), real),
        (np.zeros((2, 146), np.int64), pair),
    ):
        with pytest.raises(ValueError, match="changed its shape"):
            _host.sum_segments(np.ones(10), ids, None, words, real, wanted, ((), ()))
    _host.sum_segments(np.ones(10), ids, None, good, real, real, ((), ()))
    assert good[0, 0] == good[1, 0] == 2**32 + 1
