"""`audit` and `assert_reproducible`: a function's checks, and their findings as text and pages."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce.auditing.accuracy import TRUTHS, Accuracy, Truth, measured, recognised
from gpureduce.auditing.checks import CHECKS, Case, Finding, run
from gpureduce.auditing.libraries import library_of
from gpureduce.core.checks import listed, named_keywords, one_of, shown, whole
from gpureduce.kernels.verdict_html import fragment, whole_page
from gpureduce.text import Table, counted, plain, visible

_HEAD = ("check", "change", "holds", "differ", "first", "ulps", "note")
_MARKS = {True: "yes", False: "NO", None: "-"}


@dataclass(frozen=True)
class Audit:
    """The findings of `audit`; true if every check that applies holds.

    `arrays` describes the arguments. `accuracy` is None if no truth is known.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((40, 1000), np.float32)
    >>> found = gpureduce.audit(lambda x: gpureduce.sum(x, axis=1), x)
    >>> bool(found), [one.check for one in found.findings if one.holds is False]
    (True, [])
    """

    function: str
    arrays: tuple[str, ...]
    findings: tuple[Finding, ...]
    accuracy: Accuracy | None

    def __bool__(self) -> bool:
        return all(one.holds is not False for one in self.findings)

    @property
    def headline(self) -> str:
        """The findings in one sentence."""
        failed = [one.check for one in self.findings if one.holds is False]
        made = counted(sum(one.holds is not None for one in self.findings), "check")
        if failed:
            return f"{self.function} fails {len(failed)} of {made}: {', '.join(failed)}"
        return f"{self.function} gives the same bits in {made}"

    def _table(self, title: str) -> Table:
        rows = [
            [
                one.check, one.change, _MARKS[one.holds],
                f"{one.differ:,} of {one.results:,}" if one.differ else "", one.first,
                f"{one.ulps:,.7g}" if one.differ else "", visible(one.note),
            ]
            for one in self.findings
        ]  # fmt: skip
        notes = [*self.arrays]
        if found := self.accuracy:
            where = f", at {found.first}" if found.first else ""
            notes.append(
                f"from the exact {found.truth}: {found.greatest:,.7g} ulps at most{where}; "
                f"{found.mean:.3g} on average"
            )
        return Table(title, _HEAD, rows, notes)

    def __str__(self) -> str:
        return str(self._table(self.headline))

    def _repr_html_(self) -> str:
        parts = [("Checks", self._table("")._repr_html_())]
        return fragment(self.headline, bool(self), False, parts)

    def page(self) -> str:
        """A page for a browser."""
        return whole_page([self.headline], [self._repr_html_()])

    def to_json(self) -> str:
        """The findings as JSON, in which nan and inf are text."""
        found = {"kind": "audit", "schema": 1, "holds": bool(self)} | dataclasses.asdict(self)
        return json.dumps(plain(found), indent=1, allow_nan=False)


def _name(f: Callable[..., Any]) -> str:
    if isinstance(f, functools.partial):
        bound = [*map(shown, f.args), *(f"{k}={shown(v)}" for k, v in f.keywords.items())]
        return f"{_name(f.func)}({', '.join(bound)})"
    return str(getattr(f, "__name__", type(f).__name__))


def _axes(arrays: Sequence[Any], along: Any) -> tuple[list[int | None], int]:
    """The axis of the batch in each array, None for arrays that are no part of it; and its rows."""
    given = listed("along", [along] * len(arrays) if hasattr(along, "__index__") else along)
    if len(given) != len(arrays) or not arrays:
        raise ValueError(
            f"along has {len(given)} entries for {counted(len(arrays), 'array')}: give one for "
            "each array, and at least one array"
        )
    axes, rows = [*given], []
    for i, (axis, x) in enumerate(zip(given, arrays, strict=True)):
        is_subclass = isinstance(x, np.ndarray) and type(x) not in (np.ndarray, np.memmap)
        if is_subclass or library_of(x) is None:
            raise TypeError(
                f"argument {i} is a {type(x).__name__}: pass arrays, such as numpy.asarray of it, "
                "and bind other arguments by functools.partial"
            )
        if axis is None:
            continue
        if not (n := len(x.shape)):
            raise TypeError(f"argument {i} has no axes: set its entry of along to None")
        axes[i] = whole(f"along of argument {i}", axis, -n, n - 1) % n
        rows.append(x.shape[axes[i]])
    if len({*rows}) != 1 or not rows[0]:
        raise ValueError(
            f"the arrays have {', '.join(map(str, rows)) or 'no'} rows along the batch: there must "
            "be as many in each, at least one. along=(0, None) leaves the second array out of it"
        )
    return axes, rows[0]


@named_keywords
def audit(
    f: Callable[..., Any], *arrays: Any, along: int | Iterable[int | None] = 0,
    truth: Truth | None = None, checks: Iterable[str] | None = None,
) -> Audit:  # fmt: skip
    """Whether a function gives the same bits in any circumstances, and how exact it is.

    The function is called some fifty times with copies of the arrays: again, with the rows of the
    batch permuted, cut, alone and padded, from other places in memory, in several threads, on
    another stream, from a CUDA graph, compiled, and on the other device. Each row's result must
    keep its bits. All nans count as equal.

    Parameters
    ----------
    f
        A function that returns an array, a number, or a list or dict of them.
    arrays
        Its arguments, arrays of NumPy, CuPy, PyTorch or JAX. They are never changed.
    along
        The axis of the batch, whose rows are independent: one for all arrays, or one for each,
        with None for an array that is no part of the batch.
    truth
        ``"sum"``, ``"mean"``, ``"var"``, ``"std"``, ``"norm"``, ``"dot"``, or a function that takes
        NumPy arrays and returns the exact results. Known functions of libraries are recognised.
    checks
        The names of the checks to make. By default all.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((40, 1000), np.float32)
    >>> found = gpureduce.audit(lambda x: x.sum(axis=1), x, checks=["twice", "strides"])
    >>> [(one.check, one.holds) for one in found.findings]
    [('twice', True), ('strides', False)]
    """
    if not callable(f):
        raise TypeError(f"f must be a function, not {shown(f)}")
    if not callable(f):
        raise TypeError(f"f must be a function, not {shown(f)}")
    known = [one.name for one in CHECKS]
    chosen = [one_of("checks", one, known) for one in listed("checks", checks or known)]
    if truth is not None and not callable(truth):
        one_of("truth", truth, TRUTHS)
    alongs, n = _axes(arrays, along)
    case = Case(f, arrays, alongs, n)
    findings = tuple(run(check, case) for check in CHECKS if check.name in chosen)
    texts = [
        f"{library.name} {str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
        + ("" if axis is None else f", batch along axis {axis}")
        for library, x, axis in zip(case.libraries, arrays, alongs, strict=True)
    ]
    hosts, distance = [*case.before.values()], None
    if truth is not None:
        distance = measured(truth, hosts, case.reference)
    elif known_truth := recognised(f):
        with contextlib.suppress(TypeError, ValueError):  # with arguments that exact ones lack
            distance = measured(known_truth, hosts, case.reference)
    return Audit(_name(f), tuple(texts), findings, distance)


def assert_reproducible(
    f: Callable[..., Any], *arrays: Any, along: int | Iterable[int | None] = 0,
    checks: Iterable[str] | None = None,
) -> None:  # fmt: skip
    """For tests: raises an AssertionError with the table of `audit` if a check fails.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((40, 1000), np.float32)
    >>> gpureduce.assert_reproducible(lambda x: gpureduce.exact.mean(x, axis=1), x)
    """
    __tracebackhide__ = True  # pytest shows the test's line
    found = audit(f, *arrays, along=along, checks=checks)
    if not found:
        raise AssertionError(str(found))
