"""Sums along axes of host arrays by many threads: the same bits, signals, several calls at once."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import gpureduce
from cases import broken_off_after, run_python

THREADS = """
import sys, hashlib, numpy as np, gpureduce
rng = np.random.default_rng(3)
seen = hashlib.sha256()
for shape in ((2**19, 2), (5000, 300), (300, 5000), (3, 400_000), (40, 60, 700)):
    for dtype in ("float32", "float64", "float16", "int8", "complex64"):
        a = (rng.standard_normal(shape) * 100).astype(dtype)
        for strategy in ("cpu", "exact"):
            for axis in range(len(shape)):
                seen.update(gpureduce.sum(a, strategy, axis=axis).value.tobytes())
                seen.update(gpureduce.sum(a[..., ::-2], strategy, axis=axis).value.tobytes())
print(seen.hexdigest())
"""


def test_the_number_of_threads_and_the_instruction_set_change_no_bit():
    ways = [{"GPUREDUCE_THREADS": n} for n in ("1", "2", "4")]
    ways += [{"GPUREDUCE_SIMD": name} for name in ("baseline", "avx2")]
    assert len({run_python(THREADS, **way) for way in ways}) == 1


@pytest.mark.parametrize("strategy", ["cpu", "exact"])
@pytest.mark.parametrize("axis", [0, 1])
def test_interrupts(strategy, axis):
    array = np.broadcast_to(np.ones((1, 4096), np.float64), (1 << 18, 4096))
    array = array if axis else array.T
    small = np.ones((300, 300))
    took = broken_off_after(0.2, lambda: gpureduce.sum(array, strategy, axis=axis))
    assert took is not None and took < 0.2 + 0.3 + 0.2  # a busy machine
    assert np.all(gpureduce.sum(small, strategy, axis=axis).value == 300)


def test_threads_at_once():
    array = np.random.default_rng(1).standard_normal((500, 700))
    expected = [gpureduce.sum(array, s, axis=i).value for s in ("cpu", "exact") for i in (0, 1)]
    wrong = []

    def work():
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            found = [
                gpureduce.sum(array, s, axis=i).value for s in ("cpu", "exact") for i in (0, 1)
            ]
            wrong.extend(i for i in range(4) if not np.array_equal(found[i], expected[i]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
