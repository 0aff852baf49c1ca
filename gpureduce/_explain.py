"""`explain`: what a kernel does, counted on the emulator, and why one rung is faster than another.

Nothing here is a time. What is counted follows from the kernel's text and the launch alone: which
lanes take part, which words and sectors they touch, where they wait for each other.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from gpureduce import _inputs, _registry, _sum, _trace
from gpureduce._sources import text_of
from gpureduce._trace import Access

if TYPE_CHECKING:
    from gpureduce.pictures import Picture

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

DETAILS = tuple(name for name in _trace.NAMES if name not in COUNTERS)

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


def _split(counts: dict[str, int]) -> dict[str, dict[str, int]]:
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
class Explanation(Counted):
    """What a strategy does, counted: see `explain`.

    `counters`, `lines` and `steps` are of the first launch, the one over the input; `kernels` has
    all launches. Printed, it is a picture for the terminal; `plot` and a notebook draw it.
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

    def picture(self) -> Picture:
        """The drawing behind `plot` and the notebook's view."""
        from gpureduce import pictures

        return pictures.draw(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw it with matplotlib; returns the axes."""
        return self.picture().plot(ax)

    def __str__(self) -> str:
        from gpureduce import _text

        return _text.explanation(self)

    def _repr_html_(self) -> str:
        return self.picture().html(title=f"{self.strategy}: {self.lesson}")


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
class Comparison:
    """Two strategies side by side: what fell from the one to the other, and by how much."""

    before: Explanation
    after: Explanation

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

    def picture(self) -> Picture:
        """The drawing behind `plot` and the notebook's view."""
        from gpureduce import pictures

        return pictures.draw_comparison(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw it with matplotlib; returns the axes."""
        return self.picture().plot(ax)

    def __str__(self) -> str:
        from gpureduce import _text

        return _text.comparison(self)

    def _repr_html_(self) -> str:
        title = f"{self.before.strategy} → {self.after.strategy}: {self.lesson}"
        return self.picture().html(title=title)


def _kernel(launch: _trace.Launch, teams_of: int) -> KernelCounts:
    lines = tuple(
        Line(
            **_split(row.counts),
            file=row.file,
            line=row.line,
            text=text_of(row.file, row.line),
            access=row.access,
        )
        for row in launch.rows
    )
    steps = tuple(
        Step(**_split(s.counts), barrier=s.barrier, sync=s.sync, lanes=s.lanes)
        for s in launch.stages
    )
    return KernelCounts(
        **_split(launch.counts),
        n=launch.n,
        block=launch.block,
        grid=launch.grid,
        sampled=launch.ran < teams_of,
        ran=launch.ran,
        lines=lines,
        steps=steps,
    )


def _find(strategy: str) -> _registry.Strategy:
    chosen = _registry.find(strategy)
    if chosen.launches_kernels:
        return chosen
    why = {
        "choice": f"{chosen.name} picks another strategy for each size and dtype: explain the one "
        f"that gpureduce.sum(..., {chosen.name!r}).timing.strategy names",
        "library": f"{chosen.name} is a compiled library, whose kernels the emulator cannot run",
        "host": f"{chosen.name} runs on the processor: there are no warps to count",
    }[chosen.kind]
    raise ValueError(f"there is nothing to explain: {why}")


def explain(
    strategy: str,
    other: str | None = None,
    *,
    n: int = 2**20,
    dtype: npt.DTypeLike = "int32",
    block: int = 256,
    grid: int | None = None,
    finish: str | None = None,
    input_dtype: npt.DTypeLike | None = None,
    sample: bool = True,
) -> Explanation | Comparison:
    """Count what a strategy's kernel does, without a GPU; or compare two of them.

    Parameters
    ----------
    strategy, other
        Names or aliases out of `strategies`. With `other`, the two are compared.
    n
        How many elements are added up. Their values make no difference, except to `exact`, which
        is counted for zeros.
    dtype
        The dtype to add up in, and of the elements unless `input_dtype` says otherwise. The
        lectures' ladder, int32 added up in int32, is the default.
    block, grid, finish
        As in `sum`. Without `grid`, kernels with a grid-stride loop get the blocks that fill the
        emulated card, which is a small one.
    input_dtype
        The dtype of the elements.
    sample
        Count some blocks for all that do the same, which gives the same numbers in less time;
        False runs every block.

    Returns
    -------
    Explanation or Comparison

    Raises
    ------
    ValueError, TypeError, CudaError
        For arguments that do not exist, strategies that are no kernels of ours, and a kernel that
        comes to grief.

    Examples
    --------
    >>> import gpureduce
    >>> gpureduce.explain("interleaved_idx", n=256).counters["shared_load_conflicts"]
    70
    >>> both = gpureduce.explain("interleaved_idx", "sequential", n=256)
    >>> both.fell[0].name, both.fell[0].before, both.fell[0].after
    ('shared_load_conflicts', 70, 0)
    """
    asked = (n, dtype, block, grid, finish, input_dtype, sample)
    if other is None:
        return _explain(strategy, *asked)
    return Comparison(_explain(strategy, *asked), _explain(other, *asked))


def _explain(
    strategy: str,
    n: int,
    dtype: npt.DTypeLike,
    block: int | None,
    grid: int | None,
    finish: str | None,
    input_dtype: npt.DTypeLike | None,
    sample: bool,
) -> Explanation:
    chosen = _find(strategy)
    n = operator.index(n)
    if not 1 <= n < 2**63:
        raise ValueError(f"n must be at least 1, and less than 2^63, not {n}")
    source = _inputs.named(dtype if input_dtype is None else input_dtype)
    conversion = _inputs.convert(source, dtype)
    if conversion.is_complex:
        raise TypeError(
            "complex numbers are added up as two sums, of their real and their imaginary parts: "
            "explain the dtype of a part"
        )
    elements = source if conversion.cast is None else conversion.cast
    threads, blocks, finish = _sum._launch_arguments(chosen, block, grid, finish)
    kernels: list[KernelCounts] = []
    count = n
    while not kernels or (count > 1 and finish != "host" and chosen.finishes != ("single",)):
        request = _trace.Request(
            strategy=chosen,
            load=conversion.load,
            acc=conversion.acc,
            n=count,
            block=threads,
            grid=blocks,
            finish=_registry.finish_number(finish),
            element_bytes=_inputs.number_of(conversion.acc).itemsize
            if kernels
            else elements.itemsize,
            later=bool(kernels),
        )
        launch = request.count(sample=sample)
        kernels.append(_kernel(launch, launch.teams))
        count = launch.outs
    return Explanation(
        counters=kernels[0].counters,
        details=kernels[0].details,
        strategy=chosen.name,
        lesson=chosen.lesson,
        n=n,
        dtype=conversion.result.name,
        input_dtype=source.name,
        kernels=tuple(kernels),
    )
