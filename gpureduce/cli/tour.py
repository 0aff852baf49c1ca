"""``gpureduce tour``: what everybody sees first.

Where there is no GPU it shows what is true there: counts of the kernels beside the times that were
recorded on an H100, and the processors' own sum beside NumPy's.
"""

from __future__ import annotations

import argparse
import functools
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

import gpureduce
from gpureduce.bench.clocks import of_each
from gpureduce.bench.command import size
from gpureduce.bench.runner import Contender, in_turns, one_by_one
from gpureduce.core import devices
from gpureduce.core.arrays import random_numbers
from gpureduce.core.checks import whole
from gpureduce.lectures import findings
from gpureduce.lectures.experiments import find
from gpureduce.lectures.records import Record, measured, packaged
from gpureduce.lectures.tables import provenance_note
from gpureduce.text import Table, show_json

RUNGS = ("interleaved_mod", "interleaved_idx", "sequential", "unroll_warp", "first_add",
         "first_add_unroll_warp", "cascade", "warp_shfl", "vector_load", "tiles")  # fmt: skip
_LIMIT = ("fast", "exact", "cub")
_REPEATS = 9
_CHECKED = 2**16
_WIDTH = 100
# The columns of `findings.counted` that fit on a terminal, and their heads.
_COLUMNS = {
    "shared wavefronts": "wavefronts", "of them conflicts": "conflicts",
    "idle lanes of 32": "idle lanes", "warps at barriers": "barriers", "sectors": "sectors",
}  # fmt: skip
_MEANING = """Counted on the emulator:
  wavefronts  passes of shared memory, of which bank conflicts cause the conflicts
  idle lanes  of the 32 lanes of a warp, per memory instruction
  barriers    waits of a warp
  sectors     of 32 bytes, read from global memory"""
_NEXT = """Next:
  to learn or teach   gpureduce explain interleaved_idx sequential    why one rung is faster
  to measure          gpureduce bench                                 this machine on one page
  to add numbers      gpureduce sum FILE.npy                          the exact sum, rounded once"""


def _timed(n: int, device: devices.Device) -> Record:
    """The rungs' times on this card, or else on an H100, at the nearest size of the lessons."""
    experiment = find("rungs")
    cases = [case for case in experiment.cases(1) if case.strategy in (*RUNGS, *_LIMIT)]
    sizes = sorted({case.n for case in cases})
    nearest = max([size for size in sizes if size <= n], default=sizes[0])
    if device.backend == "emulator":
        return packaged("rungs").only(n=nearest)
    return measured(experiment, [case for case in cases if case.n == nearest], device, _REPEATS)


def _why(record: Record) -> Table:
    """The counts of each rung beside its time."""
    found = findings.counted(record.only(strategy=RUNGS))
    kept = [0, *map(found.head.index, _COLUMNS), 1]
    times = {row.strategy: f"{row.strategy} {row.median_us:.1f}" for row in record.rows}
    limit = ", ".join(times[name] for name in _LIMIT if name in times)
    first = record.rows[0]
    return Table(
        f"Why is each rung faster? {first.n:,} {first.dtype}, {first.block} threads per block",
        ["rung", *_COLUMNS.values(), found.head[1]],
        [[row[at] for at in kept] for row in found.rows],
        ["", f"At the limit of the memory, us: {limit}.", provenance_note(record), _MEANING],
    )


def _integers(n: int) -> Any:
    return random_numbers(1).integers(-1000, 1000, n, dtype=np.int32)


def _checked(device: devices.Device) -> str:
    """A sentence on sums that the kernels have made here."""
    array = _integers(_CHECKED)
    total = int(array.sum())
    wrong = [name for name in RUNGS if gpureduce.sum(array, name, device=device.id).value != total]
    place = "emulated GPU" if device.backend == "emulator" else device.name
    if wrong:
        return f"On the {place} these kernels gave wrong sums: {', '.join(wrong)}."
    return (
        f"On the {place} here, each of these {len(RUNGS)} kernels has just added {_CHECKED:,} "
        f"integers to {total}, as NumPy does."
    )


def _processors(n: int) -> list[dict[str, Any]]:
    """Our sum beside NumPy's, in turns: the best of several calls after one that warms up."""
    found = []
    for array in (random_numbers(1).standard_normal(n, np.float32), _integers(n)):
        runs: dict[str, Callable[[], Any]] = {
            "gpureduce.sum": functools.partial(gpureduce.sum, array, device="cpu"),
            "numpy.sum": functools.partial(np.sum, array),
        }
        found_us = in_turns(
            [Contender(name, of_each(run), run) for name, run in runs.items()],
            one_by_one(_REPEATS),
        )
        best = {name: min(us) / 1e3 for name, us in zip(runs, found_us, strict=True)}
        for name, ms in best.items():
            value = runs[name]()
            row = {"dtype": array.dtype.name, "call": name, "ms": ms}
            row |= {"sum": value.value if name == "gpureduce.sum" else value}
            found.append(row | {"gb_s": array.nbytes / ms / 1e6, "gain": best["numpy.sum"] / ms})
    return found


def _beside_numpy(n: int, rows: list[dict[str, Any]]) -> Table:
    body = [
        [row["dtype"], row["call"], str(row["sum"]), f"{row['ms']:.3f}", f"{row['gb_s']:.1f}",
         f"{row['gain']:.2f}"]
        for row in rows
    ]  # fmt: skip
    return Table(
        f"How fast do the processors here add? {n:,} elements, the best of {_REPEATS} calls",
        ["elements", "call", "sum", "ms", "GB/s", "times as fast as NumPy"],
        body,
        ["gpureduce.sum rounds the exact sum of floats once; numpy.sum rounds at every addition."],
    )


def _place(device: devices.Device, record: Record) -> str:
    """A sentence on the origin of the kernels' times."""
    if device.backend != "emulator":
        return f"The kernels' times are of this machine's {device.name}."
    why = devices.build_info()["why"] or "the emulator was chosen"
    return f"No GPU: {why}. The kernels' times are recorded ones of an {record.device}."


def _run(arguments: argparse.Namespace) -> None:
    n = whole("n", arguments.n, 1, 2**40)
    device = devices.choose_device(arguments.device)
    record = _timed(n, device)
    why, rows = _why(record), _processors(n)
    if arguments.json:
        rungs = [dict(zip(why.head, row, strict=True)) for row in why.rows]
        show_json({"rungs": rungs, "notes": why.notes, "processors": rows})
        return
    parts = [_place(device, record), why, _checked(device), _beside_numpy(n, rows), _NEXT]
    print("\n\n".join(_wrapped(str(part)) for part in parts))


def _wrapped(text: str) -> str:
    """The text with long lines wrapped."""
    lines = [
        line if len(line) <= _WIDTH else textwrap.fill(line, _WIDTH) for line in text.splitlines()
    ]
    return "\n".join(lines)


COMMAND = ("tour", _run, "show why each rung is faster, and how fast this machine adds", {
    "--n": {"type": size, "default": 2**24, "help": "elements (default: 2^24)"},
    "--device": {"help": "cuda, cuda:1 or emulator"},
})  # fmt: skip
