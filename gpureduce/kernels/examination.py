"""Examines a kernel, in the process for kernels: its sums, races, and the condition it needs."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpureduce import _emulator_traced, _host
from gpureduce.core import dtypes
from gpureduce.core.registry import Strategy
from gpureduce.emulator import races
from gpureduce.emulator.race import ATOMIC, ONE_WRITER, Race, SplitBarrier
from gpureduce.emulator.races import Races
from gpureduce.errors import CudaError
from gpureduce.kernels import (
    advice,
    conditions,
    faults,
    ladder,
    other_operations,
    trials,
    variables,
)  # fmt: skip
from gpureduce.kernels.conditions import Condition, Domain, Try
from gpureduce.kernels.trials import Case, Failure, Subject
from gpureduce.text import ranges

Tell = Callable[[str, object], None]
_ORDERS = ("forward", "random 1")
_ACTIVE = re.compile(r"\b(?:__activemask|coalesced_threads)\b")  # the lanes that run together
_RACE_BLOCKS = (256, 96, 64, 128, 416, 512, 1024)
_TILE_BYTES = 32768  # of bulk_copy.cu
_MOST_LOOKED_AT = 1 << 19  # elements: each access is recorded
_MOST_LOOK_S = 1.5  # a larger launch is left out if looking at it would take longer
_FRESH = 200  # cases that a condition must pass, and that were not used to find it
_TRIED_AGAIN = 40  # failing cases, from the state before the first launch
_FRESH_BLOCKS = (32, 192, 320, 768)  # in which races are looked for, besides the usual ones


@dataclass
class _Found:
    """What is known of a kernel."""

    subjects: list[Subject]
    results: Sequence[str]
    where: Domain
    tell: Tell
    text: str
    tries: list[Try] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    looked: list[Races] = field(default_factory=list)
    excused: bool = True  # whether a condition may exclude all races of `looked`

    @property
    def races(self) -> Races | None:
        """The first findings of the race detector."""
        return next((found for found in self.looked if found or found.wrong), None)

    def try_all(self, which: Callable[[Subject], Iterable[Case]], lockstep: bool) -> bool:
        """Runs cases of all subjects. Whether all came out right."""
        right = True
        for subject in self.subjects:
            for case, failure in trials.try_all(subject, which(subject), self.tell):
                right = right and failure is None
                rest = (case.grid, case.dtype, case.numbers)
                self.tries.append(Try(case.block, case.n, lockstep, failure is None, rest))
                self.failures += [failure] if failure else []
        return right

    def try_by_accesses(self) -> None:
        """Tries a few cases in place of others, in the emulator that sees each access."""
        self.subjects = [replace(one, traced=True) for one in self.subjects]
        self.tries, self.failures = [], []
        self.try_all(lambda subject: _by_accesses(subject, self.where), lockstep=False)

    def not_reset(self) -> Failure | None:
        """A sum that is right in a first launch, and wrong in the next one; None if none is."""
        why = advice.of_next_launch(self.text)
        failures = sorted(self.failures, key=lambda one: one.case.n) if why else []
        for failure in failures[:_TRIED_AGAIN]:
            subject = next(one for one in self.subjects if one.dtype == failure.case.dtype)
            self.tell("case", failure.case)
            variables.restore()
            if failure.fault or subject.wrong(failure.case):
                continue
            if again := subject.wrong(failure.case):
                said = again.fault or f"the second sum is {again.got}, not {again.expected}"
                return replace(again, fault=f"{why}\nthe first sum is right; {said}")
        return None

    def by_host(self) -> _Found:
        """The same kernel, where the host adds up its block sums: n fills its blocks then."""
        subjects = [one.by_host() for one in self.subjects]
        return _Found(subjects, self.results, self.where, self.tell, self.text)

    def examined(self, subject: Subject, case: Case, orders: Sequence[str], **how: Any) -> Races:
        """The findings of the race detector in one launch, by some orders of threads."""
        result = self.results[self.subjects.index(subject)]
        return races.examine(_emulator_traced, subject.strategy, case.n, subject.dtype,
                             (case.block, case.grid), orders, result, **how)  # fmt: skip

    def look(
        self, which: Iterable[tuple[int, int, int]], orders: tuple[str, ...], every: bool
    ) -> None:
        """Looks for races in these launches: in every one, or until the first finding."""
        subject = self.subjects[0]
        largest, took = 1, 0.0  # of the largest launch
        for n, block, grid in which:
            if took * (n / largest) ** 2 > _MOST_LOOK_S:
                continue
            start = time.process_time()
            case = Case(n, block, grid, " and ".join(orders), "races", subject.dtype)
            self.tell("case", case)
            try:
                found = self.examined(subject, case, orders, stops=True, reset=variables.restore)
            except MemoryError:  # of smaller launches all accesses were seen
                if self.looked:
                    return
                raise
            if n >= largest:
                largest, took = n, time.process_time() - start
            found = _as_in_samples(found)
            told = {o: faults.readable(trials.told(f), self.text) for o, f in found.faults.items()}
            self.looked.append(dataclasses.replace(found, faults=told))
            if not every and (found or found.wrong):
                return
            if every and not self.may_be_excused(self.looked[-1]):
                self.excused = False
                return

    def may_be_excused(self, looked: Races) -> bool:
        """Whether a condition may exclude the races of a launch.

        They are between the lanes of one warp, or the sum is wrong whatever comes first.
        """
        if any(race.missing in (ATOMIC, ONE_WRITER, "__syncthreads()") for race in looked.races):
            return False
        if not looked.races:  # a sum that is wrong in some orders lacks an atomic or a lock
            return len(looked.wrong | looked.faults) in (0, len(looked.schedules))
        if all(map(_relies_on_lockstep, looked.races)):
            return True
        if not looked.wrong and not looked.faults:
            return False
        self.tell("stage", "excused races")
        subject, orders = self.subjects[0], ("reverse", "random 1")
        case = Case(looked.n, looked.block, looked.grid or 0, "", "races", subject.dtype)
        found = self.examined(subject, case, orders, reset=variables.restore)
        return len(found.wrong | found.faults) == len(orders)


def _as_in_samples(found: Races) -> Races:
    """The same, but a read that only lacks the reader's fence is a remark.

    NVIDIA's guide and samples read the sums of other blocks so: after an atomic and a barrier.
    """
    fenced = [race for race in found.races
              if race.fenced and race.sides[0].place != race.sides[1].place]  # fmt: skip
    lines = {side.place.line for race in fenced for side in race.sides if side.kind == "read"}
    advice = "a __threadfence() after the atomic makes sure of it"
    said = (f"line {line}: reads what other blocks stored before a fence and an atomic; {advice}"
            for line in sorted(lines))  # fmt: skip
    return dataclasses.replace(
        found,
        races=tuple(race for race in found.races if race not in fenced),
        alike=(*found.alike, *said),
    )


def _relies_on_lockstep(race: Race) -> bool:
    """Whether a race is between volatile accesses of one warp, as code before Volta has them."""
    return race.missing == "__syncwarp()" and all(side.volatile for side in race.sides)


def _race_cases(subject: Subject, where: Domain) -> Iterator[tuple[int, int, int]]:
    """Sizes, blocks and grids: all steps of a tree, a ragged end, several blocks, one block."""
    traits, itemsize = subject.strategy.traits, dtypes.named(subject.dtype).itemsize
    if traits & _host.RING:
        yield 9 * _TILE_BYTES // itemsize + 7, 256, 1
        yield 20000, 256, 8
        return
    if traits & _host.FINISHES:  # if every thread races for the one sum, few threads are enough
        yield 135, 64, 0
    named = [block for block in where.named if block not in _RACE_BLOCKS]
    blocks = (*_RACE_BLOCKS, *named, 32)
    if not any(map(where.condition.allows_block, blocks)):
        blocks = where.condition.blocks
    for block in blocks:
        part = block * where.per_thread
        full = part if where.alone or where.within else 8 * part
        yield (
            full if where.condition.full else part - 5 if where.within else 8 * block + 7,
            block,
            0,
        )
    if traits & _host.MANY:
        for n in (20000, 20480):
            yield n, 256, 0
            if not traits & _host.ALONE:
                yield n, 256, 8


def _allowed(
    which: Iterable[tuple[int, int, int]], where: Domain
) -> Iterator[tuple[int, int, int]]:
    """These launches, with the nearest sizes that are allowed: each once."""
    fitted = ((where.fitted(block, n), block, grid) for n, block, grid in which)
    yield from dict.fromkeys((n, block, grid) for n, block, grid in fitted
                             if n is not None and n <= _MOST_LOOKED_AT)  # fmt: skip


def examine(
    strategy: Strategy,
    tell: Tell,
    subjects: Sequence[tuple[str, int, int, int]],
    results: Sequence[str],
    seed: int,
    where: Domain,
    text: str,
) -> bool:
    """Makes all parts of a check, and reports each when it is known."""
    made = [trials.subject_of(strategy, *one, text) for one in subjects]
    variables.save()
    where = _with_elements(made[0], where)
    tell("where", where)
    found = _Found(made, results, where, tell, text)
    right = found.try_all(lambda subject: trials.cases(subject, seed, where), lockstep=False)
    tell("tried", len(found.tries))
    tell("stage", "races")
    found.look(_allowed(_race_cases(made[0], where), where), _ORDERS, every=False)
    condition = None
    right = right and not any(one.wrong or one.faults for one in found.looked)
    if stale := found.not_reset():
        tell("failure", stale)
    elif not right or found.races:
        condition = _condition(found, seed)
        if not condition and (other := other_operations.recognized(made[0], where)):
            tell("other", other)
    if not condition and not stale:
        if not found.failures and any(one.faults for one in found.looked):
            found.try_by_accesses()
        _tell_failures(found)
    tell("looked", [(one.n, one.block, one.grid or 0) for one in found.looked])
    if found.races is not None:
        tell("races", found.races)
    there = where.under(condition)
    sound = [one for one in found.looked if not one.wrong and there.allows(one.block, one.n)]
    tell("remarks", tuple(_by_line(remark for one in sound for remark in one.remarks)))
    tell("stage", "counts")
    if strategy.kind == "scan":
        tell("no counts", "kernels of running sums have no place on the ladder of sums")
        return right
    by_host = strategy.finishes == ("host",) or (condition and condition.full)
    finish = None if not by_host or strategy.traits & _host.FINISHES else "host"
    block = (condition or where.condition).usual_block or ladder.BLOCK
    try:
        tell("counts", ladder.compare(strategy, results[0], made[0].dtype, finish, block))
    except (CudaError, ValueError) as error:
        tell("no counts", made[0].fault(error))
    return right


def first_right(
    strategy: Strategy,
    tell: Tell,
    subjects: Sequence[tuple[str, int, int, int]],
    rows: Sequence[tuple[Any, Domain]],
) -> int:
    """The first row with which a kernel is right where n fills its blocks; -1 if there is none."""
    for at, (loaded, where) in enumerate(rows):
        subject = trials.subject_of(loaded.strategy(), *subjects[0], "").by_host()
        dtype = subject.dtype
        for block in trials.tried_blocks(where):
            tell("elements", where.per_thread)
            part = block * where.per_thread
            tries = [Case(n, block, 0, order, "different", dtype)
                     for n in (part, 3 * part) for order in ("forward", "reverse")
                     if where.allows(block, n)]  # fmt: skip
            if not any(map(subject.wrong, tries)):
                return at
    return -1


def _by_line(remarks: Iterable[str]) -> list[str]:
    """The first remark on each line."""
    first: dict[str, str] = {}
    for remark in remarks:
        first.setdefault(remark.partition(":")[0], remark)
    return list(first.values())


def _with_elements(subject: Subject, where: Domain) -> Domain:
    """The domain with the elements per thread that a single block takes: they stand nowhere."""
    if not (where.alone and where.condition.full):
        return where
    for per_thread in (where.per_thread, 2, 1, 4, 8):
        found = replace(where, per_thread=per_thread)
        for block in trials.tried_blocks(found):
            case = Case(block * per_thread, block, 0, "forward", "different", subject.dtype)
            if subject.wrong(case) is None:
                return found
    return where


def _tell_failures(found: _Found) -> None:
    """The smallest failure of each dtype, and the findings of the race detector."""
    for subject in found.subjects:
        failures = [failure for failure in found.failures if failure.case.dtype == subject.dtype]
        if failures:
            smallest = trials.smallest(subject, failures, found.tell, found.where)
            found.tell("failure", _with_unwritten(found, subject, smallest))


def _with_unwritten(found: _Found, subject: Subject, failure: Failure) -> Failure:
    """A failure with the read of unwritten shared memory that may explain it."""
    if failure.fault or failure.counted:
        return failure
    seen = found.examined(subject, failure.case, (failure.case.order,))
    told = [faults.readable(trials.told(fault), found.text) for fault in seen.faults.values()]
    told += [_split(barrier) for barrier in seen.barriers]
    if failure.got == "nan" or not subject.is_float:  # an unwritten float is nan
        told += [str(read) for read in seen.unwritten]
    if failure.got == "nan" != failure.expected and not told:
        told = ["the sum is nan: a thread adds what nothing has stored: perhaps an element behind "
                "the last one, or the value of a lane that has left"]  # fmt: skip
    return replace(failure, fault="\n".join(told[:2])) if told else failure


def _split(barrier: SplitBarrier) -> str:
    """Threads that miss a barrier, in a sentence."""
    place = barrier.places[0]
    if not barrier.ended:
        return f"line {place.line}: only part of the block waits in {place.what}()"
    return (
        f"line {place.line}: threads {ranges(barrier.ended)} return before the {place.what}() at "
        "which the others wait"
    )


# --- the condition -------------------------------------------------------------------------------


def _condition(found: _Found, seed: int) -> Condition | None:
    """The weakest condition under which the kernel is right and does not race; None for none."""
    again = found.by_host()
    again.try_all(lambda subject: trials.cases(subject, seed, found.where), lockstep=False)
    again.look(_allowed(_all_race_cases(again), found.where), _ORDERS[1:], every=True)
    if not again.excused:
        return None
    right = {t.block for t in again.tries}
    right -= {f.case.block for f in again.failures if f.case.order != "lockstep"}
    if any(one.faults and one.block in right for one in again.looked):  # their sums show none
        again.try_by_accesses()
    for lockstep in (False, True):
        if lockstep:
            seen = (race for one in again.looked for race in one.races)
            if not (_ACTIVE.search(found.text) or any(map(_relies_on_lockstep, seen))):
                return None
            again.try_all(lambda s: trials.in_lockstep(s, found.where), lockstep=True)
        while chosen := conditions.weakest(found.where, again.tries, lockstep):
            if _holds(again, chosen, seed):
                if chosen == found.where.condition:  # wrong only where it adds up its own sums
                    return None
                _tell_condition(again, chosen)
                return chosen
            if not _learns(again, chosen):
                return None
    return None


def _by_accesses(subject: Subject, where: Domain) -> Iterator[Case]:
    """A few cases, for the traced emulator."""
    for case in trials.in_lockstep(subject, where):
        yield replace(case, order="reverse" if case.order.endswith("1") else "forward")


def _all_race_cases(found: _Found) -> Iterator[tuple[int, int, int]]:
    """Those of the ordinary search, each with an n that fills the blocks, too."""
    for n, block, grid in _race_cases(found.subjects[0], found.where):
        part = block * found.where.per_thread
        yield n, block, grid
        yield max(1, n // part) * part, block, grid
    for block in _FRESH_BLOCKS:
        yield 8 * block * found.where.per_thread, block, 0


def _holds(found: _Found, condition: Condition, seed: int) -> bool:
    """Whether nothing fails or races under a condition, on cases that were not used to find it."""
    where = found.where.under(condition)
    if any(_speaking_against(found, condition)):
        return False
    count = _FRESH // len(found.subjects)
    before = len(found.tries)
    found.try_all(lambda s: trials.drawn(s, where, count, seed), condition.lockstep)
    return all(tried.right for tried in found.tries[before:])


def _speaking_against(found: _Found, condition: Condition) -> Iterator[Races]:
    """The launches that a condition allows, with a fault or a race that it does not excuse."""
    where = found.where.under(condition)
    for one in found.looked:
        in_step = condition.lockstep and all(map(_relies_on_lockstep, one.races))
        has_any = one.barriers or one.faults or (one.races and not in_step)
        if has_any and where.allows(one.block, one.n):
            yield one


def _learns(found: _Found, condition: Condition) -> bool:
    """Whether the tries now speak against a condition that did not hold.

    Races in launches that it allows count as wrong tries.
    """
    for one in _speaking_against(found, condition):
        found.tries.append(Try(one.block, one.n, condition.lockstep, right=False))
    return conditions.weakest(found.where, found.tries, condition.lockstep) != condition


def _tell_condition(found: _Found, condition: Condition) -> None:
    """The condition, and for each of its parts the smallest failure where only that is not met."""
    where, own = found.where, condition.lockstep
    reasons: dict[str, Failure] = {}
    tried = {part: getattr(where.condition, part) for part in ("least", "most", "only", "powers")}
    any_block = replace(condition, **tried)
    rows = {part: replace(condition, **{part: value}) for part, value in tried.items()}
    rows |= {"blocks": any_block, "sizes": replace(condition, full=where.condition.full)}
    for part, without in rows.items():
        failures = [
            failure for failure in found.failures
            if failure.case.order.startswith("lockstep") == own
            and where.allows(failure.case.block, failure.case.n, without)
            and not where.allows(failure.case.block, failure.case.n, condition)
        ]  # fmt: skip
        if failures and without != condition and (part != "blocks" or not reasons):
            reasons[part] = _reason(found, failures, condition, where.under(without))
    wrong = {
        t.block
        for t in found.tries
        if t.lockstep == own and not t.right and not condition.allows_block(t.block)
        if where.allows(t.block, t.n, any_block)
    }
    found.tell("condition", (condition, reasons, tuple(sorted(wrong))))


def _reason(
    found: _Found, failures: list[Failure], condition: Condition, without: Domain
) -> Failure:
    """The failure that shows best why a part of a condition is needed, where only that is left."""
    first = min(failures, key=lambda f: (not f.fault, f.case.n, f.case.block))
    subject = next(one for one in found.subjects if one.dtype == first.case.dtype)
    if not condition.full and not condition.lockstep:
        first = trials.smallest(subject, failures, found.tell, without)
        return _with_unwritten(found, subject, first)
    if first.fault:
        return subject.with_line(first)
    first = replace(first, counted=subject.counted(first))
    return _with_unwritten(found, subject, first)
