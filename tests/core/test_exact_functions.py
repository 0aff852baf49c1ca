"""gpureduce.exact: each result is the float nearest to a real number."""

from __future__ import annotations

import math
import operator
import os
import threading
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from gpureduce import exact
from gpureduce.core import moments

FLOATS = ["float16", "bfloat16", "float32", "float64"]
ROUNDS = int(os.environ.get("GPUREDUCE_EXACT_EXAMPLES", "20"))


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def numbers(rng, name, shape, kind):
    """Normal numbers; a mean far above the spread; ties; all exponents; huge and tiny squares.

    "tiny": every fifth number is the least one above 0.
    """
    x = rng.standard_normal(shape)
    limits = {"float16": 4, "float64": 300}.get(name, 37)
    least = {"float16": 6e-8, "bfloat16": 9.2e-41, "float32": 1e-45, "float64": 5e-324}[name]
    x = {
        "normal": x,
        "far": x * 2.0**-8 + 512,
        "ties": np.round(x * 8),
        "wide": x * 10.0 ** rng.integers(-limits // 2, limits // 2, shape),
        "extreme": np.clip(x, -2, 2) * 10.0 ** rng.integers(-limits, limits, shape),
        "alike": np.full(shape, x.flat[0]),
        "tiny": np.where(rng.random(shape) < 0.2, least, x),
    }[kind]
    with np.errstate(over="ignore"):
        x = x.astype(dtype_of(name))
    x[~np.isfinite(x)] = 1
    return x


def rounded(value, name, root=False):
    """A fraction, or its root, as the nearest float: by Python's integers alone."""
    if root and value:
        shift = 2 * (1200 + value.denominator.bit_length())
        whole = math.isqrt((value.numerator << shift) // value.denominator)
        value = Fraction(
            2 * whole + (Fraction(whole, 1 << shift // 2) ** 2 != value), 2 << shift // 2
        )
    bits, least = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149),
                   "float64": (53, -1074)}[name]  # fmt: skip
    if not value:
        return dtype_of(name).type(0)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= abs(value) < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    found = round(value / unit) * unit
    try:
        wide = float(found)
    except OverflowError:
        wide = math.inf if found > 0 else -math.inf
    with np.errstate(over="ignore"):
        return np.array(wide).astype(dtype_of(name))[()]


def squares(x):
    return sum((a * a for a in x), Fraction(0))


def variance(x, ddof=0):
    n = len(x)
    return (n * squares(x) - sum(x) ** 2) / (n * (n - Fraction(ddof)))


def as_reals(x, y):
    m = Fraction(0.3)
    return {
        "mean": (exact.mean(x, axis=1), lambda a, b: sum(a) / len(a), False),
        "var": (exact.var(x, axis=1), lambda a, b: variance(a), False),
        "std": (exact.std(x, axis=1, ddof=0.5), lambda a, b: variance(a, 0.5), True),
        "var of mean": (exact.var(x, axis=1, mean=0.3),
                        lambda a, b: sum((v - m) ** 2 for v in a) / len(a), False),
        "norm": (exact.norm(x, axis=1), lambda a, b: squares(a), True),
        "norm 1": (exact.norm(x, 1, axis=1), lambda a, b: sum(map(abs, a)), False),
        "vecdot": (exact.vecdot(x, y), lambda a, b: sum(map(operator.mul, a, b)), False),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["normal", "far", "ties", "wide", "extreme", "alike", "tiny"])
@pytest.mark.parametrize("name", FLOATS)
def test_results_are_the_nearest_floats(name, kind):
    rng = np.random.default_rng(FLOATS.index(name))
    for _ in range(ROUNDS):
        shape = (int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 4, 7, 10, 33])))
        x, y = (numbers(rng, name, shape, kind) for _ in range(2))
        exactly = [[[Fraction(float(v)) for v in row] for row in of] for of in (x, y)]
        for what, (found, real, root) in as_reals(x, y).items():
            assert found.dtype == x.dtype
            for row, value in enumerate(found):
                want = rounded(real(exactly[0][row], exactly[1][row]), name, root)
                assert value == want, (what, x[row], y[row])


@pytest.mark.parametrize("name", FLOATS)
def test_bits_do_not_depend_on_order_and_layout(name):
    rng = np.random.default_rng(3)
    x = numbers(rng, name, (5, 6, 70), "wide")
    shuffled = rng.permutation(x, axis=2)
    spread = np.zeros((5, 6, 140), x.dtype)
    spread[..., ::2] = x
    swapped = x if name == "bfloat16" else x.astype(x.dtype.newbyteorder())
    for function in (exact.mean, exact.var, exact.std, exact.norm):
        want = function(x, axis=2)
        for other, axis in ((shuffled, 2), (x[..., ::-1], 2), (spread[..., ::2], 2),
                            (np.moveaxis(x, 2, 0).copy(), 0), (np.moveaxis(x, 2, 1).copy(), 1),
                            (swapped, 2)):  # fmt: skip
            assert function(other, axis=axis).tobytes() == want.tobytes()
        assert function(x, axis=(0, 2)).shape == (6,)
        whole = function(x)
        assert whole.tobytes() == function(x.reshape(-1)[::-1]).tobytes()


@pytest.mark.parametrize("n", [200_000, 3_000_001])
def test_long_arrays(n):
    x = np.random.default_rng(4).standard_normal(n) + 1e6
    at = [*range(0, n, 1000)]
    some = np.zeros(n)
    some[at] = x[at]
    real = [Fraction(v) for v in x[at].tolist()]
    assert exact.mean(some) == rounded(sum(real) / n, "float64")
    assert exact.norm(some) == rounded(squares(real), "float64", True)
    assert exact.var(some) == rounded((n * squares(real) - sum(real) ** 2) / n**2, "float64")
    assert exact.dot(some, some) == rounded(squares(real), "float64")


def test_famous_cases():
    assert exact.mean(np.full(10**5, 0.1, np.float32)) == np.float32(0.1)
    assert exact.mean(np.full((1000, 3), 60000, np.float16), axis=0).tolist() == [60000.0] * 3
    assert exact.var(np.array([1e8, 1e8 + 1, 1e8 + 2])) == 2 / 3
    assert exact.norm(np.full(4, 1e200)) == 2e200
    assert exact.norm(np.full(4, 1e-200)) == 2e-200
    assert exact.std(np.array([1e300, -1e300])) == 1e300
    assert exact.mean([1.7e308, 1.7e308]) == 1.7e308


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "int64", "uint64"])
def test_integers(dtype):
    rng = np.random.default_rng(6)
    info = None if dtype == "bool" else np.iinfo(dtype)
    x = rng.random((3, 50)) < 0.5 if info is None else rng.integers(
        info.min, info.max, (3, 50), dtype, endpoint=True)  # fmt: skip
    for row, mean, var, norm in zip(x.astype(object), exact.mean(x, axis=1), exact.var(x, axis=1),
                                    exact.norm(x, axis=1), strict=True):  # fmt: skip
        real = [Fraction(int(v)) for v in row]
        assert mean == rounded(sum(real) / 50, "float64")
        assert var == rounded(variance(real), "float64")
        assert norm == rounded(squares(real), "float64", True)
    assert exact.mean(x).dtype == np.float64
    assert exact.var(x) == rounded(variance([Fraction(int(v)) for v in x.flat]), "float64")


def test_products_of_wide_integers():
    wide = np.array([2**60 + 1, 2**60])
    assert exact.dot(wide, np.array([1.0, -1.0])) == 1 == exact.dot(np.array([1.0, -1.0]), wide)
    assert exact.dot(np.array([2**64 - 1, 2**63], np.uint64), np.array([1, -2])) == -1
    assert exact.vecdot(wide, np.array([1j, -1j])) == 1j
    assert exact.dot(np.array([3], np.uint8), np.array([1j])) == 3j
    assert exact.average([1.0, 2.0], weights=wide * [1, -1]) == 1 - 2.0**60
    found = exact.average(wide, weights=-wide[::-1], returned=True)
    assert found == (float(2**60), -(2.0**61))


def test_complex_numbers():
    rng = np.random.default_rng(7)
    x = rng.standard_normal((4, 9)) + 1j * rng.standard_normal((4, 9))
    y = rng.standard_normal((4, 9)) - 1j
    for row, other, mean, var, dot in zip(x, y, exact.mean(x, axis=1), exact.var(x, axis=1, ddof=1),
                                          exact.vecdot(x, y), strict=True):  # fmt: skip
        re, im = ([Fraction(v) for v in part.tolist()] for part in (row.real, row.imag))
        a, b = ([Fraction(v) for v in part.tolist()] for part in (other.real, other.imag))
        assert mean == complex(rounded(sum(re) / 9, "float64"), rounded(sum(im) / 9, "float64"))
        assert var == rounded((9 * (squares(re) + squares(im)) - sum(re) ** 2 - sum(im) ** 2)
                              / 72, "float64")  # fmt: skip
        real = sum(p * r + q * s for p, q, r, s in zip(re, im, a, b, strict=True))
        imaginary = sum(p * s - q * r for p, q, r, s in zip(re, im, a, b, strict=True))
        assert dot == complex(rounded(real, "float64"), rounded(imaginary, "float64"))
    assert exact.norm(np.array([3 + 4j, 0]), np.inf) == 5 == exact.norm(np.array([3, 4j]))
    with pytest.raises(TypeError, match="order 1 of complex"):
        exact.norm(x, 1)


SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0]


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_special_values_are_those_of_numpy(name):
    pairs = [np.array([a, b, c], name) for a in SPECIAL for b in SPECIAL for c in SPECIAL]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for x in pairs:
            for function in ("mean", "var", "std", "nanmean", "nanvar"):
                found, want = getattr(exact, function)(x), getattr(np, function)(x)
                np.testing.assert_allclose(found, want, 1e-6, err_msg=f"{function} {x}")
            for order in (1, 2, np.inf):
                want = np.linalg.vector_norm(x, ord=order)
                np.testing.assert_allclose(exact.norm(x, order), want, 1e-6)
            np.testing.assert_array_equal(exact.dot(x, x[::-1]), np.dot(x, x[::-1]))


def test_where_keepdims_dtype_and_out():
    rng = np.random.default_rng(8)
    x = rng.standard_normal((6, 8)).astype(np.float32)
    mask = rng.random((6, 8)) < 0.6
    mask[:, :3] = True
    for function, of_numpy in ((exact.mean, np.mean), (exact.var, np.var), (exact.std, np.std)):
        found = function(x, axis=1, where=mask, keepdims=True)
        np.testing.assert_allclose(found, of_numpy(x, axis=1, where=mask, keepdims=True), 1e-5)
        alone = [function(row[keep]) for row, keep in zip(x, mask, strict=True)]
        assert found[:, 0].tolist() == alone
        out = np.empty(8)
        assert function(x, axis=0, dtype=np.float64, out=out) is out
        assert out.tolist() == [float(function(column.astype(np.float64))) for column in x.T]
    x[2, 4] = np.nan
    assert exact.nanmean(x[2]) == exact.mean(x[2][~np.isnan(x[2])])
    assert exact.nansum(x[2]) == gpureduce.sum(x[2][~np.isnan(x[2])]).value
    assert exact.count_nonzero(np.array([0, 1, np.nan])) == 2


def test_average():
    x, w = np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.2, 0.7])
    real = [Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), w.tolist(), strict=True)]
    weights = sum(Fraction(v) for v in w.tolist())
    assert exact.average(x, weights=w) == rounded(sum(real) / weights, "float64")
    assert exact.average(x, weights=w, returned=True)[1] == rounded(weights, "float64")
    assert exact.average(np.stack([x, x]), 1, w).tolist() == [exact.average(x, weights=w)] * 2
    assert exact.average(x) == exact.mean(x)
    for sign in (1, -1):  # the product and the quotient are below all numbers
        tiny = exact.average([sign * 5e-324, 0.0], weights=[4e-23, 2.0**41])
        assert tiny == 0
        assert math.copysign(1, tiny) == sign
    with pytest.raises(ZeroDivisionError):
        exact.average(x, weights=[1.0, -1.0, 0.0])
    with pytest.raises(ValueError, match=r"weights has the shape \(2,\)"):
        exact.average(np.stack([x, x]), 1, [1.0, 2.0])


def test_axes_are_those_of_numpy():
    x, y = np.arange(9.0).reshape(3, 3), np.arange(12.0).reshape(3, 4)
    assert exact.vecdot(x, x[1], axis=0).tolist() == np.vecdot(x, x[1], axis=0).tolist()
    assert exact.vecdot(y, x[1], axis=0).tolist() == np.vecdot(y, x[1], axis=0).tolist()
    for wrong, axis in ((x[0, :1], -1), (x[0], -2)):
        with pytest.raises(ValueError, match=r"x1 has 3 elements, but x2 1|out of bounds"):
            exact.vecdot(x, wrong, axis=axis)
    z, w = np.stack([x, x * x], axis=-1), x + 1
    assert exact.average(z, (1, 0), w).tolist() == exact.average(z, (0, 1), w.T).tolist()
    np.testing.assert_allclose(exact.average(z, (1, -3), w), np.average(z, (1, -3), w))


def test_mean_is_taken_as_given():
    with np.errstate(all="ignore"):
        for x in ([1.0, 1e200], [math.inf, 1.0], [math.inf, -math.inf], [math.nan, 1.0]):
            for m in (math.nan, math.inf, -math.inf, 0.0):
                np.testing.assert_array_equal(exact.var(x, mean=m), np.var(x, mean=m))
    m, x = 9.0e307, np.full(9, 2.0**-900)  # the root is next to a tie
    for mean in (m, np.nextafter(m, 1)):
        for real in (x, -x):
            exactly = sum((Fraction(v) - Fraction(mean)) ** 2 for v in real.tolist()) / 4
            assert exact.std(real, mean=mean, ddof=5) == rounded(exactly, "float64", True)
    half = np.array([1.0, 2.0, 4.0], dtype_of("bfloat16"))
    assert exact.var(half, mean=exact.mean(half)) == dtype_of("bfloat16").type(1.5546875)
    for wrong in (2**60 + 1, np.ma.masked_array([1.0], [True]), [1, 2]):
        with pytest.raises((TypeError, ValueError), match=r"mean|masked"):
            exact.var([1.0, 2.0, 3.0], mean=wrong)


def test_infinities_beside_numbers_beyond_float64():
    assert exact.norm([math.inf + 1e200j]) == math.inf
    assert math.isnan(exact.var([math.inf + 1e200j, 1]))
    assert exact.average([math.inf, 1.0], weights=[1.7e308, 1.7e308]) == math.inf


def test_elements_that_share_memory_are_not_copied():
    for dtype in (np.int8, np.int64):
        x = np.broadcast_to(np.array([[1], [2**40]]).astype(dtype), (2, 1 << 20))
        assert [piece.strides for piece in moments.in_floats(x)] == [(8, 0)]
        assert exact.var(x, axis=1).tolist() == [0.0, 0.0]
    x = np.ones(10)
    assert all(np.may_share_memory(x, piece) for piece in moments.in_floats(x))


def test_warnings_name_the_line_that_called():
    for function in (exact.mean, exact.var, exact.nanstd, exact.moments, exact.average):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            function(np.empty(0))
        assert {warning.filename for warning in found} == {__file__}


def test_other_threads_may_change_shapes():
    x, found, stop = np.ones(60000), [], threading.Event()

    def change():
        while not stop.is_set():
            for shape in ((300, 200), (60, 1000), (60000,)):
                x.shape = shape

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            found += [exact.var(x), exact.mean(x), exact.vecdot(x, x, axis=-1).sum()]
    finally:
        stop.set()
        thread.join()
    assert set(found) <= {0, 1, 60000}


def test_moments_are_the_functions():
    x = np.random.default_rng(9).standard_normal((5, 40))
    found = exact.moments(x, axis=1, ddof=1)
    assert found.count.tolist() == [40] * 5
    assert found.mean.tobytes() == exact.mean(x, axis=1).tobytes()
    assert found.var.tobytes() == exact.var(x, axis=1, ddof=1).tobytes()


def test_too_few_elements():
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert math.isnan(exact.mean(np.empty(0)))
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        assert math.isnan(exact.var(np.array([2.0]), ddof=1))
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        assert exact.var(np.array([2.0, 3.0]), ddof=2) == math.inf
    for x in ([2.0, 3.0], [2**60, 2], [1e200, 1.0]):
        with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
            assert exact.std(x, ddof=3) == math.inf == exact.var(x, ddof=3, mean=2)
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        assert math.isnan(exact.nanstd([2.0, math.nan, 3.0], ddof=3))
    assert exact.norm(np.empty(0)) == 0 == exact.dot(np.empty(0), np.empty(0))
    assert exact.mean(np.empty((0, 3)), axis=1).shape == (0,)


ONES = np.ones((2, 2))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: exact.mean(np.ones(3), axis=1), np.exceptions.AxisError, "axis 1"),
        (lambda: exact.var([1j], dtype=np.complex64), TypeError, "variances are real"),
        (lambda: exact.mean(np.ones(3), dtype=np.int32), TypeError, "float or complex dtype"),
        (lambda: exact.mean(np.ones(3), out=np.empty(())), None, ""),
        (lambda: exact.mean(np.ones(3), out=np.empty(2)), ValueError, "shape"),
        (lambda: exact.mean(["a"]), TypeError, "dtype <U1 cannot be summed"),
        (lambda: exact.norm(np.ones(3), 3), ValueError, "1, 2 or inf"),
        (lambda: exact.dot(np.ones((2, 2)), np.ones((2, 2))), ValueError, "vecdot"),
        (lambda: exact.dot(np.arange(3), np.arange(3)), TypeError, "numpy.dot is exact"),
        (lambda: exact.var(np.ones(3), mean="a"), TypeError, "mean must be"),
        (lambda: exact.average([1.0], weights=["a"]), TypeError, "dtype <U1 cannot be summed"),
        (lambda: exact.var(np.ones(3), ddof="1"), TypeError, "ddof must be a real number"),
        (lambda: exact.var(np.ones(3), ddof=math.nan), ValueError, "finite in float64, not nan"),
        (lambda: exact.vecdot(ONES, ONES, axis=(0, 1)), TypeError, "axis must be a whole number"),
        (lambda: exact.vecdot(ONES, ONES, axis=None), TypeError, "axis must be a whole number"),
        (lambda: exact.norm(ONES, 2 + 0j), ValueError, "ord must be 1, 2 or inf"),
        (lambda: exact.norm(ONES, np.array([1, 2])), ValueError, "ord must be 1, 2 or inf"),
        (lambda: exact.segment_mean(ONES[0], [2**62, 0]), MemoryError, "number the segments"),
        (lambda: exact.segment_mean(1.0, [0]), ValueError, "1 or 2 dimensions"),
    ],
)
def test_errors_name_what_is_wrong(call, error, text):
    if error is None:
        assert call() == 1
        return
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("tiny", [5e-324, -5e-324])
def test_a_tiny_element_moves_a_mean_that_was_halfway(tiny):
    """Its quotient by the count is 0, and so is a product of it as an error bound."""
    x = np.array([-2.358217336741871, 0.5271414581243252, -0.32915493062535894, tiny])
    want = rounded(sum(map(Fraction, x.tolist())) / 4, "float64")
    assert exact.mean(x) == exact.rolling_mean(x, 4)[3] == want
    assert exact.segment_mean(x, [0, 0, 0, 0]) == exact.average(x, weights=np.ones(4)) == want


@pytest.mark.parametrize("name", FLOATS)
def test_infinities_and_nans_of_many_groups(name):
    x = np.ones((300, 10), dtype_of(name))
    x[::2, 3], x[1::2, 4] = np.nan, np.inf
    for axis, array in ((1, x), (0, x.T.copy())):
        assert np.isnan(exact.var(array, axis=axis)).all()
        means = exact.mean(array, axis=axis)
        assert np.isnan(means[::2]).all() and np.isposinf(means[1::2]).all()


def test_factors_that_begin_at_the_same_address():
    x = np.array([[4.0, 4.0], [3.0, 2.0]])
    assert exact.vecdot(x, x[:1]).tolist() == [32.0, 20.0]
    assert exact.average(x, 1, x[0]).tolist() == [4.0, 2.5]


def test_products_that_vanish_are_no_zeros():
    assert exact.std([0.0], mean=1e-200) == 1e-200
    x = 134217727 * 2.0**-480  # its square is halfway between two float64 numbers
    for mean in (2.0**-700, -(2.0**-700)):
        assert exact.var([x], mean=mean) == float((Fraction(x) - Fraction(mean)) ** 2)


def test_infinities_beside_wide_integers():
    assert exact.dot(np.array([2**60 + 1, 1]), np.array([1.0, np.inf])) == np.inf
    assert exact.average([2.0, -np.inf], weights=[2**60 + 1, 1]) == -np.inf
    assert math.isnan(exact.dot(np.array([2**60 + 1, 0]), np.array([1.0, np.inf])))


@pytest.mark.parametrize(
    "function", [exact.mean, exact.norm, exact.nanmean, exact.average, exact.std]
)
def test_a_wide_integer_without_dimensions(function):
    assert function(np.int64(2**60 + 1)) == (0 if function is exact.std else 2.0**60)


@pytest.mark.parametrize("name", FLOATS)
def test_the_variance_of_one_element_is_zero(name):
    x = np.array([[0.1], [3.0], [np.inf], [np.nan], [-7.0]]).astype(dtype_of(name))
    found = exact.var(x, axis=1)
    assert np.array_equal(found, np.array([0, 0, np.nan, np.nan, 0], x.dtype), equal_nan=True)


def test_numbers_of_numpy_as_order_and_axis():
    x = np.arange(6.0).reshape(2, 3)
    assert exact.norm(x, np.int64(2)) == exact.norm(x)
    assert np.array_equal(exact.vecdot(x, x, axis=np.int64(0)), exact.vecdot(x, x, axis=0))
