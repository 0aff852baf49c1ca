"""How far a floating-point sum can be from the true one, by the order in which it was added.

An addition rounds: the result is the exact one times (1 + e), |e| <= u, where u is 2^-24 in float32
and 2^-53 in float64. If no element goes through more than d additions on its way into the result,
the computed sum differs from the exact one by at most

    gamma(d) * (|x[0]| + |x[1]| + ...),    gamma(d) = d u / (1 - d u)

(Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). The depth d is what the
strategies differ in: a loop has d = n, a tree log2(n), and a grid-stride kernel as many as one
thread adds plus the trees behind it. Widening an element (float16 to float32) is exact and adds
nothing; rounding the sum to a narrower result adds one more rounding. `exact` has that one only:
half a unit in the last place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpureduce import _emulator, _inputs, _registry
from gpureduce._results import SumResult, Timing

_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_LEAST = {"float16": 2.0**-25, "bfloat16": 2.0**-134, "float32": 2.0**-150}


def _gamma(depth: int, unit: float) -> float:
    return depth * unit / (1 - depth * unit) if depth * unit < 1 else math.inf


def _ceil_log2(n: int) -> int:
    return max(n - 1, 0).bit_length()


def _tree(n: int) -> int:
    """Depth of a tree over n values; a ragged block folds in one step more."""
    return _ceil_log2(n) + 1


def _launch_depth(strategy: _registry.Strategy, n: int, block: int, grid: int) -> tuple[int, int]:
    """Additions on the longest path of one launch, and how many values it leaves."""
    traits = strategy.traits
    if strategy.name == "atomic_thread":
        return n, 1
    if strategy.name == "global_race":
        return _tree(n), 1
    if traits & _emulator.MANY:
        # Each thread starts from zero. Where it loads packs of up to 16 elements, it may get a
        # pack more than its share, cut at whole warps, and a loose element at either end.
        depth = math.ceil(n / (grid * block)) + 2 * 16 + 2
    else:
        depth = 1 if traits & _emulator.TWO else 0
    # Trees over shuffles go through a whole warp, zeros included.
    depth += _tree(max(block, 32)) + 5
    if traits & _emulator.CLUSTER:
        return depth + 5, max(grid // _emulator.CLUSTER_BLOCKS, 1)
    if traits & _emulator.ALONE:
        return depth, 1
    if strategy.name == "atomic_block":
        return depth + grid, 1
    if traits & _emulator.FINISHES:
        return depth + math.ceil(grid / block) + _tree(max(block, 32)) + 5, 1
    return depth, grid


def _device_depth(strategy: _registry.Strategy, timing: Timing) -> int:
    """Additions on the longest path of all launches, pieces of a large array included."""
    if timing.block is None or timing.grid is None:
        # A library: it is taken to be no worse than a loop over a tree.
        return 2 * timing.n
    n, depth = timing.n, timing.launches
    per_thread = 2 if strategy.traits & _emulator.TWO else 1
    step, outs = _launch_depth(strategy, n, timing.block, timing.grid)
    depth += step
    while outs > 1:
        if timing.finish == "host":
            return depth + 1 + _tree(outs)
        cover = math.ceil(outs / (timing.block * per_thread))
        grid = min(timing.grid, cover) if strategy.traits & _emulator.MANY else cover
        if strategy.traits & _emulator.CLUSTER:
            grid = -(-grid // _emulator.CLUSTER_BLOCKS) * _emulator.CLUSTER_BLOCKS
        step, outs = _launch_depth(strategy, outs, timing.block, grid)
        depth += step
    return depth


def _half_ulp(value: Any, part: str) -> float:
    """Half the distance from a rounded sum, or either part of it, to its neighbours."""
    size = max(abs(float(value.real)), abs(float(value.imag)))
    if not math.isfinite(size):
        return math.inf
    return max(math.ldexp(_UNIT[part], math.frexp(size)[1] - 1), _LEAST.get(part, 0.0))


def error_bound(result: SumResult, magnitude: float) -> float:
    """The most by which `result` can differ from the exact sum of finite elements.

    `magnitude` is the sum of the elements' magnitudes, ``float(abs(a).sum())``; of a complex array,
    that of the real or the imaginary parts. 0 for integers, which wrap around but never round.
    See this module's text for the derivation.

    >>> import gpureduce, numpy as np
    >>> r = gpureduce.sum(np.full(1000, 0.1), strategy="sequential", device="emulator")
    >>> abs(float(r) - 100) <= gpureduce.error_bound(r, 100.0) < 1e-11
    True
    """
    timing = result.timing
    if timing is None:
        raise ValueError(
            "the bound follows from what ran, which a sum with timing=False does not tell: leave "
            "that out"
        )
    if not magnitude >= 0:
        raise ValueError(f"magnitude must be a sum of magnitudes, 0 or more, not {magnitude}")
    out = np.asarray(result.value).dtype
    part = out if out.kind != "c" else np.dtype(f"f{out.itemsize // 2}")
    if part.kind in "iu":
        return 0.0
    strategy = _registry.STRATEGIES[timing.strategy]
    if strategy.name == "exact":
        return _half_ulp(result.value, part.name)
    conversion = _inputs.convert(np.dtype(timing.dtype), out)
    in_double = conversion.acc == _emulator.ACC_F64
    if strategy.name == "cpu":
        factor = _emulator.cpu_error_factor(2 * timing.n, conversion.load, conversion.acc)
    else:
        depth = timing.n if strategy.name == "numpy" else _device_depth(strategy, timing)
        factor = _gamma(depth, _UNIT["float64" if in_double else "float32"])
    cast = _UNIT[part.name] * (1 + factor) if conversion.cast is not None else 0.0
    bound = (factor + cast) * magnitude
    if part.name in ("float16", "bfloat16"):
        bound += _UNIT[part.name] * (magnitude + bound) + _LEAST[part.name]
    return bound
