"""Fuzz exact sums by segment against the integer oracle, for as long as you like.

    python tools/fuzz_segments.py --segments 100000
    python tools/fuzz_segments.py --device emulator

Each batch of rows becomes a batch of segments: shuffled with ids of several dtypes, in order with
offsets, as vectors of three columns, beside segments of ordinary numbers, and strided. Prints one
line per dtype. The exit status is 0 if all sums were right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import gpureduce
from exact_cases import FLOATS, FORMATS, Array, Format, batches, expected_rows, normal

ID_DTYPES = ["int16", "uint16", "int32", "uint32", "int64", "uint64", ">i4"]
FEW, ORDINARY = 8, 300  # segments of a batch, and of ordinary numbers beside them


DEVICE: str | None = None  # where sums are added up: --device


def segment_sum(values: Array, ids: Array, count: int) -> Array:
    found = gpureduce.segment_sum(values, ids, num_segments=count, device=DEVICE)
    return np.asarray(found.value)


def ways(fmt: Format, rows: Array, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """The sums of rows, or of the first rows, as segments, in the order of the rows."""
    count, n = rows.shape
    flat, ids = rows.reshape(-1), np.repeat(np.arange(count), n)
    order = rng.permutation(flat.size)
    kind = ID_DTYPES[rng.integers(len(ID_DTYPES))]
    yield "shuffled", segment_sum(flat[order], ids[order].astype(kind), count)
    offsets = np.arange(count + 1) * n
    yield "offsets", gpureduce.segment_sum(flat, offsets=offsets, device=DEVICE).value
    wide = np.repeat(flat, 2)[::2]
    yield "strided", segment_sum(wide[::-1], np.repeat(ids, 2)[::-2], count)
    vectors = np.stack([rows, rows[::-1], rows], axis=-1).reshape(-1, 3)
    found = segment_sum(vectors[order], ids[order], count)
    yield "first of columns", found[:, 0]
    yield "second of columns", found[::-1, 1]
    some = rows[:FEW]
    more = normal(fmt, rng, ORDINARY, 2 * n).reshape(-1)
    both = np.concatenate([some.reshape(-1), more])
    more_ids = len(some) + np.arange(more.size) % ORDINARY
    both_ids, mixed = np.concatenate([ids[: some.size], more_ids]), rng.permutation(both.size)
    count = len(some) + ORDINARY
    yield "beside ordinary", segment_sum(both[mixed], both_ids[mixed], count)[: len(some)]


def fuzz(name: str, count: int, seed: int) -> tuple[int, int]:
    """Adds up `count` segments. Returns the numbers of segments and of wrong sums."""
    fmt, rng = FORMATS[name], np.random.default_rng(seed)
    done = wrong = 0
    for label, rows in batches(name, count, seed):
        expected = np.array(expected_rows(fmt, rows), np.uint64).astype(fmt.word)
        for way, found in ways(fmt, rows, rng):
            bad = np.flatnonzero(fmt.bits(found) != expected[: len(found)])
            wrong += len(bad)
            for i in bad[:3]:
                print(f"{name} {label} {way}: {fmt.bits(rows[i]).tolist()}: {found[i]!r}")
        done += len(rows)
    return done, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=10_000, help="per dtype")
    parser.add_argument("--dtypes", nargs="+", default=FLOATS, choices=FLOATS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", help="cuda or emulator; by default the processors")
    arguments = parser.parse_args()
    global DEVICE
    DEVICE = arguments.device
    failed = 0
    for name in arguments.dtypes:
        start = time.monotonic()
        segments, wrong = fuzz(name, arguments.segments, arguments.seed)
        failed += wrong
        seconds = time.monotonic() - start
        print(f"{name}: {segments} segments, 6 ways, {wrong} wrong, {seconds:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
