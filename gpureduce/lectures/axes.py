"""Tables of sums along axes, from a record of ``gpureduce bench --axis``, as in notebook 6."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from gpureduce.bench import record as records
from gpureduce.bench import render
from gpureduce.bench.ratios import by_case
from gpureduce.bench.render import Pivot, of
from gpureduce.bench.runner import Row
from gpureduce.bench.suites import axis as by_axis
from gpureduce.emulator.explain import Explanation, explained
from gpureduce.lectures.tables import made_on
from gpureduce.text import Table

PATH = "data/axis_h100.json"


def load(path: str | Path = PATH) -> Row:
    """The record. ValueError names a wrong field."""
    return records.load(path, "axis")


def _shapes_of(record: Row, name: str) -> list[Row]:
    """The rows of a call for float32 matrices of all shapes."""
    rows = by_axis.of_part(record["rows"], "shapes")
    return [row for row in rows if (row["dtype"], row["strategy"]) == ("float32", name)]


def both_axes(record: Row, name: str) -> dict[tuple[int, int], tuple[float, float]]:
    """The milliseconds of a call along axis 0 and axis 1, by rows and columns; float32."""
    found = by_case(_shapes_of(record, name), ("rows", "columns"), "axis")
    return {(rows, columns): (by[0]["median_us"] / 1e3, by[1]["median_us"] / 1e3)
            for (rows, columns), by in found.items() if len(by) == 2}  # fmt: skip


def slower_axis(record: Row, names: Sequence[str]) -> Table:
    """For each library, the matrix whose two axes differ most, and how much.

    >>> from gpureduce.lectures import axes
    >>> table = axes.slower_axis(axes.load("notebooks/data/axis_h100.json"), ["CuPy"])
    >>> table.rows[0][:2]
    ['CuPy', '16,777,216 x 16']
    """
    rows = []
    for name in names:
        every = both_axes(record, name)
        shape = max(every, key=lambda s: max(every[s]) / min(every[s]))
        columns, lines = every[shape]
        which = "the columns" if columns > lines else "the rows"
        times = max(columns, lines) / min(columns, lines)
        rows.append([name, f"{shape[0]:,} x {shape[1]:,}", which, f"{times:,.1f}"])
    head = ["", "matrix", "slower", "times as long"]
    return Table("The two axes of one matrix", head, rows, [f"{made_on(record)}."])


def per_block(record: Row, name: str, axis: int, share: int) -> Table:
    """The speed of a library divided by a number of blocks: one for each `share` sums.

    >>> from gpureduce.lectures import axes
    >>> record = axes.load("notebooks/data/axis_h100.json")
    >>> print(axes.per_block(record, "CuPy", 0, 32).rows[0][0])
    2
    """
    rows = []
    for row in _shapes_of(record, name):
        if row["axis"] != axis:
            continue
        sums = row["columns"] if axis == 0 else row["rows"]
        gb_s, blocks = row["gb_s"], -(-sums // share)
        if blocks <= _MOST_BLOCKS:
            rows.append([f"{sums:,}", f"{gb_s:,.0f}", f"{blocks:,}", f"{gb_s / blocks:.1f}"])
    what = "columns" if axis == 0 else "rows"
    each = f"{share} {what}" if share > 1 else f"one {what[:-1]}"
    head = [what, "GB/s", f"blocks, if each has {each}", "GB/s of a block"]
    rows.sort(key=lambda row: int(row[0].replace(",", "")))
    return Table(f"{name}: the speed along axis {axis}, by blocks", head, rows,
                 [f"{made_on(record)}."])  # fmt: skip


_MOST_BLOCKS = 132  # about as many as an H100 has multiprocessors


def counted(names: Sequence[str], shape: tuple[int, int]) -> dict[str, Explanation]:
    """The counts of the kernels that take a float32 matrix of this shape, by name.

    >>> from gpureduce.lectures import axes
    >>> list(axes.counted(["row_tile", "row_warp"], (64, 1024)))
    ['row_warp']
    """
    found = {}
    for name in names:
        with contextlib.suppress(ValueError):  # rows too long for the kernel, or of no whole packs
            found[name] = explained(name, shape=shape, dtype="float32")
    return found


_RUNGS = Pivot({"": of("strategy")}, of("gb_s", ",.0f"), render.MATRIX)


def rungs(record: Row) -> Table:
    """GB/s of each kernel, on a narrow, a square and a wide matrix; if they have been timed."""
    rows = by_axis.of_part(record["rows"], "rungs")
    head, body = _RUNGS.lines(rows)
    missing = "This record has no times of the kernels by name: gpureduce bench --axis takes them."
    notes = [f"{made_on(record)}."] if rows else [missing]
    return Table("GB/s of each kernel, float32", head, body, notes)


def chosen(record: Row) -> Table:
    """The kernel that `fast` takes, by columns and axis."""
    found = by_case(_shapes_of(record, "fast"), ("columns",), "axis")
    rows: list[list[str]] = []
    for (columns,), by in sorted(found.items()):
        names = [by[axis]["kernel"] if axis in by else "" for axis in (1, 0)]
        if 1 in by and (not rows or rows[-1][1:] != names):
            rows.append([f"{columns:,}", *names])
    head = ["from so many columns on", "each row (axis 1)", "each column (axis 0)"]
    return Table("The kernel that fast takes", head, rows, [f"{made_on(record)}."])
