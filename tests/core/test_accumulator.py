"""`Accumulator` and `Moments`: the same value and bytes, however the elements came together."""

from __future__ import annotations

import hashlib
import pickle

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from cases import array_of, numpy_dtype, run_python
from exact_cases import FLOATS, FORMATS, GENERATORS, batches, bits_of, expected_bits
from gpureduce import Accumulator, Moments, exact
from gpureduce.core import exact as core_exact
from producers import ByDLPack, ByInterface


def data(name, n=3001, seed=1):
    rng = np.random.default_rng(seed)
    return np.concatenate([g(FORMATS[name], rng, 1, n)[0] for g in GENERATORS[:4]])


@pytest.mark.parametrize("name", FLOATS)
def test_any_pieces_in_any_order_give_the_same_bytes(name):
    array = data(name)
    whole = Accumulator(numpy_dtype(name)).add(array)
    assert bits_of(whole.value()) == expected_bits(array)
    assert whole.count == array.size
    rng = np.random.default_rng(2)
    for _ in range(30):
        rng.shuffle(array)
        cuts = np.sort(rng.integers(0, array.size, rng.integers(1, 9)))
        parts = [Accumulator(numpy_dtype(name)).add(piece) for piece in np.split(array, cuts)]
        total = Accumulator(numpy_dtype(name))
        for part in rng.permutation(np.array(parts, object)):
            total += part
        assert total.to_bytes() == whole.to_bytes()
        assert total == whole and hash(total) == hash(whole) and repr(total) == repr(whole)


@pytest.mark.parametrize("name", [*FLOATS, "complex64", "complex128"])
def test_bytes_and_pickle(name):
    kind = numpy_dtype(name)
    rng = np.random.default_rng(3)
    array = rng.standard_normal(100).astype(kind)
    for pieces in ([], [array], [array, array * 0], [array, np.full(1, np.inf, kind)]):
        total = Accumulator(kind)
        for piece in pieces:
            total += piece
        copied = pickle.loads(pickle.dumps(total))
        assert copied == total and copied.dtype == kind and copied.count == total.count
        assert str(copied.value()) == str(total.value())
        assert len(pickle.dumps(total)) <= 700
        for kept in (total.to_bytes(), bytearray(total.to_bytes()), memoryview(total.to_bytes())):
            assert Accumulator.from_bytes(kept).to_bytes() == total.to_bytes()


DIGEST = "90a6294df3dfb83124d77de1377457f07f5c3f8446f91fb0510834a6acf67f60"


def test_bytes_do_not_change_between_versions():
    total = Accumulator("float32").add(np.array([1, -(2.0**-149), 3], np.float32))
    digest = hashlib.sha256(total.to_bytes()).hexdigest()
    assert digest == DIGEST
    assert total.to_bytes()[:8] == b"GRXA\x01\x01\x03\x00"


def _signed(content):
    """The bytes with the checksum that they should have: FNV-1a."""
    state = 0xCBF29CE484222325
    for byte in content:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return bytes(content) + state.to_bytes(8, "little")


def test_content_that_no_accumulator_has_is_refused():
    """The checksum is right; what it vouches for is not."""
    good = Accumulator("float64").add([1.0]).to_bytes()
    assert _signed(good[:-8]) == good
    nan = Accumulator("float64").add([np.nan]).to_bytes()
    strange = [
        (good, 4, 2), (good, 5, 0), (good, 5, 2), (good, 5, 255), (good, 6, 0), (good, 6, 5),
        (good, 7, 16), (good, 7, 1), (good, 7, 3), (good, 7, 8), (good, 16 + 271, 64),
        (nan, 7, 3), (nan, 7, 5), (nan, 7, 6), (nan, 100, 1),
    ]  # fmt: skip
    for source, at, byte in strange:
        bad = bytearray(source[:-8])
        bad[at] = byte
        with pytest.raises(ValueError, match="not an accumulator"):
            Accumulator.from_bytes(_signed(bad))
    both = bytearray(Accumulator("complex64").add([1j]).to_bytes()[:-8])
    both[6] = 1
    with pytest.raises(ValueError, match="no such complex type"):
        Accumulator.from_bytes(_signed(both))


def _of(value, count, dtype="float64"):
    """Bytes of an accumulator of so many elements that come to that."""
    content = bytearray(Accumulator(dtype).add([1.0]).to_bytes()[:-8])
    content[8:] = count.to_bytes(8, "little")
    for part in value:
        content += (part << 1074).to_bytes(272, "little", signed=True)
    return _signed(content)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 2**20, 2**63, 2**64 - 1])
def test_values_that_so_many_elements_cannot_make_are_refused(count):
    """Each is below 2^1024; else sums of such sums would leave the digits while there is room."""
    bound = count << 1024
    for value in (0, bound - 1, 1 - bound, -bound) if count else (0,):
        assert Accumulator.from_bytes(_of([value], count)).to_bytes() == _of([value], count)
        assert Accumulator.from_bytes(_of([0, value], count, "complex128")).count == count
    largest = 1 << 1088
    for value in (bound or 1, -bound - 1, 2 * bound + 1, largest - 1, -largest, 5 * largest):
        with pytest.raises(ValueError, match="no accumulator has this content"):
            Accumulator.from_bytes(_of([value], count))
        with pytest.raises(ValueError, match="no accumulator has this content"):
            Accumulator.from_bytes(_of([0, value], count, "complex128"))


def test_a_count_that_would_wrap_around_is_refused():
    total = Accumulator("float64").add([np.finfo(float).max])
    for _ in range(63):
        total += total
    assert total.count == 2**63 and total.value() == np.inf
    before = total.to_bytes()
    with pytest.raises(OverflowError, match=r"fewer than 2\^64 elements"):
        total += total
    assert total.to_bytes() == before and Accumulator.from_bytes(before) == total
    less = Accumulator("float64").add([-np.finfo(float).max])
    for _ in range(62):
        less += less
    assert (total + less).value() == np.inf
    assert (total + less + [1.0]).count == 2**63 + 2**62 + 1


def test_values_of_other_dtypes():
    for _, rows in batches("float64", 400, 4):
        for row in rows[:20]:
            total = Accumulator("float64").add(row)
            for target in FLOATS:
                assert bits_of(total.value(numpy_dtype(target))) == expected_bits(row, target)
    assert Accumulator("float32").add([1, 2]).value(complex) == 3
    with pytest.raises(TypeError, match="would lose the imaginary part"):
        Accumulator(complex).add([1j]).value(float)
    with pytest.raises(TypeError, match="float or complex"):
        Accumulator(float).value(int)


def test_arrays_of_other_dtypes():
    total = Accumulator("float32")
    for name in ("bool", "int8", "uint16", "int64", "uint64", "float16", "bfloat16", "float64"):
        total += np.ones(5, numpy_dtype(name))
    assert (total.value(), total.count) == (40, 40)
    big = Accumulator("float64").add(np.array([2**63 - 1, -(2**63)], np.int64))
    assert big.value() == -1
    assert Accumulator("complex128").add([1.5]).add([2j]).value() == 1.5 + 2j
    with pytest.raises(TypeError, match="cannot add complex numbers"):
        Accumulator("float64").add([1j])
    with pytest.raises(TypeError, match="cannot be summed"):
        Accumulator("float64").add(np.array(["a"]))
    for name in ("int64", "bool", "S3"):
        with pytest.raises(TypeError, match="an accumulator's dtype is one of"):
            Accumulator(name)
    with pytest.raises(TypeError, match="cannot be added"):
        Accumulator("float32") + Accumulator("float64")
    with pytest.raises(ValueError, match="stream is for arrays on a GPU"):
        Accumulator().add(np.ones(3), stream=1)
    with pytest.raises(TypeError, match=r"write acc \+= other"):
        Accumulator().add(Accumulator())


def test_adding_leaves_the_operands_alone():
    first, second = Accumulator().add([1.0]), Accumulator().add([2.0])
    both = first + second + np.array([4.0])
    assert [a.value() for a in (first, second, both)] == [1, 2, 7]
    same = both
    both += both
    assert both is same and (both.value(), both.count) == (14, 6)
    assert first != second and first != 1
    assert first + second == second + first
    with pytest.raises(TypeError):
        np.ones(3) + first


def test_equal_means_equal_value_count_and_dtype():
    assert Accumulator().add([1.0, 1.0]) == Accumulator().add([2.0, 0.0])
    assert Accumulator().add([2.0]) != Accumulator().add([2.0, 0.0])
    assert Accumulator("float32").add([2.0]) != Accumulator("float64").add([2.0])
    assert Accumulator().add([np.inf, -np.inf]) == Accumulator().add([np.nan, 1.0])
    assert repr(Accumulator("float32").add([1, 2])) == "<Accumulator float32: 3.0 of 2>"


@pytest.mark.parametrize("producer", [ByDLPack, ByInterface])
@pytest.mark.parametrize("name", [*FLOATS, "int16", "complex64", "complex128"])
def test_arrays_on_a_gpu(producer, name):
    if name == "bfloat16" and producer is ByInterface:
        pytest.skip("the interface has no bfloat16")
    array = array_of(name, 5003)
    kind = numpy_dtype(name) if name != "int16" else np.dtype("float64")
    for view in (array, array[3:], array[::3], array.reshape(-1, 1)[:, 0], array[:0]):
        total = Accumulator(kind).add(producer(view), device="emulator")
        assert total == Accumulator(kind).add(view)
    with pytest.raises(TypeError, match="64-bit integers"):
        Accumulator().add(producer(np.ones(3, int)), device="emulator")


@pytest.mark.gpu
@pytest.mark.sanitizer
@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64"])
def test_arrays_on_a_card(name):
    cupy = pytest.importorskip("cupy")
    array = data("float32" if name[0] == "c" else name, 900).astype(name)
    there = cupy.asarray(array)
    for cut in (slice(None), slice(1, None), slice(None, None, 7)):
        assert Accumulator(name).add(there[cut]) == Accumulator(name).add(array[cut])


@pytest.mark.gpu
def test_a_stream_of_the_callers_own():
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        there = cupy.ones(1 << 20, cupy.float32)
        assert Accumulator("float32").add(there, stream=stream).value() == 1 << 20


def test_an_array_that_is_broken_off_leaves_nothing_behind(monkeypatch):
    total = Accumulator("float64").add([0.5])
    before = total.to_bytes()
    feed = core_exact.feed

    def broken_off(into, array, *more):
        feed(into, array, *more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(core_exact, "feed", broken_off)
        with pytest.raises(KeyboardInterrupt):
            total.add(np.full(1000, 2**40 + 1))
    assert total.to_bytes() == before
    assert total.add([1.0]).value() == 1.5 and total.count == 2


def test_accumulators_are_not_arrays():
    acc = Accumulator().add(np.ones(3))
    words = r"an Accumulator is not an array: acc1 \+ acc2 adds accumulators, and acc.value\(\)"
    for array in ([acc, acc], acc, (acc,), [[acc], [acc]], [1.0, acc], np.array([acc], object)):
        with pytest.raises(TypeError, match=words):
            gpureduce.sum(array)
        with pytest.raises(TypeError, match=f"{words}|to add another accumulator"):
            Accumulator().add(array)
    for left in (np.ones(2), 1.0, [1.0], np.float32(1)):
        with pytest.raises(TypeError, match=r"\+ Accumulator is not defined: acc \+= array adds"):
            left + acc
    assert (acc + np.ones(2)).count == 5 and acc.count == 3


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
