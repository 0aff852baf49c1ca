"""Sums along axes of host arrays: shapes, layouts, masks and results as numpy.sum has them.

Exact sums are held against an oracle in test_exact.py.
"""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce
from axis_cases import laid_out, random_array, random_axis
from cases import same_bits
from exact_cases import FLOATS, FORMATS, GENERATORS
from segment_calls import COMPLEX, INTEGERS, assert_same

ALL = INTEGERS + FLOATS + COMPLEX
EXAMPLES = int(os.environ.get("GPUREDUCE_AXIS_EXAMPLES", "20"))


def row_by_row(array, axis, mask, keepdims, strategy, **keywords):
    """Each sum as the sum of an array of its own."""
    axes = tuple(range(array.ndim)) if axis is None else axis
    axes = tuple(i % array.ndim for i in (axes if isinstance(axes, tuple) else (axes,)))
    kept = tuple(i for i in range(array.ndim) if i not in axes)
    shape = tuple(array.shape[i] for i in kept)
    found = None
    for at in np.ndindex(shape):
        index = [slice(None)] * array.ndim
        for i, j in zip(kept, at, strict=True):
            index[i] = j
        row = array[tuple(index)]
        if mask is not None:
            row = row[mask[tuple(index)]]
        value = gpureduce.sum(np.ascontiguousarray(row), strategy, **keywords).value
        found = np.empty(shape, value.dtype) if found is None else found
        found[at] = value
    if found is None:
        found = np.empty(shape, gpureduce.sum(array, strategy, **keywords).value.dtype)
    if keepdims:
        found = found.reshape([1 if i in axes else n for i, n in enumerate(array.shape)])
    return found


seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 17, 33, 70]), max_size=4).filter(
    lambda shape: np.prod(shape) <= 20_000
)


@given(seed=seeds, shape=shapes, dtype=st.sampled_from(INTEGERS))
@settings(max_examples=4 * EXAMPLES, deadline=None)
def test_integers_equal_numpy(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    strategy = rng.choice(["auto", "cpu", "numpy"])
    array = laid_out(rng, random_array(rng, dtype, shape))
    axis, keepdims = random_axis(rng, array.ndim), bool(rng.random() < 0.3)
    mask = rng.random(shape) < 0.5 if rng.random() < 0.3 else True
    wanted = rng.choice([None, "int32", "uint8", "int64"])
    initial = int(rng.integers(0, 100)) if rng.random() < 0.3 else 0
    how = {"axis": axis, "keepdims": keepdims, "where": mask, "initial": initial}
    expected = np.sum(array, dtype=wanted, **how)
    found = gpureduce.sum(array, strategy, wanted, timing=False, **how).value
    assert_same(found, expected)


@given(seed=seeds, shape=shapes, dtype=st.sampled_from(FLOATS + COMPLEX))
@settings(max_examples=3 * EXAMPLES, deadline=None)
def test_exact_equals_exact_sums_of_rows(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    array = laid_out(rng, random_array(rng, dtype, shape))
    axis, keepdims = random_axis(rng, array.ndim), bool(rng.random() < 0.3)
    mask = rng.random(shape) < 0.5 if rng.random() < 0.3 else None
    wanted = rng.choice([None, *(COMPLEX if dtype in COMPLEX else ["float32", "float64"])])
    whole = int(rng.integers(-9, 9)) if rng.random() < 0.3 else 0
    how = {"dtype": wanted, "initial": whole * (1 - 2j) if dtype in COMPLEX else whole}
    expected = row_by_row(array, axis, mask, keepdims, "exact", **how)
    if axis is None and not keepdims and mask is None:
        expected = gpureduce.sum(array, "exact", **how).value
    found = gpureduce.sum(
        array, rng.choice(["exact", "auto"]), timing=False, axis=axis, keepdims=keepdims,
        where=True if mask is None else mask, **how,
    ).value  # fmt: skip
    assert_same(found, np.asarray(expected))


@given(seed=seeds, shape=shapes, dtype=st.sampled_from(FLOATS + COMPLEX))
@settings(max_examples=3 * EXAMPLES, deadline=None)
def test_floats_are_near(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    strategy = rng.choice(["cpu", "numpy"])
    array = laid_out(rng, random_array(rng, dtype, shape))
    axis, keepdims = random_axis(rng, array.ndim), bool(rng.random() < 0.3)
    mask = rng.random(shape) < 0.5 if rng.random() < 0.3 else True
    initial = float(rng.integers(0, 100)) if rng.random() < 0.3 else 0
    how = {"axis": axis, "keepdims": keepdims, "where": mask}
    wide = np.complex128 if dtype in COMPLEX else np.float64
    expected = np.sum(array.astype(wide), **how) + initial
    size = np.sum(np.abs(array.astype(wide)), **how) + initial
    found = gpureduce.sum(array, strategy, initial=initial, **how).value
    assert np.shape(found) == expected.shape
    assert np.asarray(found).dtype == gpureduce.sum(array.reshape(-1)[:0], strategy).value.dtype
    part = ml_dtypes.finfo(np.asarray(found).real.dtype)
    slack = float(part.eps) * (4 + (np.log2(array.size + 1) if strategy == "numpy" else 0))
    slack *= 40 if strategy == "numpy" else 1
    assert np.all(np.abs(np.asarray(found).astype(wide) - expected) <= slack * size + 1e-7)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
def test_rows_by_cpu_have_the_bits_of_a_sum_of_the_row(dtype):
    rng = np.random.default_rng(5)
    for n in (*range(1, 4), 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 1000, 1025, 3000, 70_000,
              140_000):  # fmt: skip
        array = random_array(rng, dtype, (3 if n > 60_000 else 70, n))
        found = gpureduce.sum(array, "cpu", axis=1).value
        one_by_one = [gpureduce.sum(row, "cpu").value for row in array]
        assert all(map(same_bits, found, one_by_one)), n
        reversed_rows = gpureduce.sum(array[:, ::-1], "cpu", axis=1).value
        assert all(map(same_bits, reversed_rows, one_by_one)), n


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_row_does_not_depend_on_its_batch(dtype):
    fmt, rng = FORMATS[dtype], np.random.default_rng(13)
    rows = np.concatenate([g(fmt, rng, 241, 37) for g in GENERATORS])[:4096]
    alone = np.array([gpureduce.sum(row, "exact").value for row in rows])
    for count in (1, 2, 3, 10, 100, 1000, 4096):
        assert_same(gpureduce.sum(rows[:count], axis=1).value, alone[:count])
        assert_same(gpureduce.sum(rows[-count:].T, axis=0).value, alone[-count:])
    order = rng.permutation(len(rows))
    assert_same(gpureduce.sum(rows[order], axis=1).value, alone[order])
    assert_same(gpureduce.sum(rng.permuted(rows, axis=1), axis=1).value, alone)
    columns = np.ascontiguousarray(rows.T)
    assert_same(gpureduce.sum(columns, axis=0).value, alone)
    assert_same(gpureduce.sum(columns[rng.permutation(37)], axis=0).value, alone)
    assert_same(gpureduce.sum(columns[:, ::3], axis=0).value, alone[::3])
    halves = rows.reshape(64, 64, 37)
    assert_same(gpureduce.sum(halves, axis=-1).value, alone.reshape(64, 64))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape",
    [(3000, 2), (9000, 5), (700, 64), (700, 100), (40, 2100), (5, 70_000), (2, 9000, 3),
     (9000, 3, 3), (20_000, 70)],
)  # fmt: skip
def test_large_columns(dtype, shape):
    """Folded rows, tiles and chunks."""
    rng = np.random.default_rng(17)
    array = random_array(rng, dtype, shape)
    array.reshape(-1)[:: array.size // 7] = [np.inf, 0, -0.0, 60000, 2**-20, 1, 3, 9][: len(
        array.reshape(-1)[:: array.size // 7])]  # fmt: skip
    for axis in range(array.ndim):
        moved = np.ascontiguousarray(np.moveaxis(array, axis, -1)).reshape(-1, shape[axis])
        expected = np.array([gpureduce.sum(row, "exact").value for row in moved])
        kept = shape[:axis] + shape[axis + 1 :]
        assert_same(gpureduce.sum(array, "exact", axis=axis).value, expected.reshape(kept))
        wide = np.sum(moved.astype(np.float64), axis=1).reshape(kept)
        size = np.sum(np.abs(moved.astype(np.float64)), axis=1).reshape(kept)
        with np.errstate(invalid="ignore", over="ignore"):
            wide = wide.astype(array.dtype).astype(np.float64)
            near = gpureduce.sum(array, "cpu", axis=axis).value.astype(np.float64)
            eps = 2 * float(ml_dtypes.finfo(array.dtype).eps)
            assert np.all((near == wide) | (np.abs(near - wide) <= eps * size))


def test_partial_sums_that_overflow():
    big = np.finfo(np.float64).max
    rows = np.array([[big, big, -big, -big, 1.0], [big, big, 0, 0, 0], [big, -big, 1, 2, 3]] * 30)
    for strategy, third in (("exact", 6.0), ("cpu", None)):
        for array, axis in (
            (rows, 1),
            (np.ascontiguousarray(rows.T), 0),
            (np.tile(rows, 2).T[:5], 0),
        ):
            found = gpureduce.sum(array, strategy, axis=axis).value
            assert np.all(np.isfinite(found[0::3])) and np.all(found[1::3] == np.inf)
            assert third is None or (np.all(found[2::3] == third) and np.all(found[0::3] == 1))
    tall = np.tile(np.array([[big], [-big]] * 40), (1, 70))
    tall[:40], tall[40:] = big, -big
    assert np.all(gpureduce.sum(tall, "cpu", axis=0).value == 0)


def test_an_exact_sum_and_its_initial_number_are_rounded_once():
    x = np.full((3, 2), 2.0**-25, np.float32)
    assert np.all(gpureduce.sum(x, axis=1, initial=1).value == np.float32(1))
    x[:, 1] += np.float32(2.0**-40)
    assert np.all(gpureduce.sum(x, axis=1, initial=1).value == np.float32(1 + 2.0**-23))
    assert np.all(gpureduce.sum(x.T.copy(), axis=0, initial=1).value == np.float32(1 + 2.0**-23))
    whole = 2**60 + 1
    wide = gpureduce.sum(np.array([[-(2.0**60)]]), axis=0, initial=whole).value
    assert wide == 1
    assert gpureduce.sum([-(2.0**60)], initial=whole).value == 1
    assert (
        gpureduce.sum(np.array([[2.0**200, 2.0**-200]]), axis=1, initial=-(2.0**200)).value
        == 2**-200
    )


def test_results_without_dimensions_are_scalars():
    array = np.arange(6.0).reshape(2, 3)
    for value in (gpureduce.sum(array, axis=None, where=array > 2).value,
                  gpureduce.sum(array, axis=(0, 1)).value,
                  gpureduce.sum(np.float64(3.0), axis=()).value):  # fmt: skip
        assert type(value) is np.float64
    kept = gpureduce.sum(array, keepdims=True)
    assert kept.value.shape == (1, 1) and kept.value == 15
    assert float(gpureduce.sum(array, axis=(0, 1))) == 15
    with pytest.raises(TypeError):
        float(gpureduce.sum(array, axis=0))
    with pytest.raises(TypeError):
        int(gpureduce.sum(array, axis=0))


def test_no_axes_convert_each_element():
    array = np.array([[1, 300], [-1, 7]], np.int16)
    found = gpureduce.sum(array, axis=()).value
    assert found.dtype == np.int64 and np.array_equal(found, array)
    assert np.array_equal(gpureduce.sum(array, axis=(), dtype="int8").value, array.astype(np.int8))
    tiny = np.array([[-0.0, 1e-45]], np.float32)
    assert_same(gpureduce.sum(tiny, axis=()).value, np.array([[0.0, 1e-45]], np.float32))


@pytest.mark.parametrize("strategy", ["exact", "cpu", "numpy"])
@pytest.mark.parametrize("shape", [(5, 40), (70, 130), (3, 4, 5)])
def test_out(strategy, shape):
    rng = np.random.default_rng(19)
    for dtype in ALL:
        array = random_array(rng, dtype, shape)
        for axis in (0, -1, None):
            expected = gpureduce.sum(array, strategy, axis=axis, keepdims=True).value
            space = np.zeros([2 * n for n in expected.shape], expected.dtype)
            out = space[(slice(None, None, -2),) * len(shape)]
            assert gpureduce.sum(array, strategy, axis=axis, keepdims=True, out=out).value is out
            assert_same(out, expected)
            plain = np.empty(np.squeeze(expected, axis).shape, expected.dtype)
            assert gpureduce.sum(array, strategy, axis=axis, out=plain).value is plain
            assert_same(plain, np.squeeze(expected, axis))


def test_the_result_follows_the_memory_order_of_the_array():
    array = np.ones((4, 5, 6, 7))
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)):
        turned = array.transpose(order)
        for axis in range(4):
            expected = np.sum(turned, axis=axis)
            found = gpureduce.sum(turned, "cpu", axis=axis).value
            assert found.strides == expected.strides and found.flags.owndata
            assert found.base is None


def test_lists_and_host_objects():
    assert gpureduce.sum([[1, 2], [3, 4]], axis=0).value.tolist() == [4, 6]
    array = np.arange(12, dtype=np.float32).reshape(3, 4)

    class Capsule:
        def __dlpack__(self, **keywords):
            return array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return array.__dlpack_device__()

    assert_same(gpureduce.sum(Capsule(), axis=1).value, np.sum(array, axis=1))

    class Sub(np.ndarray):
        pass

    assert_same(gpureduce.sum(array.view(Sub), axis=1).value, np.sum(array, axis=1))
    assert_same(gpureduce.sum(np.ma.masked_array(array), axis=0).value, np.sum(array, axis=0))


def test_a_timing():
    value, timing = gpureduce.sum(np.ones((30, 40), np.float32), axis=1)
    assert np.array_equal(value, np.full(30, 40))
    assert (timing.strategy, timing.n, timing.nbytes, timing.dtype) == (
        "exact",
        1200,
        4800,
        "float32",
    )
    assert 0 < timing.kernel_ms <= timing.total_ms and timing.source == "perf_counter"
    _, other = gpureduce.sum(np.ones((30, 40), np.float32), dtype="float32", axis=1)
    assert other.strategy == "exact" and other.n == 1200
    assert gpureduce.sum(np.ones((3, 4)), axis=0, timing=False).timing is None
    assert gpureduce.sum(np.ones((3, 4), int), axis=0).timing.strategy == "cpu"
    assert gpureduce.sum(np.ones((3, 4)), "numpy", axis=0).timing.backend == "numpy"


@pytest.mark.parametrize("strategy", ["cpu", "exact", "auto"])
@pytest.mark.parametrize("dtype", ["int16", "float32", "int64", "complex64", "bool"])
def test_casts_piece_by_piece(dtype, strategy, monkeypatch):
    """Elements are converted in pieces of bounded size, also in the middle of a sum."""
    from gpureduce.core import arrays

    rng = np.random.default_rng(23)
    array = random_array(rng, dtype, (6, 50, 7))
    wanted = (
        "complex128" if dtype == "complex64" else "float64" if dtype != "float32" else "complex64"
    )
    mask = rng.random(array.shape) < 0.7
    for axis in (0, 1, 2, (0, 2), None):
        for where in (True, mask):
            how = {"axis": axis, "where": where, "initial": 3, "keepdims": True}
            whole = gpureduce.sum(array, strategy, wanted, **how).value
            with monkeypatch.context() as patch:
                patch.setattr(arrays, "PACK_ELEMENTS", 31)
                pieces = gpureduce.sum(array, strategy, wanted, **how).value
            expected = np.sum(array, dtype=wanted, **how)
            assert whole.dtype == pieces.dtype == expected.dtype
            near = {"rtol": 1e-4, "atol": 1e-3} if wanted == "complex64" else {}
            assert np.allclose(whole, expected, **near) and np.allclose(pieces, expected, **near)
            if strategy != "cpu":
                assert_same(pieces, whole)


def test_unaligned_and_memory_mapped(tmp_path):
    records = np.zeros((30, 40), np.dtype([("a", "i1"), ("x", "<f4"), ("y", "<f8")], align=False))
    records["x"] = np.random.default_rng(0).standard_normal((30, 40))
    assert not records["x"].flags.aligned
    for axis in (0, 1):
        expected = gpureduce.sum(records["x"].copy(), axis=axis).value
        assert_same(gpureduce.sum(records["x"], axis=axis).value, expected)
    np.save(tmp_path / "a.npy", records["x"].copy())
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert_same(gpureduce.sum(mapped, axis=1).value, expected)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_out_may_be_of_a_subclass():
    array, out = np.arange(12000).reshape(3000, 4), np.matrix(np.zeros((3000, 1)))
    found = gpureduce.sum(array, "exact", dtype="f8", axis=1, keepdims=True, out=out)
    assert found.value is out
    assert (np.asarray(out).ravel() == array.sum(1)).all()


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize(
    "values", [[2**53 + 1, 1, -(2**53)], [3e300, -3e300], [1 + 2.0**-30, -1.0]]
)
def test_exact_sums_of_real_numbers_as_complex_ones_are_those_of_the_whole(dtype, values):
    array = np.array(values)
    whole = gpureduce.sum(array, "exact", dtype=dtype).value
    assert gpureduce.sum(array, "exact", dtype=dtype, axis=0).value == whole


def test_an_array_reshaped_by_its_own_arguments():
    array, memory = np.ones((2, 6000)), np.full(64, -7.0)

    class Reshapes:
        def __float__(self):
            array.shape = (6000, 2)
            return 0.0

    gpureduce.sum(array, "exact", axis=1, initial=Reshapes(), out=memory[:2])
    assert memory[:2].tolist() == [6000, 6000]
    assert (memory[2:] == -7).all()


@pytest.mark.parametrize("strategy", ["cpu", "numpy"])
def test_out_may_overlap_the_mask(strategy):
    memory = np.zeros(102400, bool)
    mask, out = memory[:51200].reshape(6400, 8), memory[8 : 8 + 51200].view("i8")
    mask[:] = True
    ones = np.ones((6400, 8), "i8")
    assert (gpureduce.sum(ones, strategy, axis=1, where=mask, out=out).value == 8).all()


def test_conversions_of_one_number_and_of_many_in_one_sum():
    assert gpureduce.sum(np.array(3), "exact", dtype="c16", axis=()).value == 3
    assert gpureduce.sum(np.float64(3.5), "cpu", dtype="f4", initial=1).value == 4.5
    many = np.ones((2, 2**22 + 5), "i8")
    assert (gpureduce.sum(many, "exact", dtype="f8", axis=1).value == 2**22 + 5).all()
    with np.errstate(all="raise"):
        assert gpureduce.sum(np.array([[1e300, 1.0]]), "cpu", dtype="f4", axis=1).value == np.inf


# --- wrong arguments ------------------------------------------------------------------------------

A = np.ones((3, 4))


@pytest.mark.parametrize(
    ("error", "match", "keywords"),
    [
        (np.exceptions.AxisError, "axis 2 is out of bounds", {"axis": 2}),
        (np.exceptions.AxisError, "axis -3 is out of bounds", {"axis": (0, -3)}),
        (ValueError, "names an axis twice", {"axis": (0, -2)}),
        (TypeError, "axis must be a whole number", {"axis": 1.0}),
        (TypeError, "axis must be a whole number", {"axis": "rows"}),
        (TypeError, "axis must be a whole number", {"axis": [0]}),
        (TypeError, "array of booleans, not of int64", {"axis": 0, "where": [1, 0, 1, 0]}),
        (ValueError, "does not broadcast", {"axis": 0, "where": np.ones(5, bool)}),
        (TypeError, "dtype of the sum, complex64", {"axis": 0, "dtype": "complex64", "out": A}),
        (TypeError, r"out must be a NumPy array of shape \(4,\)", {"axis": 0, "out": [0] * 4}),
        (TypeError, "dtype of the sum, float64", {"axis": 0, "out": np.ones(4, np.float32)}),
        (TypeError, "dtype of the sum, float64", {"axis": 0, "out": np.ones(4, ">f8")}),
        (ValueError, r"shape of the sum, \(4,\), not \(3,\)", {"axis": 0, "out": np.ones(3)}),
        (ValueError, "out overlaps the array", {"axis": 0, "out": A[1]}),
        (ValueError, "out is read-only", {"axis": 0, "out": np.broadcast_to(1.0, 4)}),
        (ValueError, "one of host, device", {"axis": 0, "result": "card"}),
        (ValueError, "leave result out", {"axis": 0, "result": "device"}),
        (ValueError, "leave result out", {"result": "device"}),
        (ValueError, "stream is for arrays on a GPU", {"axis": 0, "stream": 1}),
        (ValueError, "chooses its own block and grid", {"axis": 0, "strategy": "cpu", "block": 32}),
        (ValueError, "there is no", {"axis": 0, "strategy": "exaxt"}),
    ],
)
def test_errors(error, match, keywords):
    with pytest.raises(error, match=match):
        gpureduce.sum(A, **keywords)
    assert gpureduce.sum(A, axis=0).value.tolist() == [3, 3, 3, 3]


def test_differences_from_numpy():
    """The differences that the table of docs/axis.md lists."""
    large, infinite = np.full(2, 1e308), np.array([np.inf, -np.inf])
    for options in ({}, {"strategy": "cpu"}, {"device": "emulator"}):  # a warning is an error
        assert gpureduce.sum(large, axis=0, **options) == np.inf
        assert np.isnan(gpureduce.sum(infinite, axis=0, **options))
    with pytest.warns(RuntimeWarning, match="overflow"):
        gpureduce.sum(large, "numpy", axis=0)
    with pytest.raises(TypeError, match="out must be a NumPy array"):
        gpureduce.sum(A, axis=0, out=...)
    assert gpureduce.sum(np.ones(1), axis=0, initial=2**53 + 1) == 2**53 + 2
    with pytest.raises(ValueError, match="initial must be exactly a float64"):
        gpureduce.sum(np.ones(1), "fast", axis=0, initial=2**53 + 1)


def test_errors_of_integers_and_gpu_arrays():
    ones = np.ones((2, 2), np.int8)
    with pytest.raises(ValueError, match="initial must be from -128 to 127"):
        gpureduce.sum(ones, axis=0, dtype="int8", initial=128)
    with pytest.raises(TypeError, match="cannot be summed"):
        gpureduce.sum(np.array(["a"]), axis=0)
