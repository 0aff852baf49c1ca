"""Tables of the counts of `explain` and the counts of a GPU, from ``verify-counters``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpureduce.core import json_files, registry
from gpureduce.emulator.explain import explained
from gpureduce.hardware import control, report, verify_counters
from gpureduce.hardware.counters import finish_of
from gpureduce.text import Table

PATH = "data/counters_h200.json"
COUNTERS = {
    "global_load_sectors": "global sectors read",
    "shared_load_wavefronts": "shared load wavefronts",
    "block_barrier_instructions": "warps at block barriers",
    "warp_barriers": "warp barriers",
    "shuffles": "shuffles",
}


def recorded(
    strategies: Sequence[str],
    n: int = 2**24,
    block: int = 256,
    path: str | Path = PATH,
) -> Table:
    """The current counts of `explain` beside a GPU's counts from the record in `path`.

    Without that file the table says that the GPU's counts are not recorded yet.
    """
    path = Path(path)
    record, table = None, None
    if path.exists():
        record = verify_counters.read(path)
        with json_files.naming(path):
            table = verify_counters.Table.of_record(record)
    card = path.stem.partition("_")[2].upper()
    rows_of = table.rows if table else ()
    measured = {(r.strategy, r.counter): r for r in rows_of if (r.n, r.block) == (n, block)}
    grids = {key[0]: row.grid for key, row in measured.items()}
    head = [""]
    for name in COUNTERS.values():
        head += [name, card] if record else [name]
    rows = []
    for wanted in strategies:
        strategy = registry.find(wanted).name
        found = explained(
            strategy, n=n, dtype="int32", block=block, grid=grids.get(strategy),
            finish=finish_of(strategy),
        )  # fmt: skip
        model = {**found.counters, **found.details}
        cells = [strategy]
        for counter in COUNTERS:
            cells.append(f"{model[counter]:,}")
            if record:
                row = measured.get((strategy, counter))
                cells.append(f"{row.hardware:,}" if row else "")
        rows.append(cells)
    title = f"First launch, {n:,} int32, {block} threads per block: counted on the emulator"
    title += f", and by Nsight Compute on the {card}" if record else ""
    return Table(title, head, rows, _notes(record, table, card))


def unrolling(
    strategies: Sequence[str] = ("sequential", "unroll_tail", "unroll_warp", "first_add",
                                 "first_add_unroll_warp", "unroll_full"),
    n: int = 2**24, block: int = 256, path: str | Path = PATH,
) -> Table:  # fmt: skip
    """What writing out the loop saves: instructions and branches of a card, from the record.

    The emulator does not see them: they depend on the compiler. Without a record of them the table
    says so.
    """
    record = verify_counters.read(Path(path)) if Path(path).exists() else {}
    seen = record.get("seen", {"counters": [], "launches": []})
    head = ["", "instructions", "branches", "barriers"]
    rows, names = [], seen["counters"]
    for strategy, launched_n, launched_block, grid, counts, *_ in seen["launches"]:
        by_name = dict(zip(names, counts, strict=False))
        if strategy in strategies and (launched_n, launched_block) == (n, block):
            found = explained(strategy, n=n, dtype="int32", block=block, grid=grid, finish="host")
            barriers = found.counters["block_barriers"] // grid
            cells = [
                by_name.get(f"{name}_issued", 0) / grid for name in ("instructions", "branches")
            ]
            rows.append([strategy, *(f"{cell:,.0f}" for cell in cells), f"{barriers}"])
    rows.sort(key=lambda row: strategies.index(row[0]))
    title = f"What writing out the loop saves, by warps of a block of {block}: {n:,} int32"
    by = f"{record['card']}, commit {str(record['commit'])[:9]}" if rows else "not recorded yet"
    return Table(title, head, rows,
                 [f"Instructions and branches that a block's warps issue: {by}."])  # fmt: skip


def _notes(
    record: dict[str, Any] | None, found: verify_counters.Table | None, card: str
) -> list[str]:
    if not record or not found:
        return [f"{card}: not recorded yet. Shown: what is counted here, without a GPU."]
    verdicts = [row.verdict for row in found.rows]
    equal, explained = (verdicts.count(name) for name in ("equal", "explained"))
    said = (
        f"{record['card']}: driver {record['driver']}, CUDA {record['toolkit']}, {record['date']}, "
        f"commit {str(record['commit'])[:9]}. Of {len(verdicts):,} counts on record {equal:,} are "
        f"equal, {explained:,} differ for a reason that the machine code shows, and "
        f"{len(verdicts) - equal - explained:,} differ without."
    )
    notes = [said, report.arbitration(found.rows).replace("`", "")]
    return [*notes, *([control.summary(found.control)] if found.control else [])]
