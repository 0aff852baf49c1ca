"""The instruction set and the number of threads change no bit of any sum, and no message."""

from __future__ import annotations

import pytest

from cases import ROOT, run_python

# The arrays of tools/digests.py by `exact` and `cpu`, whole, along axes and by offsets; then what
# that leaves out: large arrays, views, ids of every dtype and in every order, and wrong ids.
CODE = """
import hashlib, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
import numpy as np, gpureduce
from digests import FLOATS, INTEGERS, digest
from exact_cases import short_sums

for name in FLOATS + INTEGERS:
    for part in range(7):
        print(name, part, digest(name, part, 20, 10))
told, rng = hashlib.sha256(), np.random.default_rng(3)

def add(call, *arguments, **how):
    try:
        told.update(np.ascontiguousarray(call(*arguments, timing=False, **how).value).tobytes())
    except ValueError as error:
        told.update(str(error).encode())

for shape in ((300_001,), (2**18, 2), (2000, 300), (300, 2000), (3, 200_000), (40, 60, 90)):
    for dtype in ("float16", "float32", "float64", "int8", "complex64"):
        array = (rng.standard_normal(shape) * 100).astype(dtype)
        for strategy in ("cpu", "exact"):
            for view in (array, array[..., ::-2]):
                for axis in range(len(shape)):
                    add(gpureduce.sum, view, strategy, axis=axis)
for value, dtype in ((255, "uint8"), (127, "int8"), (-128, "int8")):
    for n in (8191, 8193, 16_384, 65_536, 262_144):
        assert gpureduce.sum(np.full(n, value, dtype), "cpu").value == n * value
for dtype in ("float32", "float64"):
    rows = short_sums(rng, 9001, dtype)
    add(gpureduce.segment_sum, rows.reshape(-1), np.arange(rows.size) // 4)
for dtype in ("float16", "float32", "float64", "int32", "complex128"):
    for spread in (3, 280):
        values = (rng.standard_normal(90_000) * 2.0 ** rng.integers(-spread, spread, 90_000))
        values = values.astype(dtype) if dtype != "int32" else rng.integers(-9, 9, 90_000)
        for count in (3, 2000, 100_000):
            ids = rng.integers(0, count, values.size)
            add(gpureduce.segment_sum, values, ids, num_segments=count)
            add(gpureduce.segment_sum, values.reshape(-1, 3), ids[:30_000], num_segments=count)
values, ids = rng.standard_normal(30_011).astype("f4"), rng.integers(0, 100, 30_011)
for kind in ("i1", "u1", "i2", "u2", "i4", "u4", ">i4", "i8", "u8"):
    add(gpureduce.segment_sum, values, ids.astype(kind))
    add(gpureduce.segment_sum, values[1:], ids.astype(kind)[:-1])
    for bad in (0, 30_010):
        wrong = ids.astype(kind)
        wrong[bad] = 100 + bad % 2 if "u" in kind else -1
        add(gpureduce.segment_sum, values, wrong, num_segments=100)
print(told.hexdigest())
"""
SETTINGS = [{"GPUREDUCE_SIMD": simd, "GPUREDUCE_THREADS": threads}
            for simd, threads in (("baseline", "1"), ("avx2", "5"))]  # fmt: skip


@pytest.fixture(scope="module")
def usual():
    return run_python(CODE, str(ROOT / "tools"))


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_no_bit_changes(setting, usual):
    assert run_python(CODE, str(ROOT / "tools"), **setting) == usual
