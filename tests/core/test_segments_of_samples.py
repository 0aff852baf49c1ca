"""Sums by segment of many values, whose words are planned by a sample of these."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import numpy_dtype

N = 1 << 21  # of which every other part of 32 packs is in the sample


def place_out_of_the_sample(dtype):
    """In the third part from the end."""
    return N - 96 * 16 // numpy_dtype(dtype).itemsize + 3


def assert_as_by_processors(values, count, seed=0):
    ids = np.random.default_rng(seed).integers(0, count, len(values))
    if values.ndim == 1:  # two rare values have sums of their own
        ids[place_out_of_the_sample(values.dtype.name) :][:2] = count, count + 1
    how = {"num_segments": count + 2}
    expected = gpureduce.segment_sum(values, ids, device="cpu", **how).value
    found = gpureduce.segment_sum(values, ids, device="emulator", **how).value
    assert found.tobytes() == expected.tobytes()


def usual(dtype, scale=1.0):
    rng = np.random.default_rng(1)
    return (rng.standard_normal(N) * scale).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_as_the_sample(dtype):
    assert_as_by_processors(usual(dtype), 40_000)


@pytest.mark.parametrize(
    ("dtype", "count"),
    [("float16", 40_000), ("bfloat16", 600_000), ("float32", 40_000), ("float64", 40_000)],
)
@pytest.mark.parametrize("rare", ["large", "small", "inf"])
def test_a_value_beyond_the_sample(dtype, count, rare):
    values = usual(dtype, 2.0**-3)
    limits = {"float16": (2.0**15, 2.0**-24), "bfloat16": (2.0**120, 2.0**-130),
              "float32": (2.0**120, 2.0**-149), "float64": (2.0**1000, 2.0**-1074)}  # fmt: skip
    large, small = limits[dtype]
    at = place_out_of_the_sample(dtype)
    values[at] = {"large": large, "small": small, "inf": np.inf}[rare]
    assert_as_by_processors(values, count)


@pytest.mark.parametrize("up", range(-2, 16, 6))
def test_values_at_the_ends_of_the_words(up):
    """Bits that words just hold, or just do not, above and below those of the sample."""
    values = np.ones(N, np.float32)
    at = place_out_of_the_sample("float32")
    values[at], values[at + 1] = 2.0**up, 2.0**-up
    assert_as_by_processors(values, 200_000, up + 9)
    values[at], values[at + 1] = 2.0 ** (up + 24), 2.0 ** (-up - 24)
    assert_as_by_processors(values, 90_000, up + 9)


def test_only_zeros_in_the_sample():
    values = np.zeros(N, np.float32)
    values[place_out_of_the_sample("float32")] = 1.5
    assert_as_by_processors(values, 200_000)


def test_rows_and_gaps():
    values = usual("float32").reshape(-1, 8)
    values[place_out_of_the_sample("float32") // 8] = 2.0**90
    assert_as_by_processors(values, 9000)
    assert_as_by_processors(values[:, ::2], 9000)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_that_overflow_a_word_planned_by_a_sample(dtype):
    """All of one sign, and a segment that is far longer than the others."""
    values = np.abs(usual(dtype)) + 1
    ids = np.random.default_rng(2).integers(0, 300_000, N)
    ids[: N // 2] = 5
    how = {"num_segments": 300_000}
    expected = gpureduce.segment_sum(values, ids, device="cpu", **how).value
    found = gpureduce.segment_sum(values, ids, device="emulator", **how).value
    assert found.tobytes() == expected.tobytes()


def test_sums_of_a_frequent_id_are_added_up_once():
    """A long sum needs the bits of a checked word that a sample would leave to small values."""
    values, rng = usual("float32"), np.random.default_rng(3)
    launches = []
    for frequent in (0, 0.5):
        ids = rng.integers(0, 40_000, N)
        ids[rng.random(N) < frequent] = 20_000
        how = {"num_segments": 40_000}
        found = gpureduce.segment_sum(values, ids, device="emulator", **how)
        expected = gpureduce.segment_sum(values, ids, device="cpu", **how).value
        assert found.value.tobytes() == expected.tobytes()
        launches.append(found.timing.launches)
    assert launches[0] == launches[1]
