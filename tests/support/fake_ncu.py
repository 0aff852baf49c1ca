"""Stands in for ncu where there is no card: prints, as ncu would, what the model says of one.

Of what it is asked to profile it runs nothing; the environment says what goes wrong:
FAKE_NCU_FAILS and FAKE_NCU_REFUSES name a strategy, FAKE_NCU_LACKS a metric, and
FAKE_NCU_ARBITRATES a number of wavefronts.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpureduce.emulator.explain import Explanation, explain
from gpureduce.hardware.counters import (
    BESIDE,
    LINE_METRICS,
    METRICS,
    OPCODES,
    SHARED,
    Case,
    Instruction,
    Seen,
    finish_of,
)

# An instruction of a kernel's machine code for each counter that is not 0. ISSUED names the counter
# of how often warps issue an instruction whose lanes are counted.
INSTRUCTIONS = {
    "shared_load_lanes": "@P0 LDS R1",
    "shared_store_lanes": "STS",
    "global_load_lanes": "LDG.E",
    "global_store_lanes": "STG.E",
    "block_barrier_instructions": "BAR.SYNC",
    "warp_barriers": "NOP",
    "shuffles": "SHFL.DOWN",
    "warp_reductions": "REDUX.SUM",
    "atomics": "REDG.E.ADD",
    "fences": "MEMBAR.SC.GPU",
}

ISSUED = {
    "shared_load_lanes": "shared_load_instructions",
    "shared_store_lanes": "shared_store_instructions",
    "global_load_lanes": "global_load_requests",
    "global_store_lanes": "global_store_requests",
    "atomics": "atomic_instructions",
}


def as_hardware(case: Case, dtype: str = "int32", kernel: Any = None) -> Seen:
    """The counters of a card whose counts are exactly the emulator's."""
    strategy = kernel or case.strategy
    what = {"shape": case.shape} if case.rows else {"n": case.n, "finish": finish_of(strategy)}
    found = explain(strategy, dtype=dtype, block=case.block, grid=case.grid or None, **what)
    assert isinstance(found, Explanation)
    model = {**found.counters, **found.details}
    for name in ("instructions", "wavefronts"):
        model[f"shared_load_{name}"] += model["cluster_load_instructions"]
    counters = {name: model[name] for name in METRICS}
    for kind in ("load", "store"):
        noise = int(os.environ.get("FAKE_NCU_ARBITRATES", 0))
        counters[f"shared_{kind}_conflicts"] += noise
        counters[f"shared_{kind}_pipe"] = counters[f"shared_{kind}_wavefronts"] + noise
        counters[f"shared_{kind}_issued"] = counters[f"shared_{kind}_instructions"]
    code = [
        Instruction(
            f"  {INSTRUCTIONS[name]} x",
            model[ISSUED.get(name, name)],
            model[name] * (32 if what == "issued" else 1),
            model[name.replace("lanes", "wavefronts")] if name.startswith("shared") else 0,
        )
        for name, (what, _) in OPCODES.items()
        if model[name]
    ]
    return Seen(replace(case, grid=found.grid), counters, code)


# ncu's other page was written by the run for the first one. The file's name is the fifth word from
# `-m` on.
SHELL = """#!/bin/sh
page=source
for word; do
    case $word in raw) page=raw ;; -m) at=0 ;; esac
    at=$((at + 1))
    [ $at != 5 ] || told=$word
done
[ ! -e "$told.$page" ] || exec cat "$told.$page"
PYTHONPATH='{search}' exec {python} {file} "$@"
"""


def install(folder: Path) -> Path:
    """An executable that is this file."""
    path = folder / "ncu"
    search = os.pathsep.join(sys.path)
    path.write_text(SHELL.format(search=search, python=sys.executable, file=__file__))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def quoted(*cells: Any) -> None:
    print(",".join(f'"{cell}"' for cell in cells))


def print_raw(seen: list[Seen]) -> None:
    """One row per kernel, its numbers with commas; under the head, a row of units."""
    metrics = {key: name for name, key in {**METRICS, **BESIDE}.items()}
    metrics.pop(os.environ.get("FAKE_NCU_LACKS", ""), None)
    quoted("ID", "Process ID", "Kernel Name", *metrics)
    quoted("", "", "", *["inst"] * len(metrics))
    for number, one in enumerate(seen):
        counts = [f"{one.counters[name]:,}" for name in metrics.values()]
        quoted(number, 4711, f"void {one.case.strategy}<unsigned const *>(T1, T2)", *counts)


def print_source(seen: list[Seen]) -> None:
    """A table per kernel, each twice, as ncu likes to.

    A counter of shared memory has no column where the machine code has no instruction for that.
    """
    for one in [one for one in seen for _ in range(2)]:
        shared = any(re.match("LDS|STS", line.opcode) for line in one.code)
        lacking = [SHARED] if not shared else []
        lacking += [os.environ.get("FAKE_NCU_LACKS", "")]
        metrics = {name: key for name, key in LINE_METRICS.items() if key not in lacking}
        quoted("Kernel Name", f"void {one.case.strategy}<unsigned const *>(T1, T2)")
        quoted("#", "Address", "Source", *metrics.values())
        for number, line in enumerate(one.code):
            counts = [getattr(line, name) or "" for name in metrics]
            quoted(number, hex(number), line.text, *counts)


def main() -> None:
    arguments = sys.argv[1:]
    asked, dtype, told, *more = arguments[arguments.index("-m") + 2 :]
    kernel = pickle.loads(Path(more[0]).read_bytes()) if more else None
    cases = [Case(*case) for case in json.loads(Path(asked).read_text())]
    if any(case.strategy == os.environ.get("FAKE_NCU_FAILS") for case in cases):
        sys.exit("==ERROR== The application returned an error code (11).")
    refused = [case for case in cases if case.strategy == os.environ.get("FAKE_NCU_REFUSES")]
    seen = [as_hardware(case, dtype, kernel) for case in cases if case not in refused]
    failed = [[vars(case), "CudaError: out of registers"] for case in refused]
    Path(told).write_text(json.dumps({"ran": [vars(s.case) for s in seen], "failed": failed}))
    for page, show in (("raw", print_raw), ("source", print_source)):
        with open(f"{told}.{page}", "w") as file, contextlib.redirect_stdout(file):
            print("==PROF== Connected to process 4711 (/usr/bin/python3)")
            show(seen)
            print("==PROF== Disconnected from process 4711")
    print(Path(f"{told}.{'raw' if 'raw' in arguments else 'source'}").read_text(), end="")


if __name__ == "__main__":
    main()
