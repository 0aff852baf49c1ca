"""Sums along axes of arrays of PyTorch and CuPy on a card, and in CUDA graphs."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from axis_cases import random_array, refusal
from cases import AXIS

pytestmark = pytest.mark.gpu

SHAPES = [(1, 1), (7, 3), (1000, 2), (2, 1000), (129, 257), (3, 70_000), (70_000, 3), (33, 4096),
          (5, 6, 7), (4, 300, 500), (2, 3, 4, 5), (4, 40, 33, 128), (3, 6, 50, 127)]  # fmt: skip
DTYPES = ["int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64"]


def axes_of(shape):
    dims = len(shape)
    return (
        [*range(dims), tuple(range(dims)), (0, dims - 1), (0, 2), (1, dims - 1), (0, 2, dims - 1)][
            : 2 * dims + 1
        ]
        if dims > 2
        else [0, 1, (0, 1)]
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("strategy", ["auto", "fast"])
def test_torch(dtype, strategy):
    torch = pytest.importorskip("torch")
    for shape in SHAPES:
        host = random_array(np.random.default_rng(4), dtype, shape)
        card = torch.from_numpy(host).cuda()
        for axis in axes_of(shape):
            views = [(host, card), (host[::2], card[::2]), (host[..., ::2], card[..., ::2])]
            if isinstance(axis, int) and len(shape) == 2:
                views.append((host.T, card.T))
            for numbers, tensor in views:
                found = gpureduce.sum(tensor, strategy, axis=axis).value
                assert isinstance(found, torch.Tensor) and found.device == tensor.device
                compare(numbers, found.cpu().numpy(), strategy, axis)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("strategy", ["auto", "fast"])
def test_cupy(dtype, strategy):
    cupy = pytest.importorskip("cupy")
    for shape in SHAPES:
        host = random_array(np.random.default_rng(4), dtype, shape)
        card = cupy.asarray(host)
        for axis in axes_of(shape):
            for numbers, array in ((host, card), (host[::-1], card[::-1])):
                found = gpureduce.sum(array, strategy, axis=axis, keepdims=True).value
                assert isinstance(found, cupy.ndarray)
                compare(numbers, cupy.asnumpy(found), strategy, axis, keepdims=True)


def compare(numbers, found, strategy, axis, **how):
    """Integers and exact sums: bit for bit. Others: near."""
    want = gpureduce.sum(numbers, "exact", axis=axis, **how).value
    assert found.shape == np.shape(want) and found.dtype == np.asarray(want).dtype
    if strategy == "auto" or numbers.dtype.kind in "iu":
        assert found.tobytes() == np.asarray(want).tobytes()
        return
    count = numbers.size / max(1, np.size(want))
    eps = {2: 2.0**-10, 4: 2.0**-23}.get(numbers.real.dtype.itemsize, 2.0**-52)
    sizes = gpureduce.sum(abs(numbers), "exact", axis=axis, dtype="float64", **how).value
    equal = found == want  # also infinities
    apart = abs(np.where(equal, 0, found.astype(np.complex128)) - np.where(equal, 0, want))
    assert np.all(apart <= eps * sizes * (1 + count / 2) + 1e-300)


def test_bfloat16():
    torch = pytest.importorskip("torch")
    card = torch.randn(300, 500, device="cuda").to(torch.bfloat16)
    host = card.float().cpu().numpy()
    for axis in (0, 1):
        found = gpureduce.sum(card, axis=axis).value
        want = gpureduce.sum(host, "exact", axis=axis, dtype="bfloat16").value
        assert found.dtype == torch.bfloat16
        assert found.float().cpu().numpy().tobytes() == want.astype(np.float32).tobytes()


def test_out_where_initial_and_whole_sums():
    torch = pytest.importorskip("torch")
    card = torch.randn(200, 300, device="cuda")
    mask = torch.rand(200, 300, device="cuda") < 0.5
    out = torch.empty(300, device="cuda")
    assert gpureduce.sum(card, axis=0, where=mask, initial=2.5, out=out).value is out
    want = gpureduce.sum(
        card.cpu().numpy(), axis=0, where=mask.cpu().numpy(), initial=2.5
    ).value  # fmt: skip
    assert out.cpu().numpy().tobytes() == want.tobytes()
    whole = gpureduce.sum(card, result="device").value
    assert whole.shape == () and whole.item() == gpureduce.sum(card).value
    with pytest.raises(TypeError, match="where must lie on the same GPU"):
        gpureduce.sum(card, axis=0, where=mask.cpu().numpy())
    with pytest.raises(TypeError, match="out must be of type Tensor"):
        gpureduce.sum(card, axis=0, out=np.empty(300, np.float32))
    with pytest.raises(ValueError, match="out overlaps"):
        gpureduce.sum(card, axis=0, out=card[0])


@pytest.mark.parametrize("strategy", ["exact", "fast"])
@pytest.mark.parametrize(("shape", "axis"), [((64, 4096), 1), ((4096, 64), 0), ((3, 300_000), 1)])
def test_torch_graphs(strategy, shape, axis):
    torch = pytest.importorskip("torch")
    card = torch.randn(shape, device="cuda")
    out = torch.empty([n for i, n in enumerate(shape) if i != axis], device="cuda")
    gpureduce.sum(card, strategy, axis=axis, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gpureduce.sum(card, strategy, axis=axis, out=out)
        made = gpureduce.sum(card, strategy, axis=axis).value
    for i in range(1000):
        card.copy_(torch.randn(shape, device="cuda"))
        graph.replay()
        if i % 100 == 0:
            want = gpureduce.sum(card, strategy, axis=axis).value
            assert torch.equal(out, want) and torch.equal(made, want)


def test_cupy_graphs():
    cupy = pytest.importorskip("cupy")
    card, out = cupy.ones((64, 1000), cupy.float32), cupy.empty(1000, cupy.float32)
    gpureduce.sum(card, axis=0, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        gpureduce.sum(card, axis=0, out=out, timing=False)
        graph = stream.end_capture()
    for k in range(1000):
        card[...] = k
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert k % 100 or bool((out == 64 * k).all())


def test_jax_and_numba_read_a_device_array():
    numba = pytest.importorskip("numba.cuda")
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = gpureduce.sum(numba.to_device(host), axis=0).value
    assert isinstance(found, gpureduce.DeviceArray)
    assert numba.as_cuda_array(found).copy_to_host().tolist() == host.sum(axis=0).tolist()


def test_sums_of_a_jax_array_are_one():
    jax = pytest.importorskip("jax")
    array = jax.device_put(np.arange(12, dtype=np.float32).reshape(3, 4), jax.devices("gpu")[0])
    found = gpureduce.sum(array, axis=1).value
    assert isinstance(found, jax.Array) and found.devices() == array.devices()
    assert found.tolist() == [6, 22, 38] and (found + 1).tolist() == [7, 23, 39]
    cube = jax.device_put(np.ones((4, 3, 5), np.float32), jax.devices("gpu")[0])
    found = gpureduce.sum(cube.transpose(2, 0, 1), axis=2, keepdims=True).value
    assert found.shape == (5, 4, 1) and bool((found == 3).all())
    whole = gpureduce.sum(array, result="device").value
    assert isinstance(whole, jax.Array) and float(whole) == 66
    wide = gpureduce.sum(array.astype("int32"), axis=1).value
    if not jax.config.jax_enable_x64:
        assert isinstance(wide, gpureduce.DeviceArray) and wide.dtype == "int64"
    assert [int(x) for x in np.asarray(getattr(wide, "to_numpy", lambda: wide)())] == [6, 22, 38]


def test_times_are_read_later():
    torch = pytest.importorskip("torch")
    card = torch.randn(4096, 4096, device="cuda")
    timing = gpureduce.sum(card, "fast", axis=0).timing
    assert 0 < timing.kernel_ms < 100 and timing.source == "cuda_event"
    assert gpureduce.sum(card, "fast", axis=0, timing=False).timing is None


@pytest.mark.parametrize("strategy", ["fast", "exact"])
def test_host_arrays(strategy):
    host = np.random.default_rng(3).standard_normal((500, 700))
    for axis in (0, 1):
        found = gpureduce.sum(host, strategy, axis=axis, device="cuda")
        assert found.timing.h2d_ms > 0 and found.timing.kernel_ms > 0
        compare(host, found.value, "auto" if strategy == "exact" else "fast", axis)


@pytest.mark.parametrize("name", AXIS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_each_kernel_has_the_emulators_bits(name, dtype):
    rng = np.random.default_rng(9)
    for shape in ((100, 60), (1, 77), (33, 17), (1003, 3), (3, 100)):
        array = rng.standard_normal(shape).astype(dtype)
        axis = 0 if name.startswith("column") else 1
        if refusal(name, array):
            continue
        for block in (None, 64, 96, 256):
            found = gpureduce.sum(array, name, axis=axis, block=block, device="cuda").value
            want = gpureduce.sum(array, name, axis=axis, block=block, device="emulator").value
            compare(array, found, "fast", axis)
            if name == "exact_levels":
                assert found.tobytes() == want.tobytes()


@pytest.mark.sanitizer
@pytest.mark.parametrize("name", ["fast", "exact", *AXIS])
def test_small_sums_for_the_sanitizers(name):
    for dtype in ("float16", "float32", "float64", "int8"):
        if dtype == "int8" and name == "exact_levels":
            continue
        for shape in ((5, 33), (300, 3), (3, 130), (70, 257)):
            array = np.ones(shape, dtype)
            for axis in (0, 1):
                if name not in ("fast", "exact") and axis != (0 if name[0] == "c" else 1):
                    continue
                if refusal(name, array):
                    continue
                found = gpureduce.sum(array, name, axis=axis, device="cuda").value
                assert (found == shape[axis]).all()
            masked = gpureduce.sum(array, "fast", axis=0, where=array > 0, device="cuda").value
            assert (masked == shape[0]).all()


@pytest.mark.parametrize(
    "how",
    [{}, {"timing": False}, {"strategy": "fast"}, {"dtype": "float64"}, {"initial": 1.5},
     {"strategy": "warp_shfl", "finish": "host"}],
)  # fmt: skip
def test_a_sum_that_waits_leaves_a_capture_as_it_is(how):
    torch = pytest.importorskip("torch")
    card, total = torch.ones(1000, device="cuda"), torch.zeros((), device="cuda")
    gpureduce.sum(card, result="device")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match=r"captured into a CUDA graph.*result='device'"):
            gpureduce.sum(card, **how)
        total.copy_(gpureduce.sum(card, result="device").value)
    card.fill_(2)
    graph.replay()
    assert total.item() == 2000
    assert gpureduce.sum(card, **how).value == 2000 + how.get("initial", 0)


def test_a_sum_that_waits_leaves_a_capture_of_cupy_as_it_is():
    cupy = pytest.importorskip("cupy")
    card, out = cupy.ones((3, 1000), cupy.float32), cupy.empty(1000, cupy.float32)
    gpureduce.sum(card, axis=0, out=out)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        with pytest.raises(RuntimeError, match="captured into a CUDA graph"):
            gpureduce.sum(card)
        gpureduce.sum(card, axis=0, out=out)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert bool((out == 3).all())
