"""The benchmark: what it measures, and that it says so."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
import types

import numpy as np
import pytest

import gpureduce
import producers
from cases import on_devices
from gpureduce import _emulator
from gpureduce.bench import benchmark as bench_module
from gpureduce.bench import libraries
from gpureduce.bench.contenders.arrays import WAYS
from gpureduce.bench.progress import progress_bar
from gpureduce.core import devices, registry
from user_kernels import INDEX_BUG, TREE


class FakeArray(producers.ByDLPack):
    """A library's GPU array, on the emulator."""

    def sum(self, dtype=None):
        return self.array.sum(dtype=dtype)

    def __getitem__(self, index):
        return FakeArray(self.array[index])


@pytest.fixture
def fake_cupy(monkeypatch):
    fake, freed = types.ModuleType("cupy"), []
    pool = types.SimpleNamespace(free_all_blocks=lambda: freed.append(True))
    fake.asarray = FakeArray
    fake.get_default_memory_pool = lambda: pool
    fake.__version__ = "0.fake"
    fake.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(libraries, "_loaded", {})
    return freed


USUAL = {"strategies": ["cpu"], "sizes": [100], "device": "emulator", "repeats": 2}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"strategies": ["reduce2", "fast", "cpu", "numpy"], "sizes": [1000, 5000], "blocks": [64]},
         2 * [("kernel", "sequential", ""), ("kernel", "fast", ""), ("kernel", "cpu", ""),
              ("kernel", "numpy", "")]),
        ({"strategies": ["fast", "cpu"], "dtypes": ["float32"], "peers": ["cupy", "numpy"],
          "measure": ["kernel", "call", "host"]},
         [("kernel", "fast", ""), ("kernel", "cpu", ""), ("call", "fast", "cupy"),
          ("call", "cupy", "cupy"), ("call", "fast", "numpy"), ("call", "cpu", "numpy"),
          ("call", "numpy", "numpy"), ("host", "fast", "numpy"), ("host", "cpu", "numpy"),
          ("host", "cupy", "numpy"), ("host", "numpy", "numpy")]),
        ({"dtypes": ["bfloat16"], "peers": ["cupy"], "measure": ["host"]},
         [("host", "cpu", "numpy")]),  # CuPy has no bfloat16
        ({"strategies": ["auto", "cpu"], "measure": ["call"], "device": None},
         [("call", name, "numpy") for name in ("auto", "cpu", "numpy")]),
        ({"strategies": ["sequential", "fast", "cpu"], "blocks": [64], "accumulate": "int32",
          "measure": ["explain", "count"], "device": None},
         [("explain", "sequential", ""), ("count", "sequential", "")]),
        ({"strategies": ["cpu", "fast"], "measure": ["apart"]}, [("apart", "fast", "")]),
    ],
)  # fmt: skip
def test_what_is_measured(arguments, found, fake_cupy):
    rows = list(gpureduce.benchmark(**USUAL | arguments))
    assert [(row.measure, row.strategy, row.producer) for row in rows] == found
    for row in rows:
        assert 0 < row.low_us <= row.median_us <= row.high_us and row.repeats == 2
        assert row.nbytes == row.n * {"bfloat16": 2}.get(row.dtype, 4)
        assert row.gb_s == pytest.approx(row.nbytes / row.median_us / 1e3)
        if row.strategy == "sequential":
            assert (row.block, row.grid) == (64, -(-row.n // 64))
        emulated = row.measure in ("kernel", "apart") and row.strategy not in ("cpu", "numpy")
        assert (row.source == "emulator") == emulated and row.percent_of_peak is None
        ulps = row.error_ulps
        assert ulps is None if row.measure in ("explain", "count") else ulps < 100


@on_devices
def test_sums_apart(device, monkeypatch):
    """Something else is between any two, and its time is taken off: what is left is the sum's."""
    module = devices.module_of(devices.choose_device(device))
    measure, asked = module.measure, []

    def listen(*given):
        asked.append(given[-2])
        return measure(*given)

    monkeypatch.setattr(module, "measure", listen)
    rows = list(
        gpureduce.benchmark(
            ["fast", "exact"], [5000], ["float32"], device=device, repeats=3, offset=1,
            measure=["kernel", "apart"],
        )
    )  # fmt: skip
    assert [(r.measure, r.strategy) for r in rows] == [
        ("kernel", "fast"), ("kernel", "exact"), ("apart", "fast"), ("apart", "exact"),
    ]  # fmt: skip
    assert all(r.repeats == 3 and 0 < r.low_us <= r.median_us for r in rows)
    assert asked and asked == sorted(asked) and asked.count(True) == asked.count(False)


def test_ways_to_call(fake_cupy):
    """Each way beside the library's own sum; kernels that read no strides are left out there."""
    how = {"device": "emulator", "repeats": 1, "measure": ["call"], "ways": list(WAYS)}
    rows = list(gpureduce.benchmark(["fast", "warp_shfl"], [3000], ["float32"], **how,
                                    peers=["cupy", "numpy"]))  # fmt: skip
    found = {(r.producer, r.strategy): [] for r in rows}
    for r in rows:
        found[r.producer, r.strategy].append(r.way)
    every = list(WAYS)
    assert found.pop(("cupy", "warp_shfl")) == [way for way in every if way != "strided"]
    assert all(ways == every for ways in found.values()) and len(found) == 5
    assert fake_cupy == [True]  # its memory is freed once, after the only group
    assert all((r.error_ulps is None) == (r.way == "cast") for r in rows)
    assert all(r.error_ulps < 100 for r in rows if r.error_ulps is not None)


@pytest.mark.alone
@on_devices
def test_the_limit_only_loads(device):
    """It is measured as the sums are; arrays that start elsewhere have none."""
    how = {"device": device, "repeats": 3, "measure": ["apart"], "peers": ["load_only"]}
    fast, limit = gpureduce.benchmark(["fast"], [2**20 + 1], ["float32"], **how)
    assert (limit.strategy, limit.measure, limit.cache) == ("load_only", "apart", fast.cache)
    assert (limit.block, limit.grid, limit.error_ulps) == (None, None, None)
    assert 0 < limit.median_us < 1.05 * fast.median_us
    moved = gpureduce.benchmark(["fast"], [1000], ["float32"], offset=1, **how)
    assert [row.strategy for row in moved] == ["fast"]


def test_errors_are_counted_in_last_places():
    ulps = bench_module._error_ulps
    one = np.float32(1)
    assert ulps(np.nextafter(one, np.float32(2)), one) == 1
    assert ulps(one, one) == 0
    assert ulps(np.float64(4 + 2**-50), np.float64(4)) == 1
    assert ulps(np.float16(2048), np.float16(2046)) == 2
    assert ulps(np.int64(5), np.int64(3)) == 2
    assert ulps(np.float32("inf"), one) is None


@pytest.mark.parametrize(
    ("there", "here", "on_card"),
    [
        (["cupy", "torch", "jax"], ("numpy", "torch", "jax"), libraries.NAMES),
        ([], ("numpy",), ("cub", "load_only", "numpy")),
    ],
)
def test_peers_that_are_there(there, here, on_card, monkeypatch):
    """CuPy needs a card."""
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: name in there)
    assert libraries.installed(("all",), "emulator") == here
    monkeypatch.setattr(devices, "choose_device", lambda _: types.SimpleNamespace(backend="cuda"))
    assert libraries.installed(("all",)) == on_card


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"strategies": ["quick"]}, ValueError, "no strategy"),
        ({"accumulate": "float32"}, TypeError, "without a cast"),
        ({"strategies": ["cub"]}, gpureduce.CudaError, "cub needs an NVIDIA GPU"),
        ({"strategies": ["cub"], "measure": ["host"]}, gpureduce.CudaError, "cub needs"),
        ({"peers": ["cub"]}, gpureduce.CudaError, "cub needs an NVIDIA GPU"),
        ({"peers": ["torch"]}, ValueError, "torch is not installed"),
        ({"peers": ["tensorflow"]}, ValueError, "no peer 'tensorflow'; there are cub, load_only"),
        ({"measure": ["call"], "ways": ["slow"]}, ValueError, "ways must be one of default"),
        ({"measure": ["all"]}, ValueError, "measure must be one of kernel, apart, call, host"),
        ({"measure": ["apart"]}, ValueError, "kernels one by one, and cpu launches none"),
        *(({name: value}, TypeError, f"{name} must be a list, such as [") for name, value in (
            ("ways", "default"), ("strategies", "cpu"), ("dtypes", "int32"), ("peers", "numpy"),
            ("sizes", 100))),
        # Numbers are checked before C cuts them down.
        *(({"strategies": ["fast"], "device": device, name: value}, ValueError, words)
          for device in ("emulator", None) for name, value, words in (
            ("blocks", [64, -1], "block must be a multiple of 32 from 32 to 1024, not -1"),
            ("blocks", [10**20], f"block must be a multiple of 32 from 32 to 1024, not {10**20}"),
            ("grids", [-1], "grid must be from 1 to 2**31 - 1, not -1"),
            ("repeats", 0, "repeats must be from 1 to 2**31 - 1, not 0"),
            ("repeats", 2**32 + 1, "repeats must be from 1 to 2**31 - 1, not 4294967297"),
            ("sizes", [0], "sizes must be from 1 to 2**63 - 1, not 0"),
            ("offset", 10**20, f"offset must be from 0 to 2**31 - 1, not {10**20}"),
            ("offset", -1, "offset must be from 0 to 2**31 - 1, not -1"))),
    ],
)  # fmt: skip
def test_errors(arguments, error, words, monkeypatch):
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(error, match=re.escape(words)):
        list(gpureduce.benchmark(**USUAL | arguments))


def test_progress(capsys):
    said = []
    rows = gpureduce.benchmark(
        ["cpu"], [10, 20], ["int8"], repeats=1, progress=lambda *what: said.append(what)
    )
    list(rows)
    assert said == [(0, 2, "kernel int8 10"), (1, 2, "kernel int8 20"), (2, 2, "")]
    for what in said:
        progress_bar(*what)
    bar = capsys.readouterr().err
    assert "[............" in bar and "1/2 kernel int8 20" in bar and bar.endswith("\r")


@pytest.mark.gpu
def test_on_the_card():
    rows = list(gpureduce.benchmark(["cub", "fast"], [2**20], ["float32"], device="cuda"))
    assert all(r.source == "cuda_event" and r.cache == "cold" for r in rows)
    assert all(0 < r.percent_of_peak < 100 for r in rows)


def test_auto_is_measured_as_the_strategy_that_it_chooses(monkeypatch):
    """The exact sum of floats, and of integers, which need none, what `fast` chooses."""
    asked = []
    measure = _emulator.measure

    def spy(*arguments):
        asked.append(arguments[1].strategy)
        return measure(*arguments)

    monkeypatch.setattr(_emulator, "measure", spy)
    for dtype in ("float32", "int32"):
        list(gpureduce.benchmark(["auto"], [1000], [dtype], device="emulator", repeats=1))
    assert set(asked) == {registry.find("exact").index, -1}


@pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
def test_a_kernel_of_yours_beside_others():
    own, named = gpureduce.kernel(TREE), gpureduce.kernel(gpureduce.source("sequential").text)
    rows = list(
        gpureduce.benchmark(
            ["sequential", own, named], [1000], ["int32"], repeats=2, device="emulator",
            blocks=[64, 256],
            measure=["kernel", "apart", "host", "call", "count"],
        )
    )  # fmt: skip
    found = {(row.measure, row.strategy) for row in rows}
    names = ("sequential", "my_rung", "sequential (yours)")
    for measure in ("kernel", "apart", "host", "call", "count"):
        assert {(measure, name) for name in names} <= found
    for row in rows:
        assert (row.median_us > 0 and "emulator" in row.device) or row.strategy == "numpy"
        if row.measure in ("kernel", "apart"):
            assert row.source == "emulator" and row.error_ulps == 0 and row.block in (64, 256)
    pytest.importorskip("matplotlib")
    from gpureduce import plot

    plot.times([row for row in rows if row.measure == "kernel"])
    with pytest.raises(ValueError, match="cannot share a chart"):
        plot.times([rows[0], dataclasses.replace(rows[1], source="cuda_event")])


@pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
def test_a_wrong_kernel_of_yours_shows():
    (row,) = gpureduce.benchmark(
        [gpureduce.kernel(INDEX_BUG)], [1000], repeats=1, accumulate="int32", device="emulator"
    )
    assert row.error_ulps > 0
    with pytest.raises(TypeError, match="pass an array of int32 or uint32"):
        list(gpureduce.benchmark([gpureduce.kernel(INDEX_BUG)], [1000], device="emulator"))
