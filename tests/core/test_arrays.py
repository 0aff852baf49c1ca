"""Anything NumPy can view: shapes, strides, byte orders, dtypes, special values, sizes."""

from __future__ import annotations

import datetime
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpureduce
from cases import DTYPES, array_of, check, exact, magnitude
from gpureduce import _host
from gpureduce.core import arrays
from gpureduce.core.arrays import as_array
from segment_calls import assert_same

# One of each kind: a tree, a grid-stride kernel, packs with loose ends, the CPU, exact sums.
SOME = ["sequential", "cascade", "vector_load", "cpu", "exact"]


@pytest.fixture(params=[*SOME, pytest.param("cuda vector_load", marks=pytest.mark.gpu)])
def add(request):
    """A sum by one of these strategies, on the emulator, the CPU or the card."""
    device, _, strategy = request.param.rpartition(" ")
    device = device or (None if strategy in ("cpu", "exact") else "emulator")

    def run(array, **more):
        return gpureduce.sum(array, strategy, device=device, **more)

    return run


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(add, dtype):
    flat = array_of(dtype, 5 * 7 * 12)
    cube = flat.reshape(5, 7, 12)
    raw = np.empty(flat.nbytes + 1, np.uint8)[1:].view(flat.dtype)
    raw[:] = flat
    assert flat.itemsize == 1 or not raw.flags.aligned
    frozen = flat.copy()
    frozen.flags.writeable = False
    views = [cube, cube.T, cube[::2], cube[:, ::-1], cube[..., 3], cube[1:, 2:, 5:-1], frozen, raw]
    views += [np.asfortranarray(cube), np.broadcast_to(flat[:3], (4, 3)), flat[::-1], cube[:, :0]]
    for view in views:
        check(add(view), view)


def test_memory_mapped(add, tmp_path):
    array = array_of("float64", 10_001)
    np.save(tmp_path / "a.npy", array)
    check(add(np.load(tmp_path / "a.npy", mmap_mode="r")), array)


def test_lists_scalars_and_0d(add):
    assert int(add([[1, 2], [3, 4]]).value) == 10
    assert float(add(2.5).value) == 2.5
    assert float(add(np.array(7.0)).value) == 7.0
    assert float(add(np.float32(3)).value) == 3.0


def test_0d_that_must_be_converted(add):
    """NumPy before 2.3 hands out an unwritten buffer for these if it is not asked with care."""
    for i in range(300):
        assert int(add(np.array(i, ">i2")).value) == i
        assert float(add(np.array(i, "i4"), dtype="float64").value) == i


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty(add, dtype):
    array = array_of(dtype, 0)
    result = add(array)
    assert float(result.value) == 0 and not np.signbit(np.float64(result.value))
    assert result.value.dtype == np.sum(array).dtype
    assert result.timing.launches == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_special_values(add, dtype):
    inf, nan = math.inf, math.nan
    rows = [
        [-0.0],
        [-0.0] * 40,
        [inf, 1],
        [inf, -inf],
        [-inf] * 40,
        [nan, 1],
        [0.0, -0.0],
        [1, nan],
    ]
    for row in rows:
        array = np.array(row, np.float64).astype(dtype)
        with np.errstate(invalid="ignore"):
            expected = np.float64(np.sum(array))
        value = np.float64(add(array).value)
        assert np.array_equal(value, expected, equal_nan=True), row
        assert np.signbit(value) == np.signbit(expected) or np.isnan(value), row


def test_half_is_added_in_float(add):
    array = np.full(4096, 1.0, np.float16)
    assert float(add(array).value) == 4096  # in float16 it would stick at 2048
    array = np.full(4096, 1.0, ml_dtypes.bfloat16)
    assert float(add(array).value) == 4096  # in bfloat16 at 256
    assert np.isinf(add(np.full(2, 60000, np.float16)).value)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("strategy", ["auto", "fast", "cpu", "numpy"])
def test_complex(strategy, dtype):
    rng = np.random.default_rng(3)
    shape = (300, 1001)  # several tasks of the CPU
    array = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    for view in (array, array[::2, 1:], array.T, array.astype(array.dtype.newbyteorder(">"))):
        result = gpureduce.sum(view, strategy)
        assert result.value.dtype == dtype
        for got, part in ((result.value.real, view.real), (result.value.imag, view.imag)):
            bound = gpureduce.error_bound(result, magnitude(part))
            assert abs(float(got) - exact(part)) <= bound


def test_complex_infinities_stay_where_they_are():
    value = gpureduce.sum(np.array([complex(math.inf, 1), complex(2, 3)])).value
    assert value == complex(math.inf, 4)


PACKED = [
    *((dtype, None) for dtype in ("i1", ">i4", "u8", "?", "f2", "f4", ">f4", "f8", "c8", ">c16")),
    ("i4", "i4"),
    ("i1", "f4"),
    ("f4", "f8"),
    ("f4", "c8"),
]


@pytest.mark.parametrize("timing", [True, False])
@pytest.mark.parametrize(
    ("strategy", "dtype", "target"),
    [
        (strategy, *types)
        for strategy in ("sequential", "fast", "cpu", "exact", "auto", "numpy")
        for types in PACKED
        if strategy != "sequential" or "c" not in str(types)  # which adds no complex numbers
    ],
)
def test_packed_pieces_are_added_up(monkeypatch, strategy, dtype, target, timing):
    monkeypatch.setattr(arrays, "PACK_ELEMENTS", 100)
    numbers = np.random.default_rng(5).integers(-20, 20, (40, 30))
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * numbers[::-1, ::-1]
    array = numbers.astype(dtype)[:, ::2]  # of which all sums are whole numbers, and exact
    device = "emulator" if strategy in ("sequential", "fast") else None
    value = gpureduce.sum(array, strategy, dtype=target, device=device, timing=timing).value
    assert value == array.sum(dtype=target or (None if dtype != "f2" else "f4"))


@pytest.mark.parametrize("strategy", ["cpu", "exact", "auto"])
@pytest.mark.parametrize("dtype", ["?", "i1", ">u2", "i8", "f2", ">f2", "f4", ">f8", "c8", ">c16"])
def test_arrays_with_gaps_are_read_in_place(strategy, dtype):
    numbers = np.random.default_rng(6).integers(-20, 20, (300, 7, 40)) % 100
    whole = numbers.astype(dtype)
    odd = np.zeros(whole.nbytes + 1, np.uint8)[1:].view(dtype).reshape(whole.shape)
    odd[...] = whole
    views = [
        whole[::2],
        whole[:, 1:-1, ::-3],
        whole[..., :9].T,
        odd,
        np.broadcast_to(whole[3:4], whole.shape),
    ]
    for view in views:
        found = gpureduce.sum(view, strategy)
        assert found.value == gpureduce.sum(np.array(view, order="C"), strategy).value
        assert found.value.dtype == gpureduce.sum(whole, strategy).value.dtype
        assert found.timing.pieces == 1
        if whole.dtype.kind in "fc":
            total = gpureduce.Accumulator(whole.dtype).add(view)
            assert total.value() == gpureduce.sum(view, "exact").value
            assert total.count == view.size
    assert gpureduce.sum(whole[::2], strategy, dtype="c16").value == whole[::2].sum(dtype="c16")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_array(data):
    dtype = data.draw(
        st.one_of(
            hnp.integer_dtypes(endianness="?"),
            hnp.unsigned_integer_dtypes(endianness="?"),
            hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
            hnp.boolean_dtypes(),
        )
    )
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9))
    limits = {"allow_nan": False, "allow_infinity": False, "min_value": -100, "max_value": 100}
    elements = hnp.from_dtype(dtype, **limits) if dtype.kind == "f" else None
    array = data.draw(hnp.arrays(dtype, shape, elements=elements))
    if array.ndim:
        array = np.asarray(array[data.draw(hnp.basic_indices(array.shape))])
    block = data.draw(st.sampled_from([32, 96, 256]))
    strategy = data.draw(st.sampled_from(SOME))
    launch = {"block": block, "device": "emulator"}
    launch = {} if strategy in ("cpu", "exact") else launch
    check(gpureduce.sum(array, strategy, **launch), array)


class Odd(np.ndarray):
    """A subclass that means something else by what arrays are asked."""

    @property
    def size(self):
        return 0

    def reshape(self, *shape, **how):
        return np.ones(3)

    def view(self, *_):
        return np.ones(3)


def test_subclasses_are_added_up_as_the_arrays_that_they_are():
    odd = np.ndarray.view(np.arange(1000.0), Odd)
    for strategy in ("auto", "cpu", "sequential"):
        for array in (odd, odd[::3]):
            expected = float(np.asarray(array).sum())
            assert float(gpureduce.sum(array, strategy).value) == pytest.approx(expected)


SMALL = np.frombuffer(b"\xff\0\2\1\0" * 24, bool)
LARGE = np.frombuffer(b"\x80\0\1\0" * 100_000, bool)
LATE = np.zeros(1 << 20, np.uint8)
LATE[-1] = 7
ARRAYS = {
    "small": SMALL,
    "large": LARGE,
    "one byte": LATE.view(bool),
    "a matrix": SMALL.reshape(12, 10),
    "strided": SMALL.reshape(12, 10)[::2, ::-3],
    "a column": LARGE.reshape(400, 1000).T,
    "repeated": np.broadcast_to(SMALL, (3, 120)),
    "no dimension": SMALL[2],
    "none": SMALL[:0],
    "read-only": np.frombuffer(b"\3", bool),
}
HOWS = [{}, {"strategy": "numpy"}, {"strategy": "cpu"}, {"dtype": "float64"}, {"dtype": "uint8"},
        {"device": "emulator"}]  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("how", HOWS, ids=str)
def test_sums(name, how):
    array = ARRAYS[name]
    ones = np.asarray(array).view(np.uint8) != 0
    dtype = how.get("dtype")
    wanted = np.sum(ones, dtype=dtype)
    assert gpureduce.sum(array, **how) == gpureduce.sum(array, timing=False, **how) == wanted
    for axis in range(np.ndim(array)):
        found = gpureduce.sum(array, axis=axis, **how).value
        np.testing.assert_array_equal(found, np.sum(ones, axis=axis, dtype=dtype))


def test_other_sums():
    ids = np.arange(len(SMALL)) % 7
    wanted = np.bincount(ids, SMALL.view(np.uint8) != 0)
    for how in ({}, {"device": "emulator"}, {"strategy": "numpy"}):
        assert (gpureduce.segment_sum(SMALL, ids, **how).value == wanted).all()
    assert gpureduce.from_digits(gpureduce.digits(SMALL)) == 72
    assert gpureduce.Accumulator().add(SMALL).value() == 72
    assert gpureduce.sum(SMALL, "sequential", device="emulator") == 72
    assert gpureduce.sum_parts([SMALL, SMALL]) == 144
    assert gpureduce.sum(list(SMALL)) == 72


def test_the_array_is_not_changed_and_not_copied_in_vain():
    assert as_array(np.broadcast_to(SMALL, (2**40, 120))).strides == (0, 1)
    before = SMALL.tobytes()
    gpureduce.sum(SMALL)
    assert SMALL.tobytes() == before
    for n in (0, 1, 2**17, 2**17 + 1, 2**20):
        right = np.ones(n, bool)
        assert as_array(right) is right and _host.are_bools(right)
        for at in {0, n // 2, n - 1} if n else ():
            wrong = right.copy()
            wrong.view(np.uint8)[at] = 3
            assert not _host.are_bools(wrong)


PLACES = [{}, {"strategy": "numpy"}, {"device": "emulator"}]


def _array(dtype, share_of_nat):
    rng = np.random.default_rng(7)
    array = rng.integers(-1000, 1000, (7, 11)).astype(dtype)
    array[rng.random(array.shape) < share_of_nat] = "NaT"
    return array, rng.random(array.shape) < 0.8


@pytest.mark.parametrize("dtype", ["m8[s]", "m8[ns]", ">m8[D]", "m8"])
@pytest.mark.parametrize("share_of_nat", [0, 0.1])
def test_sums_are_numpys(dtype, share_of_nat):
    array, mask = _array(dtype, share_of_nat)
    native = array.astype(array.dtype.newbyteorder("="))
    for how in (*PLACES, {"strategy": "sequential"}, {"device": ["cpu", "emulator"]}):
        assert_same(gpureduce.sum(array, **how).value, native.sum())
        assert_same(gpureduce.sum(array[::2, ::-3], **how).value, native[::2, ::-3].sum())
    for how in PLACES:
        for axis in (0, 1, (0, 1), None, ()):
            for more in ({"keepdims": True}, {"where": mask}, {"initial": native[0, 0]},
                         {"initial": 5}):  # fmt: skip
                wanted = np.sum(native, axis=axis, **more)
                assert_same(gpureduce.sum(array, axis=axis, **more, **how).value, wanted)
                out = np.zeros(np.shape(wanted), native.dtype)
                assert gpureduce.sum(array, axis=axis, out=out, **more, **how).value is out
                assert_same(out, wanted)


@pytest.mark.parametrize("how", PLACES, ids=str)
@pytest.mark.parametrize("share_of_nat", [0, 0.1])
def test_sums_by_segment_are_numpys(how, share_of_nat):
    array, _ = _array("m8[us]", share_of_nat)
    ids = np.array([3, 0, 1, 3, 4, 0, 1])
    wanted = np.zeros((6, 11), array.dtype)
    np.add.at(wanted, ids, array)
    assert_same(gpureduce.segment_sum(array, ids, num_segments=6, **how).value, wanted)
    assert_same(gpureduce.segment_sum(array, ids, **how).value, wanted[:5])
    out = np.ones_like(wanted)
    assert gpureduce.segment_sum(array, ids, out=out, **how).value is out
    assert_same(out, wanted)
    by_offsets = np.stack([array[:2].sum(0), array[2:2].sum(0), array[2:].sum(0)])
    assert_same(gpureduce.segment_sum(array, offsets=[0, 2, 2, 7], **how).value, by_offsets)


def test_initial_and_timing():
    array = np.array([1, 2], "m8[s]")
    for initial in (np.timedelta64(3, "s"), np.timedelta64(3000, "ms"), datetime.timedelta(0, 3)):
        assert gpureduce.sum(array, axis=0, initial=initial) == np.timedelta64(6, "s")
        sums = gpureduce.segment_sum(array, [0, 0], initial=initial)
        assert sums.tolist() == [datetime.timedelta(0, 6)]
    assert np.isnat(gpureduce.sum(array, axis=0, initial=np.timedelta64("NaT")).value)
    result = gpureduce.sum(array)
    assert (result.timing.dtype, result.timing.n) == ("timedelta64[s]", 2)
    assert gpureduce.error_bound(result, 3) == 0
    assert gpureduce.sum(array, timing=False).timing is None
    assert gpureduce.sum(array, dtype="m8[s]") == np.timedelta64(3, "s")
    assert gpureduce.sum([np.timedelta64(1, "h"), np.timedelta64("NaT")]).value is not None
    assert np.isnat(gpureduce.sum([np.timedelta64(1, "h"), np.timedelta64("NaT")]).value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "f8"}, r"dtype must be that of the elements, timedelta64\[s\]"),
        ({"initial": np.timedelta64(1500, "ms")}, r"initial must be a timedelta64 of whole time"),
        ({"initial": np.timedelta64(1, "Y")}, "initial must be a timedelta64 of whole"),
        ({"initial": 2.5}, "initial must be a timedelta64"),
        ({"initial": "x"}, "initial must be a timedelta64"),
        ({"out": np.zeros((), np.int64)}, r"out must be a NumPy array of dtype timedelta64\[s\]"),
    ],
)
def test_errors(options, words):
    array = np.array([1, 2], "m8[s]")
    with pytest.raises(TypeError, match=words):
        gpureduce.sum(array, axis=0, **options)
    with pytest.raises(TypeError, match=words):
        gpureduce.segment_sum(array, [0, 0], **options)
    for call in (gpureduce.digits, gpureduce.Accumulator().add):
        with pytest.raises(TypeError, match="cannot be summed"):
            call(array)
