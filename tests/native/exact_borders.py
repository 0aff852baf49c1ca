"""Arrays that test where the CPU's ways to add exactly end, and random arrays of many exponents.

    python tests/native/exact_borders.py float32

Prints how many such arrays were added up, how many elements they have, and how many of the sums
have other digits than the sum of the same elements eight at a time, few enough to be added up as
integers. GPUREDUCE_SIMD names the instructions; test_exact_borders.py runs this with each of them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import gpureduce
from exact_cases import FORMATS, Array, Format
from gpureduce.core import dtypes

PIECE = 2048  # csrc/exact/extract_vectors.h
LENGTHS = (40, 700, 1024, PIECE, PIECE + 1, 2 * PIECE + 70, 3 * PIECE + 129)
# Below the largest elements' power, where bins end: 2^-45, and 46 more for each bin (extract.h).
ENDS = (45, 91, 137)
PLACES = (0, 1, 2, 7, 8, 15, 31, 62, 63, 64, 65, 517, 1023, 2045, 2047, 2048, 2049, 4095, 4096)


def places(n: int) -> list[int]:
    """Where the odd element is put: in each part of a vector, a row, a piece and a tail."""
    return sorted({at for at in (*PLACES, n - 67, n - 3, n - 2, n - 1) if 0 <= at < n})


def even_ones(fmt: Format, rng: np.random.Generator, n: int, top: int) -> Array:
    """Below 2^top, of few mantissa bits and one exponent, with zeros of both signs."""
    few = min(fmt.fraction, 6)
    mantissa = (1 << few) + rng.integers(0, 1 << few, n)
    numbers = np.ldexp(mantissa.astype(float), top - few - 1) * rng.choice([-1.0, 1.0], n)
    return np.where(rng.random(n) < 0.2, rng.choice([0.0, -0.0], n), numbers).astype(fmt.dtype)


def odd_ones(fmt: Format, top: int) -> list[Any]:
    """Numbers whose last bit is where a bin ends, or one beside it: of one bit, or all."""
    kind, least = fmt.dtype.type, fmt.least
    last = [top - end + beside for end in ENDS for beside in (-2, -1, 0, 1)]
    ones = (1 << fmt.fraction + 1) - 1
    powers = [np.ldexp(1.0, low) for low in last if least <= low]
    full = [np.ldexp(float(ones), low) for low in last if least <= low and low + fmt.fraction < top]
    return [kind(x) for x in [*powers, *(-x for x in powers), *full, *(-x for x in full)]]


def borders(fmt: Format, rng: np.random.Generator) -> Iterator[Array]:
    highest = fmt.most_field - fmt.bias  # 2^highest is the largest power
    tops = {"float16": (0, 14), "bfloat16": (1, 100), "float32": (1, -20, highest, -103, -80)}
    for top in tops.get(fmt.name, (1, 1000, -900, highest, -960)):
        for odd in odd_ones(fmt, top):
            n = int(rng.choice(LENGTHS))
            base = even_ones(fmt, rng, n, top)
            for at in rng.choice(places(n), 3):
                array = base.copy()
                array[at] = odd
                yield array[int(rng.integers(0, 3)) :]


def subnormals(fmt: Format, rng: np.random.Generator) -> Iterator[Array]:
    """One of them among maxima that cancel but for one, and among their own kind."""
    least = fmt.floats(np.array([1, fmt.sign | 1, (1 << fmt.fraction) - 1, 1 << fmt.fraction]))
    huge = fmt.floats(np.array([fmt.infinity - 1]))[0]
    for n in LENGTHS:
        ups = np.where(np.arange(n) % 2, huge, -huge).astype(fmt.dtype)
        small = fmt.floats(rng.integers(0, 2 << fmt.fraction, n))
        for at in places(n):
            for base in (ups, small):
                array = base.copy()
                array[at] = least[at % 4]
                yield array


def rising(fmt: Format, rng: np.random.Generator) -> Iterator[Array]:
    """Elements that are larger than the first ones have let expect: bins end up elsewhere."""
    for n in (1000, 1500, 3 * PIECE):
        for sign in (1.0, -1.0):
            for up in range(13):
                numbers = np.full(n, sign)
                numbers[600:] = sign * 2.0**up
                numbers[::5] = 2.0**-10 * rng.integers(-3, 4, n)[::5]
                yield numbers.astype(fmt.dtype)
            # As large as one bin of 32 or 64 can hold, exactly: its end is the next binade.
            for count in (31, 32, 33, 63, 64, 65):
                numbers = np.zeros(n)
                numbers[: 64 * count] = sign
                yield numbers.astype(fmt.dtype)


def rests(fmt: Format, rng: np.random.Generator) -> Iterator[Array]:
    """Each but a few leaves the next bin as much as can be, always of one sign."""
    for n in (1000, 3 * PIECE):
        for below in (45, 46, 47, 90, 92, 93):
            size = np.ldexp(1 - 2.0 ** -(fmt.fraction + 1), 1 - below)
            for sign in (1.0, -1.0):
                numbers = np.full(n, sign * size)
                numbers[:: int(rng.integers(40, 500))] = 1.75
                yield numbers.astype(fmt.dtype)


def specials(fmt: Format, rng: np.random.Generator) -> Iterator[Array]:
    """Inf and nan in every place of a row, in full pieces and in tails."""
    for n in (64, 1100, PIECE + 64):
        base = even_ones(fmt, rng, n, 1)
        for at in (*range(64), *places(n)):
            for special in (np.nan, np.inf, -np.inf):
                array = base.copy()
                array[at] = special
                yield array
            array[(at + 9) % n] = np.inf  # and -inf
            yield array


def mixtures(fmt: Format, rng: np.random.Generator) -> Iterator[Array]:
    """Exponents, zeros, subnormals and signs drawn in many ways, as each has its own quick way."""
    end = fmt.most_field + 1  # the exponent field of inf and nan
    for _ in range(2000):
        n = int(rng.integers(8, rng.choice([200, 3000, 80_000], p=[0.74, 0.25, 0.01])))
        low, high = np.sort(rng.integers(0, end, 2))
        anywhere, half = rng.integers(0, end, n), rng.random(n) < 0.5
        fields = [
            rng.integers(low, high + 1, n),
            np.where(half, low, high),
            np.where(np.arange(n) % 97 == 0, anywhere, low),  # few that do not fit the bins
            np.where(rng.random(n) < 0.02, anywhere, (low + rng.integers(0, 16, n)) % end),
            np.where(half, end - 1, rng.integers(0, 4, n) % end),
            (anywhere | 15) % end,  # where tables change places
            anywhere,
        ]
        field = fields[rng.integers(len(fields))]
        fraction = rng.integers(0, 1 << fmt.fraction, n)
        if rng.random() < 0.5:
            one_bit = np.left_shift(1, rng.integers(0, fmt.fraction, n))
            ones = np.where(rng.random(n) < 0.25, one_bit, (1 << fmt.fraction) - 1)
            fraction = np.where(half, ones, fraction)
        zeros, subnormals, specials = rng.random(3) * (rng.random(3) < 1 / 3) * (1, 1, 4e-4)
        field[rng.random(n) < subnormals] = 0
        zero = rng.random(n) < zeros
        fraction[zero] = field[zero] = 0
        field[rng.random(n) < specials] = end
        sign = [rng.integers(0, 2, n), np.arange(n) % 2, np.zeros(n, int)][rng.integers(3)]
        bits = sign << (fmt.fraction + fmt.exponent) | field << fmt.fraction | fraction
        yield fmt.floats(bits.astype(np.uint64))[int(rng.integers(0, 6)) :]


def total(array: Array, components: int, step: int) -> gpureduce.Accumulator:
    """By one thread, `step` elements at a time."""
    acc = gpureduce.Accumulator(array.dtype)
    load = dtypes.load_of(array.real.dtype if components == 2 else array.dtype)
    for first in range(0, array.size, step):
        acc._total.add(array[first : first + step], load, components, True, 1)
    return acc


def differs(array: Array, components: int = 1) -> bool:
    quick, slow = total(array, components, array.size), total(array, components, 8 // components)
    if np.isfinite(array).all():
        return quick != slow
    return str(quick.value()) != str(slow.value())


def main() -> None:
    """Count the arrays of one dtype, and those added up wrongly."""
    warnings.simplefilter("ignore")
    fmt, rng = FORMATS[sys.argv[1]], np.random.default_rng(70)
    arrays = elements = wrong = 0
    for make in (borders, subnormals, rising, rests, specials, mixtures):
        for array in make(fmt, rng):
            arrays += 1
            elements += array.size
            wrong += differs(array)
            if fmt.name in ("float32", "float64") and arrays % 4 == 0:
                pairs = array[: array.size // 2 * 2].view(f"c{2 * array.itemsize}")
                arrays += 1
                wrong += differs(pairs, 2)
    print(arrays, elements, wrong)


if __name__ == "__main__":
    main()
