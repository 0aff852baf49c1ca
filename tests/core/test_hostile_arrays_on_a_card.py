"""Producers of arrays on a card that lie, fault or leave a launch to fail."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import gpureduce
from cases import SUPPORT


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


class OnCard:
    """An array on a card whose producer may lie."""

    def __init__(self, tensor, **changes):
        self.tensor, self.changes = tensor, changes

    @property
    def __cuda_array_interface__(self):
        return {**self.tensor.__cuda_array_interface__, **self.changes}


@pytest.mark.gpu
@pytest.mark.parametrize("timing", [True, False])
@pytest.mark.parametrize("strategy", ["fast", "exact", "cascade", "cub"])
def test_a_card_reads_only_memory_that_is_there(torch, strategy, timing):
    tensor = torch.ones(1024, device="cuda")
    address = tensor.data_ptr()
    for changes in (
        {"shape": (2**36,)},
        {"shape": (2**40, 2), "strides": (0, 2**40)},
        {"data": (address, True), "shape": (2,), "strides": (-(2**40),)},
        {"data": (address + 2**45, True)},
        {"data": (4096, True)},
    ):
        with pytest.raises((BufferError, ValueError), match=r"not all memory|does not lie"):
            gpureduce.sum(OnCard(tensor, **changes), strategy, timing=timing)
        assert float(gpureduce.sum(tensor, strategy, timing=timing).value) == 1024
    repeated = OnCard(tensor, shape=(1000, 1024), strides=(0, 4))
    assert float(gpureduce.sum(repeated, "fast", timing=timing).value) == 1024 * 1000


def run_on_card(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments], capture_output=True, text=True, timeout=200,
        env={**os.environ, **environment},
    )  # fmt: skip


SEGMENTS = """
import torch, gpureduce
tensors = [torch.ones(n << 20, device="cuda") for n in (1, 3, 40, 200)]
for t in tensors:
    assert float(gpureduce.sum(t, "fast").value) == t.numel()
"""


@pytest.mark.gpu
def test_memory_that_is_mapped_in_segments(torch):
    for settings in ("expandable_segments:True", "backend:cudaMallocAsync", ""):
        done = run_on_card(SEGMENTS, PYTORCH_CUDA_ALLOC_CONF=settings)
        assert done.returncode == 0, done.stderr


FAULT = """
import os, sys
import numpy as np, torch, gpureduce
sys.path.insert(0, sys.argv[3])
from producers import ByDLPack
tensor = torch.ones(2**28, device="cuda")
address = tensor.data_ptr()

class Stale(ByDLPack):
    def __dlpack__(self, **words):
        capsule = super().__dlpack__(**words)
        self.managed.tensor.data, self.shape[0] = address, 2**28
        return capsule

stale = Stale(np.ones(1, np.float32))
assert float(gpureduce.sum(stale, "fast").value) == 2**28
del tensor
torch.cuda.empty_cache()
for timing in (sys.argv[2] == "timed", sys.argv[2] != "timed"):
    try:
        print(gpureduce.sum(stale, sys.argv[1], timing=timing), flush=True)
    except gpureduce.CudaError as error:
        print(repr(error), flush=True)
os._exit(0)  # other libraries end the process otherwise, as the context is lost
"""


@pytest.mark.gpu
@pytest.mark.parametrize("timing", ["timed", "untimed"])
@pytest.mark.parametrize("strategy", ["fast", "exact", "sequential"])
def test_a_kernel_that_faults_names_the_array(torch, strategy, timing):
    """Memory was freed behind a producer's back, after it had been found to be there."""
    done = run_on_card(FAULT, strategy, timing, str(SUPPORT))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "restart the process" in first and "268435456 elements of 4 bytes" in first, first
    assert "CudaError" in second, second


REFUSED = """
import sys, torch, gpureduce
tensor, strategy = torch.ones(2**20, device="cuda"), sys.argv[1]
assert float(gpureduce.sum(tensor, strategy, timing=False).value) == 2**20
graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
failed = []
with torch.cuda.stream(stream):
    graph.capture_begin(capture_error_mode="relaxed")
    for timing in (True, False):
        try:
            gpureduce.sum(tensor, strategy, timing=timing)
        except RuntimeError as error:
            failed.append(error)
    tensor.add_(0)
    graph.capture_end()
assert len(failed) == 2
for timing in (True, False, True):
    assert float(gpureduce.sum(tensor, strategy, timing=timing).value) == 2**20
try:
    gpureduce.sum(tensor, strategy, block=33)
except ValueError:
    print("right:", float(gpureduce.sum(tensor, strategy, timing=False).value))
"""


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["fast", "exact", "last_block", "tiles", "bulk_copy"])
def test_sums_after_a_refusal_during_a_capture(torch, strategy):
    """A stream that is being captured cannot be waited for."""
    done = run_on_card(REFUSED, strategy)
    assert done.stdout == "right: 1048576.0\n", done.stderr


@pytest.mark.gpu
def test_an_array_on_another_card_than_asked_for(torch):
    tensor = torch.ones(10, device="cuda:0")
    assert gpureduce.sum(tensor, "fast", device="cuda:0").value == 10
    with pytest.raises(TypeError, match="lies on a GPU"):
        gpureduce.sum(tensor, device="cpu")
    with pytest.raises(BufferError, match="the emulator can read"):
        gpureduce.sum(tensor, "fast", device="emulator")


@pytest.mark.gpu
def test_tensors_without_elements_to_read(torch):
    for tensor in (
        torch.ones(3, 3).to_sparse(),
        torch.ones(3, 3, device="cuda").to_sparse(),
        torch.ones(3, device="meta"),
    ):
        with pytest.raises((TypeError, BufferError, RuntimeError)) as caught:
            gpureduce.sum(tensor)
        assert len(str(caught.value).splitlines()) == 1, caught.value
    halves = torch.arange(100).to(torch.bfloat16)
    assert float(gpureduce.sum(halves).value) == float(halves.double().sum().bfloat16())
