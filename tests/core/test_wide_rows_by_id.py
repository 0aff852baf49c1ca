"""Sums by segment of long rows by kernels: rows of unsorted ids are put in order first."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import numpy_dtype
from exact_cases import FORMATS, GENERATORS, expected_rows
from producers import ByDLPack

DTYPES = ["int8", "int32", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"]


def by_kernels(values, ids, **how):
    return gpureduce.segment_sum(values, ids, device="emulator", **how).value


def assert_as_by_processors(values, ids, **how):
    expected = gpureduce.segment_sum(values, ids, device="cpu", **how).value
    found = by_kernels(values, ids, **how)
    assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def numbers(rng, dtype, shape):
    if numpy_dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    found = rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)
    return found.astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [31, 32, 33, 64, 100, 257])
def test_any_dtype_and_length(dtype, d):
    rng = np.random.default_rng(d)
    for n, count in ((1, 1), (31, 4), (33, 1000), (700, 7), (2500, 2)):
        values, ids = numbers(rng, dtype, (n, d)), rng.integers(0, count, n)
        assert_as_by_processors(values, ids, num_segments=count + 3)
        assert_as_by_processors(values[::-1, ::2], ids[::-1], num_segments=count, initial=3)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("how", ["half", "one", "runs", "sorted", "falling"])
def test_any_ids(dtype, how):
    """One id of most rows, one for all, and ids that are in order, or in the wrong one."""
    rng = np.random.default_rng(6)
    n, count = 1500, 100 if how != "one" else 1
    ids = rng.integers(0, count, n).astype(dtype)
    ids[rng.random(n) < {"half": 0.5, "one": 1}.get(how, 0)] = count // 2
    ids = np.sort(ids) if how in ("sorted", "falling") else ids
    ids = ids[::-1] if how == "falling" else np.repeat(ids[::50], 50) if how == "runs" else ids
    values = numbers(rng, "float32", (n, 40))
    assert_as_by_processors(values, ids, num_segments=count)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_many_rows_are_tried_for_being_sorted(is_sorted):
    rng = np.random.default_rng(7)
    ids = rng.integers(0, 300, 1 << 16)
    values = numbers(rng, "float32", (ids.size, 32))
    assert_as_by_processors(values, np.sort(ids) if is_sorted else ids, num_segments=300)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("generate", GENERATORS, ids=lambda g: g.__name__)
def test_hard_sums_are_rounded_once(generate, dtype):
    """What the float64 sums cannot prove is added up in digits, in the same order of rows."""
    fmt, rng = FORMATS[dtype], np.random.default_rng(8)
    rows = generate(fmt, rng, 20 * 64, 9).reshape(20, 64, 9)
    values, ids = rows.swapaxes(1, 2).reshape(-1, 64), np.repeat(np.arange(20), 9)
    order = rng.permutation(ids.size)
    found = by_kernels(values[order], ids[order], num_segments=20)
    assert fmt.bits(found).reshape(-1).tolist() == expected_rows(fmt, rows.reshape(-1, 9))


@pytest.mark.parametrize("order", ["forward", "reverse", "lockstep", "random"])
def test_no_sum_depends_on_the_order_of_threads(order):
    rng = np.random.default_rng(9)
    for n, count in ((300, 12), (2500, 2)):  # few segments are counted in shared memory
        values, ids = numbers(rng, "float32", (n, 40)), rng.integers(0, count, n)
        how = {"num_segments": count}
        expected = gpureduce.segment_sum(values, ids, **how).value.tobytes()
        for strategy in ("exact", "fast"):
            with gpureduce.emulator.schedule(order, seed=3):
                assert by_kernels(values, ids, strategy=strategy, **how).tobytes() == expected


@pytest.mark.parametrize("n", [500, 70_000])
def test_the_first_wrong_id_is_named_and_nothing_is_written(n):
    rng = np.random.default_rng(10)
    ids, out = rng.integers(0, 50, n), np.full((50, 32), 7.0, np.float32)
    values = np.ones((n, 32), np.float32)
    for wrong in (50, -1, 2**62):
        bad = ids.copy()
        bad[[n // 3, n // 2, n - 1]] = wrong
        with pytest.raises(ValueError, match=rf"segment_ids\[{n // 3}\] is {wrong}, "):
            by_kernels(values, bad, num_segments=50, out=out)
    assert (out == 7).all()
    assert by_kernels(values, ids, num_segments=50, out=out).sum() == n * 32


def test_arrays_on_a_device_may_have_steps_of_any_sign():
    rng = np.random.default_rng(11)
    values, ids = numbers(rng, "float64", (90, 60)), rng.integers(0, 9, 180)
    found = gpureduce.segment_sum(
        ByDLPack(values[::-1, 40::-1]), ByDLPack(ids[::2]), num_segments=9, device="emulator"
    )
    expected = gpureduce.segment_sum(values[::-1, 40::-1], ids[::2], num_segments=9).value
    assert found.value.to_numpy().tobytes() == expected.tobytes()


def test_digits_take_the_way_by_words():
    rng = np.random.default_rng(12)
    values, ids = numbers(rng, "float32", (200, 30)), rng.integers(0, 5, 200)
    found = gpureduce.segment_digits(
        ByDLPack(values), ByDLPack(ids), num_segments=5, device="emulator"
    )
    expected = gpureduce.segment_digits(values, ids, num_segments=5)
    assert np.array_equal(found.to_numpy(), expected)
