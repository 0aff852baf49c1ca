"""error_bound: sums made to round as much as they can, and a slice of the search for more."""

from __future__ import annotations

import dataclasses
import fractions
import math

import ml_dtypes
import numpy as np
import pytest

import bound_search
import gpureduce
from cases import AXIS, KERNELS, magnitude, numpy_dtype
from exact_cases import FLOATS
from gpureduce.core import arrays, gpu_arrays
from producers import ByDLPack

FLOAT_KERNELS = [name for name in KERNELS if name != "redux"]


def off(result, array):
    """How far a real sum is from the exact one, and its bound."""
    exact = sum((fractions.Fraction(float(x)) for x in array.reshape(-1)), fractions.Fraction(0))
    bound = gpureduce.error_bound(result, magnitude(array))
    return abs(fractions.Fraction(float(result.value)) - exact), bound


def creeping(n, where, dtype=np.float64):
    """A one, and at every other place a little more than half its last place: each rounds up."""
    array = np.zeros(n, dtype)
    array[where] = np.finfo(dtype).eps / 2 * (1 + 2.0**-10)
    array[where[0]] = 1
    return array


# --- the orders of addition -----------------------------------------------------------------------


def test_a_slice_of_the_search():
    found = bound_search.search(2000, 1)
    assert found.cases >= 2000 and not found.violations, str(found)


ORDERS = [
    # 1,024 block sums of float64 go to 32 lanes of the processors' order, not into a tree.
    ("sequential", {"block": 32, "finish": "host"}, 1024 * 32, 32 * 32, 30, 100),
    # One warp adds up the block sums of tiles.
    ("tiles", {"block": 256, "grid": 3200}, 3200 * 64, 32 * 64, 90, 250),
    # A small block takes many packs of a tile.
    ("bulk_copy", {"block": 32, "grid": 64}, 4096, 64, 60, 200),
]


@pytest.mark.parametrize(("strategy", "launch", "n", "step", "low", "high"), ORDERS)
def test_long_chains_of_additions(strategy, launch, n, step, low, high):
    array = creeping(n, np.arange(0, n, step))
    result = gpureduce.sum(array, strategy, device="emulator", **launch)
    error, bound = off(result, array)
    assert low * 2.0**-53 < error <= bound < high * 2.0**-53


@pytest.mark.parametrize("strategy", ["fast", "sequential"])
def test_pieces_are_added_one_after_the_other(strategy, monkeypatch):
    monkeypatch.setattr(arrays, "PACK_ELEMENTS", 4)
    array = np.zeros(512, np.float32)
    array[::2] = creeping(256, np.arange(0, 256, 4), np.float32)
    result = gpureduce.sum(array[::2], strategy, device="emulator")
    error, bound = off(result, array)
    assert result.timing.pieces == 64
    assert 60 * 2.0**-24 < error <= bound < 200 * 2.0**-24


def test_the_timing_describes_every_piece_of_a_choice(monkeypatch):
    monkeypatch.setattr(arrays, "PACK_ELEMENTS", 9000)
    array = np.full(40_002, 0.1, np.float32)[::2]
    result = gpureduce.sum(array, "fast", device="emulator")
    assert (result.timing.pieces, result.timing.strategy) == (3, "one_cluster")
    error, bound = off(result, array)
    assert error <= bound


@pytest.mark.parametrize("strategy", ["cpu", "numpy", *FLOAT_KERNELS])
def test_two_additions_are_no_more_than_two(strategy):
    """In any order n - 1 additions round, however deep the tree."""
    how = {} if strategy in ("cpu", "numpy") else {"device": "emulator"}
    one = gpureduce.sum(np.full(1, 0.1), strategy, **how)
    assert gpureduce.error_bound(one, 0.1) == 0
    three = gpureduce.sum(np.full(3, 0.1), strategy, **how)
    assert 0 < gpureduce.error_bound(three, 0.3) <= 0.3 * 2.1 * 2.0**-53


def test_the_bound_follows_the_launches_that_were_made():
    """Blocks of 32 need more launches than blocks of 1024; a loop is far worse than a tree."""
    array = np.full(50_001, 0.1, np.float32)

    def bound(strategy, block):
        result = gpureduce.sum(array, strategy, block=block, device="emulator")
        return gpureduce.error_bound(result, 2.0**24)

    assert 16 <= bound("sequential", 1024) <= 60 and 18 <= bound("sequential", 32) <= 90
    assert bound("atomic_thread", 256) > 1000


def test_a_loop_of_many_has_a_finite_bound():
    timing = gpureduce.sum(np.ones(9), "atomic_thread", device="emulator").timing
    timing = dataclasses.replace(timing, n=2**25, dtype="float32")
    result = gpureduce.SumResult(np.float32(2.0**24), timing)
    assert 2.0**24 <= gpureduce.error_bound(result, 2.0**25) <= 3 * 2.0**24 * 1.001


# --- casts, and the ends of the range -------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["exact", "cpu", "numpy", "sequential", "tiles", "fast"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_sums_that_are_not_finite_have_no_bound(strategy, value):
    for dtype in FLOATS:
        how = {} if strategy in ("exact", "cpu", "numpy") else {"device": "emulator"}
        result = gpureduce.sum(np.array([1, value], numpy_dtype(dtype)), strategy, **how)
        assert gpureduce.error_bound(result, 1.0) == math.inf
    with np.errstate(over="ignore"):
        large = gpureduce.sum(np.full(4, 3e38, np.float32), strategy)
    assert float(large) == math.inf and gpureduce.error_bound(large, 1.2e39) == math.inf


@pytest.mark.parametrize("device", [None, "emulator"])
def test_exact_zeros_and_subnormals_are_exact(device):
    for name in FLOATS:
        kind = numpy_dtype(name)
        least = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}
        tiny = kind.type(least.get(name, 2.0**-1074))
        for array in (np.zeros(3, kind), np.array([tiny, -tiny]), np.array([1, -1], kind),
                      np.empty(0, kind), np.array([tiny, tiny, tiny])):  # fmt: skip
            result = gpureduce.sum(array, "exact", device=device)
            assert gpureduce.error_bound(result, magnitude(array)) == 0
    whole = gpureduce.sum(np.arange(100), "exact", dtype=float, device=device)
    assert gpureduce.error_bound(whole, 4950.0) == 0
    wide = gpureduce.sum(np.full(3, 0.1, np.float16), "exact", dtype=float, device=device)
    assert gpureduce.error_bound(wide, 0.3) == 0
    tenth = gpureduce.sum(np.full(3, 0.1), "exact", device=device)
    assert gpureduce.error_bound(tenth, 0.3) == 2.0**-55


def test_an_exact_sum_that_underflows_is_off_by_all_there_was():
    for size in (1e-50, 2.0**-151, 1e-300):
        array = np.array([size])
        result = gpureduce.sum(array, "exact", dtype="float32")
        error, bound = off(result, array)
        assert float(result) == 0 and error <= bound <= size * (1 + 1e-14)
    tie = gpureduce.sum(np.array([2.0**-149, 2.0**-150]), "exact", dtype="float32")
    assert gpureduce.error_bound(tie, 2.0**-148) == 2.0**-150


def test_atomics_of_a_gpu_take_subnormals_as_zero():
    array = np.full(50, 2.0**-140, np.float32)
    for name in ("atomic_thread", "atomic_block"):
        timing = gpureduce.sum(array, name, device="emulator").timing
        there = gpureduce.SumResult(
            np.float32(0), dataclasses.replace(timing, backend="cuda", source="cuda_event")
        )
        lost = 50 * 2.0**-140
        assert lost <= gpureduce.error_bound(there, lost) < 1.001 * lost
        one = gpureduce.SumResult(np.float32(1), there.timing)
        assert gpureduce.error_bound(one, 1.0) > 0


# --- wrong arguments -----------------------------------------------------------------------------


def test_integrals_are_refused():
    y = np.ones(100)
    for result in (
        gpureduce.trapezoid(y),
        gpureduce.trapezoid(y, np.arange(100), strategy="cpu"),
        gpureduce.integrate("pi", n=101),
        gpureduce.integrate("pi", n=101, strategy="sequential", device="emulator"),
    ):
        assert result.timing.integral
        with pytest.raises(ValueError, match=r"results of gpureduce\.sum only; an integral"):
            gpureduce.error_bound(result, 100.0)
    assert not gpureduce.sum(y).timing.integral


def test_the_magnitude_may_be_any_float_and_rounded():
    array = np.full(1000, 0.1, np.float32)
    result = gpureduce.sum(array, "sequential", device="emulator")
    wide = gpureduce.error_bound(result, 100.0)
    assert gpureduce.error_bound(result, np.float32(100)) == wide
    assert type(gpureduce.error_bound(result, np.float16(100))) is float
    assert gpureduce.error_bound(result, math.inf) == math.inf
    assert gpureduce.error_bound(gpureduce.sum(array), math.inf) == 2.0**-18
    # Half of it is half the bound: the bound is in proportion to what is not known better.
    assert gpureduce.error_bound(result, 50.0) == pytest.approx(wide / 2)


def test_bfloat16_of_a_gpu_where_numpy_does_not_know_it(monkeypatch):
    timing = gpureduce.sum(np.ones(3, ml_dtypes.bfloat16), "sequential", device="emulator").timing
    monkeypatch.setattr(gpu_arrays, "source", lambda kind, nbytes: np.dtype(np.float16))
    result = gpureduce.SumResult(np.float32(3), timing)
    assert 0 < gpureduce.error_bound(result, 3.0) < 1e-6
    exact = gpureduce.SumResult(np.float32(3), dataclasses.replace(timing, strategy="exact"))
    assert gpureduce.error_bound(exact, 3.0) == 2.0**-23


@pytest.mark.parametrize("result", [np.float32(1), 5.0, (1.0, None), None])
def test_wrong_results(result):
    with pytest.raises(TypeError, match=r"result must be what gpureduce\.sum returns"):
        gpureduce.error_bound(result, 5.0)


@pytest.mark.parametrize("strategy", ["auto", "cpu", "sequential"])
@pytest.mark.parametrize(
    ("magnitude", "error", "words"),
    [
        *((wrong, TypeError, "must be one real number") for wrong in ("5", None, 1j, [1.0])),
        (np.ones(3), TypeError, "magnitude must be one real number"),
        (-1.0, ValueError, "0 or more, not -1.0"),
        (-(10**400), ValueError, "0 or more, not a far smaller number"),
        (math.nan, ValueError, "0 or more, not nan"),
    ],
)
def test_wrong_magnitudes(strategy, magnitude, error, words):
    result = gpureduce.sum([0.5], strategy)
    with pytest.raises(error, match=words):
        gpureduce.error_bound(result, magnitude)
    assert gpureduce.error_bound(gpureduce.sum([0.5, 0.1, 0.1], "cpu"), 10**400) == math.inf


def test_sums_without_a_timing_have_no_bound():
    with pytest.raises(ValueError, match="timing=False"):
        gpureduce.error_bound(gpureduce.sum([0.5], timing=False), 0.5)


def test_integers_are_exact_whichever_device_adds_them():
    value, timing = gpureduce.sum(np.arange(1000))
    shared = dataclasses.replace(timing, strategy="cpu+tiles")
    for found in (timing, shared):
        assert gpureduce.error_bound(gpureduce.SumResult(value, found), 1.0) == 0


def test_the_timing_names_a_byte_swapped_bfloat16():
    swapped = numpy_dtype("bfloat16").newbyteorder(">")
    assert gpureduce.sum(np.ones(3).astype(swapped)).timing.dtype == ">bfloat16"


@pytest.mark.parametrize("name", AXIS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_along_an_axis(name, dtype):
    """One thread may add up all elements."""
    array = np.full(20_000, np.finfo(dtype).eps / 2, dtype)
    array[0] = 1
    for one in (array, np.repeat(array, 3)[::3]):  # a row, and a column
        try:
            result = gpureduce.sum(one, name, axis=0, device="emulator")
        except ValueError:  # not a layout of this kernel
            continue
        exact = 1 + (len(array) - 1) * fractions.Fraction(float(array[1]))
        bound = gpureduce.error_bound(result, float(exact))
        assert abs(fractions.Fraction(float(result)) - exact) <= bound


@pytest.mark.parametrize("strategy", ["exact", "cpu", "numpy", "fast"])
def test_sums_with_initial_have_no_bound(strategy):
    device = "emulator" if strategy == "fast" else None
    array = np.ones(1, np.int32) if strategy == "exact" else np.ones(1)
    result = gpureduce.sum(array, strategy, "float64", initial=2.0**-60, device=device)
    assert result.value == 1  # rounded
    with pytest.raises(ValueError, match="does not cover initial"):
        gpureduce.error_bound(result, 2.0)
    plain = gpureduce.sum(array, strategy, "float64", initial=0.0, device=device)
    assert gpureduce.error_bound(plain, 2.0) < 1e-15


def test_sums_with_initial_of_an_array_on_a_gpu_have_no_bound():
    result = gpureduce.sum(ByDLPack(np.ones(3)), axis=0, initial=1, device="emulator")
    with pytest.raises(ValueError, match="does not cover initial"):
        gpureduce.error_bound(result, 4.0)


def test_arrays_of_sums_have_no_bound():
    array = np.ones((2, 3))
    for result in (gpureduce.sum(array, axis=0), gpureduce.segment_sum(array, [0, 0])):
        with pytest.raises(ValueError, match=r"not an array of sums of shape \("):
            gpureduce.error_bound(result, 6.0)
