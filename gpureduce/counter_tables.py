"""What `explain` counts beside what a card counted, as ``verify-counters`` recorded it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpureduce import _counter_control, _counter_report, _registry, verify_counters
from gpureduce._explain import Explanation, explain
from gpureduce._hardware_counters import finish_of
from gpureduce.lecture_tables import Table

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
    """Counted now by `explain`, and beside it what a card counted, as recorded in `path`.

    Without that file the table says that the card's counts are not recorded yet.
    """
    path = Path(path)
    record = json.loads(path.read_text()) if path.exists() else None
    card = path.stem.partition("_")[2].upper()
    measured = _measured(record, n, block) if record else {}
    grids = {key[0]: row["grid"] for key, row in measured.items()}
    head = [""]
    for name in COUNTERS.values():
        head += [name, card] if record else [name]
    rows = []
    for wanted in strategies:
        strategy = _registry.find(wanted).name
        found = explain(
            strategy, n=n, dtype="int32", block=block, grid=grids.get(strategy),
            finish=finish_of(strategy),
        )  # fmt: skip
        assert isinstance(found, Explanation)
        model = {**found.counters, **found.details}
        cells = [strategy]
        for counter in COUNTERS:
            cells.append(f"{model[counter]:,}")
            if record:
                row = measured.get((strategy, counter))
                cells.append(f"{row['hardware']:,}" if row else "")
        rows.append(cells)
    title = f"First launch, {n:,} int32, {block} threads per block: counted on the emulator"
    title += f", and by Nsight Compute on the {card}" if record else ""
    return Table(title, head, rows, _notes(record, card))


def _measured(record: dict[str, Any], n: int, block: int) -> dict[tuple[str, str], Any]:
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    return {
        (row["strategy"], row["counter"]): row
        for row in rows
        if row["n"] == n and row["block"] == block
    }


def _notes(record: dict[str, Any] | None, card: str) -> list[str]:
    if not record:
        return [f"{card}: not recorded yet. Shown: what is counted here, without a GPU."]
    verdicts = [row[record["columns"].index("verdict")] for row in record["rows"]]
    equal, explained = (verdicts.count(name) for name in ("equal", "explained"))
    said = (
        f"{record['card']}: driver {record['driver']}, CUDA {record['toolkit']}, {record['date']}, "
        f"commit {record['commit'][:9]}. Of {len(verdicts):,} counts on record {equal:,} are "
        f"equal, {explained:,} differ for a reason that the machine code shows, and "
        f"{len(verdicts) - equal - explained:,} differ without."
    )
    found = verify_counters.Table.of_record(record)
    notes = [said, _counter_report.arbitration(found.rows).replace("`", "")]
    return [*notes, *([_counter_control.summary(found.control)] if found.control else [])]
