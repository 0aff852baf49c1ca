"""The counts of `explain`, held against a card: ``python -m gpureduce verify-counters``.

Nsight Compute runs the ladder and reads the hardware's counters; a table puts model, hardware and
difference side by side. The compiler predicates where the source branches, so that instructions
with all lanes off are issued, too: what is compared are the instructions with a lane on, and the
issued ones stand beside them, line by line of the machine code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpureduce import _emulator, _registry
from gpureduce._counter_reasons import why
from gpureduce._explain import Explanation, explain
from gpureduce._hardware_counters import (
    METRICS,
    OPCODES,
    Case,
    Failure,
    Seen,
    by_opcode,
    finish_of,
    profile,
)
from gpureduce.errors import CudaError
from gpureduce.record import provenance
from gpureduce.text import table

SIZES = (2**16, 1_000_003, 2**24)
BLOCKS = (256, 1024)

# What is left of the pipe's wavefronts without its bank conflicts: the accesses themselves.
ACCESSES = "shared_{}_accesses"
COLUMNS = ("strategy", "n", "block", "grid", "counter", "model", "hardware", "difference")


@dataclass(frozen=True)
class Row:
    """One counter of one launch. `why` tells where a difference comes from, with the evidence."""

    strategy: str
    n: int
    block: int
    grid: int
    counter: str
    model: int
    hardware: int
    why: str = ""

    @property
    def difference(self) -> int:
        """Hardware less model."""
        return self.hardware - self.model

    @property
    def verdict(self) -> str:
        """``"equal"``, ``"explained"`` or ``"differs"``."""
        if self.model == self.hardware:
            return "equal"
        return "explained" if self.why else "differs"


def compare(seen: Seen, dtype: str) -> list[Row]:
    """The counters of one launch, model and hardware."""
    case = seen.case
    found = explain(
        case.strategy,
        n=case.n,
        dtype=dtype,
        block=case.block,
        grid=case.grid,
        finish=finish_of(case.strategy),
    )
    assert isinstance(found, Explanation)
    model = {**found.counters, **found.details}
    hardware = {**seen.counters, **by_opcode(seen.code)}
    # The hardware counts loads from another block's shared memory as loads from shared memory.
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
class Predicated:
    """Instructions on shared memory that warps pass with lanes off, rather than branch around."""

    strategy: str
    n: int
    block: int
    text: str
    issued: int
    lanes: int
    wavefronts: int


@dataclass(frozen=True)
class Table:
    """What `verify` found."""

    dtype: str
    rows: tuple[Row, ...]
    predicated: tuple[Predicated, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def differing(self) -> list[Row]:
        """Rows that differ and that nothing explains."""
        return [row for row in self.rows if row.verdict == "differs"]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON: rows are lists, in the order of `columns`."""
        return {
            "dtype": self.dtype,
            "metrics": {**METRICS, **{name: opcode for name, (_, opcode) in OPCODES.items()}},
            "columns": [*COLUMNS, "verdict", "why"],
            "rows": [
                [*(getattr(row, column) for column in COLUMNS), row.verdict, row.why]
                for row in self.rows
            ],
            "predicated": [list(asdict(line).values()) for line in self.predicated],
            "failures": [[*asdict(one.case).values(), one.why] for one in self.failures],
        }

    @staticmethod
    def of_record(record: dict[str, Any]) -> Table:
        """The table that a record holds."""
        rows = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
        derived = ("difference", "verdict")
        return Table(
            record["dtype"],
            tuple(Row(**{k: v for k, v in row.items() if k not in derived}) for row in rows),
            tuple(Predicated(*line) for line in record["predicated"]),
            tuple(Failure(Case(*one[:-1]), one[-1]) for one in record["failures"]),
        )

    def record(self, path: Path) -> None:
        """Write it with its provenance, a row a line."""
        found = {**provenance("counters"), **self.as_dict()}
        text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
        path.write_text(re.sub(r'(\["\w+",\d+)', r"\n\1", text) + "\n")

    def __str__(self) -> str:
        lines = [_verdicts(self)]
        lines += [f"{one.case.strategy} n={one.case.n:,} block={one.case.block} could not be "
                  f"measured: {one.why}" for one in self.failures]  # fmt: skip
        for verdict in ("differs", "explained"):
            shown = [row for row in self.rows if row.verdict == verdict]
            if shown:
                lines += ["", f"{verdict}:"]
            lines += [
                f"{row.strategy} n={row.n:,} block={row.block} {row.counter}: model {row.model:,}, "
                f"hardware {row.hardware:,}{': ' if row.why else ''}{row.why}"
                for row in shown
            ]
        return "\n".join([*lines, *_predicated(self)])


def _verdicts(found: Table) -> str:
    """How many counters of each strategy are as the model has them."""
    counts = Counter((row.strategy, row.verdict) for row in found.rows)
    counts.update((one.case.strategy, "not measured") for one in found.failures)
    names = dict.fromkeys(row.strategy for row in found.rows)
    names |= dict.fromkeys(one.case.strategy for one in found.failures)
    verdicts = ("equal", "explained", "differs", "not measured")
    rows = [[name, *(str(counts[name, verdict]) for verdict in verdicts)] for name in names]
    return table(["strategy", *verdicts], rows, right=(1, 2, 3, 4))


def _predicated(found: Table) -> list[str]:
    """The lines of machine code that warps pass with all lanes off, too: each in its worst case."""
    worst: dict[tuple[str, str], Predicated] = {}
    for line in found.predicated:
        known = worst.setdefault((line.strategy, line.text), line)
        if line.issued / max(line.lanes, 1) > known.issued / max(known.lanes, 1):
            worst[line.strategy, line.text] = line
    if not worst:
        return []
    lines = [
        "",
        "predicated, not branched around (warps that came by, and their lanes that were on):",
    ]
    return lines + [
        f"{line.strategy} n={line.n:,} block={line.block} {line.text}: {line.issued:,} warps, "
        f"{line.lanes:,} lanes"
        for line in worst.values()
    ]


def summarize(found: Iterable[Seen | Failure], dtype: str) -> Table:
    """The table of what `profile` found."""
    rows: list[Row] = []
    predicated: list[Predicated] = []
    failures: list[Failure] = []
    for one in found:
        if isinstance(one, Failure):
            failures.append(one)
            continue
        try:
            rows += compare(one, dtype)
        except (ValueError, TypeError, CudaError) as error:
            failures.append(Failure(one.case, f"the emulator: {error}"))
            continue
        predicated += [
            Predicated(
                one.case.strategy, one.case.n, one.case.block, i.text.strip(), i.issued, i.lanes,
                i.wavefronts,
            )
            for i in one.code
            if i.predicated and i.issued and re.match("LDS|STS", i.opcode)
        ]  # fmt: skip
    return Table(dtype, tuple(rows), tuple(predicated), tuple(failures))


def verify(
    strategies: Sequence[str] | None = None,
    sizes: Sequence[int] = SIZES,
    blocks: Sequence[int] = BLOCKS,
    dtype: str = "int32",
    progress: Callable[[Table, int, int], None] | None = None,
) -> Table:
    """Profile the ladder on the card and compare; needs ncu, and the right to read counters.

    `progress` is called after each group of strategies: with the table so far, and how many of how
    many launches it holds.
    """
    names = strategies or [s.name for s in _registry.strategies() if s.kind == "kernel"]
    names = [row.name for row in map(_registry.find, names)]
    cases = [_case(name, n, block) for name in names for n in sizes for block in blocks]
    whole, measured = Table(dtype, (), ()), 0
    for group in profile(cases, dtype):
        part = summarize(group, dtype)
        whole = Table(
            dtype,
            whole.rows + part.rows,
            whole.predicated + part.predicated,
            whole.failures + part.failures,
        )
        measured += len(group)
        if progress:
            progress(whole, measured, len(cases))
    return whole


def _case(name: str, n: int, block: int) -> Case:
    """A cooperative grid must fit on the emulated card, too, which is smaller."""
    if not _registry.find(name).traits & _emulator.COOPERATIVE:
        return Case(name, n, block)
    found = explain(name, n=n, block=block)
    assert isinstance(found, Explanation)
    return Case(name, n, block, found.grid)
