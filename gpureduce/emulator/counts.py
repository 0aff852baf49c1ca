"""Counts of what kernels do: data without text or pictures, which other modules make of it."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gpureduce.emulator import trace
from gpureduce.emulator.trace import Access

COUNTERS = (
    "shared_load_instructions",
    "shared_load_wavefronts",
    "shared_load_conflicts",
    "shared_load_lanes",
    "shared_store_instructions",
    "shared_store_wavefronts",
    "shared_store_conflicts",
    "shared_store_lanes",
    "global_load_requests",
    "global_load_sectors",
    "global_load_bytes_used",
    "global_store_requests",
    "global_store_sectors",
    "block_barriers",
    "warp_barriers",
    "shuffles",
    "atomics",
    "fences",
)

DETAILS = tuple(name for name in trace.NAMES if name not in COUNTERS)

_SECTOR_BYTES = 32


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True)
class Counted:
    """What was counted somewhere: in a launch, at a line of the source, in a step.

    `counters` are integers for the whole grid. Instructions and requests are those of warps,
    counted where at least one lane is active; wavefronts are how often shared memory has to serve
    them, and conflicts the wavefronts above the fewest that it could take; sectors are of 32 bytes.
    `block_barriers` counts each barrier once per block, `atomics` each lane's; `warp_barriers`,
    `shuffles` and `fences` are warp instructions. `details` has more of the same kind.
    """

    counters: dict[str, int]
    details: dict[str, int] = field(repr=False)

    def _of(self, *names: str) -> int:
        return sum(self.counters.get(name, self.details.get(name, 0)) for name in names)

    @property
    def memory_instructions(self) -> int:
        """Warp instructions that go to shared or global memory."""
        return self._of(
            "shared_load_instructions",
            "shared_store_instructions",
            "global_load_requests",
            "global_store_requests",
        )

    @property
    def active_lanes(self) -> float | None:
        """Of 32: the lanes at work per warp instruction on memory. Fewer are divergence."""
        lanes = ("shared_load_lanes", "shared_store_lanes", "global_load_lanes")
        return _share(self._of(*lanes, "global_store_lanes"), self.memory_instructions)

    @property
    def wavefronts(self) -> int:
        """How often shared memory is busy with these instructions."""
        return self._of("shared_load_wavefronts", "shared_store_wavefronts")

    @property
    def conflicts(self) -> int:
        """Wavefronts of shared memory that bank conflicts cost."""
        return self._of("shared_load_conflicts", "shared_store_conflicts")

    @property
    def conflicts_per_access(self) -> float | None:
        """Wavefronts that a warp instruction on shared memory takes beyond what it must."""
        instructions = ("shared_load_instructions", "shared_store_instructions")
        return _share(self.conflicts, self._of(*instructions))

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors that loads and stores go to in global memory."""
        return _SECTOR_BYTES * self._of("global_load_sectors", "global_store_sectors")

    @property
    def bytes_used(self) -> int:
        """Bytes of those sectors that a lane asked for."""
        return self._of("global_load_bytes_used", "global_store_bytes_used")

    @property
    def bytes_used_share(self) -> float | None:
        """Bytes used of bytes moved: 1 is perfectly coalesced."""
        return _share(self.bytes_used, self.bytes_moved)


def split(counts: dict[str, int]) -> dict[str, dict[str, int]]:
    return {
        "counters": {name: counts[name] for name in COUNTERS},
        "details": {name: counts[name] for name in DETAILS},
    }


@dataclass(frozen=True)
class Line(Counted):
    """The counts of one line of the source; `access` is its worst one on shared memory."""

    file: str = ""
    line: int = 0
    text: str = ""
    access: Access | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """File and line, briefly."""
        return f"{Path(self.file).name}:{self.line}" if self.file else "(line unknown)"


@dataclass(frozen=True)
class Step(Counted):
    """What happens from one barrier to the next.

    `barrier` is how many barriers of the block went before, `sync` how many of the warp, shuffles
    among them, since. `lanes` has a mask for each warp of the first block: who was active. A
    barrier counts in the step that it ends, a shuffle in the one that it begins.
    """

    barrier: int = 0
    sync: int = 0
    lanes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """`3` after three block barriers, `3.2` two warp barriers or shuffles later."""
        return f"{self.barrier}.{self.sync}" if self.sync else str(self.barrier)


@dataclass(frozen=True)
class KernelCounts(Counted):
    """One launch: its size, its lines and its steps. `ran` of its blocks (or clusters) ran."""

    n: int = 0
    block: int = 0
    grid: int = 0
    sampled: bool = False
    ran: int = 0
    lines: tuple[Line, ...] = field(default=(), repr=False)
    steps: tuple[Step, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class StrategyCounts(Counted):
    """The counts of all launches of one sum by one strategy.

    `counters`, `lines` and `steps` are of the first launch, the one over the input.
    """

    strategy: str = ""
    lesson: str = ""
    n: int = 0
    dtype: str = ""
    input_dtype: str = ""
    kernels: tuple[KernelCounts, ...] = field(default=(), repr=False)

    @property
    def block(self) -> int:
        """Threads per block."""
        return self.kernels[0].block

    @property
    def grid(self) -> int:
        """Blocks of the first launch."""
        return self.kernels[0].grid

    @property
    def sampled(self) -> bool:
        """Whether some blocks were counted for others that do the same; False: all blocks ran."""
        return any(kernel.sampled for kernel in self.kernels)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The first launch by lines of the source."""
        return self.kernels[0].lines

    @property
    def steps(self) -> tuple[Step, ...]:
        """The first launch by steps."""
        return self.kernels[0].steps

    @cached_property
    def total(self) -> dict[str, int]:
        """The counters of all launches together."""
        return {name: sum(k.counters[name] for k in self.kernels) for name in COUNTERS}

    @property
    def worst_line(self) -> Line | None:
        """The line that loses most wavefronts to bank conflicts; else the one that takes most."""
        shared = [line for line in self.lines if line.access]
        key = operator.attrgetter("conflicts", "wavefronts")
        return max(shared, key=key) if shared else None

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "strategy": self.strategy,
            "n": self.n,
            "dtype": self.dtype,
            "input_dtype": self.input_dtype,
            "kernels": [_kernel_dict(kernel) for kernel in self.kernels],
            "sampled": self.sampled,
            "counters": self.counters,
        }


def _kernel_dict(kernel: KernelCounts) -> dict[str, Any]:
    return {
        "n": kernel.n,
        "block": kernel.block,
        "grid": kernel.grid,
        "sampled": kernel.sampled,
        "counters": kernel.counters,
        "details": kernel.details,
        "lines": [
            {"file": line.file, "line": line.line, "text": line.text, "counters": line.counters}
            for line in kernel.lines
        ],
        "steps": [
            {"name": step.name, "lanes": step.lanes, "counters": step.counters}
            for step in kernel.steps
        ],
    }


@dataclass(frozen=True)
class Change:
    """One counter of two strategies."""

    name: str
    before: int
    after: int

    @property
    def factor(self) -> float | None:
        """How many times less the second does; None if it does none."""
        return self.before / self.after if self.after else None


@dataclass(frozen=True)
class CountsPair:
    """The counts of two strategies for the same input."""

    before: StrategyCounts
    after: StrategyCounts

    @property
    def changes(self) -> tuple[Change, ...]:
        """The counters that differ, those that fell most first."""
        pairs = [Change(n, self.before.total[n], self.after.total[n]) for n in COUNTERS]
        changed = [pair for pair in pairs if pair.before != pair.after]
        return tuple(sorted(changed, key=lambda c: (c.after + 1) / (c.before + 1)))

    @property
    def fell(self) -> tuple[Change, ...]:
        """The counters that became less, those that fell most first."""
        return tuple(c for c in self.changes if c.after < c.before)

    @property
    def rose(self) -> tuple[Change, ...]:
        """The counters that became more."""
        return tuple(c for c in self.changes if c.after > c.before)

    @property
    def lesson(self) -> str:
        """The second strategy's lesson."""
        return self.after.lesson

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "lesson": self.lesson,
            "changes": [vars(change) | {"factor": change.factor} for change in self.changes],
        }
