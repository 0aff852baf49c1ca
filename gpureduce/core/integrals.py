"""Integrals of compiled-in functions by the trapezoidal rule: each thread computes its samples."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import devices, dtypes, on_device, registry
from gpureduce.core.checks import finite, named_keywords, no_such, whole
from gpureduce.core.plan import Plan, launch_of, placed
from gpureduce.core.results import Outcome, SumResult, launched, ran_on, timing_of
from gpureduce.core.schedule import current

_ACCUMULATORS = {"float32": _host.ACC_F32, "float64": _host.ACC_F64}
_CHUNK = 2**18


@dataclass(frozen=True)
class Integrand:
    """A function that is compiled into every kernel; see `integrands`.

    Call it to evaluate it with NumPy.

    Attributes
    ----------
    name
        Its name for `integrate`.
    formula
        The function of x, as text.
    interval
        The default interval of integration.
    exact
        The integral over that interval, as text with all its digits.
    lesson
        Its lesson.
    index
        Its place in the compiled registry.

    Examples
    --------
    >>> import gpureduce
    >>> sine = gpureduce.integrands()[1]
    >>> sine.formula, sine.exact, float(sine(0.0))
    ('sin(x)', '2.0', 0.0)
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
        # The formula is trusted: it is compiled in. It is valid C and Python.
        return eval(self.formula, {"__builtins__": {}}, words | {"x": np.asarray(x, float)})


def _read() -> dict[str, Integrand]:
    rows = {}
    for index, (name, formula, start, end, exact, lesson) in enumerate(_host.integrands()):
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
    if isinstance(f, str):
        raise ValueError(no_such("integrand", f, _INTEGRANDS))
    known = ", ".join(_INTEGRANDS)
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
        """The conversion of a sum without loads: samples are computed."""
        return dtypes.Conversion(None, -1, _ACCUMULATORS[self.dtype.name], self.dtype)

    @property
    def samples(self) -> tuple[int, float, float, int]:
        """The integrand and its points, for C."""
        return self.integrand.index, self.start, self.end, self.n

    @property
    def step(self) -> float:
        return (self.end - self.start) / (self.n - 1)

    def value(self, bits: bytes) -> Any:
        """The integral, computed from the bits of the sum of samples."""
        total = float(np.frombuffer(bits, self.dtype, count=1)[0])
        return dtypes.quietly(self.dtype.type, self.step * total)


def _problem(f: object, a: float | None, b: float | None, n: int, dtype: npt.DTypeLike) -> _Problem:
    integrand = _find(f)
    start = integrand.interval[0] if a is None else finite("a", a)
    end = integrand.interval[1] if b is None else finite("b", b)
    if not math.isfinite(end - start):
        raise ValueError(f"b - a must be finite: from {start} to {end} overflows float64")
    n = whole("n", n, 2, 2**40)
    named = dtypes.named(dtype).newbyteorder("=")
    if dtypes.number_name(named) not in _ACCUMULATORS:
        raise TypeError(f"dtype must be float64 or float32, not {named}")
    return _Problem(integrand, start, end, n, named)


def _able() -> list[registry.Strategy]:
    """The strategies that can add up samples of a function."""
    return [
        s
        for s in registry.strategies()
        if s.name in ("auto", "fast", "cpu", "numpy") or devices.emulator().takes_samples(s.index)
    ]


def _strategy_of(name: str, allow_broken: bool) -> registry.Strategy:
    strategy = registry.find(name)
    registry.check_allowed(strategy, allow_broken)
    if strategy not in _able():
        names = ", ".join(s.name for s in _able() if not s.broken)
        raise ValueError(f"{strategy.name} sums arrays and cannot integrate functions; {names} can")
    return strategy


@named_keywords
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
        The dtype of the sum, ``"float64"`` or ``"float32"``. Samples are computed in float64.
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
    devices.check_device(device)
    if chosen.name == "auto":
        on_card = devices.devices()[0].backend == "cuda" if device is None else device != "cpu"
        chosen = registry.STRATEGIES["fast" if on_card else "cpu"]
    chosen = placed(chosen, device, problem.dtype)
    if chosen.kind == "host":
        found = _on_host(problem, chosen, start)
    else:
        plan = Plan(chosen, problem.conversion, *launch)
        found = _on_device(problem, plan, devices.choose_device(device, or_cpu=True))
    # No bytes are read.
    own = {"dtype": problem.dtype.name, "n": problem.n, "nbytes": 0, "integral": True}
    return SumResult(found.value, timing_of(found.fields | own, start))


def _on_host(problem: _Problem, chosen: registry.Strategy, start: float) -> Outcome:
    if chosen.name == "cpu":
        bits, ms = _host.cpu_sum_samples(*problem.samples, problem.conversion.acc, 0)
        value = problem.value(bits)
    else:
        value = dtypes.quietly(_with_numpy, problem)
        ms = (time.perf_counter() - start) * 1e3
    names = {"backend": chosen.name, "strategy": chosen.name, "finish": "single"}
    return Outcome(value, ran_on(None, kernel_ms=ms, **names))


def _with_numpy(problem: _Problem) -> Any:
    f, last = problem.integrand, problem.n - 1
    total = problem.dtype.type(0)
    for first in range(1, last, _CHUNK):
        x = problem.start + np.arange(first, min(first + _CHUNK, last)) * problem.step
        total += f(x).astype(problem.dtype).sum()
    ends = f([problem.start, problem.end])
    total += problem.dtype.type(0.5 * ends[0]) + problem.dtype.type(0.5 * ends[1])
    return problem.dtype.type(problem.step * float(total))


def _on_device(problem: _Problem, plan: Plan, device: devices.Device) -> Outcome:
    schedule = current()
    module = devices.module_of(device, traced=schedule.traced)
    bits, *times, block, grid, launches, _, ran = module.sum_samples(
        *problem.samples, plan.launch(device, schedule), 0
    )
    row = registry.STRATEGIES[registry.name_at(ran)]
    fields = ran_on(
        device, strategy=row.name, finish=plan.finish or row.finishes[0],
        **dict(zip(on_device.TIMES, times, strict=True)), **launched(block, grid, launches),
    )  # fmt: skip
    return Outcome(problem.value(bits), fields)


def measure(
    f: str | Integrand,
    n: int,
    strategy: str,
    block: int | None = None,
    finish: str | None = None,
    device: str | None = None,
    repeats: int = 11,
) -> tuple[list[float], int | None, int | None]:
    """Times the launches of one integral, `repeats` times: milliseconds, block and grid.

    The strategy ``"cpu"`` is timed on one thread: a plain loop over the points.
    """
    problem = _problem(f, None, None, n, "float64")
    chosen = _strategy_of(strategy, allow_broken=True)
    if chosen.name == "cpu":
        times = [
            _host.cpu_sum_samples(*problem.samples, problem.conversion.acc, 1)[1]
            for _ in range(repeats)
        ]
        return times, None, None
    plan = Plan(chosen, problem.conversion, *launch_of(chosen, block, None, finish))
    on = devices.choose_device(device)
    module = devices.module_of(on)
    return on_device.measured(module.sum_samples(*problem.samples, plan.launch(on), repeats))
