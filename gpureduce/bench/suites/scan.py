"""Running sums beside other libraries: ``gpureduce bench --scan``.

Bandwidths count elements and entries, as those of a copy do. On a card the L2 cache is flushed
before every measurement. CuPy copies a flat array, and CUB's DeviceScan adds up the copy in place:
it is timed alone, too. On processors, means and deviations of windows are measured as well.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gpureduce import exact
from gpureduce.bench import libraries, render
from gpureduce.bench.clocks import Run
from gpureduce.bench.command import REPEATS, Suite
from gpureduce.bench.contenders import matrices
from gpureduce.bench.contenders.matrices import JAX, Case
from gpureduce.bench.contenders.places import Place, close_to_first, place_of
from gpureduce.bench.render import US, of, ratio
from gpureduce.bench.runner import Contender, Row
from gpureduce.bench.suites import axis as by_axis
from gpureduce.core import arrays, registry
from gpureduce.core.cumsum import cumsum
from gpureduce.core.dtypes import Array, named
from gpureduce.lazy_import import load_other

_DTYPES = ("float32", "float64")
_WINDOWS = (3, 100, 10_000)
LESSONS = registry.lessons("scan")
COPY, CUB = "copy", "CUB DeviceScan"
ONE_THREAD, TWO_THREADS = "exact, 1 thread", "exact, 2 threads"
_THREADS = "GPUREDUCE_THREADS"  # each call reads it
_PERIOD, _LARGE = 1024, 16


def cases(n: int, dtypes: Sequence[str], on_processors: bool) -> list[Case]:
    """The cases at `n` elements, by dtype."""
    if unknown := [dtype for dtype in dtypes if dtype not in _DTYPES]:
        raise ValueError(f"--dtypes: --scan takes {' and '.join(_DTYPES)}, not {unknown[0]}")
    found = []
    windows = [window for window in _WINDOWS if window <= n] * on_processors
    _, square, wide = by_axis.three_shapes(n)
    hard = ((wide, 1), (square, 1), (square, 0))
    for dtype in dtypes:
        found += [Case(1, n >> k, 0, dtype, measure="whole") for k in (8, 6, 4, 2, 0)]
        found += [Case(*s, a, dtype, measure="matrices") for s in by_axis.shapes(n) for a in (1, 0)]
        found += [Case(*s, a, dtype, measure="unproven") for s, a in hard]
    if "float64" in dtypes:
        found += [Case(1, n, 1, "float64", measure="windows", window=one) for one in windows]
    return [case for case in found if case.size]


# --- the contenders ------------------------------------------------------------------------------


def on_threads(count: int, run: Run) -> Run:
    """A call of gpureduce on `count` threads."""

    def call() -> Any:
        before = os.environ.get(_THREADS, "")
        os.environ[_THREADS] = str(count)
        try:
            return run()
        finally:
            os.environ[_THREADS] = before

    return call


def _of_arrays(place: Place, case: Case, base: Any) -> Iterator[tuple[str, Run]]:
    axis: Any = case.axis
    matrix = base[: case.size] if case.measure == "whole" else case.of(base)
    out = (place.torch if place.card else np).empty_like(matrix)
    how = {"axis": axis, "out": out, "device": place.own, "timing": False}
    fast, exactly = (functools.partial(cumsum, matrix, name, **how) for name in ("fast", "exact"))
    if place.device == "cpu":
        yield ONE_THREAD, on_threads(1, exactly)
        yield TWO_THREADS, on_threads(2, exactly)
    else:
        yield from (("fast", fast), ("exact", exactly))
        for name in LESSONS if case.measure == "whole" else ():
            yield name, functools.partial(cumsum, matrix, name, **how)
    if "numpy" in place.names:
        yield "NumPy", lambda: np.cumsum(matrix, axis, out=out)
    if "torch" in place.names:
        yield COPY, lambda: out.copy_(matrix)
        yield "torch", lambda: place.torch.cumsum(matrix, axis, out=out)
    if "cupy" in place.names:
        cupy = libraries.load("cupy")[1]
        theirs, sums, along = cupy.from_dlpack(matrix), cupy.from_dlpack(out), axis
        if case.measure == "whole":
            cub, along = load_other("cupy.cuda.cub"), None  # with an axis, CuPy does not call CUB
            yield CUB, place.on_stream(lambda: cub.device_scan(sums, cub.CUPY_CUB_CUMSUM))
        yield "CuPy", place.on_stream(lambda: cupy.cumsum(theirs, along, out=sums))
    if "jax" in place.names:
        yield JAX, matrices.of_jax(case, matrix, "cumsum")


def unproven(case: Case) -> Array:
    """A matrix along whose axis hardly any running sum can be proven.

    Large numbers are followed by their negatives, and by small numbers. What float64 numbers lose
    of the large ones is more than the sums of the small ones.
    """
    terms, width = case.shape[-1 if case.axis else 0], np.dtype(case.dtype)
    found = arrays.random_numbers(26).standard_normal((case.size // terms, terms), width.type)
    found *= width.type(2.0**-40)
    large = np.flatnonzero(np.arange(terms - min(terms, _LARGE)) % _PERIOD < _LARGE)
    found[:, large] *= np.resize(np.geomspace(2.0**40, 2.0**160, _LARGE), large.size)
    found[:, large + _LARGE] = -found[:, large]
    return np.ascontiguousarray(found if case.axis else found.T)


def _of_windows(place: Place, case: Case, base: Any) -> Iterator[tuple[str, Run]]:
    x, window = base[: case.size], case.window
    for name in ("mean", "std"):
        ours = functools.partial(getattr(exact, f"rolling_{name}"), x, window)
        yield f"exact {name}", on_threads(1, ours)
        if "pandas" in place.names:
            yield f"pandas {name}", getattr(load_other("pandas").Series(x).rolling(window), name)
        if "bottleneck" in place.names:
            move = getattr(load_other("bottleneck"), f"move_{name}")
            how = {"ddof": 1} if name == "std" else {}
            yield f"bottleneck {name}", functools.partial(move, x, window, **how)


def contenders(place: Place, case: Case, base: Any) -> Iterator[Contender]:
    """The contenders of a case, whose rows have the bytes of elements and entries."""
    if case.measure == "unproven":
        base = place.put(unproven(case).reshape(-1))
    nbytes = 2 * case.size * named(case.dtype).itemsize  # of the elements and the entries
    for name, run in (_of_windows if case.window else _of_arrays)(place, case, base):
        yield place.contender(name, run, own_stream=name == JAX, nbytes=nbytes)


def comparison(case: Case) -> Callable[[str, Any], None]:
    """Compares the last running sums. CUB's are made in place."""
    if case.measure not in ("whole", "matrices"):
        return lambda *_: None
    return close_to_first(case, case.size, (COPY, CUB), lambda found: found.reshape(-1)[-4096:])


# --- the record as text --------------------------------------------------------------------------


_ON_PROCESSORS = {
    "1 thread over NumPy": ratio("NumPy", ONE_THREAD),
    "2 threads over 1": ratio(ONE_THREAD, TWO_THREADS),
}
_OF_WINDOWS = {
    f"{name} over {library}": ratio(f"{library} {name}", f"exact {name}")
    for name in ("mean", "std") for library in ("pandas", "bottleneck")
}  # fmt: skip


def as_text(made: Row) -> str:
    more = _ON_PROCESSORS if made["device"] == "cpu" else by_axis.BESIDE
    rates = functools.partial(by_axis.table, cell=of("gb_s", ".4g"), more=more)
    sections = {
        "whole": ("GB/s of whole arrays, their elements and entries together", rates),
        "matrices": ("GB/s of matrices, their elements and entries together", rates),
        "unproven": ("GB/s where exact can prove hardly any entry", rates),
        "windows": ("Microseconds of windows, one thread each",
                    functools.partial(by_axis.table, cell=US, more=_OF_WINDOWS)),
    }  # fmt: skip
    by_cub = f"{CUB}: in place, as CuPy calls it. CuPy copies the array before."
    return render.as_text(made, sections, by_axis.notes(made, {CUB: by_cub}))


def suite(arguments: argparse.Namespace) -> Suite:
    place = place_of(arguments.device, "--scan", ("numpy", "pandas", "bottleneck"), "cpu")
    sizes = arguments.sizes or [1 << 28 if place.card else 1 << 16 if place.on else 1 << 22]
    dtypes, on_processors = arguments.dtypes or _DTYPES, place.on is None
    chosen = [case for n in sizes for case in cases(n, dtypes, on_processors)]
    repeats = REPEATS if arguments.repeats is None else arguments.repeats
    groups = by_axis.groups(place, chosen, repeats, contenders, comparison)
    return Suite("scan", place.on, list(groups), as_text, place.names)
