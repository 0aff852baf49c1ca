"""Host arrays that kernels of a device read while threads still bring them: any size, any place."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import gpureduce
from cases import DTYPES, array_of, numpy_dtype
from gpureduce import _backends, _emulator, _gpu

KIB = 1 << 10
PIECE = 16 * KIB  # csrc/engine/arriving.h says so
FLOATS = [d for d in DTYPES if numpy_dtype(d).kind not in "biu"]
REACH = 16 << 20
DEVICES = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]
on_devices = pytest.mark.parametrize("device", DEVICES)


def sizes(itemsize):
    """In elements, around the ends of pieces."""
    return [k * PIECE // itemsize + more for k in (4, 5, 11, 32, 33) for more in (-1, 0, 1)]


@pytest.fixture
def sent(device, monkeypatch):
    """The sum on a device of an array that threads bring.

    That is also one of less than 512 KiB, if there was another one just before.
    """
    module = _emulator if device == "emulator" else _backends.load_cuda()
    monkeypatch.setenv("GPUREDUCE_THREADS", "8")
    one = np.ones(1)

    def add(array, strategy):
        module.quick_sum_sent(one, _gpu.QUICK["exact"], 0)
        return module.quick_sum_sent(array, _gpu.QUICK[strategy], 0).value

    return add


def places(values):
    """Arrays of each size that begin at several places: with other contents each time."""
    for n in sizes(values.itemsize):
        for offset in (0, 1, 3, n // 3, n // 3 + 1):
            yield n, offset, values[offset : offset + n]


@on_devices
@pytest.mark.parametrize("dtype", DTYPES)
def test_fast(sent, device, dtype):
    room = 2 * max(sizes(numpy_dtype(dtype).itemsize))
    values = array_of(dtype, room)
    if dtype in FLOATS:  # whole numbers, whose sums are right in any order
        values = np.random.default_rng(1).integers(-3, 4, room).astype(values.dtype)
    for n, offset, array in places(values):
        right = array.sum()
        if dtype in FLOATS:
            right = array.astype(np.float64).sum().astype(np.float32).astype(array.dtype)
        assert sent(array, "fast") == right, (n, offset)


@on_devices
@pytest.mark.parametrize("dtype", FLOATS)
def test_exact(sent, device, dtype):
    values = array_of(dtype, 2 * max(sizes(numpy_dtype(dtype).itemsize)))
    for n, offset, array in places(values):
        right = gpureduce.sum(array, "exact", device="cpu").value
        assert sent(array, "exact").tobytes() == right.tobytes(), (n, offset)


@on_devices
@pytest.mark.parametrize(("dtype", "strategy"), [("int32", "fast"), ("int8", "fast"),
                                                 ("float32", "exact")])  # fmt: skip
def test_the_end_of_a_large_array_comes_last(sent, device, dtype, strategy):
    """What lies behind the last 16 bytes is read when it is there, too."""
    most = REACH // np.dtype(dtype).itemsize
    array = np.zeros(most, dtype)
    for n in (most - 1, most - 3, most // 2 + 1):
        for k in range(1, 6):
            array[:n] = k % 2
            array[n - 3 : n] = 10 * k
            right = (n - 3) * (k % 2) + 30 * k
            assert int(sent(array[:n], strategy)) == int(np.float32(right)), (n, k)


SMALL_SHARES = """
import numpy as np, gpureduce
one = np.ones(1)
for n in (128 * 40 + 1, 128 * 300, 128 * 1100 + 1, 128 * 2000 + 3, 128 * 4100 + 2):
    for grid in (1, 3, 100, 1500, 3000, 4095):
        for k in (1, 2, 3):
            array = np.full(n, k, np.float32)
            gpureduce.sum(one, "exact", device={device!r}, timing=False)
            found = gpureduce.sum(array, "exact", device={device!r}, block=32, grid=grid,
                                  timing=False)
            assert found.value == n * k, (n, grid, k, found)
"""


@on_devices
def test_blocks_without_a_share(device):
    """Such a block has nothing to wait for.

    In a process of its own: a kernel that waits for what never comes cannot be broken off.
    """
    command = [sys.executable, "-P", "-W", "ignore", "-c", SMALL_SHARES.format(device=device)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60,
        env={**os.environ, "GPUREDUCE_THREADS": "8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
