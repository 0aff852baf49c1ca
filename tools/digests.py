"""Digests of sums, to compare machines: ``python tools/digests.py --output FILE``.

Sums the same N arrays of every dtype by `exact` and by `cpu`: most as rows of matrices, --single of
them one by one, and as many segments by `segment_sum`. Writes a SHA-256 of the results' bytes per
hundredth part of the arrays. ``--compare A B`` compares two such files, and names the first part
that differs. ``--only DTYPE --part K`` lists single sums of a part.

All arrays are made of random integers, so that no function of the C library has a part in them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

import gpureduce

FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
STRATEGIES = ("exact", "cpu")
PARTS = 100
POOL_BYTES = 1 << 20
# Bits of sign, exponent and fraction.
FORMATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
FORMATS |= {"complex64": FORMATS["float32"], "complex128": FORMATS["float64"]}
KINDS = ("any bits", "finite", "near", "narrow", "small", "few fraction bits", "cancelling")


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def float_bits(random: np.random.Generator, name: str, kind: str, count: int) -> np.ndarray:
    """Bit patterns of a kind of numbers, as unsigned integers of the format's size."""
    exponent_bits, fraction_bits = FORMATS[name]
    bits = 1 + exponent_bits + fraction_bits
    word = np.dtype(f"u{bits // 8}")
    raw = random.integers(0, 1 << 64, count, dtype=np.uint64)
    fraction = raw & np.uint64((1 << fraction_bits) - 1)
    sign = (raw >> np.uint64(63)) << np.uint64(bits - 1)
    most = (1 << exponent_bits) - 1
    low, high = {
        "any bits": (0, most + 1), "finite": (0, most), "near": (most // 2 - 3, most // 2 + 4),
        "narrow": (most // 2 - most // 16, most // 2 + most // 16 + 1), "small": (0, 3),
        "few fraction bits": (most // 4, 3 * most // 4), "cancelling": (0, most),
    }[kind]  # fmt: skip
    exponent = random.integers(low, high, count, dtype=np.uint64) << np.uint64(fraction_bits)
    if kind == "few fraction bits":
        fraction &= np.uint64(((1 << fraction_bits) - 1) ^ ((1 << max(fraction_bits - 4, 1)) - 1))
    found = (sign | exponent | fraction).astype(word)
    if kind == "cancelling":
        half = count // 2
        found[half : 2 * half] = found[:half] ^ word.type(1 << (bits - 1))
        random.shuffle(found)
    return found


def pool(random: np.random.Generator, name: str, kind: str) -> np.ndarray:
    """A long array, from which others are cut."""
    dtype = dtype_of(name)
    if name == "bool":
        return random.integers(0, 2, POOL_BYTES, dtype=np.uint8).view(bool)
    if name in INTEGERS:
        return random.integers(0, 256, POOL_BYTES, dtype=np.uint8).view(dtype)
    real = dtype.itemsize // (2 if name.startswith("complex") else 1)
    return float_bits(random, name, kind, POOL_BYTES // real).view(dtype)


class Part:
    """A part of the arrays of a dtype: all are cut from one long array."""

    def __init__(self, name: str, part: int) -> None:
        self.random = np.random.Generator(np.random.PCG64([part, *name.encode()]))
        self.kind = KINDS[part % len(KINDS)] if name in FLOATS else "any bits"
        self.numbers = pool(self.random, name, self.kind)

    def matrix(self, rows: int) -> np.ndarray:
        """Rows of one length, which overlap where the long array is too short."""
        n = int(self.random.integers(1, 1 << int(self.random.integers(1, 11))))
        step = min(n, (self.numbers.size - n) // rows)
        size = self.numbers.itemsize
        return np.lib.stride_tricks.as_strided(self.numbers, (rows, n), (step * size, size))

    def offsets(self, segments: int) -> np.ndarray:
        """Segments of the long array, of random lengths."""
        inner = self.random.integers(0, self.numbers.size + 1, segments - 1)
        return np.concatenate(([0], np.sort(inner), [self.numbers.size]))


def arrays(part: Part, count: int) -> Iterator[tuple[str, np.ndarray]]:
    """Single arrays of a part, with a description."""
    random, numbers = part.random, part.numbers
    for i in range(count):
        n = int(random.integers(0, 1 << int(random.integers(1, 12))))
        if i % 100 == 0:
            n = min(100_000, numbers.size // 2)
        start = int(random.integers(0, numbers.size - n + 1))
        yield f"{part.kind}, {n} elements from {start}", numbers[start : start + n]


def bits_of(array: np.ndarray, strategy: str, axis: int | None = None) -> bytes:
    """The bits of an array's sum, or of its sums along an axis."""
    value = gpureduce.sum(array, axis=axis, strategy=strategy, timing=False).value
    return np.ascontiguousarray(value).tobytes()


def digest(name: str, number: int, count: int, single: int) -> dict[str, str]:
    hashes = {strategy: hashlib.sha256() for strategy in STRATEGIES}
    part = Part(name, number)
    matrix = part.matrix(count)
    for strategy in STRATEGIES:
        for axis in (0, 1):
            hashes[strategy].update(bits_of(matrix, strategy, axis))
    by_segment = gpureduce.segment_sum(part.numbers, offsets=part.offsets(count)).value
    hashes["exact"].update(np.ascontiguousarray(by_segment).tobytes())
    for _, array in arrays(part, single):
        for strategy in STRATEGIES:
            hashes[strategy].update(bits_of(array, strategy))
    return {strategy: found.hexdigest()[:16] for strategy, found in hashes.items()}


def record(wanted: int, wanted_single: int, names: tuple[str, ...]) -> dict[str, object]:
    count, single = wanted // PARTS, wanted_single // PARTS
    begun = time.monotonic()
    digests = {}
    for name in names:
        digests[name] = [digest(name, part, count, single) for part in range(PARTS)]
        print(f"{name}: {PARTS * (count + single)} arrays, {time.monotonic() - begun:.0f} s",
              flush=True)  # fmt: skip
    return {
        "machine": platform.machine(),
        "gpureduce": gpureduce.__version__,
        "arrays": PARTS * (count + single),
        "digests": digests,
    }


def compare(paths: list[Path]) -> int:
    first, second = (json.loads(path.read_text()) for path in paths)
    if first["arrays"] != second["arrays"] or first["digests"].keys() != second["digests"].keys():
        print("the files are of other arrays")
        return 1
    wrong = 0
    for name, digests in first["digests"].items():
        for strategy in STRATEGIES:
            pairs = enumerate(zip(digests, second["digests"][name], strict=True))
            parts = [part for part, (a, b) in pairs if a[strategy] != b[strategy]]
            wrong += len(parts)
            if parts:
                print(f"{name}, {strategy}: {len(parts)} parts differ, first part {parts[0]}")
    machines = f"{first['machine']} and {second['machine']}"
    each = f"{first['arrays']} arrays of each of {len(first['digests'])} dtypes"
    print(f"{machines}, {each}: {'the same bits' if not wrong else 'other bits'}")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrays", type=int, default=100_000, help="rows, of each dtype")
    parser.add_argument("--single", type=int, default=5_000, help="single arrays, of each dtype")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2)
    parser.add_argument("--only", choices=FLOATS + INTEGERS)
    parser.add_argument("--part", type=int, help="list the single sums of a part of --only")
    options = parser.parse_args()
    if options.compare:
        return compare(options.compare)
    if options.part is not None:
        for i, (said, array) in enumerate(arrays(Part(options.only, options.part), 1000)):
            sums = [f"{strategy} {bits_of(array, strategy).hex()}" for strategy in STRATEGIES]
            print(f"{i}: {said}: {', '.join(sums)}")
        return 0
    names = (options.only,) if options.only else FLOATS + INTEGERS
    found = record(options.arrays, options.single, names)
    if options.output:
        options.output.write_text(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
