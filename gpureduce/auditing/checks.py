"""The checks, as data: a name, how the call is changed, and the results of the changed calls.

In all of them, the result of each row must keep its bits.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce.auditing.libraries import NUMPY, NotApplicable, library_of
from gpureduce.auditing.results import Results, compared, error_text, results_of, running
from gpureduce.core.arrays import random_numbers
from gpureduce.core.checks import whole
from gpureduce.core.dtypes import Array

_THREADS = 4

Axes = Mapping[str, tuple[int, ...]]  # of the batch, in each result
Call = tuple[Results, Any, Axes]  # with the rows of the batch that the results have


class Case:
    """A function with its arrays, of which each call gets copies, and its results."""

    def __init__(self, f: Callable[..., Any], arrays: Sequence[Any], along: int) -> None:
        self.f, self.library = f, next(filter(None, map(library_of, arrays)), NUMPY)
        for i, x in enumerate(arrays):
            if library_of(x) is not self.library or not x.ndim:
                raise TypeError(
                    f"argument {i} is a {type(x).__name__}: pass arrays of one library, with axes, "
                    "such as numpy.asarray of it, and bind other arguments by functools.partial"
                )
        self.alongs = [whole("along", along, -x.ndim, x.ndim - 1) % x.ndim for x in arrays]
        rows = [x.shape[axis] for x, axis in zip(arrays, self.alongs, strict=True)]
        if len({*rows}) != 1 or not rows[0]:
            raise ValueError(
                f"the arrays have {rows} rows along the batch: there must be as many in each, at "
                "least one. Bind arrays that are no part of the batch by functools.partial"
            )
        self.n = rows[0]
        self.arrays = [x.detach() if hasattr(x, "detach") else x for x in arrays]
        self.before = results_of(self.arrays, "argument ")
        self.arrays, self.given = self.copies(), self.copies()
        with running("the function"):
            found = f(*self.given)
        self.reference = results_of(found)
        if not self.reference:
            raise TypeError(f"the function returned {found!r}, which contains no arrays")
        self.axes = self._axes()

    def _axes(self) -> Axes:
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

    def copies(self, rows: Any = None, **layout: Any) -> list[Any]:
        """Copies of the arrays, or of rows of them."""
        found = []
        for x, axis in zip(self.arrays, self.alongs, strict=True):
            part = x if rows is None else x[(slice(None),) * axis + (rows,)]
            found.append(self.library.copy(part, x, **layout))
        return found

    def call(self, rows: Any = None, by: str = "", **layout: Any) -> Results:
        """The results of a call with copies, which the library makes in another way: `by`."""
        copies = self.copies(rows, **layout)
        own = self.library.own
        return results_of(own(by, copies[0], self.f, *copies) if by else self.f(*copies))

    def calls(self, *changes: dict[str, Any]) -> Iterable[Call]:
        """Calls with changed arrays, or in other ways.

        Rows are compared in results with an axis of the batch. Totals are of all rows.
        """
        is_known = False
        for change in changes:
            axes: Axes = dict.fromkeys(self.reference, ())
            if (rows := change.get("rows")) is not None:
                n = len(rows)
                axes = {path: one for path, one in self.axes.items() if n and (one or n == self.n)}
            if axes:
                is_known = True
                yield self.call(**change), rows, axes
        if not is_known:
            raise NotApplicable("no result has an axis that grows with the batch")

    def pieces(self, *pieces: Any) -> Iterable[Call]:
        """Calls with rows of the batch."""
        return self.calls(*({"rows": rows} for rows in pieces))


def _load(case: Case) -> Iterable[Call]:
    """On a card, each call has a stream of its own."""
    from multiprocessing.pool import ThreadPool  # imports no logging: see lazy_import

    start = threading.Barrier(_THREADS)

    def run(_: int) -> list[Call]:
        start.wait()
        with running("a thread"):  # SystemExit would end the thread alone
            with contextlib.suppress(NotApplicable):
                return [*case.calls(*[{"by": "stream"}] * 3)]
            return [*case.calls(*[{}] * 3)]

    with ThreadPool(_THREADS) as pool:
        return itertools.chain(*pool.map(run, range(_THREADS)))


@dataclass(frozen=True)
class Check:
    """A check. Where a call raises, it fails if it `must_run`, and does not apply otherwise."""

    name: str
    change: str
    calls: Callable[[Case], Iterable[Call]]
    must_run: bool = False


CHECKS = (
    Check("arguments", "the arrays after the call",
          lambda c: [(results_of(c.given, "argument "), None, dict.fromkeys(c.before, ()))]),
    Check("twice", "three more runs", lambda c: c.calls({}, {}, {}), True),
    Check("permuted", "the batch reversed, and shuffled",
          lambda c: c.pieces(np.arange(c.n - 1, -1, -1), random_numbers(0).permutation(c.n))),
    Check("cut", "the batch in two pieces", lambda c: c.pieces(
        *(piece for n in (c.n // 2, c.n // 3) for piece in np.split(np.arange(c.n), [n])))),
    Check("rows", "rows alone, 16 at most",
          lambda c: c.pieces(*np.unique(np.linspace(0, c.n - 1, 16, dtype=int))[:, None])),
    Check("padded", "other rows around the batch", lambda c: c.pieces(
        *(np.arange(-a, c.n + b) % c.n for a, b in ((0, 1), (3, c.n // 2), (c.n, c.n + 7))))),
    Check("shifted", "another start in memory", lambda c: c.calls({"shift": 1}, {"shift": 3})),
    Check("strides", "gaps, and another order of axes",
          lambda c: c.calls({"step": 2}, {"reverse": True})),
    Check("stream", "another stream", lambda c: c.calls({"by": "stream"}), True),
    Check("graph", "played from a CUDA graph", lambda c: c.calls({"by": "graph"})),
    Check("compiled", "compiled", lambda c: c.calls({"by": "compiled"})),
    Check("device", "on the CPU, or on a card", lambda c: c.calls({"by": "device"})),
    Check("load", "four threads call it at once", _load, True),
)  # fmt: skip


@dataclass
class Finding:
    """What a check found.

    `holds` is None if the check does not apply; then `note` says why. Of the `results` of all
    calls, `differ` are other ones than in the first call: `first` is the index of one of them, and
    `ulps` the greatest difference.
    """

    check: str
    change: str
    holds: bool | None = True
    differ: int = 0
    results: int = 0
    first: str = ""
    ulps: float = 0.0
    note: str = ""

    def compare(self, path: str, got: Array, first: Array, rows: Any, along: Sequence[int]) -> None:
        """Adds a result, which should have these rows of the first call's along its axes."""
        wanted = functools.reduce(lambda x, axis: np.take(x, rows, axis), along, first)
        forms = [f"{one.dtype}{list(one.shape)}" for one in (got, wanted)]
        self.results += got.size
        if forms[0] != forms[1]:
            self.holds, self.note = False, f"{forms[0]} in place of {forms[1]} {path}".rstrip()
        elif got.tobytes() != wanted.tobytes():
            differ, far = compared(got, wanted)
            if differ.any() and not self.differ:
                at = np.unravel_index(differ.argmax(), got.shape)
                self.holds, self.note = False, f"{got[at]} in place of {wanted[at]}"
                here = [int(rows[i] if axis in along else i) for axis, i in enumerate(at)]
                self.first = path + str(here).replace("[]", "")
            self.differ += int(differ.sum())
            self.ulps = float(np.max(far[differ], initial=self.ulps))


def run(check: Check, case: Case) -> Finding:
    """Makes the calls of a check, and compares their results with the first call's."""
    finding = Finding(check.name, check.change)
    first = case.before if check.name == "arguments" else case.reference
    try:
        for found, rows, axes in check.calls(case):
            for path, along in axes.items():
                finding.compare(path, found[path], first[path], rows, along)
    except NotApplicable as reason:
        finding.holds, finding.note = None, str(reason)
    except (Exception, SystemExit) as error:
        if finding.holds:
            finding.holds = False if check.must_run else None
            finding.note = f"it raises {error_text(error)}"
    return finding
