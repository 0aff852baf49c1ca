"""Arrays of a device that begin anywhere in a line of memory, and blocks without a share."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import array_of, numpy_dtype
from producers import ByDLPack

LINE = 128
STRATEGIES = ["tiles", "bulk_copy", "one_cluster", "one_block", "vector_load", "fast", "exact"]
FEW = [*range(10), 15, 16, 17, 31, 32, 33, 63, 64, 65]
# A warp loads 512 bytes at once, and shares are of so much.
SIZES = sorted({*FEW, *(k * LINE + more for k in (1, 2, 3, 4, 8, 12) for more in (-1, 0, 1))})
EVERY = range(301)


def in_a_line(dtype, elements):
    """An array that begins with a line of memory, amid others that no sum may take."""
    kind = numpy_dtype(dtype)
    values = array_of(dtype, elements)
    if dtype[0] in "bf":  # whole numbers, whose sums are right in any order
        values = np.random.default_rng(1).integers(-9, 10, elements).astype(kind)
    room = np.empty(elements * kind.itemsize + 2 * LINE, np.uint8)
    start = LINE - room.ctypes.data % LINE
    array = room[start : start + elements * kind.itemsize].view(kind)
    array[:] = values
    return array


def sums_of(array):
    """The sum of what lies before each element; of floats it is so small that no type rounds it."""
    if array.dtype.kind in "iu":
        return np.cumsum([0, *array.tolist()], dtype=object)
    return np.concatenate([[0], np.cumsum(array.astype(np.float64))])


def check_at(array, sums, offset, n, strategy, **more):
    view = ByDLPack(array[offset : offset + n])
    found = gpureduce.sum(view, strategy, device="emulator", timing=False, **more).value
    right = sums[offset + n] - sums[offset]
    if array.dtype.kind in "iu":
        assert (int(found) - right) % 2**64 == 0, (offset, n, more)
    else:
        assert found == np.float64(right).astype(array.dtype), (offset, n, more)


FLOATS, INTEGERS = ("float64", "float32", "float16"), ("int64", "int8")


@pytest.mark.parametrize(
    ("dtype", "strategy"),
    [(d, s) for d in FLOATS + INTEGERS for s in STRATEGIES if s != "exact" or d in FLOATS],
)
def test_every_place(dtype, strategy):
    array = in_a_line(dtype, LINE + max(SIZES))
    sums = sums_of(array)
    for offset in range(LINE // array.itemsize):
        for n in SIZES[offset % 7 :: 7]:
            check_at(array, sums, offset, n, strategy)


@pytest.mark.parametrize("strategy", ["tiles", "exact"])
@pytest.mark.parametrize("grid", [2, 3, 8, 24])
def test_more_blocks_than_shares(grid, strategy):
    array = in_a_line("float64", LINE + max(SIZES))
    sums = sums_of(array)
    for offset in range(16):
        for n in EVERY[offset % 5 :: 5] if grid == 3 else SIZES:
            check_at(array, sums, offset, n, strategy, block=32, grid=grid)
