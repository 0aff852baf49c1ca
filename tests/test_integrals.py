"""Integrals: what the trapezoidal rule gives, on every strategy that can take samples."""

from __future__ import annotations

import itertools
import math
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce
from gpureduce import _backends, _registry, integrals

ABLE = [s.name for s in integrals._able() if not s.broken]
EXACT = {f.name: float(f.exact) for f in gpureduce.integrands()}


@pytest.fixture(scope="module")
def scipy_integrate():
    return pytest.importorskip("scipy.integrate")


def rule(f, n, a=None, b=None):
    """The trapezoidal sum itself, correctly rounded: a sum may differ by rounding only."""
    a, b = (f.interval[0] if a is None else a), (f.interval[1] if b is None else b)
    step = (b - a) / (n - 1)
    y = f([a, *(a + i * step for i in range(1, n - 1)), b])
    return step * math.fsum([0.5 * y[0], *y[1:-1], 0.5 * y[-1]])


def test_the_lectures_integral(scipy_integrate):
    (lecture,) = (f for f in gpureduce.integrands() if f.name == "lecture")
    assert lecture.exact == "-0.34702211863386324383" and lecture.interval == (-1.0, 1.0)
    found = scipy_integrate.quad(lecture, -1, 1, epsabs=1e-14)[0]
    assert found == pytest.approx(float(lecture.exact), abs=1e-14)
    g = lambda x: 2 + x * (-1 + x * (0.5 - 0.2 * x))  # noqa: E731
    for x in (-1.0, -0.3, 0.7, 1.0):
        assert lecture(x) == pytest.approx(math.sin(g(x)) + 2 * math.cos(g(x)), rel=1e-15)
    assert float(gpureduce.integrate("lecture")) == pytest.approx(EXACT["lecture"], abs=2e-10)


@pytest.mark.parametrize("f", gpureduce.integrands(), ids=lambda f: f.name)
def test_exact_values_are(scipy_integrate, f):
    points = [0.25] if f.name == "corner" else None
    found = scipy_integrate.quad(f, *f.interval, epsabs=1e-13, points=points)[0]
    assert found == pytest.approx(float(f.exact), abs=1e-12)
    assert f.lesson.endswith(".") and len(f.lesson) <= 100


@pytest.mark.parametrize("n", [2, 3, 33, 1000, 4099])
@pytest.mark.parametrize("strategy", ABLE)
def test_every_strategy_adds_up_the_same_samples(strategy, n):
    for f in gpureduce.integrands():
        value, timing = gpureduce.integrate(f, n=n, strategy=strategy)
        assert float(value) == pytest.approx(rule(f, n), rel=1e-13, abs=1e-13), f.name
        assert timing.n == n and timing.nbytes == 0


@pytest.mark.parametrize("finish", ["host", "relaunch"])
@pytest.mark.parametrize("block", [32, 96, 1024])
@pytest.mark.parametrize("strategy", ["global_tree", "unroll_full", "cascade", "vector_load"])
def test_blocks_and_finishes(strategy, block, finish):
    f = gpureduce.integrands()[0]
    value, timing = gpureduce.integrate(
        f, n=5001, strategy=strategy, block=block, finish=finish, device="emulator"
    )
    assert float(value) == pytest.approx(rule(f, 5001), rel=1e-13)
    assert (timing.block, timing.finish, timing.source) == (block, finish, "emulator")


@pytest.mark.parametrize("strategy", ["cpu", "numpy", "sequential", "tiles"])
def test_ends_weigh_half_once(strategy):
    """With two points only the ends count; reversed bounds change the sign."""
    value = gpureduce.integrate("pi", 0, 1, 2, strategy).value
    assert float(value) == 0.5 * (4 + 2)
    assert float(gpureduce.integrate("pi", 1, 0, 2, strategy)) == -3
    assert float(gpureduce.integrate("pi", 1, 1, 100, strategy)) == 0


@pytest.mark.parametrize("strategy", ABLE)
def test_float32(strategy):
    value = gpureduce.integrate("lecture", n=3000, strategy=strategy, dtype="float32").value
    assert value.dtype == np.float32
    assert float(value) == pytest.approx(EXACT["lecture"], abs=1e-5)


def test_error_falls_with_the_square_of_the_spacing():
    off = [abs(float(gpureduce.integrate("lecture", n=2**k + 1)) - EXACT["lecture"])
           for k in (4, 5, 6, 7)]  # fmt: skip
    for coarse, fine in itertools.pairwise(off):
        assert coarse / fine == pytest.approx(4, rel=0.05)
    assert abs(float(gpureduce.integrate("wave", n=40)) - EXACT["wave"]) < 1e-14


def test_one_tree_over_the_grid_goes_wrong_and_depends_on_the_order_of_blocks(monkeypatch):
    # One after the other: side by side, blocks may by luck come in an order that is right.
    monkeypatch.setenv("GPUREDUCE_THREADS", "1")
    off = {}
    right = float(gpureduce.integrate("lecture", n=4096))
    for order in ("forward", "reverse"):
        with gpureduce.emulator.schedule(order):
            off[order] = abs(
                float(gpureduce.integrate("lecture", n=4096, strategy="global_race",
                                          device="emulator", allow_broken=True)) - right
            )  # fmt: skip
    assert not off["forward"] <= 1e-3  # it may be nan: what nobody has written is poisoned
    assert off["reverse"] < 1e-12
    within = gpureduce.integrate("lecture", n=200, strategy="global_race", device="emulator",
                                 block=256, allow_broken=True)  # fmt: skip
    assert float(within) == pytest.approx(rule(gpureduce.integrands()[0], 200), rel=1e-13)


def test_results_do_not_depend_on_the_number_of_threads():
    n = 100_003
    one = integrals._emulator.cpu_sum_samples(0, -1.0, 1.0, n, integrals._emulator.ACC_F64, 1)[0]
    two = integrals._emulator.cpu_sum_samples(0, -1.0, 1.0, n, integrals._emulator.ACC_F64, 2)[0]
    assert one == two


def test_errors_name_what_would_be_right():
    integrate = gpureduce.integrate
    with pytest.raises(ValueError, match="no integrand 'cosine'; there are lecture, sine"):
        integrate("cosine")
    with pytest.raises(TypeError, match="trapezoid"):
        integrate(math.sin)
    with pytest.raises(ValueError, match="from 2"):
        integrate("pi", n=1)
    with pytest.raises(TypeError, match="integer"):
        integrate("pi", n=2.5)
    with pytest.raises(ValueError, match="finite"):
        integrate("pi", 0, math.inf)
    with pytest.raises(ValueError, match="b - a must be finite"):
        integrate("pi", -1e308, 1e308, n=11)
    with pytest.raises(TypeError, match="float64 or float32"):
        integrate("pi", dtype="int32")
    with pytest.raises(TypeError, match="there is no dtype ','"):
        integrate("pi", dtype=",")
    with pytest.raises(ValueError, match="samples of a function; global_tree"):
        integrate("pi", strategy="bulk_copy")
    with pytest.raises(ValueError, match="samples of a function"):
        integrate("pi", strategy="cub")
    with pytest.raises(ValueError, match="allow_broken"):
        integrate("pi", strategy="global_race")
    with pytest.raises(ValueError, match="block"):
        integrate("pi", strategy="sequential", block=33)
    for n in (2**36 + 64, 2**37 + 3200):
        with pytest.raises(ValueError, match="blocks, and a launch has at most 2147483647"):
            integrate("sine", n=n, strategy="sequential", block=32, device="emulator")
    with pytest.raises(ValueError, match="GPU kernel"):
        integrate("pi", strategy="sequential", device="cpu")
    assert float(integrate("pi", strategy="sequential")) == pytest.approx(math.pi)


def test_engine_refuses_what_is_not_compiled_for_samples():
    """The Python face asks first; the engine does not rely on it."""
    module, acc = integrals._emulator, integrals._emulator.ACC_F64
    for name in ("bulk_copy", "cub"):
        with pytest.raises(ValueError, match="samples of a function"):
            module.sum_samples(
                0, 0.0, 1.0, 100, acc, _registry.STRATEGIES[name].index, 0, 0, 0, 0, 0, 0, 0
            )
    with pytest.raises(ValueError, match="integrand"):
        module.sum_samples(99, 0.0, 1.0, 100, acc, 0, 0, 0, 0, 0, 0, 0, 0)


def test_measured_alone():
    ms, block, grid = integrals.measure("lecture", 4096, "sequential", 128, device="emulator",
                                        repeats=3)  # fmt: skip
    assert len(ms) == 3 and min(ms) > 0 and (block, grid) == (128, 32)
    ms, block, grid = integrals.measure("lecture", 4096, "cpu", repeats=2)
    assert len(ms) == 2 and block == grid == 0


# --- samples ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), max_size=40),
    st.sampled_from(["float64", "float32", "int32", "int8", "bool"]),
    st.floats(0.01, 10),
)
def test_trapezoid_agrees_with_scipy(scipy_integrate, values, dtype, dx):
    y = np.array(values)
    y = (
        (y > 0)
        if dtype == "bool"
        else (y % 100).astype(dtype)
        if dtype == "int8"
        else y.astype(dtype)
    )
    wanted = scipy_integrate.trapezoid(y.astype(float), dx=dx)
    close = 1e-5 if dtype == "float32" else 1e-12
    scale = float(np.abs(y.astype(float)).sum()) * dx + 1
    assert float(gpureduce.trapezoid(y, dx=dx)) == pytest.approx(wanted, abs=close * scale)
    x = np.cumsum(np.abs(np.array(values)) % 7)
    wanted = scipy_integrate.trapezoid(y.astype(float), x)
    assert float(gpureduce.trapezoid(y, x)) == pytest.approx(wanted, abs=7 * close * scale)


@pytest.mark.parametrize("strategy", ["numpy", "cpu", "sequential", "fast"])
def test_trapezoid_by_strategy(scipy_integrate, strategy):
    x = np.linspace(0, 3, 1001) ** 2
    y = np.exp(-x) * (1 + 1j)
    for part in (y.real, y.imag):
        result = gpureduce.trapezoid(part, x, strategy=strategy)
        assert float(result) == pytest.approx(scipy_integrate.trapezoid(part, x), rel=1e-13)
        assert result.timing.strategy
    if strategy != "sequential":
        whole = gpureduce.trapezoid(y, x, strategy=strategy)
        assert complex(whole) == pytest.approx(scipy_integrate.trapezoid(y, x), rel=1e-13)


def test_trapezoid_keeps_types_and_special_values():
    assert gpureduce.trapezoid(np.ones(5, np.float32)).value.dtype == np.float32
    assert gpureduce.trapezoid(np.ones(5, np.int8)).value == 4
    assert gpureduce.trapezoid([200] * 3).value == 400
    assert float(gpureduce.trapezoid([])) == 0 and float(gpureduce.trapezoid([7.0])) == 0
    assert float(gpureduce.trapezoid([math.inf, 1.0, 1.0])) == math.inf
    assert math.isnan(float(gpureduce.trapezoid([math.nan, 1.0])))


@pytest.mark.parametrize("strategy", ["auto", "numpy", "cpu"])
@pytest.mark.parametrize(
    ("source", "dtype"), [("f2", "f8"), ("f4", "f8"), ("f4", "c8"), ("f8", "f4"), ("c8", "c16")]
)
def test_trapezoid_computes_in_the_dtype_asked_for(strategy, source, dtype):
    for dx in (0.1, 1e-9):
        value = gpureduce.trapezoid(np.ones(1001, source), dx=dx, strategy=strategy, dtype=dtype)
        expected = value.value.dtype.type(dx) * value.value.dtype.type(1000)
        assert value.value.dtype == dtype and value.value == expected
        x = np.arange(1001, dtype=source)
        assert gpureduce.trapezoid(x * 0 + 1, x, strategy, dtype=dtype).value.dtype == dtype


def test_trapezoid_errors():
    with pytest.raises(ValueError, match="one-dimensional"):
        gpureduce.trapezoid(np.ones((2, 2)))
    with pytest.raises(ValueError, match="shape of y"):
        gpureduce.trapezoid([1.0, 2.0], [1.0])
    with pytest.raises(TypeError, match="numbers"):
        gpureduce.trapezoid(np.array(["a", "b"]))


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", [s for s in ABLE if s not in ("cpu", "numpy", "auto")])
def test_on_the_card(strategy):
    for f in gpureduce.integrands():
        value, timing = gpureduce.integrate(f, n=65536, strategy=strategy, device="cuda")
        assert float(value) == pytest.approx(rule(f, 65536), rel=1e-12), f.name
        assert timing.source == "cuda_event"


@pytest.mark.parametrize("strategy", ["auto", "cpu", "numpy", "sequential"])
@pytest.mark.parametrize("dtype", [">f8", ">f4", "<f8"])
def test_the_order_of_bytes_is_the_machines(strategy, dtype):
    found = gpureduce.integrate("pi", n=1001, dtype=dtype, strategy=strategy)
    assert float(found) == pytest.approx(math.pi, rel=1e-5)
    assert found.value.dtype.isnative


def test_the_processors_by_name_are_not_a_card(monkeypatch):
    card = types.SimpleNamespace(backend="cuda")
    monkeypatch.setattr(_backends, "devices", lambda: [card])
    found = gpureduce.integrate("pi", n=1001, device="cpu")
    assert found.timing.device == "cpu" and found.timing.strategy == "cpu"


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (np.array([-100, 100], "i1"), 200),
        (np.array([3, 2], "u1"), -1),
        (np.array([True, False]), -1),
        (np.array([2**64 - 1, 2**64 - 4], "u8"), -3),
        (np.array([2**63 - 1, 2**63 - 2]), -1),
    ],
)
def test_steps_between_whole_numbers_do_not_wrap_around(x, wanted):
    assert float(gpureduce.trapezoid(np.ones(2), x)) == wanted


def test_terms_are_as_wide_as_was_asked_for():
    y, x = np.full(3, 60000, "f2"), np.arange(3, dtype="f2")
    assert float(gpureduce.trapezoid(y, x, dtype="f8")) == 120000
    assert float(gpureduce.trapezoid(y, dtype="f8")) == 120000
    ends = np.array([-60000, 60000], "f2")
    assert float(gpureduce.trapezoid(np.ones(2, "f2"), ends)) == np.inf  # and warns of nothing
    assert float(gpureduce.trapezoid(np.ones(2, "f2"), ends, dtype="f8")) == 2 * float(ends[1])
