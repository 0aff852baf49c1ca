"""Running sums of arrays on a device have the bits of running sums of arrays in host memory."""

from __future__ import annotations

import numpy as np
import pytest
from test_exact_functions_on_device import FLOATS, MAKERS, assert_same, each_kind, made

from cases import numpy_dtype
from gpureduce import exact
from gpureduce.core import running_on_device
from producers import on_device

# Lines of up to 64 elements beside each other are short: threads take several of them.
# Tiles are of 8,192 elements of a line, or of 256 rows of 32 columns, and of half as many doubles.
# Stretches have 256 of them.
SHAPES = [(1,), (17,), (4096,), (4097,), (140_000,), (0, 3), (40, 7), (300, 64), (5000, 3),
          (130, 40), (3, 300, 33), (5, 4, 3, 2), (1, 5000), (3, 4096), (2, 70_000),
          (4200, 33), (2, 9001), (21, 500), (64, 140), (65, 100)]  # fmt: skip
FEW = [(1,), (5000,), (40, 7), (300, 2), (2, 140, 33), (4200, 2)]
OF_STRETCHES = [((2_400_000,), 0), ((70_000, 33), 0), ((700_000, 3), 1)]
INTEGERS = ["bool", "int8", "uint16", "int32", "uint32", "int64", "uint64"]


def on_emulator(x, axis, dtype=None, out=None, reverse=False, include_initial=False):
    there = running_on_device.cumsum(
        on_device(x), axis, dtype, out, reverse, include_initial, "emulator"
    )
    return there.to_numpy()


@each_kind
def test_the_bits_of_the_host(dtype, make):
    rng = np.random.default_rng(1)
    wide = dtype in ("float32", "float64")  # halves are added up as float32
    for number, shape in enumerate(SHAPES if wide and make is MAKERS[0] else FEW):
        x = made(rng, make, shape, dtype)
        strided = make is MAKERS[0] and x.ndim == 2 and x.size < 50_000
        views = [x, *([(x.T, x[::-1, ::2])[(number + FLOATS.index(dtype)) % 2]] if strided else [])]
        for view in views:
            for axis in range(x.ndim):
                assert_same(on_emulator(view, axis), exact.cumsum(view, axis))


@pytest.mark.parametrize(
    ("dtype", "make"), [("float16", MAKERS[1]), ("float32", MAKERS[0]), ("float64", MAKERS[1])]
)
def test_more_tiles_than_a_stretch_has(dtype, make):
    for shape, axis in OF_STRETCHES:
        x = made(np.random.default_rng(7), make, shape, dtype)
        assert_same(on_emulator(x, axis), exact.cumsum(x, axis))


@pytest.mark.parametrize("shape", [(1,), (0,), (4097,), (1, 4), (4, 1), (7, 33), (300, 64), (0, 3)])
def test_backwards_and_from_zero(shape):
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    for axis in range(len(shape)):
        for how in ({"reverse": True}, {"include_initial": True},
                    {"reverse": True, "include_initial": True}):  # fmt: skip
            assert_same(on_emulator(x, axis, **how), exact.cumsum(x, axis, **how))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_those_of_numpy(dtype):
    x = np.random.default_rng(3).integers(0, 2 if dtype == "bool" else 120, (300, 33))
    for axis in (0, 1):
        assert_same(on_emulator(x.astype(dtype), axis), np.cumsum(x.astype(dtype), axis))


def test_complex_numbers_and_other_results():
    rng = np.random.default_rng(4)
    x = (rng.standard_normal((50, 60)) + 1j * rng.standard_normal((50, 60))).astype(np.complex64)
    for axis in (0, 1):
        assert_same(on_emulator(x, axis), exact.cumsum(x, axis))
    for dtype in ("float64", "float16"):
        assert_same(on_emulator(x.real, 1, dtype), exact.cumsum(x.real, 1, dtype))
    with pytest.raises(ValueError, match="axis"):
        on_emulator(x, 2)
    with pytest.raises(TypeError, match="has no reshape"):
        on_emulator(x, None)
    with pytest.raises(TypeError, match="would lose part of complex64"):
        on_emulator(x, 0, "float32")


@pytest.mark.gpu
@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_short_for_the_sanitizer(dtype):
    cupy = pytest.importorskip("cupy")
    for make in (MAKERS[0], MAKERS[-1]):
        for shape in ((9000,), (300, 33), (70, 64)):
            x = made(np.random.default_rng(5), make, shape, dtype)
            for axis in range(x.ndim):
                assert_same(exact.cumsum(cupy.asarray(x), axis).get(), exact.cumsum(x, axis))


@pytest.mark.gpu
@pytest.mark.parametrize("make", MAKERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_on_the_card(dtype, make):
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(6)
    for shape in [
        *SHAPES,
        (1 << 22,),
        (1 << 15, 64),
        (64, 1 << 15),
        (1 << 19, 3),
        *(shape for shape, _ in OF_STRETCHES),
    ]:
        x = made(rng, make, shape, dtype)
        there = cupy.asarray(x)
        for axis in (None, *range(x.ndim)):
            found = exact.cumsum(there, axis)
            assert type(found) is type(there)
            assert_same(found.get(), exact.cumsum(x, axis))
    out = cupy.empty(x.shape, numpy_dtype(dtype))
    assert exact.cumsum(there, 0, out=out, reverse=True) is out
    assert_same(out.get(), exact.cumsum(x, 0, reverse=True))
