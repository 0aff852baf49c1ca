"""Fuzz exact sums along axes, or by segment, against the integer oracle, for as long as you like.

    python tools/fuzz_groups.py axis --rows 100000
    python tools/fuzz_groups.py segments --device emulator

Each batch of rows is added up in several ways. Along axes: as rows, as columns, as the columns of a
transposed array, and in random order. By segment: shuffled with ids of several dtypes, in order
with offsets, as vectors of three columns, beside segments of ordinary numbers, and strided. Prints
one line per dtype. The exit status is 0 if all sums were right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import gpureduce
from exact_cases import FLOATS, FORMATS, Array, Format, batches, expected_rows, normal

ID_DTYPES = ["int16", "uint16", "int32", "uint32", "int64", "uint64", ">i4"]
FEW, ORDINARY = 8, 300  # segments of a batch, and of ordinary numbers beside them

# The name of each way, and the sums of the rows, or of the first ones, in their order.
Sums = Iterator[tuple[str, Array]]


def along_axes(fmt: Format, rows: Array, rng: np.random.Generator, device: str | None) -> Sums:
    """As rows and columns of several layouts."""

    def add(array: Array, axis: int) -> Array:
        return np.asarray(gpureduce.sum(array, "exact", axis=axis, device=device).value)

    yield "rows", add(rows, 1)
    yield "columns", add(np.ascontiguousarray(rows.T), 0)
    yield "transposed", add(np.asfortranarray(rows), 1)
    order = rng.permutation(len(rows))
    found = np.empty(len(rows), fmt.dtype)
    found[order] = add(rows[order][:, ::-1], 1)
    yield "shuffled", found
    wide = np.repeat(rows.T, 70, axis=1)  # enough columns for whole tiles
    yield "repeated", add(wide, 0)[::70]


def by_segment(fmt: Format, rows: Array, rng: np.random.Generator, device: str | None) -> Sums:
    """As segments, by ids and by offsets."""

    def add(values: Array, ids: Array, count: int) -> Array:
        found = gpureduce.segment_sum(values, ids, num_segments=count, device=device)
        return np.asarray(found.value)

    count, n = rows.shape
    flat, ids = rows.reshape(-1), np.repeat(np.arange(count), n)
    order = rng.permutation(flat.size)
    kind = ID_DTYPES[rng.integers(len(ID_DTYPES))]
    yield "shuffled", add(flat[order], ids[order].astype(kind), count)
    offsets = np.arange(count + 1) * n
    yield "offsets", gpureduce.segment_sum(flat, offsets=offsets, device=device).value
    wide = np.repeat(flat, 2)[::2]
    yield "strided", add(wide[::-1], np.repeat(ids, 2)[::-2], count)
    vectors = np.stack([rows, rows[::-1], rows], axis=-1).reshape(-1, 3)
    found = add(vectors[order], ids[order], count)
    yield "first of columns", found[:, 0]
    yield "second of columns", found[::-1, 1]
    some = rows[:FEW]
    more = normal(fmt, rng, ORDINARY, 2 * n).reshape(-1)
    both = np.concatenate([some.reshape(-1), more])
    more_ids = len(some) + np.arange(more.size) % ORDINARY
    both_ids, mixed = np.concatenate([ids[: some.size], more_ids]), rng.permutation(both.size)
    count = len(some) + ORDINARY
    yield "beside ordinary", add(both[mixed], both_ids[mixed], count)[: len(some)]


GROUPS: dict[str, Callable[[Format, Array, np.random.Generator, str | None], Sums]] = {
    "axis": along_axes,
    "segments": by_segment,
}


def fuzz(of: str, name: str, count: int, seed: int, device: str | None = None) -> tuple[int, int]:
    """Adds up `count` rows. Returns the numbers of rows and of wrong sums."""
    fmt, rng = FORMATS[name], np.random.default_rng(seed)
    done = wrong = 0
    for label, rows in batches(name, count, seed):
        expected = np.array(expected_rows(fmt, rows), np.uint64).astype(fmt.word)
        for way, found in GROUPS[of](fmt, rows, rng, device):
            bad = np.flatnonzero(fmt.bits(found) != expected[: len(found)])
            wrong += len(bad)
            for i in bad[:3]:
                print(f"{name} {label} {way}: {fmt.bits(rows[i]).tolist()}: {found[i]!r}")
        done += len(rows)
    return done, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("of", choices=GROUPS)
    parser.add_argument("--rows", type=int, default=10_000, help="or segments, per dtype")
    parser.add_argument("--dtypes", nargs="+", default=FLOATS, choices=FLOATS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", help="cuda or emulator; by default the processors")
    asked = parser.parse_args()
    failed = 0
    for name in asked.dtypes:
        start = time.monotonic()
        done, wrong = fuzz(asked.of, name, asked.rows, asked.seed, asked.device)
        failed += wrong
        print(f"{name}: {done} rows, {wrong} wrong, {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
