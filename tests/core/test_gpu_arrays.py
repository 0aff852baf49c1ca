"""Arrays that lie on a GPU: by DLPack and by __cuda_array_interface__, real ones and stand-ins."""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
import time
import types

import numpy as np
import pytest

import gpureduce
from cases import DTYPES, KERNELS, PAIRS, array_of, check, needed_dtype, on_devices
from gpureduce.core import devices, gpu_arrays
from producers import CUPYS_STREAM, ByDLPack, ByExchange, ByInterface, Kept, fake_cupy, like_cupy

PRODUCERS = [ByDLPack, lambda a: ByDLPack(a, old=True), ByExchange, ByInterface, like_cupy]


# The bit pattern in the result's place before the result is written (csrc/engine/sum.c).
NOT_YET = 0x7FF4A5C3E1B2D697


@pytest.fixture
def fake_cupys_modules(monkeypatch):
    for name, module in fake_cupy().items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture(params=PRODUCERS, ids=["dlpack", "dlpack-old", "exchange", "interface", "cupy"])
def producer(request, fake_cupys_modules):
    return request.param


def add(array, strategy="fast", **more):
    return gpureduce.sum(array, strategy, device="emulator", **more)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_sizes(producer, dtype):
    if dtype == "bfloat16" and producer in (ByInterface, like_cupy):
        pytest.skip("they have no bfloat16")
    for n in (0, 1, 7, 255, 1000, 20_001):
        array = array_of(dtype, n)
        result = add(producer(array))
        check(result, array)
        assert result.timing.h2d_ms == 0
        quick = add(producer(array), timing=False)
        assert quick.timing is None and quick.value == result.value
        assert quick.value.dtype == result.value.dtype


@pytest.mark.parametrize("strategy", KERNELS)
def test_every_strategy_reads_in_place(producer, strategy):
    array = array_of("int32", 3001)
    check(add(producer(array), strategy, dtype="int32", block=128), array, "int32")


def test_strides(producer):
    cube = array_of("float32", 6 * 7 * 20).reshape(6, 7, 20)
    views = [cube[::2], cube[:, ::-1], cube.T, cube[..., 3], cube[1:, 2:, 5:-1:2], cube[:, :0]]
    views += [np.broadcast_to(cube[0, 0, :3], (4, 3)), cube[0, 0, 0, ...], cube.transpose(1, 0, 2)]
    for view in views:
        check(add(producer(view)), view)
    with pytest.raises(
        TypeError, match=r"sequential reads only contiguous arrays.*fast or last_block"
    ):
        add(producer(cube[::2]), "sequential")
    check(add(producer(cube.T), "sequential"), cube)  # the same elements side by side


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex(producer, dtype):
    rng = np.random.default_rng(5)
    array = (rng.standard_normal(3001) + 1j * rng.standard_normal(3001)).astype(dtype)
    for view in (array, array[::3]):
        for timing in (True, False):
            value = add(producer(view), timing=timing).value
            assert value.dtype == dtype
            assert abs(value - view.sum(dtype=complex)) < 1e-3


def test_cupys_arrays_are_put_on_its_current_stream(fake_cupys_modules, monkeypatch):
    array = array_of("float32", 1000)
    assert add(like_cupy(array), timing=False).value == add(array).value
    with monkeypatch.context() as patched:
        patched.setattr(CUPYS_STREAM, "ptr", "no stream")
        with pytest.raises(TypeError):
            add(like_cupy(array))
    odd = like_cupy(array)
    odd.dtype = np.dtype("V4")
    with pytest.raises(TypeError, match=r"arrays of type '\|V4' on a GPU cannot be summed"):
        add(odd)
    del odd.strides
    with pytest.raises(AttributeError, match="strides"):
        add(odd)
    assert add(like_cupy(array)).value == add(array).value


def test_the_producer_gets_our_stream():
    array = ByDLPack(array_of("int32", 100))
    add(array)
    assert array.calls and all(call["stream"] not in (None, 0, -1) for call in array.calls)
    assert array.calls[0]["max_version"] == (1, 1)


@pytest.fixture
def emulator_for_a_card(monkeypatch):
    monkeypatch.setattr(gpu_arrays, "_module", devices.emulator)


def test_the_quick_way_passes_other_calls_on(emulator_for_a_card):
    there = ByExchange(array_of("int32", 100))
    assert tuple(gpureduce.sum(there, "fast", stream=1, timing=False)) == (add(there).value, None)
    assert gpureduce.sum([1, 2], "fast", timing=False).value == 3
    with pytest.raises(ValueError, match="no strategy 'quick'"):
        gpureduce.sum(there, "quick", timing=False)
    with pytest.raises(ValueError, match="wrong on purpose"):
        gpureduce.sum(there, "global_race", timing=False)
    for timing in (True, False):
        with pytest.raises(TypeError, match="stream must be None"):
            gpureduce.sum(there, "fast", stream="1", timing=timing)


@pytest.mark.parametrize(("dtype", "method"), [("float32", "is_neg"), ("complex64", "is_conj")])
def test_tensors_that_pytorch_changes_when_it_reads_them(emulator_for_a_card, dtype, method):
    there = ByExchange(np.ones(100, dtype))
    setattr(there, method, lambda: True)
    with pytest.raises(BufferError, match=rf"^{method}\(\) of .* pass x.resolve_conj\(\)"):
        add(there)
    setattr(there, method, lambda: False)
    assert add(there).value == 100


FLOATS = array_of("float32", 100)
MISALIGNED = array_of("uint8", 41)[1:].view(np.float32)


@pytest.mark.parametrize(
    ("array", "form", "error", "stream"),
    [
        (FLOATS, {}, None, None),
        (FLOATS, {"old": True}, None, None),
        (FLOATS, {}, None, 1),
        (FLOATS, {"device": 7}, (ValueError, BufferError), 1),
        (FLOATS, {"major": 2}, BufferError, None),
        (MISALIGNED, {}, BufferError, None),
    ],
)
def test_each_capsule_is_let_go(emulator_for_a_card, array, form, error, stream):
    """The caller that asked for a capsule frees it, whether or not the array can be read."""
    there = Kept(array, **form)
    for call in (
        lambda: add(there, stream=stream),
        lambda: add(there, stream=stream, timing=False),
        lambda: gpureduce.sum(there, "fast", stream=stream, timing=False),
        lambda: add(there, axis=0, stream=stream),
        lambda: gpureduce.Accumulator().add(there, stream, "emulator"),
    ):
        there.capsules.clear()
        with pytest.raises(error) if error else contextlib.nullcontext():
            call()
        assert there.capsules and there.held_by_others() == 0


def test_each_capsule_of_a_dtype_that_is_refused_is_let_go():
    for dtype, words in (
        ("int64", "cannot be summed exactly"),
        ("complex64", "cannot add complex numbers"),
    ):
        there = Kept(np.ones(100, dtype))
        with pytest.raises(TypeError, match=words):
            gpureduce.Accumulator().add(there, device="emulator")
        assert there.capsules and there.held_by_others() == 0


@pytest.mark.parametrize(("dtype", "bits"), [("uint64", NOT_YET), ("int64", NOT_YET),
                                             ("float32", NOT_YET & 0xFFFFFFFF)])  # fmt: skip
def test_a_sum_with_the_bits_of_the_mark_for_no_result_yet(dtype, bits):
    """Then the end of the stream tells."""
    part = np.dtype(dtype)
    array = np.array([bits], f"u{part.itemsize}").view(part)
    assert add(ByInterface(array), timing=False).value.tobytes() == array.tobytes()


@on_devices
def test_arrays_without_elements_need_no_address(device):
    """Of an array without elements libraries give no address."""
    nothing = ByInterface(np.empty((3, 0), np.float32), data=(0, False), stream=1)
    for timing in (True, False):
        assert gpureduce.sum(nothing, "fast", device=device, timing=timing).value == 0


class Yielding:
    """A CuPy array that lets other threads run while it is asked what it is."""

    def __init__(self, array):
        self.data = types.SimpleNamespace(ptr=array.ctypes.data, device_id=0)
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    @property
    def strides(self):
        time.sleep(0.001)
        return self.array.strides


Yielding.__module__, Yielding.__name__ = "cupy", "ndarray"


def test_threads_with_arrays_of_different_libraries(fake_cupys_modules):
    array = array_of("int32", 100)

    def add_up(made):
        return [int(add(made, timing=False).value) for _ in range(200)]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        got = list(pool.map(add_up, (Yielding(array), ByInterface(array))))
    assert got == [[array.sum()] * 200] * 2


# --- on a card, with the real producers ---------------------------------------------------------


def of_cupy(array):
    return pytest.importorskip("cupy").asarray(array)


def of_torch(array):
    torch = pytest.importorskip("torch")
    return torch.from_numpy(np.ascontiguousarray(array)).cuda()


def of_jax(array):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.device_put(array, jax.devices("gpu")[0])


def of_numba(array):
    return pytest.importorskip("numba.cuda").to_device(array)


REAL = [of_cupy, of_torch, of_jax, of_numba]


@pytest.mark.gpu
@pytest.mark.parametrize("real", REAL)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d[0] != "u" and d != "bfloat16"])
def test_real_producers(real, dtype):
    for n in (1, 33, 70_001, 1_000_003):
        array = array_of(dtype, n)
        there = real(array)
        check(gpureduce.sum(there), array)
        assert float(gpureduce.sum(there, timing=False).value) == float(gpureduce.sum(there).value)


@pytest.mark.gpu
def test_torch_bfloat16_and_strides():
    torch = pytest.importorskip("torch")
    there = torch.randn(1001, 77, device="cuda", dtype=torch.float32)
    for view in (there, there.t(), there[::2], there[:, 3], there[5:, 1:]):
        check(gpureduce.sum(view), view.cpu().numpy())
    half = there.to(torch.bfloat16)
    value = gpureduce.sum(half).value
    assert abs(float(value) - float(half.double().sum())) <= 0.01 * float(half.abs().double().sum())


@pytest.mark.gpu
@pytest.mark.parametrize(("strategy", "dtype"), [p for p in PAIRS if p[1] in ("int32", "uint8")])
def test_misaligned_on_the_card(strategy, dtype):
    cupy = pytest.importorskip("cupy")
    array = array_of(dtype, 300_007)
    there = cupy.asarray(array)
    for cut in (slice(1, None), slice(3, -5), slice(7, 4099)):
        wanted = needed_dtype(strategy, dtype)
        check(gpureduce.sum(there[cut], strategy, dtype=wanted), array[cut], wanted)


@pytest.mark.gpu
def test_producers_stream_is_waited_for():
    """A long kernel fills the array on another stream; without the wait the sum would see zeros."""
    cupy = pytest.importorskip("cupy")
    torch = pytest.importorskip("torch")
    for _ in range(3):
        with cupy.cuda.Stream(non_blocking=True):
            there = cupy.zeros(1 << 24, cupy.int32)
            for _ in range(200):
                there += 1
            assert int(gpureduce.sum(there, timing=False).value) == 200 << 24
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            there = torch.zeros(1 << 24, dtype=torch.int32, device="cuda")
            for _ in range(200):
                there += 1
            assert int(gpureduce.sum(there, timing=False).value) == 200 << 24
            assert int(gpureduce.sum(there, stream=side).value) == 200 << 24


@pytest.mark.gpu
def test_the_default_stream_is_waited_for():
    """Numba names no stream for work on the default stream, which may not have ended."""
    cupy = pytest.importorskip("cupy")
    there = cupy.zeros(2**24, cupy.int32)
    shown = {**there.__cuda_array_interface__, "stream": None}
    like_numbas = types.SimpleNamespace(__cuda_array_interface__=shown)
    for timing in (False, True):
        with cupy.cuda.Stream.null:
            for _ in range(200):
                there += 1
        assert int(gpureduce.sum(like_numbas, timing=timing).value) == 200 << 24
        there.fill(0)


@pytest.mark.gpu
def test_a_hundred_threads_on_several_streams():
    cupy = pytest.importorskip("cupy")

    def one(k):
        with cupy.cuda.Stream(non_blocking=True):
            there = cupy.full(1000 * k + 1, k, cupy.int32)
            return int(gpureduce.sum(there, timing=bool(k % 2)).value) == k * (1000 * k + 1)

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert all(pool.map(one, range(300)))


@pytest.mark.parametrize("number", [7, 0x1234560, 2**47])
def test_a_number_that_is_no_stream_of_the_emulator(number):
    array = ByInterface(np.ones(1000, np.float32))
    assert gpureduce.sum(array, "fast", stream=number, device="emulator").value == 1000
    assert (
        gpureduce.sum(array, "fast", axis=0, stream=number, device="emulator").value.to_numpy()
        == 1000
    )
