"""Ratios of the times of contenders at the same points of a record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gpureduce.bench.runner import Row

KIB, MIB, GIB = 2**10, 2**20, 2**30


def by_case(
    rows: Iterable[Row], fields: Iterable[str], column: str = "strategy"
) -> dict[tuple[Any, ...], dict[Any, Row]]:
    """The rows of each case, by contender or another `column`. Cases differ in the fields."""
    fields, found = tuple(fields), dict[tuple[Any, ...], dict[Any, Row]]()
    for row in rows:
        case = tuple(row.get(name) for name in fields)
        found.setdefault(case, {})[row[column]] = row
    return found


def ratios(rows: Iterable[Row], measure: str, ours: str, theirs: Sequence[str]) -> list[Row]:
    """At each point, the time of the fastest of `theirs` divided by the time of `ours`.

    Calls are compared on arrays of the same library, made in the same way.
    """
    every = (row for row in rows if row["measure"] == measure and row["offset"] == 0)
    how = ("producer", "way") if measure == "call" else ()
    found = []
    for at in by_case(every, (*how, "dtype", "n")).values():
        others = [at[name] for name in theirs if name in at]
        if ours in at and others:
            best = min(others, key=lambda row: float(row["median_us"]))
            mine = at[ours]
            reference = {"best": best["strategy"], "best_us": best["median_us"]}
            found.append({**mine, **reference, "ratio": best["median_us"] / mine["median_us"]})
    return found


def misaligned(rows: Iterable[Row]) -> list[Row]:
    """The time of misaligned arrays divided by the time of aligned ones."""
    every = [row for row in rows if row["measure"] == "kernel"]
    on = by_case((row for row in every if row["offset"] == 0), ("dtype", "n"))
    pairs = ((row, on.get((row["dtype"], row["n"]), {}).get(row["strategy"])) for row in every)
    return [{**row, "ratio": row["median_us"] / aligned["median_us"]}
            for row, aligned in pairs if row["offset"] and aligned]  # fmt: skip


def mean(found: Sequence[Row]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(sum(math.log(row["ratio"]) for row in found) / len(found))


def least(found: Sequence[Row]) -> Row:
    """The row of the least ratio."""
    return min(found, key=lambda row: float(row["ratio"]))
