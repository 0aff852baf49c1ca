"""What the engine does besides getting the sum right: launches, grids, pieces, times, choices."""

from __future__ import annotations

import concurrent.futures
import math

import numpy as np
import pytest

import gpureduce
from cases import KERNELS, array_of, gpureduce_strategy
from gpureduce import _host
from producers import ByInterface

A = np.arange(100_000, dtype=np.int32)


def passes(row, n, block, most):
    """How many launches until one value is left."""
    per = block * (2 if row.traits & _host.TWO else 1)
    step = _host.CLUSTER_BLOCKS if row.traits & _host.CLUSTER else 1
    count = 0
    while count == 0 or n > 1:
        n = -(-n // per)
        if row.traits & _host.MANY:
            n = -(-min(n, most) // step)
        count += 1
    return count


@pytest.mark.parametrize("strategy", KERNELS)
def test_launches_are_counted_and_finish_is_obeyed(strategy):
    row = gpureduce_strategy(strategy)
    if row.traits & _host.FINISHES:
        assert gpureduce.sum(A, strategy, "int32", device="emulator").timing.launches == 1
        return
    for finish in row.finishes:
        t = gpureduce.sum(A, strategy, "int32", block=32, finish=finish, device="emulator").timing
        assert t.launches == (passes(row, A.size, 32, t.grid) if finish == "relaunch" else 1)


@pytest.mark.parametrize("strategy", KERNELS)
def test_default_grid(strategy):
    """Just enough blocks, or, where blocks have more to do, no more than the card holds."""
    row, block = gpureduce_strategy(strategy), 128
    per = block * (2 if row.traits & _host.TWO else 1)
    step = _host.CLUSTER_BLOCKS if row.traits & _host.CLUSTER else 1
    if row.traits & _host.ALONE:
        assert gpureduce.sum(A, strategy, "int32", device="emulator").timing.grid == step
        return
    # The emulated card has four multiprocessors, each with room for one ring.
    most = 4 if strategy == "bulk_copy" else 1000
    for n in (1, per - 1, per, per + 1, 5 * per, 5 * per + 1):
        grid = gpureduce.sum(A[:n], strategy, "int32", block=block, device="emulator").timing.grid
        cover = min(math.ceil(n / per), most)
        assert grid == math.ceil(cover / step) * step
    if row.traits & _host.MANY:
        big = np.ones(1 << 20, np.int32)
        launches = [
            gpureduce.sum(big[:n], strategy, "int32", block=1024, device="emulator").timing
            for n in (1 << 18, 1 << 20)
        ]
        assert launches[0].grid == launches[1].grid


def test_where_the_time_goes():
    """Most kernels write the sum to host memory; the sum of atomics is copied."""
    # The quickest of some calls: on a busy machine one may lose the processor in any part of it.
    for strategy, is_copied in (("global_tree", False), ("atomic_block", True)):
        times = [gpureduce.sum(A, strategy, device="emulator").timing for _ in range(9)]
        kernel = min(t.kernel_ms for t in times)
        assert kernel > 5 * min(t.h2d_ms for t in times) > 0
        assert kernel > 5 * min(t.d2h_ms for t in times)
        assert all((t.d2h_ms > 0) is is_copied for t in times)


def test_choices():
    assert gpureduce.sum(A).timing.strategy == "cpu"
    assert gpureduce.sum(A, device="emulator").timing.strategy == "tiles"
    assert gpureduce.sum(A, "fast", device="emulator").timing.strategy == "tiles"
    assert gpureduce.sum(A[:100], "fast", device="emulator").timing.strategy == "one_block"
    for part in (A[:20_000], ByInterface(A[:20_000])):
        assert gpureduce.sum(part, "fast", device="emulator").timing.strategy == "one_cluster"
    ring = gpureduce.sum(ByInterface(np.ones(3 << 20, np.int8)), "fast", device="emulator")
    assert (int(ring.value), ring.timing.strategy) == (3 << 20, "bulk_copy")
    assert gpureduce.sum(A, "fast").timing.backend != "cpu"


def test_seeds_differ_and_threads_keep_theirs():
    """warp_volatile's answer depends on the order of the lanes: it tells which order there was."""
    array = array_of("int32", 64)

    def answer(seed):
        with gpureduce.emulator.schedule("random", seed):
            return int(
                gpureduce.sum(
                    array, "warp_volatile", block=64, device="emulator", allow_broken=True
                ).value
            )

    alone = [answer(s) for s in range(40)]
    assert len(set(alone)) > 10
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(answer, range(40))) == alone


def test_cooperative_limit_is_exact():
    big = np.ones(1 << 20, np.int32)
    most = gpureduce.sum(big, "grid_sync", block=1024, device="emulator").timing.grid
    assert int(gpureduce.sum(big, "grid_sync", block=1024, grid=most).value) == big.size
    with pytest.raises(ValueError, match="on the GPU at once"):
        gpureduce.sum(big, "grid_sync", block=1024, grid=most + 1, device="emulator")
