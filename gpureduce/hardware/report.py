"""The report of `verify-counters` for the documentation and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from gpureduce.core import json_files
from gpureduce.core.sources import Place
from gpureduce.hardware import control
from gpureduce.hardware.control import Alone
from gpureduce.hardware.counters import opcode_of, size_of
from gpureduce.hardware.rows import Predicated, Row
from gpureduce.hardware.verify_counters import Table
from gpureduce.text import counted, markdown_table

NOT_YET = (
    "These kernels have not been measured yet. `gpureduce verify-counters --record "
    "notebooks/data/counters_CARD.json` measures them in some minutes, on a machine with a GPU and "
    "Nsight Compute. `python tools/readme.py` then writes the result here."
)
LADDER = ("interleaved_mod", "interleaved_idx", "sequential", "unroll_warp", "cascade", "warp_shfl")
SHOWN = {
    "shared_load_accesses": "shared load wavefronts without conflicts",
    "shared_load_conflicts": "bank conflicts of shared loads",
    "shared_load_lanes": "active lanes of shared loads",
    "global_load_sectors": "global sectors",
    "block_barrier_instructions": "barriers",
}


# Counts are reported in which more than this share of the wavefronts is arbitration (see below).
MUCH = 0.05


def markdown(record: dict[str, Any], patterns: dict[str, Any] | None = None) -> str:
    """The summary of a record: provenance, the ladder, and each counter's worst row.

    `patterns` is a record of wavefronts of random accesses by single warps on the same GPU.
    """
    found = Table.of_record(record)
    if not found.rows:
        raise ValueError("the record has no rows")
    whole = [row for row in found.rows if not row.rows]
    parts = [_head(record, found), *([_ladder(whole)] if whole else []), _counters(found.rows)]
    parts.append(" ".join([arbitration(found.rows), *_control(found.control, patterns)]))
    return "\n\n".join([*parts, *_predicated(found.predicated)])


class _Pattern(TypedDict):
    equal: bool


def load_patterns(path: Path) -> dict[str, Any]:
    """Reads a record of single warps' wavefronts. ValueError names the file and a wrong field."""
    return json_files.read_record(path, "wavefronts", patterns=list[_Pattern])


def arbitration(rows: Iterable[Row]) -> str:
    """Sentences on the pipe's bank conflicts that no instruction accounts for."""
    at = {(row.strategy, row.n, row.block, row.counter): row for row in rows}
    conflicts = [row for row in at.values() if row.counter.endswith("_conflicts")]
    shares = []
    for row in conflicts:
        if row.verdict == "explained":
            beside = row.counter.replace("conflicts", "accesses")
            accesses = at[row.strategy, row.n, row.block, beside].hardware
            shares.append((row.difference / (accesses + row.hardware), row))
    equal = sum(row.verdict == "equal" for row in conflicts)
    said = f"Bank conflicts: {equal} of {len(conflicts)} counts equal the model's."
    if not shares:
        return said
    share, worst = max(shares, key=lambda one: one[0])
    much = sum(one[0] > MUCH for one in shares)
    kind, size = worst.counter.split("_")[1], size_of(worst.n, worst.rows).replace("=", " = ")
    return (
        f"{said} In {len(shares)} counts, the pipe for shared memory has more wavefronts than "
        f"its instructions need. In {much} of them, this is more than {MUCH:.0%} of all its "
        f"wavefronts. The worst case is {share:.1%} (`{worst.strategy}`, {size}, block "
        f"{worst.block}: {worst.difference:,} of {round(worst.difference / share):,} wavefronts of "
        f"{kind}s). This excess is arbitration between warps: no instruction accounts for it, and "
        "the conflicts that the hardware counts per instruction equal the model's."
    )


def _control(rows: Sequence[Alone], patterns: dict[str, Any] | None) -> list[str]:
    """Sentences on the control experiments, which have no arbitration."""
    said = []
    if rows:
        said.append(control.summary(rows).capitalize() + ".")
    if patterns:
        of = patterns["patterns"]
        equal = sum(row["equal"] for row in of)
        said.append(
            "Second control: single warps with random accesses of 4, 8 and 16 bytes per lane. In "
            f"{equal:,} of {len(of):,} patterns, wavefronts and conflicts equal the model's, for "
            "loads and for stores."
        )
    return said


def _head(record: dict[str, Any], found: Table) -> str:
    verdicts = [row.verdict for row in found.rows]
    differ = verdicts.count("differs")
    others = f"{differ:,} differ" if differ else "none differ"
    said = (
        f"Measured on {record['card']}, {record['date']}, driver {record['driver']}, nvcc "
        f"{record['toolkit']}. {' '.join(_launched(found.rows))} "
        f"Of {len(verdicts):,} counters, {verdicts.count('equal'):,} are equal, "
        f"{verdicts.count('explained'):,} differ for a reason that another counter or the machine "
        f"code proves, and {others} for an unknown reason."
    )
    if found.lines:
        equal = sum(row.verdict == "equal" for row in found.lines)
        said += (
            f" Per line of the source, {equal:,} of {len(found.lines):,} counts of shared memory "
            "are equal."
        )
    if found.failures:
        names = ", ".join(dict.fromkeys(one.case.strategy for one in found.failures))
        said += f" {counted(len(found.failures), 'launch')} could not be measured ({names})."
    return said


def _launched(rows: Sequence[Row]) -> list[str]:
    """Phrases on the kernels for whole sums, and on those for sums along an axis."""
    whole, matrices = ([row for row in rows if bool(row.rows) == kind] for kind in (False, True))
    said = []
    if whole:
        sizes = ", ".join(f"{n:,}" for n in sorted({row.n for row in whole}))
        blocks = " and ".join(map(str, sorted({row.block for row in whole})))
        names = {row.strategy for row in whole}
        said.append(f"{len(names)} kernels ran with n = {sizes} and {blocks} threads per block.")
    if matrices:
        shapes = dict.fromkeys(size_of(row.n, row.rows) for row in matrices)
        names = {row.strategy for row in matrices}
        said.append(
            f"{len(names)} kernels for sums along an axis ran on {', '.join(shapes)} elements."
        )
    return said


def _both(row: Row | None) -> str:
    """The count as text: one number if model and hardware agree, else both."""
    if row is None:
        return ""
    if not row.difference:
        return f"{row.model:,}"
    return f"{row.model:,} → {row.hardware:,} ({_share(row)})"


def _share(row: Row) -> str:
    return f"{row.difference / row.model:+.2%}" if row.model else f"{row.difference:+,}"


def _ladder(rows: Iterable[Row]) -> str:
    """A table of the lectures' rungs at the largest size and the smallest block."""
    rows = list(rows)
    n, block = max(row.n for row in rows), min(row.block for row in rows)
    at = {(r.strategy, r.counter): r for r in rows if (r.n, r.block) == (n, block)}
    head = [f"n = {n:,}, block {block}", *SHOWN.values()]
    cells = [
        [f"`{name}`", *(_both(at.get((name, counter))) for counter in SHOWN)]
        for name in LADDER
        if (name, "shared_load_accesses") in at
    ]
    said = "A cell with one number: model and hardware agree. Otherwise: model → hardware.\n\n"
    return said + markdown_table(head, cells)


def _counters(rows: Sequence[Row]) -> str:
    """A table of the counters: agreement over all launches, and the worst row."""
    lines = []
    for counter in dict.fromkeys(row.counter for row in rows):
        of = [row for row in rows if row.counter == counter]
        worst = max(of, key=lambda row: (row.verdict == "differs",
                                         abs(row.difference) / max(row.model, 1)))  # fmt: skip
        said = ""
        if worst.difference:
            size = size_of(worst.n, worst.rows).replace("=", " = ")
            where = f"`{worst.strategy}`, {size}, block {worst.block}"
            said = f"{where}: {_both(worst)}"
        equal = sum(not row.difference for row in of)
        why = worst.why or ("not explained" if worst.difference else "")
        lines.append([counter.replace("_", " "), f"{len(of)}", f"{equal}", said, why])
    head = ["counter", "compared", "equal", "worst", "why"]
    return markdown_table(head, lines, left=(0, 3, 4))


def _predicated(rows: Sequence[Predicated]) -> list[str]:
    """A table of the ladder's predicated instructions, by line of the source."""
    rows = [row for row in rows if row.strategy in LADDER and row.place]
    if not rows:
        return []
    n, block = max(row.n for row in rows), min(row.block for row in rows)
    lines: dict[Place, list[Predicated]] = {}
    for row in rows:
        if (row.n, row.block) == (n, block) and row.place:
            lines.setdefault(row.place, []).append(row)
    head = ["line", "predicated code", "instructions", "warps", "active lanes"]
    cells = []
    for place, of in lines.items():
        opcodes = ", ".join(dict.fromkeys(opcode_of(row.text) for row in of))
        warps, lanes = (sum(getattr(row, name) for row in of) for name in ("issued", "lanes"))
        share = f"{lanes / max(warps, 1):.1f} of 32"
        cells.append([place.key, f"`{place.text}`", opcodes, f"{warps:,}", share])
    return [
        "For these instructions, the compiler uses predication instead of a branch. So a warp "
        "issues them even if none of its lanes is active. The counts are for "
        f"n = {n:,}, block {block}.",
        markdown_table(head, cells, left=(0, 1, 2)),
    ]
