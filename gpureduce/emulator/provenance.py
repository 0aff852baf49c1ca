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
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gpureduce.core import dtypes, exact
from gpureduce.core.dtypes import Array
from gpureduce.text import runs_of_ones

BEFORE, CONSTANT = "what was in memory before", "a constant"
ROUNDED = 2.0**-33  # at most, of each element by key_fixed
_CODE_BITS = 44
_MASK = 2**64 - 1
_RECENT = 1024  # values that a lane adds up without passing on a sum
_APART = 64  # values that a lane has got since the one that it adds to the last ones
_FRACTION = np.uint64(2**63 + 2**40 + 1)

_Lane = tuple[int, int, int, int]  # launch, block, warp, lane
# A code is the sum of these times the numbers of the runs, modulo 2^64. So sums of codes are codes
# of sums.
_FACTORS = 2 * np.random.default_rng(1).integers(0, 2**63, (64, 1, 1), np.uint64) + np.uint64(1)


@dataclass(frozen=True)
class Parts:
    """The elements of a sum, as bits: `once` has all, `twice` the repeated elements.

    `foreign` tells what else is in it. `total`, `size` and `terms` are the sum of the elements, of
    their magnitudes, and their number, with repetitions.
    """

    once: int = 0
    twice: int = 0
    foreign: str = ""
    total: float = field(default=0, compare=False)
    size: float = field(default=0, compare=False)
    terms: int = field(default=0, compare=False)

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            self.once | other.once, self.twice | other.twice | (self.once & other.once),
            self.foreign or other.foreign, self.total + other.total, self.size + other.size,
            self.terms + other.terms,
        )  # fmt: skip

    def is_sum(self, number: Any, dtype: np.dtype[Any]) -> bool:
        """Whether a number is the sum: modulo its width, or within the error bound of floats."""
        if dtype.kind in "iub":
            return bool((number - self.total) % 2 ** (8 * dtype.itemsize) == 0)
        bound = self.terms * (2.0 ** (1 - exact.precision(dtype)) * self.size + ROUNDED)
        is_same = number == self.total or (number != number and self.total != self.total)
        return is_same or abs(number - self.total) <= bound

    def __hash__(self) -> int:
        """Python's hash of integers has few values for powers of two."""
        return hash((self.once.bit_length(), self.once % 1000003, self.twice % 1000003))

    def __len__(self) -> int:
        return self.once.bit_count()

    def runs(self) -> list[tuple[int, int, int]]:
        """The elements as (first, step, count)."""
        return runs_of_ones(self.once)

    def repeated(self) -> list[tuple[int, int, int]]:
        """The elements that are in the sum more than once."""
        return runs_of_ones(self.twice)


NOTHING = Parts()


def codes(n: int, elements: np.dtype[Any], sums: np.dtype[Any]) -> list[Array]:
    """The elements of each coded run; none for a type with too few values."""
    bits = min(exact.precision(elements), min(exact.precision(sums), 32) - (2 * n).bit_length())
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


_ZERO = _Word(0, 0, True)


def _words(numbers: Array) -> list[list[_Word]]:
    """The words of each lane, from the numbers by run (the one that is shown first), lane, word."""
    coded = numbers[1:].astype(np.int64 if numbers.dtype.kind in "biu" else np.float64)
    whole = dtypes.quietly(coded.astype, np.int64)
    # A fraction or nan is no sum of elements: its code must only differ.
    terms = np.where(whole == coded, whole.view(np.uint64), coded.view(np.uint64) * _FRACTION)
    code = (terms * _FACTORS[: len(coded)]).sum(axis=0)
    is_constant = (numbers != numbers).all(axis=0) | (numbers == numbers[0]).all(axis=0)
    lanes = zip(numbers[0].tolist(), code.tolist(), is_constant.tolist(), strict=True)
    return [[*map(_Word, *lane)] for lane in lanes]


class Tracer:
    """Follows values from step to step.

    `elements` are those of the run that is shown and of the coded ones. `parts` has a number for
    each set of elements that a value contains.
    """

    def __init__(self, elements: Sequence[Array]) -> None:
        self.known = {0: NOTHING}  # by code: the elements, and what was stored or given to others
        self.got: defaultdict[_Lane, list[int]] = defaultdict(list)  # the codes that a lane has got
        self.passed: defaultdict[_Lane, set[int]] = defaultdict(lambda: {0})  # and passed on
        self.parts: dict[Parts, int] = {}
        for i, (word,) in enumerate(_words(np.stack(elements)[..., np.newaxis])):
            self.known[word.code] = Parts(1 << i, 0, "", word.number, abs(word.number), 1)

    def follow(
        self, kind: str, lanes: Sequence[_Lane], values: Array, results: Array, what: str = BEFORE
    ) -> dict[str, tuple[int | None, ...]]:
        """What the values and the results of a step contain, by lane: numbers of `parts`.

        Both are numbers by run, lane and word. `what` is loaded if that is no element.
        """
        self.dtype, self.what = values.dtype, what
        first, second = list[Parts | None](), list[Parts | None]()
        is_exchange = kind.startswith("__shfl") or kind == "__reduce_add_sync"
        before, after = _words(values), _words(results)
        for lane, words, new in zip(lanes, before, after, strict=True):
            if kind == "atomic":
                first.append(old := self._get(None, words[0]))
                second.append(None if old is None else self._pass(lane, new[0], words[0], old))
            elif kind in ("load", "store") or is_exchange:
                act = self._get if kind == "load" else self._pass
                first.append(_together([act(lane, word) for word in words]))
        if kind == "__reduce_add_sync" and None not in first:
            total = sum(words[0].code for words in before) & _MASK
            self.known.setdefault(total, sum((one for one in first if one), NOTHING))
        if is_exchange:
            second = [self._get(lane, new[0]) for lane, new in zip(lanes, after, strict=True)]
        return {"parts": self._numbers(first), "result_parts": self._numbers(second)}

    def _numbers(self, found: Sequence[Parts | None]) -> tuple[int | None, ...]:
        known = self.parts
        return tuple([one if one is None else known.setdefault(one, len(known)) for one in found])

    def _get(self, lane: _Lane | None, word: _Word) -> Parts | None:
        """The parts of a value that is in memory, or that a lane gets from there or another one."""
        parts = self._checked(self.known.get(word.code), word, self.what)
        if lane and word.code and parts is not None:
            self.known.setdefault(word.code, parts)
            self.got[lane].append(word.code)
        return parts

    def _pass(
        self, lane: _Lane, word: _Word, old: _Word = _ZERO, base: Parts = NOTHING
    ) -> Parts | None:
        """The parts of a value that a lane stores or gives to others, or adds to an old one.

        Beside `base`, they are those of a known value, or of one that the lane has had before, with
        the last ones that it has got and at most one earlier one, or a constant.
        """
        is_constant = old.is_constant and word.is_constant
        added = _Word(word.number, word.code - old.code & _MASK, is_constant)
        parts = self._checked(self._added_up(lane, added.code), added, CONSTANT, base)
        if parts is not None:
            self.known.setdefault(word.code, parts)
            self.passed[lane].add(word.code)
        return parts

    def _checked(
        self, parts: Parts | None, word: _Word, what: str, base: Parts = NOTHING
    ) -> Parts | None:
        """`base` and these parts, or what else is in the word, if they add up to its number."""
        if parts is None and word.is_constant:
            number = word.number - base.total
            parts = Parts(0, 0, what, number, abs(number), 1)
        total = parts if parts is None or base is NOTHING else base + parts
        return total if total is not None and total.is_sum(word.number, self.dtype) else None

    def _added_up(self, lane: _Lane, code: int) -> Parts | None:
        if code in self.known:
            return self.known[code]
        last, had = self.got[lane][-_RECENT:], self.passed[lane]
        for at in range(len(last), -1, -1):
            if at < len(last):
                code = code - last[at] & _MASK
            earlier = {*last[max(at - _APART, 0) : at]} if at > len(last) - 3 else set()
            for one in (0, *earlier):
                base = code - one & _MASK
                if base in had or (one not in (0, base) and base in earlier):
                    return sum((self.known[each] for each in (one, *last[at:])), self.known[base])
        return None


def _together(found: Sequence[Parts | None]) -> Parts | None:
    """The parts of the words of an access, without a mark beside the sum."""
    known = [parts for parts in found if parts is not None]
    if len(known) < len(found):
        return None
    first, *others = [parts for parts in known if parts.once or not parts.foreign] or known
    return sum(others, first)
