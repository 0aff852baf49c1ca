"""Bad input gets a clear error that says what would be right, and the next call works."""

from __future__ import annotations

import datetime
import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import gpureduce
from cases import BROKEN, KERNELS, ROOT, array_of, check, numpy_dtype, run_python
from exact_cases import FLOATS
from gpureduce import _host
from gpureduce.core import devices as _backends

A = np.arange(1000, dtype=np.int32)


@pytest.fixture(autouse=True)
def next_call_works():
    yield
    for strategy in ("sequential", "cpu"):
        assert int(gpureduce.sum(A, strategy).value) == 499500


REFUSED = [
    ("quick", {}, ValueError, r"no strategy 'quick'; there are global_tree, .*cpu"),
    (7, {}, TypeError, "must be the name"),
    (["cpu"], {}, TypeError, "must be the name"),
    ("sequential", {"grid": 3}, ValueError, "need grid=4 or more, not 3"),
    ("cascade", {"grid": 0}, ValueError, "grid must be from 1 to"),
    ("cluster", {"grid": 3}, ValueError, "multiple of 8"),
    ("grid_sync", {"grid": 10**6}, ValueError, "on the GPU at once"),
    ("sequential", {"finish": "later"}, ValueError, "one of host, relaunch, single"),
    ("sequential", {"finish": "single"}, ValueError, "sequential cannot use finish='single'"),
    ("last_block", {"finish": "host"}, ValueError, "last_block cannot use finish='host'"),
    ("warp_shlf", {}, ValueError, "'warp_shlf': did you mean warp_shfl.* There are global_tree, "),
    ("Reduce5", {}, ValueError, "'Reduce5': did you mean reduce5"),
    ("xyzzy", {}, ValueError, "'xyzzy'; there are global_tree, .*; "
     "by segment: key_atomic, .*; wrong on purpose: global_race, [a-z_, ]+$"),
    ("cascade", {"where": A > 0}, ValueError, "initial, where or out: use one of auto"),
    ("auto", {"dtype": "xyzzy"}, TypeError, "no dtype 'xyzzy'; there are bool, .*complex128"),
    ("redux", {"dtype": float}, TypeError, "redux sums 32-bit integers"),
    ("redux", {}, TypeError, "redux sums 32-bit integers"),  # int32 adds up in int64 by default
    ("sequential", {"dtype": complex}, TypeError, "fast, exact, cpu, numpy, auto can$"),
    ("cpu", {"device": "emulator"}, ValueError, "cpu runs on the CPU"),
    ("sequential", {"device": "cpu"}, ValueError, "sequential is a GPU kernel"),
    ("auto", {"stream": 1}, ValueError, "stream is for arrays on a GPU"),
    *((name, {"block": 64}, ValueError, "leave block out")
      for name in ("cpu", "numpy", "cub", "auto", "fast")),
    *((name, {}, ValueError, r"wrong on purpose.*allow_broken=True") for name in BROKEN),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "options", "error", "words"), REFUSED)
@pytest.mark.parametrize("timing", [True, False])
def test_refused_calls(strategy, options, error, words, timing):
    with pytest.raises(error, match=words):
        gpureduce.sum(A, strategy, timing=timing, **options)


@pytest.mark.parametrize("block", [33, 2048, 0, -32, 16, 1056, 2**40])
@pytest.mark.parametrize("strategy", ["sequential", "unroll_full", "cluster"])
def test_block(strategy, block):
    with pytest.raises(
        ValueError, match=rf"block must be a multiple of 32 from 32 to 1024.*{block}"
    ):
        gpureduce.sum(A, strategy, block=block)
    with pytest.raises(ValueError, match="block"):
        gpureduce.sum(A[:0], strategy, block=block)


def test_exact_takes_no_more_blocks_than_it_can_count():
    doubles = A.astype("f8")
    with pytest.raises(ValueError, match="grid may be at most 16383, not 16384"):
        gpureduce.sum(doubles, "exact", device="emulator", block=32, grid=16384)
    with pytest.raises(ValueError, match="blocks of at most 384 threads, not 416"):
        gpureduce.sum(doubles, "exact", device="emulator", block=416)
    for grid in (3, 16383):
        found = gpureduce.sum(doubles, "exact", device="emulator", block=32, grid=grid)
        assert found.value == gpureduce.sum(doubles, "cpu").value


@pytest.mark.parametrize("device", [None, "cpu", "emulator"])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float64", "float32"])
def test_exact_takes_no_invalid_launch_of_any_dtype(dtype, device):
    """Of integers it is another strategy, which ignored a wrong block."""
    array = np.ones(5, dtype)
    for block in (7, 0, -32, 48, 1056, 2**40):
        with pytest.raises(ValueError, match=rf"block must be .* from 32 to 1024, not {block}"):
            gpureduce.sum(array, "exact", device=device, block=block)
    for grid in (0, -1, 2**40):
        with pytest.raises(ValueError, match=rf"grid must be from 1 to .*, not {grid}"):
            gpureduce.sum(array, "exact", device=device, grid=grid)
    if device != "emulator":
        with pytest.raises(ValueError, match="on the CPU, exact has no block and grid"):
            gpureduce.sum(array, "exact", device=device, block=64)


def test_the_docstring_tells_the_limits_of_exact():
    limits = {"float64": 384, "bfloat16": 512, "float32": 1024, "float16": 1024}
    for dtype, most in limits.items():
        array = np.ones(5000, numpy_dtype(dtype))
        value = gpureduce.sum(array, "exact", device="emulator", block=most).value
        assert value == array.dtype.type(5000)
        assert most == 1024 or f"{most} for {dtype}" in gpureduce.sum.__doc__
        with pytest.raises(ValueError, match="block"):
            gpureduce.sum(array, "exact", device="emulator", block=most + 32)
    assert f"at most {2**14 - 1}" in gpureduce.sum.__doc__


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a"]),
        np.array([datetime.datetime(2026, 1, 1)], "M8[s]"),
        np.zeros(3, [("a", int)]),
        *(np.zeros(3, dtype) for dtype in (np.longdouble, np.clongdouble, "O", "S4", "V2")),
    ],
    ids=lambda a: str(a.dtype),
)
@pytest.mark.parametrize("strategy", ["auto", "sequential", "cpu"])
def test_dtypes_without_a_sum(strategy, array):
    assert _host.sum_array(array, False, None) is None
    words = r"cannot be summed; supported are bool, int8.*complex128|dtype object cannot be summ"
    for timing in (True, False):
        with pytest.raises(TypeError, match=words):
            gpureduce.sum(array, strategy, timing=timing)


def test_a_sum_does_not_import_masked_arrays():
    """A signal handler that summed in the middle of that import called itself without end."""
    run_python(
        "import sys, numpy as np, gpureduce\n"
        "before = 'numpy.ma' in sys.modules\n"
        "assert gpureduce.sum(np.ones(3)).value == 3\n"
        "assert before or 'numpy.ma' not in sys.modules"
    )


@pytest.mark.parametrize(("name", "size"), [("bfloat", 2), ("float", 4), ("complex", 8)])
def test_a_void_that_is_called_as_a_number(name, size):
    dtype = np.dtype((type(name, (np.void,), {}), size))
    assert dtype.name == f"{name}{8 * size}"
    for call in (
        lambda: gpureduce.sum(np.zeros(3, dtype)),
        lambda: gpureduce.sum([1.0], dtype=dtype),
        lambda: gpureduce.Accumulator(dtype),
        lambda: gpureduce.Accumulator().value(dtype),
        lambda: gpureduce.integrate("pi", n=3, dtype=dtype),
        lambda: gpureduce.trapezoid(np.zeros(3, dtype)),
        lambda: gpureduce.trapezoid([1.0, 2.0], dx=np.zeros((), dtype)),
    ):
        with pytest.raises(TypeError, match=f"V{size}"):
            call()


@pytest.mark.parametrize("strategy", ["cpu", "numpy"])
def test_arrays_on_a_gpu_are_not_copied_silently(strategy):
    class OnGpu:
        def __dlpack_device__(self):
            return 2, 0

        def __array__(self, *_):
            raise AssertionError("copied behind the caller's back")

    with pytest.raises(TypeError, match="is on a GPU"):
        gpureduce.sum(OnGpu(), strategy)


@pytest.mark.parametrize(
    "device", ["gpu", "GPU:0", 0, "cuda:x", "emulator:x", "", "cuda:-1", 3, b"cuda", np.zeros(2)]
)
def test_unknown_device(device):
    for call in (
        lambda: gpureduce.sum(A, "sequential", device=device),
        lambda: gpureduce.sum(A, device=device),
        lambda: gpureduce.sum([1, 2], device=device, timing=False),
        lambda: gpureduce.sum(A, axis=0, device=device),
        lambda: gpureduce.segment_sum([1.0], [0], device=device),
        lambda: gpureduce.integrate("pi", device=device),
        lambda: gpureduce.Accumulator().add([1.0], device=device),
        lambda: gpureduce.Accumulator().add(A, device=device),
        lambda: gpureduce.digits(A, device=device),
        lambda: gpureduce.segment_digits([1.0], [0], num_segments=1, device=device),
    ):
        shown = re.escape(repr(device))
        with pytest.raises(ValueError, match=f"device must be None, 'cpu', 'cuda'.*{shown}"):
            call()


def test_the_cpu_where_only_kernels_run():
    for call in (
        lambda: gpureduce.fast_table("cpu"),
        lambda: gpureduce.tune("cpu"),
        lambda: next(gpureduce.benchmark(["fast"], device="cpu")),
    ):
        with pytest.raises(ValueError, match=r"device must be None, 'cuda', .*not 'cpu'"):
            call()


@pytest.fixture
def no_gpu(monkeypatch):
    """A machine without a GPU, wherever the test runs."""
    monkeypatch.setattr(_backends, "_cuda_devices", lambda: ((), "there is no driver"))


@pytest.mark.usefixtures("no_gpu")
def test_no_gpu_when_one_was_asked_for(monkeypatch):
    with pytest.raises(gpureduce.CudaError, match="there is no driver") as caught:
        gpureduce.sum(A, "sequential", device="cuda")
    for array in (A, [1.0]):
        with pytest.raises(gpureduce.CudaError, match="there is no driver"):
            gpureduce.Accumulator().add(array, device="cuda")
    assert caught.value.name == "cudaErrorNoDevice"
    monkeypatch.setenv("GPUREDUCE_BACKEND", "cuda")
    with pytest.raises(gpureduce.CudaError, match="there is no driver"):
        gpureduce.sum(A, "sequential")
    monkeypatch.undo()


@pytest.mark.usefixtures("no_gpu")
def test_cub_says_what_it_needs():
    with pytest.raises(gpureduce.CudaError, match="cub needs an NVIDIA GPU"):
        gpureduce.sum(A, "cub")


def test_backend_variable(monkeypatch):
    monkeypatch.setenv("GPUREDUCE_BACKEND", "emulator")
    assert gpureduce.sum(A, "sequential").timing.backend == "emulator"
    monkeypatch.setenv("GPUREDUCE_BACKEND", "opencl")
    for timing in (True, False):
        with pytest.raises(ValueError, match="GPUREDUCE_BACKEND must be one of cuda, emulator"):
            gpureduce.sum(A, "sequential", timing=timing)
    monkeypatch.undo()


def test_c_sees_the_environment_as_python_does(monkeypatch):
    name = "GPUREDUCE_NAME_OF_A_TEST"
    assert _host.environment(name) is None
    for value in ("cuda", "", "größer", os.fsdecode(b"\xff")):
        monkeypatch.setenv(name, value)
        assert _host.environment(name) == value
    monkeypatch.delenv(name)
    assert _host.environment(name) is None
    with pytest.raises(TypeError):
        _host.environment(1)


@pytest.fixture
def asked_anew():
    """What was found of the CUDA build is forgotten before the test and after it."""
    found = (_backends.load_cuda, _backends._cuda_devices)
    for one in found:
        one.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        yield patch
    for one in found:
        one.cache_clear()


def test_extension_that_could_not_be_built(asked_anew):
    asked_anew.setattr(_backends, "build", lambda: {"cuda": False, "why": "no nvcc, alas"})
    with pytest.raises(gpureduce.CudaError, match="built without CUDA: no nvcc, alas"):
        gpureduce.sum(A, "sequential", device="cuda")
    assert "no nvcc" in gpureduce.build_info()["why"]
    assert gpureduce.sum(A, "sequential").timing.backend == "emulator"


@pytest.mark.parametrize(
    ("driver", "why"), [(0, "there is no NVIDIA driver"), (11040, "driver version is insufficient")]
)
def test_no_driver_or_an_old_one(asked_anew, driver, why):
    def devices():
        raise gpureduce.CudaError("CUDA driver version is insufficient", "cudaErrorInsufficient")

    fake = SimpleNamespace(devices=devices, build=lambda: {"runtime": 13000, "driver": driver})
    asked_anew.setattr(_backends, "load_cuda", lambda: fake)
    assert why in gpureduce.build_info()["why"]
    with pytest.raises(gpureduce.CudaError, match=why):
        gpureduce.sum(A, "sequential", device="cuda")


@pytest.mark.parametrize("strategy", KERNELS)
def test_out_of_device_memory(strategy):
    array = np.ones(1 << 17, np.int32)
    gpureduce.free_scratch()
    with (
        gpureduce.emulator.memory_limit(1000),
        pytest.raises(MemoryError, match=r"cudaErrorMemoryAllocation.*cudaMalloc.*engine/\w+\.c"),
    ):
        gpureduce.sum(array, strategy, dtype="int32", device="emulator")
    gpureduce.free_scratch()
    assert gpureduce.emulator.live_bytes() == 0
    value = gpureduce.sum(array, strategy, dtype="int32", device="emulator").value
    assert int(value) == array.size


LARGE = [
    *((strategy, "int32", "int32") for strategy in KERNELS),
    *(
        (strategy, dtype, None)
        for strategy in ("global_tree", "vector_load", "last_block", "atomic_block", "cluster")
        for dtype in ("int64", "float32", "float64", "float16", "uint32")
    ),
    *(("exact", dtype, None) for dtype in FLOATS),
]


@pytest.mark.parametrize(("strategy", "dtype", "target"), LARGE)
def test_larger_than_device_memory(strategy, dtype, target):
    array = array_of(dtype, 700_001)
    gpureduce.free_scratch()
    with gpureduce.emulator.memory_limit(5 << 18):
        result = gpureduce.sum(array, strategy, dtype=target, device="emulator")
    check(result, array, target)
    assert result.timing.launches >= 2 and result.timing.strategy == strategy


@pytest.mark.gpu
@pytest.mark.alone
def test_out_of_memory_on_the_card():
    cupy = pytest.importorskip("cupy")
    array = np.ones(1 << 26, np.int32)
    gpureduce.free_scratch()
    hoard = []
    size = cupy.cuda.runtime.memGetInfo()[0]
    while size > 1 << 16:
        try:
            hoard.append(cupy.cuda.runtime.malloc(size))
        except cupy.cuda.runtime.CUDARuntimeError:
            size //= 2
    try:
        with pytest.raises(MemoryError, match="cudaErrorMemoryAllocation"):
            gpureduce.sum(array, "global_tree", device="cuda")
    finally:
        for pointer in hoard:
            cupy.cuda.runtime.free(pointer)
    assert int(gpureduce.sum(array, "global_tree", device="cuda").value) == array.size


def test_timing_is_any_truth_value():
    assert gpureduce.sum(np.ones(3), timing=[1]).timing is not None
    assert gpureduce.sum(np.ones(3), timing=[]).timing is None


ONES = np.ones(8, np.float32)
NAMED = {
    "block must be a whole number, not '64'": lambda: gpureduce.sum(ONES, "sequential", block="64"),
    "grid must be a whole number, not 1.5": lambda: gpureduce.sum(ONES, "sequential", grid=1.5),
    "dtype must be a NumPy dtype or its name, not [1]": lambda: gpureduce.sum(ONES, dtype=[1]),
    "there is no strategy 'xxxxxxxxxxxx...xxxxxxxxxxxxx'": lambda: gpureduce.sum(ONES, "x" * 10**6),
    "dtype must be a NumPy dtype or its name, not": lambda: gpureduce.sum(
        ONES, dtype={"names": ["a"], "formats": ["f4"], "offsets": [2**70]}
    ),
    "there is no dtype 'floatt'": lambda: gpureduce.sum(ONES, dtype="floatt"),
    "device must be None, 'cpu'": lambda: gpureduce.sum(ONES, device=ONES),
    "finish must be one of host, relaunch, single, not array(": lambda: gpureduce.sum(
        ONES, "warp_shfl", finish=np.ones((3, 3))
    ),
    "b must be a real number, not 'x'": lambda: gpureduce.integrate("pi", 0, "x"),
    "a must be finite in float64, not a far larger": lambda: gpureduce.integrate("pi", 10**400, 1),
    "dx must be a real number, not timedelta64[s]": lambda: gpureduce.trapezoid(
        ONES, dx=np.timedelta64(2, "s")
    ),
    "dx must be a real number of at most 64 bits": lambda: gpureduce.trapezoid(
        ONES, dx=np.longdouble(2)
    ),
    "offset must be a whole number, not 'x'": lambda: list(
        gpureduce.benchmark(["sequential"], offset="x")
    ),
    "sizes must be a list, such as [array(64)]": lambda: list(
        gpureduce.benchmark(["sequential"], np.array(64))
    ),
    "schedules must be a list, such as [5]": lambda: gpureduce.races("sequential", schedules=5),
    "other must be the name of a strategy, not 5": lambda: gpureduce.explain("sequential", 5),
    "MaskedArray has 1 masked entry, the first at 1": lambda: gpureduce.trapezoid(
        np.ma.array([1.0, 2.0], mask=[False, True])
    ),
}


@pytest.mark.parametrize("words", NAMED)
def test_the_argument_that_was_wrong_is_named(words):
    with pytest.raises((TypeError, ValueError), match=re.escape(words)) as raised:
        NAMED[words]()
    assert "\n" not in str(raised.value)
    assert float(gpureduce.sum(ONES).value) == 8


WITHOUT_MODULES = """
import sys
sys.path.insert(0, sys.argv[1])
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f)]  # which look elsewhere
try:
    import gpureduce
except ImportError as error:
    print(error)
"""


def test_sources_without_compiled_modules_say_so(tmp_path):
    no_modules = shutil.ignore_patterns("*.so")
    shutil.copytree(ROOT / "gpureduce", tmp_path / "gpureduce", ignore=no_modules)
    assert "start Python in another folder" in run_python(WITHOUT_MODULES, str(tmp_path))


@pytest.mark.parametrize("name", ["mine.cu", "__global__ void mine(const int *in, int *out)"])
def test_a_kernel_that_is_no_name_of_a_strategy(name):
    with pytest.raises(ValueError, match=r"make a kernel of it first, by gpureduce\.kernel"):
        gpureduce.explain(name, 64)


def test_modules_that_import_other_libraries_are_imported_by_name():
    code = """
import gpureduce
try:
    gpureduce.pandas
except AttributeError as error:
    print(error)
"""
    assert "a module of its own: write import gpureduce.pandas" in run_python(code)
