"""Running sums beside other libraries: ``gpureduce bench --scan``.

Bandwidths count elements and entries, as those of a copy do. On a card the L2 cache is flushed
before every measurement. On processors, windows are measured, too.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence

from gpureduce.bench import render
from gpureduce.bench.command import REPEATS, Suite
from gpureduce.bench.contenders import scans
from gpureduce.bench.contenders.matrices import Case
from gpureduce.bench.contenders.places import place_of
from gpureduce.bench.contenders.scans import CUB, ONE_THREAD, TWO_THREADS
from gpureduce.bench.render import US, of, ratio
from gpureduce.bench.runner import Row
from gpureduce.bench.suites import axis

_DTYPES = ("float32", "float64")
_WINDOWS = (3, 100, 10_000)


def cases(n: int, dtypes: Sequence[str], on_processors: bool) -> list[Case]:
    """The cases at `n` elements, by dtype."""
    if unknown := [dtype for dtype in dtypes if dtype not in _DTYPES]:
        raise ValueError(f"--dtypes: --scan takes {' and '.join(_DTYPES)}, not {unknown[0]}")
    found = []
    windows = [window for window in _WINDOWS if window <= n] * on_processors
    _, square, wide = axis.three_shapes(n)
    hard = ((wide, 1), (square, 1), (square, 0))
    for dtype in dtypes:
        found += [Case(1, n >> k, 0, dtype, measure="whole") for k in (8, 6, 4, 2, 0)]
        found += [Case(*s, a, dtype, measure="matrices") for s in axis.shapes(n) for a in (1, 0)]
        found += [Case(*s, a, dtype, measure="unproven") for s, a in hard]
    if "float64" in dtypes:
        found += [Case(1, n, 1, "float64", measure="windows", window=one) for one in windows]
    return [case for case in found if case.size]


_ON_PROCESSORS = {
    "1 thread over NumPy": ratio("NumPy", ONE_THREAD),
    "2 threads over 1": ratio(ONE_THREAD, TWO_THREADS),
}
_OF_WINDOWS = {
    f"{name} over {library}": ratio(f"{library} {name}", f"exact {name}")
    for name in ("mean", "std") for library in ("pandas", "bottleneck")
}  # fmt: skip


def as_text(made: Row) -> str:
    """A record as text."""
    more = _ON_PROCESSORS if made["device"] == "cpu" else axis.BESIDE
    rates = functools.partial(axis.table, cell=of("gb_s", ".4g"), more=more)
    sections = {
        "whole": ("GB/s of whole arrays, their elements and entries together", rates),
        "matrices": ("GB/s of matrices, their elements and entries together", rates),
        "unproven": ("GB/s where exact can prove hardly any entry", rates),
        "windows": ("Microseconds of windows, one thread each",
                    functools.partial(axis.table, cell=US, more=_OF_WINDOWS)),
    }  # fmt: skip
    by_cub = f"{CUB}: in place, as CuPy calls it. CuPy copies the array before."
    return render.as_text(made, sections, axis.notes(made, {CUB: by_cub}))


def suite(arguments: argparse.Namespace) -> Suite:
    """The suite of the command's options."""
    place = place_of(arguments.device, "--scan", ("numpy", "pandas", "bottleneck"), "cpu")
    sizes = arguments.sizes or [1 << 28 if place.card else 1 << 16 if place.on else 1 << 22]
    dtypes, on_processors = arguments.dtypes or _DTYPES, place.on is None
    chosen = [case for n in sizes for case in cases(n, dtypes, on_processors)]
    repeats = REPEATS if arguments.repeats is None else arguments.repeats
    groups = axis.groups(place, chosen, repeats, scans.CONTENDERS, scans.comparison)
    return Suite("scan", place.on, list(groups), as_text, place.names)
