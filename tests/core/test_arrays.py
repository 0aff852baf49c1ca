"""Anything NumPy can view: shapes, strides, byte orders, dtypes, special values, sizes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpureduce
from cases import DTYPES, array_of, check, exact, magnitude
from gpureduce.core import arrays

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
