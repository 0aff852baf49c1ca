"""The call itself: result, timing, threads, leaks, the lists."""

from __future__ import annotations

import concurrent.futures
import importlib.metadata

import numpy as np
import pytest

import gpureduce
from cases import KERNELS, array_of, on_devices
from gpureduce.core import registry

A = np.arange(100_000, dtype=np.int32)
TOTAL = int(A.sum())


@pytest.mark.parametrize("strategy", [*KERNELS, "cpu", "numpy", "auto", "fast"])
def test_timing_adds_up(strategy):
    timing = gpureduce.sum(A, strategy, dtype="int32").timing
    parts = timing.kernel_ms + timing.h2d_ms + timing.d2h_ms
    assert 0 < timing.kernel_ms <= parts <= timing.total_ms
    assert timing.nbytes == A.nbytes
    assert timing.gb_s == pytest.approx(A.nbytes / timing.kernel_ms / 1e6)
    if strategy in KERNELS:
        assert timing.strategy == strategy
        assert timing.block == 256 and timing.grid >= 1 and timing.launches >= 1


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", [*KERNELS, "cub", "fast"])
@pytest.mark.alone
def test_timing_on_the_card(strategy):
    timing = gpureduce.sum(A, strategy, dtype="int32", device="cuda").timing
    assert timing.source == "cuda_event" and timing.backend == "cuda"
    assert timing.kernel_ms + timing.h2d_ms + timing.d2h_ms <= timing.total_ms
    assert 0 < timing.percent_of_peak < 100


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", list(registry.DTYPES))
def test_cub(dtype, count_sum):
    for n in (1, 1000, 2**20 + 1):
        array = array_of(dtype, n)
        result = gpureduce.sum(array, "cub")
        expected = np.sum(array)
        if expected.dtype.kind in "iu":
            assert int(result.value) == int(expected)
        else:
            assert float(result.value) == pytest.approx(float(np.sum(array, dtype=float)), rel=1e-2)
        count_sum("cub", dtype)


@on_devices
def test_threads_at_once(device):
    jobs = [(s, 1000 * k + 17) for s in KERNELS for k in range(1, 6)]

    def one(job):
        strategy, n = job
        return int(gpureduce.sum(A[:n], strategy, dtype="int32", device=device).value)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(one, jobs))
    assert got == [int(A[:n].sum(dtype=np.int32)) for _, n in jobs]


@pytest.mark.gpu
@pytest.mark.alone
def test_no_device_memory_leaks():
    cupy = pytest.importorskip("cupy")
    for strategy in KERNELS:
        gpureduce.sum(A, strategy, dtype="int32", device="cuda")
    before = cupy.cuda.runtime.memGetInfo()[0]
    for strategy in KERNELS * 3:
        gpureduce.sum(A, strategy, dtype="int32", device="cuda")
    assert cupy.cuda.runtime.memGetInfo()[0] == before


def test_lists():
    rows = gpureduce.strategies()
    kinds = {
        "kernel",
        "broken",
        "library",
        "host",
        "everywhere",
        "choice",
        "keys",
        "scan",
    }
    assert {s.kind for s in rows} == kinds
    assert {s.kind for s in gpureduce.strategies(internal=True)} == {"axis", "segments"}
    assert not next(s for s in rows if s.name == "atomic_block").deterministic
    assert gpureduce.devices()[-1].id == "emulator"
    info = gpureduce.build_info()
    assert info["version"] == gpureduce.__version__ and "emulator" in info["devices"]
    assert gpureduce.__version__ == importlib.metadata.version("gpureduce")
    assert bool(info["why"]) == (gpureduce.devices()[0].backend == "emulator")
