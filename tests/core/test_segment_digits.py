"""gpureduce.segment_digits: sums by segment that any integer all-reduce merges."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce
from cases import array_of
from gpureduce import Accumulator, _host

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128",
          "bool", "int8", "int64", "uint64"]  # fmt: skip
K = 7


def data(dtype, n):
    if not dtype.startswith("complex"):
        return array_of(dtype, n)
    part = {"complex64": "float32", "complex128": "float64"}[dtype]
    return (array_of(part, n) - 1j * array_of(part, n, 1)).astype(dtype)


def wide(n, seed=0):
    """Numbers of all exponents, subnormal ones among them."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n) * 2.0 ** rng.integers(-1074, 1020, n)


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
@pytest.mark.parametrize("dtype", DTYPES)
def test_digits_are_those_of_accumulators(dtype, shape):
    values = data(dtype, 600).reshape(shape)
    ids = np.random.default_rng(2).integers(0, K - 1, len(values))  # the last one has no elements
    words = gpureduce.segment_digits(values, ids, num_segments=K)
    assert words.dtype == np.int64
    assert np.array_equal(words, by_accumulators(values, ids, K))
    order = np.argsort(ids, kind="stable")
    offsets = np.searchsorted(ids[order], np.arange(K + 1))
    assert np.array_equal(gpureduce.segment_digits(values[order], offsets=offsets), words)
    swapped = values.astype(values.dtype.newbyteorder())[::-1]
    assert np.array_equal(gpureduce.segment_digits(swapped, ids[::-1], num_segments=K), words)


@pytest.mark.parametrize("dtype", DTYPES)
def test_added_digits_have_the_bits_of_one_sum(dtype):
    """Each of several workers has some elements of every segment; one has none."""
    values, ids = data(dtype, 5000), np.random.default_rng(3).integers(0, K, 5000)
    dtype_of_sums = "float64" if values.dtype.kind in "biu" else None
    whole = gpureduce.segment_sum(values, ids, num_segments=K, dtype=dtype_of_sums).value
    for workers in (1, 2, 5):
        of = np.random.default_rng(workers).integers(0, workers, 5000)
        total = sum(
            gpureduce.segment_digits(values[of == i], ids[of == i], num_segments=K)
            for i in range(workers + 1)
        )
        found = gpureduce.from_digits(total)
        assert found.dtype == whole.dtype and found.tobytes() == whole.tobytes()


@pytest.mark.parametrize("columns", [1, 3])
def test_numbers_of_any_exponents(columns):
    """They fit no 128-bit integers; nor do a few of them beside many that do."""
    n = 3000 * columns
    for values in (wide(n), np.append(array_of("float64", n - 3), [1e300, 5e-324, -1e-300])):
        rows = values.reshape(-1, columns)
        ids = np.random.default_rng(4).integers(0, K, len(rows))
        words = gpureduce.segment_digits(rows, ids, num_segments=K)
        assert np.array_equal(words, by_accumulators(rows, ids, K))


def test_inf_and_nan():
    values = np.array([np.inf, 1, np.inf, -np.inf, np.nan, 2, -np.inf, 1e308, 1e308])
    ids = np.array([0, 0, 1, 1, 2, 3, 4, 5, 5])
    for many in (values, np.concatenate([values, wide(4000)])):
        own = np.concatenate([ids, np.full(len(many) - len(ids), 6)])
        words = gpureduce.segment_digits(many, own, num_segments=K)
        assert np.array_equal(words, by_accumulators(many, own, K))
        right = gpureduce.segment_sum(many, own, num_segments=K).value
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


@settings(deadline=None)  # other programs may run
@given(st.lists(st.tuples(st.floats(), st.integers(0, 2)), max_size=12), st.integers(1, 4))
def test_any_floats(pairs, workers):
    values = np.array([x for x, _ in pairs], np.float64)
    ids = np.array([k for _, k in pairs], np.int64)
    total = sum(
        gpureduce.segment_digits(values[i::workers], ids[i::workers], num_segments=3)
        for i in range(workers)
    )
    right = gpureduce.segment_sum(values, ids, num_segments=3).value
    assert gpureduce.from_digits(total).tobytes() == right.tobytes()


def test_nothing_to_add():
    for ids, shape, right in (
        (np.empty(0, int), (0,), (4, 75)),
        (np.empty(0, int), (0, 2), (4, 2, 75)),
        (np.zeros(3, int), (3, 0), (4, 0, 75)),
    ):
        words = gpureduce.segment_digits(np.ones(shape), ids, num_segments=4)
        assert words.shape == right
        assert not gpureduce.from_digits(words).any()
    assert gpureduce.segment_digits([], offsets=[0]).shape == (0, 75)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda f: f([1.0], [0]), TypeError, "takes num_segments with segment_ids"),
        (lambda f: f([1.0]), TypeError, "either segment_ids or offsets, not neither"),
        (lambda f: f([1.0, 2], [0, 2], num_segments=2), ValueError, r"segment_ids\[1\] is 2"),
        (lambda f: f([1.0, 2], [0], num_segments=2), ValueError, "1 segment_ids for 2 rows"),
        (lambda f: f([1.0, 2], offsets=[0, 1]), ValueError, "offsets"),
        (lambda f: f([1.0], [0], num_segments=-1), ValueError, "num_segments"),
        (lambda f: f([1.0], [0], num_segments=2**60), MemoryError, "num_segments="),
        (lambda f: f(np.ones((1, 1, 1)), [0], num_segments=1), ValueError, "1 or 2 dimensions"),
        (lambda f: f(["a"], [0], num_segments=1), TypeError, "cannot be summed"),
        (lambda f: f([1.0], [0.0], num_segments=1), TypeError, "must be integers"),
    ],
)
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call(gpureduce.segment_digits)
    assert gpureduce.from_digits(gpureduce.segment_digits([1.0], [0], num_segments=1)) == [1]


def test_c_checks_the_array_of_digits():
    ids = np.zeros(10, np.int64)
    layout = (_host.LOAD_F64, 1, False, _host.LOAD_F64, 1, True)
    good = np.zeros((2, 75), np.int64)
    for words, how in (
        (good[:, :74].copy(), layout),
        (good.astype(np.float64), layout),
        (np.zeros((75, 2), np.int64).T, layout),
        (np.zeros((2, 1, 75), np.int64), layout),
        (np.zeros((2, 146), np.int64), (*layout[:4], 2, True)),
    ):
        with pytest.raises(ValueError, match="changed its shape"):
            _host.sum_segments(np.ones(10), ids, None, words, how, ((), ()))
    _host.sum_segments(np.ones(10), ids, None, good, layout, ((), ()))
    assert good[0, 0] == good[1, 0] == 2**32 + 1
