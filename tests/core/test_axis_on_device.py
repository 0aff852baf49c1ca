"""Sums along axes by kernels, on the emulator: of host arrays, and of arrays on the device."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce
from axis_cases import laid_out, random_array, random_axis, refusal
from cases import broken_off_after, numpy_dtype, run_python
from exact_cases import FLOATS
from gpureduce.core.device_array import DeviceArray
from producers import ByDLPack, ByInterface, on_device
from segment_calls import INTEGERS

REAL = INTEGERS + FLOATS
ROWS = [
    "row_thread",
    "row_lanes",
    "row_warp",
    "row_group",
    "row_packs",
    "row_block",
    "row_split",
    "row_tile",
]
COLUMNS = ["column_thread", "column_packs", "column_tiles"]
EXAMPLES = int(os.environ.get("GPUREDUCE_AXIS_EXAMPLES", "20"))

seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.integers(0, 9), min_size=0, max_size=5).map(tuple)


def small_numbers(rng, dtype, shape):
    """Whole numbers whose sums no float dtype rounds."""
    kind = numpy_dtype(dtype)
    if kind.kind in "biu":
        return random_array(rng, dtype, shape)
    some = rng.integers(-3, 4, shape)
    return some.astype(kind) + 1j * rng.integers(-3, 4, shape) if kind.kind == "c" else (
        some.astype(kind)
    )  # fmt: skip


def add(array, strategy="fast", **how):
    return gpureduce.sum(array, strategy, device="emulator", **how)


def expected(array, **how):
    if array.dtype.kind in "biu":
        return np.sum(array, **how)
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    found = np.sum(array.astype(wide), **how)
    return found.astype(array.dtype.newbyteorder("="))


def assert_equal(found, want):
    assert np.shape(found) == np.shape(want)
    assert np.asarray(found).dtype == np.asarray(want).dtype
    np.testing.assert_array_equal(found, want)


@given(seed=seeds, shape=shapes, dtype=st.sampled_from([*REAL, "complex64", "complex128"]))
@settings(max_examples=5 * EXAMPLES, deadline=None)
def test_any_axes_of_any_layout(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    array = laid_out(rng, small_numbers(rng, dtype, shape))
    how = {"axis": random_axis(rng, array.ndim), "keepdims": bool(rng.random() < 0.3)}
    if rng.random() < 0.3:
        shown = [n if rng.random() < 0.7 else 1 for n in array.shape]
        how["where"] = rng.random(shown) < 0.6
    if rng.random() < 0.3:
        how["initial"] = int(rng.integers(0, 3)) * (1 + 2j if array.dtype.kind == "c" else 1)
    want = expected(array, **how)
    found = add(array, "fast", **how)
    assert_equal(found.value, want)
    assert found.timing.n == array.size and found.timing.backend == "emulator"
    out = np.full_like(want, 1)
    assert add(array, "fast", out=out, timing=False, **how).value is out
    assert_equal(out, want)
    if not array.dtype.isnative:  # no producer has such elements
        return
    if "where" in how:
        how["where"] = on_device(np.broadcast_to(how["where"], shape).copy())
    there = add(on_device(np.asarray(array)), "fast", result="device", **how)
    assert isinstance(there.value, DeviceArray) and there.timing.n == array.size
    assert_equal(there.value.to_numpy(), want)


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("name", ROWS + COLUMNS + ["any_layout"])
def test_each_rung(name, number):
    """Each dtype in each shape, and each block in each shape for some of the dtypes."""
    dtype = "int8 uint16 int32 int64 float16 bfloat16 float32 float64".split()[number]
    rng = np.random.default_rng(7)
    sizes = [(1, 1), (1, 77), (33, 17), (100, 128), (3, 1003), (1003, 3), (513, 2), (515, 4),
             (130, 8), (7, 33), (2, 9000)]  # fmt: skip
    for place, shape in enumerate(sizes):
        block = (None, 32, 96, 256)[(place + number) % 4]
        array = small_numbers(rng, dtype, shape)
        axis = 0 if name in COLUMNS else 1
        if refused := refusal(name, array):
            with pytest.raises(ValueError, match=refused):
                add(array, name, axis=axis)
            continue
        found = add(array, name, axis=axis, block=block)
        assert_equal(found.value, expected(array, axis=axis))
        assert found.timing.strategy == name
        assert block is None or found.timing.block == block


@pytest.mark.parametrize(
    ("shape", "axis", "name", "launches"),
    [
        ((3, 200_000), 1, "row_split", 2),
        ((3, 10_000), 1, "row_block", 1),
        ((500, 2), 1, "row_packs", 1),
        ((500, 3), 1, "row_tile", 1),
        ((500, 64), 1, "row_group", 1),
        ((500, 600), 1, "row_warp", 1),
        ((500, 300), 0, "column_tiles", 2),
        ((50, 5000), 0, "column_tiles", 1),
        ((40, 4, 5), 1, "any_layout", 1),
    ],
)
def test_fast_chooses_by_shape(shape, axis, name, launches):
    array = small_numbers(np.random.default_rng(1), "float32", shape)
    found = add(array, axis=axis)
    assert_equal(found.value, expected(array, axis=axis))
    assert (found.timing.strategy, found.timing.launches) == (name, launches)
    assert found.timing.finish == ("relaunch" if launches > 1 else "single")


AXES = [axes for count in range(1, 5) for axes in itertools.combinations(range(4), count)]


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("sizes", [(4, 6, 40, 128), (3, 8, 33, 127), (2, 40, 3, 70)])
def test_pieces_and_gaps(sizes, dtype):
    rng = np.random.default_rng(5)
    # Gaps of each sign have every other group of axes.
    steps = {1: AXES, 2: AXES[::2], -2: AXES[1::2]}
    for step, axes in ((s, a) for s in steps for a in steps[s]):
        whole = small_numbers(rng, dtype, (*sizes[:3], sizes[3] * abs(step)))
        found = add(on_device(whole[..., ::step]), axis=axes, result="device").value
        assert_equal(found.to_numpy(), expected(whole[..., ::step], axis=axes))


@pytest.mark.parametrize(
    ("sizes", "step", "axes", "name", "launches"),
    [
        ((4, 3, 20, 500), 1, (0, 2, 3), "row_block", 2),  # as channels of images
        ((4, 3, 20, 500), 2, (0, 2, 3), "row_lanes", 2),
        ((4, 30, 20, 300), 1, (1, 3), "row_group", 2),
        ((4, 30, 20, 301), 1, (1, 3), "row_lanes", 2),
        ((4, 30, 20, 5), 1, (1, 3), "any_layout", 1),
        ((4, 30, 200, 9), 1, (0, 2), "column_tiles", 2),
        ((4, 30, 200, 9), 2, (0, 2), "column_tiles", 2),
        ((4, 30, 200, 9), 2, (3,), "row_lanes", 1),
        ((1, 1, 1, 90_000), 2, (3,), "row_lanes", 2),
    ],
)
def test_fast_chooses_by_pieces_and_gaps(sizes, step, axes, name, launches):
    whole = np.ones((*sizes[:3], sizes[3] * step), np.float32)
    found = add(on_device(whole[..., ::step]), axis=axes, result="device")
    assert_equal(found.value.to_numpy(), expected(whole[..., ::step], axis=axes))
    assert (found.timing.strategy, found.timing.launches) == (name, launches)


def test_small_integers_do_not_wrap_in_32_bits():
    array = np.full((70_000, 3), 255, np.uint8)
    assert add(array, axis=0).value.tolist() == [17_850_000] * 3


# --- row_tile: rows whose elements are loaded by words where they are small -----------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_rows_in_tiles(dtype, first):
    """Rows may begin at any element of a word, and end at any."""
    rng = np.random.default_rng(first)
    longest = 512 // np.dtype(dtype).itemsize
    for columns in (*range(1, 40), 63, 65, 127, longest - 1, longest):
        rows = int(rng.integers(1, 200))
        array = random_array(rng, dtype, rows * columns + first)[first:].reshape(rows, columns)
        assert np.array_equal(add(array, "row_tile", axis=1).value, array.sum(axis=1)), columns


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_fast_sums_leave_out_the_neighbouring_rows(dtype):
    rng = np.random.default_rng(3)
    for columns in (15, 16, 17, 33, 100):
        array = np.full((64, columns), 3000, numpy_dtype(dtype))
        array[1::2] = rng.integers(0, 4, (32, columns))
        want = array[1::2].astype(np.float64).sum(axis=1)
        assert np.array_equal(
            add(array, "row_tile", axis=1).value[1::2].astype(np.float64), want
        ), columns


# --- arrays on the device --------------------------------------------------------------------


def test_a_whole_sum_stays_on_the_device_if_asked():
    array = np.arange(10_000, dtype=np.int32).reshape(100, 100)
    found = add(ByInterface(array), result="device").value
    assert isinstance(found, DeviceArray) and found.shape == () and found.dtype == "int64"
    assert found.to_numpy() == array.sum()
    assert int(found) == array.sum() and float(found) == complex(found) == array.sum()
    again = add(found)  # an array on the device like any other
    assert again.value == array.sum()
    masked = add(ByInterface(array), where=on_device(array % 2 == 0))
    assert type(masked.value) is np.int64 and masked.value == array[array % 2 == 0].sum()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bfloat16", "float32", "float64"])
def test_columns_of_short_rows_from_any_element_on(dtype):
    """column_tiles lays short rows side by side, and the last ones may be too few for that."""
    rng = np.random.default_rng(13)
    for columns, offset, strategy in itertools.product(
        (2, 3, 7, 16, 33), (0, 1, 2, 4), ("column_tiles", "exact")
    ):
        flat = small_numbers(rng, dtype, 75 * columns + offset)
        array = flat[offset:].reshape(75, columns)
        found = add(ByDLPack(array), strategy, axis=0)
        assert_equal(found.value.to_numpy(), expected(array, axis=0))


def test_a_device_array():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    found = add(ByInterface(array.transpose(2, 0, 1)), axis=1).value
    assert repr(found) == "DeviceArray(shape=(4, 3), dtype='float32', device=0)"
    assert found.ndim == 2 and found.strides == (4, 16)
    interface = found.__cuda_array_interface__
    assert interface["shape"] == (4, 3) and interface["typestr"] == "<f4"
    assert found.__dlpack_device__() == (2, 0)
    assert_equal(add(found, axis=0).value.to_numpy(), array.sum(axis=(0, 2)))
    capsule = found.__dlpack__(stream=1)
    assert "dltensor" in repr(capsule)
    del capsule  # nobody took it
    with pytest.raises(BufferError, match="without a copy"):
        found.__dlpack__(copy=True)
    with pytest.raises(TypeError, match="takes only : for each axis"):
        found[0]
    with pytest.raises(TypeError, match=r"never copied silently: call its to_numpy\(\)"):
        np.asarray(found)
    with pytest.raises(TypeError, match=r"a number, not one of shape \(4, 3\): call to_numpy"):
        float(found)


def test_bfloat16_on_the_device():
    array = small_numbers(np.random.default_rng(1), "bfloat16", (30, 40))
    found = add(ByDLPack(array), axis=1).value
    assert found.dtype == "bfloat16"
    assert_equal(found.to_numpy(), expected(array, axis=1))
    with pytest.raises(AttributeError, match="cannot describe bfloat16"):
        found.__cuda_array_interface__  # noqa: B018
    assert add(found).value == array.astype(np.float64).sum()


def test_memory_of_results_is_freed():
    gpureduce.free_scratch()
    array = ByInterface(np.ones((100, 100), np.float32))
    before = gpureduce.emulator.live_bytes()
    kept = [add(array, axis=0).value for _ in range(5)]
    assert gpureduce.emulator.live_bytes() == before + 5 * 400
    capsule = kept[0].__dlpack__()
    kept.clear()
    assert gpureduce.emulator.live_bytes() == before + 400
    del capsule
    assert gpureduce.emulator.live_bytes() == before


# --- errors ------------------------------------------------------------------------------------


ERRORS = [
    (ValueError, "row_warp", {"axis": 0}, "sums rows whose elements are adjacent in memory"),
    (TypeError, "exact", {"axis": 0, "where": 1}, "where must be an array of booleans"),
    (ValueError, "row_split", {"axis": 1, "grid": 3}, "row_split chooses its own grid"),
    (
        ValueError,
        "row_warp",
        {"axis": 1, "block": 512},
        "at most 256 threads, not of 512",
    ),
    (ValueError, "row_warp", {"axis": 1, "block": 33}, "block must be"),
    (ValueError, "row_warp", {"axis": 1, "finish": "host"}, "row_warp cannot use finish='host'"),
    (np.exceptions.AxisError, "fast", {"axis": 2}, "axis 2 is out of bounds"),
    (ValueError, "fast", {"axis": (0, 0)}, "names an axis twice"),
    (TypeError, "fast", {"axis": 0, "where": [1, 0]}, "where must be an array of booleans"),
]


@pytest.mark.parametrize(("error", "strategy", "how", "match"), ERRORS)
def test_errors(error, strategy, how, match):
    array = np.ones((40, 50), np.float32)
    with pytest.raises(error, match=match):
        add(array, strategy, **how)
    assert add(array, axis=0).value.tolist() == [40] * 50


def test_errors_of_arrays_on_the_device():
    array = ByInterface(np.ones((40, 50), np.float32))
    out = on_device(np.ones(50))
    with pytest.raises(TypeError, match="out must have the dtype of the sum, float32, not float64"):
        add(array, axis=0, out=out)
    with pytest.raises(TypeError, match=r"out must be of type ByInterface, shape \(50,\) and"):
        add(array, axis=0, out=np.ones(50, np.float32))
    values = np.ones((40, 50), np.float32)
    with pytest.raises(ValueError, match="out overlaps the array"):
        add(ByInterface(values), axis=0, out=on_device(values[0]))
    with pytest.raises(TypeError, match="where must be an array of booleans on the same GPU"):
        add(array, axis=0, where=[True])
    with pytest.raises(TypeError, match="ByInterface, which has no attribute dtype"):
        add(array, axis=0, where=ByInterface(values > 0))
    with pytest.raises(TypeError, match="dtype and shape, which ByInterface lacks"):
        add(array, axis=0, out=ByInterface(np.ones(50, np.float32)))
    assert add(array, axis=0).value.to_numpy().tolist() == [40] * 50


def test_the_parts_of_complex_sums_keep_their_initial_numbers():
    """Also where a kept dimension has no step, or the array has no elements."""
    one = np.broadcast_to(np.array([1 + 2j]), (4,))
    assert add(ByInterface(one), axis=(), initial=10).value.to_numpy().tolist() == [11 + 2j] * 4
    rows = np.broadcast_to(np.arange(3)[:, None] + 1j, (3, 4))
    for strategy in ("exact", "fast", "exact_levels"):
        found = add(ByInterface(rows), strategy, axis=0, initial=10).value
        assert found.to_numpy().tolist() == [13 + 3j] * 4
    empty = np.ones((2, 0), np.complex64)
    assert add(empty, "exact", axis=1, initial=3).value.tolist() == [3, 3]


def test_an_initial_number_that_no_float64_holds():
    for strategy in ("exact", "fast"):
        with pytest.raises(
            ValueError, match=r"initial must be exactly a float64, such as 9007199254740992"
        ):
            add(np.ones((1, 1)), strategy, axis=1, initial=2**53 + 1)
    assert add(np.ones((1, 1)), "exact", axis=1, initial=2**53).value.tolist() == [2.0**53]


def test_places_of_sums_that_cannot_be_written():
    array = np.ones((64, 8), np.int64)
    mask = np.ones(512, bool)
    inside = on_device(mask.view(np.int64)[:8])
    with pytest.raises(ValueError, match="out overlaps where"):
        add(ByInterface(array), axis=0, where=on_device(mask.reshape(64, 8)), out=inside)
    out = np.zeros(8, np.int64)
    locked = on_device(out, data=(out.ctypes.data, True))
    with pytest.raises(ValueError, match="out is read-only"):
        add(ByInterface(array), axis=0, out=locked)
    same = np.lib.stride_tricks.as_strided(out, (8,), (0,))
    with pytest.raises(ValueError, match="elements of out share memory"):
        add(ByInterface(array), axis=0, out=on_device(same))
    odd = np.ndarray((8,), np.int64, np.zeros(80, np.uint8).data, offset=1)
    with pytest.raises(BufferError, match="elements of out are not aligned"):
        add(ByInterface(array), axis=0, out=on_device(odd))
    assert not out.any()
    strided = np.zeros(16, np.int64)[::-2]
    assert add(ByInterface(array), axis=0, out=on_device(strided)).value
    assert strided.tolist() == [64] * 8


def test_odd_producers():
    with pytest.raises(TypeError, match="of kind 'c' and 4 bytes cannot be summed"):
        add(ByInterface(np.ones(4, np.float32), typestr="<c4"), axis=0)
    huge = ByInterface(np.ones(4), shape=(0, 2**62, 2**62), strides=(0, 0, 0))
    with pytest.raises((MemoryError, BufferError)):
        add(huge, axis=0)
    masked = ByInterface(np.ones((2, 3)))
    small = on_device(np.ones((1, 3), bool))
    with pytest.raises(ValueError, match="as a ByInterface it must have"):
        add(masked, axis=0, where=small)


def test_views_of_a_device_array_are_checked():
    found = add(ByInterface(np.ones((2, 5))), axis=1, keepdims=True).value
    assert found.transpose((1, 0)).shape == (1, 2)
    for order in ((0, 0), (0, 1, 2), (0, 2)):
        with pytest.raises(ValueError, match="order must name each of 2 axes once"):
            found.transpose(order)
    for stream in (-5, 2**63, "a"):
        with pytest.raises(ValueError, match="stream must be None, -1 or a cudaStream_t"):
            found.__dlpack__(stream=stream)


def test_a_kernel_for_an_axis_makes_no_whole_sums():
    array = np.ones(100, np.float32)
    with pytest.raises(
        ValueError, match=r"row_warp sums along an axis: pass axis, as in gpureduce.sum"
    ):
        gpureduce.sum(array, "row_warp", device="emulator")
    with pytest.raises(ValueError, match="row_warp sums along an axis"):
        add(ByInterface(array), "row_warp")
    with pytest.raises(ValueError, match="row_warp"):
        list(gpureduce.benchmark(["row_warp"], sizes=[100], device="emulator", repeats=1))
    with pytest.raises(ValueError, match="row_warp"):
        gpureduce.races("row_warp")


def test_many_dimensions():
    array = np.arange(2**14, dtype=np.int32).reshape((2,) * 14)[(slice(None, None, -1),) * 14]
    for axis in (tuple(range(0, 14, 2)), tuple(range(1, 14, 2)), (3, 7, 9)):
        assert_equal(add(array, axis=axis).value, np.sum(array, axis=axis))
        found = add(ByInterface(array), axis=axis).value
        assert_equal(found.to_numpy(), np.sum(array, axis=axis))
    steps = [17] * 40  # overlapping rows: 2^40 elements, in pieces of fewer dimensions
    many = np.lib.stride_tricks.as_strided(np.ones(2**10, np.int8), (2,) * 40, steps)
    axis = tuple(range(0, 40, 2))
    assert broken_off_after(0.3, lambda: add(ByInterface(many), axis=axis)) is not None


def test_sums_go_on_after_a_failed_allocation():
    run_python(
        "import numpy as np, gpureduce as g\n"
        "array = np.ones((300, 300), np.float32)\n"
        "with g.emulator.memory_limit(100_000):\n"
        "    try: g.sum(array, 'fast', axis=0, device='emulator')\n"
        "    except MemoryError: pass\n"
        "    else: raise AssertionError\n"
        "assert g.sum(array, 'fast', axis=0, device='emulator').value.tolist() == [300] * 300\n"
    )
