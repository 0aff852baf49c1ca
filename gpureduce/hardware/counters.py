"""What a card counts of our kernels: launches under Nsight Compute, group by group.

``python -m gpureduce.hardware.counters CASES DTYPE OUTPUT`` is what ncu is asked to run. A launch
that fails, or a group of kernels that ncu cannot make sense of, costs the others nothing: the group
is measured again strategy by strategy, and what still fails is told as a `Failure`.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gpureduce.core import registry
from gpureduce.core.sources import Place
from gpureduce.hardware import ncu

# What ncu counts for a whole kernel.
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

# Read beside them. The pipe's own wavefronts hold those of instructions, and what a wavefront more
# a store or load waits for when the pipe is taken by another: noise, which no address explains.
BESIDE = {
    "shared_load_issued": "smsp__inst_executed_op_shared_ld.sum",
    "shared_store_issued": "smsp__inst_executed_op_shared_st.sum",
    "shared_load_pipe": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_pipe": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}

# What it counts for each instruction of the machine code.
LINE_METRICS = {
    "issued": "inst_executed",
    "lanes": "thread_inst_executed_true",
    "wavefronts": "memory_l1_wavefronts_shared",
}
SHARED = LINE_METRICS["wavefronts"]

# Counters that follow from those: by opcode, warps or lanes. Where the compiler knows that a warp
# is together, it leaves a NOP in __syncwarp's place.
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

_TOGETHER = 6  # strategies that are measured by one run of ncu, which takes seconds to start


@dataclass(frozen=True)
class Case:
    """One launch."""

    strategy: str
    n: int
    block: int
    grid: int = 0


def opcode_of(text: str) -> str:
    """Of a line of machine code: without the predicate before it and the operands after it."""
    return re.sub(r"^@!?U?P\w+\s+", "", text.strip()).split()[0]


@dataclass(frozen=True)
class Instruction:
    """A line of the machine code: how many warps came by, with how many lanes on.

    `place` is the line of the source that it comes from, if that is known.
    """

    text: str
    issued: int
    lanes: int
    wavefronts: int
    place: Place | None = None

    @property
    def opcode(self) -> str:
        """Without the predicate before it and the operands after it."""
        return opcode_of(self.text)

    @property
    def predicated(self) -> bool:
        """Whether lanes may be off although the warp came by."""
        return self.text.strip().startswith("@")


@dataclass(frozen=True)
class Seen:
    """What the card counted of one launch."""

    case: Case
    counters: dict[str, int]
    code: Sequence[Instruction]


@dataclass(frozen=True)
class Failure:
    """A launch of which there is nothing to compare, and why."""

    case: Case
    why: str


Found = list[Seen | Failure]


def finish_of(strategy: str) -> str | None:
    """One launch is enough."""
    return "host" if "host" in registry.find(strategy).finishes else None


def _launch(case: Case, dtype: str) -> Case:
    """Run the case's first launch on the card; its grid filled in."""
    from gpureduce.core.summation import sum

    zeros = np.zeros(case.n, dtype)
    finish = finish_of(case.strategy)
    timing = sum(zeros, case.strategy, dtype, case.block, case.grid or None, finish, "cuda").timing
    return replace(case, grid=timing.grid or 0)


def launch(cases: Sequence[Case], dtype: str) -> tuple[list[Case], list[Failure]]:
    """Run the cases on the card: those that ran, and those that did not."""
    ran, failed = [], []
    for case in cases:
        try:
            ran.append(_launch(case, dtype))
        except (OSError, RuntimeError, ValueError, TypeError, MemoryError) as error:
            failed.append(Failure(case, f"{type(error).__name__}: {error}"))
    return ran, failed


def _launch_here(arguments: Sequence[str]) -> None:
    cases = [Case(*case) for case in json.loads(Path(arguments[0]).read_text())]
    ran, failed = launch(cases, arguments[1])
    told = {"ran": [asdict(c) for c in ran], "failed": [[asdict(f.case), f.why] for f in failed]}
    Path(arguments[2]).write_text(json.dumps(told))


def profile(cases: Sequence[Case], dtype: str, together: int = _TOGETHER) -> Iterator[Found]:
    """The cases as the card counts them, some strategies at a time."""
    names = list(dict.fromkeys(case.strategy for case in cases))
    groups = [names[i : i + together] for i in range(0, len(names), together)]
    while groups:
        group = groups.pop(0)
        found = _profile_group([case for case in cases if case.strategy in group], dtype)
        if len(group) > 1 and any(isinstance(one, Failure) for one in found):
            groups = [*([name] for name in group), *groups]
        else:
            yield found


def _profile_group(cases: Sequence[Case], dtype: str) -> Found:
    """What ncu tells of some launches; where it fails, of none."""
    try:
        return _profile(cases, dtype)
    except ncu.Failed as error:
        return [Failure(case, str(error)) for case in cases]


def _profile(cases: Sequence[Case], dtype: str) -> Found:
    names = "|".join(sorted({case.strategy for case in cases}))
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder) / "cases.json", Path(folder) / "ran.json"
        asked.write_text(json.dumps([[c.strategy, c.n, c.block, c.grid] for c in cases]))
        module = "gpureduce.hardware.counters"
        command = [sys.executable, "-P", "-m", module, str(asked), dtype, str(told)]
        only = ["--kernel-name", f"regex:^({names})$"]
        raw = [*only, "--page", "raw", "--metrics", ",".join([*METRICS.values(), *BESIDE.values()])]
        kernels = ncu.run(command, raw)
        lines = ["--page", "source", "--print-source", "sass", "--metrics"]
        listings = ncu.listings(command, [*only, *lines, ",".join(LINE_METRICS.values())])
        said = json.loads(told.read_text())
    ran = [Case(**case) for case in said["ran"]]
    failed = [Failure(Case(**case), why) for case, why in said["failed"]]
    return [*matched(ran, kernels, listings), *failed]


def matched(
    ran: Sequence[Case], kernels: Sequence[ncu.Row], listings: dict[str, list[list[ncu.Row]]]
) -> list[Seen]:
    """Each launch with what ncu told of it."""
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
        found.append(Seen(case, counters, _machine_code(listing)))
    return found


def _machine_code(listing: Sequence[ncu.Row]) -> list[Instruction]:
    code = [_instruction(row) for row in listing if row.get("Source", "").strip()]
    columns = set(listing[0]) if listing else set()
    if not any(_ON_SHARED.match(one.opcode) for one in code):
        columns.add(SHARED)  # ncu leaves it out where nothing goes to shared memory
    for metric in LINE_METRICS.values():
        if metric not in columns:
            raise ncu.Failed(f"ncu's listing of the machine code has no column {metric}")
    return code


def _instruction(row: ncu.Row) -> Instruction:
    # Where an instruction has nothing to do with a metric, ncu leaves it empty.
    counts = {name: ncu.number(row, metric) or 0 for name, metric in LINE_METRICS.items()}
    return Instruction(row["Source"], counts["issued"], counts["lanes"], counts["wavefronts"])


def by_opcode(code: Iterable[Instruction]) -> dict[str, int]:
    """The counters that follow from single instructions."""
    found: Counter[str] = Counter()
    for instruction in code:
        for name, (what, pattern) in OPCODES.items():
            if re.match(pattern, instruction.opcode):
                found[name] += getattr(instruction, what)
    return {name: found[name] for name in OPCODES}


if __name__ == "__main__":
    _launch_here(sys.argv[1:])
