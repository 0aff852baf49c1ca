"""Elements that are added and taken away again leave nothing behind; `Moments` keeps squares."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from cases import run_python
from gpureduce import Accumulator, Moments, exact

DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int64", "uint32", "bool"]


def numbers(rng, name, n):
    x = rng.standard_normal(n) * 10
    if name == "float64":
        x *= 10.0 ** rng.integers(-200, 150, n)
    if name == "int64":
        return x.astype(name) * 2**52 + rng.integers(0, 9, n)
    if name.startswith("complex"):
        x = x + 1j * rng.standard_normal(n)
    return abs(x).astype(name) if name in ("uint32", "bool") else x.astype(name)


def of(name):
    return name if name[0] in "fc" else "float64"


@pytest.mark.parametrize("name", DTYPES)
def test_what_was_taken_away_leaves_nothing(name):
    rng = np.random.default_rng(DTYPES.index(name))
    x, gone = numbers(rng, name, 700), numbers(rng, name, 300)
    total = Accumulator(of(name)).add(x) + gone
    total -= gone[::-1]
    assert total == Accumulator(of(name)).add(x) and total.count == 700
    assert total - Accumulator(of(name)).add(x[:5]) == Accumulator(of(name)).add(x[5:])
    seen = Moments(of(name)).add(x[:300]).add(gone).add(x[300:])
    assert seen.subtract(gone) is seen and seen.count == 700
    assert seen.mean() == exact.mean(x) and seen.mean().dtype == seen.dtype
    for ddof in (0, 1, 0.5):
        assert seen.var(ddof) == exact.var(x, ddof=ddof)
        assert seen.std(ddof) == exact.std(x, ddof=ddof)
    whole = Moments(of(name)).add(x)
    assert seen == whole == pickle.loads(pickle.dumps(seen)) != Moments(of(name)).add(x[1:])
    words = seen.to_digits() + Moments(of(name)).add(gone).to_digits()
    assert Moments.from_digits(words) == whole.merge(Moments(of(name)).add(gone))


@pytest.mark.parametrize("dtype", ["float64", "complex128", ml_dtypes.bfloat16])
def test_infinities_and_nans_come_and_go(dtype):
    x = np.array([1e30, np.inf, np.nan, 2.0, -np.inf, np.inf], dtype)
    if dtype == "complex128":
        x[1], x[2] = complex(0, np.inf), complex(1, np.nan)
    total, seen = Accumulator(dtype).add(x), Moments(dtype).add(x)
    copied, kept = pickle.loads(pickle.dumps(total)), pickle.loads(pickle.dumps(seen))
    assert np.isnan(total.value()) and np.isnan(seen.std()) and np.isnan(seen.mean())
    for some in (total, copied):
        some -= x[[2, 4]]
        assert np.isinf(some.value())
        some -= x[[0, 1, 5]]
        assert some == Accumulator(dtype).add([2.0]) and some.value() == 2
    for some in (seen, kept):
        assert some.subtract(x[[0, 1, 2, 4, 5]]) == Moments(dtype).add([2.0])
    assert Accumulator(dtype).add(x) == Accumulator.from_bytes(Accumulator(dtype).add(x).to_bytes())


def test_a_window_that_slides():
    rng = np.random.default_rng(5)
    x = np.concatenate([[1e300, 1.0, -1e300, np.inf, 3.0], rng.standard_normal(200)])
    seen = Moments().add(x[:10])
    for end in range(10, len(x)):
        seen.add(x[end : end + 1]).subtract(x[end - 10 : end - 9])
        window = x[end - 9 : end + 1]
        assert np.array_equal(seen.mean(), exact.mean(window), equal_nan=True)
        assert np.array_equal(seen.std(1), exact.std(window, ddof=1), equal_nan=True)


def refused(some, call, error, text):
    before = pickle.dumps(some)
    with pytest.raises(error, match=text):
        call(some)
    assert pickle.dumps(some) == before


@pytest.mark.parametrize("kind", [Accumulator, Moments])
def test_what_was_never_added_cannot_be_taken_away(kind):
    some = kind().add([5.0, 7.0])
    refused(some, lambda s: s.subtract([1.0, 2.0, 3.0]), ValueError, "add their negatives")
    refused(some, lambda s: s.subtract([1.0, 2.0]), ValueError, "add their negatives")
    refused(some, lambda s: s.subtract([np.inf]), ValueError, "only if they were added")
    refused(some, lambda s: s.subtract(["a"]), TypeError, "cannot be summed")
    refused(some, lambda s: s.subtract([1j]), TypeError, "cannot add complex numbers")
    assert some.count == 2 and some.subtract([5.0, 7.0]).count == 0
    assert some == kind()


def test_errors_of_moments():
    seen = Moments("float32").add([1.0, 3.0])
    refused(seen, lambda s: s.merge([1.0]), TypeError, "another Moments")
    refused(seen, lambda s: s.merge(Moments()), TypeError, "float32 and float64")
    refused(seen, lambda s: s.subtract(Moments()), TypeError, "cannot be subtracted")
    refused(seen, lambda s: s.var("1"), TypeError, "ddof must be a real number")
    refused(seen, lambda s: s.var(dtype="c8"), TypeError, "variances are real")
    refused(Moments("c8"), lambda s: s.mean("f8"), TypeError, "imaginary part")
    with pytest.raises(ValueError, match="300 numbers, or 371"):
        Moments.from_digits(np.zeros(75, np.int64))
    with pytest.raises(TypeError, match="int64"):
        Moments.from_digits(seen.to_digits().astype(float))
    with pytest.raises(TypeError, match="unhashable"):
        hash(seen)
    assert repr(seen) == "<Moments float32: mean 2.0, std 1.0 of 2>" and seen != 2
    assert np.isnan([Moments().mean(), Moments().var(), Moments().add([1.0]).std(ddof=1)]).all()


@pytest.mark.parametrize("exponent", [500, 511, 515, 530, 552, 1000])
def test_squares_beyond_float64_are_kept(exponent):
    seen = Moments().add([2.0**exponent * 1.1, 1.5 * 2.0**-exponent])
    assert pickle.loads(pickle.dumps(seen)) == seen == Moments.from_digits(seen.to_digits())
    assert seen.subtract([2.0**exponent * 1.1]) == Moments().add([1.5 * 2.0**-exponent])


def test_squares_show_what_was_never_added():
    seen = Moments().add([1.0, 2.0, 4.0])
    refused(seen, lambda s: s.subtract([1e5, -1e5]), ValueError, "were added before")


def test_accumulators_are_taken_away_by_name():
    total = Accumulator().add([1.0, 2.0, np.inf])
    assert total.subtract(total.copy()) is total and total == Accumulator()


HANDLER = """
import os, signal, sys
import numpy as np, gpureduce as g
total, other = g.Accumulator(), g.Accumulator().add([np.inf])
signal.signal(signal.SIGALRM, lambda *_: other.add([np.inf]))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(3000):
    total.add([np.inf])
signal.setitimer(signal.ITIMER_REAL, 0)
child = os.fork()
if child == 0:
    total.add([np.inf])
    os._exit(0)
print(os.waitpid(child, 0)[1], total.count)
"""


def test_signal_handlers_and_children_add_infinities():
    assert run_python(HANDLER).split() == ["0", "3000"]
