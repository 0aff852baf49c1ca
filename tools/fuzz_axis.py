"""Fuzz exact sums along axes against the integer oracle, for as long as you like.

    python tools/fuzz_axis.py --rows 100000

Each batch of rows is added up as rows, as columns, as the columns of a transposed array, and in
random order beside rows of other batches. Prints one line per dtype. The exit status is 0 if all
sums were right.
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
from exact_cases import FLOATS, FORMATS, Array, Format, batches, expected_rows


def ways(
    fmt: Format, rows: Array, rng: np.random.Generator, device: str | None
) -> Iterator[tuple[str, Array]]:
    """The sums of rows, in every layout, in the order of the rows."""

    def add(array: Array, axis: int) -> Array:
        found: Array = gpureduce.sum(array, "exact", axis=axis, device=device).value
        return found

    yield "rows", add(rows, 1)
    yield "columns", add(np.ascontiguousarray(rows.T), 0)
    yield "transposed", add(np.asfortranarray(rows), 1)
    order = rng.permutation(len(rows))
    found = np.empty(len(rows), fmt.dtype)
    found[order] = add(rows[order][:, ::-1], 1)
    yield "shuffled", found
    wide = np.repeat(rows.T, 70, axis=1)  # enough columns for whole tiles
    yield "repeated", add(wide, 0)[::70]


def fuzz(name: str, count: int, seed: int, device: str | None) -> tuple[int, int]:
    """Adds up `count` rows. Returns the numbers of rows and of wrong sums."""
    fmt, rng = FORMATS[name], np.random.default_rng(seed)
    rows_done = wrong = 0
    for label, rows in batches(name, count, seed):
        expected = np.array(expected_rows(fmt, rows), np.uint64).astype(fmt.word)
        for way, found in ways(fmt, rows, rng, device):
            bad = np.flatnonzero(fmt.bits(found) != expected)
            wrong += len(bad)
            for i in bad[:3]:
                print(f"{name} {label} {way}: {fmt.bits(rows[i]).tolist()}: {found[i]!r}")
        rows_done += len(rows)
    return rows_done, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="per dtype")
    parser.add_argument("--dtypes", nargs="+", default=FLOATS, choices=FLOATS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", help="cuda or emulator (default: the processors)")
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.dtypes:
        start = time.monotonic()
        rows, wrong = fuzz(name, arguments.rows, arguments.seed, arguments.device)
        failed += wrong
        seconds = time.monotonic() - start
        print(f"{name}: {rows} rows, each in 5 ways, {wrong} wrong, {seconds:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
