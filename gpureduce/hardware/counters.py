"""Hardware counters of our kernels: launches under Nsight Compute, group by group.

ncu runs ``python -m gpureduce.hardware.counters CASES DTYPE OUTPUT``. If a launch fails, or ncu
fails for a group of kernels, the group is measured again strategy by strategy. The launches that
fail again are returned as `Failure`; the others are not affected.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from gpureduce.core import registry
from gpureduce.core.registry import UserKernel
from gpureduce.core.sources import Place
from gpureduce.hardware import ncu

# Metrics of ncu for a whole kernel.
METRICS = {
    "shared_load_instructions": "smsp__sass_inst_executed_op_shared_ld.sum",
    "shared_store_instructions": "smsp__sass_inst_executed_op_shared_st.sum",
    "shared_load_wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
}

# Additional metrics of ncu. The wavefronts of the pipe include those of the instructions, and extra
# wavefronts of loads and stores that wait while another access occupies the pipe. These extra ones
# are noise: they do not depend on the addresses.
BESIDE = {
    "shared_load_issued": "smsp__inst_executed_op_shared_ld.sum",
    "shared_store_issued": "smsp__inst_executed_op_shared_st.sum",
    "shared_load_pipe": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_pipe": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}

# Counters of all instructions of the machine code, by opcode.
IN_ALL = {"instructions_issued": r"", "branches_issued": r"BRA|BRX|JMP|JMX|BREAK|BSYNC|RET|EXIT"}

# Metrics of ncu for each instruction of the machine code.
LINE_METRICS = {
    "issued": "inst_executed",
    "lanes": "thread_inst_executed_true",
    "wavefronts": "memory_l1_wavefronts_shared",
}
SHARED = LINE_METRICS["wavefronts"]

# Counters computed from the metrics per instruction: issued warps or lanes, by opcode. Where the
# compiler knows that a warp is converged, it replaces __syncwarp by a NOP.
OPCODES = {
    "shared_load_lanes": ("lanes", r"LDS"),
    "shared_store_lanes": ("lanes", r"STS"),
    "global_load_lanes": ("lanes", r"LDG"),
    "global_store_lanes": ("lanes", r"STG"),
    "block_barrier_instructions": ("issued", r"BAR\."),
    "warp_barriers": ("issued", r"WARPSYNC|NOP"),
    "shuffles": ("issued", r"SHFL"),
    "warp_reductions": ("issued", r"REDUX|CREDUX"),
    "atomics": ("lanes", r"ATOM|RED(?!UX)"),
    "fences": ("issued", r"MEMBAR"),
}

_ON_SHARED = re.compile(r"LDS|STS|ATOMS")

_TOGETHER = 6  # strategies per run of ncu, which takes seconds to start


@dataclass(frozen=True)
class Case:
    """The arguments of one launch. Sums along an axis are of a matrix of `rows` rows."""

    strategy: str
    n: int
    block: int
    grid: int = 0
    rows: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return (self.rows, self.n // self.rows) if self.rows else (self.n,)


def size_of(n: int, rows: int) -> str:
    """The number of elements as text, or the shape of the matrix."""
    return f"{rows:,} x {n // rows:,}" if rows else f"n={n:,}"


def opcode_of(text: str) -> str:
    """The opcode in a line of machine code, without predicate and operands."""
    return re.sub(r"^@!?U?P\w+\s+", "", text.strip()).split()[0]


@dataclass(frozen=True)
class Instruction:
    """A line of the machine code: warps that issued it, active lanes, and wavefronts.

    `place` is its line in the source, if known.
    """

    text: str
    issued: int
    lanes: int
    wavefronts: int
    place: Place | None = None

    @property
    def opcode(self) -> str:
        """The opcode, without predicate and operands."""
        return opcode_of(self.text)

    @property
    def predicated(self) -> bool:
        """Whether the instruction has a predicate, which can turn lanes off."""
        return self.text.strip().startswith("@")


@dataclass(frozen=True)
class Seen:
    """The GPU's counters of one launch."""

    case: Case
    counters: dict[str, int]
    code: Sequence[Instruction]


@dataclass(frozen=True)
class Failure:
    """A launch without measurements, and the reason."""

    case: Case
    why: str


Found = list[Seen | Failure]


def finish_of(strategy: str | UserKernel) -> str | None:
    """The finish that needs one launch; None for the strategy's default."""
    row = strategy if isinstance(strategy, UserKernel) else registry.find(strategy)
    return "host" if "host" in row.finishes else None


def _launch(case: Case, dtype: str, kernel: UserKernel | None) -> Case:
    """Runs the case on the GPU. Returns the case with the grid of its first launch."""
    from gpureduce.core.summation import sum

    zeros, strategy = np.zeros(case.shape, dtype), kernel or case.strategy
    how = (dtype, case.block, case.grid or None, finish_of(strategy), "cuda")
    axis = registry.find(case.strategy).axis if case.rows else None
    timing = sum(zeros, cast(Any, strategy), *how, axis=axis).timing
    return replace(case, grid=timing.grid or 0)


def launch(
    cases: Sequence[Case], dtype: str, kernel: UserKernel | None = None
) -> tuple[list[Case], list[Failure]]:
    """Runs the cases on the GPU, of a user's kernel if one is given.

    Returns those that ran, and the failures.
    """
    ran, failed = [], []
    for case in cases:
        try:
            ran.append(_launch(case, dtype, kernel))
        except (OSError, RuntimeError, ValueError, TypeError, MemoryError) as error:
            failed.append(Failure(case, f"{type(error).__name__}: {error}"))
    return ran, failed


def launch_here(arguments: Sequence[str], kernel: UserKernel | None = None) -> None:
    """The program that ncu runs. Arguments: a file of cases, the dtype, a file for what ran."""
    cases = [Case(*case) for case in json.loads(Path(arguments[0]).read_text())]
    ran, failed = launch(cases, arguments[1], kernel)
    result = {"ran": [asdict(c) for c in ran], "failed": [[asdict(f.case), f.why] for f in failed]}
    Path(arguments[2]).write_text(json.dumps(result))


def profile(
    cases: Sequence[Case],
    dtype: str,
    together: int = _TOGETHER,
    program: Sequence[str] = ("gpureduce.hardware.counters",),
) -> Iterator[Found]:
    """Yields the GPU's counters of the cases, for some strategies at a time.

    `program` is the module that launches them, and its further arguments.
    """
    names = list(dict.fromkeys(case.strategy for case in cases))
    groups = [names[i : i + together] for i in range(0, len(names), together)]
    while groups:
        group = groups.pop(0)
        some = [case for case in cases if case.strategy in group]
        try:
            found = _profile(some, dtype, program)
        except ncu.Failed as error:
            found = [Failure(case, str(error)) for case in some]
        if len(group) > 1 and any(isinstance(one, Failure) for one in found):
            groups = [*([name] for name in group), *groups]
        else:
            yield found


def _profile(cases: Sequence[Case], dtype: str, program: Sequence[str]) -> Found:
    names = "|".join(sorted({case.strategy for case in cases}))
    with tempfile.TemporaryDirectory() as folder:
        wanted, result = Path(folder) / "cases.json", Path(folder) / "ran.json"
        wanted.write_text(json.dumps([astuple(case) for case in cases]))
        module, *more = program
        command = [sys.executable, "-P", "-m", module, str(wanted), dtype, str(result), *more]
        only = ["--kernel-name", f"regex:^({names})$"]
        raw = [*only, "--page", "raw", "--metrics", ",".join([*METRICS.values(), *BESIDE.values()])]
        kernels = ncu.run(command, raw)
        lines = ["--page", "source", "--print-source", "sass", "--metrics"]
        listings = ncu.listings(command, [*only, *lines, ",".join(LINE_METRICS.values())])
        said = json.loads(result.read_text())
    ran = [Case(**case) for case in said["ran"]]
    failed = [Failure(Case(**case), why) for case, why in said["failed"]]
    return [*matched(ran, kernels, listings), *failed]


def matched(
    ran: Sequence[Case], kernels: Sequence[ncu.Row], listings: dict[str, list[list[ncu.Row]]]
) -> list[Seen]:
    """Pairs each launch with its counters and its listing from ncu."""
    if len(ran) != len(kernels):
        raise ncu.Failed(f"{len(ran)} launches, but ncu saw {len(kernels)} kernels")
    launches = Counter(case.strategy for case in ran)
    seen: Counter[str] = Counter()
    found = []
    for case, kernel in zip(ran, kernels, strict=True):
        of_name = listings.get(case.strategy, [])
        copies, rest = divmod(len(of_name), launches[case.strategy])
        if rest or not copies:
            raise ncu.Failed(
                f"ncu listed {len(of_name)} machine codes for {launches[case.strategy]} launches "
                f"of {case.strategy}"
            )
        listing = of_name[copies * seen[case.strategy]]
        seen[case.strategy] += 1
        counters = {name: ncu.counter(kernel, key) for name, key in {**METRICS, **BESIDE}.items()}
        code = _machine_code(listing)
        for name, pattern in IN_ALL.items():
            counters[name] = sum(one.issued for one in code if re.match(pattern, one.opcode))
        found.append(Seen(case, counters, code))
    return found


def _machine_code(listing: Sequence[ncu.Row]) -> list[Instruction]:
    code = [_instruction(row) for row in listing if row.get("Source", "").strip()]
    columns = set(listing[0]) if listing else set()
    if not any(_ON_SHARED.match(one.opcode) for one in code):
        columns.add(SHARED)  # ncu omits the column if no instruction accesses shared memory
    for metric in LINE_METRICS.values():
        if metric not in columns:
            raise ncu.Failed(f"ncu's listing of the machine code has no column {metric}")
    return code


def _instruction(row: ncu.Row) -> Instruction:
    # ncu leaves a cell empty if the metric does not apply to the instruction.
    counts = {name: ncu.number(row, metric) or 0 for name, metric in LINE_METRICS.items()}
    return Instruction(row["Source"], counts["issued"], counts["lanes"], counts["wavefronts"])


def by_opcode(
    code: Sequence[Instruction], counters: Mapping[str, tuple[str, str]] = OPCODES
) -> dict[str, int]:
    """Counters of instructions by opcode, as in `OPCODES`."""
    return {
        name: sum(getattr(one, what) for one in code if re.match(pattern, one.opcode))
        for name, (what, pattern) in counters.items()
    }


if __name__ == "__main__":
    launch_here(sys.argv[1:])
