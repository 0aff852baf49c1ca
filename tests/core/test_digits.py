"""Accumulator.to_digits and from_digits: sums that any integer all-reduce merges."""

from __future__ import annotations

import functools
import itertools
import operator
import tracemalloc

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpureduce
from cases import array_of, same_bits
from gpureduce import Accumulator

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def filled(dtype, n=100, seed=0):
    return Accumulator(dtype).add(array_of(dtype, n, seed))


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_digits_are_digits_of_sums(dtype):
    parts = [filled(dtype, n, n) for n in (0, 1, 7, 1000, 12_345)]
    total = functools.reduce(operator.add, parts)
    words = np.sum([part.to_digits() for part in parts], axis=0)
    found = Accumulator.from_digits(words)
    assert found == total and found.dtype == total.dtype and found.count == total.count
    assert same_bits(found.value(), total.value())
    for part in parts:
        words = part.to_digits()
        assert words.dtype == np.int64 and words.size == (146 if dtype[0] == "c" else 75)
        assert Accumulator.from_digits(words) == part
        assert np.all((words[2:] >= -(2**32)) & (words[2:] < 2**32))


@given(st.lists(st.floats(width=64), max_size=20), st.integers(1, 5))
def test_any_floats(numbers, count):
    parts = [Accumulator().add(np.array(numbers[i::count], np.float64)) for i in range(count)]
    found = Accumulator.from_digits(sum(part.to_digits() for part in parts))
    assert found == functools.reduce(operator.add, parts)
    assert same_bits(found.value(), gpureduce.sum(np.array(numbers, np.float64)).value)


@pytest.mark.parametrize(
    ("numbers", "value"),
    [([np.inf, 1.0], np.inf), ([-np.inf, np.nan], np.nan), ([np.inf, -np.inf], np.nan),
     ([-np.inf, -np.inf], -np.inf), ([1e308, 1e308, -1e308], 1e308), ([-0.0, -0.0], 0.0)],
)  # fmt: skip
def test_special_values(numbers, value):
    words = sum(Accumulator().add([x]).to_digits() for x in numbers)
    found = Accumulator.from_digits(words).value()
    np.testing.assert_array_equal(found, value)
    assert np.signbit(found) == (value < 0)


def test_there_is_room_for_2_to_the_30():
    """The largest digits there are, added so often by one multiplication."""
    for sign in (1.0, -1.0):
        part = Accumulator().add(np.full(1000, sign * np.finfo(np.float64).max))
        part.add([sign * np.pi, sign * 5e-324])
        words = part.to_digits() * 2**30
        assert np.array_equal(words // 2**30, part.to_digits()), "no digit has overflowed"
        found = Accumulator.from_digits(words)
        assert found.count == part.count * 2**30
        doubled = part.copy()
        for _ in range(30):
            doubled += doubled.copy()
        assert found == doubled
    with pytest.raises(ValueError, match=r"digits of 1 to 2\^30 accumulators can be added"):
        Accumulator.from_digits(words + part.to_digits())


def test_counts_beyond_32_bits():
    big = Accumulator().add(np.ones(3))
    for _ in range(40):
        big += big.copy()
    found = Accumulator.from_digits(big.to_digits() + big.to_digits())
    assert found.count == 3 * 2**41 and found.value() == 3.0 * 2**41


GOOD = filled("float32").to_digits()
HALF = filled("complex64").to_digits()


@pytest.mark.parametrize(
    ("words", "kind", "text"),
    [
        (GOOD.astype(np.float64), TypeError, "an array of int64, .*not of float64"),
        (GOOD.astype(np.int32), TypeError, "not of int32"),
        (GOOD[:-1], ValueError, r"must have 75 numbers, or 146 .*shape \(74,\)"),
        (np.stack([GOOD, GOOD]), ValueError, r"shape \(2, 75\)"),
        (np.zeros(75, np.int64), ValueError, "digits of 1 to"),
        (-GOOD, ValueError, "digits of 1 to"),
        (GOOD + filled("float64").to_digits(), ValueError, "digits of one dtype"),
        (np.append(GOOD, GOOD[4:]), ValueError, "digits of one dtype"),
        (filled("complex64").to_digits()[:75], ValueError, "digits of one dtype"),
        (np.ones(75, np.int64), ValueError, "digits of one dtype"),
        *((np.concatenate([HALF[:1], [word], HALF[2:]]), ValueError, "digits of one dtype")
          for word in (0, 1, 2**31 + 2, 2**32, -1)),  # complex numbers of half precision
        ("digits", TypeError, "must be an array of int64|aligned array"),
    ],
)  # fmt: skip
def test_other_numbers_are_refused(words, kind, text):
    for read in (Accumulator.from_digits, gpureduce.from_digits):
        if read is gpureduce.from_digits and np.ndim(words) == 2:
            continue  # those of two sums
        with pytest.raises(kind, match=text):
            read(words)


@pytest.mark.parametrize("at", [2, 3, 4, 5, 6, 7, 40, 73, 74])
@pytest.mark.parametrize("wrong", [-(2**40), 2**62, -1, -(2**63), 2**63 - 1])
def test_wrong_words_are_refused(at, wrong):
    """A digit that no so many accumulators have, a negative flag, a sum that its count excludes."""
    words = GOOD.copy()
    words[at] = wrong
    with pytest.raises((ValueError, OverflowError), match=r"accumulator|2\^64"):
        Accumulator.from_digits(words)


@pytest.mark.parametrize("dtype", FLOATS)
def test_digits_of_earlier_versions(dtype):
    """Their first words were 1, and a number of the dtype."""
    parts, number = [filled(dtype), filled(dtype, 50, 1)], 1 + FLOATS.index(dtype)
    format_ = 256 + 16 + number if number <= 4 else 256 + 32 + number - 2
    words = sum(part.to_digits() for part in parts)
    mixed = words.copy()
    words[:2] = 2, 2 * format_
    assert Accumulator.from_digits(words) == parts[0] + parts[1]
    assert same_bits(gpureduce.from_digits(words), (parts[0] + parts[1]).value())
    mixed[:2] += 1, format_  # one of them, added to two of this version
    with pytest.raises(ValueError, match="not the sum of digits of one dtype"):
        Accumulator.from_digits(mixed)


KINDS = ["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize(
    ("one", "other"), [*itertools.permutations(KINDS, 2), ("complex64", "complex128")]
)
@pytest.mark.parametrize("times", [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (2**29, 2**29)], ids=str)
def test_digits_of_two_dtypes_are_no_sum(one, other, times):
    """They were read as a third dtype, whose number is the mean of theirs."""
    words = filled(one).to_digits() * times[0] + filled(other).to_digits() * times[1]
    for read in (Accumulator.from_digits, gpureduce.from_digits):
        with pytest.raises(ValueError, match="not the sum of digits of one dtype"):
            read(words)
    rows = np.stack([filled(one).to_digits(), words])
    with pytest.raises(ValueError, match="not the sum of digits of one dtype"):
        gpureduce.from_digits(rows)


# --- arrays of digits -----------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2), ()])
@pytest.mark.parametrize("dtype", [*FLOATS, "int16", "int64", "uint64"])
def test_digits_along_axes(dtype, axis):
    array = array_of(dtype, 480).reshape(8, 12, 5)
    wanted = "float64" if array.dtype.kind in "iu" else None
    right = gpureduce.sum(array, dtype=wanted, axis=axis).value
    for some in (array, array[::-1].copy()[::-1], array.astype(array.dtype.newbyteorder())):
        words = gpureduce.digits(some, axis)
        assert words.shape == (*np.shape(right), 146 if dtype[0] == "c" else 75)
        found = gpureduce.from_digits(words)
        assert found.dtype == right.dtype and np.shape(found) == np.shape(right)
        assert np.asarray(found).tobytes() == np.asarray(right).tobytes()
    if axis in (0, (0, 2)):
        halves = gpureduce.digits(array[:3], axis) + gpureduce.digits(array[3:], axis)
        assert np.asarray(gpureduce.from_digits(halves)).tobytes() == right.tobytes()
    flat = words.reshape(-1, words.shape[-1])
    total = Accumulator.from_digits(flat.sum(axis=0))
    assert total.count == array.size


@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128"])
def test_digits_of_no_sums_are_rounded(dtype):
    found = gpureduce.from_digits(gpureduce.digits(np.ones((3, 0), dtype), 0))
    assert found.shape == (0,)
    assert found.dtype == ("complex128" if dtype[0] == "c" else "float64")
    none = gpureduce.digits(np.ones((0, 3), dtype), 0)
    assert not gpureduce.from_digits(none).any() and len(none) == 3
    assert gpureduce.from_digits(gpureduce.digits([])) == 0


def test_digits_are_rounded_to_any_float():
    real, complex_ = gpureduce.digits(np.ones((2, 3)), 1), gpureduce.digits(np.ones(3, complex))
    for dtype in (">f8", ">f4", "<f8"):
        found = gpureduce.from_digits(real, dtype)
        assert found.dtype == np.dtype(dtype).newbyteorder("=") and found.tolist() == [3, 3]
    assert gpureduce.from_digits(complex_, ">c16") == 3
    for dtype in (np.longdouble, np.clongdouble, "m8[s]", int, bool, "U3", "O"):
        with pytest.raises(TypeError, match="must be a float or complex dtype, not"):
            gpureduce.from_digits(real, dtype)
    words = gpureduce.digits(np.full((3, 2), 1 / 3, np.float64), 0)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        found = gpureduce.from_digits(words, dtype)
        right = Accumulator().add([1 / 3] * 3).value(dtype)
        assert all(same_bits(one, right) for one in found)
    with pytest.raises(TypeError, match="digits of real sums cannot be rounded to complex64"):
        gpureduce.from_digits(words, "complex64")
    words[1, 40] = -5
    with pytest.raises(ValueError, match="these numbers are not digits of accumulators"):
        gpureduce.from_digits(words)
    with pytest.raises(TypeError, match="dtype <U1 cannot be summed"):
        gpureduce.digits(["a"])


def test_digits_in_any_layout_are_not_copied_at_once():
    """A copy would take a gigabyte, and be deaf to signals meanwhile."""
    array = np.array([[0.1, 0.2], [1e100, 3.0], [-5.0, 1e-300]])
    words = gpureduce.digits(array, 1)
    expected = [Accumulator().add(row).value() for row in array]
    unaligned = np.frombuffer(b"-" + words.tobytes(), np.int64, offset=1).reshape(words.shape)
    for one in (words[::-1][::-1], np.asfortranarray(words), unaligned):
        assert list(gpureduce.from_digits(one)) == expected
    assert gpureduce.from_digits(np.repeat(words[1], 2)[::2]) == expected[1]
    many = np.broadcast_to(words[:, None], (3, 600_000, words.shape[-1]))
    tracemalloc.start()
    try:
        found = gpureduce.from_digits(many)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < found.nbytes + 2**26
    assert np.array_equal(found, np.broadcast_to(np.array(expected)[:, None], found.shape))
