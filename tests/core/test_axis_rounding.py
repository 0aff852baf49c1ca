"""Exact sums along an axis whose additions round, against those of each column alone."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import numpy_dtype


def columns(dtype, kind, rng, count):
    """Few rows of columns that float64 numbers do not add up exactly."""
    part = numpy_dtype(dtype)
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype]
    lowest = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}[dtype]
    first = 1 + rng.integers(0, 4, count) * 2.0 ** (1 - digits)
    half = 2.0**-digits * rng.choice([1, -1, 0.5, -0.5], count)
    rest = rng.choice([1, -1, 0], count) * 2.0 ** rng.integers(-60, -24, count)
    if dtype == "float16":
        rest = np.where(rng.random(count) < 0.5, 1, -1) * 2.0**-24
    rows = np.array([first, half, rest])
    if kind == "powers":
        rows[0] = 2.0 ** rng.integers(0, 3, count)
    if kind == "tiny":
        rows = rows * 2.0 ** (lowest + rng.integers(-2, 3, count))
    if kind == "large":
        rows = np.array([np.full(count, float(np.finfo(np.float32).max)), half * 2.0**128, rest])
    if kind == "narrow":  # subnormal float16 numbers
        middles = (rng.integers(1, 200, count) + 0.5) * 2.0**-24
        rows = np.array([middles, rng.choice([1, -1], count) * 2.0**-38, rest * 2.0**-30])
    if kind == "wide":
        rows = rng.standard_normal((5, count)) * 2.0 ** rng.integers(-60, 60, (5, count))
    with np.errstate(over="ignore", under="ignore"):
        return (rows * rng.choice([1, -1], count)).astype(part)


@pytest.mark.parametrize("kind", ["ties", "powers", "tiny", "large", "narrow", "wide"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_sums_that_need_a_proof_are_rounded_once(dtype, kind):
    array = columns(dtype, kind, np.random.default_rng(6), 500)
    for target in (dtype, "float16", "float32"):
        with np.errstate(all="ignore"):
            found = gpureduce.sum(array, "exact", axis=0, dtype=target).value
            rows = gpureduce.sum(np.ascontiguousarray(array.T), "exact", axis=1, dtype=target).value
            alone = [gpureduce.sum(column, "exact", dtype=target).value for column in array.T]
        want = np.array(alone, numpy_dtype(target))
        assert found.tobytes() == rows.tobytes() == want.tobytes()
