"""csrc/exact as a C library: programs that are no Python use it, under the sanitizer."""

from __future__ import annotations

import os
import struct
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cases import CSRC, NATIVE, needs_c
from exact_cases import (
    FLOATS,
    FORMATS,
    GENERATORS,
    INSTRUCTIONS,
    LEAST,
    batches,
    combine,
    expected_bits,
    integers,
    round_integer,
    total_of,
)
from gpureduce.core.registry import DTYPES

# What sums whole arrays. Sums of groups are other files, which take longest to compile.
CORE = ["exact/exact*.c", "exact/extract_*.c", "exact/range_sum.c", "exact/scatter.c"]
BELOW = ["cpu/instruction_set.c", "cpu/floating_point_mode.c", "cpu/gather.c", "threads/*.c"]
COMMON = ["gcc", "-std=c11", "-D_GNU_SOURCE", f"-I{CSRC}", "-c"]
STRICT = ["-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all"]


def compile_core(folder):
    core, below = ([str(p) for name in names for p in CSRC.glob(name)] for names in (CORE, BELOW))
    subprocess.run([*COMMON, *below], check=True, cwd=folder)
    subprocess.run([*COMMON, *STRICT, *core], check=True, cwd=folder)


@pytest.fixture
def program(built_once):
    """As exact_core.c's head comment says, with the header under pedantic C11."""

    def fill(folder):
        compile_core(folder)
        source = str(NATIVE / "exact_core.c")
        subprocess.run([*COMMON, *STRICT, "-pedantic", source], check=True, cwd=folder)
        link = ["gcc", "-fsanitize=undefined", "-pthread", *folder.glob("*.o"), "-lm"]
        subprocess.run([*link, "-o", folder / "exact_core"], check=True)

    return built_once("exact_core", fill) / "exact_core"


def run(program, *arguments, **environment):
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=300,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def value_of(words):
    """The integer of 68 digits, the four roundings and the count that follow it."""
    total = sum(int(digit) << 32 * k for k, digit in enumerate(words[:68]))
    return total, [int(word) for word in words[68:72]], int(words[72])


def edges():
    """Arrays just below, at and above the counts at which something is full."""
    for name in FLOATS:
        fmt, rng = FORMATS[name], np.random.default_rng(41)
        for generate in GENERATORS:
            if generate.__name__ in ("bin_edges", "same_sign_maxima"):
                # 2^8 to 2^11: blocks; 2^15: bins for all exponents, and tables; 2^13: tasks.
                for log in (5, 8, 11, 13, 15):
                    for n in ((1 << log) - 1, (1 << log) + 1):
                        yield name, generate(fmt, rng, 1, n)[0]
        for _, rows in batches(name, 600, 42):
            yield from ((name, row) for row in rows[:8])


def check_arrays(program, folder):
    """By every instruction set."""
    cases = list(edges())
    path = folder / "arrays"
    with path.open("wb") as file:
        for name, array in cases:
            for components in (1, 2):
                n = array.size // components
                file.write(struct.pack("3Q", DTYPES[name], components, n))
                file.write(array[: n * components].tobytes())
    outputs = [run(program, "arrays", str(path), GPUREDUCE_SIMD=simd) for simd in INSTRUCTIONS]
    outputs += [run(program, "arrays", str(path), GPUREDUCE_THREADS="3")]
    assert all(output == outputs[0] for output in outputs)
    lines = iter(outputs[0])
    for name, array in cases:
        even = array[: array.size // 2 * 2]
        for part in (array, even[::2], even[1::2]):
            mantissa, shift, kinds = integers(FORMATS[name], FORMATS[name].bits(part))
            kind = int(np.bitwise_or.reduce(kinds, initial=0))
            want = 0 if kind else total_of(mantissa, shift)
            total, rounded, count = value_of(next(lines))
            assert (total, count) == (want, part.size)
            assert rounded == [combine(FORMATS[to], kind, want) for to in FLOATS]
            assert rounded[FLOATS.index(name)] == expected_bits(part)


def processor():
    """What Linux tells of the first processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().split("\n\n")[0].splitlines() if path.exists() else []
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def check_instructions(program):
    """Each name is heard where the processor has it."""
    about = processor()
    flags = set(about.get("flags", "").split())
    avx2 = {"avx2", "f16c"} <= flags
    avx512 = avx2 and {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags
    names = INSTRUCTIONS[: 4 if avx512 else 2 if avx2 else 1]
    for simd in INSTRUCTIONS:
        ((name,),) = run(program, "instructions", GPUREDUCE_SIMD=simd)
        assert name == (simd if simd in names else names[-1])
    if avx512:
        ((name,),) = run(program, "instructions", GPUREDUCE_SIMD="")
        known = {("GenuineIntel", "6"): ["avx512"], ("AuthenticAMD", "25"): ["avx512_halves"]}
        assert name in known.get((about["vendor_id"], about["cpu family"]), names[2:])


def check_full_accumulators(program):
    """2^30 and 2^31 deposits of the largest digits, and a few less and more."""
    lines = run(program, "fills")
    assert len(lines) == 200
    for number, exponent, *words in lines:
        total, rounded, count = value_of(words)
        want = count * int(number) << (int(exponent) - LEAST)
        assert min(abs(count - (1 << log)) for log in (30, 31)) <= 2 and total == want
        assert rounded == [round_integer(FORMATS[name], want) for name in FLOATS]


def check_full_tables(program):
    """2^19 float64 of one place, more than a task of an array."""
    lines = run(program, "tables")
    assert len(lines) == 7 * 3 * 12
    for number, _, *words in lines:
        total, _, count = value_of(words)
        assert total == count * Fraction(float.fromhex(number)) * 2**1074


@needs_c
def test_a_c_program_of_its_own(program, tmp_path):
    check_instructions(program)
    check_full_accumulators(program)
    check_full_tables(program)
    check_arrays(program, tmp_path)


@needs_c
def test_programs_that_add_otherwise(program):
    """Rounding, subnormals and interrupts as programs may set them, and the flag that they have."""
    for simd in INSTRUCTIONS:
        for threads in ("1", "3"):
            ((count, _),) = run(program, "modes", GPUREDUCE_SIMD=simd, GPUREDUCE_THREADS=threads)
            assert int(count) >= 60
