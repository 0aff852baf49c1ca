"""Integrals: what the trapezoidal rule gives, on every strategy that can take samples."""

from __future__ import annotations

import fractions
import itertools
import math
import types

import ml_dtypes
import numpy as np
import pytest
import scipy.integrate
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce
from gpureduce.core import devices, integrals, trapezoid

ABLE = [s.name for s in integrals._able() if not s.broken]
EXACT = {f.name: float(f.exact) for f in gpureduce.integrands()}


def rule(f, n, a=None, b=None):
    """The trapezoidal sum itself, correctly rounded: a sum may differ by rounding only."""
    a, b = (f.interval[0] if a is None else a), (f.interval[1] if b is None else b)
    step = (b - a) / (n - 1)
    y = f([a, *(a + i * step for i in range(1, n - 1)), b])
    return step * math.fsum([0.5 * y[0], *y[1:-1], 0.5 * y[-1]])


def test_the_lectures_integral():
    (lecture,) = (f for f in gpureduce.integrands() if f.name == "lecture")
    assert lecture.exact == "-0.34702211863386324383" and lecture.interval == (-1.0, 1.0)
    found = scipy.integrate.quad(lecture, -1, 1, epsabs=1e-14)[0]
    assert found == pytest.approx(float(lecture.exact), abs=1e-14)
    g = lambda x: 2 + x * (-1 + x * (0.5 - 0.2 * x))  # noqa: E731
    for x in (-1.0, -0.3, 0.7, 1.0):
        assert lecture(x) == pytest.approx(math.sin(g(x)) + 2 * math.cos(g(x)), rel=1e-15)
    assert float(gpureduce.integrate("lecture")) == pytest.approx(EXACT["lecture"], abs=2e-10)


@pytest.mark.parametrize("f", gpureduce.integrands(), ids=lambda f: f.name)
def test_exact_values_are(f):
    points = [0.25] if f.name == "corner" else None
    found = scipy.integrate.quad(f, *f.interval, epsabs=1e-13, points=points)[0]
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


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (("cosines",), {}, ValueError, "'cosines': did you mean sine\\? There are lecture, sine"),
        ((math.sin,), {}, TypeError, "trapezoid"),
        (("pi",), {"n": 1}, ValueError, "from 2"),
        (("pi",), {"n": 2.5}, TypeError, "n must be a whole number"),
        (("pi", 0, math.inf), {}, ValueError, "finite"),
        (("pi", -1e308, 1e308), {"n": 11}, ValueError, "b - a must be finite"),
        (("pi",), {"dtype": "int32"}, TypeError, "float64 or float32"),
        (("pi",), {"dtype": ","}, TypeError, "there is no dtype ','"),
        (("pi",), {"strategy": "bulk_copy"}, ValueError, "cannot integrate functions; global_tree"),
        (("pi",), {"strategy": "cub"}, ValueError, "cannot integrate functions"),
        (("pi",), {"strategy": "global_race"}, ValueError, "allow_broken"),
        (("pi",), {"strategy": "sequential", "block": 33}, ValueError, "block"),
        (("pi",), {"strategy": "sequential", "device": "cpu"}, ValueError, "GPU kernel"),
    ],
)
def test_errors_of_integrate(arguments, options, error, words):
    with pytest.raises(error, match=words):
        gpureduce.integrate(*arguments, **options)
    assert float(gpureduce.integrate("pi", n=101, strategy="sequential")) == pytest.approx(
        math.pi, abs=1e-4
    )


@pytest.mark.parametrize("strategy", ["sequential", "last_block"])
def test_samples_of_several_launches(strategy):
    """So that Ctrl-C is heard between two of them; the last one has a few samples only."""
    n = 2**23 + 1001
    value, timing = gpureduce.integrate("pi", n=n, strategy=strategy, device="emulator")
    assert float(value) == pytest.approx(math.pi, rel=1e-13) and timing.n == n
    whole = gpureduce.integrate("pi", n=2**16, strategy=strategy, device="emulator").timing
    assert timing.launches > whole.launches


def test_measured_alone():
    ms, block, grid = integrals.measure("lecture", 4096, "sequential", 128, device="emulator",
                                        repeats=3)  # fmt: skip
    assert len(ms) == 3 and min(ms) > 0 and (block, grid) == (128, 32)
    ms, block, grid = integrals.measure("lecture", 4096, "cpu", repeats=2)
    assert len(ms) == 2 and block is grid is None


# --- samples ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), max_size=40),
    st.sampled_from(["float64", "float32", "int32", "int8", "bool"]),
    st.floats(0.01, 10),
)
def test_trapezoid_agrees_with_scipy(values, dtype, dx):
    y = np.array(values)
    y = y > 0 if dtype == "bool" else (y % 100 if dtype == "int8" else y).astype(dtype)
    wanted = scipy.integrate.trapezoid(y.astype(float), dx=dx)
    close = 1e-5 if dtype == "float32" else 1e-12
    scale = float(np.abs(y.astype(float)).sum()) * dx + 1
    assert float(gpureduce.trapezoid(y, dx=dx)) == pytest.approx(wanted, abs=close * scale)
    x = np.cumsum(np.abs(np.array(values)) % 7)
    wanted = scipy.integrate.trapezoid(y.astype(float), x)
    assert float(gpureduce.trapezoid(y, x)) == pytest.approx(wanted, abs=7 * close * scale)


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
    monkeypatch.setattr(devices, "devices", lambda: [card])
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
        (np.array([0, 2**63], "u8"), 2**63),
        (np.array([2**64 - 1, 0], "u8"), -(2**64)),
        (np.array([-(2**63), 2**63 - 1]), 2**64),
    ],
)
def test_steps_between_whole_numbers_do_not_wrap_around(x, wanted):
    for strategy in ("auto", "cpu", "sequential"):
        assert float(gpureduce.trapezoid(np.ones(2), x, strategy=strategy)) == wanted


def test_terms_are_as_wide_as_was_asked_for():
    y, x = np.full(3, 60000, "f2"), np.arange(3, dtype="f2")
    assert float(gpureduce.trapezoid(y, x, dtype="f8")) == 120000
    assert float(gpureduce.trapezoid(y, dtype="f8")) == 120000
    ends = np.array([-60000, 60000], "f2")
    assert float(gpureduce.trapezoid(np.ones(2, "f2"), ends)) == np.inf  # and warns of nothing
    assert float(gpureduce.trapezoid(np.ones(2, "f2"), ends, dtype="f8")) == 2 * float(ends[1])


def nearest(x, dtype):
    """A rational number rounded to a float dtype by search: independent of the package."""
    kind = np.dtype(dtype)
    with np.errstate(over="ignore"):
        near = np.array([float(x)]).astype(kind)
    bits = near.view(f"u{kind.itemsize}").astype(np.int64) + np.arange(-1, 2)
    around = bits.clip(0).astype(f"u{kind.itemsize}").view(kind)
    there = [v for v in around if math.isfinite(v)]
    # Ties to even: an even bit pattern is an even significand.
    return min(
        there,
        key=lambda v: (
            abs(fractions.Fraction(float(v)) - x),
            int(np.array([v]).view(f"u{kind.itemsize}")[0]) % 2,
        ),
    )


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16, "i8", "u8"])
def test_samples_that_are_equally_spaced_are_rounded_once(dtype):
    rng = np.random.default_rng(5)
    for n in (2, 3, 4, 50, 301):
        y = rng.integers(-1000, 1000, n) * (1 if np.dtype(dtype).kind in "iu" else 0.37)
        y = y.astype(dtype)  # of u8, some wrap around
        for dx in (0.01, 1e-5, 3, fractions.Fraction(1, 3)):
            exact = fractions.Fraction(dx) * sum(
                fractions.Fraction(int(v) if np.dtype(dtype).kind in "iu" else float(v))
                * (fractions.Fraction(1, 2) if i in (0, n - 1) else 1)
                for i, v in enumerate(y)
            )
            value = gpureduce.trapezoid(y, dx=dx).value
            out = np.float64 if np.dtype(dtype).kind in "iu" else dtype
            assert value.dtype == out
            assert abs(value) == nearest(abs(exact), out)
            assert (value < 0) == (exact < 0)


def test_areas_too_large_for_float64_leave_the_others_alone():
    """Sums of neighbours, or areas, overflow; they cancel, or are in the other component."""
    most = 1.5e308
    found = gpureduce.trapezoid(np.full(2, most + 1e-100j), [0, 1e-100]).value
    assert (found.real, found.imag) == (1.5e208, pytest.approx(1e-200, rel=1e-15))
    y = np.array([most, most, most, 0, 1e-100, 1e-100])
    assert gpureduce.trapezoid(y, [0, 1e-300, 0, 0, 0, 1e-100]).value == 1e-200
    y = np.array([most, most, most, 0, 1, 1])
    assert gpureduce.trapezoid(y, [0, 1e10, 0, 0, 0, 0.1]).value == 0.1
    z = np.array([1e200 + 1e200j, 1e200 + 1e200j])
    assert gpureduce.trapezoid(z, [0, 1e150 - 1e150j]).value == complex(math.inf, 0)


def test_an_integral_too_large_for_float32_warns_of_nothing():
    with np.errstate(all="raise"):
        for strategy in ("cpu", "sequential", "numpy"):
            found = gpureduce.integrate("corner", 0, 1e30, 3, strategy, dtype="float32")
            assert np.isinf(found.value)


@pytest.mark.parametrize("strategy", ["auto", "exact", "cpu", "numpy", "fast", "sequential"])
def test_no_partial_integral_overflows(strategy):
    """1,001 samples of 100 in float16 add up to more than a float16 holds."""
    hundred = np.full(1001, 100, np.float16)
    value = gpureduce.trapezoid(hundred, dx=0.01, strategy=strategy).value
    assert value == 1000 and value.dtype == np.float16
    assert value == scipy.integrate.trapezoid(hundred, dx=0.01)
    x = np.arange(1001, dtype=np.float16) / np.float16(128)
    assert float(gpureduce.trapezoid(hundred, x, strategy=strategy)) == 781
    for dtype, big in (("f4", 3e38), (ml_dtypes.bfloat16, 3e38), ("f8", 1.5e308)):
        y = np.full(1001, big, dtype)
        value = gpureduce.trapezoid(y, dx=2.0**-10, strategy=strategy).value
        assert float(value) == pytest.approx(float(y[0]) * (1000 / 1024), rel=1e-2)
        for x in (np.arange(1001) / 1024, (np.arange(1001) - 500) * 2.0**-11):
            value = gpureduce.trapezoid(y, x.astype("f4"), strategy=strategy).value
            whole = float(y[0]) * (float(x[-1]) - float(x[0]))
            assert float(value) == pytest.approx(whole, rel=1e-2)
    far = np.array([-1.7e308, 1.7e308])
    value = gpureduce.trapezoid(np.full(2, 1e-10), far, strategy=strategy).value
    assert float(value) == pytest.approx(3.4e298)
    assert float(gpureduce.trapezoid(far, far, strategy=strategy)) == 0
    assert float(gpureduce.trapezoid([1e308, 1e308], dx=10, strategy=strategy)) == math.inf


@pytest.mark.parametrize("strategy", ["auto", "cpu", "numpy", "fast"])
def test_complex_samples_and_contours(strategy):
    y = np.exp(1j * np.linspace(0, 3, 501))
    for how in ({"dx": 0.25}, {"x": np.arange(501)}, {"x": np.linspace(0, 1, 501) * (1 + 2j)}):
        value = gpureduce.trapezoid(y, strategy=strategy, **how).value
        assert complex(value) == pytest.approx(scipy.integrate.trapezoid(y, **how), rel=1e-13)
        assert value.dtype == np.complex128
    assert gpureduce.trapezoid(y.astype("c8"), dx=0.25, strategy=strategy).value.dtype == "c8"
    part_of_inf = gpureduce.trapezoid(np.array([complex(math.inf, 1), 1j]), strategy=strategy)
    assert part_of_inf.value == complex(math.inf, 1)


@pytest.mark.parametrize("strategy", ["auto", "cpu", "numpy", "sequential"])
@pytest.mark.parametrize("x", ["i8", "u8", "i1", "?", "f2", "f4", "f8", ml_dtypes.bfloat16])
def test_bfloat16_samples_at_points_of_any_dtype(strategy, x):
    y, points = np.full(5, 1.5, ml_dtypes.bfloat16), np.arange(5).astype(x)
    value = gpureduce.trapezoid(y, points, strategy=strategy).value
    assert float(value) == (1.5 if x == "?" else 6)
    wide = {"f2": "float32", "f4": "float32", "f8": "float64"}.get(x, "bfloat16")
    assert value.dtype.name == wide


@pytest.mark.parametrize("source", ["f2", "f4", "f8", "c8", "i4"])
@pytest.mark.parametrize(
    "dx", [2, 0.5, True, np.float16(0.5), np.float32(0.5), np.float64(0.5), np.array(0.5)]
)
def test_spacing_widens_as_in_numpy(source, dx):
    y = np.ones(7, source)
    value, wanted = gpureduce.trapezoid(y, dx=dx).value, np.trapezoid(y, dx=dx)
    assert value == wanted and value.dtype == wanted.dtype


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((np.ones((2, 2)),), {}, ValueError, "one-dimensional"),
        (([1.0, 2.0], [1.0]), {}, ValueError, "shape of y"),
        ((np.array(["a", "b"]),), {}, TypeError, "numbers"),
        (([1.0, 2.0], ["a", "b"]), {}, TypeError, "x must hold numbers"),
        (([1.0, 2.0], np.array([0, 1], "M8[s]")), {}, TypeError, "x must hold numbers"),
        (([1, 2],), {"dtype": "int64"}, TypeError, "lose part of"),
        (
            ([1.0, 2.0],),
            {"axis": 0},
            TypeError,
            r"trapezoid\(\) .* argument 'axis': there are y, x, dx, strategy, ",
        ),
        (([1.0],), {"dx": [1.0, 2.0]}, ValueError, r"dx must be one number, not .* \(2,\)"),
        (([1.0],), {"dx": np.ones((1, 1))}, ValueError, r"not an array of shape \(1, 1\)"),
        (([1.0],), {"dx": None}, TypeError, "dx must be a real number, not NoneType"),
        (([1.0],), {"dx": "0.1"}, TypeError, "dx must be a real number, not str"),
        (([1.0],), {"dx": 1j}, TypeError, "dx must be a real number, not complex"),
        (([1.0],), {"dx": np.array("a")}, TypeError, "dx must be a real number, not <U1"),
    ],
)
def test_errors_of_trapezoid(arguments, options, error, words):
    with pytest.raises(error, match=words):
        gpureduce.trapezoid(*arguments, **options)
    assert float(gpureduce.trapezoid([1.0, 2.0], dx=10**30)) == 1.5e30


def test_trapezoid_hands_further_arguments_on():
    y = np.arange(1000.0)
    for how in ({}, {"x": np.arange(1000)}):
        _, timing = gpureduce.trapezoid(y, strategy="cascade", block=64, grid=3, **how)
        assert (timing.block, timing.grid, timing.integral) == (64, 3, True)
        _, timing = gpureduce.trapezoid(y, device="emulator", **how)
        assert (timing.strategy, timing.backend) == ("exact", "emulator")
        assert gpureduce.trapezoid(y, timing=False, **how).timing is None
        with pytest.raises(ValueError, match="block must"):
            gpureduce.trapezoid(y, strategy="cascade", block=33, **how)


def test_signalling_nans_are_silent():
    samples = np.array([1, 2, 3], "f4")
    samples.view("u4")[1] = 0x7F800001
    for x in (None, np.arange(3.0), samples):
        assert np.isnan(gpureduce.trapezoid(samples, x).value)


def test_large_samples_are_interrupted_soon(monkeypatch):
    """No step of its work passes over all samples at once."""
    longest = 0

    def seen(array, *arguments, **options):
        nonlocal longest
        longest = max(longest, len(array))
        return wide(array, *arguments, **options)

    wide = trapezoid._steps
    monkeypatch.setattr(trapezoid, "_CHUNK", 1 << 16)
    monkeypatch.setattr(trapezoid, "_steps", seen)
    samples = np.full(3 * trapezoid._CHUNK, 1e30, np.float32)
    points = np.arange(len(samples), dtype=np.float32)
    want = float(scipy.integrate.trapezoid(samples.astype(float), points.astype(float)))
    assert np.isclose(float(gpureduce.trapezoid(samples, points, dtype="float64").value), want)
    assert 0 < longest <= trapezoid._CHUNK + 1
    large = np.full(3 * trapezoid._CHUNK, 1.5e308)
    assert float(gpureduce.trapezoid(large, points * np.float32(1e-9)).value) < np.inf


def test_a_byte_swapped_spacing():
    for dtype in (np.float32, ml_dtypes.bfloat16):
        dx = np.array(0.25, dtype)
        swapped = dx.astype(dx.dtype.newbyteorder(">"))
        assert gpureduce.trapezoid([1.0, 2, 3], dx=swapped).value == 1
