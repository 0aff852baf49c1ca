"""Sums along an axis beside other libraries: ``gpureduce bench --axis``.

The L2 cache is flushed before every measurement. Bandwidths count the bytes of the matrix and of
its sums. A copy of the matrix, whose reads and writes count, is the limit.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpureduce.bench import render
from gpureduce.bench.command import REPEATS, Suite
from gpureduce.bench.contenders import matrices
from gpureduce.bench.contenders.arrays import array_of
from gpureduce.bench.contenders.matrices import CUB, JAX, USUAL, Case
from gpureduce.bench.contenders.places import Place, place_of
from gpureduce.bench.ratios import by_case
from gpureduce.bench.render import GB_S, US, By, Cell, Pivot, as_table, of, quickest, ratio
from gpureduce.bench.runner import Contender, Group, Latest, Row, Turns, one_by_one
from gpureduce.core.dtypes import is_here, named

PARTS = ("shapes", "middle", "rungs", "small", "hard", "calls", "patterns", "statistics")
_DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "int32")
_OURS = ("copy", "fast", "exact", "cpu", "fast, whole array")

_COLUMNS = (3, 33, 255, 1000, 2683)  # besides powers of two
_ROWS = 7
_SMALL = ((1, 4096), (8, 4096), (32, 8192), (128, 8192), (1024, 1024), (4096, 4096))
_CALLED = (32, 1024)
_SHARE = 16  # a thread that adds up a long row alone takes too long for the whole size


def shapes(n: int) -> list[tuple[int, int]]:
    """Matrices of some `n` elements, from the narrowest to the widest."""
    columns = [2**k for k in (*range(1, 9), *range(10, 60, 2)) if 2**k < n]
    columns += [c for c in _COLUMNS if c < n] + [n // 4, n // 2, n // _ROWS, n]
    return [(n // c, c) for c in sorted({c for c in columns if c})]


def _shape_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    """All shapes of the first dtype, and every third shape of the others."""
    found = shapes(n)
    for i, dtype in enumerate(dtypes):
        for rows, columns in found[::3] if i else found:
            yield from (Case(rows, columns, axis, dtype) for axis in (1, 0))


def _middle_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    """The middle axis between a few long axes, and between a long one and a short one."""
    (few, wide), (tall, narrow) = ((64, 1024), (1024, 16)) if n >= 1 << 22 else ((4, 64), (16, 4))
    for dtype in dtypes:
        yield Case(n // (few * wide), wide, 1, dtype, few, "middle")
        yield Case(tall, narrow, 1, dtype, n // (tall * narrow), "middle")


def three_shapes(n: int) -> list[tuple[int, int]]:
    """A narrow, a square and a wide matrix, of a share of `n` elements if these are many."""
    n = n // _SHARE if n > 1 << 20 else n
    side = 1 << (n.bit_length() - 1) // 2
    return [(n // 16, 16), (side, n // side), (16, n // 16)]


def _rung_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    found = three_shapes(n)
    for shape in found:
        yield from (Case(*shape, axis, dtypes[0], measure="rungs") for axis in (1, 0))
    rows, columns = found[0]
    yield Case(rows * columns // 2, 2, 1, dtypes[0], measure="rungs")  # rows are parts of a pack


def _hard_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    narrow, square, wide = three_shapes(n)
    for dtype in dtypes:
        if dtype in ("float32", "float64"):  # sums of float16 are proven whatever they are
            for shape, axis in ((narrow, 1), (square, 1), (wide, 1), (square, 0)):
                yield Case(*shape, axis, dtype, measure="hard")


def _pattern_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    """Four dimensions, any of which are added up: dense, every second element, and a prime size."""
    blocks = rows = 1 << (n.bit_length() - 1) // 4
    batches = rows << (n.bit_length() - 1) % 4 // 2
    columns = n // (blocks * batches * rows)
    for dtype in dtypes:
        for step, size in ((1, columns), (2, columns // 2), (1, columns - 1)):
            for count in range(1, 5):
                for axes in itertools.combinations(range(4), count):
                    how = {"batches": batches, "blocks": blocks, "step": step}
                    yield Case(rows, size, axes, dtype, measure="patterns", **how)


def _statistics_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    for dtype in dtypes:
        if "float" in dtype:
            for rows in (1, 1024, n >> 10, n >> 6, n >> 3):
                for axis in (1, 0) if 1 < rows < n else (1,):
                    yield Case(rows, n // max(rows, 1), axis, dtype, measure="statistics")


_CASES: dict[str, Callable[[int, Sequence[str]], Iterator[Case]]] = {
    "shapes": _shape_cases,
    "middle": _middle_cases,
    "rungs": _rung_cases,
    "small": lambda n, dtypes: (Case(*s, 1, dtypes[0], measure="small") for s in _SMALL),
    "hard": _hard_cases,
    "statistics": _statistics_cases,
    "patterns": lambda n, dtypes: _pattern_cases(n, dtypes[:1]),
    "calls": lambda n, dtypes: iter([Case(*_CALLED, 1, dtypes[0], measure="calls")]),
}


def cases(n: int, dtypes: Sequence[str], parts: Sequence[str] = PARTS) -> list[Case]:
    """The cases of these parts at `n` elements, by dtype. Those of more than `n` are left out."""
    found = [case for part in parts for case in _CASES[part](n, dtypes) if 0 < case.size <= n]
    return sorted(dict.fromkeys(found), key=lambda case: dtypes.index(case.dtype))


def groups(
    place: Place, chosen: Sequence[Case], repeats: int,
    maker: matrices.Maker = matrices.contenders,
    comparison: Callable[[Case], Callable[[str, Any], None]] = lambda case: lambda *_: None,
) -> Iterator[Group]:  # fmt: skip
    """A group for each case, and for a copy of each dtype on a card."""
    chosen = [case for case in chosen if is_here(case.dtype)]
    most: dict[str, int] = {}
    for case in chosen:
        most[case.dtype] = max(most.get(case.dtype, 0), case.size)
    base = Latest(lambda dtype: place.put(array_of(dtype, most[dtype])))

    def group(case: Case, fields: Row, turns: Turns, of: matrices.Maker) -> Group:
        name = f"{case.measure}: {case.dtype} {' x '.join(map(str, case.shape))}"
        fields = {"measure": case.measure, "dtype": case.dtype, "n": case.size} | fields

        def contenders() -> Iterator[Contender]:
            return of(place, case, base(case.dtype))

        return Group(name, fields, contenders, turns, comparison(case))

    copied: set[str] = set()
    for case in chosen:
        if place.card and case.measure == "shapes" and case.dtype not in copied:
            copied.add(case.dtype)
            whole = Case(1, most[case.dtype], 0, case.dtype)
            nbytes = 2 * whole.size * named(case.dtype).itemsize
            yield group(whole, {"nbytes": nbytes}, one_by_one(repeats), matrices.copy)
        turns = Turns(repeats, 1) if case.measure == "calls" else one_by_one(repeats)
        fields = vars(case)
        if isinstance(case.axis, tuple):
            fields = fields | {"axis": ", ".join(map(str, case.axis))}
        yield group(case, fields, turns, maker)


# --- the record as text ------------------------------------------------------------------------


def of_part(rows: Sequence[Row], part: str) -> list[Row]:
    """The rows of a part, without those of the copy."""
    return [row for row in rows if row["measure"] == part and row["strategy"] != "copy"]


def speeds(rows: Sequence[Row], axis: int) -> dict[str, dict[int, float]]:
    """GB/s of float32 matrices of all shapes along an axis, by name and by columns."""
    shown = (
        row for row in of_part(rows, "shapes") if (row["axis"], row["dtype"]) == (axis, "float32")
    )
    return {name: {columns: row["gb_s"] for columns, row in by.items()}
            for (name,), by in by_case(shown, ("strategy",), "columns").items()}  # fmt: skip


def copy_gb_s(rows: Sequence[Row], dtype: str = "float32") -> float | None:
    """GB/s of a copy of a matrix, reads and writes together; None if it was not measured."""
    copies = [row for row in rows if (row["strategy"], row["dtype"]) == ("copy", dtype)]
    return float(copies[0]["gb_s"]) if copies else None


def _shape(row: Row) -> str:
    if "rows" not in row:
        return "the matrix"
    names = [name for name in ("blocks", "batches") if row.get(name, 1) > 1]
    shape = " x ".join(str(row[name]) for name in (*names, "rows", "columns"))
    more = {"step": row.get("step", 1) > 1, "window": row.get("window")}
    return ", ".join([shape, *(f"{name} {row[name]}" for name, shown in more.items() if shown)])


def _plain(by: By) -> str:
    return "fast" if "fast" in by else "cpu"


More = dict[str, Callable[[By], str]]
BESIDE: More = {
    "fast over the best library": lambda by: ratio(
        quickest(by, [name for name in by if name not in _OURS]), _plain(by))(by),
    "exact over fast": lambda by: ratio(_plain(by), "exact")(by),
}  # fmt: skip


def table(rows: Sequence[Row], cell: Cell = GB_S, more: More = BESIDE) -> str:
    """A line for each case, a column for each call."""
    if any(row["strategy"] == "copy" for row in rows):

        def over_a_copy(by: By) -> str:
            own = by["copy"]["gb_s"] if "copy" in by else None
            copy = own or copy_gb_s(rows, next(iter(by.values()))["dtype"])
            return f"{by['fast']['gb_s'] / copy:.2f}" if copy and "fast" in by else ""

        more = more | {"fast over a copy": over_a_copy}
    head = {"dtype": of("dtype"), "shape": _shape, "axis": of("axis")}
    if any(row.get("kernel") for row in rows):
        head["kernel of fast"] = of("kernel")
    lines = Pivot(head, cell, more=more).lines(rows)
    return as_table(lines, ("dtype", "shape", "kernel of fast"))


_RUNGS = Pivot({"kernel": of("strategy")}, GB_S, lambda r: f"{_shape(r)}, axis {r['axis']}")
_LONGER: More = {"times as long": ratio("exact", USUAL)}
_OF_SUMS: More = {
    f"{name} over the sum": ratio("exact", f"exact {name}") for name in ("mean", "var", "norm")
}
_SECTIONS: dict[str, tuple[str, Callable[[Sequence[Row]], str]]] = {
    "shapes": ("GB/s of the matrix and its sums together", table),
    "middle": ("GB/s along the middle axis", table),
    "patterns": ("GB/s of arrays of four dimensions, along any of them", table),
    "rungs": ("GB/s of each kernel, float32",
              lambda rows: as_table(_RUNGS.lines(rows), ("kernel",))),
    "small": ("Microseconds of a sum of a small matrix, several one after another",
              lambda rows: table(rows, US)),
    "hard": ("Microseconds if exact has to add up each sum a second time",
             lambda rows: table(rows, US, _LONGER)),
    "statistics": ("Microseconds of what is made of sums",
                   lambda rows: table(rows, US, _OF_SUMS)),
    "calls": ("Microseconds of the processor for a call that does not wait for its sums",
              lambda rows: table(rows, US, {})),
}  # fmt: skip


def as_text(made: Row) -> str:
    by_cub = f"{CUB}: CUB's DeviceSegmentedReduce, by torch.segment_reduce."
    return render.as_text(made, _SECTIONS, notes(made, {CUB: by_cub}))


def notes(made: Row, of_names: Mapping[str, str]) -> list[str]:
    """The notes on contenders that a record has, and on those that failed."""
    names = {row["strategy"] for row in made["rows"]}
    failed = {row["strategy"]: row["failed"] for row in made.get("failed", [])}
    known = {JAX: f"{JAX}: from the call until its result is there.", **of_names}
    found = [text for name, text in known.items() if name in names]
    return found + [f"{name} failed: {why}" for name, why in failed.items()]


def suite(arguments: argparse.Namespace) -> Suite:
    place = place_of(arguments.device, "--axis", ("numpy",))
    sizes = arguments.sizes or [1 << 28 if place.card else 1 << 16]
    without = "statistics" if place.on and not place.card else "" if place.on else "rungs"
    parts = arguments.parts or [part for part in PARTS if part != without]
    if "statistics" in parts and without == "statistics":
        raise ValueError("--parts statistics is for a card, or for --device cpu")
    chosen = [case for n in sizes for case in cases(n, arguments.dtypes or _DTYPES, parts)]
    repeats = REPEATS if arguments.repeats is None else arguments.repeats
    return Suite("axis", place.on, list(groups(place, chosen, repeats)), as_text, place.names)
