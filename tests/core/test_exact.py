"""Strategy `exact`: the real-number sum rounded once, whatever the order, backend and data."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

import gpureduce
from cases import DEVICES, array_of, numpy_dtype
from exact_cases import (
    FLOATS,
    FORMATS,
    GENERATORS,
    batches,
    bits_of,
    exact_integer,
    expected_bits,
    round_integer,
)
from exact_ways import check
from fuzz_exact import COMPLEX, GROUPS, fuzz
from producers import ByDLPack, ByInterface

ON = ["cpu", *DEVICES]


def add(array, device="cpu", **more):
    return gpureduce.sum(array, "exact", device=device, **more).value


def right(array, device="cpu", **more):
    return bits_of(add(array, device, **more)) == expected_bits(array)


# --- the oracle itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
def test_the_oracle_rounds_to_the_nearest(name):
    """By its definition: no float lies nearer, and of two equally near ones it takes the even."""
    fmt = FORMATS[name]
    rng = np.random.default_rng(7)

    def value(bits):
        return exact_integer(fmt.floats(np.array([bits])))

    for _ in range(200):
        bits = int(rng.integers(0, fmt.infinity - 1))
        low, high = value(bits), value(bits + 1)
        middle = (low + high) // 2
        some = int(rng.integers(0, 1 << 62)) % high
        for total in (low, high, middle, middle + 1, middle - 1, some):
            got = round_integer(fmt, total)
            if got >= fmt.infinity:
                continue
            off = abs(value(got) - total)
            for near in {max(got - 1, 0), min(got + 1, fmt.infinity - 1)} - {got}:
                other = abs(value(near) - total)
                assert off < other or (off == other and got % 2 == 0)


def test_the_oracle_agrees_with_python():
    for _, rows in batches("float64", 4000, 3):
        for row in rows:
            if np.isfinite(row).all():
                try:
                    want = math.fsum(row.tolist())
                except OverflowError:
                    continue
                assert expected_bits(row) == bits_of(np.float64(want))


# --- against the oracle ---------------------------------------------------------------------------


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize(
    ("of", "name"),
    [*((of, name) for of in GROUPS for name in FLOATS), *(("whole", name) for name in COMPLEX)],
)
def test_fuzz(of, name, device, count_sum):
    """A few arrays; tools/fuzz_exact.py tries as many as you like."""
    rows = {"cpu": {"whole": 3000, "axis": 1000, "segments": 500}, "cuda": {"whole": 20_000}}
    found = fuzz(name, of, rows.get(device, {}).get(of, 400 if device == "cuda" else 75), 5, device)
    assert found["wrong"] == 0, found["examples"]
    if device == "cuda":
        count_sum("exact", name)


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("generate", GENERATORS, ids=lambda g: g.__name__)
@pytest.mark.parametrize("name", FLOATS)
def test_long_arrays(name, generate, device):
    """Tasks, blocks, threads, and bins that are emptied on the way."""
    fmt, rng = FORMATS[name], np.random.default_rng(11)
    n = 300_007 if device == "cpu" else 9_001
    (row,) = generate(fmt, rng, 1, n)
    assert right(row, device)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("sign", [1, -1])
def test_flush_boundaries(name, sign):
    """Equal maxima, just below, at and above the counts at which bins are emptied."""
    fmt = FORMATS[name]
    big = fmt.floats(np.array([fmt.infinity - 1]))[0]
    most = fmt.floats(np.array([(16 << fmt.fraction) - 1]))[0]
    for value in (big, most, fmt.dtype.type(1), fmt.floats(np.array([1]))[0]):
        for log in (6, 11, 12, 13, 14, 15, 16):
            for n in ((1 << log) - 1, 1 << log, (1 << log) + 1):
                array = np.full(n, value * fmt.dtype.type(sign), fmt.dtype)
                assert right(array), (value, n)
                assert right(np.append(array, -array[:1])), (value, n)
    # Eight tables are filled side by side: 2^15 elements at a time.
    wild = fmt.floats(np.tile(np.array([1, fmt.infinity - 1]), 40_000))
    assert right(wild)


# --- dtypes and layouts ---------------------------------------------------------------------------


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_complex(name, device):
    real, imaginary = GENERATORS[3](FORMATS[name], np.random.default_rng(2), 2, 50_001)
    array = np.empty(50_001, f"c{2 * real.itemsize}")
    array.real, array.imag = real, imaginary
    for view in (array, array[::3], array[::-1]):
        value = add(view, device)
        assert bits_of(value.real) == expected_bits(np.ascontiguousarray(view.real))
        assert bits_of(value.imag) == expected_bits(np.ascontiguousarray(view.imag))
    assert add(np.array([1, 2.5]), device, dtype=complex) == 3.5
    pair = np.array([1 + 2j, 2.0**-60 - 1j])
    assert add(pair, device, dtype="complex64") == 1 + 1j
    for narrow, wide in (("complex64", "complex128"), ("complex128", "complex64")):
        assert add(pair.astype(narrow), device, dtype=wide).dtype == wide


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int32", "int64", "uint64"])
def test_integers(name, device):
    array = array_of(name, 20_003)
    assert add(array, device) == array.sum()
    total = sum(int(x) for x in array)
    for target in FLOATS:
        want = round_integer(FORMATS[target], total << 1074)
        assert bits_of(add(array, device, dtype=numpy_dtype(target))) == want


# --- one bit pattern ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    "places",
    [["cpu", "emulator", "emulator array"],
     pytest.param(["cuda", "cuda array"], marks=pytest.mark.gpu)],
)  # fmt: skip
def test_hundreds_of_ways_give_one_bit_pattern(name, places):
    """Order, block, grid, pieces, place, threads, schedule and backend."""
    found = check(
        name, 300 if "cuda" in places else 100, 21, places, 120 if "cpu" in places else 9973
    )
    assert found["bit_patterns"] == 1 and found["wrong"] == 0, found["examples"]


def test_rising_and_falling_and_outlying_float64():
    """The kernel's bins move with the data: up at once, and down after a while."""
    steps = 2.0 ** np.linspace(-1020, 1000, 60_000)
    lonely = np.ones(60_000)
    for array in (steps, steps[::-1], -steps, lonely):
        array[30_011] = 1e308 if array is lonely else array[30_011]
        for block, grid in ((32, 1), (384, 2), (None, None)):
            got = add(array, "emulator", block=block, grid=grid)
            assert bits_of(got) == expected_bits(np.ascontiguousarray(array))


# --- arrays on a GPU ------------------------------------------------------------------------------


@pytest.mark.parametrize("producer", [ByDLPack, ByInterface])
@pytest.mark.parametrize("strategy", ["exact", "auto"])
@pytest.mark.parametrize("name", FLOATS)
def test_arrays_on_a_gpu(producer, strategy, name):
    if name == "bfloat16" and producer is ByInterface:
        pytest.skip("the interface has no bfloat16")
    for _, rows in batches(name, 2500, 31):
        for row in (*rows[:4], rows, rows.T, rows[:, ::-2]):
            want = expected_bits(np.ascontiguousarray(row).reshape(-1))
            for timing in (True, False):
                result = gpureduce.sum(producer(row), strategy, device="emulator", timing=timing)
                assert result.value.dtype == numpy_dtype(name)
                assert bits_of(result.value) == want
                assert not timing or result.timing.strategy == "exact"


def test_complex_and_integers_on_a_gpu():
    rng = np.random.default_rng(33)
    array = rng.standard_normal(4001) + 1j * rng.standard_normal(4001)
    for view in (array, array[::3], array.astype(np.complex64)):
        got = gpureduce.sum(ByDLPack(view), device="emulator", timing=False).value
        assert got == add(view) and got.dtype == view.dtype
    ints = rng.integers(-(2**31), 2**31, 5001).astype(np.int32)
    assert gpureduce.sum(ByDLPack(ints), "exact", device="emulator").value == ints.sum()
    assert gpureduce.sum(ByDLPack(ints), device="emulator").timing.strategy != "exact"
    got = gpureduce.sum(ByDLPack(ints), "exact", dtype="float32", device="emulator").value
    assert bits_of(got) == round_integer(FORMATS["float32"], int(ints.sum()) << 1074)
    with pytest.raises(TypeError, match="64-bit integers on a GPU"):
        gpureduce.sum(ByDLPack(ints.astype(int)), "exact", dtype=float, device="emulator")


@pytest.mark.gpu
@pytest.mark.sanitizer
@pytest.mark.parametrize("name", FLOATS)
def test_short_for_the_sanitizer(name, count_sum):
    fmt, rng = FORMATS[name], np.random.default_rng(34)
    for generate in GENERATORS:
        (row,) = generate(fmt, rng, 1, 5003)
        for block, grid in ((32, 1), (96, 3), (None, None)):
            array = row[3:]
            assert bits_of(add(array, "cuda", block=block, grid=grid)) == expected_bits(array)
            count_sum("exact", name)


@pytest.mark.parametrize("add", [lambda a: gpureduce.sum(a, dtype="float64"),
                                 lambda a: gpureduce.Accumulator().add(a)])  # fmt: skip
def test_wide_integers_as_floats_take_little_memory(add):
    """A memory-mapped file may be larger than the memory; and Ctrl-C is heard between pieces."""
    array = np.ones(2**24, np.int64)
    add(array[:10])
    tracemalloc.start()
    add(array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < array.nbytes
