"""Integrals by the trapezoidal rule: of samples, and of functions that kernels sample."""

from __future__ import annotations

import math
import numbers
import operator
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _emulator
from gpureduce.core import arrays, devices, dtypes, on_device, registry, summation
from gpureduce.core import exact as _exact
from gpureduce.core.request import Arguments, Request, launch_of, placed, strategy_of
from gpureduce.core.results import SumResult, Timing
from gpureduce.core.schedule import current

_ACCUMULATORS = {"float32": _emulator.ACC_F32, "float64": _emulator.ACC_F64}
_CHUNK = 2**18


@dataclass(frozen=True)
class Integrand:
    """A function that is compiled into every kernel; see `integrands`.

    `formula` is the function of x, `interval` where it is integrated by default, and `exact` the
    integral over that interval, as text with all its digits. Call it to evaluate it with NumPy.
    """

    name: str
    formula: str
    interval: tuple[float, float]
    exact: str
    lesson: str
    index: int = field(repr=False)

    def __call__(self, x: npt.ArrayLike) -> Any:
        """The function's values at `x`."""
        words: dict[str, Any] = {w: getattr(np, w) for w in ("sin", "cos", "exp", "sqrt", "fabs")}
        # The formula is ours, compiled in, and reads the same in C and in Python.
        return eval(self.formula, {"__builtins__": {}}, words | {"x": np.asarray(x, float)})


def _read() -> dict[str, Integrand]:
    rows = {}
    for index, (name, formula, start, end, exact, lesson) in enumerate(_emulator.integrands()):
        rows[name] = Integrand(name, formula, (start, end), exact, lesson, index)
    return rows


_INTEGRANDS = _read()


def integrands() -> list[Integrand]:
    """The functions that `integrate` knows.

    >>> import gpureduce
    >>> [f.name for f in gpureduce.integrands()][:3]
    ['lecture', 'sine', 'pi']
    """
    return list(_INTEGRANDS.values())


def _find(f: object) -> Integrand:
    if isinstance(f, Integrand):
        return f
    if isinstance(f, str) and f in _INTEGRANDS:
        return _INTEGRANDS[f]
    known = ", ".join(_INTEGRANDS)
    if isinstance(f, str):
        raise ValueError(f"there is no integrand {f!r}; there are {known}")
    raise TypeError(
        f"f must be the name of a compiled-in integrand ({known}), not {type(f).__name__}; for a "
        "function of your own use gpureduce.trapezoid(f(x), x)"
    )


@dataclass(frozen=True)
class _Problem:
    """The checked arguments of one integral."""

    integrand: Integrand
    start: float
    end: float
    n: int
    dtype: np.dtype[Any]

    @property
    def conversion(self) -> dtypes.Conversion:
        """No element is loaded: samples are computed."""
        return dtypes.Conversion(None, -1, _ACCUMULATORS[self.dtype.name], self.dtype)

    @property
    def samples(self) -> tuple[int, float, float, int]:
        """The integrand and its points, for C."""
        return self.integrand.index, self.start, self.end, self.n

    @property
    def step(self) -> float:
        return (self.end - self.start) / (self.n - 1)

    def value(self, bits: bytes) -> Any:
        """The integral from the bits of the sum."""
        total = float(np.frombuffer(bits, self.dtype, count=1)[0])
        return self.dtype.type(self.step * total)


def _problem(f: object, a: float | None, b: float | None, n: int, dtype: npt.DTypeLike) -> _Problem:
    integrand = _find(f)
    start = integrand.interval[0] if a is None else float(a)
    end = integrand.interval[1] if b is None else float(b)
    if not (math.isfinite(start) and math.isfinite(end)):
        raise ValueError(f"a and b must be finite, not {start} and {end}")
    if not math.isfinite(end - start):
        raise ValueError(f"b - a must be finite: from {start} to {end} is too far for a float64")
    n = operator.index(n)
    if not 2 <= n <= 2**40:
        raise ValueError(f"n, the number of points, must be from 2 to 2**40, not {n}")
    named = dtypes.named(dtype).newbyteorder("=")
    if named.name not in _ACCUMULATORS:
        raise TypeError(f"dtype must be float64 or float32, not {named.name}")
    return _Problem(integrand, start, end, n, named)


def _able() -> list[registry.Strategy]:
    """The strategies that can take samples."""
    return [
        s
        for s in registry.strategies()
        if s.name in ("auto", "fast", "cpu", "numpy") or _emulator.takes_samples(s.index)
    ]


def _strategy_of(name: str, allow_broken: bool) -> registry.Strategy:
    strategy = strategy_of(name, allow_broken)
    if strategy not in _able():
        names = ", ".join(s.name for s in _able() if not s.broken)
        raise ValueError(f"{strategy.name} adds up arrays, not samples of a function; {names} can")
    return strategy


def integrate(
    f: str | Integrand,
    a: float | None = None,
    b: float | None = None,
    n: int = 65536,
    strategy: str = "auto",
    dtype: npt.DTypeLike = "float64",
    block: int | None = None,
    grid: int | None = None,
    finish: str | None = None,
    device: str | None = None,
    allow_broken: bool = False,
) -> SumResult:
    """Integrate a function from `a` to `b` by the trapezoidal rule with `n` points.

    Map and reduce in one launch: each thread computes the samples that it adds up, and no array is
    ever in memory. The two end points weigh half.

    Parameters
    ----------
    f
        One of `integrands`, or its name.
    a, b
        The interval; by default the integrand's own.
    n
        The number of points, ends included, so one more than there are intervals.
    strategy
        How the samples are added up: a name or alias out of `strategies`. ``"auto"`` takes the GPU
        if there is one and the CPU otherwise.
    dtype
        ``"float64"`` or ``"float32"``: what samples, computed in float64, are added up in.
    block, grid, finish, device, allow_broken
        As for `gpureduce.sum`.

    Returns
    -------
    SumResult
        The integral and its `Timing`.

    Examples
    --------
    >>> import gpureduce
    >>> value, timing = gpureduce.integrate("pi", n=1001, strategy="sequential", device="emulator")
    >>> round(float(value), 6), timing.n
    (3.141592, 1001)
    """
    start = time.perf_counter()
    problem = _problem(f, a, b, n, dtype)
    chosen = _strategy_of(strategy, allow_broken)
    launch = launch_of(chosen, block, grid, finish)
    if chosen.name == "auto":
        on_card = devices.devices()[0].backend == "cuda" if device is None else device != "cpu"
        chosen = registry.STRATEGIES["fast" if on_card else "cpu"]
    chosen = placed(chosen, device, problem.dtype)
    if chosen.kind == "host":
        value, timing = _on_host(problem, chosen, start)
    else:
        request = Request(chosen, problem.conversion, *launch)
        value, timing = _on_device(problem, request, devices.choose_device(device, or_cpu=True))
    object.__setattr__(timing, "total_ms", (time.perf_counter() - start) * 1e3)
    return SumResult(value, timing)


def _on_host(problem: _Problem, chosen: registry.Strategy, start: float) -> tuple[Any, Timing]:
    if chosen.name == "cpu":
        bits, ms = _emulator.cpu_sum_samples(*problem.samples, problem.conversion.acc, 0)
        value = problem.value(bits)
    else:
        value = _with_numpy(problem)
        ms = (time.perf_counter() - start) * 1e3
    return value, _timing(problem, chosen.name, "single", kernel_ms=ms)


def _with_numpy(problem: _Problem) -> Any:
    f, last = problem.integrand, problem.n - 1
    total = problem.dtype.type(0)
    with np.errstate(all="ignore"):
        for first in range(1, last, _CHUNK):
            x = problem.start + np.arange(first, min(first + _CHUNK, last)) * problem.step
            total += f(x).astype(problem.dtype).sum()
        ends = f([problem.start, problem.end])
        total += problem.dtype.type(0.5 * ends[0]) + problem.dtype.type(0.5 * ends[1])
        return problem.dtype.type(problem.step * float(total))


def _on_device(problem: _Problem, request: Request, device: devices.Device) -> tuple[Any, Timing]:
    schedule = current()
    module = devices.module_of(device, traced=schedule.traced)
    bits, kernel_ms, h2d_ms, d2h_ms, init_ms, block, grid, launches, _, ran = module.sum_samples(
        *problem.samples, request.launch(device, schedule), 0
    )
    row = registry.STRATEGIES[on_device.NAMES[ran]]
    return problem.value(bits), _timing(
        problem, row.name, request.finish or row.finishes[0], device,
        kernel_ms=kernel_ms, h2d_ms=h2d_ms, d2h_ms=d2h_ms, init_ms=init_ms,
        block=block or None, grid=grid or None, launches=launches,
    )  # fmt: skip


def _timing(
    problem: _Problem,
    strategy: str,
    finish: str,
    device: devices.Device | None = None,
    **measured: Any,
) -> Timing:
    """No bytes are read: `nbytes` is 0."""
    times = {"h2d_ms": 0.0, "d2h_ms": 0.0, "init_ms": 0.0, "block": None, "grid": None}
    emulated = device is not None and device.backend == "emulator"
    return Timing(
        **(times | {"launches": 0} | measured),
        total_ms=0.0,
        source="emulator" if emulated else "cuda_event" if device else "perf_counter",
        backend=device.backend if device else strategy,
        device=device.name if device else "cpu",
        strategy=strategy,
        dtype=problem.dtype.name,
        finish=finish,
        n=problem.n,
        nbytes=0,
        peak_gb_s=device.peak_gb_s if device and not emulated else None,
        integral=True,
    )


def measure(
    f: str | Integrand,
    n: int,
    strategy: str,
    block: int | None = None,
    finish: str | None = None,
    device: str | None = None,
    repeats: int = 11,
) -> tuple[list[float], int | None, int | None]:
    """The launches of one integral alone, `repeats` times: milliseconds, block and grid.

    The strategy ``"cpu"`` is timed on one thread: a plain loop over the points.
    """
    problem = _problem(f, None, None, n, "float64")
    chosen = _strategy_of(strategy, allow_broken=True)
    if chosen.name == "cpu":
        times = [
            _emulator.cpu_sum_samples(*problem.samples, problem.conversion.acc, 1)[1]
            for _ in range(repeats)
        ]
        return times, None, None
    request = Request(chosen, problem.conversion, *launch_of(chosen, block, None, finish))
    on = devices.choose_device(device)
    module = devices.module_of(on)
    return on_device.measured(module.sum_samples(*problem.samples, request.launch(on), repeats))


def _numbers(name: str, given: object) -> dtypes.Array:
    """A host array of numbers that can be summed."""
    array = arrays.as_array(given)
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name} must hold numbers, not {array.dtype}")
    dtypes.convert(array.dtype, None)
    return array


def _step(dx: object) -> _exact.Number:
    """The spacing as it was given: a real number."""
    if isinstance(dx, numbers.Rational):
        return Fraction(int(dx.numerator), int(dx.denominator))
    if not isinstance(dx, numbers.Real):
        found = arrays.as_array(dx)
        if found.ndim:
            raise ValueError(
                f"dx must be one number, not an array of shape {found.shape}: for points that are "
                "not equally spaced pass x"
            )
        if found.dtype.kind not in "biuf" and found.dtype.name != "bfloat16":
            what = found.dtype if isinstance(dx, (np.ndarray, np.generic)) else type(dx).__name__
            raise TypeError(f"dx must be a real number, not {what}")
        dx = found
    step = float(dx)
    return Fraction(step) if math.isfinite(step) else step


def _common(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that NumPy computes in; it has none for bfloat16 and wide integers or float16."""
    names = {a.name, b.name}
    if "bfloat16" in names and (a.kind in "biu" or b.kind in "biu"):
        return dtypes.named("bfloat16")
    if names == {"bfloat16", "float16"}:
        return np.dtype(np.float32)
    return np.result_type(a, b)


def _result_dtype(
    samples: dtypes.Array, other: object, asked: npt.DTypeLike | None
) -> np.dtype[Any]:
    """What the integral is rounded to; `other` are the points, or the spacing."""
    found = samples.dtype if samples.dtype.kind not in "biu" else np.dtype(np.float64)
    if isinstance(other, (np.ndarray, np.generic)):  # a Python number widens nothing
        found = _common(found, other.dtype)
    return dtypes.convert(found.newbyteorder("="), asked).result


def _as_numbers(value: Any) -> list[_exact.Number]:
    """A scalar without any rounding: its real part, and the imaginary one if there is one."""
    if np.asarray(value).dtype.kind in "biu":
        return [Fraction(int(value))]
    parts = (value.real, value.imag) if np.asarray(value).dtype.kind == "c" else (value,)
    return [Fraction(float(x)) if math.isfinite(x) else float(x) for x in parts]


def _plus(a: _exact.Number, b: _exact.Number) -> _exact.Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b
    return sum(x for x in (a, b) if isinstance(x, float))  # inf and nan alone decide


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
    """The sum's result, and its value in full: exact, or as a strategy adds up float64."""
    wide = _wide(terms)
    if registry.find(strategy).name in ("auto", "exact"):
        total = _exact.new(wide)
        result = summation.add(Arguments(strategy, wide, **how), terms, total)
        return result, _exact.parts(total)
    with np.errstate(over="ignore", invalid="ignore"):
        result = summation.sum(terms, strategy, wide, **how)
    if np.isfinite(result.value) or not _finite(terms):
        return result, _as_numbers(result.value)
    down = terms.size.bit_length() + 1  # so far that no partial sum overflows
    scaled = np.empty(terms.shape, wide)
    for first, part in _parts(terms):
        scaled[first : first + _CHUNK] = part.astype(wide) * 2.0**-down
    result = summation.sum(scaled, strategy, wide, **how)
    return result, [_times(x, Fraction(1 << down)) for x in _as_numbers(result.value)]


def _steps(points: dtypes.Array, down: int) -> dtypes.Array:
    """From each point to the next, rounded to float64 once; whole numbers do not wrap around.

    Floats are scaled by 2^-down first.
    """
    if points.dtype.kind not in "biu":
        return np.diff(points.astype(_wide(points), copy=False) * 2.0**-down)
    bits = points.astype(np.uint64)
    rise = points[1:] >= points[:-1]
    sizes = np.where(rise, bits[1:] - bits[:-1], bits[:-1] - bits[1:])
    return np.where(rise, 1.0, -1.0) * sizes.astype(np.float64)


def _parts(array: dtypes.Array, also: int = 0) -> Iterator[tuple[int, dtypes.Array]]:
    """Where each part of a large array begins, and the part; Ctrl-C is heard between two.

    Parts overlap by `also` elements.
    """
    for first in range(0, max(len(array) - also, 0), _CHUNK):
        yield first, array[first : first + _CHUNK + also]


def _finite(array: dtypes.Array) -> bool:
    with np.errstate(invalid="ignore"):  # signalling nans
        return all(np.isfinite(part).all() for _, part in _parts(array))


def _down(array: dtypes.Array) -> int:
    """By which power of two an array of numbers is larger than 2^500."""
    largest = 0.0
    for _, part in _parts(array):
        wide = part.astype(_wide(part), copy=False)
        largest = max(largest, float(np.abs(wide.real).max()), float(np.abs(wide.imag).max()))
    return max(math.frexp(largest)[1] - 500, 0)


def _areas(samples: dtypes.Array, points: dtypes.Array, a: int, b: int) -> dtypes.Array:
    """The areas between neighbours in float64, with samples and points scaled by 2^-a and 2^-b."""
    kind = np.result_type(_wide(samples), _wide(points))
    areas = np.empty(max(len(samples) - 1, 0), kind)
    with np.errstate(all="ignore"):
        for first, part in _parts(samples, also=1):
            sides = part.astype(_wide(part), copy=False) * 2.0**-a
            steps = _steps(points[first : first + len(part)], b)
            areas[first : first + _CHUNK] = steps * (sides[1:] + sides[:-1]) / 2
    return areas


def _terms(samples: dtypes.Array, points: dtypes.Array) -> tuple[dtypes.Array, int]:
    """The areas between neighbours in float64, times a power of two, and its exponent."""
    areas = _areas(samples, points, 0, 0)
    if _finite(areas) or not (_finite(samples) and _finite(points)):
        return areas, 0
    a, b = _down(samples), 0 if points.dtype.kind in "biu" else _down(points)
    return _areas(samples, points, a, b), a + b


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
    once. These areas are added up as the samples are without `x`.

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
    if unknown := how.keys() - {*Arguments._fields}:
        raise TypeError(f"trapezoid has no argument {min(unknown)!r}")
    samples = _numbers("y", y)
    if samples.ndim != 1:
        raise ValueError(f"y must be one-dimensional, not of shape {samples.shape}")
    asked = how.pop("dtype", None)
    if x is None:
        factor, wanted = _step(dx), _result_dtype(samples, dx, asked)
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
        wanted = _result_dtype(samples, points, asked)
        areas, up = _terms(samples, points)
        factor = Fraction(1 << up)
        result, total = _add_up(areas, strategy, how)
    value = _exact.rounded([_times(part, factor) for part in total], wanted)
    timing = result.timing and replace(result.timing, integral=True)
    return SumResult(value, timing)
