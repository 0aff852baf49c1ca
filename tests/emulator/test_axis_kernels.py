"""The kernels for sums along an axis: what they access, counted, and whether they race."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gpureduce
from axis_cases import refusal
from cases import AXIS
from exact_cases import hard
from gpureduce import _emulator_traced as traced
from gpureduce import _host
from gpureduce.core import registry

ROWS, COLUMNS = 512, 64
LEAST = ROWS * COLUMNS * 4 // 32  # sectors of int32


def loads(name, shape=(ROWS, COLUMNS), **how):
    counted = gpureduce.explain(name, shape=shape, **how)
    return counted.counters["global_load_sectors"]


def test_a_thread_per_row_fetches_a_sector_per_element():
    assert loads("row_thread") == ROWS * COLUMNS == 8 * LEAST


@pytest.mark.parametrize("name", [n for n in AXIS if n not in ("row_thread", "exact_levels")])
def test_the_others_fetch_each_sector_once(name):
    shape = (ROWS * COLUMNS // 2, 2) if name == "row_packs" else (ROWS, COLUMNS)
    assert loads(name, shape) == LEAST


@pytest.mark.parametrize("name", AXIS)
def test_explanations_say_what_was_added_up(name):
    dtype = "float32" if name == "exact_levels" else "int32"
    if name == "exact_levels":
        with pytest.raises(TypeError, match="exact_levels sums floats only"):
            gpureduce.explain(name, shape=(10, 33), dtype="int32")
    rows, columns = shape = (180, 2) if name == "row_packs" else (10, 36)
    counted = gpureduce.explain(name, shape=shape, dtype=dtype)
    axis = 0 if name.startswith("column") else 1
    assert (counted.shape, counted.axis, counted.n) == (shape, axis, 360)
    assert f"{rows} rows of {columns} columns along axis {axis}: {dtype} added up" in str(counted)
    assert counted._repr_html_() and json.dumps(counted.as_dict())


def test_two_rungs_side_by_side():
    both = gpureduce.explain("row_thread", "row_lanes", shape=(64, 64))
    assert "64 rows of 64 columns along axis 1: int32 added up in int32" in str(both)
    assert "global_load_sectors" in [change.name for change in both.fell]
    assert both.picture().svg()


@pytest.mark.parametrize(
    ("shape", "error", "match"),
    [((3,), TypeError, r"a tuple \(rows, columns\)"), ((0, 3), ValueError, "rows"),
     ((2**13, 2**13), ValueError, "rows .* columns"), ("4x4", TypeError, "rows, columns")],
)  # fmt: skip
def test_wrong_shapes(shape, error, match):
    with pytest.raises(error, match=match):
        gpureduce.explain("row_thread", shape=shape)


def request(name, dtype, axis, exactly, as_digits=False):
    row = registry.find(name)
    acc = {"float32": _host.ACC_F32, "float64": _host.ACC_F64, "float16": _host.ACC_F32}[dtype]
    target = {"float32": _host.LOAD_F32, "float64": _host.LOAD_F64, "float16": _host.LOAD_F16}
    how = "f", np.dtype(dtype).itemsize, acc, exactly, target[dtype], (0.0, 0.0), False
    return traced.request(*how, axes=1 << axis, strategy=row.index, as_digits=as_digits)


@pytest.mark.parametrize("name", AXIS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("exactly", [False, True])
def test_nothing_races(name, dtype, exactly):
    if name == "exact_levels" and not exactly:
        return
    axis = 0 if name.startswith("column") else 1
    arrays = [np.ones(shape, dtype) for shape in ((70, 33), (3, 200), (300, 4))]
    for array in arrays:
        array[0, 0], array[-1, -1] = 2.0**12, 2.0**-13
    if exactly:  # sums that are added up again
        rows = [hard(dtype, shape, 1) for shape in ((70, 33), (9, 200), (300, 4), (5, 400))]
        arrays += rows if axis else [np.ascontiguousarray(array.T) for array in rows]
    for array in arrays:
        if refusal(name, array):
            continue
        out, reports = np.empty(array.shape[1 - axis], dtype), []
        traced.watched(request(name, dtype, axis, exactly), array, None, out, reports)
        assert json.loads(reports[0])["races"] == [], (name, array.shape)
        want = gpureduce.sum(array, "exact", axis=axis).value
        assert exactly or np.allclose(out, want, rtol=1e-3)
        assert not exactly or out.tobytes() == want.tobytes(), (name, array.shape)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_digits_do_not_race(dtype):
    """Warps share the long sums."""
    array = np.linspace(-9, 9, 3 * 9000).astype(dtype).reshape(3, 9000)
    for axis in (0, 1):
        words, reports = np.empty((array.shape[1 - axis], 75), np.int64), []
        how = request("exact_levels", dtype, axis, True, as_digits=True)
        traced.watched(how, array, None, words, reports)
        assert json.loads(reports[0])["races"] == []
        assert np.array_equal(words, gpureduce.digits(array, axis))
