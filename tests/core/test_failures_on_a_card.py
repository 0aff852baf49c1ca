"""On a card: launches, streams and producers that fail leave the next call right; faults are named.

First without another library: what is not gpureduce's own is asked of the driver.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

import gpureduce
from cases import SUPPORT
from user_kernels import plain

pytestmark = pytest.mark.gpu

# One thread adds up. It may have 64 threads at most.
NARROW = plain(
    "if (threadIdx.x + blockIdx.x == 0) {\n"
    "    float sum = 0;\n"
    "    for (size_t i = 0; i < n; i++) sum += in[i];\n"
    "    out[0] = sum;\n"
    "}"
).replace("void f", "void __launch_bounds__(64) f")

# Arrays on the card by the driver alone, and all kinds of calls that use it.
HELPERS = """
import ctypes, os, sys
import numpy as np, gpureduce
from gpureduce.core import device_array, devices

cuda = ctypes.CDLL("libcuda.so.1")
module = devices.load_cuda()
assert not isinstance(module, str), module

def on_card(array):
    found = device_array.empty(module, array.shape, array.dtype.name, 0, 1)
    address = ctypes.c_uint64(found.__cuda_array_interface__["data"][0])
    assert cuda.cuMemcpyHtoD_v2(address, ctypes.c_void_p(array.ctypes.data),
                                ctypes.c_size_t(array.nbytes)) == 0
    return found

n = 1 << 16
ones = np.ones(n, np.float32)
assert gpureduce.sum(ones, "fast", device="cuda").value == n  # makes the context current
card, rows, ids = on_card(ones), on_card(ones.reshape(256, -1)), on_card(np.arange(n) % 5)
want = np.bincount(np.arange(n) % 5)

def read(result):
    value = getattr(result, "value", result)
    return value.to_numpy() if hasattr(value, "to_numpy") else np.asarray(value)

CALLS = {
    "host": lambda **k: (gpureduce.sum(ones, "exact", device="cuda"), n),
    "untimed": lambda **k: (gpureduce.sum(ones, "last_block", device="cuda", timing=False), n),
    "whole": lambda **k: (gpureduce.sum(card, "exact", **k), n),
    "fast": lambda **k: (gpureduce.sum(card, "fast", timing=False, **k), n),
    "tree": lambda **k: (gpureduce.sum(card, "sequential", **k), n),
    "axis": lambda **k: (gpureduce.sum(rows, axis=0, **k), np.full(256, 256)),
    "levels": lambda **k: (gpureduce.sum(rows, "exact_levels", axis=1, **k), np.full(256, 256)),
    "segments": lambda **k: (gpureduce.segment_sum(card, ids, num_segments=5, **k), want),
    "unchecked": lambda **k: (
        gpureduce.segment_sum(card, ids, num_segments=5, check=False, **k), want),
    "digits": lambda **k: (
        gpureduce.from_digits(read(gpureduce.segment_digits(card, ids, num_segments=5, **k))),
        want),
    "host rows": lambda **k: (
        gpureduce.sum(ones.reshape(256, -1), axis=0, device="cuda"), np.full(256, 256)),
}

def check_all():
    for name, call in CALLS.items():
        result, right = call()
        assert np.array_equal(read(result), right), name
"""

# What a captured stream may not do invalidates the capture: every launch on it then fails.
FAILED_STREAM = (
    HELPERS
    + """
check_all()
for _ in range(3):
    stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    relaxed = 2  # which lets this thread allocate
    assert cuda.cuStreamBeginCapture_v2(stream, relaxed) == 0
    assert cuda.cuStreamSynchronize(stream) != 0
    failed = []
    for name in ("whole", "fast", "tree", "axis", "levels", "segments", "unchecked", "digits"):
        try:
            CALLS[name](stream=stream.value)
        except (RuntimeError, ValueError) as error:
            assert "aptur" in str(error) and "restart" not in str(error), (name, error)
            failed.append(name)
        assert np.array_equal(read(CALLS["host"]()[0]), n)
    assert len(failed) == 8, failed
    cuda.cuStreamEndCapture(stream, ctypes.byref(graph))
    check_all()
    assert cuda.cuStreamDestroy_v2(stream) == 0
check_all()
print("right")
"""
)

FAULT = (
    HELPERS
    + """
check_all()
pending, sums = gpureduce.sum(rows, axis=0), gpureduce.segment_sum(card, ids, num_segments=5)
other = on_card(ones)  # no call has read it so far
kernel = gpureduce.kernel(sys.argv[1])
said = []

def tell(name, call):
    try:
        call()
    except gpureduce.CudaError as error:
        assert "restart the process" in str(error), (name, error)
        said.append(name)
    else:
        raise AssertionError(f"{name} did not fail")

tell("the fault", lambda: gpureduce.sum(ones[:9], kernel, device="cuda"))
for _ in range(2):
    for name, call in CALLS.items():
        tell(name, call)
    tell("a result that was not waited for", lambda: read(pending))
    tell("another one", lambda: read(sums))
    tell("an array that is new", lambda: gpureduce.sum(other, "fast"))
    tell("a new array", lambda: device_array.empty(module, (9,), "float32", 0, 1))
assert gpureduce.sum(ones).value == n and gpureduce.sum(ones, "tiles", device="emulator").value == n
print(len(said), flush=True)
os._exit(0)  # the context is lost
"""
)

# A kernel that another library launches, which writes to address 8. No call of ours waits for it.
UNAWAITED = (
    HELPERS
    + """
text = b".version 7.0 .target sm_75 .address_size 64 .visible .entry f() { .reg .u64 a; "
text += b".reg .u32 b; mov.u64 a, 8; mov.u32 b, 1; st.global.u32 [a], b; ret; }"
loaded, kernel = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuModuleLoadData(ctypes.byref(loaded), text) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), loaded, b"f") == 0
assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
said = []
for name in ("axis", "host", "segments", "whole"):
    try:
        read(CALLS[name]()[0])
    except gpureduce.CudaError as error:
        assert "restart the process" in str(error), error
        said.append(error.name)
print(len(said), *said, flush=True)
os._exit(0)
"""
)


def run_on_card(code: str, *arguments: str, **environment: str) -> str:
    path = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments], capture_output=True, text=True, timeout=200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("timing", [True, False])
def test_sums_after_a_launch_that_fails(timing):
    """More threads per block than a kernel may have: the driver refuses the launch."""
    kernel, ones = gpureduce.kernel(NARROW), np.ones(5000, np.float32)
    assert gpureduce.sum(ones, kernel, block=64, device="cuda").value == 5000
    for block in (256, 1024):
        with pytest.raises(gpureduce.CudaError) as caught:
            gpureduce.sum(ones, kernel, block=block, device="cuda", timing=timing)
        assert caught.value.name.startswith("cudaError") and "launch.c" in str(caught.value)
        assert "restart" not in str(caught.value)
        for strategy in ("exact", "last_block", "tiles", "sequential", "fast"):
            assert gpureduce.sum(ones, strategy, device="cuda", timing=timing).value == 5000
        assert gpureduce.sum(ones, kernel, block=64, device="cuda").value == 5000


def test_sums_after_a_stream_that_failed():
    assert run_on_card(FAILED_STREAM) == "right\n"


@pytest.mark.parametrize("body", ["*(volatile int *)8 = 1; out[0] = 1;", "__trap();"])
def test_every_call_after_a_fault_says_that_the_process_must_be_restarted(body):
    assert int(run_on_card(FAULT, plain(body))) == 1 + 2 * (11 + 4)


def test_a_fault_of_a_kernel_that_no_call_waits_for():
    said = run_on_card(UNAWAITED).split()
    assert int(said[0]) == len(said) - 1 == 4, said


@pytest.mark.several_gpus
def test_a_stream_of_another_card():
    """Kernels launched on it would read the array over NVLink, or fault: the driver refuses."""
    cuda, stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    ones = np.ones(5000, np.float32)
    assert gpureduce.sum(ones, "fast", device="cuda:1").value == 5000
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    torch = pytest.importorskip("torch")
    tensor = torch.ones(5000, device="cuda:0")
    for how in ({}, {"axis": 0, "result": "device"}):
        with pytest.raises((gpureduce.CudaError, ValueError)) as caught:
            gpureduce.sum(tensor, "exact", stream=stream.value, **how)
        assert "restart" not in str(caught.value)
        assert float(gpureduce.sum(tensor, "exact").value) == 5000


# --- producers of arrays of PyTorch that lie, fault or leave a launch to fail --------------------


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
        with pytest.raises(
            (BufferError, ValueError), match=r"cannot read all of this memory|is not on"
        ):
            gpureduce.sum(OnCard(tensor, **changes), strategy, timing=timing)
        assert float(gpureduce.sum(tensor, strategy, timing=timing).value) == 1024
    repeated = OnCard(tensor, shape=(1000, 1024), strides=(0, 4))
    assert float(gpureduce.sum(repeated, "fast", timing=timing).value) == 1024 * 1000


SEGMENTS = """
import torch, gpureduce
tensors = [torch.ones(n << 20, device="cuda") for n in (1, 3, 40, 200)]
for t in tensors:
    assert float(gpureduce.sum(t, "fast").value) == t.numel()
"""


def test_memory_that_is_mapped_in_segments(torch):
    for settings in ("expandable_segments:True", "backend:cudaMallocAsync", ""):
        run_on_card(SEGMENTS, PYTORCH_CUDA_ALLOC_CONF=settings)


STALE = """
import os, sys
import numpy as np, torch, gpureduce
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


@pytest.mark.parametrize("timing", ["timed", "untimed"])
@pytest.mark.parametrize("strategy", ["fast", "exact", "sequential"])
def test_a_kernel_that_faults_names_the_array(torch, strategy, timing):
    """Memory was freed behind a producer's back, after it had been found to be there."""
    first, second = run_on_card(STALE, strategy, timing).splitlines()
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


@pytest.mark.parametrize("strategy", ["fast", "exact", "last_block", "tiles", "bulk_copy"])
def test_sums_after_a_refusal_during_a_capture(torch, strategy):
    """A stream that is being captured cannot be waited for."""
    assert run_on_card(REFUSED, strategy) == "right: 1048576.0\n"


def test_an_array_on_another_card_than_asked_for(torch):
    tensor = torch.ones(10, device="cuda:0")
    assert gpureduce.sum(tensor, "fast", device="cuda:0").value == 10
    with pytest.raises(TypeError, match="is on a GPU"):
        gpureduce.sum(tensor, device="cpu")
    with pytest.raises(BufferError, match="the emulator cannot read"):
        gpureduce.sum(tensor, "fast", device="emulator")


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
