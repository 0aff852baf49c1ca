"""The findings of a check, as data and as text; verdict_html.py shows them in a notebook."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpureduce.emulator.race import ATOMIC, ONE_WRITER
from gpureduce.emulator.races import Races
from gpureduce.kernels import advice, condition_text, verdict_html
from gpureduce.kernels.check_on_card import CardResult
from gpureduce.kernels.conditions import Condition, Domain
from gpureduce.kernels.ladder import Comparison
from gpureduce.kernels.trials import Failure
from gpureduce.text import table, visible

_WIDTH = 80
_NONE, _ANYWHERE = Condition(), Domain()
_LINES = 12  # of what the kernel printed


@dataclass(frozen=True)
class Verdict:
    """The findings of `check`; true if the kernel is right and nothing races.

    Attributes
    ----------
    name, file, options
        The kernel's name, its file in messages, and how it was launched.
    dtypes
        The dtypes that were tried.
    tried
        How many sums were computed.
    failures
        The smallest wrong sum or fault for each dtype; empty if all were right.
    looked
        The sizes, blocks and grids for which every access was looked at.
    races
        What the race detector found first, as of `gpureduce.races`; None if it found nothing.
    comparison
        The counts beside the ladder's; None if there are none, and `not_counted` says why.
    card
        What was found on a card (`check_on_card.CardResult`); None if there was none to try.
    hint
        A rung to look at next, and why; None without a hint.
    condition, reasons, excluded
        The weakest condition under which the kernel is right, where there is one and it is not
        right everywhere; for its parts, ``"blocks"`` and ``"sizes"``, a failure that shows why; and
        blocks for which it is wrong.
    assumed
        The condition that `check` was told to assume.
    domain
        Where the kernel was tried.
    takes_n
        Whether it has a parameter for the number of elements.
    other
        What it computes instead of a sum: ``"maximum"``, ``"minimum"``, ``"product"``.
    obsolete
        Calls of functions that CUDA 9 has replaced, in sentences.
    remarks
        What is no fault, but worth a look: reads of shared memory that nobody has written.
    printed
        What the kernel printed, up to a limit; `printed_bytes` counts all of it.
    advises
        Whether it says what would mend the kernel.
    compile_s, seconds
        The time of the compiler, and of the whole check.

    Examples
    --------
    >>> import gpureduce
    >>> verdict = gpureduce.check(gpureduce.source("missing_barrier").text)
    >>> verdict.right, verdict.races.races[0].missing
    (False, '__syncthreads()')
    """

    name: str
    file: str
    options: dict[str, str]
    dtypes: tuple[str, ...]
    tried: int
    failures: tuple[Failure, ...]
    looked: tuple[tuple[int, int, int], ...]
    races: Races | None
    comparison: Comparison | None
    not_counted: str = ""
    card: CardResult | None = None
    hint: tuple[str, str] | None = None
    printed: str = ""
    printed_bytes: int = 0
    compile_s: float = 0.0
    seconds: float = 0.0
    condition: Condition | None = None
    reasons: Mapping[str, Failure] = field(default_factory=dict)
    excluded: tuple[int, ...] = ()
    assumed: Condition = _NONE
    domain: Domain = _ANYWHERE
    takes_n: bool = True
    other: str = ""
    obsolete: str = ""
    remarks: tuple[str, ...] = ()
    advises: bool = True
    code: str = field(default="", repr=False)

    @property
    def right(self) -> bool:
        """Whether all sums came out right, where the kernel is to be right."""
        if self.condition is not None:
            return self.assumed.within(self.domain.condition).implies(self.condition)
        races = self.races
        fails = races is not None and bool(races.wrong or races.faults)
        return not self.failures and not fails

    def __bool__(self) -> bool:
        races = self.races if self.condition is None else None
        return self.right and not races and not self.obsolete

    def __repr__(self) -> str:
        return f"<Verdict {self.headline}>"

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        if self.other and self.options.get("operation") == "cumsum":
            return f"{self.name}: makes {self.other}"
        if self.other:
            return f"{self.name}: computes the {self.other}, not the sum; gpureduce judges sums"
        then = (
            f"does not compile since CUDA 9: {self.obsolete}; with that " if self.obsolete else ""
        )
        if self.condition is not None:
            where = self.condition.sentence(self.domain, self.takes_n)
            return f"{self.name}: {then}right {where}"
        flat = " in launches of one dimension, the only ones tried" * bool(self._zero)
        found = [] if self.right else [f"wrong{flat}"]
        if any(failure.ended for failure in self.failures):
            found = ["gave no result"]
        if self.races and self.races.races:
            found.append("it races")
        if self.races and self.races.barriers:
            found.append("part of a block misses a barrier")
        where = self.domain.condition.sentence(self.domain, self.takes_n)
        well = "it is right" if self.obsolete else "nothing wrong found"
        fault = next((f.fault for f in self.failures if f.fault.startswith("line ")), "")
        if found and fault:
            also = "".join(f"; also, {what}" for what in found[1:])
            return f"{self.name}: {then}{found[0]}: {fault.splitlines()[0]}{also}"
        said = ", and ".join(found) if found else f"{well} {where}".rstrip()
        return f"{self.name}: {then}{said}{self._cause()}"

    def _cause(self) -> str:
        """The line of a race or of a split barrier, and what mends it."""
        for race in self.races.races if self.races and self.advises else ():
            if race.missing in (ATOMIC, ONE_WRITER):
                return f": line {race.sides[1].place.line}: {race.remedy}"
        said = self._advice()
        return f": {said[0][0].lower()}{said[0][1:-1]}" if said else ""

    def sums(self) -> str:
        """Part 1: right or wrong."""
        if self.condition is not None:
            said = condition_text.sentences(
                self.condition, self.reasons, self.excluded, self.code, self.domain
            )
            option = f"gpureduce check --assume '{self.condition}' accepts it."
            options = [option] if self.advises else []
            if not self.advises:
                said = [f"Right only {self.condition.sentence(self.domain, self.takes_n)}."]
            return "\n".join(map(_wrapped, [*said, *self._fixed(), *options, *self._remarks()]))
        if not self.failures:
            if self.right:
                return self._all_right()
            return "The sum came out wrong in the runs below."
        lines = []
        for failure in self.failures:
            where = f"{failure.case}" if failure.case.block else "Before the first sum"
            how = "No result" if failure.ended else "Wrong"
            where += ", in the second launch, over the block sums" if failure.again else ""
            lines.append(f"{how} for {where}:" if failure.case.block else f"{where}:")
            if failure.fault:
                lines.append(_wrapped(failure.fault, "  "))
            else:
                lines.append(f"  {failure.what} is {failure.got}, not {failure.expected}")
            if why := failure.elements or failure.narrow or self._hang(failure):
                lines.append(_wrapped(why, "  "))
            tree = condition_text.odd_steps(failure, self.code, self.domain.per_thread)
            if tree and self.advises:
                lines.append(_wrapped(f"{tree}.", "  "))
            if self.advises and (same := advice.of_one_memory(self.code)):
                lines.append(_wrapped(same, "  "))
        lines += [f"Launches had one dimension: {self._zero} was 0."] if self._zero else []
        return "\n".join(lines)

    @property
    def _zero(self) -> str:
        """An index that is 0 in launches of one dimension, if the code uses one; else empty."""
        found = re.search(r"\b(?:threadIdx|blockIdx)\s*\.\s*[yz]\b", self.code)
        return found[0] if found else ""

    def _hang(self, failure: Failure) -> str:
        is_long = self.advises and "took more than" in failure.fault
        if is_long and failure.case.numbers == "nan":
            return "nan never equals itself: compare bits, as of __float_as_int"
        return advice.of_hang(self.code) if is_long else ""

    def _all_right(self) -> str:
        said = [f"All {self.tried} sums came out right ({', '.join(self.dtypes)})."]
        if self.takes_n and self.domain.condition != _NONE:
            where = self.domain.condition.sentence(self.domain, self.takes_n)
            said += [f"It was tried only {where}."] if where else []
        said += self._fixed()
        return "\n".join(map(_wrapped, [*said, *self._remarks()]))

    def _fixed(self) -> list[str]:
        """The sizes, if only some were tried."""
        sizes, per_thread = ", ".join(map(str, self.domain.sizes)), self.domain.per_thread
        if sizes:
            return [f"It was tried with n = {sizes} alone."]
        if not self.takes_n:
            each = f"{per_thread} element{'s' * (per_thread > 1)}"
            return [f"It takes no n, and was tried with {each} for each thread."]
        if self.domain.within:
            return ["It has no parameter for the blocks' sums: n was at most what one block has."]
        multiple = self.domain.multiple
        said = f"Its n counts vectors: it was tried with multiples of {multiple} elements."
        return [said] if multiple > 1 else []

    def _remarks(self) -> list[str]:
        return [f"{remark[0].upper()}{remark[1:]}." for remark in self.remarks]

    def accesses(self, every: bool = False) -> str:
        """Part 2: races and barriers; those that the condition allows only if `every` is true."""
        if self.condition is not None and not every:
            return ""
        if self.races is not None and not self.advises:
            return self.races.places()
        if self.races is not None:
            return "\n\n".join([str(self.races), *map(_wrapped, self._advice())])
        if not self.looked and self.right:
            return "Not looked for: each access is recorded, and these sizes are too large."
        if not self.looked:
            return "Not looked for, since the kernel did not get that far."
        blocks = sorted({block for _, block, _ in self.looked})
        return f"No race and no split barrier, for blocks of {', '.join(map(str, blocks))}."

    def _advice(self) -> list[str]:
        """What mends the barriers and races that were found, each once."""
        if self.races is None or not self.advises:
            return []
        said = [advice.of_barrier(self.code, barrier) for barrier in self.races.barriers]
        said += [advice.of_race(self.code, race) for race in self.races.races]
        return [f"{one[0].upper()}{one[1:]}." for one in dict.fromkeys(said) if one]

    def counts(self) -> str:
        """Part 3: the counts beside the nearest rung's, and the place on the ladder."""
        compared = self.comparison
        if compared is None:
            why = f": {self.not_counted.splitlines()[0]}" if self.not_counted else ""
            return _wrapped(f"Not counted{why or ', since the kernel did not get that far.'}")
        lines = [_wrapped(compared.sentence)]
        nearest, own = compared.nearest, compared.own
        rows = [
            [name, f"{nearest.costs[name]:,}", f"{count:,}"]
            for name, count in own.costs.items() if count or nearest.costs[name]
        ]  # fmt: skip
        rows.append(["in all", f"{nearest.work:,}", f"{own.work:,}"])
        head = ["for 65,536 elements", nearest.name, self.name]
        lines += ["", table(head, rows, right=(1, 2))]
        lines += ["", _wrapped(self.place())]
        return "\n".join(lines)

    def place(self) -> str:
        """The place on the ladder, by the costs that times follow."""
        compared = self.comparison
        if compared is None:
            return ""
        names = [rung.name for rung in compared.rungs]
        at = names.index(compared.own.name)
        around = [f"{self.name} (yours, {compared.own.work:,})" if name == compared.own.name
                  else f"{name} ({rung.work:,})"
                  for name, rung in zip(names, compared.rungs, strict=True)]  # fmt: skip
        shown = around[max(0, at - 2) : at + 3]
        return (
            f"By these costs, which the rungs' times follow, {compared.place - 1} of "
            f"{len(names)} kernels cost more. Its neighbours: {', '.join(shown)}. "
            "Counts are not times."
        )

    def next_step(self) -> str:
        """Part 4: the hint; empty without one."""
        if self.hint is None:
            return ""
        rung, why = self.hint
        return _wrapped(f"{why[0].upper()}{why[1:]}. See {rung}.")

    def output(self) -> str:
        """The first lines that the kernel printed."""
        lines = self.printed.splitlines()
        if len(lines) > _LINES:
            lines = [*lines[:_LINES], f"... ({self.printed_bytes:,} bytes in all)"]
        return "\n".join(line[:200] for line in lines)

    def parts(self, every: bool = False) -> list[tuple[str, str]]:
        """The parts of the verdict, each with its title."""
        parts = [
            ("Right or wrong", self.sums()),
            ("Races and barriers", self.accesses(every)),
            ("Counts", self.counts()),
            ("On the card", _wrapped(self.card.sentences(self.name)) if self.card else ""),
            ("What to try next", self.next_step()),
            ("The kernel printed", self.output()),
        ]
        return [(title, text) for title, text in parts if text]

    def __str__(self) -> str:
        return self.report()

    def report(self, every: bool = False) -> str:
        """The verdict as text; with `every`, also the races that its condition allows."""
        parts = [f"{title}\n{textwrap.indent(text, '  ')}" for title, text in self.parts(every)]
        return visible("\n\n".join([_wrapped(self.headline), *parts]))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # what IPython shows where there is no HTML

    def _repr_html_(self) -> str:
        return verdict_html.fragment(
            self.headline, bool(self), self.condition is not None, self._shown()
        )

    def _shown(self) -> Iterator[tuple[str, str]]:
        """The parts as HTML."""
        for title, text in self.parts():
            if title == "Races and barriers" and self.races is not None and self.advises:
                advised = "\n".join(self._advice())
                yield title, verdict_html.picture_of_races(self.races) + verdict_html.text(advised)
            elif title == "Counts" and self.comparison is not None:
                picture = verdict_html.picture_of_costs(self.comparison, self.name)
                yield title, picture + verdict_html.text(text)
            else:
                yield title, verdict_html.text(text)

    def to_html(self) -> str:
        """The verdict as a page for a browser, light or dark."""
        return page([self])

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        compared = self.comparison
        return {
            "name": self.name,
            "file": self.file,
            "passes": bool(self),
            "right": self.right,
            "headline": self.headline,
            "condition": None if self.condition is None else str(self.condition),
            "other": self.other,
            "obsolete": self.obsolete,
            "remarks": list(self.remarks),
            "options": self.options,
            "dtypes": list(self.dtypes),
            "tried": self.tried,
            "failures": [
                {
                    **dataclasses.asdict(failure.case),
                    "got": failure.got,
                    "expected": failure.expected,
                    "fault": failure.fault,
                    "counted": [list(row) for row in failure.counted],
                }
                for failure in self.failures
            ],
            "looked": [list(row) for row in self.looked],
            "races": self.races.as_dict() if self.races is not None else None,
            "counters": compared.own.counters if compared else None,
            "costs": compared.own.costs if compared else None,
            "nearest": compared.nearest.name if compared else None,
            "nearest_counters": compared.nearest.counters if compared else None,
            "place": compared.place if compared else None,
            "card": self.card.as_dict() if self.card else None,
            "hint": list(self.hint) if self.hint else None,
            "printed": self.printed,
            "compile_s": self.compile_s,
            "seconds": self.seconds,
        }

    def to_json(self) -> str:
        """The verdict as JSON."""
        return json.dumps(self.as_dict(), indent=1, default=str)


def page(verdicts: Sequence[Verdict]) -> str:
    """A page for a browser with these verdicts."""
    return verdict_html.whole_page(
        (verdict.headline for verdict in verdicts), (v._repr_html_() for v in verdicts)
    )


def _wrapped(words: str, indent: str = "") -> str:
    return "\n".join(
        textwrap.fill(line, _WIDTH - 2, initial_indent=indent, subsequent_indent=indent,
                      break_on_hyphens=False, break_long_words=False)
        for line in words.splitlines()
    )  # fmt: skip
