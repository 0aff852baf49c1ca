"""Counts of scans, a look-back by hand, and times of running sums, as in notebook 9."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce.bench import record as records
from gpureduce.bench import render
from gpureduce.bench.render import Pivot, of
from gpureduce.emulator.explain import explain
from gpureduce.text import Table

PATH = "data/scan_h200.json"
_COLUMNS = (4, 64, 1024, 16384, 262144, 4194304)  # of the matrices in the table
_COUNTS = {
    "shared wavefronts": ("shared_load_wavefronts", "shared_store_wavefronts"),
    "bank conflicts": ("shared_load_conflicts", "shared_store_conflicts"),
    "block barriers": ("block_barriers",),
    "shuffles": ("shuffles",),
    "global sectors": ("global_load_sectors", "global_store_sectors"),
}


def counted(names: Sequence[str], n: int = 2**14) -> dict[str, dict[str, list[int]]]:
    """Counts of float32 scans and, at the end, of a copy, as `plot.panels` draws them."""
    every: list[Any] = [explain(name, n=n, dtype="float32") for name in names]
    copy = {"global_load_sectors": n // 8, "global_store_sectors": n // 8}
    counts = [*(one.total for one in every), copy]
    return {
        panel: {"": [sum(one.get(name, 0) for name in counters) for one in counts]}
        for panel, counters in _COUNTS.items()
    }


def look_back(sums: Any, seed: int = 0, known: float = 0.25) -> Any:
    """The sum before each tile, made as by `scan_look_back`, but one tile at a time.

    `sums` are the tiles' own. By chance `known`, a tile has already added up all before it.
    """
    rng, before = np.random.default_rng(seed), np.zeros_like(sums)
    for tile in range(len(sums)):
        for k in reversed(range(tile)):
            is_known = rng.random() < known
            before[tile] = (before[k] + sums[k] if is_known else sums[k]) + before[tile]
            if is_known:
                break
    return before


def columns() -> Table:
    """PyTorch's running sums of two matrices: along rows, and down columns."""
    head = ["rows", "columns", "along rows, ms", "down columns, ms", "down columns, ns per row"]
    rows = [[f"{n:,}", f"{2**28 // n:,}", f"{along:.1f}", f"{down:,.1f}", f"{down * 1e6 / n:.0f}"]
            for n, along, down in ((65536, 1.143, 24.43), (4194304, 23.53, 1512.507))]  # fmt: skip
    note = "NVIDIA H200, driver 580.159.04, CUDA 13.0, PyTorch 2.11; a copy takes 0.533 ms."
    return Table("torch.cumsum of 2^28 float32", head, rows, [note])


def recorded(measure: str = "whole", path: str | Path = PATH) -> Table:
    """Microseconds of a record's float32 running sums. Without that file: not recorded yet.

    `measure` is "whole" for arrays as one line, with the rungs, or "matrices".
    """
    title, path = "Running sums on a card, in microseconds", Path(path)
    if not path.exists():
        card = path.stem.partition("_")[2].upper()
        return Table(title, ["shape"], [], [f"{card}: not recorded yet."])
    made = records.load(path, "scan")
    shown = [
        row
        for row in made["rows"]
        if row["measure"] == measure and row["dtype"] == "float32"
        and (measure == "whole" or row["columns"] in _COLUMNS)
    ]  # fmt: skip
    head = of("n", ",") if measure == "whole" else render.MATRIX
    lines = Pivot({"shape": head}, of("median_us", ",.0f")).lines(shown)
    note = f"{made['card']}: driver {made['driver']}, {made['date']}."
    return Table(title, *lines, [note])
