"""`initial` keeps all its digits, or is refused. `out` that must not be written to is refused."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import gpureduce
from cases import run_python

LARGE = np.array([2.0**53])
NEXT = 2.0**53 + 2  # what 2**53 + 1 and a little more is rounded to
LITTLE = Fraction(1, 2**60)
CALLS = {
    "axis": lambda initial, **how: gpureduce.sum(LARGE, axis=0, initial=initial, **how).value,
    "segment": lambda initial, **how: gpureduce.segment_sum(
        LARGE, [0], initial=initial, **how
    ).value[0],
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@each_call
@pytest.mark.parametrize(
    ("initial", "wanted"),
    [
        (np.longdouble(1) + np.longdouble(LITTLE.numerator) / LITTLE.denominator, NEXT),
        (1 + LITTLE, NEXT),
        (1 - LITTLE, 2.0**53),
        (Decimal("1.0009765625"), NEXT),
        (Decimal(3), 2.0**53 + 4),
        (2**53 + 2**10 + 3, 2.0**54 + 2**10 + 4),
        (np.float16(1.5), NEXT),
        (np.array(1.5), NEXT),
        (True, 2.0**53),
        (gpureduce.sum([1.5]), NEXT),
        (gpureduce.sum([1, 2]), 2.0**53 + 4),
        (np.longdouble("inf"), np.inf),
        (Decimal("-inf"), -np.inf),
        (Decimal("nan"), np.nan),
    ],
    ids=lambda one: type(one).__name__,
)
def test_the_sum_is_rounded_once(call, initial, wanted):
    np.testing.assert_equal(call(initial), wanted)


def test_parts_of_complex_numbers():
    initial = np.clongdouble(complex(1, -1)) * (1 + np.longdouble(2) ** -60)
    found = gpureduce.sum(np.array([complex(2**53, -(2**53))]), axis=0, initial=initial).value
    assert found == complex(NEXT, -NEXT)


@each_call
@pytest.mark.parametrize("how", [{}, {"strategy": "numpy"}, {"device": "emulator"}], ids=str)
@pytest.mark.parametrize(
    ("initial", "error", "words"),
    [
        (
            Fraction(1, 3),
            ValueError,
            r"initial=Fraction\(1, 3\) is not exactly a sum of float64 numbers",
        ),
        (Decimal("0.1"), ValueError, r"is not rounded silently: pass float\(initial\)"),
        (np.longdouble(2) ** -1080, ValueError, "is not exactly a sum of float64 numbers"),
        (np.longdouble("1e4000"), ValueError, "initial must be finite in float64"),
        (Fraction(10**400), ValueError, "initial must be finite in float64"),
        (np.timedelta64(3, "s"), TypeError, "initial must be a real number for a sum in float64"),
        (np.ones(1), TypeError, "initial must be a real number"),
        (gpureduce.sum(np.ones((2, 2)), axis=0), TypeError, "initial must be a real number"),
        ("3", TypeError, "initial must be a real number"),
        (1j, TypeError, "initial must be a real number"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_refused(call, how, initial, error, words):
    with pytest.raises(error, match=words):
        call(initial, **how)


def test_of_integers():
    for initial in (np.timedelta64(3, "s"), Fraction(3), Decimal(3), 2.0, gpureduce.sum([2.0])):
        with pytest.raises(TypeError, match="initial must be a whole number for a sum in int64"):
            gpureduce.sum([1, 2], axis=0, initial=initial)
    assert gpureduce.sum([1, 2], axis=0, initial=gpureduce.sum([3])) == 6


def test_kernels_take_one_float64():
    for initial in (2**53 + 1, 1 + LITTLE, np.longdouble(2) ** 60 + 1):
        for call in CALLS.values():
            with pytest.raises(ValueError, match="initial must be exactly a float64"):
                call(initial, device="emulator")


LYING = """
import sys, tempfile
import numpy as np
import gpureduce

class Lying(np.ndarray):
    flags = property(lambda _: type("Flags", (), {"writeable": True, "c_contiguous": True})())
    shape = property(lambda _: (3,))
    dtype = property(lambda _: np.dtype(float))

    def view(self, *_):
        return self

CALLS = {
    "sum": lambda out, **how: gpureduce.sum(np.ones((3, 4)), axis=1, out=out, **how),
    "segment_sum": lambda out, **how: gpureduce.segment_sum(np.ones(3), [0, 1, 2], out=out, **how),
}
with tempfile.NamedTemporaryFile() as file:
    file.write(bytes(24))
    file.flush()
    for size in (3, 2):
        out = np.memmap(file.name, float, "r", shape=(size,)).view(Lying)
        for call in CALLS.values():
            for how in ({}, {"strategy": "numpy"}, {"device": "emulator"}):
                try:
                    call(out, **how)
                except ValueError as error:
                    assert "out is read-only" in str(error) or "shape of the sum" in str(error)
                else:
                    raise AssertionError("it was written to")
"""


def test_a_subclass_whose_attributes_lie():
    """It was written to, which for a read-only mapping of a file ended the process."""
    run_python(LYING)


@pytest.mark.parametrize("how", [{}, {"strategy": "numpy"}, {"device": "emulator"}], ids=str)
def test_memory_of_offsets_or_ids(how):
    offsets = np.array([0, 1, 3])
    for out in (offsets[:2], offsets[1:]):
        with pytest.raises(ValueError, match="out overlaps offsets: pass an array with memory of"):
            gpureduce.segment_sum(np.arange(3), offsets=offsets, out=out, **how)
    assert offsets.tolist() == [0, 1, 3]
    ids = np.array([0, 1, 1])
    with pytest.raises(ValueError, match="out overlaps segment_ids"):
        gpureduce.segment_sum(np.arange(3), ids, out=ids[:2], **how)
    values = np.arange(3)
    with pytest.raises(ValueError, match="out overlaps the array"):
        gpureduce.segment_sum(values, offsets=offsets, out=values[:2], **how)
    apart = np.zeros(6, int)
    apart[::2] = offsets
    found = gpureduce.segment_sum(values, offsets=apart[::2], out=apart[1:4:2], **how)
    assert found.value.tolist() == [0, 3] and apart[::2].tolist() == [0, 1, 3]
