"""`audit` and `assert_reproducible`: a function's checks, and their findings as text and pages."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpureduce.auditing.checks import CHECKS, Case, Finding, run
from gpureduce.auditing.results import TRUTHS, Accuracy, measured, recognised
from gpureduce.core.checks import listed, named_keywords, one_of, shown
from gpureduce.text import Table, counted, plain, visible

_HEAD = ("check", "change", "holds", "differ", "first", "ulps", "note")


@dataclass(frozen=True)
class Audit:
    """The findings of `audit`; true if every check that applies holds.

    `arrays` describes the arguments. `accuracy` is None if no truth is known.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> gpureduce.audit(np.sum, np.ones((4, 3)), checks=["twice", "cut"]).headline
    'sum gives the same bits in 1 check'
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

    def _table(self) -> Table:
        rows = [
            [
                one.check, one.change, "-" if one.holds is None else ("NO", "yes")[one.holds],
                f"{one.differ:,} of {one.results:,}" if one.differ else "", one.first,
                f"{one.ulps:,.7g}" if one.differ else "", visible(one.note),
            ]
            for one in self.findings
        ]  # fmt: skip
        notes = [*self.arrays]
        if found := self.accuracy:
            far = f"{found.greatest:,.7g} ulps at most; {found.mean:.3g} on average"
            notes.append(f"from the exact {found.truth}: {far}")
        return Table(self.headline, _HEAD, rows, notes)

    def __str__(self) -> str:
        return str(self._table())

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def to_json(self) -> str:
        """The findings as JSON, in which nan and inf are text."""
        found = {"kind": "audit", "schema": 1, "holds": bool(self)} | dataclasses.asdict(self)
        return json.dumps(plain(found), indent=1, allow_nan=False)


def _name(f: Callable[..., Any]) -> str:
    if isinstance(f, functools.partial):
        return f"{_name(f.func)}({', '.join(f'{k}={shown(v)}' for k, v in f.keywords.items())})"
    return str(getattr(f, "__name__", type(f).__name__))


@named_keywords
def audit(
    f: Callable[..., Any], *arrays: Any, along: int = 0,
    truth: str | None = None, checks: Iterable[str] | None = None,
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
        The axis of the batch in each array, whose rows are independent.
    truth
        ``"sum"``, ``"mean"``, ``"var"``, ``"std"``, ``"norm"`` or ``"dot"``. Known functions of
        libraries are recognised.
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
    known = [one.name for one in CHECKS]
    chosen = [one_of("checks", one, known) for one in listed("checks", checks or known)]
    wanted = recognised(f) if truth is None else one_of("truth", truth, TRUTHS)
    case = Case(f, arrays, along)
    findings = tuple(run(check, case) for check in CHECKS if check.name in chosen)
    hosts = [*case.before.values()]
    texts = tuple(
        f"{case.library.name} {x.dtype} {x.shape}, batch along axis {along}" for x in hosts
    )
    accuracy = None
    if wanted:
        # Recognised functions may have arguments that exact ones lack.
        with contextlib.suppress(*(() if truth else (TypeError, ValueError))):
            accuracy = measured(wanted, hosts, case.reference)
    return Audit(_name(f), texts, findings, accuracy)


def assert_reproducible(
    f: Callable[..., Any], *arrays: Any, along: int = 0, checks: Iterable[str] | None = None
) -> None:
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
