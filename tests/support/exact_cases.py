"""Data on which sums go wrong, and an oracle of Python integers for what is right.

Every finite float is a whole number of units 2^-1074, so a sum of them is a sum of integers. The
oracle rounds that once. Nothing here uses the code under test.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from cases import numpy_dtype

Array = np.ndarray[Any, Any]

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INSTRUCTIONS = ["baseline", "avx2", "avx512", "avx512_halves"]  # what GPUREDUCE_SIMD can name

# Fraction bits, exponent bits, and the exponent of the least subnormal.
_LAYOUT = {
    "float16": (10, 5, -24),
    "bfloat16": (7, 8, -133),
    "float32": (23, 8, -149),
    "float64": (52, 11, -1074),
}
_WORD = {2: np.uint16, 4: np.uint32, 8: np.uint64}
LEAST = -1074  # the oracle's unit is 2^LEAST


class Format:
    """One float type, taken apart."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dtype = numpy_dtype(name)
        self.fraction, self.exponent, self.least = _LAYOUT[name]
        self.word = _WORD[self.dtype.itemsize]
        self.sign = 1 << (self.fraction + self.exponent)
        self.infinity = self.sign - (1 << self.fraction)
        self.most_field = (1 << self.exponent) - 2  # of a finite number
        self.bias = 1 - self.least - self.fraction  # 2^(field - bias) is the leading bit

    def floats(self, bits: Array) -> Array:
        return np.ascontiguousarray(bits.astype(self.word)).view(self.dtype)

    def bits(self, floats: Array) -> Array:
        return np.ascontiguousarray(floats).view(self.word)


FORMATS = {name: Format(name) for name in FLOATS}


# --- the oracle -----------------------------------------------------------------------------------


def integers(fmt: Format, bits: Array) -> tuple[Array, Array, Array]:
    """Signed mantissas, how far each is shifted up, and 0, 1, 2, 4: finite, nan, inf, -inf."""
    wide = bits.astype(np.uint64)
    field = (wide >> np.uint64(fmt.fraction)).astype(np.int64) & (fmt.most_field + 1)
    mantissa = (wide & np.uint64((1 << fmt.fraction) - 1)).astype(np.int64)
    special = field == fmt.most_field + 1
    negative = wide >= np.uint64(fmt.sign)
    kinds = np.where(special, np.where(mantissa != 0, 1, np.where(negative, 4, 2)), 0)
    mantissa = np.where(field > 0, mantissa + (1 << fmt.fraction), mantissa)
    mantissa = np.where(special, 0, np.where(negative, -mantissa, mantissa))
    shift = np.maximum(field, 1) - 1 + fmt.least - LEAST
    return mantissa, shift, kinds


def total_of(mantissa: Array, shift: Array) -> int:
    """The sum of shifted mantissas. Halves of 27 bits: float64 adds up 2^26 of them exactly."""
    assert mantissa.size <= 2**26
    high, low = np.bincount(shift, mantissa >> 27), np.bincount(shift, mantissa & 2**27 - 1)
    used = np.flatnonzero((high != 0) | (low != 0)).tolist()
    return sum((int(high[s]) * 2**27 + int(low[s])) << s for s in used)


def exact_integer(array: Array) -> int:
    """The sum of finite floats in units of 2^LEAST."""
    fmt = FORMATS[array.dtype.name]
    mantissa, shift, kinds = integers(fmt, fmt.bits(array).reshape(-1))
    assert not kinds.any()
    return total_of(mantissa, shift)


def round_integer(fmt: Format, total: int) -> int:
    """The bits of `total` units, rounded to nearest, ties to even."""
    size = abs(total)
    drop = max(size.bit_length() - 1 - fmt.fraction, fmt.least - LEAST)
    mantissa, rest = divmod(size, 1 << drop)
    twice, one = 2 * rest, 1 << drop
    if twice > one or (twice == one and mantissa % 2):
        mantissa += 1
    bits = (drop - (fmt.least - LEAST) << fmt.fraction) + mantissa
    bits = min(bits, fmt.infinity)
    return bits | fmt.sign if total < 0 else bits


def combine(fmt: Format, kinds: int, total: int) -> int:
    """The bits of a sum in which these special values were met: `kinds` is their OR."""
    if kinds & 1 or kinds & 6 == 6:
        return fmt.infinity | 1 << (fmt.fraction - 1)
    if kinds:
        return fmt.infinity | (fmt.sign if kinds == 4 else 0)
    return round_integer(fmt, total) if total else 0


def expected_bits(array: Array, target: str | None = None) -> int:
    """What the exact sum of one array is, as the bits of a `target`."""
    fmt = FORMATS[array.dtype.name]
    mantissa, shift, kinds = integers(fmt, fmt.bits(array).reshape(-1))
    special = int(np.bitwise_or.reduce(kinds, initial=0))
    return combine(FORMATS[target or fmt.name], special, total_of(mantissa, shift))


def short_sums(rng: np.random.Generator, n: int, dtype: str) -> Array:
    """Rows of four numbers of some 50 binades: one of them, half of its last place, much less."""
    last = {"float32": 23, "float64": 52}[dtype]
    rows = np.zeros((n, 4))
    rows[:, 0] = 1 + rng.choice([0, 1, 2, 2**last - 2, 2**last - 1], n) * 2.0**-last
    rows[:, 0] *= rng.choice([-1, 0, 1], n, p=[0.45, 0.1, 0.45]) * 2.0 ** rng.integers(0, 44, n)
    half = np.ldexp(np.abs(rows[:, 0]), -rng.choice([24, 53], n))
    half = np.maximum(2.0 ** np.floor(np.log2(np.maximum(half, 2.0**-6))), 2.0**-6)
    rows[:, 1] = half * rng.integers(-1, 2, n)
    rows[:, 2:] = rng.choice([-1, 0, 1], (n, 2)) * 2.0 ** rng.integers(-6, 20, (n, 2))
    rows[rng.random(n) < 0.2, 2:] = 0
    return rows.astype(dtype)


def expected_rows(fmt: Format, rows: Array, target: str | None = None) -> list[int]:
    """The same for each row of many, with the taking apart done at once."""
    to = FORMATS[target or fmt.name]
    bits = fmt.bits(rows)
    count, n = bits.shape
    mantissa, shift, kinds = integers(fmt, bits.reshape(-1))
    terms = list(map(operator.lshift, mantissa.tolist(), shift.tolist()))
    kind = np.bitwise_or.reduce(kinds.reshape(count, n), axis=1).tolist()
    return [combine(to, kind[i], sum(terms[i * n : (i + 1) * n])) for i in range(count)]


def bits_of(value: Any) -> int:
    scalar = np.asarray(value)
    return int(scalar.reshape(1).view(_WORD[scalar.dtype.itemsize])[0])


# --- the data: `count` rows of n elements ---------------------------------------------------------


def _as(fmt: Format, values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(fmt.dtype)


def _power(fmt: Format, exponent: Array) -> Array:
    """2^exponent as a float, for any exponent from the least subnormal's to the greatest."""
    field = exponent + fmt.bias
    normal = np.maximum(field, 0) << fmt.fraction
    subnormal = np.left_shift(1, np.clip(exponent - fmt.least, 0, fmt.fraction - 1))
    return fmt.floats(np.where(field > 0, normal, subnormal))


def uniform(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    return _as(fmt, rng.random((count, n)))


def normal(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    return _as(fmt, rng.standard_normal((count, n)))


def lognormal(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    return _as(fmt, np.minimum(rng.lognormal(0, 5, (count, n)), 60000.0))


def random_bits(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    bits = rng.integers(0, fmt.infinity, (count, n), dtype=np.uint64)
    return fmt.floats(bits | rng.integers(0, 2, (count, n), dtype=np.uint64) * np.uint64(fmt.sign))


def any_bits(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """Nans and infinities among them."""
    return fmt.floats(rng.integers(0, 2 * fmt.sign - 1, (count, n), dtype=np.uint64, endpoint=True))


def narrow(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """A few binades, anywhere in the range."""
    low = rng.integers(0, fmt.most_field - 3, (count, 1), dtype=np.uint64)
    field = low + rng.integers(0, 4, (count, n), dtype=np.uint64)
    fraction = rng.integers(0, 1 << fmt.fraction, (count, n), dtype=np.uint64)
    sign = rng.integers(0, 2, (count, n), dtype=np.uint64) * np.uint64(fmt.sign)
    return fmt.floats(sign | field << np.uint64(fmt.fraction) | fraction)


def cancelling(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """Large numbers that cancel; what is left is up to the whole range smaller."""
    rows = random_bits(fmt, rng, count, n)
    half = n // 2
    rows[:, half : 2 * half] = -rows[:, :half]
    field = rng.integers(0, fmt.most_field, (count, 1), dtype=np.uint64)
    kept = rng.integers(0, 1 << fmt.fraction, (count, 1), dtype=np.uint64)
    rows[:, -1:] = fmt.floats(field << np.uint64(fmt.fraction) | kept)
    return rng.permuted(rows, axis=1)


def ill_conditioned(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """Condition numbers of about 2^spread, drawn per row, after Ogita, Rump and Oishi.

    Half the elements have spread exponents; then each next one takes away most of what there is.
    """
    spread = rng.integers(1, min(fmt.most_field - fmt.bias - 8, 300), count)
    half = (n + 1) // 2
    exponent = rng.integers(0, 1 << 30, (count, n)) % (spread[:, None] + 1)
    exponent[:, 0] = spread
    exponent[:, half:] = spread[:, None] * np.arange(n - half)[::-1] // max(n - half, 1)
    rows = _as(fmt, (rng.random((count, n)) - 0.5) * 2.0**exponent)
    for row in rows:
        total = exact_integer(row[:half])
        for i in range(half, n):
            kept, one = float(row[i]).as_integer_ratio()
            row[i] = fmt.dtype.type((kept * (1 << -LEAST) // one - total) / (1 << -LEAST))
            taken, one = float(row[i]).as_integer_ratio()
            total += taken * (1 << -LEAST) // one
    return rng.permuted(rows, axis=1)


def maxima(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """The largest of both signs: intermediate overflow, and final overflow or not."""
    bits = np.full((count, n), fmt.infinity - 1, np.uint64)
    few = rng.random((count, n)) < 0.1
    bits[few] = rng.integers(0, fmt.infinity, int(few.sum()), dtype=np.uint64)
    share = rng.random((count, 1))
    return fmt.floats(bits | (rng.random((count, n)) < share) * np.uint64(fmt.sign))


def same_sign_maxima(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    bits = np.full((count, n), fmt.infinity - 1, np.uint64)
    return fmt.floats(bits | (rng.random((count, 1)) < 0.5) * np.uint64(fmt.sign))


def overflow_edge(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """The largest number, and then about half its last place, which may round to inf."""
    rows = np.zeros((count, n), fmt.dtype)
    top = fmt.most_field - fmt.bias
    rows[:, 0] = fmt.floats(np.full(count, fmt.infinity - 1))
    if n > 1:
        rows[:, 1] = _power(fmt, np.full(count, top - fmt.fraction - 1))
    if n > 2:
        tiny = _power(fmt, rng.integers(fmt.least, top - fmt.fraction - 1, count))
        rows[:, 2] = np.where(rng.random(count) < 0.5, tiny, -tiny)
        rows[rng.random(count) < 0.3, 2] = 0
    rows = np.where(rng.random((count, 1)) < 0.5, rows, -rows)
    return rng.permuted(rows, axis=1)


def subnormals(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    bits = rng.integers(0, 1 << fmt.fraction, (count, n), dtype=np.uint64)
    return fmt.floats(bits | rng.integers(0, 2, (count, n), dtype=np.uint64) * np.uint64(fmt.sign))


def one_subnormal(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """One among maxima that cancel, or nearly."""
    rows = maxima(fmt, rng, count, n)
    half = n // 2
    rows[:, half : 2 * half] = -rows[:, :half]
    rows[:, -1] = fmt.floats(rng.integers(1, 1 << fmt.fraction, count, dtype=np.uint64))
    return rng.permuted(rows, axis=1)


def midpoints(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """Half a last place on top of mantissas of all ones or random ones, of both signs.

    Exactly that, or off by something tiny: where roundings of negative totals have gone wrong.
    """
    rows = np.zeros((count, n), fmt.dtype)
    field = rng.integers(1, fmt.most_field, count)
    ones = (1 << fmt.fraction) - 1
    fraction = np.where(rng.random(count) < 0.5, ones, rng.integers(0, ones + 1, count))
    rows[:, 0] = fmt.floats(field << fmt.fraction | fraction)
    last = np.maximum(field - fmt.bias - fmt.fraction - 1, fmt.least)
    if n > 1:
        half = _power(fmt, last)
        rows[:, 1] = np.where(rng.random(count) < 0.7, half, -half)
    if n > 2:
        below = rng.integers(0, 1 << 30, count) % np.maximum(last - fmt.least, 1) + fmt.least
        tiny = _power(fmt, below)
        rows[:, 2] = np.where(rng.random(count) < 0.5, tiny, -tiny)
        rows[rng.random(count) < 0.4, 2] = 0
    if n > 4:
        rows[:, 3] = random_bits(fmt, rng, count, 1)[:, 0]
        rows[:, 4] = -rows[:, 3]
    rows = np.where(rng.random((count, 1)) < 0.5, rows, -rows)
    return rng.permuted(rows, axis=1)


def bin_edges(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """The largest numbers of one of the kernels' bins, and among them some of its least odd ones.

    A bin that takes more of them than it can hold loses the odd ones.
    """
    fields = {"float16": 32, "bfloat16": 4}.get(fmt.name, 16)
    low = rng.integers(0, fmt.most_field // fields + 1, (count, 1)) * fields
    high = np.minimum(low + fields - 1, fmt.most_field)
    largest = high << fmt.fraction | ((1 << fmt.fraction) - 1)
    share = 0.06 if n < 1000 else 0.001  # few, so that the bins are as full as can be
    bits = np.where(rng.random((count, n)) < share, low << fmt.fraction | 1, largest)
    return fmt.floats(bits.astype(np.uint64) | (rng.random((count, 1)) < 0.5) * np.uint64(fmt.sign))


def bin_ends(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """Numbers of few bits and one exponent, and one whose last bit is where a processors' bin ends.

    Or beside that: 2^-45 below the largest elements' power, and 46 more for each bin (extract.h).
    """
    few, highest = min(fmt.fraction, 6), fmt.most_field - fmt.bias
    top = rng.integers(max(fmt.least + few + 2, -1000), highest + 1, (count, 1))
    mantissa = (1 << few) + rng.integers(0, 1 << few, (count, n))
    rows = np.ldexp(mantissa.astype(float), top - few - 1) * rng.choice([-1.0, 1.0], (count, n))
    rows[rng.random((count, n)) < 0.2] = rng.choice([0.0, -0.0])
    low = top[:, 0] - rng.choice([45, 91, 137], count) + rng.integers(-2, 2, count)
    full = (rng.random(count) < 0.5) & (low + fmt.fraction < top[:, 0])
    ones = np.where(full, (2 << fmt.fraction) - 1.0, 1.0) * rng.choice([-1.0, 1.0], count)
    rows[np.arange(count), rng.integers(0, n, count)] = np.ldexp(ones, np.maximum(low, fmt.least))
    return _as(fmt, rows)


def two_sizes(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """Of two exponents, and a few of any; mantissas of one bit, of all, or random."""
    low, high = np.sort(rng.integers(0, fmt.most_field + 1, (2, count, 1)), axis=0)
    field = np.where(rng.random((count, n)) < rng.random((count, 1)), low, high)
    few = rng.random((count, n)) < 0.02
    field[few] = rng.integers(0, fmt.most_field + 1, int(few.sum()))
    fraction = rng.integers(0, 1 << fmt.fraction, (count, n))
    simple = np.left_shift(1, rng.integers(0, fmt.fraction, (count, n)))
    simple = np.where(rng.random((count, n)) < 0.25, simple, (1 << fmt.fraction) - 1)
    fraction = np.where(rng.random((count, 1)) < 0.5, simple, fraction)
    bits = (field << fmt.fraction | fraction).astype(np.uint64)
    return fmt.floats(bits | rng.integers(0, 2, (count, n), dtype=np.uint64) * np.uint64(fmt.sign))


def zeros(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    return fmt.floats(rng.integers(0, 2, (count, n), dtype=np.uint64) * np.uint64(fmt.sign))


def specials(fmt: Format, rng: np.random.Generator, count: int, n: int) -> Array:
    """Finite numbers, and one or two of nan, inf and -inf anywhere."""
    rows = random_bits(fmt, rng, count, n)
    quiet = fmt.infinity | 1 << (fmt.fraction - 1)
    kinds = fmt.floats(np.array([quiet, fmt.infinity + 1, fmt.infinity, fmt.infinity | fmt.sign]))
    for _ in range(2):
        where = rng.integers(0, n, count)
        rows[np.arange(count), where] = kinds[rng.integers(0, 4, count)]
    return rows


GENERATORS = [
    uniform, normal, lognormal, random_bits, any_bits, narrow, cancelling, ill_conditioned, maxima,
    same_sign_maxima, overflow_edge, subnormals, one_subnormal, midpoints, bin_edges, bin_ends,
    two_sizes, zeros, specials,
]  # fmt: skip


def batches(name: str, arrays: int, seed: int) -> Iterator[tuple[str, Array]]:
    """Generator names and rows of data, `arrays` rows in all: many short ones and some long.

    Each generator comes at least twice, if there are that many rows.
    """
    fmt = FORMATS[name]
    rows = min(500, max(1, arrays // (2 * len(GENERATORS))))
    rng = np.random.default_rng([seed, FLOATS.index(name)])
    while arrays > 0:
        for generate in GENERATORS:
            n = int(rng.choice([rng.integers(1, 12), rng.integers(5, 40)], p=[0.75, 0.25]))
            count = min(rows, arrays)
            if rng.random() < 0.02:
                n, count = int(rng.integers(100, 3000)), min(10, arrays)
            yield generate.__name__, generate(fmt, rng, count, n)
            arrays -= count
            if arrays <= 0:
                return


def hard(dtype: str, shape: tuple[int, int], seed: int) -> Array:
    """Rows over all exponents that cancel but for one small number."""
    rng = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    limits = np.finfo(kind) if dtype != "bfloat16" else np.finfo(np.float32)
    fraction = _LAYOUT[dtype][0]
    rows, columns = shape
    exponents = rng.integers(limits.minexp - fraction, limits.maxexp - fraction, shape)
    whole = rng.integers(1, 2**fraction, shape).astype(float) * rng.choice([-1.0, 1.0], shape)
    array = np.ldexp(whole, exponents).astype(kind)
    half = columns // 2
    array[:, half : 2 * half] = -array[:, :half][:, rng.permutation(half)]
    array[:, -1] = np.ldexp(1.0, limits.minexp - fraction + 1 + rng.integers(0, 9, rows)).astype(
        kind
    )
    return array
