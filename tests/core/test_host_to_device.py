"""Host arrays that a device is sent, untimed: the bits of the long way, whichever way they went."""

from __future__ import annotations

import concurrent.futures
import mmap

import numpy as np
import pytest

import gpureduce
from cases import DTYPES, array_of, on_devices, same_bits
from gpureduce import _emulator
from gpureduce.core import devices, gpu_arrays, registry

RING = 16 << 20  # bytes of the staging ring: csrc/transfer/staging.c
PIECE = 32 << 10  # which a thread copies at a time: the same file
SHARES = [0.05, 0.3, 0.3, 0.2, 0.1, 0.05]


@pytest.fixture
def sent(device):
    """The sum by the shortest way, on a device."""
    module = _emulator if device == "emulator" else devices.load_cuda()
    return lambda array, strategy: module.sum_host_untimed(array, gpu_arrays.NUMBERS[strategy], 0)


@on_devices
@pytest.mark.parametrize("strategy", ["fast", "auto", "exact", "cascade", "global_tree"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits(sent, device, dtype, strategy):
    for n in (0, 1, 33, 1000, 70_001, 250_000):
        array = array_of(dtype, n)
        quick = sent(array, strategy)
        long = gpureduce.sum(array, strategy, device=device)
        assert same_bits(quick.value, long.value), n
        assert quick.timing is None and long.timing.n == n


@on_devices
@pytest.mark.parametrize(
    ("dtype", "strategy"),
    [("float32", "exact"), ("int8", "fast"), ("float64", "fast"), ("float64", "exact")],
)
def test_around_the_size_of_the_staging_ring(sent, device, dtype, strategy):
    most = RING // np.dtype(dtype).itemsize
    whole = array_of(dtype, most + 64)
    for n in (most - 1, most, most + 1):
        for offset in (0, 7):
            array = whole[offset : offset + n]
            long = gpureduce.sum(array, strategy, device=device)
            assert same_bits(sent(array, strategy).value, long.value), (n, offset)


@on_devices
def test_what_is_sent_is_what_is_there_now(sent):
    """Memory that is kept for the next call holds nothing of the last one."""
    for n in (5000, 400_000, 3000, 700_000, 4999):
        array = np.ones(n, np.int32)
        for k in range(5):
            array[n - 1 - k] = k
            assert int(sent(array, "fast").value) == array.sum()


@on_devices
@pytest.mark.parametrize("strategy", ["fast", "exact"])
def test_arrays_in_a_row(sent, device, strategy, monkeypatch):
    """Each other than the last one."""
    monkeypatch.setenv("GPUREDUCE_THREADS", "8")
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**32, 2**20, np.uint32)
    before = np.concatenate([[0], np.cumsum(values, dtype=np.uint64)])
    for i in range(300 if device == "emulator" else 1500):
        n = int(rng.choice([PIECE, 5 * PIECE, 2**18, 2**19, 2**20, 2**21], p=SHARES)) // 4
        n += int(rng.integers(-5, 6))
        start = int(rng.integers(0, values.size - n)) if n < values.size else 0
        found = sent(values[start : start + n], strategy).value
        assert int(found) == before[min(start + n, values.size)] - before[start], (i, start, n)


@on_devices
@pytest.mark.parametrize("threads", [1, 3, 64])
def test_any_number_of_threads(sent, device, threads, monkeypatch):
    monkeypatch.setenv("GPUREDUCE_THREADS", str(threads))
    near = (2**21 - 4, 2**21, 2**21 + 4, RING, RING + 4)
    for nbytes in (2**15, 2**16 + 4, 2**19 - 4, *near, 17 * 2**20 + 12, 41 * 2**20):
        # Weights by position: a part that is lost, doubled or taken for another one shows.
        array = np.arange(nbytes // 4, dtype=np.uint32) % 65521
        for _ in range(2):  # helpers of the first are awake for the next
            assert int(sent(array, "fast").value) == array.sum()
        timed = gpureduce.sum(array, "cascade", device=device)
        assert timed.value == array.sum() and timed.timing.h2d_ms > 0


@on_devices
def test_callers_at_once(sent):
    arrays = [array_of("int32", 2**k + k, k) for k in range(5, 22)] * 3
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda a: int(sent(a, "fast").value), arrays))
    assert found == [int(a.sum()) for a in arrays]


@pytest.mark.parametrize("nbytes", [1, 4097, PIECE, PIECE + 1, 3 * PIECE, RING + 2 * PIECE + 1])
def test_writing_alone_is_a_copy(nbytes):
    """As it is measured, by pieces; nothing beside it is written."""
    array = array_of("uint8", nbytes)
    room = np.full(nbytes + 2, 7, np.uint8)
    _emulator.write_pinned(room[1:-1], array)
    assert (room[1:-1] == array).all() and room[0] == room[-1] == 7


def test_writing_what_does_not_fit():
    for to, array in ((3, 4), (4, 3), (0, 0)):
        with pytest.raises(ValueError, match="as many bytes, at least 1"):
            _emulator.write_pinned(np.ones(to, np.uint8), np.ones(array, np.uint8))


def test_arrays_that_take_the_long_way():
    base = array_of("float32", 6000).reshape(60, 100)
    for array in (base[:, ::2], base.astype(">f4"), base.astype("complex64"), base.tolist()):
        assert _emulator.sum_host_untimed(array, gpu_arrays.NUMBERS["fast"], 0) is None
    assert _emulator.sum_host_untimed(base.T, gpu_arrays.NUMBERS["exact"], 0).value == (
        gpureduce.sum(base, "exact").value
    )


def test_wrong_arguments():
    array = np.ones(3, np.float32)
    with pytest.raises(TypeError, match="a strategy's number and a device's"):
        _emulator.sum_host_untimed(array, 0)
    with pytest.raises(TypeError):
        _emulator.sum_host_untimed(array, "fast", 0)
    with pytest.raises(ValueError, match="there is no emulator device 7"):
        _emulator.sum_host_untimed(array, -1, 7)
    for number in (len(registry.STRATEGIES), -3, -(2**31), 2**32 - 1):
        with pytest.raises(ValueError, match="no such strategy"):
            _emulator.sum_host_untimed(array, number, 0)
        with pytest.raises(ValueError, match="no such strategy"):
            _emulator.sum_gpu(array, None, number, 0, None)
    for device in (-1, 2**32):
        with pytest.raises(ValueError, match="there is no device"):
            _emulator.sum_host_untimed(array, -1, device)
    with pytest.raises(OverflowError):
        _emulator.sum_host_untimed(array, -1, 2**70)
    assert tuple(_emulator.sum_host_untimed(array, -1, 0)) == (3, None)


def test_untimed_sums_on_a_card_take_the_short_way(monkeypatch):
    """Calls whose only argument besides the array is device="cuda"."""
    seen = []

    def send(*arguments):
        seen.append(arguments)
        return _emulator.sum_host_untimed(*arguments)

    array = np.ones(100, np.float32)
    monkeypatch.setattr(gpu_arrays, "_sender", lambda: None)
    if not devices._cuda_devices()[0]:
        with pytest.raises(gpureduce.CudaError, match="cannot be used: "):
            gpureduce.sum(array, "fast", device="cuda", timing=False)
    assert not seen
    monkeypatch.setattr(gpu_arrays, "_sender", lambda: send)
    assert tuple(gpureduce.sum(array, "fast", device="cuda", timing=False)) == (100, None)
    with monkeypatch.context() as patch:
        patch.setenv("GPUREDUCE_BACKEND", "emulator")
        assert tuple(gpureduce.sum(array, "fast", timing=False)) == (100, None)
    assert [arguments[1:] for arguments in seen] == [(-1, 0)]
    with monkeypatch.context() as patch:
        patch.setattr(devices, "default_backend", lambda: "cuda")
        assert tuple(gpureduce.sum(array, "reduce7", timing=False)) == (100, None)
        assert tuple(gpureduce.sum(array, "exact", timing=False)) == (100, None)  # the processors
    assert [arguments[1:] for arguments in seen[1:]] == [(gpu_arrays.NUMBERS["reduce7"], 0)]
    for wrong in ("", "cuda:x", "gpu"):
        with pytest.raises(ValueError, match="device must be None"):
            gpureduce.sum(array, "fast", device=wrong, timing=False)
    with pytest.raises(TypeError, match="must be the name"):
        gpureduce.sum(array, ["fast"], device="cuda", timing=False)
    with pytest.raises(ValueError, match="stream is for arrays on a GPU"):
        gpureduce.sum(array, "fast", device="cuda", stream=1, timing=False)
    assert len(seen) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["fast", "exact"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "float16"])
def test_pinned_arrays(dtype, strategy):
    """The card copies them without staging."""
    torch = pytest.importorskip("torch")
    kind = np.dtype(dtype)
    for nbytes in (64, 4096, 2**16, 2**20, RING, RING + 256):
        pinned = torch.empty(nbytes + 512, dtype=torch.uint8, pin_memory=True).numpy()
        for offset in (0, kind.itemsize, 256):
            array = pinned[offset : offset + nbytes].view(kind)
            array[:] = array_of(dtype, array.size)
            ordinary = array.copy()
            quick = gpureduce.sum(array, strategy, device="cuda", timing=False).value
            assert same_bits(quick, gpureduce.sum(ordinary, strategy, device="cuda").value)
            array[-1] += 1
            quick = gpureduce.sum(array, strategy, device="cuda", timing=False).value
            assert same_bits(quick, gpureduce.sum(array.copy(), strategy, device="cuda").value)


@pytest.mark.gpu
@pytest.mark.parametrize("nbytes", [2**20, 8 * 2**20])
def test_arrays_that_are_pinned_in_part(nbytes):
    runtime = pytest.importorskip("torch").cuda.cudart()
    array = np.frombuffer(mmap.mmap(-1, nbytes), np.int32)
    array[:] = np.arange(array.size)
    start = array.ctypes.data
    for first in (start, start + nbytes // 2):
        assert int(runtime.cudaHostRegister(first, nbytes // 2, 0)) == 0
        for timing in (False, True):
            found = gpureduce.sum(array, "fast", device="cuda", timing=timing)
            assert int(found.value) == array.sum()
        assert int(runtime.cudaHostUnregister(first)) == 0
