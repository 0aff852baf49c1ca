"""`gpureduce.cumsum`: running sums by a named strategy."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gpureduce
from gpureduce import _emulator_traced as traced
from gpureduce import _host, exact
from gpureduce.core import device_results, dtypes
from gpureduce.core.schedule import Schedule
from gpureduce.emulator import ORDERS
from producers import on_device

LESSONS = [s.name for s in gpureduce.strategies() if s.kind == "scan"]
WIDE = ["int32", "uint32", "int64", "uint64", "float32", "float64"]
# Of blocks of 256 and the usual ones: a part of one, whole ones, and more than a block of blocks.
SIZES = [1, 2, 31, 33, 255, 256, 257, 512, 2048, 2049, 70_001]


def numbers(n, dtype, seed=0):
    """Numbers whose running sums are exact in any order of additions."""
    low = 0 if dtype.startswith("u") else -9
    return np.random.default_rng(seed + n).integers(low, 10, n).astype(dtype)


def checked(found, wanted):
    assert found.value.dtype == wanted.dtype
    assert found.value.tobytes() == wanted.tobytes()


def try_lesson(name, device, sizes, dtypes, blocks):
    for dtype in dtypes:
        for n in sizes:
            x = numbers(n, dtype)
            for block in blocks:
                found = gpureduce.cumsum(x, name, device=device, block=block)
                checked(found, np.cumsum(x))
                assert found.timing.strategy == name and found.timing.block == (block or 256)


@pytest.mark.parametrize("name", LESSONS)
def test_a_rung_makes_the_sums_of_numpy(name):
    try_lesson(name, "emulator", SIZES, WIDE, [None])
    try_lesson(name, "emulator", [1, 97, 5001], ["float32"], [32, 96, 160, 512, 1024])
    for order in ORDERS:
        with gpureduce.emulator.schedule(order, seed=5 if order in ("random", "lockstep") else 0):
            try_lesson(name, "emulator", [5001], ["int64", "float64"], [32, 256])


def test_launches_and_blocks_of_the_rungs():
    x = numbers(70_001, "float64")
    launches = {name: gpureduce.cumsum(x, name, device="emulator").timing.launches
                for name in LESSONS}  # fmt: skip
    # 274 or 137 blocks of 256 or 512: their sums take another launch or two, and so do additions.
    assert launches == {
        "scan_hillis_steele": 5, "scan_blelloch": 3, "scan_blelloch_padded": 3, "scan_warp": 5,
        "scan_three_launches": 3, "scan_look_back": 1,
    }  # fmt: skip
    for grid in (1, 3, 300):
        found = gpureduce.cumsum(x, "scan_three_launches", device="emulator", grid=grid)
        checked(found, np.cumsum(x))
        assert found.timing.grid == grid


@pytest.mark.parametrize("name", ["scan_warp", "scan_look_back", "exact", "fast"])
def test_views_and_options(name):
    x = numbers(600, "int16").reshape(20, 30)
    for array in (x, x[::2, ::-3], x.T, np.asfortranarray(x), x.astype(">i4"), x[:0]):
        for more in ({}, {"reverse": True}, {"include_initial": True}):
            for axis in (None, *([0, 1] if name in ("exact", "fast") else [])):
                found = gpureduce.cumsum(array, name, axis=axis, device="emulator", **more)
                assert np.array_equal(found.value, exact.cumsum(array, axis, **more))
    out = np.full((2, 601), 7.5)
    same = gpureduce.cumsum(x, name, out=out[1, ::-1][:600], dtype="float64", device="emulator")
    assert np.shares_memory(same.value, out)
    assert same.value.tolist() == np.cumsum(x).tolist() and (out[0] == 7.5).all()


def test_strategies_for_all_dtypes():
    x = np.random.default_rng(1).standard_normal((50, 9)).astype(np.float32)
    for device in (None, "cpu", "emulator"):
        for name in ("auto", "exact"):
            found = gpureduce.cumsum(x, name, axis=0, device=device)
            checked(found, exact.cumsum(x, 0))
            assert found.timing.strategy == "exact" and found.timing.n == 450
        fast = gpureduce.cumsum(x, "fast", axis=1, device=device)
        assert np.allclose(fast.value, exact.cumsum(x, 1), atol=1e-4)
    checked(gpureduce.cumsum(x, "numpy", axis=1), np.cumsum(x, 1))
    assert gpureduce.cumsum(x, "fast").timing.strategy == "numpy"
    assert gpureduce.cumsum(x, timing=False).timing is None
    whole = gpureduce.cumsum(x.astype(complex), axis=1, device="emulator")
    checked(whole, exact.cumsum(x.astype(complex), 1))
    assert gpureduce.cumsum([True, True], "cpu").value.tolist() == [1, 2]
    halves = np.full(3000, 0.1, np.float16)
    checked(gpureduce.cumsum(halves, device="emulator"), exact.cumsum(halves))


def test_plain_floats_have_the_same_bits_in_every_order():
    x = np.random.default_rng(2).standard_normal(300_000).astype(np.float32)
    found = set()
    for order in ORDERS:
        with gpureduce.emulator.schedule(order):
            found.add(gpureduce.cumsum(x, "fast", device="emulator").value.tobytes())
    assert len(found) == 1


@pytest.mark.parametrize(
    ("error", "match", "how"),
    [
        (ValueError, "sequential cannot make running sums", {"strategy": "sequential"}),
        (ValueError, "no strategy 'scan_wrap'.*scan_warp", {"strategy": "scan_wrap"}),
        (TypeError, "must be the name of a strategy, not 3", {"strategy": 3}),
        (ValueError, "one-dimensional arrays only: leave axis out", {"axis": 1}),
        (ValueError, "chooses its grid from the array's size", {"grid": 3, "out": None}),
        (TypeError, "scan_warp takes int32, .*, not float16", {"dtype": "float16"}),
        (TypeError, "cannot add complex", {"dtype": "complex64"}),
        (ValueError, "is a GPU kernel", {"device": "cpu"}),
        (ValueError, "block must be", {"block": 33}),
        (ValueError, "exact chooses its own block and grid", {"strategy": "exact", "block": 64}),
        (ValueError, "stream is for arrays on a GPU", {"stream": 0}),
        (ValueError, "axis", {"strategy": "auto", "axis": 2}),
    ],
)  # fmt: skip
def test_errors(error, match, how):
    out = np.full((3, 4), 7.0)
    with pytest.raises(error, match=match):
        gpureduce.cumsum(np.ones((3, 4)), **{"strategy": "scan_warp", "out": out} | how)
    assert (out == 7.0).all()
    assert gpureduce.cumsum([1.0, 2.0], "scan_warp", device="emulator").value.tolist() == [1, 3]


@pytest.mark.parametrize("name", ["scan_warp", "exact", "fast"])
def test_an_error_leaves_out_as_it_was(name):
    out = np.full(200_001, 7.0)
    with gpureduce.emulator.memory_limit(2**20), pytest.raises(MemoryError):
        gpureduce.cumsum(out[1:] * 1, name, device="emulator", out=out, include_initial=True)
    assert (out == 7.0).all()


def test_other_functions_send_to_cumsum():
    with pytest.raises(ValueError, match=r"call gpureduce.cumsum\(arr, strategy=.scan_warp"):
        gpureduce.sum([1.0], "scan_warp")
    with pytest.raises(ValueError, match="scan_warp cannot make segment sums"):
        gpureduce.segment_sum([1.0], [0], strategy="scan_warp")


@pytest.mark.parametrize("name", LESSONS)
def test_nothing_races_in_any_order(name):
    for n, block in ((700, 64), (70, 96), (8199, 256)):
        found = gpureduce.races(name, n, "float32", block=block)
        assert not found and not found.wrong, str(found)


@pytest.mark.parametrize("is_hard", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((6000,), 0), ((90, 40), 0), ((3, 2100), 1)])
def test_nothing_races_in_running_sums_along_an_axis(shape, axis, is_hard):
    x = np.ones(shape, np.float32)
    if is_hard:  # 1 + 2^-24 lies halfway between two floats, and 2^-80 decides
        x = np.resize(np.array([1, 2.0**-24, 2.0**-80, -1, -(2.0**-24)], np.float32), shape)
    how = dtypes.convert(x.dtype, None, True, _host.SENT_TO_GPU, _host.AXES)
    for order in ("forward", "random"):
        request = device_results.request_of(
            traced, ("f", 4), how, _host.LOAD_F32, False, 0, {"axes": 1 << axis, "running": 1}
        )
        schedule, entries, reports = Schedule(order, 3), np.empty(shape, np.float32), []
        traced.watched(request, x, None, entries, 0, schedule.number, schedule.seed, reports)
        assert json.loads(reports[0])["races"] == []
        assert entries.tobytes() == exact.cumsum(x, axis).tobytes()


def test_each_rung_mends_what_the_one_before_wasted():
    rungs = [gpureduce.explain(name, n=2**14) for name in LESSONS]
    steele, blelloch, padded, warp, three, back = (one.counters for one in rungs)
    assert blelloch["shared_load_lanes"] < 0.8 * steele["shared_load_lanes"]
    assert padded["shared_load_conflicts"] < 0.1 * blelloch["shared_load_conflicts"]
    assert warp["block_barriers"] < 0.3 * padded["block_barriers"]
    assert three["global_store_sectors"] < 0.6 * warp["global_store_sectors"]
    assert back["global_load_sectors"] < 0.6 * three["global_load_sectors"]
    traffic = back["global_load_sectors"] + back["global_store_sectors"]
    assert traffic < 1.03 * 2 * 2**14 * 4 / 32  # that of a copy
    both = gpureduce.explain("scan_blelloch", "scan_blelloch_padded", n=4096)
    assert both.fell[0].name == "shared_load_conflicts"
    with pytest.raises(ValueError, match="n must be"):
        gpureduce.explain("scan_warp", n=2**23)


def test_a_replay_knows_what_each_entry_contains():
    shown = gpureduce.replay("scan_look_back", 600, block=32)
    assert shown.is_right and shown.unknown is None and len(shown.launches) == 1
    last = {}
    for step in shown.steps:
        if step.kind == "store" and shown.arrays[step.array].name == "out":
            for at, part in zip(step.offsets, step.parts, strict=True):
                last[at // 4] = shown.parts[part]
    assert sorted(last) == list(range(600))
    assert all(last[i].once == (1 << (i + 1)) - 1 and not last[i].twice for i in last)


def there(x, name, **how):
    """By a rung, of an array that lies on the emulator."""
    return gpureduce.cumsum(on_device(x), name, device="emulator", axis=0, **how)


@pytest.mark.parametrize("dtype", WIDE)
def test_a_rung_takes_arrays_on_a_device(dtype):
    x = numbers(3000, dtype)
    for name in LESSONS:
        found = there(x, name, dtype=dtype, block=64)
        assert np.array_equal(found.value.to_numpy(), np.cumsum(x, dtype=dtype))
        assert found.timing.strategy == name and found.timing.block == 64


@pytest.mark.parametrize(
    ("error", "match", "x", "how"),
    [
        (TypeError, "reads only contiguous arrays, without a cast", np.ones(9, np.int32), {}),
        (TypeError, "reads only contiguous arrays, without a cast", np.ones(9)[::2], {}),
        (TypeError, "reads only contiguous arrays", np.ones(9), {"dtype": "float32"}),
        (ValueError, "one-dimensional arrays", np.ones((3, 3)), {}),
        (ValueError, "does not support reverse", np.ones(9), {"reverse": True}),
        (ValueError, "does not support reverse", np.ones(9), {"include_initial": True}),
        (ValueError, "leave grid out", np.ones(9), {"grid": 2}),
        (TypeError, "not float16", np.ones(9, np.float16), {}),
    ],
)  # fmt: skip
def test_arrays_on_a_device_that_a_rung_refuses(error, match, x, how):
    with pytest.raises(error, match=match):
        there(x, "scan_warp", **how)
    assert there(np.ones(3), "scan_warp").value.to_numpy().tolist() == [1, 2, 3]


@pytest.mark.gpu
@pytest.mark.sanitizer
@pytest.mark.parametrize("name", LESSONS)
def test_a_rung_on_the_card(name):
    try_lesson(name, "cuda", SIZES, WIDE, [None])
    try_lesson(name, "cuda", [1, 97, 5001], ["float32"], [32, 96, 160, 512, 1024])


@pytest.mark.gpu
@pytest.mark.parametrize("name", LESSONS)
def test_a_rung_with_many_elements_on_the_card(name):
    x = np.ones((1 << 25) + 12345, np.int32)
    found = gpureduce.cumsum(x, name, device="cuda", dtype="int32")
    assert np.array_equal(found.value, np.arange(1, x.size + 1, dtype=np.int32))


@pytest.mark.gpu
def test_strategies_and_timing_on_the_card():
    cupy = pytest.importorskip("cupy")
    x = np.random.default_rng(3).standard_normal((300, 70)).astype(np.float32)
    for axis in (None, 0, 1):
        found = gpureduce.cumsum(cupy.asarray(x), axis=axis)
        assert found.value.get().tobytes() == exact.cumsum(x, axis).tobytes()
        assert found.timing.strategy == "exact" and found.timing.kernel_ms > 0
        fast = [gpureduce.cumsum(cupy.asarray(x), "fast", axis=axis).value.get() for _ in range(9)]
        assert len({one.tobytes() for one in fast}) == 1
        assert np.allclose(fast[0], exact.cumsum(x, axis), atol=1e-3)
    flat = cupy.asarray(x).reshape(-1)
    for name in LESSONS:
        found = gpureduce.cumsum(flat, name)
        assert np.allclose(found.value.get(), exact.cumsum(x), atol=1e-2)
        assert found.timing.kernel_ms > 0
