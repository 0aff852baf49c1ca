"""Sums while other code in the process has told the processor to round or to flush otherwise."""

from __future__ import annotations

import contextlib
import ctypes
import platform

import numpy as np
import pytest

import gpureduce
from gpureduce import exact

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
    reason="where the settings lie in fenv_t is known of glibc on x86-64",
)

FLUSHED, DOWN, UP = 0x8040, 0x2000, 0x4000  # of the register MXCSR
MXCSR = 28  # where it lies


@contextlib.contextmanager
def arithmetic(settings):
    libm = ctypes.CDLL("libm.so.6")
    before, changed = (ctypes.create_string_buffer(32) for _ in range(2))
    for environment in (before, changed):
        assert libm.fegetenv(environment) == 0
    found = ctypes.c_uint32.from_buffer(changed, MXCSR)
    found.value |= settings
    assert libm.fesetenv(changed) == 0
    try:
        yield
    finally:
        assert libm.fesetenv(before) == 0


def test_the_settings_take_effect():
    tiny, third = np.float64(5e-324), np.float64(3.0)
    with arithmetic(FLUSHED):
        assert tiny + tiny == 0
    with arithmetic(UP):
        up = 1 / third
    assert tiny + tiny > 0 and 1 / third < up


@pytest.mark.parametrize("settings", [FLUSHED, DOWN, UP])
def test_means_variances_and_products(settings):
    rng = np.random.default_rng(2)
    functions = exact.mean, exact.var, exact.std, exact.norm, exact.vecdot
    for x in (rng.standard_normal((300, 33)), rng.standard_normal((9, 5)) * 1e-170,
              np.array([[1e200, 1.0, 1e-200]])):  # fmt: skip
        for dtype in ("float16", "float32", "float64"):
            with np.errstate(all="ignore"):
                elements = x.astype(dtype)
            for function in functions:
                arguments = (elements, elements)[: 1 + (function is exact.vecdot)]
                want = function(*arguments, axis=1).tobytes()
                with arithmetic(settings):
                    found = function(*arguments, axis=1).tobytes()
                assert found == want


def numbers(dtype, kind):
    if kind == "tiny":
        return np.full(3 * 2**16, np.finfo(dtype).smallest_subnormal)
    return np.random.default_rng(1).standard_normal(3 * 2**16 + 1).astype(dtype)


@pytest.mark.parametrize("settings", [FLUSHED, DOWN, UP])
@pytest.mark.parametrize(
    ("dtype", "kind"), [("float16", "tiny"), ("float32", "normal"), ("float64", "tiny")]
)
@pytest.mark.parametrize(
    ("strategy", "device"),
    [
        ("exact", "cpu"),
        ("exact", "emulator"),
        ("cpu", None),
        ("last_block", "emulator"),
        ("sequential", "emulator"),
    ],
)
def test_sums_do_not_depend_on_the_settings(strategy, device, dtype, kind, settings):
    array = numbers(dtype, kind)

    def add(finish):
        more = {"finish": finish} if finish else {}
        return gpureduce.sum(array, strategy, device=device, **more).value

    for finish in (None, "host") if strategy == "sequential" else (None,):
        plain = add(finish)
        with arithmetic(settings):
            other = add(finish)
        assert plain.tobytes() == other.tobytes()


@pytest.mark.parametrize("settings", [FLUSHED, DOWN, UP])
@pytest.mark.parametrize(
    ("dtype", "kind"), [("float16", "normal"), ("float32", "tiny"), ("float64", "normal")]
)
@pytest.mark.parametrize("strategy", ["exact", "cpu"])
def test_sums_along_axes_do_not_depend_on_the_settings(strategy, dtype, kind, settings):
    array = numbers(dtype, kind)[: 3 * 2**16]
    for columns in (3, 16, 64, 1000, 3 * 2**14):
        matrix = array[: array.size // columns * columns].reshape(-1, columns)
        for axis in (0, 1):
            plain = gpureduce.sum(matrix, strategy, axis=axis).value
            with arithmetic(settings):
                other = gpureduce.sum(matrix, strategy, axis=axis).value
            assert plain.tobytes() == other.tobytes()


def test_threads_agree_on_the_settings(monkeypatch):
    array = np.full(2**21, 1e-309)
    with arithmetic(FLUSHED):
        sums = {float(gpureduce.sum(array, "cpu", timing=False).value) for _ in range(20)}
        monkeypatch.setenv("GPUREDUCE_THREADS", "1")
        sums.add(float(gpureduce.sum(array, "cpu", timing=False).value))
    assert sums == {float(gpureduce.sum(array, "cpu").value)} != {0.0}


def test_threads_agree_on_samples(monkeypatch):
    """Python rounds its part of the integral in the program's rounding mode."""
    found = set()
    with arithmetic(DOWN):
        for threads in ("1", "2") * 5:
            monkeypatch.setenv("GPUREDUCE_THREADS", threads)
            found.add(gpureduce.integrate("pi", n=2_000_001, strategy="cpu").value)
    assert len(found) == 1
