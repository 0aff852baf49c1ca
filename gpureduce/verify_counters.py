"""The counts of `explain`, held against a card: ``python -m gpureduce verify-counters``.

Nsight Compute runs the ladder and reads the hardware's counters; a table puts model, hardware and
difference side by side. The compiler predicates where the source branches, so that instructions
with all lanes off are issued, too: what is compared are the instructions with a lane on, and the
issued ones stand beside them, line by line of the machine code.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce import _emulator, _ncu, _registry
from gpureduce._explain import Explanation, explain
from gpureduce.record import provenance
from gpureduce.text import table

SIZES = (2**16, 1_000_003, 2**24)
BLOCKS = (256, 1024)

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


@dataclass(frozen=True)
class Case:
    """One launch."""

    strategy: str
    n: int
    block: int
    grid: int = 0


@dataclass(frozen=True)
class Instruction:
    """A line of the machine code: how many warps came by, with how many lanes on."""

    text: str
    issued: int
    lanes: int
    wavefronts: int

    @property
    def opcode(self) -> str:
        """Without the predicate before it and the operands after it."""
        return re.sub(r"^@!?U?P\w+\s+", "", self.text.strip()).split()[0]

    @property
    def predicated(self) -> bool:
        """Whether lanes may be off although the warp came by."""
        return self.text.strip().startswith("@")


@dataclass(frozen=True)
class Row:
    """One counter of one launch. `why` tells where a difference comes from, with the evidence."""

    strategy: str
    n: int
    block: int
    grid: int
    counter: str
    model: int
    hardware: int
    why: str = ""

    @property
    def difference(self) -> int:
        """Hardware less model."""
        return self.hardware - self.model

    @property
    def verdict(self) -> str:
        """``"equal"``, ``"explained"`` or ``"differs"``."""
        if self.model == self.hardware:
            return "equal"
        return "explained" if self.why else "differs"


def _finish(case: Case) -> str | None:
    """One launch is enough."""
    return "host" if "host" in _registry.find(case.strategy).finishes else None


def launch(cases: Sequence[Case], dtype: str) -> list[Case]:
    """Run the cases' first launches on the card; their grids filled in."""
    from gpureduce._sum import sum

    ran = []
    for case in cases:
        zeros = np.zeros(case.n, dtype)
        grid = case.grid or None
        finish = _finish(case)
        timing = sum(zeros, case.strategy, dtype, case.block, grid, finish, "cuda").timing
        ran.append(Case(case.strategy, case.n, case.block, timing.grid or 0))
    return ran


def _launch_here(arguments: Sequence[str]) -> None:
    """What ncu is asked to run: ``python -m gpureduce.verify_counters CASES DTYPE OUTPUT``."""
    cases = [Case(*case) for case in json.loads(Path(arguments[0]).read_text())]
    ran = launch(cases, arguments[1])
    Path(arguments[2]).write_text(json.dumps([[c.strategy, c.n, c.block, c.grid] for c in ran]))


def profile(
    cases: Sequence[Case], dtype: str
) -> list[tuple[Case, dict[str, int], list[Instruction]]]:
    """Each case with its grid, the kernel's counters and its machine code."""
    names = "|".join(sorted({case.strategy for case in cases}))
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder) / "cases.json", Path(folder) / "ran.json"
        asked.write_text(json.dumps([[c.strategy, c.n, c.block, c.grid] for c in cases]))
        module = "gpureduce.verify_counters"
        command = [sys.executable, "-P", "-m", module, str(asked), dtype, str(told)]
        only = ["--kernel-name", f"regex:^({names})$"]
        raw = [*only, "--page", "raw", "--metrics", ",".join([*METRICS.values(), *BESIDE.values()])]
        kernels = _ncu.run(command, raw)
        lines = ["--page", "source", "--print-source", "sass", "--metrics"]
        listings = _ncu.listings(command, [*only, *lines, ",".join(LINE_METRICS.values())])
        ran = [Case(*case) for case in json.loads(told.read_text())]
    return matched(ran, kernels, listings)


def matched(
    ran: Sequence[Case], kernels: Sequence[_ncu.Row], listings: dict[str, list[list[_ncu.Row]]]
) -> list[tuple[Case, dict[str, int], list[Instruction]]]:
    """Each launch with what ncu told of it."""
    if len(ran) != len(kernels):
        raise OSError(f"{len(ran)} launches, but ncu saw {len(kernels)} kernels")
    launches = Counter(case.strategy for case in ran)
    seen: Counter[str] = Counter()
    found = []
    for case, kernel in zip(ran, kernels, strict=True):
        of_name = listings.get(case.strategy, [])
        copies, rest = divmod(len(of_name), launches[case.strategy])
        if rest or not copies:
            raise OSError(f"ncu listed {len(of_name)} launches of {case.strategy}")
        listing = of_name[copies * seen[case.strategy]]
        seen[case.strategy] += 1
        metrics = {**METRICS, **BESIDE}
        counters = {name: _ncu.number(kernel, metric) or 0 for name, metric in metrics.items()}
        found.append((case, counters, [_instruction(row) for row in listing]))
    return found


def _instruction(row: _ncu.Row) -> Instruction:
    counts = {name: _ncu.number(row, metric) or 0 for name, metric in LINE_METRICS.items()}
    return Instruction(row["Source"], **counts)


def by_opcode(code: Iterable[Instruction]) -> dict[str, int]:
    """The counters that follow from single instructions."""
    found: Counter[str] = Counter()
    for instruction in code:
        for name, (what, pattern) in OPCODES.items():
            if re.match(pattern, instruction.opcode):
                found[name] += getattr(instruction, what)
    return {name: found[name] for name in OPCODES}


Machine = Sequence[Instruction]


def _issued(code: Machine, pattern: str) -> int:
    return _add(i.issued for i in code if re.match(pattern, i.opcode))


def _lanes(code: Machine, pattern: str) -> int:
    return _add(i.lanes for i in code if re.match(pattern, i.opcode))


def _add(numbers: Iterable[int]) -> int:
    total = 0
    for one in numbers:
        total += one
    return total


def _why(counter: str, found: Explanation, seen: dict[str, int], code: Machine) -> str:
    """Where a difference comes from, if the machine code or another counter proves it."""
    model = {**found.counters, **found.details}
    if counter.endswith("_conflicts"):
        return _why_conflicts(counter, model, seen)
    if counter.startswith("shared_load"):
        return _why_merged(model, seen, code)
    if counter == "warp_barriers":
        return _why_together(seen[counter] - model[counter], code)
    if counter in ("atomics", "warp_reductions"):
        alone = seen["atomics"] == model["atomic_instructions"] != model["atomics"]
        if alone and seen["warp_reductions"] - model["warp_reductions"] == seen["atomics"]:
            return (
                f"the compiler adds up each warp by REDUX ({seen['warp_reductions']:,}) and lets "
                "one lane do the atomic"
            )
    if counter == "fences":
        return _why_fences(model, seen, code)
    return ""


def _why_conflicts(counter: str, model: dict[str, int], seen: dict[str, int]) -> str:
    """The pipe's wavefronts less those that its instructions take are nobody's addresses."""
    kind = counter.removesuffix("_conflicts")
    noise = seen[f"{kind}_pipe"] - seen[f"{kind}_wavefronts"]
    if noise != seen[counter] - model[counter] or noise < 0:
        return ""
    share = noise / seen[f"{kind}_wavefronts"]
    return (
        f"{noise:,} wavefronts ({share:.1%}) of the pipe belong to no instruction: arbitration; "
        "counted by instruction, wavefronts are as the model has them"
    )


def _why_merged(model: dict[str, int], seen: dict[str, int], code: Machine) -> str:
    """Neighbouring elements by one load: each LDS.64 brings one more, each LDS.128 three."""
    missing = model["shared_load_lanes"] - seen["shared_load_lanes"]
    wide = _lanes(code, r"LDS\.64") + 3 * _lanes(code, r"LDS\.128")
    if missing and missing == wide:
        return f"the compiler reads two neighbours by one LDS.64 ({_issued(code, 'LDS.64'):,})"
    return ""


def _why_together(extra: int, code: Machine) -> str:
    fences = _issued(code, "FENCE")  # each with a NOP after it
    extra -= fences
    if not 0 < extra <= _issued(code, "WARPSYNC"):
        return ""
    said = (
        f"{extra:,} WARPSYNC.ALL stand before a shuffle or a vote, where the compiler is not sure "
        "that the warp is together"
    )
    return said + (f"; {fences:,} NOP follow the fences of bulk copies" if fences else "")


def _why_fences(model: dict[str, int], seen: dict[str, int], code: Machine) -> str:
    extra = seen["fences"] - model["fences"]
    if extra == _issued(code, "UCGABAR_ARV"):
        return f"a cluster's barrier begins with a MEMBAR ({extra:,})"
    if extra == _issued(code, r"MEMBAR\.ALL\.CTA"):
        return f"barriers for bulk copies are fenced when they are made: MEMBAR.ALL.CTA ({extra:,})"
    return ""


def compare(case: Case, seen: dict[str, int], code: Machine, dtype: str) -> list[Row]:
    """The counters of one launch, model and hardware."""
    found = explain(
        case.strategy, n=case.n, dtype=dtype, block=case.block, grid=case.grid, finish=_finish(case)
    )
    assert isinstance(found, Explanation)
    model = {**found.counters, **found.details}
    seen = {**seen, **by_opcode(code)}
    # The hardware counts loads from another block's shared memory as loads from shared memory.
    for name in ("instructions", "wavefronts"):
        model[f"shared_load_{name}"] += model["cluster_load_instructions"]
    rows = []
    for counter in (*METRICS, *OPCODES):
        row = Row(**vars(case), counter=counter, model=model[counter], hardware=seen[counter])
        if row.difference:
            row = replace(row, why=_why(counter, found, seen, code))
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Predicated:
    """Instructions on shared memory that warps pass with lanes off, rather than branch around."""

    strategy: str
    n: int
    block: int
    text: str
    issued: int
    lanes: int
    wavefronts: int


@dataclass(frozen=True)
class Table:
    """What `verify` found."""

    dtype: str
    rows: tuple[Row, ...]
    predicated: tuple[Predicated, ...]

    @property
    def differing(self) -> list[Row]:
        """Rows that differ and that nothing explains."""
        return [row for row in self.rows if row.verdict == "differs"]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON: rows are lists, in the order of `columns`."""
        columns = ["strategy", "n", "block", "grid", "counter", "model", "hardware", "difference"]
        return {
            "dtype": self.dtype,
            "metrics": {**METRICS, **{name: opcode for name, (_, opcode) in OPCODES.items()}},
            "columns": [*columns, "verdict", "why"],
            "rows": [
                [*(getattr(row, column) for column in columns), row.verdict, row.why]
                for row in self.rows
            ],
            "predicated": [list(vars(line).values()) for line in self.predicated],
        }

    def record(self, path: Path) -> None:
        """Write it with its provenance, a row a line."""
        found = {**provenance("counters"), **self.as_dict()}
        text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
        path.write_text(re.sub(r'(\["\w+",\d+)', r"\n\1", text) + "\n")

    def __str__(self) -> str:
        counts = Counter((row.strategy, row.verdict) for row in self.rows)
        names = list(dict.fromkeys(row.strategy for row in self.rows))
        verdicts = ("equal", "explained", "differs")
        lines = [table(
            ["strategy", *verdicts],
            [[name, *(str(counts[name, verdict]) for verdict in verdicts)] for name in names],
            right=(1, 2, 3),
        )]  # fmt: skip
        for verdict in ("differs", "explained"):
            shown = [row for row in self.rows if row.verdict == verdict]
            if shown:
                lines += ["", f"{verdict}:"]
            lines += [
                f"{row.strategy} n={row.n:,} block={row.block} {row.counter}: model {row.model:,}, "
                f"hardware {row.hardware:,}{': ' if row.why else ''}{row.why}"
                for row in shown
            ]
        return "\n".join(lines)


def summarize(found: Iterable[tuple[Case, dict[str, int], list[Instruction]]], dtype: str) -> Table:
    """The table of what `profile` found."""
    rows: list[Row] = []
    predicated: list[Predicated] = []
    for case, seen, code in found:
        rows += compare(case, seen, code, dtype)
        predicated += [
            Predicated(case.strategy, case.n, case.block, i.text.strip(), *_counts_of(i))
            for i in code
            if i.predicated and i.issued and re.match("LDS|STS", i.opcode)
        ]
    return Table(dtype, tuple(rows), tuple(predicated))


def _counts_of(instruction: Instruction) -> tuple[int, int, int]:
    return instruction.issued, instruction.lanes, instruction.wavefronts


def verify(
    strategies: Sequence[str] | None = None,
    sizes: Sequence[int] = SIZES,
    blocks: Sequence[int] = BLOCKS,
    dtype: str = "int32",
) -> Table:
    """Profile the ladder on the card and compare; needs ncu, and the right to read counters."""
    names = strategies or [s.name for s in _registry.strategies() if s.kind == "kernel"]
    names = [_registry.find(name).name for name in names]
    cases = [_case(name, n, block) for name in names for n in sizes for block in blocks]
    return summarize(profile(cases, dtype), dtype)


def _case(name: str, n: int, block: int) -> Case:
    """A cooperative grid must fit on the emulated card, too, which is smaller."""
    if not _registry.find(name).traits & _emulator.COOPERATIVE:
        return Case(name, n, block)
    found = explain(name, n=n, block=block)
    assert isinstance(found, Explanation)
    return Case(name, n, block, found.grid)


if __name__ == "__main__":
    _launch_here(sys.argv[1:])
