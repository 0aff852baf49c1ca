"""A kernel's counts beside those of the ladder's rungs: the nearest rung, the place, and a hint."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpureduce import _host
from gpureduce.core import registry
from gpureduce.core.registry import Strategy
from gpureduce.emulator.counts import StrategyCounts
from gpureduce.emulator.explain import explained

N, BLOCK = 2**16, 256
_COMPARED = (
    "shared_load_wavefronts",
    "shared_store_wavefronts",
    "shared_load_conflicts",
    "global_load_requests",
    "global_load_sectors",
    "global_store_requests",
    "block_barriers",
    "warp_barriers",
    "shuffles",
    "atomics",
)
LADDER = tuple(
    s.name
    for s in registry.STRATEGIES.values()
    if s.kind == "kernel" and s.name not in ("redux", "one_block", "one_cluster")
)


@dataclass(frozen=True)
class Rung:
    """A strategy, and its costs for 2**16 elements in blocks of 256.

    `costs` are what the times of the rungs follow, by name (`costs_of`).
    """

    name: str
    counters: dict[str, int]
    costs: dict[str, int]

    @property
    def work(self) -> int:
        """All costs together: rungs that have more of them take longer."""
        return sum(self.costs.values())


@dataclass(frozen=True)
class Comparison:
    """A kernel beside the ladder.

    `own` are its counts for 2**16 elements in blocks of 256, `nearest` the rung with the most
    similar counts. `rungs` are all rungs and the kernel, those first whose costs are highest.
    `changes` are the counters that differ from the nearest rung's: name, the rung's, its own.
    `blocks` are those of all launches.
    """

    own: Rung
    nearest: Rung
    rungs: tuple[Rung, ...]
    changes: tuple[tuple[str, int, int], ...]
    active_lanes: float | None
    bytes_used_share: float | None
    blocks: int

    @property
    def place(self) -> int:
        """Its place, from 1, by what times follow: the first has most of it."""
        return 1 + [rung.name for rung in self.rungs].index(self.own.name)

    @property
    def sentence(self) -> str:
        """What differs most from the nearest rung."""
        name = self.nearest.name
        if not self.changes:
            return f"It does exactly what {name} does, as counted."
        counter, theirs, own = self.changes[0]
        words = counter.replace("_", " ")
        if not own:
            return f"It is nearest to {name}, and has none of its {theirs:,} {words}."
        if not theirs:
            return f"It is nearest to {name}, which has no {words}; yours has {own:,}."
        ratio = max(own, theirs) / min(own, theirs)
        few = f"{abs(own - theirs):,}"  # a ratio near 1 would hide the difference
        times = f"{ratio:,.0f} times as many" if ratio >= 100 else f"{ratio:.3g} times as many"
        how = f"{few} more" if ratio < 1.1 else times
        if own < theirs:
            how = f"{few} fewer" if ratio < 1.1 else times.replace("as many", "fewer")
        return f"It is nearest to {name}, and has {how} {words} ({own:,}, and {theirs:,} there)."


def costs_of(counts: StrategyCounts) -> dict[str, int]:
    """What the times of the rungs follow, each as passes of a warp.

    Of two rungs whose times for 2**30 elements differ on an H100, the slower one has no smaller sum
    of these (tests/lectures/test_lesson_claims.py); `cluster` alone is an exception. A divergent
    pass is 32 lanes that are off while others of their warps access memory. Memory serves atomics
    one by one.
    """
    total, lanes = counts.total, counts.active_lanes or 32
    warps = sum(k.counters["block_barriers"] * (k.block // 32) for k in counts.kernels)
    return {
        "sectors": total["global_load_sectors"] + total["global_store_sectors"],
        "requests": total["global_load_requests"] + total["global_store_requests"],
        "wavefronts": counts.wavefronts,
        "warps at barriers": warps + total["warp_barriers"],
        "divergent passes": round(counts.memory_instructions * (32 - lanes) / 32),
        "shuffles": total["shuffles"],
        "atomics": total["atomics"],
    }


def _rung(counts: StrategyCounts) -> Rung:
    return Rung(counts.strategy, dict(counts.total), costs_of(counts))


@functools.cache
def rungs(dtype: str, block: int) -> tuple[Rung, ...]:
    """The ladder's rungs, counted."""
    return tuple(
        _rung(explained(name, n=N, block=block, dtype=dtype))
        for name in LADDER
        if dtype in registry.STRATEGIES[name].dtypes
    )


def _distance(a: Rung, b: Rung) -> float:
    """How much two kernels differ: for each counter 0 if it is the same, and 1 if one has none."""
    pairs = [(a.counters[name], b.counters[name]) for name in _COMPARED]
    return sum(abs(one - other) / max(1, one + other) for one, other in pairs)


def compare(
    strategy: Strategy, dtype: str, input_dtype: str, finish: str | None, block: int = BLOCK
) -> Comparison:
    """Counts the kernel, all of its blocks, and finds its place."""
    counted = explained(
        strategy, n=N, block=block, dtype=dtype, input_dtype=input_dtype, finish=finish,
        sample=False,
    )  # fmt: skip
    own = _rung(counted)
    own = Rung("(yours)", own.counters, own.costs)
    known = rungs(dtype, block)
    nearest = min(known, key=lambda rung: _distance(own, rung))
    changes = [
        (name, nearest.counters[name], own.counters[name])
        for name in own.counters
        if own.counters[name] != nearest.counters[name]
    ]
    changes.sort(key=lambda row: -abs(math.log2((1 + row[1]) / (1 + row[2]))))
    ordered = tuple(sorted((*known, own), key=lambda rung: -rung.work))
    return Comparison(own, nearest, ordered, tuple(changes), counted.active_lanes,
                      counted.bytes_used_share, sum(k.grid for k in counted.kernels))  # fmt: skip


# --- what to try next ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Waste:
    """A waste that the counts show, and the rung whose one change removes it."""

    rung: str
    is_there: Callable[[Comparison, int], bool]
    text: str


_WASTES = (
    Waste("sequential", lambda c, t: c.own.counters["atomics"] * 2 > N and bool(_shared(c)),
          "every element is an atomic, and they queue for one address of the block; use a tree"),
    Waste("atomic_block", lambda c, t: c.own.counters["atomics"] * 2 > N,
          "every element is an atomic, and they queue for one address; add up in the block first"),
    Waste("interleaved_mod",
          lambda c, t: not _shared(c) and not c.own.counters["shuffles"] and _global(c) > N // 8,
          "the steps of the tree go through global memory; take shared memory"),
    Waste("sequential", lambda c, t: (c.bytes_used_share or 1) < 0.5,
          "less than half of each 32-byte sector is used; let neighbours read neighbours"),
    Waste("sequential", lambda c, t: _one_lane_adds(c.own.counters),
          "one thread adds up the block, and the others wait; use a tree"),
    Waste("sequential", lambda c, t: c.own.counters["shared_load_conflicts"] * 4 > _shared(c),
          "lanes of a warp meet in the same banks; let the stride go down from half the block"),
    Waste("interleaved_idx", lambda c, t: (c.active_lanes or 32) < 16 and bool(_shared(c)),
          "fewer than half of a warp's lanes work; pack the active threads into whole warps"),
    Waste("first_add", lambda c, t: bool(t & _host.ONE) and bool(_shared(c)),
          "half of the threads only load an element and stop; let each add two while it loads"),
    Waste("cascade", lambda c, t: bool(t & _host.TWO),
          "the tree is paid for every two elements of a thread; let each add many first"),
    Waste("unroll_warp", lambda c, t: c.own.counters["block_barriers"] > 8 * _blocks(c, t),
          "the last warp waits at barriers for the whole block; __syncwarp() is enough there"),
    Waste("warp_shfl", lambda c, t: _shared(c) > max(N // 64, 4 * c.own.counters["shuffles"]),
          "the sums of a warp pass through shared memory; shuffles keep them in registers"),
    Waste("vector_load", lambda c, t: c.own.counters["global_load_requests"] > N // 64,
          "each load takes 4 bytes; loads of 16 bytes need a quarter of the requests"),
    Waste("last_block", lambda c, t: not t & _host.FINISHES,
          "the block sums need a second launch; the block that finishes last can add them up"),
)  # fmt: skip


def _one_lane_adds(counters: Mapping[str, int]) -> bool:
    instructions = counters["shared_load_instructions"]
    return instructions * 2 > N and counters["shared_load_lanes"] < 2 * instructions


def _shared(c: Comparison) -> int:
    return c.own.counters["shared_load_wavefronts"] + c.own.counters["shared_store_wavefronts"]


def _global(c: Comparison) -> int:
    return c.own.counters["global_load_requests"] + c.own.counters["global_store_requests"]


def _blocks(_: Comparison, traits: int) -> int:
    return N // BLOCK if traits & _host.ONE else N // BLOCK // 2 if traits & _host.TWO else 32


def hint(comparison: Comparison, traits: int) -> tuple[str, str] | None:
    """The largest waste that the counts show: the rung that removes it, and what it is."""
    for waste in _WASTES:
        if waste.is_there(comparison, traits):
            return waste.rung, waste.text
    return None
