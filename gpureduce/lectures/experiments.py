"""The lectures' experiments: lists of cases, and the lectures' figures for their own hardware.

A case is a kernel, a size, a launch, and the lecture's figure. Without a GPU the same cases run on
the emulator, on inputs smaller by the experiment's `shrink`.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from gpureduce.core import integrals, json_files, registry
from gpureduce.core.checks import no_such
from gpureduce.lectures.measuring import Bench, Case, Row

MI = 2**20


@dataclass(frozen=True)
class Measured:
    """The base of `lectures.Record`: its data, without its tables."""

    lecture: str
    shrink: int
    rows: tuple[Row, ...]
    made: dict[str, Any]
    missing: str = ""

    @property
    def device(self) -> str:
        """The device's name."""
        return str(self.made["card"])

    @property
    def emulated(self) -> bool:
        """Whether any of the times is the emulator's."""
        return any(row.source == "emulator" for row in self.rows)

    @property
    def printed(self) -> bool:
        """Whether these are the lecture's own figures."""
        return any(row.source == "lecture" for row in self.rows)

    @property
    def real(self) -> Self | None:
        """The record itself if its times are a GPU's, None if they are emulated."""
        return None if self.emulated else self

    def only(self, **fields: Any) -> Self:
        """The rows with these fields: ``record.only(block=256)``; a tuple holds several."""
        wanted = {k: v if isinstance(v, tuple) else (v,) for k, v in fields.items()}
        rows = [r for r in self.rows if all(getattr(r, k) in v for k, v in wanted.items())]
        if not rows:
            raise ValueError(f"the record of {self.lecture} has no row with {fields}")
        return dataclasses.replace(self, rows=tuple(rows))

    @property
    def largest(self) -> Self:
        """The rows of the largest input."""
        return self.only(n=max(row.n for row in self.rows))

    @property
    def theirs(self) -> list[float | None]:
        """The lecture's figure for each row."""
        cases = find(self.lecture).cases(self.shrink)
        return [next((c.theirs for c in cases if c.is_of(row)), None) for row in self.rows]

    @property
    def their_us(self) -> list[float | None]:
        """The lecture's time for each row, in microseconds."""
        unit = find(self.lecture).unit
        return [figure and microseconds(figure, unit, row.nbytes)
                for row, figure in zip(self.rows, self.theirs, strict=True)]  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """An experiment of a lecture. `source` is the lecture's key in lectures.json.

    `unit` is the unit of the lecture's figures.

    >>> from gpureduce import lectures
    >>> lectures.find("lab").about
    'The warp-level lab: five kernels, 2^24 int32, 1024 threads'
    """

    name: str
    about: str
    source: str | None
    unit: str
    shrink: int
    cases: Callable[[int], list[Case]] = field(repr=False)
    measure: Callable[[Bench, list[Case]], Iterator[Row]] = field(repr=False)

    @property
    def gpu(self) -> str:
        """The lecture's hardware."""
        return str(sources()[self.source]["gpu"]) if self.source else ""


def sources() -> dict[str, Any]:
    """The lectures' printed facts: hardware, method and figures, by lecture.

    >>> from gpureduce import lectures
    >>> sorted(lectures.sources())[:2]
    ['scheduling_lecture', 'seven_kernels_report']
    """
    found: dict[str, Any] = json_files.packaged("lectures/lectures.json")["sources"]
    return found


def _time_all(bench: Bench, cases: list[Case]) -> Iterator[Row]:
    return map(bench.time, cases)


# --- the experiments ------------------------------------------------------------------------------


def _warp_execution(shrink: int) -> list[Case]:
    lecture = sources()["warp_execution"]
    cases = []
    # Sizes are the outermost loop, so that each input is made once.
    for at, n_mi in enumerate(lecture["n_mi"]):
        for name, by_block in lecture["kernel_ms"].items():
            for block, ms in by_block.items():
                n = n_mi * MI // shrink
                cases.append(Case(name, name, n, "float32", int(block), theirs=ms[at]))
    return cases


_LAB = ("interleaved_mod", "interleaved_idx", "sequential", "first_add", "first_add_unroll_warp")


def _lab(shrink: int) -> list[Case]:
    lecture = sources()["warp_level_lab"]
    n, block = lecture["n"] // shrink, lecture["block"]
    return [
        Case(row["name"], name, n, lecture["dtype"], block, theirs=row["kernel_ms"])
        for name, row in zip(_LAB, lecture["rows"], strict=True)
    ]


def _block_sweep(shrink: int) -> list[Case]:
    lecture = sources()["scheduling_lecture"]
    return [
        Case(label, name, lecture["n"] // shrink, lecture["dtype"], block, None, "relaunch", gb_s)
        for name, (label, row) in zip((*_LAB, "unroll_full"), lecture["gb_s"].items(), strict=True)
        for block, gb_s in zip(lecture["block"], row, strict=True)
    ]


def _block_grid(shrink: int) -> list[Case]:
    lecture = sources()["seven_kernels_report"]
    grids, *rows = lecture["block_by_grid_us"].items()
    return [
        Case(f"block {block}", "cascade", lecture["n"] // shrink, lecture["dtype"], int(block),
             max(grid // shrink, 1), theirs=us)
        for block, row in rows
        for grid, us in zip(grids[1], row, strict=True)
    ]  # fmt: skip


def _profile(shrink: int) -> list[Case]:
    """The report's kernels, at 512 threads: it timed the seventh at 512 threads, 2048 blocks."""
    lecture = sources()["seven_kernels_report"]
    names = (*_LAB, "unroll_full", "cascade")
    return [
        Case(label, name, lecture["n"] // shrink, lecture["dtype"], 512,
             max(2048 // shrink, 1) if name == "cascade" else None, theirs=figures[0])
        for name, (label, figures) in zip(names, lecture["kernels"].items(), strict=True)
    ]  # fmt: skip


def _profiled(bench: Bench, cases: list[Case]) -> Iterator[Row]:
    from gpureduce.lectures import kernel_profile

    for case, counters in zip(cases, kernel_profile.counters(bench.device, cases), strict=True):
        ms = [counters["duration_us"] / 1e3]
        nbytes = case.n * np.dtype(case.dtype).itemsize
        launch = (case.block or 0, int(counters.get("blocks", 0)))
        yield bench.row(case, nbytes, ms, launch, "cold", **counters)


def _rungs(shrink: int) -> list[Case]:
    """Every rung by size, also those beyond the lectures, each with its default launch."""
    cases: list[Case] = []
    for power in range(10, 31, 2):
        n = 2**power // shrink
        if not n:
            continue
        for row in registry.strategies():
            on_card = row.kind in ("kernel", "library", "everywhere") or row.name == "fast"
            if not on_card or "float32" not in row.dtypes or (cases and cases[-1].n > n):
                continue
            if row.name != "atomic_thread" or power <= 24:  # larger sums take seconds
                finish = row.finishes[0]
                cases.append(Case(row.name, row.name, n, "float32", finish=finish))
    return cases


_LOOP_TO_LAST_RUNG = (
    ("scalar loop", "cpu", "single"),
    ("one tree over the grid: wrong", "global_race", "single"),
    ("a tree per block, host adds", "global_tree", "host"),
    ("in shared memory, host adds", "interleaved_mod", "host"),
    ("further launches add", "interleaved_mod", "relaunch"),
    ("sequential addressing", "sequential", "relaunch"),
)
_BEYOND = ("unroll_full", "cascade", "warp_shfl", "last_block", "tiles")


def _trapezoid(shrink: int) -> list[Case]:
    """The lecture's six versions in its order, then ours."""
    lecture = sources()["trapezoid_lecture"]
    n, dtype = lecture["points"] // shrink, lecture["dtype"]
    cases = [
        Case(label, name, n, dtype, None if name == "cpu" else 256, None, finish, seconds)
        for (label, name, finish), seconds in zip(
            _LOOP_TO_LAST_RUNG, lecture["seconds"].values(), strict=True
        )
    ]
    rest = map(registry.find, _BEYOND)
    cases += [Case(s.name, s.name, n, dtype, 256, None, s.finishes[0]) for s in rest]
    return cases


def _integrated(bench: Bench, cases: list[Case]) -> Iterator[Row]:
    """Times, and eight values of the integral: a race changes it from run to run."""
    for case in cases:
        how = (case.block, case.finish, bench.device.id)
        ms, block, grid = integrals.measure("lecture", case.n, case.strategy, *how, bench.repeats)
        on_host = registry.find(case.strategy).kind == "host"
        results = [
            integrals.integrate(
                "lecture", n=case.n, strategy=case.strategy, block=case.block,
                finish=case.finish, device=None if on_host else bench.device.id,
                allow_broken=True,
            )
            for _ in range(8)
        ]  # fmt: skip
        facts: dict[str, Any] = {"values": [float(result) for result in results]}
        if not on_host:  # on the host the call uses all threads, but the timed loop one
            facts["call_us"] = 1e3 * statistics.median(r.timing.total_ms for r in results)
        yield bench.row(case, 0, ms, (block, grid), "warm", **facts)


def _runnable(bench: Bench, cases: list[Case]) -> Iterator[Row]:
    """Times the cases that this device can run: the emulator has no libraries."""
    for case in cases:
        if not (bench.emulated and registry.find(case.strategy).kind == "library"):
            yield bench.time(case)


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "warp_execution",
            "Five kernels, 256 and 1024 threads, 16 to 1024 Mi float32; one round, the host adds",
            "warp_execution", "ms", 2**12, _warp_execution, _time_all,
        ),
        Experiment(
            "lab",
            "The warp-level lab: five kernels, 2^24 int32, 1024 threads",
            "warp_level_lab", "ms", 2**8, _lab, _time_all,
        ),
        Experiment(
            "block_sweep",
            "Six reductions with relaunch, 32 to 1024 threads, 4 Mi int32",
            "scheduling_lecture", "GB/s", 2**6, _block_sweep, _time_all,
        ),
        Experiment(
            "block_grid",
            "The cascade, 128 to 1024 threads by 512 to 4096 blocks, 2^24 int32",
            "seven_kernels_report", "us", 2**6, _block_grid, _time_all,
        ),
        Experiment(
            "profile",
            "Seven kernels in Nsight Compute, 2^24 int32, 512 threads (needs a GPU and ncu)",
            "seven_kernels_report", "us", 1, _profile, _profiled,
        ),
        Experiment(
            "trapezoid",
            "The integral's ladder: 65,536 float64 samples computed where they are added up",
            "trapezoid_lecture", "s", 1, _trapezoid, _integrated,
        ),
        Experiment(
            "rungs",
            "Every rung, 2^10 to 2^30 float32: what comes after the lectures",
            None, "GB/s", 2**12, _rungs, _runnable,
        ),
    )
}  # fmt: skip


def find(name: str) -> Experiment:
    """The experiment with this name.

    >>> from gpureduce import lectures
    >>> lectures.find("block_grid").source
    'seven_kernels_report'
    """
    if name not in EXPERIMENTS:
        raise ValueError(no_such("lecture", name, EXPERIMENTS))
    return EXPERIMENTS[name]


def on_h100(name: str) -> Measured:
    """An experiment's record on an H100, which every installation has."""
    made = dict(json_files.packaged("_records.json")[find(name).name])
    rows = tuple(Row(**row) for row in made.pop("rows"))
    return Measured(made.pop("lecture"), made.pop("shrink"), rows, made)


_MICROSECONDS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def microseconds(figure: float, unit: str, nbytes: int) -> float:
    """A lecture's figure as a time."""
    return nbytes / figure / 1e3 if unit == "GB/s" else figure * _MICROSECONDS[unit]


def lecture_card(name: str) -> str:
    """The hardware of an experiment's lecture, in a word or two.

    >>> from gpureduce import lectures
    >>> lectures.lecture_card("block_grid")
    'RTX 2080 Ti'
    """
    gpu = find(name).gpu.partition(";")[0].partition(" (")[0]
    return "the lecture's card" if gpu.startswith(("not named", "2688")) else gpu
