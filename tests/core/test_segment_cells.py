"""The cells in which processors add up floats by segment: of 64 and of 128 bits."""

from __future__ import annotations

import numpy as np
import pytest
from test_segments import assert_same, segment_by_segment, segment_sum

from cases import numpy_dtype
from exact_cases import FLOATS, FORMATS, expected_bits, short_sums


@pytest.mark.parametrize("gap", [0, *range(13, 24)])
def test_numbers_as_far_apart_as_a_short_cell_can_hold(gap):
    n = 2**20 - 65
    values = np.full(n, (2 - 2.0**-23) * 2.0**gap, np.float32)
    values[::20] = 1 + 2.0**-23
    small = len(values[::20])
    whole = small * (2**23 + 1) + (n - small) * ((2**24 - 1) << gap)
    ids = np.broadcast_to(np.int8(0), n)
    assert segment_sum(values, ids, dtype="f8").tolist() == [whole / 2**23]
    assert segment_sum(-values, ids, dtype="f8").tolist() == [-whole / 2**23]
    with_initial = float(np.float32((whole + 2**21) / 2**23))
    assert segment_sum(values, ids, initial=0.25).tolist() == [with_initial]
    rows = np.stack([values, -values, np.zeros_like(values)], axis=1)
    assert segment_sum(rows, ids, dtype="f8").tolist() == [[whole / 2**23, -whole / 2**23, 0]]


@pytest.mark.parametrize("power", [12, 40, 100])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_exponents_that_a_sample_does_not_show(dtype, power):
    """Few such numbers are outliers. If there are many, others than short cells add up."""
    kind = numpy_dtype(dtype)
    rng = np.random.default_rng(15)
    n, count = 512 * 400, 700
    some = rng.uniform(1, 2, n)
    ids = rng.integers(0, count, n)
    step, places = n // 512, np.arange(512)
    unsampled = places * step + (places * 7919 + 1) % step
    many = (unsampled[:, None] + np.arange(20)).reshape(-1)
    many = many[(many % step != many // step * 7919 % step) & (many < n)]
    for where in (unsampled[:3], unsampled, many):
        values = some.copy()
        values[where] *= 2.0 ** (rng.integers(-1, 2, len(where)) * power)
        with np.errstate(over="ignore"):
            values = values.astype(kind)
        values[where[0]], values[where[1]] = np.inf, np.nan
        assert_same(segment_sum(values, ids), segment_by_segment(values, ids, count))


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_sums_at_all_places_of_a_pair(dtype, target):
    """Zeros, powers of two and their neighbours, ties and nearly ties, of 1 to 120 bits."""
    rows = short_sums(np.random.default_rng(12), 9001, dtype)
    ids = np.repeat(np.arange(len(rows)), 4)
    found = segment_sum(rows.reshape(-1), ids, dtype=target)
    assert FORMATS[target].bits(found).tolist() == [expected_bits(row, target) for row in rows]
    initial = segment_sum(rows.reshape(-1), ids, dtype=target, initial=1.5)
    more = np.hstack([rows, np.full((len(rows), 1), 1.5, dtype)])
    assert FORMATS[target].bits(initial).tolist() == [expected_bits(row, target) for row in more]
