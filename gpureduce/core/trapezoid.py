"""Integrals of samples by the trapezoidal rule."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce.core import any_array, arrays, dtypes, registry, summation
from gpureduce.core import exact as _exact
from gpureduce.core.checks import refuse_unknown
from gpureduce.core.plan import Arguments
from gpureduce.core.results import SumResult

_CHUNK = 2**18


def _numbers(name: str, given: object) -> dtypes.Array:
    """Converts an argument to a host array of numbers that can be summed."""
    array = arrays.as_array(given)
    if dtypes.number_name(array.dtype) is None:
        raise TypeError(f"{name} must hold numbers, not {array.dtype}")
    dtypes.convert(array.dtype, None)
    return array


def _step(dx: object) -> _exact.Number:
    """Converts `dx` to a number without rounding. Raises if it is not one real number."""
    ours = isinstance(dx, (np.ndarray, np.generic))  # `numbers` takes timedelta64 for an integer
    if isinstance(dx, numbers.Rational) and not ours:
        return Fraction(int(dx.numerator), int(dx.denominator))
    if not isinstance(dx, numbers.Real) or ours:
        found = arrays.viewed(dx)
        if found.ndim:
            raise ValueError(
                f"dx must be one number, not an array of shape {found.shape}: for unequal spacing "
                "pass x"
            )
        real = found.dtype.kind in "biuf" or dtypes.is_bfloat16(found.dtype)
        if not real or found.dtype.itemsize > 8:
            what = found.dtype if ours else type(dx).__name__
            raise TypeError(f"dx must be a real number{' of at most 64 bits' * real}, not {what}")
        if found.dtype.kind in "biu":
            return Fraction(int(found))
        dx = found.astype(np.float64)  # float() would misread a swapped bfloat16
    step = float(dx)
    return Fraction(step) if math.isfinite(step) else step


def _common(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """NumPy's common dtype, and a choice of ours for bfloat16 with integers or float16."""
    names = {a.name, b.name}
    if "bfloat16" in names and (a.kind in "biu" or b.kind in "biu"):
        return dtypes.named("bfloat16")
    if names == {"bfloat16", "float16"}:
        return np.dtype(np.float32)
    return np.result_type(a, b)


def _result_dtype(
    samples: dtypes.Array, other: object, call: npt.DTypeLike | None
) -> np.dtype[Any]:
    """The dtype of the integral. `other` is the points, or the spacing."""
    found = samples.dtype if samples.dtype.kind not in "biu" else np.dtype(np.float64)
    if isinstance(other, (np.ndarray, np.generic)):  # a Python number does not widen the dtype
        found = _common(found, other.dtype)
    return dtypes.convert(found.newbyteorder("="), call).result


def _as_numbers(value: Any) -> list[_exact.Number]:
    """A scalar as unrounded numbers: its real part, and the imaginary part if complex."""
    if np.asarray(value).dtype.kind in "biu":
        return [Fraction(int(value))]
    parts = (value.real, value.imag) if np.asarray(value).dtype.kind == "c" else (value,)
    return [Fraction(float(x)) if math.isfinite(x) else float(x) for x in parts]


def _plus(a: _exact.Number, b: _exact.Number) -> _exact.Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b
    return sum(x for x in (a, b) if isinstance(x, float))  # a finite term changes no inf or nan


def _times(a: _exact.Number, b: _exact.Number) -> _exact.Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    signs = [(x > 0) - (x < 0) if isinstance(x, Fraction) else x for x in (a, b)]
    return float(signs[0] * signs[1])


def _wide(array: dtypes.Array) -> np.dtype[Any]:
    return np.dtype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _add_up(
    terms: dtypes.Array, strategy: str, how: dict[str, Any]
) -> tuple[SumResult, list[_exact.Number]]:
    """The sum's result, and its unrounded value: exact, or the strategy's float64 sum."""
    wide = _wide(terms)
    if registry.find(strategy).name in ("auto", "exact"):
        total = _exact.new(wide)
        result = any_array.add(Arguments(strategy, wide, **how), terms, into=total)
        return result, _exact.parts(total)
    result = dtypes.quietly(summation.sum, terms, strategy, wide, **how)
    if np.isfinite(result.value) or not _finite(terms):
        return result, _as_numbers(result.value)
    total = _exact.new(wide)  # a partial sum has overflowed
    _exact.feed(total, terms)
    return result, _exact.parts(total)


def _steps(points: dtypes.Array) -> dtypes.Array:
    """Differences of neighbouring points, rounded to float64 once. Integers do not wrap around."""
    if points.dtype.kind not in "biu":
        return np.diff(points.astype(_wide(points), copy=False))
    bits = points.astype(np.uint64)
    rise = points[1:] >= points[:-1]
    sizes = np.where(rise, bits[1:] - bits[:-1], bits[:-1] - bits[1:])
    return np.where(rise, 1.0, -1.0) * sizes.astype(np.float64)


def _parts(array: dtypes.Array, also: int = 0) -> Iterator[tuple[int, dtypes.Array]]:
    """Yields the parts of a large array, each with its first index.

    Ctrl-C takes effect between two parts. Parts overlap by `also` elements.
    """
    for first in range(0, max(len(array) - also, 0), _CHUNK):
        yield first, array[first : first + _CHUNK + also]


def _finite(array: dtypes.Array) -> bool:
    # Signalling nans raise "invalid".
    return all(dtypes.quietly(np.isfinite, part).all() for _, part in _parts(array))


def _areas(samples: dtypes.Array, points: dtypes.Array) -> tuple[dtypes.Array, list[_exact.Number]]:
    """The areas between neighbours in float64, and the exact sum of the areas too large for it.

    In the first array, the areas that are too large are 0. Of complex areas, the exact sum is two
    numbers: the real and the imaginary part.
    """
    kind = np.result_type(_wide(samples), _wide(points))
    areas = np.empty(max(len(samples) - 1, 0), kind)
    for first, part in _parts(samples, also=1):
        these = points[first : first + len(part)]
        areas[first : first + _CHUNK] = dtypes.quietly(_areas_of_part, part, these)
    if _finite(areas) or not (_finite(samples) and _finite(points)):
        return areas, []
    real = imaginary = Fraction(0)
    for first, part in _parts(areas):
        for i in first + np.flatnonzero(~np.isfinite(part)):
            found = _exact_area(samples[i : i + 2], points[i : i + 2])
            real, imaginary = real + found[0], imaginary + found[1]
            areas[i] = 0
    return areas, [real, imaginary] if kind.kind == "c" else [real]


def _areas_of_part(samples: dtypes.Array, points: dtypes.Array) -> dtypes.Array:
    sides = samples.astype(_wide(samples), copy=False)
    areas: dtypes.Array = _steps(points) * (sides[1:] + sides[:-1]) / 2
    return areas


def _exact_area(samples: dtypes.Array, points: dtypes.Array) -> tuple[Fraction, Fraction]:
    """The area between two neighbours: its real and its imaginary part."""
    (a, b), (x, y) = (
        [[*(Fraction(part) for part in _as_numbers(value)), Fraction(0)] for value in pair]
        for pair in (samples, points)
    )
    side, step = (a[0] + b[0], a[1] + b[1]), ((y[0] - x[0]) / 2, (y[1] - x[1]) / 2)
    return side[0] * step[0] - side[1] * step[1], side[0] * step[1] + side[1] * step[0]


def trapezoid(
    y: npt.ArrayLike,
    x: npt.ArrayLike | None = None,
    dx: float = 1.0,
    strategy: str = "auto",
    **how: Any,
) -> SumResult:
    """Integrate samples `y` by the trapezoidal rule, as scipy.integrate.trapezoid does.

    Parameters
    ----------
    y
        The samples: a one-dimensional array in host memory, real or complex. Fewer than two enclose
        nothing: their integral is 0.
    x
        The points of the samples. They need not rise.
    dx
        Without `x`: the spacing, one real number.
    strategy, how
        As for `gpureduce.sum`. `dtype` is that of the result.

    Returns
    -------
    SumResult
        The integral and the `Timing` of the sum in it. The dtype is NumPy's: that of the samples,
        or float64 for integers, widened by `x`, or by a `dx` that is a NumPy scalar. bfloat16 is
        not widened by integers.

    Notes
    -----
    Without `x`, ``"auto"`` and ``"exact"`` round once: the result is the exact sum of the samples,
    the two at the ends by half, times `dx` as a real number, rounded to the result's dtype. Any
    other strategy adds up the samples between the ends in float64 (complex128), and rounds there.
    Ends and product are exact again, and the result is rounded once.

    With `x`, steps, sums of neighbouring samples, and their products are rounded to float64
    (complex128) each. So are integers that float64 cannot hold; steps between integers are rounded
    once. These areas are added up as the samples are without `x`. Areas too large for float64 are
    not rounded.

    No partial result overflows unless a finite integral does. `error_bound` is for plain sums and
    refuses integrals.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> x = np.linspace(0, np.pi, 1001)
    >>> round(float(gpureduce.trapezoid(np.sin(x), x)), 6)
    1.999998
    >>> float(gpureduce.trapezoid(np.full(1001, 100, np.float16), dx=0.01))
    1000.0
    """
    refuse_unknown("trapezoid", how, ("y", "x", "dx", *Arguments._fields))
    samples = _numbers("y", y)
    if samples.ndim != 1:
        raise ValueError(f"y must be one-dimensional, not of shape {samples.shape}")
    call = how.pop("dtype", None)
    if x is None:
        factor, wanted = _step(dx), _result_dtype(samples, dx, call)
        result, total = _add_up(samples[1:-1], strategy, how)
        if len(samples) >= 2:
            for end in (samples[0], samples[-1]):
                half = (_times(part, Fraction(1, 2)) for part in _as_numbers(end))
                total = list(map(_plus, total, half))
        else:
            factor = Fraction(0)
    else:
        points = _numbers("x", x)
        if points.shape != samples.shape:
            raise ValueError(f"x must have the shape of y, {samples.shape}, not {points.shape}")
        wanted = _result_dtype(samples, points, call)
        areas, rest = _areas(samples, points)
        factor = Fraction(1)
        result, total = _add_up(areas, strategy, how)
        total = list(map(_plus, total, rest)) if rest else total
    value = _exact.rounded([_times(part, factor) for part in total], wanted)
    timing = result.timing and replace(result.timing, integral=True)
    return SumResult(value, timing)
