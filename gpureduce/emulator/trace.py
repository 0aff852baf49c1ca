"""Counts the operations of a launch on the emulator, from all blocks or from samples.

The operations depend on the number of elements per block, never on their values. So blocks are
sorted into classes with the same work, some blocks of each class run, and their counts are
multiplied. Several blocks of a class run only to check that they agree. If they do not, every block
runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce import _emulator_traced as traced
from gpureduce import _host
from gpureduce.core import registry
from gpureduce.core.plan import Launch
from gpureduce.core.sources import text_of
from gpureduce.emulator.counts import (
    NAMES,
    Access,
    Contention,
    KernelCounts,
    Line,
    Step,
    split,
)

_MOST_DEALT = 2**20  # blocks to sort, which takes some hundred megabytes
_PACK_BYTES = 16
_TILE_PACKS = 2048
_SHARE_PACKS = 32

_Counted = tuple[
    list[tuple[str | None, int, tuple[int, ...], tuple[int, int, int, int, int, bytes]]],
    list[tuple[int, int, tuple[int, ...], bytes]],
    list[tuple[int, ...]],
]


@dataclass(frozen=True)
class Request:
    """One launch of a strategy. With `later`, it adds up block sums of an earlier launch."""

    strategy: registry.Strategy
    n: int
    launch: Launch
    element_bytes: int
    later: bool

    def _check_memory(self, block: int, grid: int, team_blocks: int) -> None:
        """Raises if the recorder cannot hold the packed loads of all concurrent warps."""
        most, each, _ = traced.recorder_limits()
        loads = self.n * self.element_bytes // (_PACK_BYTES * grid * block)
        needed = loads * team_blocks * (block // 32) * each
        if needed > most:
            raise ValueError(
                f"explain would need {needed / 2**30:,.0f} GiB or more for n={self.n:,} of "
                f"{self.strategy.name} with {grid:,} blocks of {block}, and may use {most >> 30} "
                "GiB: use a smaller n or a larger grid"
            )

    def count(self, *, sample: bool) -> tuple[KernelCounts, int]:
        """Counts the launch, from samples if they agree; also returns the number of block sums."""
        arguments = self.n, self.launch, self.later
        plan = traced.plan_pass(*arguments)
        block, grid, team_blocks, _ = plan
        teams = grid // team_blocks
        self._check_memory(block, grid, team_blocks)
        counts = self.strategy.traits & (_host.TICKET | _host.DIGITS)
        last = grid - 1 if counts else 0
        if sample and not self.strategy.broken:
            chosen, classes = _choose(self, block, grid, team_blocks, last)
            if len(chosen) < teams:
                found = traced.count_pass(*arguments, _packed(chosen))
                if _agree(found[2], classes):
                    return _launch(self.n, plan, len(chosen), found)
        found = traced.count_pass(*arguments, _packed([(0, teams, 1, 0)]))
        return _launch(self.n, plan, teams, found)


def count_axis(shape: tuple[int, int], axis: int, launch: Launch) -> KernelCounts:
    """Counts the first launch of a sum along an axis of a matrix. All its blocks run."""
    block, grid, found = traced.count_axis(*shape, axis, launch)
    return _launch(shape[0] * shape[1], (block, grid, 1, 1), grid, found)[0]


def count_run(*arguments: Any) -> tuple[KernelCounts, dict[str, Contention]]:
    """Counts all launches of sums by segment or running sums together, and atomics by address.

    The arguments are those of C's `run`. All blocks run.
    """
    counts: list[Any] = []
    _, block, grid, *_ = traced.counted(*arguments, counts)
    ((found, (of_global, of_shared), _),) = counts
    counted, _ = _launch(len(arguments[1]), (block, grid, 1, 1), grid, found)
    return counted, {"global": Contention(*of_global), "shared": Contention(*of_shared)}


def count_sum(*arguments: Any) -> tuple[bytes, dict[str, int], int]:
    """A sum or running sums: the sum's accumulator, the counters of all launches, the blocks.

    The arguments are those of C's `sum` or `run`. One more counter, `busiest_warp_requests`, holds
    the global load requests and the atomics of the warp that has most of them. All blocks run.
    """
    counts: list[Any] = []
    bits, *_ = traced.counted(*arguments, counts)
    ((found, _, (blocks, requests)),) = counts
    counters = dict(zip(NAMES, _total(found), strict=True))
    return bits, counters | {"busiest_warp_requests": requests}, blocks


# The first team to run, the number of teams to run from there on, the weight of each team (the
# number of teams that it stands for), and the ticket counter's value before the first one.
_Sample = tuple[int, int, int, int]


def _packed(samples: list[_Sample]) -> bytes:
    return np.array(samples, np.uint64).tobytes()


def _agree(counts: list[tuple[int, ...]], classes: list[int]) -> bool:
    """Whether all samples of each class have equal counts."""
    first: dict[int, tuple[int, ...]] = {}
    return all(first.setdefault(c, row) == row for c, row in zip(classes, counts, strict=True))


def _choose(
    request: Request, block: int, grid: int, team_blocks: int, last_ticket: int
) -> tuple[list[_Sample], list[int]]:
    """Returns the samples, and the class of each sample."""
    if request.strategy.traits & _host.MANY:
        groups = _dealt(request, block, grid, team_blocks)
    else:
        groups = _covering(request, block, grid)
    samples: list[_Sample] = []
    classes: list[int] = []
    for number, (members, weight) in enumerate(groups):
        if last_ticket and members[-1] == grid - 1:
            # The block with the last ticket adds up the block sums: it is a class of its own.
            samples.append((grid - 1, 1, 1, last_ticket))
            classes.append(-1)
            weight, members = weight - 1, members[:-1]
        for i, member in enumerate(members):
            samples.append((member, 1, weight - len(members) + 1 if i == 0 else 1, 0))
            classes.append(number)
    order = sorted(range(len(samples)), key=samples.__getitem__)  # block 0 first, as in a full run
    return [samples[i] for i in order], [classes[i] for i in order]


_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_Group = tuple[tuple[int, ...], int]  # some members of a class, and the size of the class


def _some_of(first: int, count: int) -> _Group:
    return tuple(sorted({first, first + count // 2, first + count - 1})), count


def _covering(request: Request, block: int, grid: int) -> list[_Group]:
    """The classes if the grid covers the input: full blocks, a partial one, and empty ones."""
    per_block = block * (2 if request.strategy.traits & _host.TWO else 1)
    whole, ragged = divmod(request.n, per_block)
    groups = [_some_of(0, whole)] if whole else []
    if ragged:
        groups.append(((whole,), 1))
    used = whole + bool(ragged)
    if used < grid:
        groups.append(_some_of(used, grid - used))
    return groups


def _dealt(request: Request, block: int, grid: int, team_blocks: int) -> list[_Group]:
    """The classes if a block takes many elements: equal work for every way to deal them out.

    Kernels deal out elements or 16-byte packs, a grid's stride apart, or contiguous shares of
    packs, or whole tiles and the rest as packs.
    """
    if grid > _MOST_DEALT:
        raise ValueError(
            f"explain groups equal blocks, at most {_MOST_DEALT:,} of {request.strategy.name}: use "
            f"a grid smaller than {grid:,}"
        )
    number = np.arange(grid, dtype=np.int64)
    per_pack = _PACK_BYTES // request.element_bytes
    packs, tail = divmod(request.n, per_pack)
    tiles = packs // _TILE_PACKS
    shares = -(-packs // _SHARE_PACKS)
    begin = shares * number // grid * _SHARE_PACKS
    end = np.minimum(shares * (number + 1) // grid * _SHARE_PACKS, packs)
    columns = [
        *_strides(request.n, number * block, block, grid),
        *_strides(packs, number * block, block, grid),
        *_strides(packs - tiles * _TILE_PACKS, number * block, block, grid),
        np.maximum(end - begin, 0),
        -(-(tiles - number) // grid),
        np.where(number * block < tail, number + 1, 0),
    ]
    work = np.stack(columns, axis=1).reshape(grid // team_blocks, -1)
    # Not np.unique(axis=0), which turns an exception of a signal handler into a TypeError.
    order = np.lexsort(work.T[::-1])  # stable: equal rows stay in ascending order
    differs = (work[order[1:]] != work[order[:-1]]).any(axis=1)
    groups = []
    for alike in np.split(order, np.flatnonzero(differs) + 1):
        groups.append((tuple(sorted({int(alike[0]), int(alike[-1])})), len(alike)))
    return groups


def _strides(n: int, begin: _Numbers, block: int, grid: int) -> list[_Numbers]:
    """Per block, the iterations of its first and last thread; and the threads with one more."""
    stride = block * grid
    most = np.maximum(-(-(n - begin) // stride), 0)
    least = np.maximum(-(-(n - begin - (block - 1)) // stride), 0)
    return [most, least, np.where(most != least, (n - begin) % stride, 0)]


def _access(found: tuple[int, int, int, int, int, bytes]) -> Access | None:
    wavefronts, ideal, mask, size, store, offsets = found
    if not mask:
        return None
    places = np.frombuffer(offsets, np.uint32).tolist()
    lanes = tuple(place if mask >> lane & 1 else None for lane, place in enumerate(places))
    return Access(lanes, size, wavefronts, ideal, bool(store))


def _total(found: _Counted) -> tuple[int, ...]:
    total = tuple(map(sum, zip(*(counts for _, _, counts, _ in found[0]), strict=True)))
    return total or (0,) * len(NAMES)


def _launch(
    n: int, plan: tuple[int, int, int, int], ran: int, found: _Counted
) -> tuple[KernelCounts, int]:
    lines = tuple(
        Line(
            **split(counts),
            file=file or "",
            line=line,
            text=text_of(file or "", line),
            access=_access(access),
        )
        for file, line, counts, access in found[0]
    )
    steps = tuple(
        Step(
            **split(counts),
            barrier=barrier,
            sync=sync,
            lanes=tuple(np.frombuffer(lanes, np.uint32).tolist()),
        )
        for barrier, sync, counts, lanes in found[1]
    )
    block, grid, team_blocks, outs = plan
    sampled = ran < grid // team_blocks
    return KernelCounts(
        **split(_total(found)),
        n=n,
        block=block,
        grid=grid,
        sampled=sampled,
        ran=ran,
        lines=lines,
        steps=steps,
    ), outs
