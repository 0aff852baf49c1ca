"""Launches that fail in the middle: what a workspace keeps for the next call is thrown away."""

from __future__ import annotations

import shutil

import pytest

from cases import run_python

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")

# A kernel of the ladder, compiled and loaded into this process, that traps for some sizes: at its
# start, so that other blocks have drawn tickets or left their sums; or at its end.
FAILING = """
import sys
import numpy as np, gpureduce
from producers import ByDLPack

name = sys.argv[1]
text = gpureduce.source(name).text
begin = text.index("{", text.index("__global__")) + 1
early = "if (n % 1000 == 77 && blockIdx.x == gridDim.x / 2 && threadIdx.x == 3) __trap();"
text = text[:begin] + early + text[begin:]
end = text.rindex("}")
text = text[:end] + "if (n % 1000 == 78 && threadIdx.x == 3) __trap();" + text[end:]
kernel = gpureduce.kernel(text, scratch=sys.argv[2] if sys.argv[2] != "none" else None)
strategy = kernel.loaded([("f32", "f32")]).strategy()

def check(n, array=np.asarray):
    found = gpureduce.sum(array(np.ones(n, np.float32)), strategy, device="emulator").value
    assert float(found) == n, (name, n, found)

def fails(call):
    try:
        call()
    except gpureduce.CudaError as error:
        assert error.name == "cudaErrorLaunchFailure" and "calls __trap" in str(error), error
        return
    raise AssertionError("the launch did not fail")

for order in gpureduce.emulator.ORDERS:
    with gpureduce.emulator.schedule(order):
        check(20_000)
        for n in (20_077, 20_078, 5_077):
            fails(lambda: check(n))
            for again in (20_000, 5_000, 20_000):
                check(again)
            fails(lambda: check(n))
            fails(lambda: check(n))
            check(20_000)
whole = ByDLPack(np.ones(20_000, np.float32))
for n in (20_077, 20_078):
    part = ByDLPack(np.ones(n, np.float32))
    fails(lambda: gpureduce.sum_parts([whole, part, whole], strategy, device="emulator"))
    check(20_000, ByDLPack)
    found = gpureduce.sum_parts([whole, whole], strategy, device="emulator").value
    assert float(found) == 40_000, found
for other in ("exact", "last_block", "tiles", "bulk_copy", "fast"):
    found = gpureduce.sum(np.ones(20_000, np.float32), other, device="emulator").value
    assert float(found) == 20_000, (other, found)
"""


@pytest.mark.parametrize(
    ("name", "scratch"),
    [
        ("last_block", "block"),
        ("grid_sync", "block"),
        ("cascade", "none"),
        ("atomic_block", "none"),
    ],
)
def test_sums_after_a_launch_that_fails(name, scratch):
    run_python(FAILING, name, scratch, timeout=200)
