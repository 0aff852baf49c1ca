"""Searches for sums that are further from the exact sum than `gpureduce.error_bound` allows.

    python tools/bound_search.py --cases 100000 --seed 1

A case is one sum of one array: adversarial data, a dtype, a layout, a strategy, and if the strategy
has them, a block, a grid and a finish. Kernels run on the emulator. The reference uses Python's
integers: each float is a multiple of 2^-1127.
"""

from __future__ import annotations

import argparse
import collections
import math
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np

import gpureduce
from gpureduce.core import arrays, exact, registry

Array = np.ndarray[Any, Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
INTEGERS = ["bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]

_ALL = gpureduce.strategies()
KERNELS = [s.name for s in _ALL if s.kind in ("kernel", "broken") and len(s.dtypes) > 2]
SLOW = ("cluster", "one_cluster", "grid_sync", "bulk_copy")  # on the emulator
HOST = ["exact", "cpu", "numpy"]

_UNIT = -1127  # float64's mantissa of 53 bits, shifted down to the least subnormal


def dtype_of(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


# --- the reference -------------------------------------------------------------------------------


def units(x: float) -> int:
    """A finite float in units of 2^_UNIT."""
    mantissa, exponent = math.frexp(x)
    return int(mantissa * 2**53) << (exponent - 53 - _UNIT)


def exact_units(values: Array) -> tuple[int, int]:
    """The exact sums of finite elements and of their magnitudes."""
    if values.dtype.kind in "biu":
        whole = [int(v) << -_UNIT for v in values]
    else:
        mantissa, exponent = np.frexp(values.astype(np.float64))
        shifts = (exponent.astype(int) - 53 - _UNIT).tolist()
        whole = [
            m << s
            for m, s in zip((mantissa * 2.0**53).astype(np.int64).tolist(), shifts, strict=True)
        ]
    return sum(whole), sum(map(abs, whole))


def nearest_float(n: int) -> float:
    """A number of units, rounded to the nearest float64, as callers round a magnitude."""
    try:
        return n / (1 << -_UNIT)
    except OverflowError:
        return math.inf


# --- data ----------------------------------------------------------------------------------------


def _uniform(rng: np.random.Generator, n: int, bits: int, low: int, high: int) -> Array:
    return rng.uniform(-1, 1, n) * 2.0 ** rng.integers(low, high + 1)


def _all_sizes(rng: np.random.Generator, n: int, bits: int, low: int, high: int) -> Array:
    return np.ldexp(rng.uniform(-1, 1, n), rng.integers(low, high + 1, n))


def _few_sizes(rng: np.random.Generator, n: int, bits: int, low: int, high: int) -> Array:
    """Elements within twice the precision: their sums round the most."""
    top = rng.integers(low, high + 1)
    return np.ldexp(rng.uniform(-1, 1, n), np.maximum(top - rng.integers(0, 2 * bits, n), low - 4))


def _cancelling(rng: np.random.Generator, n: int, bits: int, low: int, high: int) -> Array:
    half = _all_sizes(rng, n // 2, bits, low, high)
    whole = np.concatenate([half, -half, rng.uniform(-1, 1, n % 2) * 2.0**low])
    return rng.permutation(whole) if rng.random() < 0.5 else whole


def _absorbed(rng: np.random.Generator, n: int, bits: int, low: int, high: int) -> Array:
    """One large element, and others of about half its last place: each addition rounds."""
    top = rng.integers(max(low + bits, low), high + 1)
    small = 2.0 ** float(top - bits) * rng.choice([0.5, 1, 1, 1.5, 3], n)
    whole = small * (1 + 2.0 ** -float(bits - 2) * rng.integers(-1, 2, n))
    whole[0 if rng.random() < 0.7 else rng.integers(n)] = 2.0 ** float(top)
    return whole * rng.choice([-1, 1])


def _least(rng: np.random.Generator, n: int, bits: int, low: int, high: int) -> Array:
    """Subnormals, and for casts numbers around half the least one."""
    return np.ldexp(rng.uniform(-1, 1, n) if rng.random() < 0.5 else np.ones(n), low + 1) * (
        2.0 ** rng.integers(-3, 4, n)
    )


def _ties(rng: np.random.Generator, n: int, bits: int, low: int, high: int) -> Array:
    """Midpoints between numbers of a dtype with 8, 11 or 24 bits, and their neighbours."""
    narrow = int(rng.choice([8, 11, 24]))
    whole = 2.0**narrow + 2 * rng.integers(0, 2 ** (narrow - 1), n) + 1
    beside = 1 + rng.integers(-1, 2, n) * 2.0**-50
    return np.ldexp(whole * beside * rng.choice([-1, 1]), rng.integers(low, high - narrow, 1))


def _constant(rng: np.random.Generator, n: int, bits: int, low: int, high: int) -> Array:
    return np.full(n, rng.uniform(-1, 1)) * 2.0 ** rng.integers(low, high + 1)


def _zeros(rng: np.random.Generator, n: int, bits: int, low: int, high: int) -> Array:
    return np.zeros(n) if rng.random() < 0.7 else -np.zeros(n)


_MAKERS: list[Callable[[np.random.Generator, int, int, int, int], Array]] = [
    _uniform, _all_sizes, _few_sizes, _few_sizes, _cancelling, _absorbed, _absorbed, _least, _ties,
    _constant, _zeros,
]  # fmt: skip


def floats(rng: np.random.Generator, n: int, name: str) -> Array:
    """Finite numbers of a dtype; near its upper end partial sums may overflow."""
    bits, least = exact.FORMATS[name]
    top = {"float16": 15, "bfloat16": 127, "float32": 127, "float64": 1023}[name]
    low = least + int(rng.choice([0, 0, bits]))
    high = top if rng.random() < 0.15 else max(low + bits + 30, min(40, top - 12))
    if rng.random() < 0.4:  # range in which casts to a narrower dtype underflow or overflow
        other, its_least = exact.FORMATS[FLOATS[rng.integers(4)]]
        low, high = max(least, its_least - other), min(top, its_least + 30 + 2 * bits)
    high = min(max(high, low + 26), top - 1)
    maker = _MAKERS[rng.integers(len(_MAKERS))]
    with np.errstate(all="ignore"):
        made = maker(rng, n, bits, low, high).astype(dtype_of(name))
    made[~np.isfinite(made)] = 1
    if rng.random() < 0.01:
        made[rng.integers(n)] = rng.choice([math.inf, -math.inf, math.nan])
    return made


def elements(rng: np.random.Generator, n: int, name: str) -> Array:
    kind = dtype_of(name)
    if name == "bool":
        return rng.random(n) < 0.5
    if kind.kind in "iu":
        bits = int(rng.integers(1, 8 * kind.itemsize + 1))
        made = rng.integers(0, 2**64, n, dtype=np.uint64) >> np.uint64(64 - bits)
        return made.astype(kind) if rng.random() < 0.5 else (~made).astype(kind)
    if kind.kind == "c":
        part = "float32" if name == "complex64" else "float64"
        whole = np.empty(n, kind)
        whole.real, whole.imag = floats(rng, n, part), floats(rng, n, part)
        return whole
    return floats(rng, n, name)


def laid_out(rng: np.random.Generator, values: Array) -> Array:
    """Returns the elements contiguous, strided, misaligned, byte-swapped, or in two dimensions."""
    n, way = len(values), rng.random()
    if way < 0.5:
        return values
    if way < 0.65:
        apart = np.zeros(n * 3 + 1, values.dtype)
        apart[1::3] = values
        return apart[1::3]
    if way < 0.75:
        later = np.zeros(n + 1, values.dtype)
        later[1:] = values
        return later[1:]
    if way < 0.85 and values.dtype != BFLOAT16:
        return values.astype(values.dtype.newbyteorder(">"))
    rows = next(r for r in (7, 5, 3, 2, 1) if n % r == 0)
    wide = np.zeros((rows, n // rows + 2), values.dtype)
    wide[:, 1:-1] = values.reshape(rows, -1)
    return wide[:, 1:-1]


# --- cases ---------------------------------------------------------------------------------------


@dataclass
class Found:
    cases: int = 0
    refused: collections.Counter[str] = field(default_factory=collections.Counter)
    not_finite: int = 0
    zero_bounds: int = 0
    violations: list[str] = field(default_factory=list)
    by_strategy: collections.Counter[str] = field(default_factory=collections.Counter)
    # The largest ratio of error to bound, for bounds smaller than the trivial |value| + magnitude.
    nearest: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [
            f"{name:22} {count:9,} cases, error up to {self.nearest.get(name, 0):.3f} of the bound"
            for name, count in sorted(self.by_strategy.items())
        ]
        return "\n".join(
            [
                *rows,
                *(f"{count:,} refused: {why}" for why, count in self.refused.most_common()),
                f"{self.cases:,} cases, {self.refused.total():,} refused, "
                f"{self.not_finite:,} results inf or nan, {self.zero_bounds:,} bounds of 0, "
                f"{len(self.violations)} violations",
                *self.violations[:20],
            ]
        )


def _targets(rng: random.Random, name: str) -> str | None:
    """A random `dtype=`; often None, except for integers."""
    wider = [*FLOATS, *COMPLEX] if name not in COMPLEX else COMPLEX
    if name in INTEGERS:
        return rng.choice(wider)
    return rng.choice(wider) if rng.random() < 0.5 else None


def _strategies(rng: random.Random) -> list[tuple[str, dict[str, Any]]]:
    """Strategies and arguments for sums of one array, three in ten of them by kernels."""
    ways: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in HOST]
    for _ in range(1 + (rng.random() < 2 / 7)):
        name = rng.choice([*KERNELS, *KERNELS, "fast", "exact"])
        if name in SLOW and rng.random() < 0.7:
            name = rng.choice(["tiles", "one_block", "vector_load", "atomic_block"])
        ways.append((name, _launch(rng, name)))
    return ways


def _launch(rng: random.Random, name: str) -> dict[str, Any]:
    row = registry.find(name)
    how: dict[str, Any] = {"device": "emulator", "allow_broken": True}
    if row.kind == "choice" or name == "exact":
        return how
    if rng.random() < 0.8:
        how["block"] = rng.choice([32, 32, 64, 96, 128])
    many = row.traits & gpureduce._host.MANY and not row.traits & gpureduce._host.ALONE
    if many and rng.random() < 0.5:
        whole = row.traits & gpureduce._host.CLUSTER
        how["grid"] = 8 if whole else rng.choice([1, 2, 3, 5, 40])
    if len(row.finishes) > 1:
        how["finish"] = rng.choice(row.finishes)
    return how


def _parts(value: Any, array: Array) -> Iterator[tuple[float, Array]]:
    if array.dtype.kind == "c":
        yield float(value.real), array.real
        yield float(value.imag), array.imag
    elif np.asarray(value).dtype.kind == "c":
        yield float(value.real), array
    else:
        yield float(value), array


def _check(
    found: Found, name: str, how: dict[str, Any], array: Array, flat: Array, sums: Any
) -> None:
    try:
        with np.errstate(all="ignore"):
            result = gpureduce.sum(array, name, **how)
    except (TypeError, ValueError) as error:  # a dtype is not cast, or a grid does not fit
        found.refused[type(error).__name__ + ": " + re.sub(r"[\d.]+", "#", str(error))[:90]] += 1
        return
    found.cases += 1
    label = name if name != "exact" or "device" not in how else "exact kernel"
    found.by_strategy[label] += 1
    parts = list(_parts(result.value, flat))
    finite = all(math.isfinite(v) for v, _ in parts)
    found.not_finite += not finite
    for (value, _), reference in zip(parts, sums, strict=False):
        if reference is None:  # inf or nan among the elements
            bound = gpureduce.error_bound(result, 1.0)
            lost = finite and registry.find(name).broken  # broken kernels skip elements
            wrong = not lost and bound != math.inf
        else:
            total, magnitude = reference
            bound = gpureduce.error_bound(result, nearest_float(magnitude))
            found.zero_bounds += bound == 0
            wrong = not finite and bound != math.inf
            if finite and bound != math.inf:
                off = abs(units(value) - total)
                wrong = off > units(bound)
                if 0 < bound < 0.9 * (abs(value) + nearest_float(magnitude)):
                    ratio = off / units(bound)
                    found.nearest[label] = max(found.nearest.get(label, 0), ratio)
        if wrong:
            found.violations.append(
                f"{label} {how} {array.dtype} {array.shape} {array.strides}: {value!r} {bound!r} "
                f"{arrays.PACK_ELEMENTS} {flat.tolist() if flat.size <= 12 else flat[:12]!r}"
            )


def search(cases: int, seed: int) -> Found:
    found, rng = Found(), random.Random(seed)
    data = np.random.default_rng(seed)
    while found.cases < cases:
        name = rng.choice([*FLOATS, *FLOATS, *FLOATS, *COMPLEX, *INTEGERS])
        n = rng.choice([1, 2, 3, 5, 8, 31, 32, 33, 64, rng.randint(1, 100), rng.randint(1, 300)])
        if rng.random() < 0.002:
            n = rng.choice([2049, 9001, 20_000])
        flat = elements(data, n, name)
        array = laid_out(data, flat)
        target = _targets(rng, name)
        how = {} if target is None else {"dtype": dtype_of(target)}
        parts = [flat.real, flat.imag] if flat.dtype.kind == "c" else [flat]
        sums = [exact_units(p) if np.isfinite(p).all() else None for p in parts]
        if None in sums:
            sums = [None] * len(sums)
        order = rng.choice(gpureduce.emulator.ORDERS)
        if order == "lockstep" and rng.random() < 0.9:
            order = "forward"
        pack = rng.choice([1 << 22, 1 << 22, 64, 7])
        packed = mock.patch.object(arrays, "PACK_ELEMENTS", pack)
        with packed, gpureduce.emulator.schedule(order, rng.randrange(100)):
            for strategy, launch in _strategies(rng):
                _check(found, strategy, how | launch, array, flat, sums)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    found = search(given.cases, given.seed)
    print(found)
    return bool(found.violations)


if __name__ == "__main__":
    sys.exit(main())
