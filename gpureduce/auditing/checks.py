"""The checks, as data: a name, how the call is changed, and the results of the changed calls.

In all of them, the result of each row must keep its bits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce.auditing.libraries import NUMPY, NotApplicable, library_of
from gpureduce.auditing.results import Differences, Result, results_of
from gpureduce.core.arrays import random_numbers
from gpureduce.core.dtypes import Array

_MOST_ROWS = 16  # that are tried alone
_THREADS = 4
_RUNS = 3

Calls = Iterable[tuple[list[Result], Array | None]]  # results, and the rows of the batch


class Case:
    """A function with its arrays, of which each call gets copies, and its results."""

    def __init__(
        self, f: Callable[..., Any], arrays: Sequence[Any], alongs: Sequence[int | None]
    ) -> None:
        self.f, self.alongs = f, alongs
        self.arrays = [x.detach() if hasattr(x, "detach") else x for x in arrays]
        self.libraries = [library_of(x) or NUMPY for x in arrays]
        self.library = next((one for one in self.libraries if one is not NUMPY), NUMPY)
        self.example = arrays[self.libraries.index(self.library)]
        self.n: int = next(
            x.shape[axis] for x, axis in zip(arrays, alongs, strict=True) if axis is not None
        )
        self.before = results_of(self.arrays)
        self.arrays = self.copies()
        given = self.copies()
        try:
            found = f(*given)
        except (Exception, SystemExit) as error:
            raise RuntimeError(f"the function raises {said(error)}") from error
        self.reference = results_of(found)
        self.after = results_of(given)
        self.axes = self._axes()

    def _axes(self) -> list[tuple[int, ...]]:
        """The axes of the batch in each result: their sizes change with the batch's."""
        shapes = [one.values.shape for one in self.reference]
        for rows in (np.arange(self.n + 1) % self.n, np.arange(self.n // 2)):
            with contextlib.suppress(Exception, SystemExit):
                found = [one.values.shape for one in self.call(rows)]
                return [
                    tuple(i for i, pair in enumerate(zip(*both, strict=True))
                          if pair == (self.n, len(rows)))
                    for both in zip(shapes, found, strict=True)
                ]  # fmt: skip
        return [tuple(i for i, n in enumerate(shape) if n == self.n)[:1] for shape in shapes]

    def copies(
        self, rows: Array | None = None, shift: int = 0, step: int = 1, reverse: bool = False
    ) -> list[Any]:
        """Copies of the arrays, or of rows of them, each in its order of axes or in the reverse."""
        found = []
        for x, axis, library in zip(self.arrays, self.alongs, self.libraries, strict=True):
            order = library.own("order", x)
            if rows is not None and axis is not None:
                x = library.own("take", x, rows, axis)
            if order is not None:
                x = library.place(x, order[::-1] if reverse else order, shift, step)
            found.append(x)
        return found

    def call(self, rows: Array | None = None, **layout: Any) -> list[Result]:
        """The results of a call with copies."""
        return results_of(self.f(*self.copies(rows, **layout)))

    def layouts(self, *layouts: dict[str, Any]) -> Calls:
        """Calls with other layouts of the arrays in memory."""
        if self.library.own("order", self.example) is None:
            raise NotApplicable(f"{self.library.name} decides on the layout of its arrays")
        return ((self.call(**layout), None) for layout in layouts)

    def pieces(self, *pieces: Array) -> Calls:
        """Calls with rows of the batch."""
        if not any(self.axes):
            raise NotApplicable("no result has an axis of the batch")
        return ((self.call(rows), rows) for rows in pieces if len(rows))

    def within(self, context: str) -> Iterator[tuple[list[Result], None]]:
        """A call within a context of the library."""
        with self.library.own(context, self.example):
            yield self.call(), None


def _permuted(case: Case) -> Calls:
    for rows in (np.arange(case.n)[::-1].copy(), random_numbers(0).permutation(case.n)):
        yield case.call(rows), rows


def _cut(case: Case) -> Calls:
    every, half, third = np.arange(case.n), case.n // 2, case.n // 3
    return case.pieces(every[:half], every[half:], every[:third], every[third:])


def _rows(case: Case) -> Calls:
    return case.pieces(*np.unique(np.linspace(0, case.n - 1, _MOST_ROWS, dtype=int))[:, None])


def _padded(case: Case) -> Calls:
    """The other rows are copies of rows of the batch, so their results are known."""
    n, other = case.n, random_numbers(0).integers(0, case.n, 2 * case.n + 7)
    sizes = ((0, 1), (3, n // 2), (n, n + 7))
    return case.pieces(*(np.r_[other[:a], np.arange(n), other[:b]] for a, b in sizes))


def _load(case: Case) -> Calls:
    """On a card, each thread has a stream of its own."""
    from concurrent.futures import ThreadPoolExecutor  # imports logging: see lazy_import

    start = threading.Barrier(_THREADS)

    def run(_: int) -> list[list[Result]]:
        start.wait()
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(NotApplicable):
                stack.enter_context(case.library.own("stream", case.example))
            return [case.call() for _ in range(_RUNS)]

    with ThreadPoolExecutor(_THREADS) as pool:
        return [(one, None) for found in pool.map(run, range(_THREADS)) for one in found]


def _graph(case: Case) -> Calls:
    copies = case.copies()
    yield case.library.own("graph", case.example, case.f, copies, results_of), None


def _compiled(case: Case) -> Calls:
    compiled = case.library.own("compiled", case.f)
    return ((results_of(compiled(*case.copies())), None) for _ in range(2))


def _moved(case: Case) -> Calls:
    pairs, own = zip(case.libraries, case.copies(), strict=True), case.library
    arrays = [one.own("moved", x) if one is own else x for one, x in pairs]
    yield results_of(case.f(*arrays)), None


@dataclass(frozen=True)
class Check:
    """A check. Where a call raises, it fails if it `must_run`, and does not apply otherwise."""

    name: str
    change: str
    calls: Callable[[Case], Calls]
    must_run: bool = False


ARGUMENTS = Check("arguments", "the arrays after the call", lambda case: [(case.after, None)])
CHECKS = (
    ARGUMENTS,
    Check("twice", "three more runs", lambda c: ((c.call(), None) for _ in range(_RUNS)), True),
    Check("permuted", "the batch reversed, and shuffled", _permuted),
    Check("cut", "the batch in two pieces", _cut),
    Check("rows", "rows alone, 16 at most", _rows),
    Check("padded", "other rows around the batch", _padded),
    Check("shifted", "another start in memory", lambda c: c.layouts({"shift": 1}, {"shift": 3})),
    Check("strides", "gaps, and another order of axes",
          lambda case: case.layouts({"step": 2}, {"reverse": True})),
    Check("load", "four threads call it at once", _load, True),
    Check("threads", "another number of threads", lambda c: c.within("threads"), True),
    Check("stream", "another stream", lambda c: c.within("stream"), True),
    Check("graph", "played from a CUDA graph", _graph),
    Check("compiled", "compiled", _compiled),
    Check("device", "on the CPU, or on a card", _moved),
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """What a check found.

    `holds` is None if the check does not apply; then `note` says why. `differ` of `results` are not
    the same in all calls: `first` is the index of the first one, `ulps` the greatest difference.
    """

    check: str
    change: str
    holds: bool | None
    differ: int = 0
    results: int = 0
    first: str = ""
    ulps: float = 0.0
    note: str = ""


def run(check: Check, case: Case) -> Finding:
    """Makes the calls of a check, and compares their results with those of the first call."""
    of = case.before if check is ARGUMENTS else case.reference
    found = Differences(of, [()] * len(of) if check is ARGUMENTS else case.axes)
    holds: bool | None = None
    try:
        for results, rows in check.calls(case):
            found.add(results, rows, rows is None or len(rows) == case.n)
        holds, why = True, found.form
    except NotApplicable as reason:
        why = str(reason)
    except (Exception, SystemExit) as error:
        holds, why = False if check.must_run else None, f"it raises {said(error)}"
    first, note = found.first()
    holds = False if found.count or found.form else holds
    counts = (found.count, found.size, first, found.ulps)
    return Finding(check.name, check.change, holds, *counts, why or note)


def said(error: BaseException) -> str:
    """An error as one short line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:70]}".rstrip(": ")
