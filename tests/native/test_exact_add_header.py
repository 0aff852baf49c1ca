"""The header gpureduce/exact_add.cuh against integers: on the emulator, and on a card by nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
from fractions import Fraction

import numpy as np
import pytest
from test_emulator_kernels import CXX, build_emulator

import exact_cases
import gpureduce
from cases import CSRC, NATIVE, numpy_dtype
from exact_cases import FORMATS, GENERATORS, expected_rows
from gpureduce.hardware import toolkit

SOURCE, INCLUDE = NATIVE / "exact_add.cu", f"-I{gpureduce.include_path()}"
KINDS = {
    "float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "float64": "float64",
    "int64": "int64", "window": "float32", "narrow": "float32", "double_window": "float64",
}  # fmt: skip
WORDS = {"float16": 2, "bfloat16": 9, "float32": 9, "float64": 38}
# The least unit, the end, and the bits of a word of each window of the program.
WINDOWS = {"window": (-40, 42, 56), "narrow": (-30, 21, 16), "double_window": (-60, 22, 56)}
ADD, WARP, SHARED, DOUBLE = range(4)
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def build_card(folder):
    nvcc = toolkit.find("nvcc")
    options = ["-std=c++17", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"]
    archs = ["-gencode=arch=compute_90,code=[sm_90,compute_90]"]
    subprocess.run(
        [nvcc, *options, *archs, INCLUDE, SOURCE, "-o", "exact_add"], check=True, cwd=folder
    )


def build_here(folder, objects):
    subprocess.run(
        [*CXX, "-Wall", "-Wextra", "-Werror", "-Wno-class-memaccess", INCLUDE, "-x", "c++", SOURCE,
         "-x", "none", *objects, "-o", "exact_add"], check=True, cwd=folder,
    )  # fmt: skip


@pytest.fixture
def card(built_once):
    if made := os.environ.get("GPUREDUCE_EXACT_ADD"):  # where there is no nvcc
        return made
    if not toolkit.find("nvcc"):
        pytest.skip("no nvcc")
    return built_once("exact_add_card", build_card) / "exact_add"


@pytest.fixture(params=["emulator", pytest.param("card", marks=pytest.mark.gpu)])
def program(request, built_once):
    if request.param == "emulator":
        if not CSRC.exists() or not shutil.which("g++"):
            pytest.skip("no source or compiler")
        objects = [*built_once("emulator", build_emulator).glob("*.o")]
        return built_once("exact_add", lambda folder: build_here(folder, objects)) / "exact_add"
    return request.getfixturevalue("card")


def sums(program, kind, x, ids=None, count=1, **how):
    """The sums' words, the sums, and the sums as float64 and as float32."""
    ids = np.zeros(np.size(x), np.int32) if ids is None else ids.astype(np.int32)
    return sums_of_each(program, kind, [(x, ids, count)], **how)[0]


def sums_of_each(program, kind, jobs, way=ADD, block=128, seed=0, runs=1):
    """The same of several values, ids and numbers of sums, in one process."""
    dtype = numpy_dtype(KINDS[kind])
    given = b"".join(
        np.array([np.size(x), count], np.int64).tobytes() + ids.tobytes()
        + np.ascontiguousarray(x, dtype).tobytes() for x, ids, count in jobs
    )  # fmt: skip
    done = subprocess.run(
        [program, kind, *map(str, (way, block, seed, runs))], check=True, capture_output=True,
        input=given, env={**os.environ, "GPUREDUCE_THREADS": "2"},
    ).stdout  # fmt: skip
    made, at = [], 0
    for _, _, count in jobs:
        parts = []
        for of in (np.int64, dtype, np.float64, np.float32):
            each = WORDS.get(kind, 2) if of is np.int64 else 1
            parts.append(np.frombuffer(done, of, each * count, at))
            at += parts[-1].nbytes
        made.append((parts[0].reshape(count, -1), *parts[1:]))
    assert at == len(done)
    return made


def shuffled(rows, seed=0):
    """The elements of rows in any order, their ids, and the number of rows."""
    order = np.random.default_rng(seed).permutation(rows.size)
    ids = np.repeat(np.arange(len(rows), dtype=np.int32), rows.shape[1])
    return rows.reshape(-1)[order], ids[order], len(rows)


def by_rows(program, kind, rows, **how):
    return sums(program, kind, *shuffled(rows), **how)


def check(found, rows, fmt):
    for made, target in zip(found[1:], (fmt.name, "float64", "float32"), strict=True):
        assert FORMATS[target].bits(made).tolist() == expected_rows(fmt, rows, target)


@pytest.mark.parametrize("generate", GENERATORS, ids=lambda g: g.__name__)
@pytest.mark.parametrize("kind", FLOATS)
def test_right_on_hard_sums(program, kind, generate):
    fmt, rng = FORMATS[kind], np.random.default_rng(7)
    rows = [generate(fmt, rng, 40, n) for n in (1, 2, 5, 33)]
    # Kinds beside each other have both ways. A million sums on a card have both, too.
    way = (ADD, WARP)[(GENERATORS.index(generate) + FLOATS.index(kind)) % 2]
    found = sums_of_each(program, kind, [shuffled(some, 1) for some in rows], way=way, seed=way)
    for sums_of_rows, of in zip(found, rows, strict=True):
        check(sums_of_rows, of, fmt)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("way", [ADD, WARP, SHARED])
def test_one_address(program, kind, way):
    """Of all threads: words overflow, and carry in both directions."""
    fmt, rng = FORMATS[kind], np.random.default_rng(1)
    rows = [generate(fmt, rng, 1, 1500) for generate in GENERATORS]
    jobs = [(row[0], np.zeros(1500, np.int32), 1) for row in rows]
    for found, row in zip(sums_of_each(program, kind, jobs, way, 96, seed=3), rows, strict=True):
        check(found, row, fmt)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [ADD, WARP, SHARED])
def test_equal_values(program, kind, way):
    """Of all places in a word, as large as can be: sums of lanes and halves of words overflow."""
    fmt, dtype = FORMATS.get(KINDS[kind]), numpy_dtype(KINDS[kind])
    low = WINDOWS.get(kind, (fmt.least if fmt else 0,))[0]
    most = 2 ** (fmt.fraction + 1) - 1 if fmt else 2**63 - 1
    end = {"window": 58, "narrow": 27, "double_window": 29, "float16": 29}.get(
        kind, 63
    )  # the largest of them
    values = [
        dtype.type(sign * (np.ldexp(float(most), low + up) if fmt else most >> up))
        for up in (0, 1, 5, 8, 24, 27, 29, 30, 31, 32, 33, 34, 50, 58, 60) if up <= end
        for sign in (1, -1)
    ]  # fmt: skip
    jobs = [(np.full(2048, value, dtype), np.zeros(2048, np.int32), 1) for value in values]
    found = sums_of_each(program, kind, jobs, way, 1024)
    for of, (words, value, *_) in zip(values, found, strict=True):
        exact = Fraction(float(of) if fmt else int(of)) * 2048
        assert not words[0, 0] & 15
        if fmt:
            assert fmt.bits(value)[0] == exact_cases.round_integer(fmt, int(exact * 2**1074))
        else:
            assert value[0] == min(max(exact, -(2**63)), 2**63 - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_any_order_gives_the_same_bits(program, kind):
    dtype, rng = numpy_dtype(KINDS[kind]), np.random.default_rng(2)
    x = (rng.integers(-(2**20), 2**20, 2000) / 2**9).astype(dtype)
    found = {
        sums(program, kind, rng.permutation(x), way=way, seed=seed)[1].tobytes()
        for way in (ADD, WARP, SHARED) for seed in range(4)
    }  # fmt: skip
    assert len(found) == 1
    for way in (ADD, WARP, SHARED):
        sums(program, kind, x[:1024], way=way, runs=20)
    total = sum(map(int, x)) if kind == "int64" else float(sum(map(Fraction, x.astype(float))))
    assert found == {np.array([total]).astype(dtype).tobytes()}


@pytest.mark.parametrize("way", [ADD, WARP, SHARED])
def test_integers(program, way):
    rng = np.random.default_rng(3)
    edges = np.array([0, 1, -1, 2**63 - 1, -(2**63), 2**58, -(2**58), 2**60 - 1, 2**56])
    for n in (1, 2, 3, 700):
        for pick in range(8):
            some = edges if pick else rng.integers(-(2**63), 2**63 - 1, 9)
            x = rng.choice(some, n)
            total = sum(map(int, x))
            _, value, wide, single = sums(program, "int64", x, way=way, block=64)
            assert int(value[0]) == min(max(total, -(2**63)), 2**63 - 1)
            assert wide[0] == float(total)
            to = FORMATS["float32"]
            assert to.bits(single)[0] == exact_cases.round_integer(to, total << 1074)


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("way", [ADD, WARP, SHARED])
def test_windows(program, kind, way):
    """Multiples of the unit below the end are held; anything else makes the sum nan."""
    low, end, _ = WINDOWS[kind]
    fmt, rng = FORMATS[KINDS[kind]], np.random.default_rng(4)
    tiny, bits = 2.0**low, fmt.fraction + 1
    most = np.ldexp(float(2**bits - 1), end - bits)
    held = [tiny, -tiny, 3 * tiny, most, -most, 1.0, 0.0, -0.0, np.ldexp(2.0**bits - 1, low)]
    row = rng.choice(held, (1, 900)).astype(fmt.dtype)
    found = sums(program, kind, row[0], way=way)
    check(found, row, fmt)
    assert not found[0][0, 0] & 15
    outside = [tiny / 2, 1.5 * tiny, 2.0**end, -(2.0**end), np.finfo(fmt.dtype).max, 1e-45]
    for x in outside:
        words, value, *_ = sums(program, kind, np.append(row, fmt.dtype.type(x)), way=way)
        assert words[0, 0] & 15 == 8 and np.isnan(value[0]), x
    for x, flag in ((np.nan, 1), (np.inf, 2), (-np.inf, 4)):
        words, value, *_ = sums(program, kind, np.append(row, fmt.dtype.type(x)), way=way)
        assert words[0, 0] & 15 == flag
        assert np.array_equal(value[0], fmt.dtype.type(x), equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_most_additions(program, kind):
    """2^32 additions of the largest value by merging, of either sign: K of the narrow window."""
    fmt = FORMATS.get(KINDS[kind])
    merges = 24 if kind == "narrow" else 32
    low, end, stride = WINDOWS.get(kind, (fmt.least if fmt else 0, None, 56))
    if end is not None:
        most = Fraction(2) ** end - Fraction(2) ** (end - fmt.fraction - 1)
    else:
        largest = fmt and float(fmt.floats(np.array([fmt.infinity - 1]))[0])
        most = Fraction(largest) if fmt else 2**63 - 1
    for sign in (1, -1):
        x = np.array([sign * (float(most) if fmt else most)])
        words, value, *_ = sums(program, kind, x, way=DOUBLE, block=merges)
        exact = sign * most * 2**merges
        stride = 32 if words.shape[1] == 9 else stride
        total = sum(int(word) << stride * k for k, word in enumerate(words[0]))
        assert Fraction(total) * Fraction(2) ** (low - 4) == exact
        if fmt:
            assert fmt.bits(value)[0] == exact_cases.round_integer(fmt, int(exact * 2**1074))
        else:
            assert value[0] == (2**63 - 1 if sign > 0 else -(2**63))


@pytest.mark.gpu
@pytest.mark.sanitizer
@pytest.mark.parametrize("way", [ADD, WARP, SHARED])
def test_short_sums(card, way):
    for kind in FLOATS:
        row = exact_cases.random_bits(FORMATS[kind], np.random.default_rng(8), 1, 1000)
        check(sums(card, kind, row[0], way=way, block=96), row, FORMATS[kind])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", FLOATS)
def test_a_million_sums_and_a_thousand_orders(card, kind):
    """Sums of 8, and one of 2^20, whose values a card adds in 1,000 orders."""
    fmt, rng = FORMATS[kind], np.random.default_rng(6)
    each = 2**18 // len(GENERATORS) + 1
    rows = np.concatenate([generate(fmt, rng, each, 8) for generate in GENERATORS])
    for way in (ADD, WARP):
        check(by_rows(card, kind, rows, way=way), rows, fmt)
    row = rows[rng.permutation(len(rows))].reshape(1, -1)[:, : 2**20]
    row = np.where(fmt.bits(row) % fmt.sign < fmt.infinity, row, fmt.dtype.type(1))
    for way in (ADD, WARP, SHARED):
        check(sums(card, kind, row[0], way=way, runs=1000), row, fmt)


@pytest.mark.slow
def test_nvcc_compiles_it(built_once):
    if not toolkit.find("nvcc"):
        pytest.skip("no nvcc")
    built_once("exact_add_card", build_card)


@pytest.mark.parametrize("kind", KINDS)
def test_python_rounds_the_words_alike(program, kind):
    """And reads them as accumulators, which hold the sum itself."""
    dtype, rng = numpy_dtype(KINDS[kind]), np.random.default_rng(5)
    low, k = WINDOWS.get(kind, (None,))[0], 24 if kind == "narrow" else None
    made = gpureduce.exact_words(40, dtype, low=low, k=k)
    fmt = FORMATS.get(KINDS[kind])
    for generate in GENERATORS if fmt else [None]:
        if fmt:
            rows = generate(fmt, rng, 40, 9)
        else:
            rows = rng.integers(-(2**63), 2**63 - 1, (40, 9)) >> rng.integers(0, 64, (40, 1))
        words, values, wide, _ = by_rows(program, kind, rows)
        made.array[...] = words
        assert made.sums().tobytes() == values.tobytes()
        assert gpureduce.from_digits(made.digits(), "float64").tobytes() == wide.tobytes()
        assert made.is_outside().tolist() == [bool(w & 8) for w in words[:, 0]]
        read = gpureduce.Accumulator.from_words(words[0], dtype, low=low, k=k)
        if kind in FLOATS:
            acc = gpureduce.Accumulator(dtype).add(rows[0])
            assert read.to_digits()[4:].tolist() == acc.to_digits()[4:].tolist()
            read = gpureduce.Accumulator.from_words(words[0], dtype, count=9)
            assert read == acc
        elif kind == "int64":
            assert read == gpureduce.Accumulator.from_digits(made.digits()[0])
