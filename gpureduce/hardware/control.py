"""Control experiment without arbitration: each kernel as a single warp, alone on the GPU.

In other launches the shared memory pipe counts more bank conflicts than the instructions cause. If
arbitration between warps causes them, the counts of a single warp must equal the model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpureduce.emulator.explain import Explanation, explained
from gpureduce.errors import CudaError
from gpureduce.hardware.counters import Case, Failure, Found, finish_of

WARP = 32
WIDE = "int64"  # 8 bytes per element, so that a single warp can have bank conflicts
COUNTERS = ("shared_load_conflicts", "shared_store_conflicts")
COLUMNS = ("strategy", "dtype", "counter", "model", "hardware")


@dataclass(frozen=True)
class Alone:
    """A counter of bank conflicts in a launch of one warp."""

    strategy: str
    dtype: str
    counter: str
    model: int
    hardware: int

    def __str__(self) -> str:
        return (
            f"{self.strategy} {self.dtype}, one warp alone, {self.counter}: model {self.model:,}, "
            f"hardware {self.hardware:,}"
        )


def _explained(strategy: str, dtype: str) -> Explanation | None:
    """The counts of `explain` for one warp; None if the strategy refuses or needs more blocks."""
    try:
        found = explained(strategy, n=WARP, dtype=dtype, block=WARP, finish=finish_of(strategy))
    except (ValueError, TypeError, CudaError):
        return None
    return found if found.grid == 1 else None


def cases(strategies: Sequence[str], dtype: str) -> Iterator[tuple[str, list[Case]]]:
    """Yields the launches by dtype: kernels that use shared memory; for `WIDE`, with conflicts."""
    for kind in dict.fromkeys((dtype, WIDE)):
        counted = {name: _explained(name, kind) for name in strategies}
        shared = COUNTERS if kind != dtype else ("shared_load_lanes", "shared_store_lanes")
        wanted = [
            Case(name, WARP, WARP, 1)
            for name, found in counted.items()
            if found and any(found.counters[counter] for counter in shared)
        ]
        if wanted:
            yield kind, wanted


def judge(found: Found, dtype: str) -> tuple[list[Alone], list[Failure]]:
    """Compares the GPU's counts of these launches with the model; also returns the failures."""
    rows: list[Alone] = []
    failures: list[Failure] = []
    for one in found:
        if isinstance(one, Failure):
            failures.append(one)
            continue
        name = one.case.strategy
        model = _explained(name, dtype)
        if model is None or one.case.grid != 1:
            failures.append(Failure(one.case, f"{one.case.grid} blocks, and not one warp alone"))
            continue
        for counter in COUNTERS:
            rows.append(Alone(name, dtype, counter, model.counters[counter], one.counters[counter]))
    return rows, failures


def summary(rows: Sequence[Alone]) -> str:
    """The result of the control experiment, as a sentence."""
    launches = len({(row.strategy, row.dtype) for row in rows})
    equal = sum(row.model == row.hardware for row in rows)
    conflicts = sum(row.model > 0 for row in rows)
    return (
        f"control: with one warp alone there is no arbitration. In {launches} such launches, "
        f"{equal} of {len(rows)} counts of bank conflicts ({conflicts} of them not 0) equal the "
        "model's"
    )
