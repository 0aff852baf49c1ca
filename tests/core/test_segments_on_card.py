"""Sums by segment of arrays of PyTorch, CuPy and JAX on a card, and in CUDA graphs."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from axis_cases import random_array
from segment_calls import assert_same as same
from segment_calls import in_order, random_ids

pytestmark = pytest.mark.gpu

DTYPES = ["int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64"]
SIZES = [(1, 1), (1000, 7), (1000, 5000), (300_000, 100), (300_000, 20_000), (300_000, 400_000)]


def case(n, count, dtype, columns=None, kind="any"):
    rng = np.random.default_rng(n + count)
    ids = random_ids(rng, kind, n, count)
    return random_array(rng, dtype, n if columns is None else (n, columns)), ids


def by_host(values, ids, count, **how):
    return gpureduce.segment_sum(values, ids, num_segments=count, **how).value


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("strategy", ["auto", "fast"])
def test_torch(dtype, strategy):
    torch = pytest.importorskip("torch")
    for n, count in SIZES:
        for columns in (None, 3, 64):
            if n * (columns or 1) > 1e6:
                continue
            values, ids = case(n, count, dtype, columns)
            want = by_host(values, ids, count)
            card, places = torch.from_numpy(values).cuda(), torch.from_numpy(ids).cuda()
            how = {"num_segments": count, "strategy": strategy}
            found = gpureduce.segment_sum(card, places, **how).value
            assert isinstance(found, torch.Tensor) and found.device == card.device
            same(found.cpu().numpy(), want)
            same(gpureduce.segment_sum(card, places.int(), **how).value.cpu().numpy(), want)
            order = torch.argsort(places, stable=True)
            ordered = card[order]
            found = gpureduce.segment_sum(ordered, places[order], sorted=True, **how).value
            same(found.cpu().numpy(), want)
            offsets = torch.searchsorted(places[order], torch.arange(count + 1, device="cuda"))
            found = gpureduce.segment_sum(ordered, offsets=offsets, strategy=strategy).value
            if strategy == "auto" or values.dtype.kind in "iu":
                same(found.cpu().numpy(), want)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_cupy_with_strides(dtype):
    cupy = pytest.importorskip("cupy")
    for n, count in SIZES:
        values, ids = case(n, count, dtype)
        want = by_host(values[::-1], ids[::-1], count)
        found = gpureduce.segment_sum(
            cupy.asarray(values)[::-1], cupy.asarray(ids)[::-1], num_segments=count
        ).value
        assert isinstance(found, cupy.ndarray)
        same(cupy.asnumpy(found), want)
        wide = cupy.asarray(np.repeat(values, 3))[::3]
        found = gpureduce.segment_sum(wide, cupy.asarray(ids), num_segments=count).value
        same(cupy.asnumpy(found), by_host(values, ids, count))


def test_jax():
    jax = pytest.importorskip("jax")
    values, ids = case(1000, 7, "float32")
    device = jax.devices("gpu")[0]
    put = [jax.device_put(x, device) for x in (values, ids.astype(np.int32))]
    found = gpureduce.segment_sum(*put, num_segments=7).value
    assert isinstance(found, jax.Array) and found.devices() == put[0].devices()
    same(np.asarray(found), by_host(values, ids, 7))


def test_bfloat16():
    torch = pytest.importorskip("torch")
    card = torch.randn(50_000, device="cuda").to(torch.bfloat16)
    ids = torch.randint(0, 300, (50_000,), device="cuda")
    found = gpureduce.segment_sum(card, ids, num_segments=300).value
    host = card.float().cpu().numpy()
    want = gpureduce.segment_sum(
        host, ids.cpu().numpy(), num_segments=300, dtype="float32"
    ).value  # fmt: skip
    assert found.dtype == torch.bfloat16
    near = torch.from_numpy(want).cuda()
    assert ((found.float() - near).abs() <= near.abs() * 2.0**-8).all()


@pytest.mark.parametrize("kind", ["bits", "wide", "large"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_that_are_hard_to_add_up(dtype, kind):
    part = np.dtype(dtype)
    rng = np.random.default_rng(4)
    for n, count in ((3000, 40), (300_000, 50), (300_000, 70_000)):
        if kind == "bits":
            size = part.itemsize
            values = rng.integers(0, 2 ** (8 * size) - 1, n, f"u{size}", endpoint=True).view(part)
        elif kind == "large":
            values = np.where(rng.random(n) < 0.5, 1, -1).astype(part) * np.finfo(part).max
        else:
            with np.errstate(over="ignore"):
                values = (rng.standard_normal(n) * 2.0 ** rng.integers(-40, 40, n)).astype(part)
        ids = rng.integers(0, count, n)
        for some in (values, np.where(np.isfinite(values), values, 0).astype(part)):
            found = gpureduce.segment_sum(some, ids, num_segments=count, device="cuda").value
            same(found, by_host(some, ids, count))
            ordered, offsets = in_order(some, ids, count)
            found = gpureduce.segment_sum(ordered, offsets=offsets, device="cuda").value
            same(found, by_host(some, ids, count))


@pytest.mark.parametrize("kind", ["half", "zipf"])
def test_skewed_ids(kind):
    """More than 2^20 elements: frequent ids are found in a sample."""
    values, ids = case(3_000_000, 1_000_000, "float32", kind=kind)
    found = gpureduce.segment_sum(values, ids, num_segments=1_000_000, device="cuda").value
    same(found, by_host(values, ids, 1_000_000))


def test_no_word_overflows():
    """2^27 equal ids of the largest element that the word holds, and one of the smallest."""
    torch = pytest.importorskip("torch")
    n = 1 << 27
    values = torch.full((n,), 2.0**30 - 2.0**6, device="cuda")
    ids = torch.zeros(n, dtype=torch.int32, device="cuda")
    for count in (3, 1_000_000):
        for smallest in (2.0**-20, 2.0**-27, 2.0**-60):
            values[n // 2] = smallest
            exact = (n - 1) * (2**30 - 2**6) + smallest
            for known in (False, None):
                found = gpureduce.segment_sum(values, ids, num_segments=count, sorted=known).value
                assert found[0].item() == np.float32(exact) and found[1].item() == 0
    wide = values.double()
    wide[n // 2] = 2.0**-20
    found = gpureduce.segment_sum(wide, ids, num_segments=3, sorted=False).value
    assert found[0].item() == float((n - 1) * (2**30 - 2**6))  # the rest is below half a unit


def test_1000_runs_and_shuffles_have_the_same_bits():
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    values = torch.randn(100_000, device="cuda") * torch.exp2(
        torch.randint(-30, 30, (100_000,), device="cuda").float()
    )
    ids = torch.randint(0, 999, (100_000,), device="cuda")
    want = by_host(values.cpu().numpy(), ids.cpu().numpy(), 999)
    bits = torch.from_numpy(want).cuda().view(torch.int32)
    for _ in range(1000):
        order = torch.randperm(100_000, device="cuda")
        found = gpureduce.segment_sum(values[order], ids[order], num_segments=999, timing=False)
        assert torch.equal(found.value.view(torch.int32), bits)


def test_errors_write_nothing():
    torch = pytest.importorskip("torch")
    values, ids = torch.ones(100_000, device="cuda"), torch.arange(100_000, device="cuda") % 50
    out = torch.full((50,), 7.0, device="cuda")
    for place in (0, 77_777):
        for ordered in (ids, ids.sort().values):
            bad = ordered.clone()
            bad[place] = -5
            with pytest.raises(ValueError, match=rf"segment_ids\[{place}\] is -5"):
                gpureduce.segment_sum(values, bad, out=out)
            gpureduce.segment_sum(values, bad, out=out, check=False)
            assert (out == 7).all()
    offsets = torch.tensor([0, 60_000, 50_000, 100_000], device="cuda")
    with pytest.raises(ValueError, match=r"offsets\[1\] is 60000 and offsets\[2\] is 50000"):
        gpureduce.segment_sum(values, offsets=offsets)
    with pytest.raises(TypeError, match="segment_ids must lie on the same GPU"):
        gpureduce.segment_sum(values, ids.cpu().numpy())


@pytest.mark.parametrize("count", [50, 60_000])
def test_graphs(count):
    torch = pytest.importorskip("torch")
    values = torch.randn(200_000, device="cuda")
    ids = torch.randint(0, count, (200_000,), device="cuda")
    out = torch.empty(count, device="cuda")
    how = {"num_segments": count, "check": False}
    gpureduce.segment_sum(values, ids, out=out, **how)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gpureduce.segment_sum(values, ids, out=out, **how)
        made = gpureduce.segment_sum(values, ids, **how).value
        with pytest.raises(ValueError, match="pass check=False"):
            gpureduce.segment_sum(values, ids, num_segments=count)
        with pytest.raises(ValueError, match="pass num_segments"):
            gpureduce.segment_sum(values, ids, check=False)
    for i in range(200):
        values.copy_(torch.randn(200_000, device="cuda"))
        graph.replay()
        if i % 50 == 0:
            want = gpureduce.segment_sum(values, ids, num_segments=count).value
            assert torch.equal(out, want) and torch.equal(made, want)


def test_times_are_read_later():
    torch = pytest.importorskip("torch")
    values = torch.randn(1 << 22, device="cuda")
    ids = torch.randint(0, 1000, (1 << 22,), device="cuda")
    timing = gpureduce.segment_sum(values, ids).timing
    assert 0 < timing.kernel_ms < 100 and timing.source == "cuda_event"
    assert gpureduce.segment_sum(values, ids, timing=False).timing is None


@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_small_sums_for_the_sanitizers(dtype):
    for n, count in ((5, 3), (3000, 20), (3000, 5000), (70_000, 40)):
        for columns in (None, 3, 40):
            if n * (columns or 1) > 300_000:
                continue
            shape = n if columns is None else (n, columns)
            ids = np.arange(n) % count
            want = by_host(np.ones(shape, dtype), ids, count)
            found = gpureduce.segment_sum(
                np.ones(shape, dtype), ids, num_segments=count, device="cuda"
            ).value
            same(found, want)
            order = np.sort(ids)
            how = {"num_segments": count, "device": "cuda"}
            same(gpureduce.segment_sum(np.ones(shape, dtype), order, **how).value, want)
            offsets = np.searchsorted(order, np.arange(count + 1))
            found = gpureduce.segment_sum(
                np.ones(shape, dtype), offsets=offsets, device="cuda"
            ).value
            same(found, want)
    if dtype != "int8":
        hard = np.array([np.inf, -1, 3e-5, 60000, 60000, np.nan, 1e-7] * 9, dtype)
        for ids in (np.arange(63) % 5, np.arange(63) % 7):
            found = gpureduce.segment_sum(hard, ids, device="cuda").value
            same(found, gpureduce.segment_sum(hard, ids).value)
