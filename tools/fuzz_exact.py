"""Fuzz exact sums against the integer oracle, for as long as you like.

    python tools/fuzz_exact.py whole --rows 1000000 --ways 1000 --record FILE
    python tools/fuzz_exact.py axis segments --device emulator

Each row of a batch is summed in several ways. `whole`: as an array of its own. `axis`: as rows, as
columns, masked, and in random order. `segments`: shuffled with ids of several dtypes, in order with
offsets, as vectors of columns, beside segments of ordinary numbers, and strided. Sums have random
dtypes, and those of groups initial numbers. With --ways, the same elements are added up in so many
orders, launches and places (exact_ways.py). On a card (--device cuda), `whole` rows are slices of
arrays there. Prints a line per dtype. The exit status is 0 if all sums were right.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import gpureduce
from exact_cases import FLOATS, FORMATS, GENERATORS, Array, Format, batches, expected_rows, normal
from exact_ways import check, on_card

COMPLEX = {"complex64": "float32", "complex128": "float64"}
WAYS = {
    "cpu": ["cpu"],
    "emulator": ["emulator", "emulator array"],
    "cuda": ["cuda", "cuda array"],
}  # places of exact_ways.py, by --device
ID_DTYPES = ["int16", "uint16", "int32", "uint32", "int64", "uint64", ">i4"]
FEW, ORDINARY, COLUMNS = 8, 300, 40  # segments of a batch, ordinary ones, columns of wide rows

# The name of each way, and the sums of the rows, or of the first ones, in their order.
Sums = Iterator[tuple[str, Array]]


def whole(rows: Array, rng: np.random.Generator, device: str | None, **how: Any) -> Sums:
    """Each row as an array of its own, in host memory and on a card."""
    sums = [gpureduce.sum(row, "exact", device=device, **how).value for row in rows]
    yield "alone", np.array(sums)
    if device == "cuda":
        there = on_card(rows)
        sums = [gpureduce.sum(row, "exact", timing=False, **how).value for row in there]
        yield "on the card", np.array(sums)


def along_axes(rows: Array, rng: np.random.Generator, device: str | None, **how: Any) -> Sums:
    """As rows and columns of several layouts."""

    def add(array: Array, axis: int, **more: Any) -> Array:
        found = gpureduce.sum(array, "exact", axis=axis, device=device, **how, **more)
        return np.asarray(found.value)

    yield "rows", add(rows, 1)
    yield "columns", add(np.ascontiguousarray(rows.T), 0)
    yield "transposed", add(np.asfortranarray(rows), 1)
    order = rng.permutation(len(rows))
    found = np.empty(len(rows), how["dtype"])
    found[order] = add(rows[order][:, ::-1], 1)
    yield "shuffled", found
    wide = np.repeat(rows.T, 70, axis=1)  # enough columns for whole tiles
    yield "repeated", add(wide, 0)[::70]
    middle = np.stack([rows, rows[::-1]], axis=1)
    yield "of a cube", add(middle if rng.random() < 0.5 else np.asfortranarray(middle), 2)[:, 0]
    apart = np.repeat(rows, 2, axis=1)
    yield "masked", add(apart, 1, where=np.arange(apart.shape[1]) % 2 == 0)
    yield "masked columns", add(apart.T, 0, where=np.arange(apart.shape[1])[:, None] % 2 > 0)


def by_segment(rows: Array, rng: np.random.Generator, device: str | None, **how: Any) -> Sums:
    """As segments, by ids and by offsets."""

    def add(values: Array, ids: Array | None, count: int | None, **more: Any) -> Array:
        found = gpureduce.segment_sum(
            values, ids, num_segments=count, device=device, **how, **more
        )  # fmt: skip
        return np.asarray(found.value)

    count, n = rows.shape
    flat, ids = rows.reshape(-1), np.repeat(np.arange(count), n)
    order = rng.permutation(flat.size)
    kind = ID_DTYPES[rng.integers(len(ID_DTYPES))]
    yield "shuffled", add(flat[order], ids[order].astype(kind), count)
    offsets = np.arange(count + 1) * n
    yield "offsets", add(flat, None, None, offsets=offsets)
    yield "sorted", add(flat, ids, count, sorted=True)
    wide = np.repeat(flat, 2)[::2]
    yield "strided", add(wide[::-1], np.repeat(ids, 2)[::-2], count)
    vectors = np.stack([rows, rows[::-1], rows], axis=-1).reshape(-1, 3)
    found = add(vectors[order], ids[order], count)
    yield "first of columns", found[:, 0]
    yield "second of columns", found[::-1, 1]
    some = rows[: 2 * FEW]
    turned = [np.roll(some, -j, axis=0) for j in range(COLUMNS)]
    vectors, some_ids = np.stack(turned, axis=-1).reshape(-1, COLUMNS), ids[: some.size]
    order = rng.permutation(len(vectors))
    for way, found in (
        ("wide rows", add(vectors[order], some_ids[order], len(some))),
        ("packs", add(vectors, None, None, offsets=offsets[: len(some) + 1])),
    ):
        yield way, found[:, 0]
        yield f"{way}, turned", np.roll(found[:, COLUMNS - 1], COLUMNS - 1, axis=0)
    some = rows[:FEW]
    usual = FORMATS[rows.dtype.name]
    more = normal(usual, rng, ORDINARY, 2 * n).reshape(-1)
    both = np.concatenate([some.reshape(-1), more])
    more_ids = len(some) + np.arange(more.size) % ORDINARY
    both_ids, mixed = np.concatenate([ids[: some.size], more_ids]), rng.permutation(both.size)
    count = len(some) + ORDINARY
    yield "beside ordinary", add(both[mixed], both_ids[mixed], count)[: len(some)]


GROUPS: dict[str, Callable[..., Sums]] = {
    "whole": whole,
    "axis": along_axes,
    "segments": by_segment,
}


def words(numbers: Array, fmt: Format) -> Array:
    """The bits of the sums; of a complex sum, the bits of both parts."""
    parts = numbers.view(fmt.dtype) if numbers.dtype.kind == "c" else numbers
    return fmt.bits(parts).reshape(len(numbers), -1)


def data(name: str, of: str, count: int, seed: int) -> Iterator[tuple[str, Array, Format, Any]]:
    """Rows with the format of their sums, the bits of these, and arguments."""
    part, rng = FORMATS[COMPLEX.get(name, name)], np.random.default_rng([seed, 99])
    for label, rows in batches(part.name, count, seed):
        if name in COMPLEX:
            other = GENERATORS[rng.integers(len(GENERATORS))](part, rng, *rows.shape)
            both = np.empty(rows.shape, name)
            both.real, both.imag = rows, other
            wanted = np.array([expected_rows(part, one) for one in (rows, other)], np.uint64).T
            yield label, both, part, (wanted, {})
            continue
        fmt = part if rng.random() < 0.6 else FORMATS[FLOATS[rng.integers(4)]]
        how, added = {"dtype": fmt.dtype}, rows
        if rng.random() < 0.3 and of != "whole":
            initial = part.dtype.type(rng.choice([1, -(2.0**-9), 1000.5]))
            how["initial"] = float(initial)
            added = np.concatenate([rows, np.full((len(rows), 1), initial)], axis=1)
        wanted = np.array(expected_rows(part, added, fmt.name), np.uint64)[:, None]
        yield label, rows, fmt, (wanted, how)


def fuzz(name: str, of: str, count: int, seed: int, device: str | None = None) -> dict[str, Any]:
    """Sums `count` rows of one dtype. Returns the counts of all and wrong sums, and wrong ones."""
    rng, examples = np.random.default_rng(seed), []
    checked = wrong = elements = 0
    start = time.perf_counter()
    for label, rows, fmt, (expected, how) in data(name, of, count, seed):
        checked, elements = checked + len(rows), elements + rows.size
        for way, found in GROUPS[of](rows, rng, device, **how):
            got = words(np.ascontiguousarray(found), fmt)
            bad = np.flatnonzero((got != expected[: len(got)].astype(fmt.word)).any(axis=1))
            wrong += len(bad)
            for i in bad[:3]:
                bits = np.ascontiguousarray(rows[i]).view(f"u{rows.real.itemsize}").tolist()
                case = {"generator": label, "way": way, "how": str(how), "bits": bits}
                examples.append(case | {"want": expected[i].tolist(), "got": got[i].tolist()})
    return {
        "dtype": name,
        "arrays": checked,
        "elements": elements,
        "seed": seed,
        "wrong": wrong,
        "examples": examples[:3],
        "seconds": round(time.perf_counter() - start, 1),
    }


def write(path: Path, device: str, run: dict[str, Any]) -> None:
    """Writes the run to the record. Runs on other devices are kept."""
    from gpureduce.bench.provenance import provenance
    from gpureduce.core import devices

    chosen = None if device == "cpu" else devices.choose_device(device)
    run = {**provenance("exact fuzz", chosen), "on": device, **run}
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    runs = sorted([*(r for r in runs if r["on"] != device), run], key=lambda r: r["on"])
    newest = {key: run[key] for key in run if key not in ("on", "fuzz", "ways")}
    path.write_text(json.dumps({**newest, "runs": runs}, indent=1) + "\n")


def main() -> int:
    names = [*FLOATS, *COMPLEX]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("of", nargs="+", choices=GROUPS)
    parser.add_argument("--rows", type=int, default=10_000, help="or segments, of each dtype")
    parser.add_argument("--ways", type=int, default=0, help="to add up, of each real dtype")
    parser.add_argument("--dtypes", nargs="+", choices=names, default=names)
    parser.add_argument("--device", choices=list(WAYS), default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, help="of `whole`")
    asked = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"fuzz": [], "ways": []}
    for of, name in ((of, name) for of in asked.of for name in asked.dtypes):
        if of == "whole" or name in FLOATS:
            found["fuzz"].append(fuzz(name, of, asked.rows, asked.seed, asked.device))
            print(of, json.dumps(found["fuzz"][-1]), flush=True)
    for name in (name for name in asked.dtypes if name in FLOATS and asked.ways):
        found["ways"].append(check(name, asked.ways, asked.seed, WAYS[asked.device], 8000))
        print(json.dumps(found["ways"][-1]), flush=True)
    if asked.record:
        write(asked.record, asked.device, found)
    return 1 if any(row["wrong"] for rows in found.values() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
