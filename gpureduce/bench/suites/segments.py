"""Sums by segment beside other libraries: ``gpureduce bench --segments``.

On a card the L2 cache is flushed before every call, and CUDA events around the call give its time.
The card is kept busy meanwhile, so that the launches of a call do not wait for Python. Calls of
JAX, which has streams of its own, are timed by the processor's clock until their result is there.
Elsewhere all are timed by that clock.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path

from gpureduce.bench import render
from gpureduce.bench.command import REPEATS, Suite
from gpureduce.bench.contenders.places import Place, place_of
from gpureduce.bench.contenders.segments import LIMIT, Case, comparison, contenders
from gpureduce.bench.render import By, Pivot, as_table, of, quickest, ratio
from gpureduce.bench.runner import Group, Row, one_by_one
from gpureduce.core.dtypes import is_here, named

# Columns of the table: the calls' names, and the heads.
_HEADS = {
    "exact": "exact",
    "exact, as called by default": "as called",
    "exact, sorted=True": "sorted=True",
    "fast": "fast",
    "torch index_add": "index_add",
    "torch deterministic": "determ.",
    "torch segment_reduce": "segm._reduce",
    "cupy scatter_add": "CuPy",
    "jax segment_sum": "JAX*",
    "CUB DeviceSegmentedReduce": "CUB segm.",
    "CUB ReduceByKey": "CUB by key",
    "numpy.add.at": "add.at",
    "numpy.bincount": "bincount",
    LIMIT: "limit",
}
_OURS = ("exact", "exact, as called by default", "exact, sorted=True", "fast", LIMIT)
# Sums by offsets are compared with other sums by offsets.
_BY_OFFSETS = ("torch segment_reduce", "CUB DeviceSegmentedReduce")
CASE = ("n", "segments", "ids", "dtype", "columns", "data", "index")


def cases(n: int, dtypes: Sequence[str] | None = None) -> list[Case]:
    """The cases at `n` elements: the table of segments and ids first, then what differs from it."""
    counts = [100, 10_000, 1_000_000, 16_000_000]
    counts = [count for count in counts if count <= n] or [max(1, n // 100)]
    found = [Case(n, count, ids) for count in counts for ids in ("unsorted", "sorted", "offsets")]
    middle, many = counts[min(1, len(counts) - 1)], counts[min(2, len(counts) - 1)]
    found += [Case(n, many, ids) for ids in ("zipf", "half", "one", "nearly sorted")]
    found += [Case(n, many, data=data) for data in ("uniform", "bits")]
    for dtype in ("float16", "bfloat16", "float64", "int64"):
        for count in dict.fromkeys((middle, many)):
            found += [Case(n, count, ids, dtype) for ids in ("unsorted", "offsets")]
    for columns in (64, 256):
        for count in dict.fromkeys((counts[0], middle)):
            if count * columns <= n:
                found += [Case(n, count, ids, columns=columns) for ids in ("unsorted", "offsets")]
    found += [Case(n, count, index="int32") for count in dict.fromkeys((many, counts[-1]))]
    chosen = [case for case in dict.fromkeys(found) if dtypes is None or case.dtype in dtypes]
    if not chosen:
        known = ", ".join(dict.fromkeys(case.dtype for case in found))
        raise ValueError(f"--dtypes: the benchmark of segment sums takes {known}")
    return chosen


def groups(place: Place, chosen: Sequence[Case], repeats: int, cub: Path | None) -> list[Group]:
    """A group for each case."""
    return [
        Group(
            f"{case.dtype} {case.segments} {case.ids}",
            {"measure": "segments", **vars(case), "nbytes": case.n * named(case.dtype).itemsize},
            functools.partial(contenders, place, case, cub),
            one_by_one(repeats),
            comparison(case),
            free=place.free,
        )
        for case in chosen
        if is_here(case.dtype)
    ]


def best_other(by: By) -> str:
    """The quickest other call of the same kind; "" without one."""
    others = [name for name in by if name not in _OURS and "deterministic" not in name]
    if next(iter(by.values()))["ids"] == "offsets":
        others = [name for name in others if name in _BY_OFFSETS] or others
    return quickest(by, others)


def kind(row: Row) -> str:
    """The properties of the values and ids that differ from the usual ones."""
    more = [row["data"]] * (row["data"] != "normal")
    more += [f"rows of {row['columns']}"] * (row["columns"] > 1)
    more += [f"{row['index']} ids"] * (row["index"] != "int64")
    return ", ".join([row["dtype"], *more])


def table(rows: Sequence[Row]) -> str:
    """A line for each case: milliseconds of each call, and ratios."""
    more = {
        "exact/best": lambda by: ratio("exact", best_other(by))(by),
        "determ./exact": ratio("torch deterministic", "exact", ".1f"),
    }
    here = {row["strategy"] for row in rows}
    if LIMIT in here:
        more["exact/limit"] = ratio("exact", LIMIT)
    head = {"values": kind, "ids": of("ids"), "segments": of("segments", ",")}
    pivot = Pivot(head, lambda row: f"{row['median_us'] / 1e3:.3f}", more=more, key=CASE)
    heads, body = pivot.lines(rows, [name for name in _HEADS if name in here])
    return as_table(([_HEADS.get(head, head) for head in heads], body), ("values", "ids"))


def as_text(made: Row) -> str:
    """A record as text."""
    rows = made["rows"]
    sizes = ", ".join(f"{n:,}" for n in dict.fromkeys(row["n"] for row in rows))
    clocked = made["device"] == "cuda" and any(row["source"] == "perf_counter" for row in rows)
    notes = ["* whole calls, by the processor's clock"] * clocked
    if failed := {f"{row['strategy']}: {row['failed']}" for row in made.get("failed", [])}:
        notes += ["Left out:", *sorted(failed)]
    title = f"Milliseconds for {sizes} numbers"
    return render.as_text(made, {"segments": (title, table)}, notes)


def suite(arguments: argparse.Namespace) -> Suite:
    """The suite of the command's options."""
    place = place_of(arguments.device, "--segments", ("numpy", "torch"), "cpu")
    cub = arguments.cub and Path(arguments.cub).resolve()
    if cub and not cub.is_file():
        raise ValueError(f"--cub: there is no file {arguments.cub}")
    sizes = arguments.sizes or [1 << 26 if place.card else 1 << 16]
    chosen = [case for n in sizes for case in cases(n, arguments.dtypes)]
    repeats = REPEATS if arguments.repeats is None else arguments.repeats
    return Suite("segments", place.on, groups(place, chosen, repeats, cub), as_text, place.names)
