"""What holds for sums by segment wherever they are made: by processors, and by kernels.

tests/core/test_segments_on_card.py has the same for a card.
"""

from __future__ import annotations

import itertools
import os

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from axis_cases import random_array
from cases import numpy_dtype
from exact_cases import FORMATS, GENERATORS, expected_rows

WHERE = ["cpu", "emulator"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
EXAMPLES = int(os.environ.get("GPUREDUCE_SEGMENT_EXAMPLES", "60"))  # as other tests have it
INDEXES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
pytestmark = pytest.mark.parametrize("device", WHERE)


def segment_sum(values, ids=None, **how):
    return gpureduce.segment_sum(values, ids, **how).value


def segment_by_segment(values, ids, count):
    """The same by a sum for each segment and column."""
    rows = [gpureduce.sum(values[ids == k], "auto", axis=0).value for k in range(count)]
    return np.array(rows).reshape((count, *values.shape[1:]))


def in_order(values, ids, count):
    """The elements segment by segment, and their offsets."""
    order = np.argsort(ids, kind="stable")
    return values[order], np.searchsorted(ids[order], np.arange(count + 1))


def assert_same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes(), (found, expected)


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64"])
@pytest.mark.parametrize("count", [7, 700])
def test_1000_runs_of_shuffled_elements_have_one_bit_pattern(device, count, dtype):
    rng = np.random.default_rng(13)
    wide = rng.standard_normal(600) * 2.0 ** rng.integers(-12, 12, 600)
    values = (wide + 1j * wide[::-1] if dtype == "complex64" else wide).astype(numpy_dtype(dtype))
    ids = rng.integers(0, count, 600)
    how = {"num_segments": count, "device": device}
    first = segment_sum(values, ids, **how).tobytes()
    for i in range(1000):
        order = rng.permutation(600)
        threads = ("forward", "reverse", "lockstep", "random")[i % 4] if i % 50 == 0 else "random"
        with gpureduce.emulator.schedule(threads, seed=i):
            assert segment_sum(values[order], ids[order], **how).tobytes() == first


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [None, 3])
def test_nan_and_infinities_stay_in_their_segments(device, columns, dtype):
    """Every set of special elements has a segment of its own, beside one without any."""
    specials = (np.inf, -np.inf, np.nan)
    sets = [[x for i, x in enumerate(specials) if s >> i & 1] for s in range(8)]
    rows = [[1.5, -2.25, 0.75, *some] * 2 for some in sets]
    values = np.concatenate([np.array(row, numpy_dtype(dtype)) for row in rows])
    ids = np.concatenate([np.full(len(row), i) for i, row in enumerate(rows)])
    expected = np.array([0, np.inf, -np.inf, *[np.nan] * 5])
    if columns:
        values, expected = (np.repeat(x[:, None], columns, 1) for x in (values, expected))
    order = np.random.default_rng(14).permutation(ids.size)
    for count in (8, 900):
        found = segment_sum(values[order], ids[order], num_segments=count, device=device)
        assert np.array_equal(found[:8].astype(np.float64), expected, equal_nan=True)
        assert not found[8:].any()
    found = segment_sum(values, offsets=np.searchsorted(ids, np.arange(9)), device=device)
    assert np.array_equal(found.astype(np.float64), expected, equal_nan=True)


@pytest.mark.parametrize("d", [1, 2, 3, 31, 32, 33, 64, 255, 256, 511, 512, 513, 1000, 1023, 1024])
@pytest.mark.parametrize("dtype", ["int32", "float16", "float32", "float64"])
def test_rows_of_any_width(device, dtype, d):
    rng = np.random.default_rng(d)
    values, ids = random_array(rng, dtype, (60, d)), rng.integers(0, 9, 60)
    expected = segment_by_segment(values, ids, 9)
    assert_same(segment_sum(values, ids, num_segments=9, device=device), expected)
    ordered, offsets = in_order(values, ids, 9)
    assert_same(segment_sum(ordered, offsets=offsets, device=device), expected)


@pytest.mark.parametrize("index", INDEXES)
def test_ids_and_offsets_of_any_integer_dtype(device, index):
    rng = np.random.default_rng(15)
    values, ids = rng.standard_normal(120), rng.integers(0, 100, 120)
    expected = segment_by_segment(values, ids, 127)
    how = {"num_segments": 127, "device": device}
    assert_same(segment_sum(values, ids.astype(index), **how), expected)
    ordered, offsets = in_order(values, ids, 127)
    assert_same(segment_sum(ordered, offsets=offsets.astype(index), device=device), expected)


@pytest.mark.parametrize("index", INDEXES)
def test_an_id_out_of_range_of_any_integer_dtype_is_named(device, index):
    ids, out = np.zeros(500, index), np.full(100, 7.0)
    for wrong in {100, int(np.iinfo(index).max), int(np.iinfo(index).min)} - {0}:
        ids[[123, 400]] = wrong
        message = rf"segment_ids\[123\] is {wrong}, which is out of range"
        with pytest.raises(ValueError, match=message):
            segment_sum(np.ones(500), ids, num_segments=100, out=out, device=device)
    assert (out == 7).all()


def test_passes_over_ranges_of_segments_where_memory_is_short(device):
    """Kernels take a quarter of the free memory at most, and processors 64 MiB for few values."""
    rng = np.random.default_rng(16)
    count, n = 12_000_000, 3000
    ids = np.concatenate([rng.integers(0, count, n), [0, count - 1, count - 1, count // 2]])
    values = rng.standard_normal(ids.size) * 2.0 ** rng.integers(-30, 30, ids.size)
    used = np.unique(ids)
    expected = segment_by_segment(values, np.searchsorted(used, ids), used.size)
    launches = []
    for mib in (4096, 800):
        with gpureduce.emulator.memory_limit(mib << 20):
            found = gpureduce.segment_sum(values, ids, num_segments=count, device=device)
        assert_same(found.value[used], expected)
        assert np.count_nonzero(found.value) == np.count_nonzero(expected)
        launches.append(found.timing.launches)
    assert device == "cpu" or launches[1] > launches[0]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("power", [14, 22, 27])
def test_no_digit_overflows(device, power):
    """2^27 equal ids of the largest elements that a digit holds, and one that sets the lowest bit.

    csrc/shared/segment_sums.h proves it for kernels and any number of rows: 2^27 elements of 36
    bits stay just below 2^63. Of 57 bits a checked word overflows, and two words take its place.
    csrc/segments/pairs.c has the lemma for the processors. The ids have a stride of 0.
    """
    is_quick = device == "cpu" or power < 27
    if not is_quick and (EXAMPLES < 60 or gpureduce.build_info()["sanitize"]):
        pytest.skip("takes minutes")
    n, large = 1 << power, np.float32(2.0**30 - 2.0**6)
    values, ids = np.full(n, large), np.broadcast_to(np.int8(0), n)
    for bits in (63 - power, 57) if power < 27 else (63 - power,):
        smallest = 2.0 ** (30 - bits)
        values[n // 2] = smallest
        found = segment_sum(values, ids, num_segments=3, device=device, sorted=False)
        assert found.tolist() == [np.float32((n - 1) * float(large) + smallest), 0, 0]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("generate", GENERATORS, ids=lambda g: g.__name__)
def test_sums_of_many_words_are_rounded_once(device, generate, dtype):
    """Exponents of all sizes take up to 42 words for each sum, or two where a kernel needs few."""
    fmt, rng = FORMATS[dtype], np.random.default_rng(8)
    for n in (1, 2, 11):
        rows = generate(fmt, rng, 60, n)
        order = rng.permutation(rows.size)
        ids = np.repeat(np.arange(60), n)[order]
        found = segment_sum(rows.reshape(-1)[order], ids, num_segments=70, device=device)
        assert fmt.bits(found[:60]).tolist() == expected_rows(fmt, rows)
        assert not found[60:].any()


def hard_numbers(rng, dtype, n):
    """Numbers whose sums are hard to round: ties, cancellation, subnormal numbers, inf, nan."""
    info = ml_dtypes.finfo(numpy_dtype(dtype))
    half = 2.0 ** -(info.nmant + 1)
    choice = rng.choice([0.0, -0.0, 1.0, -1.0, half, -half, half * half, float(info.tiny)], n)
    found = np.where(rng.random(n) < 0.3, rng.standard_normal(n), choice)
    found[rng.random(n) < 0.002] = rng.choice([np.inf, -np.inf, np.nan])
    return found.astype(numpy_dtype(dtype))


@pytest.mark.parametrize("most", [3, 60, 120])
@pytest.mark.parametrize("dtype", FLOATS)
def test_segments_of_any_length_have_the_bits_of_their_own_sums(device, dtype, most):
    """Processors add up short, longer and long segments by other code."""
    rng = np.random.default_rng(most)
    lengths = rng.integers(0, most + 1, 400)
    lengths[rng.integers(0, 400, 4)] = rng.integers(180, 1200, 4)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = hard_numbers(rng, dtype, int(offsets[-1]))
    parts = [values[a:b] for a, b in itertools.pairwise(offsets)]
    for initial in (0, 0.1):
        expected = [gpureduce.sum(part, "exact", initial=initial).value for part in parts]
        found = segment_sum(values, offsets=offsets, initial=initial, device=device)
        nan = np.isnan(found)
        assert (nan == np.isnan(np.array(expected))).all()
        assert_same(found[~nan], np.array(expected, found.dtype)[~nan])
