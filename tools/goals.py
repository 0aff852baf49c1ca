"""What records of a card miss of the project's goals.

python tools/goals.py notebooks/data/*.json
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpureduce.bench import record as records
from gpureduce.bench.contenders.arrays import LIMITS, OF_PINNED, PINNED_COPY, WRITTEN, WRITTEN_COPY
from gpureduce.bench.ratios import GIB, KIB, MIB, by_case, mean, misaligned, ratios
from gpureduce.bench.suites import exact, scan, segments
from gpureduce.core import json_files
from gpureduce.text import size_text

Row = dict[str, Any]


def shortfall(missed: Sequence[str]) -> str:
    """A Markdown list of missed goals; "" if there are none."""
    lines = ["Missed goals:", "", *(f"- {text}" for text in missed)]
    return "\n".join(lines) if missed else ""


# --- the scoreboard -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """A least ratio of `theirs` to `ours` (see `ratios`), for the rows that `on` selects."""

    measure: str
    ours: str
    theirs: tuple[str, ...]
    least: float
    on: Callable[[Row], bool] = lambda row: True


_HOST = ("numpy", "torch", "cupy")
_ON_CARD = (
    Goal("apart", "fast", ("cub",), 1.0),
    Goal("kernel", "fast", ("cub",), 1.0, lambda r: not 16 * KIB <= r["nbytes"] <= 256 * KIB),
    Goal("kernel", "fast", ("cub",), 1.3, lambda r: 16 * KIB <= r["nbytes"] <= 256 * KIB),
    Goal("call", "fast", ("torch",), 1 / 0.65, lambda r: r["n"] <= 2**16),
    Goal("call", "fast", ("cupy",), 1 / 0.5, lambda r: r["n"] <= 2**16),
    Goal("call", "fast", ("cupy",), 1.9, lambda r: r["dtype"] == "int32" and r["n"] >= 2**28),
    Goal("call", "fast", ("torch",), 5.0, lambda r: r["dtype"] == "int32" and r["n"] >= 2**28),
    Goal("host", "auto", _HOST, 0.95),
    Goal("host", "cpu", _HOST, 0.95),
    Goal("host", "auto", ("numpy",), 6.0, lambda r: r["nbytes"] >= 64 * MIB),
    Goal("host", "fast", (PINNED_COPY,), 0.85),
)
_ON_HOST = (
    Goal("host", "cpu", ("numpy",), 0.95),
    # Arrays in memory, larger than caches.
    Goal("host", "cpu", ("numpy",), 1.8,
         lambda r: r["dtype"] == "float32" and r["nbytes"] >= 64 * MIB),
)  # fmt: skip
_MEAN, _PEAK_PERCENT, _MISALIGNED = 1.15, 97.0, 1.03
_BY = {
    "kernel": "",
    "apart": ", one sum at a time",
    "call": ", call",
    "host": ", host array",
}


def _limits(rows: Sequence[Row]) -> dict[tuple[Any, ...], str]:
    """By dtype and n: the speed of each part of a sum on the GPU, relative to a pinned copy.

    Our sum overlaps writing and adding; the last entry is both, one after the other. The time of a
    copy of just written data is the time of write and copy minus the time of the write.
    """
    parts = (row for row in rows if row["measure"] == "host" and row["strategy"] in LIMITS)
    told: dict[tuple[Any, ...], str] = {}
    for point, by in by_case(parts, ("dtype", "n")).items():
        if len(by) < len(LIMITS):
            continue
        of = {name: row["median_us"] for name, row in by.items()}
        limits = {
            "summing a pinned array": of[OF_PINNED],
            "writing to pinned memory": of[WRITTEN],
            "copying just written memory": of[WRITTEN_COPY] - of[WRITTEN],
            "writing and summing in turn": of[WRITTEN] + of[OF_PINNED],
        }
        shown = (f"{what} {of[PINNED_COPY] / t:.3f}" for what, t in limits.items() if t > 0)
        told[point] = f" (speed relative to the pinned copy: {', '.join(shown)})"
    return told


def _short_of(goal: Goal, rows: Sequence[Row]) -> list[str]:
    found = [r for r in ratios(rows, goal.measure, goal.ours, goal.theirs) if goal.on(r)]
    beside = _limits(rows) if PINNED_COPY in goal.theirs else {}
    return [
        f"{r['dtype']}, {size_text(r['nbytes'])}{_BY[goal.measure]}: `{goal.ours}` is "
        f"{r['ratio']:.3f} times as fast as {r['best']}; goal: {goal.least:.3g}"
        f"{beside.get((r['dtype'], r['n']), '')}"
        for r in found
        if r["ratio"] < goal.least
    ]


def _of_ceiling(percent: float | None) -> str:
    return "" if percent is None else f" ({percent:.1f}% of this GPU's read bandwidth)"


def of_scoreboard(record: Row) -> list[str]:
    """What a scoreboard misses of the goals for its kind of machine."""
    rows = record["rows"]
    if record["device"] != "cuda":
        return [text for goal in _ON_HOST for text in _short_of(goal, rows)]
    told = [text for goal in _ON_CARD for text in _short_of(goal, rows)]
    kernels = ratios(rows, "kernel", "fast", ["cub"])
    if kernels and mean(kernels) < _MEAN:
        told.append(
            f"geometric mean of CUB's time divided by ours: {mean(kernels):.3f}; goal: {_MEAN}"
        )
    told += [
        f"float32, 8 GiB: {r['percent_of_peak']:.1f}% of peak; goal: {_PEAK_PERCENT:g}%"
        + _of_ceiling(r.get("percent_of_ceiling"))
        for r in kernels
        if r["dtype"] == "float32" and r["nbytes"] == 8 * GIB
        and r["percent_of_peak"] is not None and r["percent_of_peak"] < _PEAK_PERCENT
    ]  # fmt: skip
    told += [
        f"{r['dtype']}, {size_text(r['nbytes'])}, start shifted by one element: "
        f"{r['ratio']:.4f} times as long; goal: {_MISALIGNED}"
        for r in misaligned(rows)
        if r["ratio"] > _MISALIGNED
    ]
    return told


# --- exact sums -----------------------------------------------------------------------------------


def _is(dtype: str, *data: str, mib: int = 16) -> Callable[[Row], bool]:
    return lambda row: bool(
        row["dtype"] == dtype and (not data or row["data"] in data) and row["nbytes"] >= mib * MIB
    )


# The name of a goal, the least ratio of speeds, the other strategy (or "bus", the peak bandwidth),
# and its rows.
_OF_EXACT: list[tuple[str, float, str, Callable[[Row], bool]]] = [
    ("float32, speed relative to CUB's sum", 0.97, "cub", _is("float32")),
    (
        "float64, speed relative to CUB's sum",
        0.97,
        "cub",
        _is("float64", "uniform", "normal", "lognormal"),
    ),
    ("float64 of random bits, share of peak bandwidth", 0.5, "bus", _is("float64", "bits")),
    ("float16 from 1 GiB, share of peak bandwidth", 0.85, "bus", _is("float16", mib=1024)),
    ("bfloat16 from 1 GiB, share of peak bandwidth", 0.75, "bus", _is("bfloat16", mib=1024)),
    ("speed relative to CUB's reproducible sum", 1.0, "cub_reproducible", lambda row: True),
]
_BETWEEN_DATA, _US_ABOVE_FAST = 0.98, 3
# On one thread: the most nanoseconds per element, and the least speedup over math.fsum.
_MOST_NS = {"float32": 0.6, "float64": 1.2}
_LEAST_OF_FSUM = 20


@dataclass(frozen=True)
class _At:
    """The times of the strategies on one array, and the bandwidth of `exact` over the card's."""

    row: Row
    us: dict[str, float]

    def of(self, other: str) -> float | None:
        """The speed of `exact`, where that of another strategy is 1."""
        if other == "bus":
            peak = self.row.get("peak_gb_s")
            return self.row["nbytes"] / self.us["exact"] / 1e3 / peak if peak else None
        return self.us[other] / self.us["exact"] if other in self.us else None


def _points(rows: Sequence[Row], measure: str) -> list[_At]:
    measured = (row for row in rows if row["measure"] == measure)
    return [
        _At(next(iter(by.values())), {name: row["median_us"] for name, row in by.items()})
        for by in by_case(measured, ("dtype", "data", "nbytes")).values()
        if {"exact", "fast"} <= by.keys()
    ]


def _short_at(at: _At, other: str, ratio: float, kernels: Sequence[_At]) -> str:
    """A point whose ratio is too small.

    For ratios to the bus, adds the ratios of plain sums, and of `exact` with its fastest data.
    """
    told = f"{at.row['data']}, {at.row['nbytes'] // MIB} MiB: {ratio:.3f}"
    if other != "bus":
        return told
    reached = {
        name: ratio * at.us["exact"] / at.us[name] for name in ("cub", "fast") if name in at.us
    }
    same = [one for one in kernels if all(one.row[k] == at.row[k] for k in ("dtype", "nbytes"))]
    kindest = max(same, key=lambda one: one.of("bus") or 0)
    if kindest is not at:
        reached[f"exact of {kindest.row['data']} numbers"] = kindest.of("bus") or 0
    return f"{told}; for comparison, {', '.join(f'{name}: {r:.3f}' for name, r in reached.items())}"


def judged(record: Row) -> tuple[list[str], list[str]]:
    """What exact sums on a card miss, and the goals that the record has no rows for."""
    kernels = _points(record["rows"], "kernel")
    small = [at for at in kernels if at.row["nbytes"] <= MIB]
    kernels = [at for at in kernels if at not in small]
    missed, unknown = [], []
    for what, least, other, on in _OF_EXACT:
        found = [(at, r) for at in kernels if on(at.row) and (r := at.of(other)) is not None]
        short = [_short_at(at, other, r, kernels) for at, r in found if r < least]
        if short:
            worst = min(r for _, r in found)
            missed.append(f"{what}: {worst:.3g}; goal: {least} ({'; '.join(short)})")
        unknown += [what] * (not found)
    floats = [at for at in kernels if at.row["dtype"] == "float32"]
    for size in sorted({at.row["nbytes"] for at in floats}):
        us = [at.us["exact"] for at in floats if at.row["nbytes"] == size]
        if min(us) < _BETWEEN_DATA * max(us):
            what = f"float32 of {size // MIB} MiB, time with the fastest data over the slowest"
            missed.append(f"{what}: {min(us) / max(us):.3g}; goal: {_BETWEEN_DATA}")
    for where, points in (("small arrays", small), ("calls", _points(record["rows"], "call"))):
        above = max((at.us["exact"] - at.us["fast"] for at in points), default=None)
        if above is None:
            unknown.append(f"{where}: microseconds above fast")
        elif above > _US_ABOVE_FAST:
            missed.append(f"{where}: microseconds above fast: {above:.3g}; goal: {_US_ABOVE_FAST}")
    return missed, unknown


def on_thread(record: Row) -> list[str]:
    """What exact sums on one thread miss, fsum of a list included."""
    rows = [row for row in record["rows"] if row["measure"] == "thread"]
    others = {
        "fsum": exact.fsum_over_exact(rows, "fsum"),
        "fsum of a list": exact.fsum_over_exact(rows, "fsum_of_list"),
    }
    missed = []
    for row in rows:
        if row["strategy"] != "exact":
            continue
        what = f"{row['dtype']} {row['data']}, n = {row['n']:,}"
        most, ns = _MOST_NS.get(row["dtype"], math.inf), 1e3 * row["median_us"] / row["n"]
        if ns > most:
            missed.append(f"{what}: {ns:.2f} ns; goal: {most}")
        for other, found in others.items():
            ratio = found.get((row["dtype"], row["data"], row["n"]), math.inf)
            if ratio < _LEAST_OF_FSUM:
                missed.append(f"{what}: {ratio:.1f} times {other}; goal: {_LEAST_OF_FSUM}")
    return missed


def of_exact(record: Row) -> list[str]:
    """What exact sums miss."""
    of_thread = any(row["measure"] == "thread" for row in record["rows"])
    return on_thread(record) if of_thread else judged(record)[0]


# --- sums by segment --------------------------------------------------------------------------

# What float32 sums of 2^26 numbers by int64 ids should reach on an H200. By segments: the time over
# that of torch's index_add at most, how many times its deterministic mode takes at least, the time
# by offsets and by sorted ids over that of the best other call at most.
_OF_SEGMENTS = {
    100: (0.03, 250, 1.1, 2),
    10_000: (0.65, 15, 1.1, 3),
    1_000_000: (1.0, 20, 0.12, 0.4),
    16_000_000: (1.3, 7, 0.02, 0.7),
}


def of_segments(record: Row) -> list[str]:
    """What sums by segment miss, worst first."""
    found = []
    for by in by_case(record["rows"], segments.CASE).values():
        case = next(iter(by.values()))
        usual = tuple(case[name] for name in ("dtype", "columns", "data", "index", "n"))
        wanted = _OF_SEGMENTS.get(case["segments"])
        if usual != ("float32", 1, "normal", "int64", 1 << 26) or not wanted or "exact" not in by:
            continue
        us, best = {name: row["median_us"] for name, row in by.items()}, segments.best_other(by)
        add, certain = us.get("torch index_add"), us.get("torch deterministic")
        checks: list[tuple[float, str]] = []
        if case["ids"] == "unsorted" and add and certain:
            over, under = us["exact"] / add, certain / us["exact"]
            checks.append(
                (over / wanted[0], f"{over:.3g} times the time of index_add; goal: {wanted[0]}")
            )
            said = f"the deterministic index_add takes {under:.3g} times as long; goal: {wanted[1]}"
            checks.append((wanted[1] / under, said))
        most = {"offsets": wanted[2], "sorted": wanted[3]}.get(case["ids"])
        if most and best:
            ratio = us["exact"] / us[best]
            checks.append(
                (ratio / most, f"{ratio:.3g} times the time of the best other call; goal: {most}")
            )
        name = f"{case['segments']:,} segments, {case['ids']}"
        found += [(by_how_much, f"{name}: {said}") for by_how_much, said in checks]
    found = [one for one in found if one[0] > 1]
    return [f"{said} ({times:.2f} times off)" for times, said in sorted(found, reverse=True)]


# --- running sums -----------------------------------------------------------------------------

_ALONG_ROWS: dict[str, Callable[[Row], bool]] = {
    "whole": lambda row: True, "matrices": lambda row: row["axis"] == 1
}  # fmt: skip
_OF_SCAN = [
    *(
        Goal(measure, ours, (theirs,), least)
        for measure in _ALONG_ROWS
        for ours, theirs, least in (
            ("fast", scan.COPY, 0.85), ("fast", scan.CUB, 1.0), ("fast", "torch", 1.0),
            (scan.TWO_THREADS, scan.ONE_THREAD, 1.6),
        )
    ),
    *(
        Goal(measure, "exact", ("fast",), least, lambda row, of=dtype: row["dtype"] == of)
        for measure in _ALONG_ROWS
        for dtype, least in (("float32", 0.8), ("float64", 0.5))
    ),
    *(Goal(name, scan.ONE_THREAD, ("NumPy",), 0.7, on) for name, on in _ALONG_ROWS.items()),
    Goal("matrices", scan.ONE_THREAD, ("NumPy",), 1.0, lambda row: row["axis"] == 0),
    Goal("unproven", "exact", ("fast",), 1 / 20),
    *(
        Goal("windows", f"exact {name}", (f"{library} {name}",), 1.0)
        for name in ("mean", "std")
        for library in ("pandas", "bottleneck")
    ),
]  # fmt: skip
_OF_A_CASE = ("measure", "dtype", "rows", "columns", "axis", "window")


def of_scan(record: Row) -> list[str]:
    """What running sums and windows miss, worst first."""
    found = []
    cases = by_case(record["rows"], _OF_A_CASE).values()
    for goal, by in itertools.product(_OF_SCAN, cases):
        row, other = by.get(goal.ours), by.get(goal.theirs[0])
        if row and other and row["measure"] == goal.measure and goal.on(row):
            ratio = other["median_us"] / row["median_us"]
            window = f", window {row['window']}" if row.get("window") else ""
            said = (
                f"{row['measure']}, {row['dtype']}, {row['rows']} x {row['columns']}, "
                f"axis {row['axis']}{window}: `{goal.ours}` is {ratio:.3g} times as fast as "
                f"{goal.theirs[0]}; goal: {goal.least:.3g}"
            )
            found += [(ratio / goal.least, said)] * (ratio < goal.least)
    return [said for _, said in sorted(found)]


MISSED = {"bench": of_scoreboard, "exact": of_exact, "scan": of_scan, "segments": of_segments}


def main() -> int:
    """Prints what each record misses. Records of other kinds are passed over."""
    for path in map(Path, sys.argv[1:]):
        kind = json_files.read(path).get("kind")
        for text in MISSED[kind](records.load(path, kind)) if kind in MISSED else ():
            print(f"{path.name}: {text}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
