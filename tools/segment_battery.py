"""The sums by segment that find faults in integer arithmetic: see segment_mutants.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def cases() -> Iterator[tuple[str, Array, Array, int, str, float]]:
    """Name, values, ids, number of segments, dtype of the sums, and initial number."""
    rng = np.random.default_rng(5)
    for dtype in ("float32", "float64"):
        part = np.dtype(dtype)
        info = np.finfo(part)
        digits = info.nmant + 1
        some = rng.standard_normal(3000).astype(part)
        for count in (3, 2500):
            ids = rng.integers(0, count, 3000)
            yield "normal", some, ids, count, dtype, 0
            yield "with an initial number", some, ids, count, dtype, 0.1
            bits = rng.integers(0, 2 ** (8 * part.itemsize) - 1, 3000, f"u{part.itemsize}",
                                endpoint=True).view(part)  # fmt: skip
            yield "any bits", bits, ids, count, dtype, 0
            yield "any finite bits", np.where(np.isfinite(bits), bits, 1), ids, count, dtype, 0
            signs = np.where(rng.random(3000) < 0.5, -1, 1)
            tiny = (rng.integers(0, 9, 3000) * info.smallest_subnormal * signs).astype(part)
            yield "subnormal", tiny, ids, count, dtype, 0
            mixed = tiny + (rng.random(3000) < 0.3) * info.smallest_normal
            yield "about the least normal", mixed.astype(part), ids, count, dtype, 0
            large = np.where(rng.random(3000) < 0.5, info.max, -info.max / 3).astype(part)
            yield "large", large, ids, count, dtype, 0
            special = some.copy()
            special[[7, 400, 900, 1400]] = np.inf, -np.inf, np.nan, np.inf
            yield "special", special, ids, count, dtype, 0
            apart = np.where(np.arange(3000) % 50 == 3, special * 2.0**-40, special)
            yield "special, of two sizes", apart.astype(part), ids, count, dtype, 0
            wide = (some * 2.0 ** rng.integers(-60, 60, 3000)).astype(part)
            yield "wide", wide, ids, count, dtype, 0
            few_bits = rng.integers(-9, 10, 3000) * np.where(rng.random(3000) < 0.01, 2.0**70, 1)
            yield "few bits", few_bits.astype(part), ids, count, dtype, 0
            for k in range(20, 70, 7):
                rows = [1, 2.0**-digits, 2.0**-k, 1 + float(info.eps), 2.0**-digits, -(2.0**-k)]
                ties = np.array(rows * 30, part)
                yield "ties", ties, np.repeat(np.arange(60), 3), max(60, count), dtype, 0
                yield "negative ties", -ties, np.repeat(np.arange(60), 3), max(60, count), dtype, 0
        full = 2.0**digits - 1  # all bits are set
        n = 1 << 12
        # A word has 51 bits of a value, and a checked one 57. One that overlaps others has 28, for
        # the lowest bits of values of 24: those of 79 and 107 bits fill it.
        widths = {*range(digits, 128, 6), 51, 52, 57, 58, 79, 80, 102, 103, 107, 108, 109}
        for width in sorted(width for width in widths if width >= digits):
            high = (full * 2.0 ** (width - digits)) * np.ones(n)
            for share in (0.0, 0.4):
                values = np.where(rng.random(n) < share, 1.0, high).astype(part)
                values[0] = 1
                for count in (3, 300):
                    yield f"{width} bits, equal ids", values, np.zeros(n, int), count, dtype, 0
                    scattered = np.where(np.arange(n) % 32 == 0, 0, 1 + np.arange(n) % 2)
                    yield f"{width} bits", values, scattered, count, dtype, 0
        # The bits far below an even mantissa and half a unit, in another word.
        half = np.array([2.0**60, 2.0 ** (60 - digits), 2.0**-30], part)
        yield "far below", np.tile(half, 100), np.repeat(np.arange(100), 3), 100, dtype, 0
        lanes = np.where(np.arange(1 << 14) % 32 == 0, full * 2.0**33, 1.0).astype(part)
        ids = np.where(np.arange(1 << 14) % 32 == 0, 0, 1)
        yield "a copy overflows", lanes, ids, 3, dtype, 0
        low = np.array([1.0, 2.0 ** (digits - 2) + 0.5, 1.0, 2.0 ** (digits - 2) + 0.5], part)
        yield "the lowest bit", low, np.array([0, 1, 0, 1]), 2, dtype, 0
        narrow = "float16" if dtype == "float32" else "float32"
        least = float(np.finfo(narrow).smallest_subnormal)
        shares = np.array([0.25, 0.4999, 0.5, 0.5001, 0.75, 1, 1.4999, 1.5, 1.5001, 2.5])
        few = np.concatenate([shares, -shares]) * least
        yield "narrow", few.astype(part), np.arange(few.size), few.size, narrow, 0
        above = np.array([1, float(np.finfo(narrow).eps) / 2, 2.0**-70], part)
        yield "little more than a tie", np.tile(above, 50), np.arange(150) // 3, 50, narrow, 0
        much = np.array([float(np.finfo(narrow).max)] * 2 + [1.0], part)
        yield "too much for the narrow", much, np.array([0, 0, 1]), 2, narrow, 0
    # Each warp that adds up sorted ids gets several strips of 256 rows.
    lengths = np.resize([1, 3, 700, 2, 90, 90, 2500, 1, 256, 40], 150)
    some = rng.standard_normal(int(lengths.sum())).astype(np.float32)
    runs = np.repeat(np.arange(150), lengths)
    yield "runs", some, runs, 150, "float32", 0
    wide = some * 2.0 ** np.where(rng.random(some.size) < 0.02, 40, rng.integers(0, 12, some.size))
    yield "runs of two sizes", wide.astype(np.float32), runs, 150, "float32", 0
    apart = some * 2.0 ** (np.arange(some.size) // 128 % 3 * 30)
    yield "runs, changing sizes", apart.astype(np.float32), runs, 150, "float32", 0
    # Two strips whose sums are exact, but not the sum of both: a tie, and little more.
    tie = np.zeros(40_000, np.float32)
    tie[254::512], tie[255::512], tie[256::512] = 1024, 1 + 2.0**-14, 2.0**-60
    half_runs = (np.arange(40_000) + 64) // 128
    yield "a run of two strips", tie, half_runs, int(half_runs[-1]) + 1, "float32", 0
    # The elements that segments/pairs.c samples span what a pair of words can hold, and all others
    # are twice as large. With segment_mutants.py's two zeros there are 62 for each sample, and as
    # many as a pair of this window takes.
    sampled = np.arange(64) * 62 + np.arange(64) * 7919 % 62
    for gap in range(60, 66):
        most = 2 - 2.0**-52
        apart = np.full(4096 - 65 - 2, most * 2.0 ** (gap + 1))
        apart[sampled] = np.where(np.arange(64) % 2, most * 2.0**gap, 1 + 2.0**-52)
        yield f"{gap} binades apart", apart, np.zeros(apart.size, int), 1, "float64", 0
    steps = 10.0 ** np.array([300, 200, 100, 0, -100, -200])  # too wide to be proven
    left = np.arange(-150, 150) * 5e-324
    sums = np.concatenate([np.concatenate([steps, [x], -steps]) for x in left])
    yield "subnormal sums of anything", sums, np.repeat(np.arange(300), 13), 300, "float64", 0
    carries = np.zeros(4096, np.int64)
    carries[:32], carries[32:64] = 2**32 - 2, 1
    yield "sums of 2^32 - 1", carries, np.zeros(4096, int), 3, "int64", 0
    random = rng.integers(-(2**62), 2**62, 4096)
    yield "integers", random, rng.integers(0, 3, 4096), 3, "int64", 0
