"""`gpureduce.grade`: points for a kernel, by a spec that says what must hold."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import os
import random
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpureduce.core import dtypes
from gpureduce.core.checks import named_keywords, whole
from gpureduce.errors import CudaError
from gpureduce.kernels import process, verdict_html
from gpureduce.kernels.check import check, subjects_of
from gpureduce.kernels.conditions import KEYS, Domain, parsed
from gpureduce.kernels.kernel import Kernel, kernel
from gpureduce.kernels.options import options_of, traits_of
from gpureduce.kernels.source_text import COMPARISONS, KernelError, without_comments
from gpureduce.kernels.spec import ASSUMING, RULE, Spec, checked
from gpureduce.kernels.trials import Failure
from gpureduce.kernels.verdict import Verdict
from gpureduce.kernels.worker import Job
from gpureduce.text import score, table, visible

_BLOCK = 256  # of the first count
_DRAWN_BLOCKS = (192, 224, 320, 384, 448, 512)  # of the second one


@dataclass(frozen=True)
class Row:
    """One rule of a spec: whether it holds, the points, and why it does not hold.

    `state` is ``"holds"``, ``"fails"``, ``"given"`` for a rule that the start file meets and that
    earns no points yet, or ``"not judged"``; `Grade.notes` says why.
    """

    rule: str
    points: float
    state: str
    why: str = ""

    @property
    def holds(self) -> bool:
        """Whether the kernel meets the rule."""
        return self.state in ("holds", "given")

    @property
    def got(self) -> float:
        """The points that the kernel gets for it."""
        return self.points if self.state == "holds" else 0.0

    @property
    def said(self) -> str:
        """What is said beside the rule."""
        words = {"given": "met by the start file, too", "not judged": "not judged"}
        return words.get(self.state, self.why)

    @property
    def is_short(self) -> bool:
        """Whether the reason fits on a line of a table."""
        return "\n" not in self.why and len(self.why) <= 100


_GIVEN = (
    "The start file meets some rules, too. They earn points once the kernel meets a rule that the "
    "start file does not."
)
_UNJUDGED = "Rules that are not judged are for a kernel that is right and does not race."


@dataclass(frozen=True, repr=False)
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
    notes
        What concerns several rules: why a kernel does not compile, why rules are not judged.

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
    notes: tuple[str, ...] = ()

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
            [score(row.got, row.points), row.rule, row.said if row.is_short else ""]
            for row in self.rows
        ]
        parts = [self.head, table(["points", "rule", ""], rows), *self.notes]
        for why in dict.fromkeys(row.why for row in self.rows if not row.is_short):
            rules = ", ".join(row.rule for row in self.rows if row.why == why)
            parts.append(f"{rules}:\n{textwrap.indent(why, '  ')}")
        return "\n\n".join(parts)

    __repr__ = __str__

    @property
    def head(self) -> str:
        """The title and the points."""
        return f"{self.title}: {score(self.points, self.most)} points"

    def _repr_html_(self) -> str:
        lines = [
            f"<tr><td>{score(row.got, row.points)}</td><td><code>{html.escape(row.rule)}</code>"
            f'</td><td style="text-align:left">{_reason(row)}</td></tr>'
            for row in self.rows
        ]
        lines.insert(0, "<table><tr><th>points</th><th>rule</th><th></th></tr>")
        below = "".join(map(verdict_html.text, self.notes))
        return "\n".join([f"<b>{html.escape(self.head)}</b>", *lines, f"</table>{below}"])

    def as_dict(self) -> dict[str, Any]:
        """The grade as plain values."""
        return {
            "title": self.title,
            "points": self.points,
            "most": self.most,
            "rules": [{**vars(row), "holds": row.holds, "got": row.got} for row in self.rows],
            "notes": list(self.notes),
            "verdict": self.verdict.as_dict() if self.verdict is not None else None,
        }

    def to_json(self) -> str:
        """The grade as JSON."""
        return json.dumps(self.as_dict(), indent=1, default=str)

    def gradescope(self) -> dict[str, Any]:
        """The grade as Gradescope's autograder reads it, from results.json."""
        return {
            "output": "\n\n".join(self.notes),
            "tests": [
                {
                    "name": row.rule,
                    "score": row.got,
                    "max_score": row.points,
                    "status": "passed" if row.state == "holds" else "failed",
                    "output": row.said,
                }
                for row in self.rows
            ],
        }


def _reason(row: Row) -> str:
    """Why a rule does not hold, as HTML: a long reason opens at a click."""
    if row.is_short:
        return verdict_html.text(row.said)
    first, _, more = row.why.partition("\n")
    summary = f"<summary>{html.escape(first)}{' …' * bool(more)}</summary>"
    return f"<details>{summary}{verdict_html.text(more)}</details>"


@dataclass(frozen=True)
class _Count:
    """What was counted for one size and block, and whether its sum is wrong."""

    n: int
    block: int
    counters: dict[str, int]
    blocks: int
    wrong: Failure | None

    def value(self, found: re.Match[str], itemsize: int) -> float:
        """The counter of a rule, in the rule's unit."""
        return self.counters[found["name"]] / {
            "per block": self.blocks,
            "per element": self.n,
            "times the least": math.ceil(self.n * itemsize / 32),
        }.get(found["unit"], 1)


@dataclass(frozen=True)
class _Counts:
    """The counts for the size and block that are known, and for those that the seed draws."""

    cases: tuple[_Count, ...] = ()
    why_not: str = ""

    @property
    def wrong(self) -> str:
        """The first wrong sum, in a sentence."""
        for count in self.cases:
            if count.wrong is not None:
                said = f"the sum is {count.wrong.got}, not {count.wrong.expected}"
                return f"Wrong for {count.wrong.case}:\n  {count.wrong.fault or said}"
        return ""


def _counted(chosen: Kernel, name: str, where: Domain, n: int, seed: int) -> _Counts:
    """Counts the kernel for n elements in blocks of 256, and for a size and a block of the seed.

    The second count is for a kernel that is good for the first alone. Both are launches for which
    the kernel is to be right.
    """
    draw = random.Random(seed)
    blocks = where.condition.blocks
    first = _BLOCK if _BLOCK in blocks else blocks[-1]
    second = draw.choice([b for b in _DRAWN_BLOCKS if b in blocks] or blocks)
    cases = [(n, first), ((n + draw.randrange(n // 4 + 1)) | 1, second)]
    if where.sizes:
        fitted = [(where.fitted(block, size), block) for size, block in cases]
        cases = [(size, block) for size, block in fitted if size is not None]
        if not cases:
            return _Counts(why_not="no block of the spec takes one of its sizes")
    elif where.condition.full:
        cases = [
            (-(-size // (b * where.per_thread)) * b * where.per_thread, b) for size, b in cases
        ]
    if where.condition.full:
        chosen = dataclasses.replace(chosen, options=chosen.options | {"sizes": "full_blocks"})
    subjects, _, pairs = subjects_of(chosen, [name])
    order = "lockstep" if where.condition.lockstep else "forward"
    limits = chosen.limits  # more time only where other processes take the processors
    job = Job("gpureduce.kernels.jobs", "count_cases", chosen.loaded(pairs),
              (subjects[0], cases, order), {}, limits.times(4), limits.seconds)  # fmt: skip
    try:
        found = process.result_of(process.run(job), chosen.name)
    except (CudaError, process.KernelEnded, ValueError) as error:
        return _Counts(why_not=str(error))
    return _Counts(tuple(_Count(*case, *row) for case, row in zip(cases, found, strict=True)))


def _judge_text(rule: str, text: str) -> tuple[bool, str] | None:
    """Rules about the text; None for other rules."""
    words = rule.split()
    if words[0] in ("forbid", "use"):
        there = re.search(rf"\b{re.escape(words[1])}\b", without_comments(text)) is not None
        return there == (words[0] == "use"), f"{words[1]} is {'' if there else 'not '}there"
    found = RULE.fullmatch(rule)
    if found and found["name"] == "lines":
        count = sum(1 for line in without_comments(text).splitlines() if line.strip())
        return _holds(found, count), f"{count} lines of code"
    return None


def _holds(found: re.Match[str], value: float) -> bool:
    return COMPARISONS[found["compare"]](value, float(found["number"]))


def _judge_count(rule: str, counts: _Counts, itemsize: int) -> tuple[bool, str]:
    """Rules about counters: they hold for both counts."""
    found = RULE.fullmatch(rule)
    if counts.why_not or found is None:
        return False, f"not counted: {counts.why_not}"
    for count in counts.cases:
        value = count.value(found, itemsize)
        if not _holds(found, value):
            shown = f"{value:,.0f}" if value.is_integer() else f"{value:,.3g}"
            where = "" if count.block == _BLOCK else f" (n = {count.n:,}, block = {count.block})"
            return False, f"it is {shown} {found['unit'] or ''}".rstrip() + where
    return True, ""


def _judge(rule: str, text: str, verdict: Verdict, counts: _Counts) -> tuple[bool, str] | None:
    """Whether a rule holds, and what was found; None for a rule that is not judged."""
    if rule == "compiles":
        return True, ""
    if rule.startswith(ASSUMING):
        verdict = dataclasses.replace(verdict, assumed=parsed(rule.removeprefix(ASSUMING)))
    if rule.startswith("right"):
        return verdict.right and not counts.wrong, counts.wrong or verdict.sums()
    if rule == "no races":
        looked = bool(verdict.looked) and not any(
            f.case.numbers == "races" for f in verdict.failures
        )
        holds = looked and (bool(verdict) or not verdict.races)
        return holds, verdict.accesses(every=True)
    if not verdict or counts.wrong:  # a kernel that does nothing has no conflicts
        return None
    judged = _judge_text(rule, text)
    if judged is not None:
        return judged
    return _judge_count(rule, counts, dtypes.named(verdict.dtypes[0]).itemsize)


def _launched(chosen: Kernel, wanted: Spec) -> tuple[Kernel, str]:
    """The kernel with the launch and the sizes of the spec alone, and what that changes."""
    own = dict.fromkeys(KEYS, "any") | options_of("", chosen.signature, {})
    launch, before = {key: own[key] for key in KEYS} | wanted.launch, own | chosen.options
    options = before | launch
    changed = [key for key, value in launch.items() if before.get(key, "no") not in (value, "any")]
    fixed = ", ".join(f"{key}={launch[key]}" for key in changed)
    shown = ", ".join(f"{key}={before.get(key, 'no')}" for key in changed)
    traits = traits_of(chosen.signature, options)
    said = f"The spec launches it with {fixed}; its text shows {shown}." if changed else ""
    return dataclasses.replace(chosen, options=options, traits=traits), said


def ungraded(wanted: Spec, why: str) -> Grade:
    """The grade of a kernel that cannot be judged."""
    rows = (Row(one.rule, one.points, "fails" if one.rule == "compiles" else "not judged")
            for one in wanted.rules)  # fmt: skip
    return Grade(wanted.title, tuple(rows), None, (why,))


@named_keywords
def grade(
    kernel_or_text: Kernel | str | os.PathLike[str],
    spec: str | os.PathLike[str] | Mapping[str, Any],
    *,
    seed: int = 0,
    name: str | None = None,
) -> Grade:
    """Give points to a kernel, by a spec that says what must hold.

    Counts are not times, so a kernel gets the same points on every machine. Rules other than
    ``"right"``, ``"right assuming ..."``, ``"no races"`` and ``"compiles"`` are judged only for a
    kernel that is right and does not race.

    Parameters
    ----------
    kernel_or_text
        A `Kernel`, or what `kernel` takes.
    spec
        The path of a TOML file, or the same as a mapping: ``title``, ``kernel`` with the name of
        the kernel, ``dtypes`` to try (by default ``"own"``, the kernel's own), ``launch`` with
        options of `kernel` that are fixed, ``blocks`` and ``sizes`` for which the kernel is to be
        right, as in `kernel`, ``assume`` with a condition as in `check`, ``hints`` (False leaves
        out what would mend the kernel), and a list ``require`` of rules with ``rule`` and
        ``points`` (1 by default). ``says`` is shown where a rule does not hold. A rule with
        ``given = true`` is one that the start file meets: it earns points only beside one that is
        not given. A rule is
        ``"right"``, ``"right assuming powers_of_two"``, ``"no races"``, ``"compiles"``, ``"lines <=
        40"``, ``"forbid NAME"``, ``"use NAME"``, or a counter of `explain` for ``n`` elements
        (65,536 by default) in blocks of 256, and for a size and a block that the seed draws, as in
        ``"shared_load_conflicts == 0"``, ``"block_barriers <= 2 per block"`` or
        ``"global_load_sectors <= 1.01 times the least"``.
        One more counter, ``busiest_warp_requests``, is for the warp with the most global loads and
        atomics.
    seed
        Draws some of the sizes, as in `check`, and those of the second count: students do not know
        those of another seed.
    name
        The kernel's name, if there are several in the text.

    Returns
    -------
    Grade
        The points, and for each rule why it does not hold.

    Raises
    ------
    ValueError
        The spec has something that no spec has; the message says what there is.
    TypeError
        `seed` is not a whole number.

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
    wanted, seed = checked(spec), whole("seed", seed, 0, 2**64 - 1)
    try:
        given, name = kernel_or_text, name or wanted.kernel or None
        operation = wanted.launch.get("operation")
        chosen = given if isinstance(given, Kernel) else kernel(given, name, operation=operation)
        chosen, launched = _launched(chosen, wanted)
        names = list(wanted.dtypes) if wanted.dtypes else None
        if lacking := ", ".join(name for name in names or () if name not in chosen.dtypes):
            raise KernelError(
                f"{chosen.name} takes {', '.join(chosen.dtypes)}; the task needs {lacking}, too: "
                "begin with template <typename In, typename Acc>, and take In in, Acc *out"
            )
        is_full = "sizes" in wanted.launch or parsed(wanted.assume).full
        if not (is_full or chosen.signature.takes_n):
            raise KernelError(f"{chosen.name} needs a parameter for the number of elements")
        verdict = check(
            chosen, names, hint=wanted.hints, seed=seed, device="emulator", assume=wanted.assume
        )
    except (KernelError, TypeError, process.KernelEnded) as error:
        return ungraded(wanted, visible(str(error)))
    verdict = dataclasses.replace(verdict, advises=wanted.hints)
    counts = _Counts()
    if verdict:
        where = verdict.domain.under(verdict.condition)
        counts = _counted(chosen, verdict.dtypes[0], where, wanted.n, seed)
    both = [(one, _judge(one.rule, chosen.text, verdict, counts)) for one in wanted.rules]
    earns = any(judged and judged[0] and not one.given for one, judged in both)
    rows, whys = [], set()
    for one, judged in both:
        holds, why = judged or (False, "")
        if one.rule == "right" and launched:
            why = f"{why}\n{launched}"
        if not holds and one.rule.startswith("right"):
            why = "for the same reason" if why in whys else why
            whys |= {why, why.removesuffix(f"\n{launched}")}
        state = "not judged" if judged is None else "fails"
        if holds:
            state = "given" if one.given and not earns else "holds"
        why = one.says or visible(why) if state == "fails" else ""
        rows.append(Row(one.rule, one.points, state, why))
    notes = {"given": _GIVEN, "not judged": _UNJUDGED}
    said = (note for state, note in notes.items() if any(row.state == state for row in rows))
    return Grade(wanted.title, tuple(rows), verdict, tuple(said))
