"""Which elements a partial sum contains, found by running a kernel again with coded elements.

Each element gets a random number in each of a few runs. The numbers of all runs together are its
code. Sums of codes are unique for all practical purposes: sums of two different sets of elements
have equal codes by one chance in 2^40. So the value that a lane stores is a sum of what it has
loaded, got by a shuffle or added up before, if their codes say so, and if the value of the run that
is shown is the sum of these elements, too. Codes have both signs, so that a maximum, an absolute
value or a condition on an element is no sum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gpureduce.core import dtypes
from gpureduce.emulator.replay_steps import (
    BEFORE,
    CONSTANT,
    NOTHING,
    Memory,
    Parts,
    Step,
    precision,
)

_CODE_BITS = 44
_MASK = 2**64 - 1
_RECENT = 1024  # values that a lane adds up without passing on a sum
_APART = 64  # values that a lane has got since the one that it adds to the last ones
_NAN = 2**63 + 2**40 + 1  # the code of nan

_Array = np.ndarray[Any, np.dtype[Any]]
_Lane = tuple[int, int, int, int]  # launch, block, warp, lane
# A code is the sum of these times the numbers of the runs, modulo 2^64. So sums of codes are codes
# of sums.
_FACTORS = [2 * one + 1 for one in np.random.default_rng(1).integers(0, 2**63, 64).tolist()]


def codes(n: int, elements: np.dtype[Any], sums: np.dtype[Any]) -> list[_Array]:
    """The elements of each coded run; none for a type with too few values."""
    bits = min(precision(elements), precision(sums) - (2 * n).bit_length(), 32)
    if elements.kind == "b" or bits < 3:
        return []
    draw = np.random.default_rng(0)
    runs = -(-_CODE_BITS // bits)
    signs = (1,) if elements.kind == "u" else (-1, 1)
    return [
        (draw.integers(1, 2**bits, n) * draw.choice(signs, n)).astype(elements) for _ in range(runs)
    ]


class _Word(NamedTuple):
    """A value of a step: its number, its code, and whether no element changes it."""

    number: Any
    code: int
    is_constant: bool

    def foreign(self, what: str, base: Parts = NOTHING) -> Parts:
        """What is in it beside `base`, if no element is."""
        number = self.number - base.total
        return Parts(0, 0, what, number, abs(number), 1) if self.code else NOTHING


def _word(number: Any, *coded: Any) -> _Word:
    """A value, from its numbers in the run that is shown and in the coded runs."""
    if all(one != one for one in (number, *coded)):
        return _Word(number, _NAN, True)
    is_whole = all(isinstance(one, int) or one.is_integer() for one in coded)
    code = _code(coded) if is_whole else hash(coded) & _MASK  # any: it is no sum of elements
    return _Word(number, code, all(one == number for one in coded))


def _code(numbers: Sequence[float]) -> int:
    total: int = sum(int(one) * factor for one, factor in zip(numbers, _FACTORS, strict=False))
    return total & _MASK


class Tracer:
    """Follows values from step to step.

    `runs` are the steps of the run that is shown and of the coded ones, `elements` their elements.
    `steps`, `parts` and `unknown` are those of `Replay`.
    """

    def __init__(
        self, runs: Sequence[Sequence[Step]], arrays: Sequence[Memory], sums: np.dtype[Any],
        elements: Sequence[_Array],
    ) -> None:  # fmt: skip
        self.arrays, self.sums, self.dtype = arrays, sums, sums
        self.known = {0: NOTHING}  # by code: the elements, and what was stored or given to others
        self.got: defaultdict[_Lane, list[int]] = defaultdict(list)  # the codes that a lane has got
        self.passed: defaultdict[_Lane, set[int]] = defaultdict(lambda: {0})  # and passed on
        self.parts: dict[Parts, int] = {}
        self.steps: list[Step] = []
        self.unknown: int | None = None
        is_coded = len(runs) > 1
        for i, (number, *coded) in enumerate(zip(*(one.tolist() for one in elements), strict=True)):
            if is_coded:
                self.known[_code(coded)] = Parts(1 << i, 0, "", number, abs(number), 1)
        for step, *others in zip(*runs, strict=False) if is_coded else ():
            if len({_place(one) for one in (step, *others)}) > 1:
                break
            values, results = self._follow(step, [step, *others])
            self.steps.append(replace(step, parts=values, result_parts=results))
        if len(self.steps) < len(runs[0]) and self.unknown is None:
            self.unknown = len(self.steps)
        self.steps += runs[0][len(self.steps) :]

    def _follow(self, step: Step, all_runs: Sequence[Step]) -> tuple[tuple[int | None, ...], ...]:
        """What the values and the results of a step contain, by lane."""
        self.dtype = self.sums
        if step.array is not None:
            self.dtype = dtypes.named(self.arrays[step.array].dtype)
        lanes = [(step.launch, step.block, step.warp, lane) for lane in step.lanes]
        values = [_words(every) for every in zip(*(one.values for one in all_runs), strict=True)]
        results = [_words(every) for every in zip(*(one.results for one in all_runs), strict=True)]
        first: Sequence[Parts | None] = ()
        second: Sequence[Parts | None] = ()
        is_exchange = step.kind.startswith("__shfl") or step.kind == "__reduce_add_sync"
        if step.kind in ("load", "store") or is_exchange:
            act = self._get if step.kind == "load" else self._pass
            first = [
                _together([act(lane, word) for word in words])
                for lane, words in zip(lanes, values, strict=True)
            ]
        if step.kind == "atomic":
            pairs = zip(lanes, values, results, strict=True)
            found = [self._atomic(lane, old[0], new[0]) for lane, old, new in pairs]
            first, second = zip(*found, strict=True)
        if step.kind == "__reduce_add_sync" and None not in first:
            total = sum(one[0].code for one in values) & _MASK
            self.known.setdefault(total, sum((one for one in first if one), NOTHING))
        if is_exchange:
            second = [self._get(lane, one[0]) for lane, one in zip(lanes, results, strict=True)]
        return tuple(map(self._number, first)), tuple(map(self._number, second))

    def _number(self, parts: Parts | None) -> int | None:
        return None if parts is None else self.parts.setdefault(parts, len(self.parts))

    def _get(self, lane: _Lane | None, word: _Word) -> Parts | None:
        """The parts of a value that is in memory, or that a lane gets from there or another one."""
        parts = self.known.get(word.code, word.foreign(BEFORE) if word.is_constant else None)
        if parts is None or not parts.is_sum(word.number, self.dtype):
            return None
        if lane and word.code:
            self.known.setdefault(word.code, parts)
            self.got[lane].append(word.code)
        return parts

    def _pass(self, lane: _Lane, word: _Word) -> Parts | None:
        """The parts of a value that a lane stores or gives to others."""
        parts = self._explain(lane, word)
        if parts is not None:
            self.known[word.code] = parts
            self.passed[lane].add(word.code)
        return parts

    def _atomic(self, lane: _Lane, old: _Word, new: _Word) -> tuple[Parts | None, Parts | None]:
        before, added = self._get(None, old), new.code - old.code & _MASK
        word = _Word(new.number, added, old.is_constant and new.is_constant)
        after = self._explain(lane, word, before)
        if after is not None:
            self.known.setdefault(new.code, after)
        return before, after

    def _explain(self, lane: _Lane, word: _Word, base: Parts | None = NOTHING) -> Parts | None:
        """The parts of a value that a lane passes on or adds to `base`.

        It is one that is known, or one that the lane has had before, with the last ones that it has
        got and at most one earlier one, or a constant.
        """
        if base is not None:
            parts = self._added_up(lane, word.code)
            if parts is None and word.is_constant:
                parts = word.foreign(CONSTANT, base)
            if parts is not None and (base + parts).is_sum(word.number, self.dtype):
                return base + parts
        if self.unknown is None:
            self.unknown = len(self.steps)
        return None

    def _added_up(self, lane: _Lane, code: int) -> Parts | None:
        if code in self.known:
            return self.known[code]
        last, had = self.got[lane][-_RECENT:], self.passed[lane]
        for count in range(len(last) + 1):
            at = len(last) - count
            if count:
                code = code - last[at] & _MASK
            earlier = {*last[max(at - _APART, 0) : at]} if count < 3 else set()
            for one in (0, *earlier):
                base = code - one & _MASK
                if base in had or (one not in (0, base) and base in earlier):
                    return sum((self.known[each] for each in (one, *last[at:])), self.known[base])
        return None


def _place(step: Step) -> tuple[Any, ...]:
    """What all runs of a kernel have in common: all but the values."""
    return step.launch, step.block, step.warp, step.kind, step.lanes, step.line, step.offsets


def _words(numbers: Sequence[Any]) -> list[_Word]:
    """The words of a lane's value, from their numbers in each run."""
    is_vector = isinstance(numbers[0], tuple)
    return [_word(*one) for one in (zip(*numbers, strict=True) if is_vector else [numbers])]


def _together(found: Sequence[Parts | None]) -> Parts | None:
    """The parts of the words of an access, without a mark beside the sum."""
    known = [parts for parts in found if parts is not None]
    sums = [parts for parts in known if parts.once or not parts.foreign]
    return sum(sums or known, NOTHING) if len(known) == len(found) else None
