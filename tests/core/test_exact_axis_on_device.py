"""Exact sums along axes by kernels, and by exact_levels alone: what the other kernels leave."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce
from axis_cases import laid_out, random_array, random_axis
from cases import DEVICES, numpy_dtype
from exact_cases import FLOATS, FORMATS, hard
from producers import ByDLPack, ByInterface, on_device

EXAMPLES = int(os.environ.get("GPUREDUCE_AXIS_EXAMPLES", "20"))
seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.integers(0, 9), min_size=0, max_size=5).map(tuple)


def add(array, strategy="exact", **how):
    return gpureduce.sum(array, strategy, device="emulator", **how)


@given(seed=seeds, shape=shapes, dtype=st.sampled_from([*FLOATS, "complex64", "complex128"]))
@settings(max_examples=4 * EXAMPLES, deadline=None)
def test_exact_sums_have_the_bits_of_the_processors(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    array = laid_out(rng, random_array(rng, dtype, shape))
    if rng.random() < 0.5:
        with np.errstate(all="ignore"):
            array = array * array.dtype.type(2.0 ** rng.integers(-9, 9)) ** 3
    how = {"axis": random_axis(rng, array.ndim), "keepdims": bool(rng.random() < 0.3)}
    if how["axis"] is None and not how["keepdims"]:
        how["axis"] = tuple(range(array.ndim))
    if rng.random() < 0.3:
        how["where"] = rng.random(array.shape) < 0.6
    if rng.random() < 0.3:
        how["initial"] = float(rng.standard_normal())
    want = gpureduce.sum(array, "exact", **how).value
    for strategy in ("exact", "exact_levels", "auto"):
        found = add(array, strategy, **how).value
        assert np.shape(found) == np.shape(want)
        assert np.asarray(found).tobytes() == np.asarray(want).tobytes(), strategy


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("axes", [(3,), (0, 3), (1, 3), (0, 2), (0, 2, 3), (0, 1, 2, 3)])
def test_pieces_and_gaps_that_are_not_proven(dtype, axes):
    array = hard(dtype, (4 * 6 * 40, 128), 3).reshape(4, 6, 40, 128)
    for view in (array, array[..., 1:], array[..., ::2], array[..., ::-2]):
        found = add(on_device(view), axis=axes, result="device").value.to_numpy()
        assert found.tobytes() == gpureduce.sum(view, "exact", axis=axes).value.tobytes()


# --- exact_levels --------------------------------------------------------------------------------

# Lanes per sum grow with the terms; from 16,385 terms on, and for few long sums, warps share one.
SHAPES = [(700, 3), (2, 513), (1, 1030), (3, 4097), (1, 16384), (1, 16385), (2, 40_000), (300, 600)]


def added(array, device="emulator", **how):
    return gpureduce.sum(array, "exact_levels", device=device, **how).value


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("device", DEVICES)
def test_rows_and_columns_that_cancel(device, dtype, shape):
    array = hard(dtype, shape, 5)
    for axis, values in ((1, array), (0, np.ascontiguousarray(array.T)), (0, array.T)):
        want = gpureduce.sum(values, "exact", axis=axis).value
        assert added(values, device, axis=axis).tobytes() == want.tobytes()
        # Here it gets the sums that the other kernels do not prove.
        by_exact = gpureduce.sum(values, "exact", axis=axis, device=device).value
        assert by_exact.tobytes() == want.tobytes()


@pytest.mark.parametrize("terms", [512, 16384, 16385])
@pytest.mark.parametrize("device", DEVICES)
def test_each_level_holds_the_most_that_it_can_get(device, terms):
    """Half a unit of a level goes to the next one whole: the most that an element leaves there."""
    exponents = np.arange(-1074, 1024 - 15, 5)
    array = np.ldexp(1.0, exponents)[:, None] * np.ones(terms)
    want = np.ldexp(float(terms), exponents)
    assert (added(array, device, axis=1) == want).all()
    assert (added(-array, device, axis=1) == -want).all()
    is_small = (exponents >= -149) & (exponents < 128 - 15)
    small, want = array[is_small].astype(np.float32), want[is_small].astype(np.float32)
    assert (added(small, device, axis=1) == want).all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_largest_numbers(device):
    most = np.finfo(np.float32).max
    for n in (3, 5001, 40_001):
        array = np.full((2, n), most)
        array[:, 1::2] = -most
        assert added(array, device, axis=1).tolist() == [most, most]
        assert added(np.full((1, n), most), device, axis=1).tolist() == [np.inf]
        assert added(np.full((1, n), -most), device, axis=1, dtype="float64") == [-float(most) * n]
        wide = array.astype(np.float64) / float(most) * np.finfo(np.float64).max
        assert added(wide, device, axis=1).tolist() == [np.finfo(np.float64).max] * 2
        assert added(np.abs(wide), device, axis=1).tolist() == [np.inf] * 2


@pytest.mark.parametrize("n", [3, 600, 20_000])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("device", DEVICES)
def test_inf_nan_and_zeros(device, dtype, n):
    array = np.zeros((6, n), numpy_dtype(dtype))
    array[0, 1], array[1, 2], array[2, 0] = np.inf, -np.inf, np.nan
    array[3, 0], array[3, n - 1] = np.inf, -np.inf
    array[4] = -0.0
    found = added(array, device, axis=1).astype(float)
    assert np.isposinf(found[0]) and np.isneginf(found[1]) and np.isnan(found[2:4]).all()
    assert found[4:].tolist() == [0, 0] and not np.signbit(found[4:]).any()


def hard_rows(rng, dtype, shape):
    """Rows of usual numbers, and of some that cancel, need more digits, or are not finite."""
    rows = rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 3, shape)
    rows[::5] *= 2.0 ** rng.integers(-12, 12, rows[::5].shape)
    rows[1::7, -1] = -rows[1::7, :-1].sum(1)
    rows[3::50, 0], rows[4::50, -1] = np.nan, np.inf
    with np.errstate(over="ignore"):
        return rows.astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [8, 9, 15, 33, 129, 161, 193, 255, 257, 319, 513])
def test_rows_that_begin_anywhere(dtype, columns):
    """Rows of no whole packs, and rows with gaps: of lanes that share a row, whatever its start."""
    rng = np.random.default_rng(columns)
    for gap, start in ((0, 0), (0, 1), (3, 2)):
        count = 61
        base = hard_rows(rng, dtype, (1, start + count * (columns + gap))).reshape(-1)
        rows = base[start:].reshape(count, -1)[:, :columns]
        rows[...] = hard_rows(rng, dtype, rows.shape)
        want = gpureduce.sum(rows, "exact", axis=1).value
        found = add(ByDLPack(rows), axis=1).value  # unlike a host array, it is not copied
        assert found.to_numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [3, 7, 33, 100])
def test_columns_of_narrow_rows(dtype, columns):
    """Several rows lie side by side: more of them, if there are many rows."""
    rng = np.random.default_rng(columns)
    for count in (40, 1000, 60_000):
        array = hard_rows(rng, dtype, (columns, count)).T.copy()
        want = gpureduce.sum(array, "exact", axis=0).value
        assert add(array, axis=0).value.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_sums_of_a_single_row_are_its_elements(dtype):
    """But nan is always the same, and zero has no sign."""
    fmt, rng = FORMATS[dtype], np.random.default_rng(31)
    bits = rng.integers(0, 2 * fmt.sign - 1, 1 << 17, dtype=np.uint64, endpoint=True)
    bits[: 1 << 16] = np.arange(1 << 16) << (fmt.sign.bit_length() - 16)
    bits[:4] = 0, fmt.sign, fmt.infinity + 1, fmt.sign + fmt.infinity + 1
    for end in (None, -1):
        row = fmt.floats(bits)[None, :end]
        for of_type in (None, np.float32):
            want = gpureduce.sum(row, "exact", axis=0, dtype=of_type).value
            assert add(row, axis=0, dtype=of_type).value.tobytes() == want.tobytes()
        assert add(row, axis=0, initial=-0.0).value.tobytes() == add(row, axis=0).value.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("columns", [8, 64, 352])
def test_a_signaling_nan_changes_no_sum_beside_its_own(dtype, columns):
    """A thread looks at the sizes of the elements of several sums."""
    fmt = FORMATS[dtype]
    for nan in range(8):
        array = np.zeros((20, columns), fmt.dtype)
        array[0], array[8], array[16] = 0.25, 2.0**70, -(2.0**70)
        fmt.bits(array)[16, nan] = fmt.infinity + 1
        for found in (add(array, axis=0), add(np.ascontiguousarray(array.T), axis=1)):
            assert (np.delete(found.value.astype(float), nan) == 0.25).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("columns", [7, 64, 300])
def test_sums_of_columns_go_to_any_places(dtype, columns):
    """On the device: with gaps, and not from a whole pack on."""
    array = hard_rows(np.random.default_rng(7), dtype, (50, columns))
    want = gpureduce.sum(array, "exact", axis=0).value
    space = np.zeros(3 * columns + 1, want.dtype)
    for part in (space[1 : columns + 1], space[1::3]):
        add(ByInterface(array), axis=0, out=on_device(part))
        assert part.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_few_rows_of_many_columns(dtype):
    """By packs: sums of usual numbers are exact, others are proven or added up in digits."""
    rng = np.random.default_rng(8)
    for rows in (3, 8, 16):
        array = hard_rows(rng, dtype, (rows, 20_000))
        array[:, ::3] *= array.dtype.type(2.0**-12)
        array[0, ::5] *= array.dtype.type(2.0**30 if dtype != "float16" else 1)
        want = gpureduce.sum(array, "exact", axis=0).value
        found = add(array, axis=0)
        assert found.value.tobytes() == want.tobytes()


@pytest.mark.parametrize(("shape", "axis", "launches"), [
    ((700, 3), 1, 1), ((900, 40), 1, 1), ((600, 130), 1, 1), ((70, 9000), 1, 1), ((9, 5, 7), 1, 1),
    ((64, 128), 0, 1), ((17, 5000), 0, 1),
    ((300, 70_000), 0, 3)])  # fmt: skip
def test_few_exact_sums_need_a_second_launch(shape, axis, launches):
    """Sums that blocks share take one for their parts, and one for those that are not proven."""
    array = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    assert add(array, axis=axis).timing.launches == launches
