"""`exact` at its limits: full accumulators, and code that only unusual elements reach."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import gpureduce
from axis_cases import random_array
from cases import CSRC, array_of, numpy_dtype, on_devices, same_bits
from exact_cases import (
    FLOATS,
    FORMATS,
    GENERATORS,
    bin_edges,
    bits_of,
    expected_bits,
)
from gpureduce.emulator import races
from producers import ByDLPack

# Packs of float64 that a thread deposits at a time.
EXTRACT = (CSRC / "kernels/parts/exact_extract.h").read_text()
PACKS = int(re.findall(r"GR_EXACT_F64_THREADS, flight = (\d+)", EXTRACT)[0])
FLIGHT = 2 * 32 * PACKS  # elements of a warp

# Elements that each thread of a block of 32 deposits before its bins are emptied: rounds, by packs
# in flight, by elements of a pack (kernels/exact_bins.h), and of float64 bins (exact_extract.h).
EMPTIED_AFTER = {
    "float16": 255 * 4 * 8,
    "bfloat16": 255 * 4 * 8,
    "float32": 255 * 4 * 4,
    "float64": 1024 // (2 * PACKS) * 2 * PACKS,
}


def add(array, device="emulator", **more):
    return bits_of(gpureduce.sum(array, "exact", device=device, **more).value)


def nothing_is_lost(array, device="emulator"):
    """Adds the array by one warp, and the negatives of all but its smallest elements by another.

    The smallest elements remain. In the sum of the array alone, rounding would hide their loss.
    """
    size = np.abs(array.astype(float))
    mirror = np.where(size == size.min(), array * 0, -array)
    by_a_warp = 32 * 16 // array.itemsize  # as 16-byte packs go to lanes
    most = array.size // by_a_warp * by_a_warp
    turns = [half[:most].reshape(-1, by_a_warp) for half in (array, mirror)]
    both = np.concatenate([np.hstack(turns).reshape(-1), array[most:], mirror[most:]])
    got = add(both, device, dtype="float64", block=64, grid=1)
    return got == expected_bits(both, "float64") and got != 0


@on_devices
@pytest.mark.parametrize("name", FLOATS)
def test_bins_just_below_at_and_above_full(name, device):
    """The largest elements of a bin, and some whose loss would show."""
    full = 32 * EMPTIED_AFTER[name]
    for seed in range(2):
        (base,) = bin_edges(FORMATS[name], np.random.default_rng([seed, 50]), 1, 3 * full)
        for n in (full - 1, full, full + 1, full + 33, 2 * full + 1, 3 * full):
            assert nothing_is_lost(base[:n], device)


@pytest.mark.parametrize("name", FLOATS)
def test_loose_ends_of_full_bins(name):
    """Elements outside the 16-byte boundaries come to threads that have as much as they can."""
    full = EMPTIED_AFTER[name] * 32
    (base,) = bin_edges(FORMATS[name], np.random.default_rng(51), 1, full + 40)
    pack = 16 // base.itemsize
    for offset in {1, pack // 2, pack - 1}:
        for n in (full - 1, full + pack - offset - 1, full + 2 * pack - offset - 1):
            array = base[offset : offset + n]
            for target in FLOATS:
                got = gpureduce.sum(
                    ByDLPack(array), "exact", dtype=numpy_dtype(target), device="emulator"
                ).value
                assert bits_of(got) == expected_bits(array, target)


@pytest.mark.parametrize("low", [0, 16, 112, 128, 144, 224, 236, 240, 244, 248, 252])
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_bins_up_to_the_highest(name, low):
    fmt, fields = FORMATS[name], 16 if name == "float32" else 4
    low = low // fields * fields
    high = min(low + fields - 1, fmt.most_field)
    bits = np.full(32 * EMPTIED_AFTER[name] + 7, (high + 1 << fmt.fraction) - 1)
    bits[::677] = low << fmt.fraction | 1
    for array in (fmt.floats(bits), fmt.floats(bits | fmt.sign)):
        assert nothing_is_lost(array)


def test_float64_bins_that_are_full_to_the_last():
    """Exponents so that elements are as large as the bins' exponent lets them be.

    The first flight has smaller ones, for which bins are chosen that just hold the others.
    """
    full = 32 * EMPTIED_AFTER["float64"]
    for field in (*range(1004, 1012), 1, 5, 2021, 2033, 2034, 2046):
        fits = (f for f in range(max(field - 11, 1), field) if (f + 22) // 8 * 8 - 11 >= field)
        first = next(fits, field)
        # The second leaves the next bin almost half of the first one's last place each time.
        for fraction in ((1 << 52) - 1, (1 << 52) - 1 - (1 << 11)):
            bits = np.full(2 * full + 64, field << 52 | fraction, np.uint64)
            bits[:FLIGHT] = first << 52 | fraction
            bits[::53] = max(field - 60, 0) << 52 | 1
            for array in (bits.view(float), -bits.view(float)):
                for n in (full + 1, array.size):
                    assert nothing_is_lost(array[:n])


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_cpu_bins_for_all_exponents_that_are_full_to_the_last(name):
    """Each leaves the next bin half of its last place, always of one sign."""
    fmt = FORMATS[name]
    for half in (81, 34, -13, -60, -107):  # extract.h: k_i - 53
        for sign in (1.0, -1.0):
            array = np.full(40_000, sign * math.ldexp(5.0, half)).astype(fmt.dtype)
            array[::1021] = fmt.floats(np.array([fmt.infinity - 1]))[0]
            array[1::1021] = fmt.floats(np.array([1]))[0]
            for n in (31, 1023, 1024, 1025, 32_767, 32_768, 32_769, array.size):
                view = array[:n]
                got = gpureduce.sum(view, "exact", dtype="float64", device="cpu").value
                assert bits_of(got) == expected_bits(view, "float64")
                # Nothing but the least number is left: what the bins lose is not rounded away.
                both = np.append(view, -view[view != array[1]])
                assert add(both, "cpu") == expected_bits(both)


def test_columns_just_below_at_and_above_full():
    """Every second element lies 10^300 below: it leaves the bins, and the warp turns wild."""
    for big in (2016, 2015, 1056, 1057):  # of which the first shifts its mantissa by 31 bits
        bits = np.empty(330_000, np.uint64)
        bits[::2] = big << 52 | (1 << 52) - 1
        bits[1::2] = 33 << 52 | (1 << 52) - 1
        for array in (bits.view(float), -bits.view(float)):
            full = 512 // (2 * PACKS) * FLIGHT  # then carries are taken
            for n in (full, full + 1, full + FLIGHT + 1, array.size - 1):
                for shift in (0, 1):
                    assert nothing_is_lost(array[shift : n + shift])


@on_devices
@pytest.mark.parametrize("name", FLOATS)
def test_blocks_whose_words_are_used_add_up(name, device):
    """Bins emptied several times in several blocks: negative words, carries between them, flags."""
    fmt, rng = FORMATS[name], np.random.default_rng(5)
    n = 3 * 32 * EMPTIED_AFTER[name] * 2 + 77
    for generate in GENERATORS:
        if generate.__name__ not in ("narrow", "lognormal", "random_bits", "specials"):
            continue
        array = -np.abs(generate(fmt, rng, 1, n)[0])
        for grid in (1, 3):
            got = add(array, device, dtype="float64", block=32, grid=grid)
            assert got == expected_bits(array, "float64"), generate.__name__


@on_devices
@pytest.mark.parametrize("huge", [False, True], ids=["bins", "columns too"])
@pytest.mark.parametrize("lanes", [1, 4, 5, 8, 9, 32])
def test_float64_rests_of_some_lanes(lanes, huge, device):
    """The bins leave rests of elements in this number of lanes of a warp."""
    rng = np.random.default_rng(lanes)
    flights = rng.standard_normal((6, PACKS, 32, 2))
    rest = np.zeros_like(flights)
    for flight in (1, 2, 4):
        where = rng.choice(32, lanes, replace=False)
        rest[flight, rng.integers(PACKS, size=lanes), where, 1] = rng.standard_normal(lanes) * 1e-60
    if huge:
        flights[0, 0, 3, 0] = 1.5e308
    array = np.concatenate([np.where(rest != 0, rest, flights), np.where(rest != 0, 0, -flights)])
    got = add(array.reshape(-1), device, block=32, grid=1)
    assert got == expected_bits(array.reshape(-1)) == expected_bits(rest.reshape(-1))


@on_devices
@pytest.mark.parametrize("block", [64, 256, 384])
def test_float64_warps_whose_bins_lie_apart(block, device):
    """By less than 2^24, by more, out of each other's reach; and warps that have nothing."""
    warps, seed = block // 32, 0
    for apart in (8, 16, 24, 32, 40, 200, 500, 1000, 2000):
        for _ in range(4):
            rng, seed = np.random.default_rng([block, seed]), seed + 1
            flights = rng.standard_normal((12, warps, 64))
            up = rng.choice([0, 0, 8, apart // 2, apart], warps) - rng.integers(min(apart, 1000))
            up = np.minimum(up, 1000)
            array = np.ldexp(flights, up[:, None] * (rng.random((warps, 64)) < 0.9))
            array[:, rng.integers(warps)] = 0
            array[0, :, 5:7] *= -1
            got = add(array.reshape(-1), device, block=block, grid=1)
            assert got == expected_bits(array.reshape(-1))


@on_devices
@pytest.mark.parametrize("block", [32, 384])
def test_what_float64_bins_keep_comes_to_more_than_64_bits(block, device):
    """Bins that are full each time they are emptied, into what the warp keeps of them."""
    n = 140 * 32 * EMPTIED_AFTER["float64"] + 7
    for size in (2**52 - 1, 1 - 2**52):  # of an exponent for which bins are no larger than needed
        array = np.full(n, float(size))
        assert add(array, device, block=block, grid=1) == bits_of(np.float64(n * size))


def races_of(array, monkeypatch, **shape):
    """gpureduce.races, of these elements."""
    monkeypatch.setattr(races, "numbers", lambda n, dtype: array)
    orders = ("forward", "reverse", "lockstep", "random 1")
    return gpureduce.races("exact", n=array.size, dtype=array.dtype, schedules=orders, **shape)


@pytest.mark.parametrize("name", ["float16", "float32", "bfloat16"])
def test_no_race_where_bins_are_emptied(name, monkeypatch):
    """By the first warp, while the others would go on."""
    array = np.arange(2 * 64 * EMPTIED_AFTER[name] + 100) % 2 * 2 - 1
    found = races_of(array.astype(numpy_dtype(name)), monkeypatch, block=64, grid=1)
    assert not found, str(found)


def test_no_race_in_rare_ways_to_deposit(monkeypatch):
    """Warps whose bins differ, rests in a few lanes, columns of all and of some, inf and nan."""
    rng = np.random.default_rng(55)
    kinds = [rng.standard_normal(96 * 60) for _ in range(4)]
    kinds[0] = np.ldexp(kinds[0], np.tile(np.repeat([0, 200, -300], 64), 30))
    kinds[1][5 :: FLIGHT + 1] = 1e-80
    kinds[2] *= 10.0 ** rng.integers(-200, 200, kinds[2].size)
    kinds[3][:12] = 1e-80  # six lanes
    special = kinds[1].astype(np.float32)
    special[[3, 100, 4000]] = math.nan, math.inf, -math.inf
    for array in (*kinds, special):
        for grid in (1, 3):
            found = races_of(array, monkeypatch, block=96, grid=grid)
            assert not found, str(found)


@on_devices
@pytest.mark.parametrize("name", FLOATS)
def test_nan_and_inf_in_every_place(name, device):
    """In a head, a tail, any lane and pack of a flight, a warp of many, and after emptying."""
    kind = numpy_dtype(name)
    full = 32 * EMPTIED_AFTER[name]
    for n, places in (
        (40, range(40)),
        (1100, [*range(0, 1100, 97), 1099]),
        (full + 40, [0, 31, full - 1, full, full + 39]),
    ):
        base = array_of(name, n)
        for at in places:
            for special in (math.nan, math.inf, -math.inf):
                array = base.copy()
                array[at] = special
                got = gpureduce.sum(array, "exact", device=device, block=32, grid=1).value
                assert got.dtype == kind and str(float(got)) == str(special)
            array[at - 1] = math.inf  # beside -inf
            assert add(array, device, block=32, grid=1) == expected_bits(array)
            assert add(array, device) == expected_bits(array)


@pytest.mark.parametrize("name", FLOATS)
def test_nan_and_inf_among_elements_that_fit_no_bin(name):
    """The slower ways to deposit look for them, too."""
    fmt, rng = FORMATS[name], np.random.default_rng(52)
    for generate in GENERATORS:
        if generate.__name__ in ("random_bits", "maxima", "same_sign_maxima", "one_subnormal"):
            (base,) = generate(fmt, rng, 1, 5000)
            for at in (0, 1, 700, 2049, 4998, 4999):
                for special in (math.nan, math.inf, -math.inf):
                    array = base.copy()
                    array[at] = special
                    for offset in (0, 1):
                        view = array[offset:]
                        assert add(view) == expected_bits(view) == add(view, "cpu")
                        got = gpureduce.sum(ByDLPack(view), device="emulator").value
                        assert bits_of(got) == expected_bits(view)


@pytest.mark.parametrize("name", FLOATS)
def test_strided_views_of_full_bins_on_a_gpu(name):
    """Elements that a kernel reads one by one, as float64, and deposits as such."""
    fmt, rng = FORMATS[name], np.random.default_rng(53)
    for generate in GENERATORS:
        if generate.__name__ in ("bin_edges", "random_bits", "narrow", "subnormals", "any_bits"):
            (base,) = generate(fmt, rng, 1, 9_001)
            for view in (base[::2], base[1::2], base[::-1], base[: 90 * 100].reshape(90, 100).T):
                got = gpureduce.sum(ByDLPack(view), "exact", device="emulator").value
                assert bits_of(got) == expected_bits(np.ascontiguousarray(view).reshape(-1))


@on_devices
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("first", [0, 1])
def test_float64_warps_far_apart(first, sign, device):
    """Digits that a block's warps keep together, and others; all cancels but a subnormal."""
    for up in range(0, 1300, 8):
        flight = np.full((PACKS, 2, 32, 2), math.ldexp(1.0, -600))
        flight[:, first] = math.ldexp(sign, up - 600)
        rest = [-sign * math.ldexp(FLIGHT, up - 600), -math.ldexp(FLIGHT, -600), 5e-324]
        assert add(np.append(flight.reshape(-1), rest), device, block=64, grid=1) == 1, up


@on_devices
@pytest.mark.parametrize("sign", [1, -1])
def test_float64_subnormals_among_integers(sign, device):
    """Around the least normal number, where a warp has found that bins are no use."""
    flights = np.full((2, PACKS, 32, 2), 1e300)
    flights[:, 0, :, 0] = 2.0**-1022 * (1 + 2**-52)
    flights[:, 1, :, 0] = 2.0**-1022 * (1 - 2**-52)
    both = np.append(sign * flights, np.where(flights > 1, -sign * flights, 0))
    assert add(both, device, block=32, grid=1) == expected_bits(both) != 0


@on_devices
@pytest.mark.parametrize("sign", [1, -1])
def test_float64_integers_of_the_largest_digits(sign, device):
    """All of one sign, shifted by 31 bits, in column after column of 512 flights."""
    flights = np.full((1400, PACKS, 32, 2), math.ldexp(2.0**53 - 1, 2015 - 1074))
    for at in (0, 32, 96, 224, 480, 992):  # positions after which a warp tries bins again
        flights[at, 0, :, 0] = 1e-300
    array = sign * flights.reshape(-1)
    assert add(array, device, block=32, grid=1) == expected_bits(array)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 32, 33, 65])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_few_rows_of_many_columns(dtype, rows):
    """The sums of the first 32 rows are kept by themselves."""
    rng = np.random.default_rng(rows)
    array = random_array(rng, dtype, (rows, 700)) * rng.choice([1, 2**-9, -0.0], (rows, 700))
    array = array.astype(dtype)
    array[rng.integers(0, rows, 4), rng.integers(0, 700, 4)] = [np.inf, -np.inf, np.nan, 6e4]
    for initial in (0, 0.1):
        found = gpureduce.sum(array, "exact", axis=0, initial=initial).value
        each = [gpureduce.sum(column, "exact", initial=initial).value for column in array.T]
        assert all(map(same_bits, found, each))
