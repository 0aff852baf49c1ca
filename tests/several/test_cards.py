"""Sums over two GPUs or more: `pytest -m several_gpus`. Needs PyTorch or CuPy for arrays there."""

from __future__ import annotations

import concurrent.futures
import functools
import gc
import importlib.util
import itertools

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import pytest

import gpureduce
from cases import array_of, broken_off_after, same_bits
from gpureduce.core import on_several
from producers import OnDevice

pytestmark = [pytest.mark.gpu, pytest.mark.several_gpus]

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int8", "int32",
          "int64", "bool"]  # fmt: skip


def cards() -> list[str]:
    return [device.id for device in gpureduce.devices() if device.backend == "cuda"]


class Torch:
    def __init__(self):
        self.torch = pytest.importorskip("torch")
        if self.torch.cuda.device_count() < 2:
            pytest.skip("PyTorch finds fewer than two GPUs")

    def put(self, array, card):
        array = np.ascontiguousarray(array)
        if array.dtype.name == "bfloat16":
            tensor = self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(array)
        return tensor.to(f"cuda:{card}")

    def current(self):
        return self.torch.cuda.current_device()

    def on(self, card):
        return self.torch.cuda.device(card)

    def host(self, array):
        return array.cpu().numpy()

    def card_of(self, array):
        return array.device.index


class CuPy:
    def __init__(self):
        self.cupy = pytest.importorskip("cupy")

    def put(self, array, card):
        if array.dtype.name == "bfloat16":
            pytest.skip("CuPy has no bfloat16")
        with self.cupy.cuda.Device(card):
            return self.cupy.asarray(array)

    def on(self, card):
        return self.cupy.cuda.Device(card)

    def current(self):
        return self.cupy.cuda.runtime.getDevice()

    def host(self, array):
        return self.cupy.asnumpy(array)

    def card_of(self, array):
        return array.device.id


@pytest.fixture(params=[Torch, CuPy])
def library(request):
    return request.param()


def spread(library, parts, count):
    return [library.put(part, i % count) for i, part in enumerate(parts)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_bit_pattern_for_any_number_of_cards(library, dtype, four_devices):
    array = array_of(dtype, 1_000_003)
    whole = gpureduce.sum(array).value
    parts = np.array_split(array, 9)
    for count in range(1, len(cards()) + 1):
        found = gpureduce.sum_parts(spread(library, parts, count))
        assert same_bits(found.value, whole)
        assert found.timing.backend == "cuda" and found.timing.n == array.size
        assert 0 < found.timing.kernel_ms <= found.timing.total_ms
        assert same_bits(
            gpureduce.sum_parts(spread(library, parts, count), timing=False).value, whole
        )
    mixed = [p if i % 3 else library.put(p, i % len(cards())) for i, p in enumerate(parts)]
    assert same_bits(gpureduce.sum_parts(mixed).value, whole)
    emulated = [OnDevice(part[:2000], i % 4) for i, part in enumerate(parts)]
    few = gpureduce.sum_parts([library.put(p[:2000], i % 2) for i, p in enumerate(parts)]).value
    assert same_bits(gpureduce.sum_parts(emulated, device="emulator").value, few)


@pytest.mark.parametrize("strategy", ["fast", "exact", "last_block", "warp_shfl", "tiles"])
def test_strategies_by_name(library, strategy):
    parts = [array_of("float32", 100_000 + i, i) for i in range(2 * len(cards()))]
    found = {
        gpureduce.sum_parts(spread(library, parts, len(cards())), strategy).value.tobytes()
        for _ in range(5)
    }
    assert len(found) == 1, "the sums of the parts are added in one order"
    value = np.frombuffer(found.pop(), np.float32)[0]
    np.testing.assert_allclose(
        value, np.concatenate(parts).sum(dtype=np.float64), rtol=1e-4, atol=1
    )


def test_the_current_device_is_the_one_before(library):
    last = len(cards()) - 1
    before = library.current()
    there = library.put(np.ones(1000, np.float32), last)
    for call in (
        lambda: gpureduce.sum(there),
        lambda: gpureduce.sum(there, "fast", timing=False),
        lambda: gpureduce.sum_parts([library.put(np.ones(10), i) for i in range(last + 1)]),
        lambda: gpureduce.sum(np.ones(1000), "fast", device=f"cuda:{last}"),
        lambda: gpureduce.sum(np.ones(1 << 22), device="cuda:*"),
        lambda: gpureduce.sum(library.put(np.ones((30, 40)), last), axis=0),
    ):
        call()
        assert library.current() == before


def test_parts_are_read_after_their_producers_work(library):
    """On each card's own stream, behind work that takes milliseconds."""
    parts = []
    for card in range(len(cards())):
        large = library.put(np.zeros(1 << 26, np.float32), card)
        with library.on(card):
            for _ in range(10):
                large += 1
        parts.append(large)
    assert gpureduce.sum_parts(parts, "exact").value == 10 * len(parts) * 2**26


def test_parts_on_streams_of_the_caller():
    library = Torch()
    torch, parts, streams = library.torch, [], []
    for card in range(len(cards())):
        with torch.cuda.device(card), torch.cuda.stream(torch.cuda.Stream(card)) as _:
            stream = torch.cuda.current_stream(card)
            large = torch.zeros(1 << 26, device=f"cuda:{card}")
            for _ in range(10):
                large += 1
        parts.append(large)
        streams.append(stream)
    assert gpureduce.sum_parts(parts, "exact", stream=streams).value == 10 * len(parts) * 2**26


@pytest.mark.parametrize("axis", [0, 1, (0, 1), None, ()])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_slices_along_axes(library, dtype, axis):
    array = (np.random.default_rng(1).standard_normal((24, 10)) * 1000).astype(dtype)
    for along, keepdims in itertools.product((0, 1), (False, True)):
        parts = spread(library, np.array_split(array, 3, axis=along), len(cards()))
        wanted = gpureduce.sum(array, axis=axis, keepdims=keepdims).value
        found = gpureduce.sum_parts(parts, axis=axis, keepdims=keepdims, parts_axis=along).value
        if np.ndim(wanted):
            assert library.card_of(found) == 0
            found = library.host(found)
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
def test_host_arrays_over_all_cards(dtype):
    array = np.tile(array_of(dtype, 1_000_003), 80)
    whole = gpureduce.sum(array, device="cpu").value
    for device in ("cuda:*", cards()[:2], ["cpu", *cards()], cards()[1:2]):
        for _ in range(3):
            result = gpureduce.sum(array, device=device)
            assert same_bits(result.value, whole)
        assert "cuda" in result.timing.backend
    some = gpureduce.sum(array, device="cuda:*").timing
    assert some.device.startswith(f"{len(cards())} x ") or " + " in some.device


def test_host_arrays_by_other_strategies():
    array = np.tile(array_of("float32", 1_000_003), 40)
    for strategy in ("fast", "last_block"):
        found = {gpureduce.sum(array, strategy, device="cuda:*").value.tobytes() for _ in range(5)}
        assert len(found) == 1


def test_an_error_on_one_card_leaves_all_usable(library):
    """No memory for the scratch of one part; the message names the part and its card."""
    parts = [library.put(np.ones(1000, np.float32), card) for card in range(len(cards()))]
    wrong = [*parts[:-1], library.put(np.ones(1000), len(cards()) - 1)]
    with pytest.raises(TypeError, match=f"part 0 has float32, and part {len(parts) - 1}"):
        gpureduce.sum_parts(wrong)
    doubles = [library.put(np.ones(1000), card) for card in range(len(cards()))]
    with pytest.raises(ValueError, match=r"part 0, on cuda:0: .*block"):
        gpureduce.sum_parts(doubles, "exact", block=1024)
    for _ in range(3):
        assert gpureduce.sum_parts(parts).value == 1000 * len(parts)
    assert all(gpureduce.sum(part).value == 1000 for part in parts)


def test_an_error_with_a_host_array_names_the_card(monkeypatch):
    from gpureduce.core import on_device

    array, add = np.ones(1 << 24, np.float32), on_device.add

    def fails(request, part, device, into):
        if device.id == "cuda:1":
            raise MemoryError("no room")
        return add(request, part, device, into)

    with monkeypatch.context() as patch:
        patch.setattr(on_device, "add", fails)
        with pytest.raises(MemoryError, match="on cuda:1: no room"):
            gpureduce.sum(array, device="cuda:*")
    assert gpureduce.sum(array, device="cuda:*").value == array.size


def test_a_signal_breaks_a_host_sum_off(monkeypatch):
    monkeypatch.setattr(on_several, "_SLAB_BYTES", 1 << 24)
    array = np.zeros(2**30, np.float32)  # untouched pages cost no memory
    for device in ("cuda:*", ["cpu", "cuda:*"]):
        took = broken_off_after(0.02, functools.partial(gpureduce.sum, array, device=device))
        assert took is None or took < 1
        ones = np.ones(1 << 22, np.float32)
        assert gpureduce.sum(ones, device=device).value == ones.size


def test_64_threads_over_all_cards(library):
    count = len(cards())
    parts = [array_of("float32", 50_000, i) for i in range(count)]
    whole = gpureduce.sum(np.concatenate(parts)).value
    there = [[library.put(part, card) for card in range(count)] for part in parts]

    def work(seed):
        order = np.random.default_rng(seed).permutation(count)
        some = [there[i][k] for k, i in enumerate(order)]
        return gpureduce.sum_parts(some, timing=seed % 2 == 0).value

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        assert all(same_bits(value, whole) for value in pool.map(work, range(64 * 20)))


def test_accumulators_of_several_cards(library):
    array = array_of("float64", 300_000)
    total = gpureduce.Accumulator("float64")
    for part in spread(library, np.array_split(array, 7), len(cards())):
        total += part
    assert same_bits(total.value(), gpureduce.sum(array).value)


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_memory_of_one_card_does_not_bound_another():
    """A part as large as half of a card's free memory, on each card."""
    torch = Torch().torch
    parts = []
    for card in range(len(cards())):
        free, _ = torch.cuda.mem_get_info(card)
        parts.append(
            torch.ones(min(free // 2, 8 << 30) // 2, dtype=torch.float16, device=f"cuda:{card}")
        )
    for strategy in ("fast", "exact"):
        value = gpureduce.sum_parts(parts, strategy, dtype="float32").value
        right = sum(part.numel() for part in parts)
        assert value == np.float32(right) if strategy == "exact" else abs(value / right - 1) < 1e-5
    del parts
    gc.collect()
    torch.cuda.empty_cache()
