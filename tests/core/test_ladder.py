"""Every strategy, dtype, block, size and order of threads, against numpy.sum and math.fsum."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import (
    BLOCKS,
    DTYPES,
    KERNELS,
    PAIRS,
    SCHEDULES,
    array_of,
    check,
    gpureduce_strategy,
    needed_dtype,
    on_devices,
    small_sizes,
)

# Of the emulator, each block has another order of threads, and each strategy has all of them.
ORDERS = [gpureduce.emulator.Schedule(*schedule) for schedule in SCHEDULES]


def run(strategy: str, array, device: str, **launch):
    dtype = needed_dtype(strategy, str(array.dtype))
    check(gpureduce.sum(array, strategy, dtype=dtype, device=device, **launch), array, dtype)


def in_order(number: int):
    order = ORDERS[number % len(ORDERS)]
    return gpureduce.emulator.schedule(order.order, order.seed)


@pytest.mark.parametrize(("strategy", "dtype"), PAIRS)
@on_devices
def test_every_block_and_edge(strategy, dtype, device, count_sum):
    first = DTYPES.index(dtype)
    for i, block in enumerate(BLOCKS):
        if device == "emulator" and (first + i) % 2:  # every other block with the next dtype
            continue
        # On the emulator, each dtype has a third of the sizes.
        sizes = small_sizes(block)
        for n in sizes if device == "cuda" else sizes[(first + i) // 2 % 3 :: 3]:
            with in_order(first + i):
                run(strategy, array_of(dtype, n), device, block=block)
            count_sum(strategy, dtype)


@pytest.mark.parametrize(
    ("strategy", "dtype", "device"),
    [*((*pair, "emulator") for pair in PAIRS[::3]),
     *(pytest.param(*pair, "cuda", marks=pytest.mark.gpu) for pair in PAIRS)],
)  # fmt: skip
def test_many_blocks(strategy, dtype, device, count_sum):
    array, first, blocks = array_of(dtype, 2**16 + 3), DTYPES.index(dtype), (32, 128, 1024)
    for block in blocks if device == "cuda" else [blocks[first % 3]]:
        with in_order(first // 3):
            run(strategy, array, device, block=block)
        count_sum(strategy, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", KERNELS)
def test_a_million_on_the_card(strategy, count_sum):
    for dtype in (dtype for name, dtype in PAIRS if name == strategy):
        array = array_of(dtype, 2**20 + 1)
        for block in BLOCKS:
            run(strategy, array, "cuda", block=block)
            count_sum(strategy, dtype)


@pytest.mark.gpu
@pytest.mark.sanitizer
@pytest.mark.parametrize(("strategy", "dtype"), PAIRS)
def test_short_for_the_sanitizer(strategy, dtype):
    for block, n in ((32, 1), (96, 33), (96, 487), (256, 1287)):
        run(strategy, array_of(dtype, n), "cuda", block=block)


@pytest.mark.parametrize("strategy", KERNELS)
@pytest.mark.parametrize("order", ["lockstep", "random"])
def test_lane_by_lane(strategy, order):
    """The traced build stops at every access; short, because that is slow."""
    with gpureduce.emulator.schedule(order, 5):
        for block in (32, 64, 160):
            run(strategy, array_of("int32", 3 * block + 5), "emulator", block=block)


GRIDS = {"cluster": (8, 16, 32), "grid_sync": (1, 2, 7), "one_block": (1,), "one_cluster": (8,)}


@on_devices
@pytest.mark.parametrize("strategy", KERNELS)
def test_grids_and_finishes(strategy, device):
    row = gpureduce_strategy(strategy)
    array = array_of("int32", 10_007)
    for finish in row.finishes:
        for block in (32, 128):
            enough = -(-array.size // block)
            one_each = gpureduce.sum(array[:1], strategy, dtype="int32", block=block).timing
            assert one_each.finish in row.finishes
            free = strategy in GRIDS or row.traits & gpureduce._host.MANY
            for grid in GRIDS.get(strategy, (1, 3, 64)) if free else (enough, enough + 5):
                result = gpureduce.sum(
                    array, strategy, "int32", block, grid, finish=finish, device=device
                )
                check(result, array, "int32")
                assert result.timing.grid == grid
                assert result.timing.finish == finish


@pytest.mark.parametrize("strategy", KERNELS)
def test_lecture_ladder_wraps_in_32_bits(strategy):
    array = np.full(1000, 2**31 - 1, np.int32)
    value = gpureduce.sum(array, strategy, dtype="int32", device="emulator").value
    assert value.dtype == np.int32
    assert int(value) == int(np.sum(array, dtype=np.int32)) == -1000


@on_devices
@pytest.mark.parametrize(
    "strategy", [s for s, d in PAIRS if d == "float32" and gpureduce_strategy(s).deterministic]
)
def test_deterministic_strategies_repeat_their_bits(strategy, device):
    array = array_of("float32", 50_001)
    first = gpureduce.sum(array, strategy, device=device).value
    for seed in range(5):
        with gpureduce.emulator.schedule("random", seed):
            assert gpureduce.sum(array, strategy, device=device).value == first


def test_all_dtypes_have_a_pair_with_every_general_strategy():
    assert len(PAIRS) == (len(KERNELS) - 1) * len(DTYPES) + 2
