"""Hardware counters by NVIDIA's profiler, for ``bench --lecture profile``.

Nsight Compute runs a separate Python process that launches each kernel once.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpureduce.core import devices
from gpureduce.hardware import ncu
from gpureduce.lectures.measuring import Case

# First the metrics that the report on seven kernels prints, then those that explain them.
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

_TARGET = """
import json, sys
sys.path.insert(0, sys.argv[3])  # this package, wherever the process starts
import numpy, gpureduce
for case in json.loads(sys.argv[1]):
    array = numpy.zeros(case["n"], case["dtype"])
    launch = {k: case[k] for k in ("block", "grid", "finish")}
    gpureduce.sum(array, case["strategy"], dtype=case["dtype"], device=sys.argv[2], **launch)
"""


class NoProfiler(OSError):
    """No profiler, or no GPU, is available."""


def _values(row: ncu.Row) -> dict[str, float]:
    """The metrics of a launch, by their short names, without those that ncu could not count."""
    found = {}
    for short, metric in METRICS.items():
        text = row.get(metric, "").replace(",", "")
        if re.fullmatch(r"\d+(\.\d+)?", text):
            found[short] = float(text)
    if "duration_us" in found:
        found["duration_us"] /= 1e3  # ncu reports nanoseconds
    return found


def _kernel(row: ncu.Row) -> str:
    found = re.search(r"(\w+)\s*(?:<|\(|$)", row["Kernel Name"].removeprefix("void "))
    return found[1] if found else ""


def counters(device: devices.Device, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Run each case once under the profiler: `METRICS` by their short names.

    Uses the first launch of each kernel. The GPU's clocks are not locked.
    """
    if device.backend != "cuda":
        raise NoProfiler(f"a profiler needs a GPU, and this is {device.name}")
    command = [
        sys.executable, "-P", "-c", _TARGET, json.dumps([asdict(case) for case in cases]),
        device.id, str(Path(__file__).parents[2]),
    ]  # fmt: skip
    options = ["--page", "raw", "--metrics", ",".join(METRICS.values())]
    try:
        launches = ncu.run(command, options, cold=True)
    except OSError as error:
        raise NoProfiler(str(error)) from error
    found = []
    for case in cases:
        row = next((row for row in launches if _kernel(row) == case.strategy), None)
        if row is None:
            raise ValueError(f"ncu saw no launch of {case.strategy}")
        found.append(_values(row))
    return found
