"""Sums along an axis beside other libraries: ``gpureduce bench --axis``.

The L2 cache is flushed before every measurement. Bandwidths count the bytes of the matrix and of
its sums. A copy of the matrix, whose reads and writes count, is the limit.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from gpureduce.bench import record
from gpureduce.bench.command import REPEATS, Suite
from gpureduce.bench.contenders import matrices
from gpureduce.bench.contenders.matrices import CUB, JAX, USUAL, Case
from gpureduce.bench.contenders.places import Place, place_of
from gpureduce.bench.render import Cell, Pivot, Section, as_table, microseconds, over
from gpureduce.bench.render import as_text as text_of
from gpureduce.bench.runner import Group, Latest, Row, Turns, one_by_one
from gpureduce.core.dtypes import is_here, named
from gpureduce.text import rate_text

PARTS = ("shapes", "middle", "rungs", "small", "hard", "calls")
_DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "int32")
_OURS = ("copy", "fast", "exact", "cpu", "fast, whole array")

_COLUMNS = (3, 33, 255, 1000, 2683)  # besides powers of two
_ROWS = 7
_SMALL = ((1, 4096), (8, 4096), (32, 8192), (128, 8192), (1024, 1024), (4096, 4096))
_CALLED = (32, 1024)
_SHARE = 16  # a thread that adds up a long row alone takes too long for the whole size


# --- cases -------------------------------------------------------------------------------------


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


def _three_shapes(n: int) -> list[tuple[int, int]]:
    """A narrow, a square and a wide matrix, of a share of `n` elements if these are many."""
    n = n // _SHARE if n > 1 << 20 else n
    side = 1 << (n.bit_length() - 1) // 2
    return [(n // 16, 16), (side, n // side), (16, n // 16)]


def _rung_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    found = _three_shapes(n)
    for shape in found:
        yield from (Case(*shape, axis, dtypes[0], measure="rungs") for axis in (1, 0))
    rows, columns = found[0]
    yield Case(rows * columns // 2, 2, 1, dtypes[0], measure="rungs")  # rows are parts of a pack


def _small_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    return (Case(*shape, 1, dtypes[0], measure="small") for shape in _SMALL)


def _hard_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    narrow, square, wide = _three_shapes(n)
    for dtype in dtypes:
        if dtype in ("float32", "float64"):  # sums of float16 are proven whatever they are
            for shape, axis in ((narrow, 1), (square, 1), (wide, 1), (square, 0)):
                yield Case(*shape, axis, dtype, measure="hard")


def _call_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    yield Case(*_CALLED, 1, dtypes[0], measure="calls")


_CASES: dict[str, Callable[[int, Sequence[str]], Iterator[Case]]] = {
    "shapes": _shape_cases, "middle": _middle_cases, "rungs": _rung_cases,
    "small": _small_cases, "hard": _hard_cases, "calls": _call_cases,
}  # fmt: skip


def cases(n: int, dtypes: Sequence[str], parts: Sequence[str] = PARTS) -> list[Case]:
    """The cases of these parts at `n` elements, by dtype. Those of more than `n` are left out."""
    found = [case for part in parts for case in _CASES[part](n, dtypes) if 0 < case.size <= n]
    return sorted(dict.fromkeys(found), key=lambda case: dtypes.index(case.dtype))


def groups(place: Place, chosen: Sequence[Case], repeats: int) -> list[Group]:
    """A group for each case, and for a copy of each dtype on a card."""
    chosen = [case for case in chosen if is_here(case.dtype)]
    most = {case.dtype: 0 for case in chosen}
    for case in chosen:
        most[case.dtype] = max(most[case.dtype], case.size)
    base = Latest(lambda dtype: matrices.elements(place, most[dtype], dtype))
    found = []
    copied: set[str] = set()
    for case in chosen:
        if place.card and case.measure == "shapes" and case.dtype not in copied:
            copied.add(case.dtype)
            found.append(_copied(place, case.dtype, most[case.dtype], base, repeats))
        fields = {name: value for name, value in vars(case).items() if name != "measure"}
        found.append(Group(
            f"{case.measure}: {case.dtype} {' x '.join(map(str, case.shape))}",
            {"measure": case.measure, "n": case.size, **fields},
            functools.partial(matrices.contenders, place, case, base),
            Turns(repeats, 1) if case.measure == "calls" else one_by_one(repeats),
            lambda name, value: None,
            free=place.free,
        ))  # fmt: skip
    return found


def _copied(place: Place, dtype: str, n: int, base: Latest, repeats: int) -> Group:
    case = {"measure": "shapes", "dtype": dtype, "n": n, "nbytes": 2 * n * named(dtype).itemsize}
    copy = functools.partial(matrices.copy, place, dtype, base)
    return Group(f"copy: {dtype}", case, copy, one_by_one(repeats))


# --- the record as text ------------------------------------------------------------------------


def load(path: Path) -> Row:
    """Reads a record. ValueError names the file and a wrong field."""
    fields = ("gb_s", "rows", "columns", "axis", "batches", "kernel")
    return record.load(path, "axis", lambda row: fields[: 1 if row["strategy"] == "copy" else 6])


def of_part(rows: Sequence[Row], part: str) -> list[Row]:
    """The rows of a part, without those of the copy."""
    return [row for row in rows if row["measure"] == part and row["strategy"] != "copy"]


def speeds(rows: Sequence[Row], axis: int) -> dict[str, dict[int, float]]:
    """GB/s of float32 matrices of all shapes along an axis, by name and by columns."""
    found: dict[str, dict[int, float]] = {}
    for row in of_part(rows, "shapes"):
        if row["axis"] == axis and row["dtype"] == "float32":
            found.setdefault(row["strategy"], {})[row["columns"]] = row["gb_s"]
    return found


def copy_gb_s(rows: Sequence[Row], dtype: str = "float32") -> float | None:
    """GB/s of a copy of a matrix, reads and writes together; None if it was not measured."""
    copies = [row for row in rows if (row["strategy"], row["dtype"]) == ("copy", dtype)]
    return float(copies[0]["gb_s"]) if copies else None


def _shape(row: Row) -> str:
    if "rows" not in row:
        return "the matrix"
    sizes = (row["rows"], row["columns"])
    return " x ".join(map(str, (row["batches"], *sizes) if row["batches"] > 1 else sizes))


def _case(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in ("dtype", "batches", "rows", "columns", "axis"))


def _gb_s(row: Row) -> str:
    return rate_text(row["gb_s"])


_By = Mapping[str, Row]
_More = dict[str, Callable[[_By], str]]


def _fast_over_the_best(by: _By) -> str:
    others = [name for name in by if name not in _OURS]
    best = min(others, key=lambda name: float(by[name]["median_us"]), default="")
    return over(by, best, "fast" if "fast" in by else "cpu")


def _exact_over_fast(by: _By) -> str:
    return over(by, "fast" if "fast" in by else "cpu", "exact")


_BESIDE: _More = {
    "fast over the best library": _fast_over_the_best,
    "exact over fast": _exact_over_fast,
}


def table(rows: Sequence[Row], cell: Cell = _gb_s, more: _More = _BESIDE) -> str:
    """A line for each case, a column for each call."""
    if any(row["strategy"] == "copy" for row in rows):

        def over_a_copy(by: _By) -> str:
            copy = copy_gb_s(rows, next(iter(by.values()))["dtype"])
            return f"{by['fast']['gb_s'] / copy:.2f}" if copy and "fast" in by else ""

        more = more | {"fast over a copy": over_a_copy}
    head: dict[str, Cell] = {
        "dtype": lambda row: row["dtype"],
        "shape": _shape,
        "axis": lambda row: str(row.get("axis", "")),
    }
    if any(row.get("kernel") for row in rows):
        head["kernel of fast"] = lambda row: row.get("kernel", "")
    lines = Pivot(_case, head, cell, more=more).lines(rows)
    return as_table(lines, ("dtype", "shape", "kernel of fast"))


_RUNGS = Pivot(
    lambda row: row["strategy"],
    {"kernel": lambda row: row["strategy"]},
    _gb_s,
    lambda row: f"{_shape(row)}, axis {row['axis']}",
)
_SECTIONS = (
    Section("shapes", "GB/s of the matrix and its sums together", table),
    Section("middle", "GB/s along the middle axis", table),
    Section("rungs", "GB/s of each kernel, float32",
            lambda rows: as_table(_RUNGS.lines(rows), ("kernel",))),
    Section("small", "Microseconds of a sum of a small matrix, several one after another",
            lambda rows: table(rows, microseconds)),
    Section("hard", "Microseconds if exact has to add up each sum a second time",
            lambda rows: table(rows, microseconds,
                               {"times as long": lambda by: over(by, "exact", USUAL)})),
    Section("calls", "Microseconds of the processor for a call that does not wait for its sums",
            lambda rows: table(rows, microseconds, {})),
)  # fmt: skip


def as_text(made: Row) -> str:
    """A record as text."""
    names = {row["strategy"] for row in made["rows"]}
    failed = {row["strategy"]: row["failed"] for row in made.get("failed", [])}
    notes = [f"{JAX}: from the call until its result is there."] * (JAX in names)
    notes += [f"{CUB}: CUB's DeviceSegmentedReduce, by torch.segment_reduce."] * (CUB in names)
    notes += [f"{name} failed: {why}" for name, why in failed.items()]
    return text_of(made, _SECTIONS, notes)


def suite(arguments: argparse.Namespace) -> Suite:
    """The suite of the command's options."""
    place = place_of(arguments.device, "--axis", ("numpy",))
    sizes = arguments.sizes or [1 << 28 if place.card else 1 << 16]
    parts = arguments.parts or [part for part in PARTS if place.on or part != "rungs"]
    chosen = [case for n in sizes for case in cases(n, arguments.dtypes or _DTYPES, parts)]
    repeats = REPEATS if arguments.repeats is None else arguments.repeats
    return Suite("axis", place.on, groups(place, chosen, repeats), as_text, peers=place.names)
