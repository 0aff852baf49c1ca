"""How far a floating-point sum can be from the true one, by the order in which it was added.

Let x[1..n] be the elements, S = x[1] + ... + x[n] their exact sum, M = |x[1]| + ... + |x[n]| the
magnitude, and v the result. The bound is on |v - S|. It is proved here, step by step.

Assumptions. The elements are finite. Arithmetic is IEEE 754: rounding to nearest, subnormals kept
(one exception is named below). The magnitude that the caller gives is at least M, or M rounded to
the nearest float64. A magnitude that is too small by some factor makes the bound too small by at
most that factor.

0. Units. A float dtype with p significant bits and least subnormal q has the unit u = 2^-p.
   Rounding a real number r to it moves r by at most u |r|, or by at most q/2 where the result is
   subnormal. If r is a multiple of q, it is moved by at most u |r|, since multiples of q in the
   subnormal range are numbers of the dtype.

1. Special values. An inf or nan never disappears: inf + x is inf or nan, and every
   conversion keeps both. So a finite v means that no step before it overflowed, and the
   assumptions of the steps below hold. (The strategy `cpu` repeats overflowed float64 sums with all
   elements times 2^-64, which loses less than n 2^-1011 where M > 2^1023; the last factor covers
   it.) For an inf or nan result no finite bound exists: the bound is inf.

2. Integers wrap around and do not round: the bound is 0. The mixed strategies of processors and
   device ("cpu+...") add integers only; their share of floats is added by `exact`.

3. Exact sums are rounded once. Let ulp be the distance from v to its neighbour away from zero. Then
   |v - S| <= ulp / 2. All elements, and therefore S, are multiples of g, the least subnormal of the
   elements' dtype (1 for integers). If ulp <= g, then S is a multiple of ulp that rounds to v, so
   S = v: the bound is 0. This holds for every subnormal or zero result of the elements' own dtype.
   If v = 0 and ulp > g, the rounding underflowed: |v - S| = |S| <= M as well.

4. Casts. If `dtype` asks for it, each element is first rounded to c[i], an element of the result's
   dtype:

       |c[i] - x[i]| <= w |x[i]| + e,    w = u and e = q/2 of that dtype

   with w = 0 if it has as many significant bits as the source, and e = 0 if it has as small a
   subnormal. NumPy and ml_dtypes convert float64 and wide integers to 16-bit floats by way of
   float32, which adds a rounding to float32: w = u + u' + u u', e = q/2 + q'/2 (1 + u). In total,

       |sum c - S| <= E := w M + n e,    A := |c[1]| + ... + |c[n]| <= M + E.

   Reading an element into a wider accumulator rounds nothing.

5. Additions. fl(a + b) = (a + b)(1 + d) with |d| <= u, also where the sum is subnormal: it is then
   a multiple of q and exact. If no element goes through more than d roundings, the total t is

       |t - sum c| <= gamma(d) A,    gamma(d) = d u / (1 - d u)

   (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). Adding to 0 is exact, and
   counting it does no harm. In any order of the n - 1 additions of n elements also

       |t - sum c| <= (n - 1) u A

   (Jeannerod and Rump, Improved error bounds for inner products in floating-point arithmetic,
   2013). By induction: let the last addition join a and b, computed from i and k elements of
   magnitudes A and B, with errors of at most (i - 1) u A and (k - 1) u B. It rounds by at most
   u |a + b|, and by at most |a|, and |b|, since a and b themselves are candidates. If A <= u B,
   take |a| <= A + (i - 1) u A: the errors add up to at most
   A + 2 (i - 1) u A + (k - 1) u B <= (i + k - 1) u (A + B). B <= u A is the same. Otherwise u A < B
   and u B < A, and u |a + b| <= u (A + B) + (i - 1) u B + (k - 1) u A gives the same total.

   The smaller of the two bounds is used. The depth d depends on the strategy; `_launch_depth`
   derives it. `numpy` and `cub` promise no order: (n - 1) u. Nor is one derived for kernels along
   an axis, whose n is that of all sums.

   Two consecutive steps, of factors f and g, have the factor f + g + f g: the second one adds
   values whose magnitudes add up to at most (1 + f) A. finish="host" adds up block sums by `cpu`;
   pieces of an array are added one after the other in the accumulator's dtype.

   Exception: on a GPU, atomicAdd of float32 in global memory takes subnormal operands and results
   as zero (PTX manual, atom.add). Each moves the sum by less than 2^-126. For `atomic_thread` and
   `atomic_block`, E contains two of these for each atomic, and only gamma is used.

6. The processors' strategy adds float32 and narrower in float64, by the depth in
   csrc/cpu/cpu_sum.h. It joins the pieces of an array that is cast without rounding. A float32
   accumulator is then rounded to float32 once. That moves the sum by at most u |r|, where r is the
   rounded sum: all are multiples of a float32's least subnormal.

7. float16 and bfloat16 results are rounded once more, from float32: by at most ulp(v) / 2, as in
   step 3 with g = q. (`numpy` may cast to float32 rather than to the 16-bit dtype, which rounds
   less in step 4; then the total need not be a multiple of q, and g = 0.)

8. Whatever a strategy does, |v - S| <= |v| + |S| <= |v| + M. This is the bound of strategies that
   are wrong on purpose, and of all others where it is smaller.

Evaluating these formulas in float64 takes some tens of roundings; a last factor of 1 + 2^-46 covers
them. A bound below 2^-1022 may be rounded down to a multiple of 2^-1074. It still holds, because
every error is such a multiple, too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.core import dtypes, exact, gpu_arrays, registry
from gpureduce.core.checks import shown
from gpureduce.core.results import SumResult, Timing

_FLUSHED = 2.0**-126  # atomics in global memory flush float32 values below this to zero
_ROUNDINGS_HERE = 1 + 2.0**-46
_GIVEN = 1 + 2.0**-52  # the caller's magnitude may have been rounded to nearest
_WARPS_ADD = 10  # depth of two trees over 32 lanes
_TILE, _SLACK = 2048, 38  # packs in a tile of bulk_copy; packs by which `tiles` rounds up


def _unit(name: str) -> float:
    return math.ldexp(1.0, -exact.FORMATS[name][0])


def _least(name: str) -> float:
    return math.ldexp(1.0, exact.FORMATS[name][1])


def _gamma(depth: int, unit: float) -> float:
    return depth * unit / (1 - depth * unit) if depth * unit < 1 else math.inf


def _in_any_order(n: int, unit: float) -> float:
    return max(n - 1, 0) * unit


def in_any_order(n: int, acc: str, magnitude: float) -> float:
    """The bound for n floats that are added up in dtype `acc`, in an order that is not known."""
    return _in_any_order(n, _unit(acc)) * magnitude * _GIVEN * _ROUNDINGS_HERE


def _then(first: float, second: float) -> float:
    """The error factor of two consecutive steps."""
    return first + second + first * second


def _share(n: int, threads: int) -> int:
    return -(-n // threads)


def _loads(strategy: registry.Strategy, n: int, block: int, grid: int, per_pack: int) -> int:
    """Additions on the longest path from an element to its thread's sum.

    A pack of 16 bytes is first added up by itself. There are at most n / per_pack packs. A thread
    may also add a single element at either end of the array, outside any pack.
    """
    threads, packs = grid * block, n // per_pack
    in_pack = per_pack - 1 + 2
    if strategy.traits & _host.TWO:
        return 1
    if not strategy.traits & _host.MANY:
        return 0
    if strategy.name == "vector_load":  # two packs are added to each other, then to the sum
        return in_pack + 1 + _share(packs, threads)
    if strategy.name == "one_cluster":
        return in_pack + _share(packs, threads)
    if strategy.name == "one_block":  # packs added pairwise; at least half of the threads add
        return in_pack + 3 + _share(packs, 4 * (block // 2 + 1))
    if strategy.name == "tiles":  # a share consists of groups of 32 packs
        groups = (packs + _SLACK) // 32
        return in_pack + _share(32 * _share(groups, grid), block)
    if strategy.name == "bulk_copy":  # whole tiles per block; all threads add the other packs
        of_tiles = _share(packs // _TILE, grid) * _share(_TILE, block)
        return in_pack + of_tiles + 1 + _share(_TILE, threads)
    return _share(n, threads)


def _launch_depth(
    strategy: registry.Strategy, n: int, block: int, grid: int, per_pack: int
) -> tuple[int, int]:
    """Returns the additions on the longest path of one launch, and the number of its outputs."""
    traits = strategy.traits
    if strategy.name == "atomic_thread":
        return n, 1
    depth = _loads(strategy, n, block, grid, per_pack)
    # Warp reductions run two trees of 32 lanes, zeros included; others have one step per halving.
    depth += _WARPS_ADD if traits & _host.MANY else max(block - 1, 0).bit_length()
    if strategy.name == "one_cluster":
        return depth + 5, 1
    if traits & _host.CLUSTER:
        return depth + 5, max(grid // _host.CLUSTER_BLOCKS, 1)
    if traits & _host.ALONE:
        return depth, 1
    if strategy.name == "atomic_block":
        return depth + grid, 1
    if strategy.name in ("tiles", "bulk_copy"):  # one warp adds up the block sums
        return depth + _share(grid, 32) + 5, 1
    if traits & _host.FINISHES:
        return depth + _share(grid, block) + _WARPS_ADD, 1
    return depth, grid


def _blocks_left(strategy: registry.Strategy, timing: Timing, outs: int, block: int) -> int:
    """The most block sums of a first launch. Later pieces may be longer than the first one."""
    if timing.pieces == 1 or outs == 1:
        return outs
    per_thread = 2 if strategy.traits & _host.TWO else 1
    return max(outs, _share(timing.n, block * per_thread)) + _host.CLUSTER_BLOCKS


# A user's kernel adds in an order that is not known.
_OF_A_USER = replace(registry.STRATEGIES["cub"], name="a kernel of yours")


def _device_factor(
    strategy: registry.Strategy, timing: Timing, conversion: dtypes.Conversion, unit: float
) -> float:
    """The error factor, relative to A, of all launches and of joining a large array's pieces."""
    n, block, grid = timing.n, timing.block, timing.grid
    in_any_order = _in_any_order(n, unit)
    if block is None or grid is None or strategy is _OF_A_USER or strategy.kind == "axis":
        return in_any_order  # a library, an order that is not known, or an empty sum
    acc_bytes = dtypes.number_of(conversion.acc).itemsize
    pieces = timing.launches  # an upper bound: each piece has at least one launch
    load_bytes = {_host.LOAD_F64: 8, _host.LOAD_F32: 4}.get(conversion.load, 2)
    depth, outs = _launch_depth(strategy, n, block, grid, 16 // load_bytes)
    outs = _blocks_left(strategy, timing, outs, block)
    if timing.finish == "host" and outs > 1:
        load = _host.LOAD_F64 if acc_bytes == 8 else _host.LOAD_F32
        host = _host.cpu_error_factor(outs, load, conversion.acc)
        blocks = min(_gamma(depth, unit), in_any_order)
        return _then(_then(blocks, host), _gamma(pieces, unit))
    per_thread = 2 if strategy.traits & _host.TWO else 1
    while outs > 1:
        cover = _share(outs, block * per_thread)
        grid = min(timing.grid or cover, cover) if strategy.traits & _host.MANY else cover
        if strategy.traits & _host.CLUSTER:
            grid = _share(grid, _host.CLUSTER_BLOCKS) * _host.CLUSTER_BLOCKS
        step, outs = _launch_depth(strategy, outs, block, grid, 16 // acc_bytes)
        depth += step
    by_depth = _gamma(depth + pieces, unit)
    return by_depth if _flushes(strategy, timing, unit) else min(by_depth, in_any_order)


def _flushes(strategy: registry.Strategy, timing: Timing, unit: float) -> bool:
    atomics = strategy.name in ("atomic_thread", "atomic_block")
    return atomics and timing.backend == "cuda" and unit == _unit("float32")


def _flushed(strategy: registry.Strategy, timing: Timing, unit: float) -> float:
    """The error of atomics that flush subnormals to zero."""
    if not _flushes(strategy, timing, unit):
        return 0.0
    atomics = timing.n if strategy.name == "atomic_thread" else timing.launches * (timing.grid or 0)
    return 2 * atomics * _FLUSHED


def _cast_error(source: np.dtype[Any], part: str) -> tuple[float, float]:
    """The w and e of step 4, for casting elements to a float dtype."""
    bits, least = exact.FORMATS[part]
    own = dtypes.part_of(source)
    its_bits, (_, its_least) = exact.precision(own), exact.FORMATS.get(own.name, (0, 0))
    relative = _unit(part) if its_bits > bits else 0.0
    absolute = _least(part) / 2 if its_least < least else 0.0
    if part in ("float16", "bfloat16") and its_bits > exact.FORMATS["float32"][0]:
        absolute += _least("float32") / 2 * (1 + relative) if its_least < least else 0.0
        relative = _then(relative, _unit("float32"))
    return relative, absolute


def _grid(timing: Timing) -> float:
    """The g of step 3: all elements are multiples of it."""
    if _elements(timing) == "bfloat16":
        return _least("bfloat16")
    source = _source_of(timing)
    return 1.0 if source.kind in "biu" else _least(dtypes.part_of(source).name)


def _rounding(size: float, part: str, grid: float) -> float:
    """The largest error of rounding a multiple of `grid` to a number of magnitude `size`."""
    bits, least = exact.FORMATS[part]
    ulp = math.ldexp(1.0, max(math.frexp(size)[1] - bits, least) if size else least)
    return 0.0 if ulp <= grid else ulp / 2


def _elements(timing: Timing) -> str:
    """The name of the elements' dtype, without its byte order."""
    return timing.dtype.lstrip(">")


def _source_of(timing: Timing) -> np.dtype[Any]:
    """The elements' dtype; float16 instead of bfloat16 where NumPy has no bfloat16."""
    name = _elements(timing)
    return gpu_arrays.source("B", 2) if name == "bfloat16" else np.dtype(name)


def error_bound(result: SumResult, magnitude: float) -> float:
    """The most by which `result` can differ from the exact sum of finite elements.

    The text of this module derives it for every strategy.

    Parameters
    ----------
    result
        The result of `gpureduce.sum`, with its timing. For a complex sum the bound holds for the
        real and for the imaginary part.
    magnitude
        The sum of the elements' magnitudes, or more. It may be rounded to the nearest float64, as
        by ``math.fsum`` or ``gpureduce.sum(abs(a), dtype="float64")``. A sum in a narrower dtype,
        as ``abs(a).sum()`` of float32, may be too small. For a complex array, the sum of the
        magnitudes of the real or of the imaginary parts, whichever is bounded.

    Returns
    -------
    float
        0 for integers, which wrap around but never round, and for exact results that are not
        rounded. inf for a result that is inf or nan, because no finite bound exists.

    Raises
    ------
    ValueError
        For a result without timing, for a result of `trapezoid` or `integrate`, which is not a
        plain sum, for a sum with `initial`, for an array of sums, and for a magnitude below 0 or
        nan.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> r = gpureduce.sum(np.full(1000, 0.1), strategy="sequential", device="emulator")
    >>> abs(float(r) - 100) <= gpureduce.error_bound(r, 100.0) < 1e-11
    True
    """
    if not isinstance(result, SumResult):
        name = type(result).__name__
        raise TypeError(f"result must be what gpureduce.sum returns, value and timing, not {name}")
    if isinstance(magnitude, str) or np.ndim(magnitude) or np.iscomplexobj(magnitude):
        raise TypeError(f"magnitude must be one real number, not {magnitude!r}")
    timing = result.timing
    if timing is None:
        raise ValueError("error_bound needs the timing: call sum without timing=False")
    if timing.integral:
        raise ValueError(
            "error_bound covers results of gpureduce.sum only; an integral also rounds its "
            "samples, steps or product: see the docstrings of trapezoid and integrate"
        )
    if timing.initial:
        raise ValueError(
            "error_bound does not cover initial: leave initial out of the sum, or append it to "
            "the array"
        )
    value = result.value
    if shape := np.shape(value):
        raise ValueError(
            f"error_bound takes the result of one sum, not an array of sums of shape {shape}"
        )
    try:
        given = float(magnitude)
    except TypeError as error:
        raise TypeError(f"magnitude must be one real number, not {magnitude!r}") from error
    except OverflowError:
        given = math.inf if magnitude > 0 else -math.inf
    if not given >= 0:
        raise ValueError(
            f"magnitude, a sum of absolute values, must be 0 or more, not {shown(magnitude)}"
        )
    out = np.asarray(value).dtype
    if out.kind in "ium":
        return 0.0
    sizes = [abs(float(x)) for x in ((value.real, value.imag) if out.kind == "c" else (value,))]
    if not all(map(math.isfinite, sizes)):
        return math.inf
    size, given = max(sizes), given * _GIVEN
    strategy = registry.STRATEGIES.get(timing.strategy) or _OF_A_USER
    if strategy.name == "exact":
        bound = _rounding(size, dtypes.part_of(out).name, _grid(timing))
        return bound if size else min(bound, given)
    if given == math.inf:
        return math.inf
    bound = math.inf if strategy.broken else _rounded_bound(strategy, timing, size, given, out)
    return min(bound, size + given) * _ROUNDINGS_HERE


def _rounded_bound(
    strategy: registry.Strategy, timing: Timing, size: float, magnitude: float, out: np.dtype
) -> float:
    """Steps 4 to 7 of the module's text."""
    source, part = _source_of(timing), dtypes.part_of(out).name
    conversion = dtypes.convert(source, out)
    acc = dtypes.number_of(conversion.acc).name
    unit = _unit(acc)

    relative, absolute = _cast_error(source, part) if conversion.cast is not None else (0.0, 0.0)
    error = relative * magnitude + absolute * timing.n + _flushed(strategy, timing, unit)
    if strategy.name == "numpy":
        factor = _in_any_order(timing.n, unit)
    elif strategy.name == "cpu":
        n = 2 * timing.n if conversion.is_complex else timing.n
        factor = _host.cpu_error_factor(n, conversion.load, _host.ACC_F64)
    else:
        factor = _device_factor(strategy, timing, conversion, unit)
    loaded = magnitude + error
    bound = error + (factor * loaded if loaded else 0.0)

    if part != acc:
        cast_by_numpy = strategy.name == "numpy" and conversion.cast is not None
        last = _rounding(size, part, 0.0 if cast_by_numpy else _least(part))
        bound, size = bound + last, size + last
    if strategy.name == "cpu" and acc == "float32":
        bound += unit * size
    return bound
