"""The performance targets of a scoreboard, and the targets that a record misses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from gpureduce.bench.provenance import HEAD
from gpureduce.core import json_files
from gpureduce.core.calibration import Calibration
from gpureduce.text import size_text

KIB, MIB, GIB = 2**10, 2**20, 2**30

Row = dict[str, Any]


class _Way(TypedDict, total=False):
    way: str  # of calls; absent in older records, whose calls are all untimed


class Point(_Way):
    """The fields of a record's row that the tables read."""

    strategy: str
    dtype: str
    n: int
    nbytes: int
    measure: str
    producer: str
    offset: int
    median_us: float
    low_us: float
    gb_s: float
    percent_of_peak: float | None


def load(path: Path) -> dict[str, Any]:
    """Reads a scoreboard's record. Raises ValueError that names the file and the wrong field."""
    record = json_files.read_record(path, "bench", **HEAD, rows=list[Point])
    with json_files.naming(path):
        for i, row in enumerate(record["rows"]):
            for name in ("n", "nbytes", "median_us", "low_us", "gb_s"):
                if row[name] <= 0:
                    raise ValueError(f"rows[{i}].{name} must be above 0, not {row[name]}")
        if record.get("calibration") is not None:
            json_files.made(Calibration, record["calibration"], "calibration")
    return record


def ratios(rows: Iterable[Row], measure: str, ours: str, theirs: Sequence[str]) -> list[Row]:
    """At each point, the time of the fastest of `theirs` divided by the time of `ours`.

    Calls are compared on arrays of the same library, made in the same way.
    """
    points: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row["measure"] == measure and row["offset"] == 0:
            how = (row["producer"], way_of(row)) if measure == "call" else ()
            point = (*how, row["dtype"], row["n"])
            points.setdefault(point, {})[row["strategy"]] = row
    found = []
    for at in points.values():
        others = [at[name] for name in theirs if name in at]
        if ours in at and others:
            best = min(others, key=lambda row: float(row["median_us"]))
            mine = at[ours]
            told = {"best": best["strategy"], "best_us": best["median_us"]}
            found.append({**mine, **told, "ratio": best["median_us"] / mine["median_us"]})
    return found


def way_of(row: Row) -> str:
    """The form of the call that a row measures."""
    return str(row.get("way") or "timing=False")


def misaligned(rows: Iterable[Row]) -> list[Row]:
    """The time of misaligned arrays divided by the time of aligned ones."""
    every = [row for row in rows if row["measure"] == "kernel"]
    on = {(r["strategy"], r["dtype"], r["n"]): r for r in every if r["offset"] == 0}
    found = []
    for row in every:
        aligned = on.get((row["strategy"], row["dtype"], row["n"]))
        if row["offset"] and aligned:
            found.append({**row, "ratio": row["median_us"] / aligned["median_us"]})
    return found


def mean(found: Sequence[Row]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(sum(math.log(row["ratio"]) for row in found) / len(found))


@dataclass(frozen=True)
class Target:
    """A least ratio (see `ratios`) of `theirs` to `ours`, for the rows that `on` selects."""

    measure: str
    ours: str
    theirs: tuple[str, ...]
    least: float
    on: Callable[[Row], bool] = lambda row: True


_HOST = ("numpy", "torch", "cupy")
# The reference rows for sums of host arrays on the GPU, with descriptions.
PINNED_COPY, OF_PINNED = "pinned copy", "fast of pinned"
WRITTEN, WRITTEN_COPY = "write to pinned", "write, pinned copy"
LIMITS = {
    PINNED_COPY: "a copy to the card and no sum",
    OF_PINNED: "the sum of an array that lies in pinned memory already",
    WRITTEN: "our threads writing it there, and no more",
    WRITTEN_COPY: "and then a copy, of what is still in the processors' caches",
}

ON_CARD = (
    Target("apart", "fast", ("cub",), 1.0),
    Target("kernel", "fast", ("cub",), 1.0, lambda r: not 16 * KIB <= r["nbytes"] <= 256 * KIB),
    Target("kernel", "fast", ("cub",), 1.3, lambda r: 16 * KIB <= r["nbytes"] <= 256 * KIB),
    Target("call", "fast", ("torch",), 1 / 0.65, lambda r: r["n"] <= 2**16),
    Target("call", "fast", ("cupy",), 1 / 0.5, lambda r: r["n"] <= 2**16),
    Target("call", "fast", ("cupy",), 1.9, lambda r: r["dtype"] == "int32" and r["n"] >= 2**28),
    Target("call", "fast", ("torch",), 5.0, lambda r: r["dtype"] == "int32" and r["n"] >= 2**28),
    Target("host", "auto", _HOST, 0.95),
    Target("host", "cpu", _HOST, 0.95),
    Target("host", "auto", ("numpy",), 6.0, lambda r: r["nbytes"] >= 64 * MIB),
    Target("host", "fast", (PINNED_COPY,), 0.85),
)

ON_HOST = (
    Target("host", "cpu", ("numpy",), 0.95),
    # Arrays in memory, larger than caches.
    Target("host", "cpu", ("numpy",), 1.8,
           lambda r: r["dtype"] == "float32" and r["nbytes"] >= 64 * MIB),
)  # fmt: skip

_MEAN, _PEAK_PERCENT, _MISALIGNED = 1.15, 97.0, 1.03


def _limits(rows: Sequence[Row]) -> dict[tuple[str, int], str]:
    """By dtype and n: the speed of each part of a sum on the GPU, relative to a pinned copy.

    Our sum overlaps writing and adding; the last entry is both, one after the other. The time of a
    copy of just written data is the time of write and copy minus the time of the write.
    """
    us: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        if row["measure"] == "host" and row["strategy"] in LIMITS:
            us.setdefault((row["dtype"], row["n"]), {})[row["strategy"]] = row["median_us"]
    told: dict[tuple[str, int], str] = {}
    for point, of in us.items():
        if len(of) < len(LIMITS):
            continue
        limits = {
            "the sum of a pinned array": of[OF_PINNED],
            "writing it there": of[WRITTEN],
            "a copy of what has just been written": of[WRITTEN_COPY] - of[WRITTEN],
            "writing and then adding up": of[WRITTEN] + of[OF_PINNED],
        }
        shown = (f"{what} {of[PINNED_COPY] / t:.3f}" for what, t in limits.items() if t > 0)
        told[point] = f" ({', '.join(shown)})"
    return told


def _short_of(target: Target, rows: Sequence[Row]) -> list[str]:
    found = [r for r in ratios(rows, target.measure, target.ours, target.theirs) if target.on(r)]
    short = [r for r in found if r["ratio"] < target.least]
    beside = _limits(rows) if PINNED_COPY in target.theirs else {}
    by = {
        "kernel": "",
        "apart": ", one sum at a time",
        "call": " of a call",
        "host": " of a host array",
    }[target.measure]
    return [
        f"{r['dtype']}, {size_text(r['nbytes'])}{by}: `{target.ours}` is {r['ratio']:.3f} times as "
        f"quick as {r['best']}, not {target.least:.3g}{beside.get((r['dtype'], r['n']), '')}"
        for r in short
    ]


def _of_ceiling(percent: float | None) -> str:
    return "" if percent is None else f" ({percent:.1f}% of what this card can be read at)"


def missed(record: dict[str, Any]) -> list[str]:
    """The targets for the record's kind of machine that it misses, as a sentence each."""
    rows = record["rows"]
    if record["device"] != "cuda":
        return [text for target in ON_HOST for text in _short_of(target, rows)]
    told = [text for target in ON_CARD for text in _short_of(target, rows)]
    kernels = ratios(rows, "kernel", "fast", ["cub"])
    if kernels and mean(kernels) < _MEAN:
        told.append(f"geometric mean of CUB's time by ours: {mean(kernels):.3f}, not {_MEAN}")
    told += [
        f"float32, 8 GiB: {r['percent_of_peak']:.1f}% of peak, not {_PEAK_PERCENT:g}%"
        + _of_ceiling(r["percent_of_ceiling"])
        for r in kernels
        if r["dtype"] == "float32" and r["nbytes"] == 8 * GIB
        and r["percent_of_peak"] is not None and r["percent_of_peak"] < _PEAK_PERCENT
    ]  # fmt: skip
    told += [
        f"{r['dtype']}, {size_text(r['nbytes'])}, one element off: {r['ratio']:.4f} times as long, "
        f"not {_MISALIGNED}"
        for r in misaligned(rows)
        if r["ratio"] > _MISALIGNED
    ]
    return told
