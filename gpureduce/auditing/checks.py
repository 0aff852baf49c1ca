"""The checks, as data: a name, how the call is changed, and the results of the changed calls.

In all of them, the result of each row must keep its bits.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce.auditing.libraries import NUMPY, NotApplicable, library_of
from gpureduce.auditing.results import Differences, Results, error_text, results_of, running
from gpureduce.core.arrays import random_numbers
from gpureduce.core.dtypes import Array

_THREADS = 4
_RUNS = 3
_LIMIT_S = 60.0  # for the threads, besides 100 times the first call

Calls = Iterable[tuple[Results, Array | None]]  # results, and the rows of the batch, None: all


class Case:
    """A function with its arrays, of which each call gets copies, and its results."""

    def __init__(
        self, f: Callable[..., Any], arrays: Sequence[Any], alongs: Sequence[int | None], n: int
    ) -> None:
        self.f, self.alongs, self.n = f, alongs, n
        self.libraries = [library_of(x) or NUMPY for x in arrays]
        self.library = next((one for one in self.libraries if one is not NUMPY), NUMPY)
        self.example = arrays[self.libraries.index(self.library)]
        self.arrays = [x.detach() if hasattr(x, "detach") else x for x in arrays]
        self.before = results_of(self.arrays, "argument ")
        self.arrays, self.given = self.copies(), self.copies()
        start = time.monotonic()
        with running("the function"):
            found = f(*self.given)
        self.limit = _LIMIT_S + 100 * (time.monotonic() - start)
        self.reference = results_of(found)
        if not self.reference:
            raise TypeError(f"the function returned {found!r}, which contains no arrays")
        self.axes = self._axes()

    def _axes(self) -> dict[str, tuple[int, ...]]:
        """The axes of the batch in each result: their sizes change with the number of rows.

        Left out are results of which another size changes. If the function takes no other number of
        rows, all are: it may have values of its own for each row.
        """
        for n in (self.n + 1, 2 * self.n, self.n // 2):
            with contextlib.suppress(Exception, SystemExit):
                other, found = self.call(np.arange(n) % self.n), {}
                for path, values in other.items():
                    sizes = [*zip(self.reference[path].shape, values.shape, strict=True)]
                    if {(a, b) for a, b in sizes if a != b} <= {(self.n, n)}:
                        found[path] = tuple(i for i, (a, b) in enumerate(sizes) if a != b)
                # One row could be broadcast. A list may have an array for each row.
                return found if n > 1 and len(other) == len(self.reference) else {}
        return {}

    def copies(self, rows: Array | None = None, **layout: Any) -> list[Any]:
        """Copies of the arrays, or of rows of them."""
        found = []
        for x, axis, library in zip(self.arrays, self.alongs, self.libraries, strict=True):
            part = x if rows is None or axis is None else library.own("take", x, rows, axis)
            found.append(library.copy(part, x, **layout))
        return found

    def call(self, rows: Array | None = None, **layout: Any) -> Results:
        """The results of a call with copies."""
        return results_of(self.f(*self.copies(rows, **layout)))

    def layouts(self, *layouts: dict[str, Any]) -> Calls:
        """Calls with other layouts of the arrays in memory."""
        self.library.own("strides", self.example)
        return ((self.call(**layout), None) for layout in layouts)

    def known(self, rows: Array) -> dict[str, tuple[int, ...]]:
        """The axes of the batch in the results that rows must have. Totals are of all rows."""
        return {path: axes for path, axes in self.axes.items() if axes or len(rows) == self.n}

    def pieces(self, *pieces: Array) -> Calls:
        """Calls with rows of the batch."""
        known = [rows for rows in pieces if len(rows) and self.known(rows)]
        if not known:
            raise NotApplicable("no result has an axis that grows with the batch")
        return ((self.call(rows), rows) for rows in known)

    def variant(self, kind: str) -> Calls:
        """Calls of a function that the library makes of this one."""
        f = self.library.own(kind, self.example, self.f)
        return ((results_of(f(*self.copies())), None) for _ in range(2))

    def within(self, context: str) -> Iterator[tuple[Results, None]]:
        """A call within a context of the library."""
        with self.library.own(context, self.example):
            yield self.call(), None


def _cut(case: Case) -> Calls:
    every, half, third = np.arange(case.n), case.n // 2, case.n // 3
    return case.pieces(every[:half], every[half:], every[:third], every[third:])


def _padded(case: Case) -> Calls:
    """The other rows are copies of rows of the batch, so their results are known."""
    n, other = case.n, random_numbers(0).integers(0, case.n, 2 * case.n + 7)
    sizes = ((0, 1), (3, n // 2), (n, n + 7))
    return case.pieces(*(np.r_[other[:a], np.arange(n), other[:b]] for a, b in sizes))


def _load(case: Case) -> Calls:
    """On a card, each thread has a stream of its own. A thread may never come to an end."""
    from multiprocessing.pool import ThreadPool  # imports no logging: see lazy_import

    start = threading.Barrier(_THREADS, timeout=case.limit)

    def run() -> list[Results]:
        start.wait()
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(NotApplicable):
                stack.enter_context(case.library.own("stream", case.example))
            stack.enter_context(running("a thread"))  # SystemExit would end the thread alone
            return [case.call() for _ in range(_RUNS)]

    contexts = [contextvars.copy_context() for _ in range(_THREADS)]  # NumPy's handling of errors
    with ThreadPool(_THREADS) as pool:
        found = pool.map_async(lambda context: context.run(run), contexts)
        found.wait(case.limit)
        if not found.ready():
            raise TimeoutError(f"the threads take more than {case.limit:.0f} seconds")
        return [(one, None) for each in found.get() for one in each]


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


CHECKS = (
    Check("arguments", "the arrays after the call",
          lambda c: [(results_of(c.given, "argument "), None)]),
    Check("twice", "three more runs", lambda c: ((c.call(), None) for _ in range(_RUNS)), True),
    Check("permuted", "the batch reversed, and shuffled",
          lambda c: c.pieces(np.arange(c.n - 1, -1, -1), random_numbers(0).permutation(c.n))),
    Check("cut", "the batch in two pieces", _cut),
    Check("rows", "rows alone, 16 at most",
          lambda c: c.pieces(*np.unique(np.linspace(0, c.n - 1, 16, dtype=int))[:, None])),
    Check("padded", "other rows around the batch", _padded),
    Check("shifted", "another start in memory", lambda c: c.layouts({"shift": 1}, {"shift": 3})),
    Check("strides", "gaps, and another order of axes",
          lambda c: c.layouts({"step": 2}, {"reverse": True})),
    Check("threads", "another number of threads", lambda c: c.within("threads"), True),
    Check("stream", "another stream", lambda c: c.within("stream"), True),
    Check("graph", "played from a CUDA graph", lambda c: c.variant("graph")),
    Check("compiled", "compiled", lambda c: c.variant("compiled")),
    Check("device", "on the CPU, or on a card", _moved),
    Check("load", "four threads call it at once", _load, True),  # last: its threads may stay
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
    """Makes the calls of a check, and compares their results with the first call's."""
    found = Differences(case.before if check.name == "arguments" else case.reference)
    holds: bool | None = True
    why = ""
    try:
        for results, rows in check.calls(case):
            axes = dict.fromkeys(found.reference, ()) if rows is None else case.known(rows)
            found.add(results, rows, axes)
    except NotApplicable as reason:
        holds, why = None, str(reason)
    except (Exception, SystemExit) as error:
        why = f"it raises {error_text(error)}"
        lacks_memory = any(word in why.lower() for word in ("memoryerror", "out of memory"))
        holds = False if check.must_run and not lacks_memory else None
    *_, first, note = found.first
    if note or found.form:
        holds, why = False, found.form or note
    differ, size = (sum(map(count, found.masks.values())) for count in (np.count_nonzero, np.size))
    return Finding(check.name, check.change, holds, int(differ), size, first, found.ulps, why)
