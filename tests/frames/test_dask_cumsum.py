"""Running sums of Dask arrays: one bit pattern for any chunks, that of gpureduce.exact."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from gpureduce import exact

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")
gd = pytest.importorskip("gpureduce.dask")

DTYPES = ["f2", ml_dtypes.bfloat16, "f4", ">f8", "f8", "c8", "c16", "i1", "i8", "?"]
CASTS = [("f8", "f4"), ("f4", "f8"), ("f4", "c16"), ("i8", "f4"), ("i8", "i2"), ("c8", "c16")]


@pytest.fixture(autouse=True)
def in_this_process():
    with dask.config.set(scheduler="synchronous"):
        yield


def numbers(rng, dtype, shape):
    if np.dtype(dtype).kind in "ib":
        return rng.integers(0, 2**61 if dtype == "i8" else 2, shape).astype(dtype)
    most = 3 if dtype in ("f2", ml_dtypes.bfloat16) else 15
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-most, most, shape)
    return (x + 1j * x[::-1] if np.dtype(dtype).kind == "c" else x).astype(dtype)


def cut(rng, n):
    """Random chunks of n elements, of which some may be empty."""
    at = np.sort(rng.integers(0, n + 1, rng.integers(0, 5)))
    return tuple(np.diff([0, *at, n]).tolist())


def same(lazy, right):
    found = lazy.compute()
    assert lazy.dtype == found.dtype == right.dtype and lazy.shape == found.shape == right.shape
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_chunks_have_the_bits_of_the_whole_array(dtype):
    rng = np.random.default_rng(DTYPES.index(dtype))
    array = numbers(rng, dtype, (12, 9, 10))
    for axis in (0, 1, -1, None):
        right = exact.cumsum(array, axis)
        for _ in range(2):
            x = da.from_array(array, chunks=tuple(cut(rng, n) for n in array.shape))
            same(gd.cumsum(x, axis), right)


@pytest.mark.parametrize(("dtype", "wanted"), CASTS)
def test_casts_round_the_entries_alone(dtype, wanted):
    array = numbers(np.random.default_rng(1), dtype, (30, 4))
    for chunks in ((7, 2), (30, 4), 1):
        same(gd.cumsum(da.from_array(array, chunks=chunks), 0, wanted),
             exact.cumsum(array, 0, wanted))  # fmt: skip


def test_entries_are_fractions_rounded_once():
    rng = np.random.default_rng(2)
    array = rng.standard_normal(200) * 10.0 ** rng.integers(-200, 200, 200)
    array[150:] = -array[:50]
    sums = [float(sum(map(Fraction, array[: i + 1].tolist()))) for i in range(200)]
    for chunks in (1, 7, 64, 200):
        assert gd.cumsum(da.from_array(array, chunks=chunks)).compute().tolist() == sums


@pytest.mark.parametrize("values", [
    [1.0, np.inf, 2.0, -np.inf, 1.0], [1.0, np.nan, 2.0, np.inf, 1.0], [np.inf, 1e308, 1e308, 1, 1],
    [1.5e308, 1.5e308, -1.5e308, -1.5e308, 3.0], [-0.0, -0.0, 0.0, 1.0, -1.0],
])  # fmt: skip
def test_edges(values):
    x = np.array(values)
    for chunks in (1, 2, 3, ((0, 1, 0, 4, 0),)):
        found = gd.cumsum(da.from_array(x, chunks=chunks)).compute()
        assert found.tobytes() == exact.cumsum(x).tobytes()


def test_empty_arrays_lists_and_unknown_chunks():
    for shape, chunks in (((0, 3), (1, 2)), ((3, 0), (2, 1)), ((0,), (1,))):
        for axis in range(len(shape)):
            same(gd.cumsum(da.zeros(shape, chunks=chunks), axis), np.zeros(shape))
    same(gd.cumsum([1, 2, 3]), np.array([1, 3, 6]))
    same(gd.cumsum(2.5), np.array([2.5]))
    x = np.random.default_rng(3).standard_normal(100)
    lazy = da.from_array(x, chunks=13)
    right = exact.cumsum(x[x > 0])
    np.testing.assert_array_equal(gd.cumsum(lazy[lazy > 0]).compute(), right)


def test_each_chunk_is_computed_once():
    computed = []

    def made(block):
        computed.append(block.shape)
        return block

    x = da.ones((40, 6), chunks=(9, 3)).map_blocks(made, meta=np.empty((0, 0)))
    lazy = gd.cumsum(x, 0)
    assert computed == [] and lazy.chunks == x.chunks
    assert lazy[-1, -1].compute() == 40 and len(computed) == 5  # the other column is not needed
    del computed[:]
    lazy.compute()
    assert len(computed) == 10


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: gd.cumsum(da.ones((2, 2)), 2), np.exceptions.AxisError, "axis 2"),
    (lambda: gd.cumsum(da.ones((2, 2)), (0, 1)), TypeError, "axis must be a whole number"),
    (lambda: gd.cumsum(da.ones(2), dtype="i4"), TypeError, "float or complex"),
    (lambda: gd.cumsum(da.ones(2, dtype="c8"), dtype="f4"), TypeError, "imaginary"),
    (lambda: gd.cumsum(da.from_array(np.array(["a"]))), TypeError, "cannot be summed"),
])  # fmt: skip
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
