"""Compares the counts of `explain` with a GPU: ``python -m gpureduce verify-counters``.

Nsight Compute runs the ladder and reads the hardware's counters. A table shows model, hardware and
difference. Where the source branches, the compiler may predicate, and warps then issue instructions
with all lanes off. Only instructions with an active lane are compared. The issued ones are listed
separately, each with its line in the source. Shared memory accesses are also compared by source
line, which needs nvcc and nvdisasm of the CUDA toolkit.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from gpureduce import _host
from gpureduce.bench.provenance import HEAD, provenance
from gpureduce.core import json_files, registry, text_files
from gpureduce.core.registry import UserKernel
from gpureduce.emulator.explain import Explanation, explained
from gpureduce.errors import CudaError
from gpureduce.hardware import control as _counter_control
from gpureduce.hardware import launches, machine_code
from gpureduce.hardware.control import Alone
from gpureduce.hardware.counters import (
    METRICS,
    OPCODES,
    Case,
    Failure,
    Seen,
    by_opcode,
    finish_of,
    profile,
    size_of,
)
from gpureduce.hardware.reasons import why
from gpureduce.hardware.rows import (
    LINE_COLUMNS,
    PREDICATED_COLUMNS,
    LineRow,
    Predicated,
    Row,
    as_values,
    by_line,
    lines_text,
    place_of,
    predicated,
    predicated_text,
    sources_of,
)
from gpureduce.text import table

T = TypeVar("T")

SIZES = (2**16, 1_000_003, 2**24)
BLOCKS = (256, 1024)

# The name of a computed counter: the pipe's wavefronts minus its bank conflicts.
ACCESSES = "shared_{}_accesses"
COLUMNS = ("strategy", "n", "block", "grid", "counter", "model", "hardware", "difference")

# Matrices for the kernels for sums along an axis. `row_split` and `column_tiles` choose their own
# grid by the number of multiprocessors. For these shapes the emulator, with 4 of them, and a large
# card choose the same.
_MATRICES = {
    "row_packs": ((65536, 2), (4099, 2)),
    "row_block": ((64, 4096), (33, 2500)),
    "row_split": ((2, 16384), (1, 40003)),
    "column_thread": ((64, 2048), (33, 777)),
    "column_packs": ((6, 8192), (5, 3003)),
    "column_tiles": ((64, 4096), (4096, 16), (100, 777)),
}
_SHORT_ROWS = ((2048, 64), (777, 48))
MATRIX_BLOCK = 256  # the largest block that all of them take


def _explained(case: Case, dtype: str, kernel: UserKernel | None) -> Explanation:
    """The counts of `explain` for a case, with the grid that the card had."""
    strategy = kernel or case.strategy
    how: dict[str, Any] = {"dtype": dtype, "block": case.block}
    if not case.rows:
        how |= {"n": case.n, "grid": case.grid, "finish": finish_of(strategy)}
    else:
        how["shape"] = case.shape
        own = explained(strategy, **how)
        if own.grid == case.grid:
            return own
        how["grid"] = case.grid  # refused by kernels that choose their own
    return explained(strategy, **how)


_FAILURE = ("strategy", "n", "block", "grid", "why", "rows")  # in a record
_FIELDS = {
    "dtype": str,
    "columns": list[str],
    "rows": list[Any],
    "sources": dict[str, str],
    "line_columns": list[str],
    "lines": list[Any],
    "predicated_columns": list[str],
    "predicated": list[Any],
    "failures": list[Any],
    "unplaced": list[list[str]],
    "control": list[Any],
    "seen": launches.Values,
}


def read(path: Path) -> dict[str, Any]:
    """Reads a record of this command. Raises ValueError that names the file if it is not one."""
    return json_files.read_record(path, "counters", **HEAD)


def compare(seen: Seen, found: Explanation) -> list[Row]:
    """The rows of one launch: model and hardware for each counter."""
    case = seen.case
    model = {**found.counters, **found.details}
    hardware = {**seen.counters, **by_opcode(seen.code)}
    # The hardware counts loads from another block's shared memory as shared loads, too.
    for name in ("instructions", "wavefronts"):
        model[f"shared_load_{name}"] += model["cluster_load_instructions"]
    for kind in ("load", "store"):
        accesses = ACCESSES.format(kind)
        conflicts = f"shared_{kind}_conflicts"
        model[accesses] = model[f"shared_{kind}_wavefronts"] - model[conflicts]
        hardware[accesses] = hardware[f"shared_{kind}_pipe"] - hardware[conflicts]
    rows = []
    for counter in (*METRICS, *map(ACCESSES.format, ("load", "store")), *OPCODES):
        row = Row(**asdict(case), counter=counter, model=model[counter], hardware=hardware[counter])
        if row.difference:
            row = replace(row, why=why(case, counter, model, hardware, seen.code))
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Table:
    """The result of `verify`: rows of launches, rows of source lines, predicated instructions.

    `unplaced` lists the strategies whose source lines are unknown, with the reason. `control` has
    the control launches without arbitration. `seen` has the GPU's counts, for a later comparison.
    """

    dtype: str
    rows: tuple[Row, ...] = ()
    lines: tuple[LineRow, ...] = ()
    predicated: tuple[Predicated, ...] = ()
    failures: tuple[Failure, ...] = ()
    unplaced: tuple[tuple[str, str], ...] = ()
    control: tuple[Alone, ...] = ()
    seen: tuple[Seen, ...] = ()

    def __add__(self, other: Table) -> Table:
        both = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Table(**both | {"dtype": self.dtype})

    @property
    def differing(self) -> list[Row | Alone]:
        """Rows that differ without an explanation, and all control rows that differ."""
        found = [row for row in (*self.rows, *self.lines) if row.verdict == "differs"]
        return [*found, *(row for row in self.control if row.model != row.hardware)]

    def as_dict(self) -> dict[str, Any]:
        """The table as plain values, for JSON. Rows are lists, in the order of their columns."""
        columns = [*COLUMNS, "verdict", "why", "rows"]
        machine = [one for seen in self.seen for one in seen.code]
        return {
            "dtype": self.dtype,
            "metrics": {**METRICS, **{name: opcode for name, (_, opcode) in OPCODES.items()}},
            "columns": columns,
            "rows": as_values(self.rows, columns),
            "sources": sources_of([*self.lines, *self.predicated, *machine]),
            "line_columns": [*LINE_COLUMNS],
            "lines": as_values(self.lines, LINE_COLUMNS),
            "predicated_columns": [*PREDICATED_COLUMNS],
            "predicated": as_values(self.predicated, PREDICATED_COLUMNS),
            "failures": [_failure_values(one) for one in self.failures],
            "unplaced": [list(one) for one in self.unplaced],
            "control_columns": [*_counter_control.COLUMNS],
            "control": as_values(self.control, _counter_control.COLUMNS),
            "seen": launches.as_values(self.seen),
        }

    @staticmethod
    def of_record(record: dict[str, Any]) -> Table:
        """The table of a record. ValueError names a wrong field."""
        json_files.fields(record, **_FIELDS)
        derived = ("difference", "verdict")
        sources = record["sources"]

        def read(kind: type[T], columns: Sequence[str], name: str) -> tuple[T, ...]:
            found = []
            for i, values in enumerate(record[name]):
                row = json_files.row_with_optional(columns, values, f"{name}[{i}]")
                if "place" in row:
                    place = json_files.checked(row["place"], str, f"{name}[{i}].place")
                    row["place"] = place_of(place, sources)
                given = {k: v for k, v in row.items() if k not in derived}
                found.append(json_files.made(kind, given, f"{name}[{i}]"))
            return tuple(found)

        return Table(
            record["dtype"],
            read(Row, record["columns"], "rows"),
            read(LineRow, record["line_columns"], "lines"),
            read(Predicated, record["predicated_columns"], "predicated"),
            tuple(_failure_of(one, f"failures[{i}]") for i, one in enumerate(record["failures"])),
            tuple((row["strategy"], row["why"]) for i, one in enumerate(record["unplaced"])
                  for row in [json_files.row(("strategy", "why"), one, f"unplaced[{i}]")]),
            read(Alone, _counter_control.COLUMNS, "control"),
            launches.of_values(record["seen"], sources),
        )  # fmt: skip

    def record(self, path: Path, made: dict[str, Any] | None = None) -> None:
        """Writes the table to a file, a row per line, with its provenance.

        `made` is an earlier record whose provenance is kept.
        """
        found = {**(made or provenance("counters")), **self.as_dict()}
        text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
        text_files.write(path, re.sub(r'(\["\w+",\d+)', r"\n\1", text) + "\n")

    def __str__(self) -> str:
        lines = [_verdicts(self)]
        if self.control:
            lines += ["", _counter_control.summary(self.control)]
            lines += [str(row) for row in self.control if row.model != row.hardware]
        lines += [f"{one.case.strategy} {size_of(one.case.n, one.case.rows)} "
                  f"block={one.case.block} could not be measured: {one.why}"
                  for one in self.failures]  # fmt: skip
        for verdict in ("differs", "explained"):
            shown = [row for row in self.rows if row.verdict == verdict]
            if shown:
                lines += ["", f"{verdict}:"]
            lines += map(str, shown)
        lines += [*lines_text(self.lines), *predicated_text(self.predicated)]
        return "\n".join([*lines, *_unplaced(self.unplaced)])


def _failure_values(one: Failure) -> list[Any]:
    *case, rows = astuple(one.case)
    return [*case, one.why, *([rows] if rows else [])]


def _failure_of(values: Any, name: str) -> Failure:
    row = json_files.row_with_optional(_FAILURE, values, name)
    why = json_files.checked(row.pop("why"), str, f"{name}.why")
    return Failure(json_files.made(Case, row, name), why)


def _verdicts(found: Table) -> str:
    """Lines of text: how many counters of each strategy equal the model's."""
    counts = Counter((row.strategy, row.verdict) for row in found.rows)
    counts.update((one.case.strategy, "not measured") for one in found.failures)
    names = dict.fromkeys(row.strategy for row in found.rows)
    names |= dict.fromkeys(one.case.strategy for one in found.failures)
    verdicts = ("equal", "explained", "differs", "not measured")
    rows = [[name, *(str(counts[name, verdict]) for verdict in verdicts)] for name in names]
    return table(["strategy", *verdicts], rows, right=(1, 2, 3, 4))


def _unplaced(found: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of text: why source lines are unknown, by reason, with the strategies."""
    names: dict[str, list[str]] = {}
    for strategy, reason in found:
        names.setdefault(reason, []).append(strategy)
    return ["", *(f"lines of the source are not known for {', '.join(of)}: {reason}"
                  for reason, of in names.items())] if names else []  # fmt: skip


def summarize(
    found: Iterable[Seen | Failure],
    dtype: str,
    functions: Callable[[str], machine_code.Functions] = machine_code.functions,
    kernel: UserKernel | None = None,
) -> Table:
    """The table for the results of `profile`, which are of a user's kernel if one is given.

    `functions` returns a strategy's code with lines.
    """
    table = Table(dtype)
    unplaced: dict[str, str] = {}
    for one in found:
        if isinstance(one, Failure):
            table += Table(dtype, failures=(one,))
            continue
        name = one.case.strategy
        try:
            code = machine_code.with_places(one.code, name, functions(name))
            one = replace(one, code=code)
        except machine_code.Missing as error:
            unplaced[name] = str(error)
        table += judge(one, dtype, kernel)
    return table + Table(dtype, unplaced=tuple(unplaced.items()))


def judge(seen: Seen, dtype: str, kernel: UserKernel | None = None) -> Table:
    """The table of one launch."""
    try:
        found = _explained(seen.case, dtype, kernel)
    except (ValueError, TypeError, CudaError) as error:
        return Table(dtype, failures=(Failure(seen.case, f"the emulator: {error}"),))
    return Table(
        dtype,
        tuple(compare(seen, found)),
        tuple(by_line(seen, found)),
        tuple(predicated(seen)),
        seen=(launches.in_short(seen),),
    )


def judge_again(record: dict[str, Any]) -> Table:
    """The table for a record's counts with the current model and reasons. Needs no GPU."""
    old = Table.of_record(record)
    if not old.seen:
        raise ValueError("the record holds no launches to judge again, but only the table of them")
    kept = Table(old.dtype, failures=old.failures, unplaced=old.unplaced, control=old.control)
    for seen in old.seen:
        kept += judge(seen, old.dtype)
    return kept


def verify(
    strategies: Sequence[str | UserKernel] | None = None,
    sizes: Sequence[int] = SIZES,
    blocks: Sequence[int] = BLOCKS,
    dtype: str = "int32",
    progress: Callable[[Table, int, int], None] | None = None,
) -> Table:
    """Profiles the ladder on the GPU and compares. Needs ncu and permission to read counters.

    `strategies` are names and kernels of users. Kernels for sums along an axis have matrices and a
    block of their own, in place of `sizes` and `blocks`. `progress` is called after each group of
    launches with the table so far, the number of launches in it, and the number of all launches.
    """
    every = strategies or _measurable()
    users = [one for one in every if isinstance(one, UserKernel)]
    found = [registry.find(one) for one in every if isinstance(one, str)]
    names = [one.name for one in found if one.kind != "axis"]
    cases = [case_of(name, n, block) for name in names for n in sizes for block in blocks]
    matrices = [case for one in found if one.kind == "axis" for case in matrix_cases(one.name)]
    alone = list(_counter_control.cases(names, dtype))
    whole, measured = Table(dtype), 0
    of = len(cases) + len(matrices) + sum(len(one) for _, one in alone)
    of += len(users) * len(sizes) * len(blocks)

    def add(more: Table, count: int) -> None:
        nonlocal whole, measured
        whole, measured = whole + more, measured + count
        if progress:
            progress(whole, measured, of)

    for kernel in users:
        add(kernel.call("verify_counters", sizes, blocks, dtype), len(sizes) * len(blocks))
    # Alone, because it is the second launch of other kernels, too.
    second = [case for case in matrices if case.strategy == "row_lanes"]
    others = [case for case in matrices if case.strategy != "row_lanes"]
    for group in itertools.chain(*(profile(some, dtype) for some in (cases, others, second))):
        add(summarize(group, dtype), len(group))
    for kind, single in alone:
        for group in profile(single, kind, len(single)):
            rows, failures = _counter_control.judge(group, kind)
            add(Table(dtype, control=tuple(rows), failures=tuple(failures)), len(group))
    return whole


def _measurable() -> list[str]:
    """The kernels that add up int32. `exact_levels` adds up floats."""
    named = [s.name for s in registry.strategies() if s.kind == "kernel"]
    of_axes = [s.name for s in registry.strategies(internal=True) if s.kind == "axis"]
    return [*named, *(name for name in of_axes if name != "exact_levels")]


def matrix_cases(name: str) -> list[Case]:
    """The cases of a kernel for sums along an axis."""
    shapes = _MATRICES.get(name, _SHORT_ROWS)
    return [Case(name, rows * columns, MATRIX_BLOCK, 0, rows) for rows, columns in shapes]


def case_of(strategy: Any, n: int, block: int, dtype: str = "int32") -> Case:
    """A case. A cooperative grid is cut to fit on the emulated GPU, which is smaller."""
    row = strategy if isinstance(strategy, UserKernel) else registry.find(strategy)
    if not row.traits & _host.COOPERATIVE:
        return Case(row.name, n, block)
    return Case(row.name, n, block, explained(strategy, n=n, block=block, dtype=dtype).grid)
