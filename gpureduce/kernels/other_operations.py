"""Recognizes kernels that compute a maximum, minimum, product or sum of squares, and no sum."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gpureduce.core import dtypes
from gpureduce.errors import CudaError
from gpureduce.kernels.conditions import Domain
from gpureduce.kernels.trials import Case, ScanSubject, Subject

_OPERATIONS: dict[str, Callable[[list[int]], float]] = {
    "maximum": max,
    "minimum": min,
    "product": math.prod,
    "mean": lambda values: sum(values) / len(values),
    "sum of the squares": lambda values: sum(value * value for value in values),
}
_ARRAYS = 5


def recognized(subject: Subject, where: Domain) -> str:
    """The operation that a kernel computes, other than a sum; empty if it is none of them.

    Results begin at 0, so an atomic minimum is one of elements below.
    """
    if isinstance(subject, ScanSubject):
        return subject.other(where)
    return _of(subject, where, 1) or (
        "" if subject.dtype.startswith("u") else _of(subject, where, -1)
    )


def _of(subject: Subject, where: Domain, sign: int) -> str:
    block = 64 if 64 in where.condition.blocks else where.condition.blocks[0]
    n = block * where.per_thread
    left = set(_OPERATIONS)
    bits = 8 * dtypes.number_of(subject.acc).itemsize
    for seed in range(_ARRAYS):
        random = np.random.Generator(np.random.PCG64(seed))
        values = 2 + random.permutation(n)  # -1 is what an unwritten sum is
        if seed % 2:  # small products, which floats hold
            values = np.ones(n, np.int64)
            values[random.choice(n, 6, replace=False)] = random.choice([2, 3], 6)
        values *= sign
        case = Case(n, block, 0, "forward", "small", subject.dtype)
        try:
            got = subject.run(values.astype(dtypes.named(subject.dtype)), case)
        except (CudaError, ValueError):
            return ""
        for name in list(left):
            expected = _OPERATIONS[name](values.tolist())
            if subject.is_float and name not in ("maximum", "minimum") and not seed % 2:
                continue
            if got != (expected if subject.is_float else int(expected) % 2**bits):
                left.remove(name)
    return left.pop() if len(left) == 1 else ""
