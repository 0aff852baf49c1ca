"""Means, variances, norms and products of arrays on a device: the bits of those in host memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cases import numpy_dtype
from gpureduce import exact
from gpureduce.core.axis_on_device import Made, made_gpu
from gpureduce.core.device_array import DeviceArray
from gpureduce.core.moments import ELEMENT, MAGNITUDE, PRODUCT, RATIO, SQUARE, VARIANCE
from producers import on_device

FLOATS = ["float16", "bfloat16", "float32", "float64"]
RESULTS = {
    "mean": (Made(RATIO, False, ELEMENT, True), exact.mean),
    "var": (Made(VARIANCE, False, SQUARE, True), exact.var),
    "std": (Made(VARIANCE, True, SQUARE, True, 1.5), lambda a, axis: exact.std(a, axis, ddof=1.5)),
    "norm": (Made(RATIO, True, SQUARE, False), lambda a, axis: exact.norm(a, 2, axis)),
    "norm1": (Made(RATIO, False, MAGNITUDE, False), lambda a, axis: exact.norm(a, 1, axis)),
}
SHAPES = [(), (0, 3), (1, 1), (5, 0), (7, 33), (40, 128), (2, 3000), (300, 2), (515, 4), (700, 40),
          (200, 600), (3, 40, 50)]  # fmt: skip
FEW = [(1, 1), (7, 33), (2, 3000), (300, 2), (3, 4, 50)]  # most results are made in integers
LARGE = [(3, 200_000), (50_000, 3), (1003, 1000), (1, 1 << 20), (100_000, 17)]
# Powers of two that elements of hard arrays are scaled by: squares overflow and vanish.
SCALES = {"float16": 14, "bfloat16": 120, "float32": 120, "float64": 1000}


def normal(rng, shape, dtype):
    return rng.standard_normal(shape)


def near_each_other(rng, shape, dtype):
    return 100 + rng.standard_normal(shape) / 8


def equal(rng, shape, dtype):
    return np.full(shape, 1.1)


def ties(rng, shape, dtype):
    return rng.integers(-3, 4, shape).astype(float)


def of_all_sizes(rng, shape, dtype):
    scale = SCALES[dtype]
    return np.ldexp(rng.standard_normal(shape), rng.integers(-scale, scale, shape))


def special(rng, shape, dtype):
    x = of_all_sizes(rng, shape, dtype)
    some = rng.random(shape) < 0.01
    return np.where(some, rng.choice([np.inf, -np.inf, np.nan, -0.0], shape), x)


def few_bits(rng, shape, dtype):
    return rng.standard_normal(shape).astype(np.float32)


MAKERS = [normal, near_each_other, equal, ties, of_all_sizes, special]
# Usual elements of each dtype, and each hard kind of elements with two dtypes.
KINDS = [
    (d, m) for i, d in enumerate(FLOATS) for k, m in enumerate(MAKERS) if not (k and i + k & 1)
]
each_kind = pytest.mark.parametrize(
    ("dtype", "make"), KINDS, ids=lambda one: getattr(one, "__name__", one)
)


def made(rng, make, shape, dtype):
    with np.errstate(all="ignore"):
        return np.asarray(make(rng, shape, dtype)).astype(numpy_dtype(dtype))


def axes_of(x):
    return [None, *range(x.ndim), *([(0, x.ndim - 1)] if x.ndim > 1 else [])]


def assert_same(found, want):
    want = np.asarray(want)
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    assert found.tobytes() == want.tobytes()


@each_kind
def test_the_bits_of_the_host(dtype, make):
    rng = np.random.default_rng(1)
    for shape in SHAPES if make is normal else FEW:
        x = made(rng, make, shape, dtype)
        views = [x, *([x.T, x[::-1, ::2]] if x.ndim == 2 and x.size else [])]
        for number, view in enumerate(views):
            # All results of the array itself, and each of one of its views.
            results = [*RESULTS.values()][number % 2 :: 1 + (number > 0)]
            for axis in axes_of(view):
                for how, on_host in results:
                    there = made_gpu(on_device(view), how, axis, device="emulator")
                    assert isinstance(there, DeviceArray)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        want = on_host(view, axis)
                    assert_same(there.to_numpy(), want)


@pytest.mark.parametrize("make", MAKERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_products(dtype, make):
    how, rng = Made(RATIO, False, PRODUCT, False), np.random.default_rng(2)
    for shape in ((1,), (3000,), (7, 33), (300, 2), (3, 4, 50)):
        x, y = (made(rng, make, shape, dtype) for _ in range(2))
        for one, other in ((x, y), (x[::-1], y), (x, -x)):
            there = made_gpu(
                on_device(one), how, -1, other=on_device(other), device="emulator"
            ).to_numpy()
            assert_same(there, exact.vecdot(one, other))


@pytest.mark.parametrize("make", [normal, few_bits, special], ids=lambda one: one.__name__)
@pytest.mark.parametrize("dtype", FLOATS)
def test_products_of_rows_in_packs(dtype, make):
    how, rng = Made(RATIO, False, PRODUCT, False), np.random.default_rng(4)
    for rows, columns in ((1, 8), (70, 8), (33, 24), (9, 256), (5, 1024), (300, 64)):
        x, y = (made(rng, make, (rows + 1, columns + 8), dtype) for _ in range(2))
        alike = x[1:, 8:], y[1:, 8:]
        apart = x[:-1, 1:-7], y[:-1, 1:-7]  # rows begin between two packs
        for one, other in (alike, alike[::-1], apart, (alike[0], y[:-1, 8:])):
            there = made_gpu(on_device(one), how, -1, other=on_device(other), device="emulator")
            assert_same(there.to_numpy(), exact.vecdot(one, other))


def test_float64_numbers_of_few_bits():
    """Their variances are often halfway between two numbers."""
    rng = np.random.default_rng(5)
    for rows, columns in ((400, 2), (300, 8), (200, 33), (20, 400)):
        x = made(rng, few_bits, (rows, columns), "float64")
        for name in ("var", "std", "norm"):
            how, on_host = RESULTS[name]
            for view, axis in ((x, 1), (x.T.copy(), 0)):
                there = made_gpu(on_device(view), how, axis, device="emulator").to_numpy()
                assert_same(there, on_host(view, axis))


def test_a_tiny_square_decides_between_two_floats():
    how = RESULTS["norm"][0]
    for tiny, want in ((2.0**-600, 1 + 2.0**-10), (0, 1)):  # 1 + 2^-11 is a tie of float16
        x = np.full((40, 6), [1 + 2.0**-11, tiny, 0, 0, 0, 0])
        for one, axis in ((x, 1), (x.T.copy(), 0)):
            there = made_gpu(on_device(one), how, axis, "float16", device="emulator").to_numpy()
            assert_same(there, np.full(40, want, np.float16))


def test_float16_at_the_limits_of_short_sums():
    for n in (8191, 8192, 8193):
        x = np.full((n, 16), 65504, np.float16)
        x[::3], x[1::7, ::2] = 6e-8, -6e-5
        for name in ("mean", "var", "norm"):
            how, on_host = RESULTS[name]
            for view, axis in ((x, 0), (x.T.copy(), 1)):
                there = made_gpu(on_device(view), how, axis, device="emulator").to_numpy()
                assert_same(there, on_host(view, axis))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_blocks_share_groups_that_are_not_proven(dtype):
    rng = np.random.default_rng(3)
    for make in (equal, of_all_sizes):
        x = made(rng, make, (2, 70_000), dtype)
        for axis in (1, None):
            for name in ("mean", "var"):
                how, on_host = RESULTS[name]
                assert_same(
                    made_gpu(on_device(x), how, axis, device="emulator").to_numpy(),
                    on_host(x, axis),
                )


def test_dtype_out_and_keepdims():
    x = np.random.default_rng(4).standard_normal((30, 50)).astype(np.float32)
    how = RESULTS["var"][0]
    there = made_gpu(on_device(x), how, 0, "float64", keepdims=True, device="emulator")
    assert_same(there.to_numpy(), exact.var(x, 0, "float64", keepdims=True))
    wide = x + 1j * x[::-1]
    there = made_gpu(on_device(wide), RESULTS["mean"][0], 1, device="emulator")
    assert_same(there.to_numpy(), exact.mean(wide, 1))
    product = Made(RATIO, False, PRODUCT, False)
    for integers, name in ((np.arange(5), "int64"), (np.ones(5, bool), "bool")):
        with pytest.raises(TypeError, match=f"exact products do not take {name}: convert"):
            made_gpu(on_device(integers), product, 0, device="emulator")
    with pytest.raises(ValueError, match="no sum of this kind is made of this dtype"):
        made_gpu(on_device(wide), product, 0, device="emulator")
    with pytest.raises(ValueError, match="out or where has a shape or dtype"):
        made_gpu(on_device(x), product, 0, other=on_device(x[:5]), device="emulator")


def test_arguments_for_other_arrays_are_named():
    there = on_device(np.ones((3, 4), np.float32))
    with pytest.raises(TypeError, match="both arrays must have one type, dtype and shape"):
        exact.vecdot(there, on_device(np.ones((3, 4), np.float64)))
    with pytest.raises(TypeError, match="is on a GPU"):
        exact.dot(np.ones(4, np.float32), on_device(np.ones(4, np.float32)))


@pytest.mark.gpu
@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_short_for_the_sanitizer(dtype):
    cupy = pytest.importorskip("cupy")
    for make in (normal, special):
        x = made(np.random.default_rng(8), make, (7, 33), dtype)
        compare_all(cupy.asarray(x), x, 1)
        compare_all(cupy.asarray(x), x, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("make", MAKERS, ids=lambda one: one.__name__)
def test_on_the_card(dtype, make):
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(5)
    for shape in [(), (5, 0), (7, 33), (40, 128), (300, 2), (3, 40, 50), (700, 40)]:
        x = made(rng, make, shape, dtype)
        there = cupy.asarray(x)
        for axis in axes_of(x):
            compare_all(there, x, axis)
        if x.ndim:
            found = exact.vecdot(there, cupy.ascontiguousarray(there[::-1]))
            assert_same(cupy.asnumpy(found), exact.vecdot(x, x[::-1]))


def compare_all(there, x, axis):
    calls = {"mean": exact.mean, "var": exact.var, "std": exact.std, "norm": exact.norm}
    for name, function in calls.items():
        how = {"axis": axis, **({"ddof": 1} if name in ("var", "std") else {})}
        found = function(there, **how)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = function(x, **how)
        assert type(found) is type(there)
        assert_same(found.get(), want)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_large_arrays_on_the_card(dtype, shape):
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(6)
    for make in MAKERS:
        x = made(rng, make, shape, dtype)
        for axis in (None, 0, 1):
            compare_all(cupy.asarray(x), x, axis)


@pytest.mark.gpu
def test_torch_and_a_graph():
    torch = pytest.importorskip("torch")
    x = torch.randn(1000, 1000, device="cuda")
    out = torch.empty(1000, device="cuda")
    assert exact.var(x, 1, out=out) is out
    assert_same(exact.std(x.T, 1).cpu().numpy(), exact.std(x.cpu().numpy(), 0))
    half = x.to(torch.bfloat16)
    assert exact.mean(half, 0).dtype == torch.bfloat16
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        exact.var(x, 1, out=out)
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert_same(out.cpu().numpy(), exact.var(x.cpu().numpy(), 1))
    count, mean, var = exact.moments(x, 0)
    assert count == 1000
    assert_same(mean.cpu().numpy(), exact.mean(x.cpu().numpy(), 0))
    assert_same(var.cpu().numpy(), exact.var(x.cpu().numpy(), 0))


@pytest.mark.gpu
def test_a_hundred_thousand_of_each_on_the_card():
    """Rows of few elements, many of them hard: each result against the host's."""
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(7)
    for dtype in ("float16", "float32", "float64"):
        for make in (normal, ties, of_all_sizes, special):
            x = made(rng, make, (35_000, int(rng.integers(2, 9))), dtype)
            compare_all(cupy.asarray(x), x, 1)
