"""Parts of arrays on a device: masks, nans, weights and given means. The bits are the host's."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
from test_exact_functions_on_device import FLOATS, MAKERS, axes_of, each_kind, made, normal

from cases import numpy_dtype
from gpureduce import exact
from gpureduce.core import device_results, devices, gpu_arrays
from gpureduce.core.device_array import DeviceArray
from producers import LIBRARY, ByDLPack, OfLibrary, on_device

SHAPES = [(), (0, 3), (5, 0), (1, 1), (3000,), (7, 33), (300, 2), (3, 4, 50)]
FEW = [(1, 1), (7, 33), (40, 2)]
MASKED = {
    "mean": (exact.mean, {}),
    "var": (exact.var, {"ddof": 1}),
    "std": (exact.std, {"ddof": 1.5}),
    "of a mean": (exact.var, {"mean": 0.25, "ddof": 1}),
}
NAN = {
    "nansum": (exact.nansum, {}),
    "nanmean": (exact.nanmean, {}),
    "nanvar": (exact.nanvar, {"ddof": 2}),
    "nanstd": (exact.nanstd, {}),
}
INTEGERS = ["bool", "int8", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.fixture(autouse=True)
def emulator(request, monkeypatch):
    """Arrays that say they lie on a GPU are on the emulator's."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(gpu_arrays, "_module", devices.emulator)
        known = device_results.namespace_of
        monkeypatch.setattr(device_results, "namespace_of",
                            lambda kind: LIBRARY if kind is OfLibrary else known(kind))  # fmt: skip


def on_host(found):
    if isinstance(found, DeviceArray):
        return found.to_numpy()
    if isinstance(found, OfLibrary):
        return found.array
    if hasattr(found, "get"):
        return found.get()
    if hasattr(found, "cpu"):
        return found.cpu().numpy()
    return np.asarray(found)


def compare(function, there, here, *args, **how):
    """`how` has pairs of an argument on the device and one on the host."""
    ways = [{k: v[i] if isinstance(v, tuple) else v for k, v in how.items()} for i in (0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = np.asarray(function(here, *args, **ways[1]))
    found = on_host(function(there, *args, **ways[0]))
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    assert found.tobytes() == want.tobytes()


def masks_for(rng, shape):
    some = np.asarray(rng.random(shape) < 0.6)
    yield some
    if len(shape) == 2 and some.size:
        some = some.copy()
        some[0], some[:, -1] = False, False  # groups without elements
        yield some
        yield np.broadcast_to(some[:1], shape)


def views_of(x):
    return [x, *([x.T, x[::-1, ::2]] if x.ndim == 2 and x.size else [])]


@each_kind
def test_where(dtype, make):
    rng = np.random.default_rng(1)
    for shape in SHAPES if make is MAKERS[0] else FEW:
        for x in views_of(made(rng, make, shape, dtype)):
            # Each mask and axis has half of the functions, and the other half of the next dtype.
            for number, mask in enumerate(masks_for(rng, x.shape), FLOATS.index(dtype)):
                there = on_device(x), on_device(mask)
                for k, axis in enumerate(axes_of(x), number):
                    for function, how in [*MASKED.values()][k % 2 :: 2]:
                        compare(function, there[0], x, axis, where=(there[1], mask), **how)


@each_kind
def test_nans_are_left_out(dtype, make):
    rng = np.random.default_rng(2)
    for shape in SHAPES if make is MAKERS[0] else FEW:
        x = made(rng, make, shape, dtype)
        x = np.where(rng.random(shape) < 0.3, numpy_dtype(dtype).type(np.nan), x)
        if x.ndim == 2 and x.size:
            x[:, 0] = np.nan
        for view in views_of(x):
            for axis in axes_of(view):
                for function, how in NAN.values():
                    compare(function, OfLibrary(view), view, axis, **how)
                if axis is None or type(axis) is int:
                    compare(exact.nancumsum, OfLibrary(view), view, axis, reverse=True)
            compare(exact.count_nonzero, OfLibrary(view), view, 0 if view.ndim else None)


def test_where_beside_nans_and_results_in_out():
    rng = np.random.default_rng(3)
    x = made(rng, MAKERS[-1], (30, 40), "float32")
    mask = rng.random((1, 40)) < 0.5
    there = OfLibrary(x), OfLibrary(mask)
    for keepdims in (False, True):
        how = {"where": (there[1], mask), "keepdims": keepdims}
        compare(exact.nanmean, there[0], x, 1, dtype="float64", **how)
        compare(exact.nanstd, there[0], x, 0, **how)
        compare(exact.nansum, there[0], x, 0, **how)
    out = OfLibrary(np.empty(30, np.float32))
    assert exact.nanvar(there[0], 1, out=out) is out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert out.array.tobytes() == exact.nanvar(x, 1).tobytes()
    count, mean, var = exact.moments(there[0], 1, where=there[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = exact.moments(x, 1, where=mask)
    assert (count.to_numpy() == want.count).all()
    assert mean.to_numpy().tobytes() == want.mean.tobytes()
    assert var.to_numpy().tobytes() == want.var.tobytes()


@each_kind
def test_given_means(dtype, make):
    rng = np.random.default_rng(4)
    for shape in [(7, 33), (300, 2), (3, 4, 50), (0, 3)] if make is MAKERS[0] else FEW:
        for x in views_of(made(rng, make, shape, dtype)):
            for number, axis in enumerate(axes_of(x), FLOATS.index(dtype)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    mean = np.asarray(exact.mean(np.abs(x), axis, keepdims=True))
                    mean = mean * x.dtype.type(0.75)
                means = (mean, mean.astype(np.float64) + 1e-9, rng.standard_normal(mean.shape))
                for k, m in enumerate(means, number):
                    function, ddof = ((exact.var, 0), (exact.std, 1))[k % 2]
                    compare(function, on_device(x), x, axis, mean=(on_device(m), m), ddof=ddof)
                for m in (0, 0.1, np.inf, -1e300, np.nan)[number % 2 :: 2]:
                    compare(exact.var, on_device(x), x, axis, mean=m, keepdims=True)


@each_kind
def test_weights(dtype, make):
    rng = np.random.default_rng(5)
    for shape in [(3000,), (7, 33), (300, 2), (3, 4, 50)]:
        x, w = made(rng, make, shape, dtype), made(rng, MAKERS[0], shape, dtype)
        for axis in axes_of(x):
            with contextlib.suppress(ZeroDivisionError):  # on the host
                compare(exact.average, OfLibrary(x), x, axis, weights=(OfLibrary(w), w))
        one = w[..., 0, :] if w.ndim > 1 else w
        one = one[0] if one.ndim > 1 else one
        compare(exact.average, OfLibrary(x), x, -1, weights=(OfLibrary(one), one), keepdims=True)
    w = np.abs(w) + w.dtype.type(0.5)
    found, scale = exact.average(OfLibrary(x), 0, OfLibrary(w), returned=True)
    want = exact.average(x, 0, w, returned=True)
    assert scale.to_numpy().tobytes() == want[1].tobytes()
    assert found.to_numpy().tobytes() == want[0].tobytes()
    w[...] = 0
    assert not np.isfinite(exact.average(OfLibrary(np.abs(x)), 0, OfLibrary(w)).to_numpy()).any()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    rng = np.random.default_rng(6)
    info = np.iinfo(dtype) if dtype != "bool" else None
    for shape in [(), (0, 3), (7, 33), (300, 2), (3, 4, 50)]:
        x = (
            rng.integers(info.min, info.max, shape, dtype, True)
            if info
            else rng.random(shape) < 0.5
        )
        x = np.asarray(x)
        for view in views_of(x):
            mask = np.asarray(rng.random(view.shape) < 0.7)
            for axis in axes_of(view):
                for function, how in MASKED.values():
                    compare(function, on_device(view), view, axis, **how)
                    compare(function, on_device(view), view, axis,
                            where=(on_device(mask), mask), **how)  # fmt: skip
                if dtype != "bool":
                    compare(exact.norm, on_device(view), view, 2, axis)
                    compare(exact.norm, on_device(view), view, 1, axis)


@pytest.mark.parametrize("dtype", FLOATS)
def test_norms_of_order_inf(dtype):
    rng = np.random.default_rng(10)
    for shape in [(), (0, 3), (7, 33), (3, 4, 5)]:
        x = made(rng, MAKERS[-1], shape, dtype)
        for axis in axes_of(x):
            for keepdims in (False, True):
                compare(exact.norm, OfLibrary(x), x, np.inf, axis, keepdims)


def test_complex_numbers():
    rng = np.random.default_rng(7)
    for dtype in ("complex64", "complex128"):
        x = (rng.standard_normal((30, 40)) + 1j * rng.standard_normal((30, 40))).astype(dtype)
        x[rng.random(x.shape) < 0.2] = np.nan
        mask = rng.random(x.shape) < 0.7
        for axis in (None, 0, 1):
            compare(exact.mean, on_device(x), x, axis, where=(on_device(mask), mask))
            compare(exact.nanmean, OfLibrary(x), x, axis)
            compare(exact.nansum, OfLibrary(x), x, axis)
            compare(exact.nancumsum, OfLibrary(x), x, axis)
        for shape in [(), (0, 3), (5, 7), (200, 2), (3, 4, 50)]:
            part = "float32" if dtype == "complex64" else "float64"
            y = made(rng, MAKERS[4], shape, part)
            y = np.asarray(y + 1j * y.reshape(-1)[::-1].reshape(shape))
            mask = np.asarray(rng.random(shape) < 0.7)
            for view, some in zip(views_of(y), views_of(mask), strict=True):
                for axis in axes_of(view):
                    compare(exact.norm, on_device(view), view, 2, axis)
                    compare(exact.std, on_device(view), view, axis, ddof=0.5)
                    compare(exact.var, on_device(view), view, axis,
                            where=(on_device(some), some))  # fmt: skip
            compare(exact.nanvar, OfLibrary(y), y, None, ddof=1)
            compare(exact.var, on_device(y), y, None, "float32")


@pytest.mark.parametrize("few", [np.float16, np.float32])
def test_float64_numbers_of_few_bits(few):
    """Sums of their products are often just between two floats: three numbers prove that."""
    rng = np.random.default_rng(11)
    for shape in [(3000, 16), (300, 256)]:
        x, y = (rng.standard_normal(shape).astype(few).astype(np.float64) for _ in range(2))
        here = on_host(exact.vecdot(on_device(x), on_device(y)))
        assert here.tobytes() == exact.vecdot(x, y).tobytes()
        y = np.abs(y) + 1
        compare(exact.average, on_device(x), x, 1, weights=(on_device(y), y))


@pytest.mark.parametrize(("make", "dtype"), [
    pytest.param(make, dtype, marks=() if make is normal or i % 2 == j else pytest.mark.slow)
    for i, make in enumerate(MAKERS) for j, dtype in enumerate(["float32", "float64"])
])  # fmt: skip
def test_variances_of_complex_numbers(make, dtype):
    rng = np.random.default_rng(8)
    many = [(2, 3000), (300, 40)] if make is normal else [(2, 600), (60, 8)]
    for shape in ((1, 1), (7, 33), *many, (40, 1), (5, 4, 3, 2)):
        parts = [made(rng, make, shape, dtype) for _ in range(2)]
        x = np.zeros(shape, "complex64" if dtype == "float32" else "complex128")
        x.real, x.imag = parts
        for view in [*views_of(x), np.broadcast_to(x, (2, *shape)), x.transpose()]:
            axes = [*axes_of(view), *([(0, 2), (1, 3), (3, 0, 1)] if view.ndim == 4 else [])]
            for axis in axes:
                compare(exact.var, on_device(view), view, axis, ddof=1)
        out = np.zeros((shape[0], 2), dtype)[:, 0]
        if x.ndim == 2:
            exact.std(on_device(x), 1, out=on_device(out))
            assert out.tobytes() == exact.std(x, 1).tobytes()


@pytest.mark.parametrize("make", MAKERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize(("dtype", "part"), [("complex64", "float32"), ("complex128", "float64")])
def test_products_of_complex_numbers(dtype, part, make):
    rng = np.random.default_rng(3)
    for shape in ((1,), (0,), (3000,), (7, 33), (300, 2), (2, 3, 50)):
        both = [np.empty(shape, dtype) for _ in range(2)]
        for one in both:
            one.real, one.imag = (made(rng, make, shape, part) for _ in range(2))
        x, y = both
        wide = np.broadcast_to(x[..., :1], shape)
        for one, other in ((x, y), (x[..., ::-1], y), (wide, y.copy("F")), (x.T, y.T)):
            for axis in range(one.ndim):
                there = exact.vecdot(on_device(one), on_device(other), axis)
                assert on_host(there).tobytes() == exact.vecdot(one, other, axis).tobytes()
        if x.ndim == 1:
            there = exact.vecdot(ByDLPack(x), ByDLPack(y))  # which has no dtype of its own
            assert on_host(there).tobytes() == exact.vecdot(x, y).tobytes()
            found = on_host(exact.dot(on_device(x), on_device(y)))
            assert found.tobytes() == exact.dot(x, y).tobytes()


@pytest.mark.parametrize("n", [2**21 + 3, 2**22 + 3])
def test_more_products_of_complex_numbers_than_one_launch_takes(n):
    x = np.broadcast_to(np.array([1 + 2j], np.complex64), (n,))
    assert on_host(exact.vecdot(on_device(x), on_device(x))) == 5 * n
    assert on_host(exact.dot(on_device(x), on_device(x))) == np.complex64((-3 + 4j) * n)


def test_errors():
    x = np.ones((3, 4), np.float32)
    there, own, ints = on_device(x), OfLibrary(x), OfLibrary(np.arange(3))
    cases = [
        (lambda: exact.nanmean(there, 0), TypeError, "compare the elements, which"),
        (lambda: exact.nancumsum(there, 0), TypeError, "a library that gpureduce does not know"),
        (lambda: exact.mean(there, where=x > 0), TypeError, "same GPU"),
        (lambda: exact.mean(there, where=there), TypeError, "array of booleans"),
        (lambda: exact.mean(own, where=OfLibrary(x[:, :3] > 0)), ValueError, "does not broadcast"),
        (lambda: exact.var(there, 0, mean=x[:1]), TypeError, "on the same GPU as the data"),
        (lambda: exact.var(there, 0, mean=2**60 + 1), ValueError, "float64 holds"),
        (lambda: exact.var(there, 0, mean=on_device(x[0])), ValueError, "it must have"),
        (lambda: exact.average(on_device(x + 1j), 0, there), TypeError, "takes real numbers"),
        (lambda: exact.average(there, 0, x[0]), ValueError, "weights must lie on"),
        (lambda: exact.average(there, 0, on_device(x.astype("f8"))), TypeError, "one type, dtype"),
        (lambda: exact.average(ints, 0, ints), TypeError, "averages do not take int64"),
        (lambda: exact.var(on_device(x + 1j), mean=1), TypeError, "real and imaginary parts"),
        (lambda: exact.var(on_device(x + 1j), dtype="c8"), TypeError, "must be a real dtype"),
    ]  # fmt: skip
    for call, error, words in cases:
        with pytest.raises(error, match=words):
            call()


def card_arrays(library, x):
    if library == "cupy":
        return pytest.importorskip("cupy").asarray(x)
    return pytest.importorskip("torch").from_numpy(np.array(x)).cuda()


def test_results_of_jax_are_waited_for():
    waited = []
    like = type("ArrayImpl", (), {"block_until_ready": lambda self: waited.append(self)})
    one = like()
    assert device_results.awaited(one, like) is one and not waited
    like.__module__ = "jaxlib._jax"
    assert device_results.awaited(one, like) is one and waited == [one]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("make", MAKERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("library", ["cupy", pytest.param("torch", marks=pytest.mark.sanitizer)])
def test_on_the_card(library, make, dtype):
    rng = np.random.default_rng(8)
    for shape in [(5, 0), (7, 33), (40, 128), (300, 2), (3, 4, 50), (700, 40)]:
        x, w = made(rng, make, shape, dtype), made(rng, MAKERS[0], shape, dtype)
        x = np.where(rng.random(shape) < 0.2, x.dtype.type(np.nan), x)
        mask = rng.random(shape) < 0.6
        there, on, weights = (card_arrays(library, one) for one in (x, mask, w))
        for axis in axes_of(x):
            for function, how in MASKED.values():
                compare(function, there, x, axis, where=(on, mask), **how)
            for function, how in NAN.values():
                compare(function, there, x, axis, **how)
            compare(exact.nanmean, there, x, axis, where=(on, mask))
            if axis is None or type(axis) is int:
                compare(exact.nancumsum, there, x, axis)
            mean = rng.standard_normal(np.any(x, axis, keepdims=True).shape)
            compare(exact.var, there, x, axis, mean=(card_arrays(library, mean), mean))
            with contextlib.suppress(ZeroDivisionError):
                compare(exact.average, there, x, axis, weights=(weights, w))
        compare(exact.count_nonzero, there, x, 0)
        compare(exact.norm, there, x, np.inf, 0)
        if dtype != "float16":
            z = x + 1j * w
            compare(exact.norm, card_arrays(library, z), z, 2, 0)


@pytest.mark.gpu
def test_large_arrays_on_the_card():
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(9)
    for shape in [(3, 200_000), (50_000, 3), (1003, 1000), (1, 1 << 20)]:
        x = made(rng, MAKERS[0], shape, "float32")
        x[rng.random(shape) < 0.1] = np.nan
        for axis in (None, 0, 1):
            for function, how in NAN.values():
                compare(function, cupy.asarray(x), x, axis, **how)
            w = rng.random(shape[1], np.float32)
        compare(exact.average, cupy.asarray(x), x, 1, weights=(cupy.asarray(w), w))
        k = rng.integers(-(2**31), 2**31, shape, np.int32)
        compare(exact.std, cupy.asarray(k), k, 0)


@pytest.mark.gpu
def test_a_graph_and_out_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.randn(1000, 500, device="cuda")
    mask, out = torch.rand(1, 500, device="cuda") < 0.5, torch.empty(1000, device="cuda")
    assert exact.var(x, 1, out=out, where=mask) is out
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        exact.nanmean(x, 1, out=out, where=mask)
    x.normal_()
    x[0, 0] = np.nan
    graph.replay()
    torch.cuda.synchronize()
    want = exact.nanmean(x.cpu().numpy(), 1, where=mask.cpu().numpy())
    assert out.cpu().numpy().tobytes() == want.tobytes()
    half, kept = x.to(torch.bfloat16), mask.expand(1000, 500)
    found = exact.nanstd(half, 0, where=kept)
    assert found.dtype == torch.bfloat16
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):  # of masked columns
        want = exact.nanstd(half.cpu(), 0, where=kept.cpu().numpy())
    assert found.cpu().view(torch.int16).numpy().tobytes() == np.asarray(want).tobytes()


@pytest.mark.gpu
def test_jax():
    jax = pytest.importorskip("jax")
    x = np.random.default_rng(11).standard_normal((300, 40)).astype(np.float32)
    x[x > 1] = np.nan
    there, ids = jax.device_put(x), np.arange(300) % 7
    for function in (exact.nanmean, exact.nanstd, exact.nansum, exact.nancumsum):
        compare(function, there, x, 0)
    compare(exact.rolling_var, there, x, 5, 0, min_periods=2)
    compare(exact.segment_mean, there, x, segment_ids=(jax.device_put(ids), ids))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["complex64", "complex128", "int64", "uint64"])
def test_complex_numbers_and_wide_integers_on_the_card(dtype):
    cupy, rng = pytest.importorskip("cupy"), np.random.default_rng(12)
    for shape in [(5, 0), (7, 33), (40, 3000), (3000, 40), (1 << 19,)]:
        x = rng.integers(0, 1 << 63, shape).astype(dtype)
        if "complex" in dtype:
            x = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
        for axis in axes_of(x):
            for function in (exact.mean, exact.var, exact.std):
                compare(function, cupy.asarray(x), x, axis)
            compare(exact.norm, cupy.asarray(x), x, 2, axis)
