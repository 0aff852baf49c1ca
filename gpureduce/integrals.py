"""Integrals by the trapezoidal rule: of samples, and of functions that kernels sample."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _backends, _emulator, _gpu, _inputs, _registry, _sum, emulator
from gpureduce._results import SumResult, Timing

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
    def acc(self) -> int:
        return _ACCUMULATORS[self.dtype.name]

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
    named = _inputs.named(dtype).newbyteorder("=")
    if named.name not in _ACCUMULATORS:
        raise TypeError(f"dtype must be float64 or float32, not {named.name}")
    return _Problem(integrand, start, end, n, named)


def _able() -> list[_registry.Strategy]:
    """The strategies that can take samples."""
    return [
        s
        for s in _registry.strategies()
        if s.name in ("auto", "fast", "cpu", "numpy") or _emulator.takes_samples(s.index)
    ]


def _check(strategy: _registry.Strategy, allow_broken: bool) -> None:
    _registry.check_allowed(strategy, allow_broken)
    if strategy not in _able():
        names = ", ".join(s.name for s in _able() if not s.broken)
        raise ValueError(f"{strategy.name} adds up arrays, not samples of a function; {names} can")


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
    chosen = _registry.find(strategy)
    _check(chosen, allow_broken)
    launch = _sum._launch_arguments(chosen, block, grid, finish)
    if chosen.name == "auto":
        on_card = _backends.devices()[0].backend == "cuda" if device is None else device != "cpu"
        chosen = _registry.STRATEGIES["fast" if on_card else "cpu"]
    chosen, device = _sum._resolve(chosen, device, problem.dtype)
    if chosen.kind == "host":
        value, timing = _on_host(problem, chosen, start)
    else:
        on = _backends.choose_device(device, or_cpu=True)
        value, timing = _on_device(problem, chosen, launch, on)
    object.__setattr__(timing, "total_ms", (time.perf_counter() - start) * 1e3)
    return SumResult(value, timing)


def _on_host(problem: _Problem, chosen: _registry.Strategy, start: float) -> tuple[Any, Timing]:
    if chosen.name == "cpu":
        bits, ms = _emulator.cpu_sum_samples(
            problem.integrand.index, problem.start, problem.end, problem.n, problem.acc, 0
        )
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


def _on_device(
    problem: _Problem,
    chosen: _registry.Strategy,
    launch: tuple[int, int, str | None],
    device: _backends.Device,
) -> tuple[Any, Timing]:
    schedule = emulator.current()
    module = _backends.module_of(device, traced=schedule.traced)
    block, grid, finish = launch
    bits, kernel_ms, h2d_ms, d2h_ms, init_ms, block, grid, launches, _, ran = module.sum_samples(
        problem.integrand.index, problem.start, problem.end, problem.n, problem.acc,
        -1 if chosen.kind == "choice" else chosen.index, block, grid,
        _registry.finish_number(finish), device.index,
        schedule.number, schedule.seed, 0,
    )  # fmt: skip
    row = _registry.STRATEGIES[_gpu.NAMES[ran]]
    return problem.value(bits), _timing(
        problem, row.name, finish or row.finishes[0], device,
        kernel_ms=kernel_ms, h2d_ms=h2d_ms, d2h_ms=d2h_ms, init_ms=init_ms,
        block=block or None, grid=grid or None, launches=launches,
    )  # fmt: skip


def _timing(
    problem: _Problem,
    strategy: str,
    finish: str,
    device: _backends.Device | None = None,
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
    )


def measure(
    f: str | Integrand,
    n: int,
    strategy: str,
    block: int | None = None,
    finish: str | None = None,
    device: str | None = None,
    repeats: int = 11,
) -> tuple[list[float], int, int]:
    """The launches of one integral alone, `repeats` times: milliseconds, block and grid.

    The strategy ``"cpu"`` is timed on one thread: a plain loop over the points.
    """
    problem = _problem(f, None, None, n, "float64")
    chosen = _registry.find(strategy)
    _check(chosen, allow_broken=True)
    where = problem.integrand.index, problem.start, problem.end, problem.n, problem.acc
    if chosen.name == "cpu":
        return [_emulator.cpu_sum_samples(*where, 1)[1] for _ in range(repeats)], 0, 0
    block, grid, finish = _sum._launch_arguments(chosen, block, None, finish)
    on = _backends.choose_device(device)
    times, block, grid, _ = _backends.module_of(on).sum_samples(
        *where, -1 if chosen.kind == "choice" else chosen.index, block, grid,
        _registry.finish_number(finish), on.index, 0, 0, repeats,
    )  # fmt: skip
    return np.frombuffer(times).tolist(), block, grid


def trapezoid(
    y: npt.ArrayLike,
    x: npt.ArrayLike | None = None,
    dx: float = 1.0,
    strategy: str = "auto",
    **how: Any,
) -> SumResult:
    """Integrate samples `y` by the trapezoidal rule, as scipy.integrate.trapezoid does.

    `x` are the points of the samples; without them they lie `dx` apart. `strategy` and further
    arguments are those of `gpureduce.sum`. Fewer than two samples enclose nothing.

    >>> import gpureduce, numpy as np
    >>> x = np.linspace(0, np.pi, 1001)
    >>> round(float(gpureduce.trapezoid(np.sin(x), x)), 6)
    1.999998
    """
    samples = _inputs.as_array(y)
    if samples.ndim != 1:
        raise ValueError(f"y must be one-dimensional, not of shape {samples.shape}")
    if samples.dtype.kind in "biu":
        samples = samples.astype(np.float64)  # halves are no integers
    if samples.dtype.kind not in "fcV":
        raise TypeError(f"y must hold numbers, not {samples.dtype}")
    add: Callable[[Any], SumResult] = lambda terms: _sum.sum(terms, strategy, **how)  # noqa: E731
    if x is None:
        result = add(samples[1:-1])
        if len(samples) < 2:
            return result._replace(value=result.value * 0)
        # As wide as was asked for: the samples' own dtype may be too narrow for dx.
        kind = np.asarray(result.value).dtype.type
        with np.errstate(all="ignore"):
            ends = kind(0.5) * kind(samples[0]) + kind(0.5) * kind(samples[-1])
            value = kind(dx) * (result.value + ends)
        return result._replace(value=value)
    points = _inputs.as_array(x)
    if points.shape != samples.shape:
        raise ValueError(f"x must have the shape of y, {samples.shape}, not {points.shape}")
    # As wide as was asked for from the first term on; steps between whole numbers do not wrap.
    asked = [] if how.get("dtype") is None else [_inputs.named(how["dtype"])]
    wide = np.result_type(samples, points, *asked)
    of_steps = np.int64 if points.dtype.kind in "biu" else np.result_type(points, *asked)
    with np.errstate(all="ignore"):
        steps = np.diff(points.astype(of_steps, copy=False)).astype(wide, copy=False)
        samples = samples.astype(wide, copy=False)
        return add(steps * (samples[1:] + samples[:-1]) / 2)
