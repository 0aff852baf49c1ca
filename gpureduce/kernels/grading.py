"""`gpureduce.grade`: points for a kernel, by a spec that says what must hold."""

from __future__ import annotations

import json
import operator
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpureduce.core import dtypes, text_files
from gpureduce.core.checks import shown
from gpureduce.emulator.counts import COUNTERS
from gpureduce.kernels import ladder
from gpureduce.kernels.check import check
from gpureduce.kernels.kernel import Kernel, kernel
from gpureduce.kernels.signature import KernelError, without_comments
from gpureduce.kernels.verdict import Verdict
from gpureduce.text import table

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_RULE = re.compile(
    r"(?P<name>\w+)\s*(?P<compare>==|<=|>=|<|>)\s*(?P<number>\d+(?:\.\d+)?)"
    r"(?:\s+(?P<unit>per block|per element|times the least))?"
)
_MOST_POINTS = 1e6
_SPEC_KEYS = ("title", "dtypes", "require")
_ROW_KEYS = ("rule", "points", "says")
FORMS = (
    "right; no races; compiles; lines <= 40; forbid NAME; use NAME; or a counter, as in "
    "shared_load_conflicts == 0, block_barriers <= 2 per block, "
    "global_load_sectors <= 1.01 times the least"
)


@dataclass(frozen=True)
class Row:
    """One rule of a spec: whether it holds, the points, and why it does not hold."""

    rule: str
    points: float
    holds: bool
    why: str = ""

    @property
    def got(self) -> float:
        """The points that the kernel gets for it."""
        return self.points if self.holds else 0.0


@dataclass(frozen=True)
class Grade:
    """The points of a kernel; see `grade`.

    ``float`` of it is the points, as nbgrader takes them for partial credit; `gradescope` is a
    results file.

    Attributes
    ----------
    title
        The title of the spec.
    rows
        The rules, each with its points.
    verdict
        What `check` found; None if the kernel does not compile.

    Examples
    --------
    >>> import gpureduce
    >>> spec = {"require": [{"rule": "right", "points": 2}, {"rule": "no races", "points": 1}]}
    >>> grade = gpureduce.grade(gpureduce.source("missing_barrier").text, spec)
    >>> grade.points, grade.most, [row.rule for row in grade.rows if not row.holds]
    (0.0, 3.0, ['right', 'no races'])
    """

    title: str
    rows: tuple[Row, ...]
    verdict: Verdict | None

    @property
    def points(self) -> float:
        """The points of all rules that hold."""
        return float(sum(row.got for row in self.rows))

    @property
    def most(self) -> float:
        """The points of all rules."""
        return float(sum(row.points for row in self.rows))

    def __float__(self) -> float:
        return self.points

    def __str__(self) -> str:
        rows = [
            [f"{row.got:g} of {row.points:g}", row.rule, row.why.partition("\n")[0]]
            for row in self.rows
        ]
        head = f"{self.title}: {self.points:g} of {self.most:g} points"
        return f"{head}\n\n{table(['points', 'rule', ''], rows)}"

    def as_dict(self) -> dict[str, Any]:
        """The grade as plain values."""
        return {
            "title": self.title,
            "points": self.points,
            "most": self.most,
            "rules": [{**vars(row), "got": row.got} for row in self.rows],
            "verdict": self.verdict.as_dict() if self.verdict is not None else None,
        }

    def to_json(self) -> str:
        """The grade as JSON."""
        return json.dumps(self.as_dict(), indent=1, default=str)

    def gradescope(self) -> dict[str, Any]:
        """The grade as Gradescope's autograder reads it, from results.json."""
        return {
            "tests": [
                {
                    "name": row.rule,
                    "score": row.got,
                    "max_score": row.points,
                    "status": "passed" if row.holds else "failed",
                    "output": row.why,
                }
                for row in self.rows
            ]
        }


@dataclass(frozen=True)
class _Spec:
    title: str
    dtypes: tuple[str, ...] | None
    rules: tuple[tuple[str, float, str], ...]


def given(spec: str | os.PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """A spec as a mapping; read from a file unless it is one."""
    if isinstance(spec, Mapping):
        return spec
    try:
        return tomllib.loads(text_files.read(spec))
    except RecursionError:
        raise ValueError(f"{spec} is no TOML: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{spec} is no TOML: {error}") from error


def checked(spec: str | os.PathLike[str] | Mapping[str, Any]) -> _Spec:
    """A spec out of a file, or as a mapping. Raises an error that says what a spec may hold."""
    where = "the spec" if isinstance(spec, Mapping) else str(spec)
    found = given(spec)
    for key in found:
        if key not in _SPEC_KEYS:
            raise ValueError(f"{where} has {key!r}; a spec has {', '.join(_SPEC_KEYS)}")
    rules = []
    for row in _listed(found.get("require", []), f"{where}: require"):
        if not isinstance(row, Mapping):
            raise ValueError(f"{where}: a rule has rule, points and says, and is not {shown(row)}")
        unknown = [key for key in row if key not in _ROW_KEYS]
        if unknown or "rule" not in row:
            keys = ", ".join(map(str, row))
            raise ValueError(f"{where} has a rule with {keys}; it has rule, points, says")
        points = row.get("points", 1)
        is_number = isinstance(points, (int, float)) and not isinstance(points, bool)
        if not is_number or not 0 <= points <= _MOST_POINTS:
            raise ValueError(
                f"{where}: points are a number from 0 to {_MOST_POINTS}, not {shown(points)}"
            )
        _check_rule(str(row["rule"]), where)
        rules.append((str(row["rule"]), float(points), str(row.get("says", ""))))
    if not rules:
        raise ValueError(f"{where} has no rule: add [[require]] with rule = 'right' and points")
    return _Spec(str(found.get("title", "Grade")), _dtypes_of(found, where), tuple(rules))


def _listed(values: Any, where: str) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{where} must be a list, not {shown(values)}")
    return list(values)


def _dtypes_of(spec: Mapping[str, Any], where: str) -> tuple[str, ...] | None:
    if spec.get("dtypes") is None:
        return None
    names = _listed(spec["dtypes"], f"{where}: dtypes")
    try:
        return tuple(dtypes.name_of(dtypes.named(name)) for name in names)
    except TypeError as error:
        raise ValueError(f"{where}: dtypes: {error}") from error


def _check_rule(rule: str, where: str) -> None:
    found = _RULE.fullmatch(rule)
    words = rule.split()
    if rule in ("right", "no races", "compiles"):
        return
    if len(words) == 2 and words[0] in ("forbid", "use"):
        return
    if found and found["name"] == "lines" and not found["unit"]:
        return
    if not found or found["name"] not in COUNTERS:
        raise ValueError(f"{where} has the rule {rule!r}; a rule is one of: {FORMS}")
    if found["unit"] == "times the least" and found["name"] != "global_load_sectors":
        raise ValueError(f"{where}: the least is known for global_load_sectors, not in {rule!r}")


def _code_lines(text: str) -> int:
    return sum(1 for line in without_comments(text).splitlines() if line.strip())


def _judge_text(rule: str, text: str) -> tuple[bool, str] | None:
    """Rules about the text; None for other rules."""
    words = rule.split()
    if words[0] in ("forbid", "use"):
        there = re.search(rf"\b{re.escape(words[1])}\b", without_comments(text)) is not None
        return there == (words[0] == "use"), f"{words[1]} is {'' if there else 'not '}there"
    found = _RULE.fullmatch(rule)
    if found and found["name"] == "lines":
        count = _code_lines(text)
        return _holds(found, count), f"{count} lines of code"
    return None


def _holds(found: re.Match[str], value: float) -> bool:
    return _COMPARISONS[found["compare"]](value, float(found["number"]))


def _judge(rule: str, text: str, verdict: Verdict) -> tuple[bool, str]:
    """Whether a rule holds, and what was found."""
    if rule == "compiles":
        return True, ""
    if rule == "right":
        return verdict.right, "" if verdict.right else verdict.sums()
    if rule == "no races":
        looked = bool(verdict.looked) and not any(
            f.case.numbers == "races" for f in verdict.failures
        )
        return looked and not verdict.races, verdict.accesses().partition("\n")[0]
    if not verdict:  # a kernel that does nothing has no conflicts
        return False, "counts only for a kernel that is right and does not race"
    judged = _judge_text(rule, text)
    if judged is not None:
        return judged
    found, compared = _RULE.fullmatch(rule), verdict.comparison
    if compared is None or found is None:
        return False, f"not counted: {verdict.not_counted}"
    value = float(compared.own.counters[found["name"]])
    itemsize = dtypes.named(verdict.dtypes[0]).itemsize
    value /= {
        "per block": compared.blocks,
        "per element": ladder.N,
        "times the least": ladder.N * itemsize / 32,
    }.get(found["unit"], 1)
    shown = f"{value:,.0f}" if value.is_integer() else f"{value:,.2f}"
    return _holds(found, value), f"it is {shown} {found['unit'] or ''}".rstrip()


def grade(
    kernel_or_text: Kernel | str | os.PathLike[str],
    spec: str | os.PathLike[str] | Mapping[str, Any],
    *,
    seed: int = 0,
) -> Grade:
    """Give points to a kernel, by a spec that says what must hold.

    Counts are not times, so a kernel gets the same points on every machine. Rules other than
    ``"right"``, ``"no races"`` and ``"compiles"`` give points only to a kernel that is right and
    does not race.

    Parameters
    ----------
    kernel_or_text
        A `Kernel`, or what `kernel` takes.
    spec
        The path of a TOML file, or the same as a mapping: ``title``, ``dtypes`` to try, and a list
        ``require`` of rules with ``rule`` and ``points``; ``says`` is shown where a rule does not
        hold. A rule is ``"right"``, ``"no races"``, ``"compiles"``, ``"lines <= 40"``, ``"forbid
        NAME"``, ``"use NAME"``, or a counter of `explain` for 65,536 elements in blocks of 256, as
        in ``"shared_load_conflicts == 0"``, ``"block_barriers <= 2 per block"`` or
        ``"global_load_sectors <= 1.01 times the least"``.
    seed
        Draws some of the sizes, as in `check`: students do not know those of another seed.

    Returns
    -------
    Grade
        The points, and for each rule why it does not hold.

    Raises
    ------
    ValueError
        The spec has something that no spec has; the message says what there is.

    Examples
    --------
    >>> import gpureduce
    >>> spec = {
    ...     "title": "No conflicts",
    ...     "require": [
    ...         {"rule": "right", "points": 2},
    ...         {"rule": "shared_load_conflicts == 0", "points": 3},
    ...     ],
    ... }
    >>> print(gpureduce.grade(gpureduce.source("interleaved_idx").text, spec))
    No conflicts: 2 of 5 points
    <BLANKLINE>
    points  rule
    ------  --------------------------  ------------
    2 of 2  right
    0 of 3  shared_load_conflicts == 0  it is 17,990
    """
    wanted = checked(spec)
    try:
        chosen = kernel_or_text if isinstance(kernel_or_text, Kernel) else kernel(kernel_or_text)
        names = list(wanted.dtypes) if wanted.dtypes else None
        verdict = check(chosen, names, seed=seed, device="emulator")
    except (KernelError, TypeError) as error:
        why = str(error)
        rows = [Row(rule, points, False, why) for rule, points, _ in wanted.rules]
        return Grade(wanted.title, tuple(rows), None)
    rows = []
    for rule, points, says in wanted.rules:
        holds, why = _judge(rule, chosen.text, verdict)
        judged = bool(verdict) or rule in ("right", "no races")
        rows.append(Row(rule, points, holds, "" if holds else (judged and says) or why))
    return Grade(wanted.title, tuple(rows), verdict)
