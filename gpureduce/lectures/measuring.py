"""Cases of the lectures' experiments, and the rows of their times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpureduce.bench.benchmark import Measurement
from gpureduce.bench.contenders.arrays import Input, kernel
from gpureduce.bench.runner import Latest
from gpureduce.core import arrays, devices, dtypes, registry

_PATTERN = 2**22


@dataclass(frozen=True)
class Case:
    """One entry of a lecture's table; `theirs` is its figure, in the experiment's unit."""

    label: str
    strategy: str
    n: int
    dtype: str
    block: int | None = None
    grid: int | None = None
    finish: str = "host"
    theirs: float | None = None

    def is_of(self, row: Row) -> bool:
        """Whether the row is a measurement of this case."""
        same = self.label == row.label and self.n == row.n and self.finish == row.finish
        return same and self.block in (None, row.block) and self.grid in (None, row.grid)


@dataclass(frozen=True, kw_only=True)
class Row(Measurement):
    """The time of a case: a `gpureduce.Measurement`, with the case's label and finish.

    `facts` holds an experiment's other results: a profiler's counters, an integral's values.

    >>> from gpureduce import lectures
    >>> row = lectures.printed("lab").rows[0]
    >>> row.strategy, row.block, row.median_us, round(row.gb_s, 1)
    ('interleaved_mod', 1024, 706.0, 95.1)
    """

    label: str
    finish: str
    facts: dict[str, Any] = field(default_factory=dict)


def row_of(case: Case, nbytes: int, us: Sequence[float], **more: Any) -> Row:
    """The row of a case with these times, in microseconds."""
    return Row(
        label=case.label, strategy=registry.find(case.strategy).name, dtype=case.dtype, n=case.n,
        nbytes=nbytes, finish=case.finish, repeats=len(us), median_us=statistics.median(us),
        low_us=min(us), high_us=max(us), **more,
    )  # fmt: skip


def _integers(dtype: str, n: int) -> dtypes.Array:
    """An input of few different numbers: 10^9 random ones would take a minute to make."""
    some = arrays.random_numbers(n).integers(-1000, 1000, min(n, _PATTERN)).astype(dtype)
    return arrays.repeated(some, n)


@dataclass
class Bench:
    """Times kernels on one device; keeps the input of the last size."""

    device: devices.Device
    repeats: int
    array: Latest = field(default_factory=lambda: Latest(_integers))

    @property
    def emulated(self) -> bool:
        return self.device.backend == "emulator"

    def row(self, case: Case, nbytes: int, ms: Sequence[float], launch: Sequence[int | None],
            cache: str, **facts: Any) -> Row:  # fmt: skip
        """The row of a measured case."""
        on_host = registry.find(case.strategy).kind == "host"
        return row_of(
            case, nbytes, [1e3 * one for one in ms], block=launch[0] or None,
            grid=launch[1] or None, device="cpu" if on_host else self.device.name,
            source="perf_counter" if on_host else "emulator" if self.emulated else "cuda_event",
            cache=cache, peak_gb_s=None if self.emulated or on_host else self.device.peak_gb_s,
            facts=facts,
        )  # fmt: skip

    def time(self, case: Case) -> Row:
        """The launches of one sum alone: no copies, no host, no Python."""
        array = self.array(case.dtype, case.n)
        to = dtypes.convert(array.dtype, case.dtype)
        given = Input(array, to, case.dtype, self.device.id)
        made = kernel(given, case.strategy, case.block, case.grid, case.finish)
        ms = [us / 1e3 for us in made.timed(self.repeats)]
        launch = (made.fields["block"], made.fields["grid"])
        return self.row(case, array.nbytes, ms, launch, made.fields["cache"])
