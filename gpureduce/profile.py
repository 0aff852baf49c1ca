"""Counters of the hardware itself, by NVIDIA's profiler: what ``bench --lecture profile`` shows.

Nsight Compute's command line, ``ncu``, runs a Python of its own that launches each kernel once, and
prints a line per launch as CSV: a row of column names, a row of units, then the values.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpureduce import _backends

if TYPE_CHECKING:
    from gpureduce._lecture_bench import Case

# What the report on seven kernels prints, then what explains it.
METRICS = {
    "duration_us": "gpu__time_duration.sum",
    "memory_pct": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_throughput_pct": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "compute_sm_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "executed_instructions": "smsp__inst_executed.sum",
    "achieved_occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "active_warps_per_sm": "sm__warps_active.avg.per_cycle_active",
    "threads_per_instruction": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "blocks": "launch__grid_size",
}

_MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
                 "s": 1e6, "second": 1e6}  # fmt: skip

_TARGET = """
import json, sys
import numpy, gpureduce
for case in json.loads(sys.argv[1]):
    array = numpy.zeros(case["n"], case["dtype"])
    launch = {k: case[k] for k in ("block", "grid", "finish")}
    gpureduce.sum(array, case["strategy"], dtype=case["dtype"], device=sys.argv[2], **launch)
"""


class NoProfiler(OSError):
    """There is nothing to profile with."""


def find_profiler() -> str:
    """Where ``ncu`` is: NCU, PATH, or beside the CUDA toolkit."""
    places = [os.environ.get("NCU"), "ncu", "/usr/local/cuda/bin/ncu"]
    for place in places:
        found = shutil.which(place) if place else None
        if found:
            return found
    raise NoProfiler("Nsight Compute's ncu is not there (looked at NCU, PATH, /usr/local/cuda/bin)")


def parse(text: str) -> list[tuple[str, dict[str, float]]]:
    """The launches that ``ncu --csv --page raw`` printed: kernel, and value by metric.

    Durations come in microseconds, whatever unit ncu chose. What it could not count is left out.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise ValueError(f"ncu printed no table of kernels:\n{text[-2000:].strip()}")
    head, units, *rows = csv.reader(io.StringIO("\n".join(lines[start:])))
    launches = []
    for row in rows:
        if len(row) != len(head):
            continue  # ncu's messages go between the lines
        cells = dict(zip(head, row, strict=True))
        kernel = re.search(r"(\w+)\s*(?:<|\(|$)", cells["Kernel Name"].removeprefix("void "))
        values = {}
        for name, unit, cell in zip(head, units, row, strict=True):
            if "__" in name and re.fullmatch(r"[\d,]+(\.\d+)?", cell):
                scale = _MICROSECONDS[unit] if name == METRICS["duration_us"] else 1.0
                values[name] = float(cell.replace(",", "")) * scale
        launches.append((kernel[1] if kernel else "", values))
    return launches


def counters(device: _backends.Device, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Run each case once under the profiler: `METRICS` by their short names.

    The first launch of each kernel counts. The card's clocks are left as they are.
    """
    if device.backend != "cuda":
        raise NoProfiler(f"a profiler needs a GPU, and this is {device.name}")
    command = [
        find_profiler(), "--csv", "--page", "raw", "--print-units", "base",
        "--clock-control", "none", "--metrics", ",".join(METRICS.values()),
        sys.executable, *(["-P"] if sys.flags.safe_path else []), "-c", _TARGET,
        json.dumps([asdict(case) for case in cases]), device.id,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or "==ERROR==" in done.stdout + done.stderr:
        said = (done.stdout + done.stderr).strip()[-2000:]
        hint = " (counters are for administrators here)" if "ERR_NVGPUCTRPERM" in said else ""
        raise NoProfiler(f"ncu failed{hint}: {said}")
    launches = parse(done.stdout)
    found = []
    for case in cases:
        values = next((v for kernel, v in launches if kernel == case.strategy), None)
        if values is None:
            raise ValueError(f"ncu saw no launch of {case.strategy}")
        found.append({short: values[m] for short, m in METRICS.items() if m in values})
    return found
