"""Arrays of small whole numbers, views of them with any strides, and the sums that are right.

The elements are so small that every order of additions gives the same sum: a result is either
right, bit for bit, or wrong.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
NAMES = (*INTEGERS, *FLOATS, *COMPLEX)

# A view stays in the middle of its arena, so that elements of any width stay in its memory.
ARENA, MIDDLE, ROOM = 1 << 18, 1 << 17, 1 << 12
_WIDEST = 16

Array = np.ndarray[Any, Any]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@functools.cache
def _numbers() -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    return rng.integers(-4, 5, ARENA), rng.integers(-4, 5, ARENA)


@functools.cache
def arena(name: str) -> tuple[Array, tuple[Array, ...]]:
    """Elements of a dtype, and the whole numbers in their real and imaginary parts."""
    kind = dtype_of(name)
    parts = tuple(p[: ARENA * 8 // _WIDEST] for p in _numbers())
    if kind.kind in "ub":
        parts = tuple(abs(p) % (2 if kind.kind == "b" else 8) for p in parts)
    if kind.kind != "c":
        return parts[0].astype(kind), parts[:1]
    return (parts[0] + 1j * parts[1]).astype(kind), parts


CENTRE = ARENA * 8 // _WIDEST // 2


@dataclass
class View:
    """Elements of an arena: where the first one lies, and sizes and strides in elements."""

    name: str
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return dtype_of(self.name)

    @property
    def address(self) -> int:
        return int(arena(self.name)[0].ctypes.data) + self.first * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        return self.strides == packed(self.shape)

    def array(self) -> Array:
        return self._strided(arena(self.name)[0])

    def _strided(self, flat: Array) -> Array:
        steps = tuple(s * flat.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(flat[self.first :], self.shape, steps)

    def total(self) -> complex | int:
        sums = [int(self._strided(part).sum()) for part in arena(self.name)[1]]
        return complex(*sums) if len(sums) == 2 else sums[0]


def packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


def _strides(rng: Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = list(packed(shape))
    way = rng.randrange(6)
    if way == 1:
        steps = [s * rng.choice((1, 2, 3)) for s in steps]
    elif way == 2:
        steps = [s * rng.choice((1, -1)) for s in steps]
    elif way == 3:
        steps = [s * rng.choice((0, 1, 1)) for s in steps]
    elif way == 4:
        steps = [rng.randint(-9, 9) for _ in steps]
    elif way == 5:  # Fortran's order
        steps = list(reversed(packed(tuple(reversed(shape)))))
    return tuple(steps)


def shape_of(rng: Random) -> tuple[int, ...]:
    """Mostly small; sometimes empty, of one element, or of many dimensions."""
    dims = rng.choice((0, 1, 1, 1, 2, 2, 3, 4, 5, 9, 20, 64))
    shape: list[int] = []
    for _ in range(dims):
        size = rng.choice((1, 1, 2, 3, 5, 7, 16, 33, 257)) if rng.random() < 0.9 else 1000
        size = 0 if rng.random() < 0.01 else size
        shape.append(size if math.prod(max(1, s) for s in (*shape, size)) <= ROOM else 1)
    return tuple(shape)


def view_of(rng: Random, name: str | None = None) -> View:
    """Some elements of an arena, all of them in its middle."""
    name = name or rng.choice(NAMES)
    shape = shape_of(rng)
    strides = _strides(rng, shape)
    low, high = extent(shape, strides)
    if high - low > CENTRE // 2:
        strides = packed(shape)
    return View(name, CENTRE + rng.randint(-100, 100), shape, strides)


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The lowest and the highest element, counted from the first; of an empty array 0 and 0."""
    if 0 in shape:
        return 0, 0
    ends = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
    return sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)


def default_result(name: str) -> np.dtype[Any]:
    """The dtype that numpy.sum returns."""
    kind = dtype_of(name)
    if kind.kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if kind.kind == "u" else kind


def expected(total: complex | int, result: np.dtype[Any]) -> Any:
    """An exact sum as a scalar of `result`: integers wrap around, floats are rounded once."""
    if result.kind in "iu":
        assert isinstance(total, int)
        bits = 8 * result.itemsize
        return np.array([total % 2**bits], np.uint64).astype(f"u{result.itemsize}").view(result)[0]
    return np.array([total]).astype(result)[0]


def difference(value: Any, total: complex | int, result: np.dtype[Any]) -> str | None:
    """What is wrong with a sum that should be of that dtype; None if it is right."""
    if isinstance(total, complex) and result.kind != "c":
        return f"{value!r}, which has no imaginary part"
    wanted = expected(total, result)
    found = getattr(value, "dtype", type(value))
    if found != wanted.dtype:
        return f"wrong dtype: {found}, not {wanted.dtype}"
    if value.tobytes() != wanted.tobytes() and value != wanted:
        return f"wrong value: {value!r}, not {wanted!r}"
    return None
