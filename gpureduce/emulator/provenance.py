"""Which elements a partial sum contains, found by running a kernel again with coded elements.

Each element gets a random number in each of a few runs. The numbers of all runs together are its
code. Sums of codes are unique for all practical purposes: sums of two different sets of elements
have equal codes by one chance in 2^40. So the value that a lane stores is a sum of what it has
loaded, got by a shuffle or added up before, if their codes say so, and if the value of the run that
is shown is the sum of these elements, too. Codes have both signs, so that a maximum, an absolute
value or a condition on an element is no sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
_NAN = 2**63 + 2**40 + 1  # the code of nan
_RECENT = 48  # values that are tried in pairs

_Array = np.ndarray[Any, np.dtype[Any]]
_Key = tuple[int, int, int]  # launch and block, or -1 for global memory; byte
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
    """A value of a step: its number, its code if it has one, and whether no element changes it."""

    number: Any
    code: int | None
    is_constant: bool

    def foreign(self, what: str, base: Parts = NOTHING) -> Parts:
        """What is in it beside `base`, if no element is."""
        number = self.number - base.total
        return Parts(0, 0, what, number, abs(number), 1) if self.code else NOTHING


def _word(number: Any, *coded: Any) -> _Word:
    """A value, from its numbers in the run that is shown and in the coded runs."""
    is_nan = all(one != one for one in (number, *coded))
    is_constant = is_nan or all(one == number for one in coded)
    if all(isinstance(one, int) or one.is_integer() for one in coded):
        return _Word(number, _code(coded), is_constant)
    code = _NAN if is_nan else hash(number) * _FACTORS[0] & _MASK  # of a constant: any
    return _Word(number, code if is_constant else None, is_constant)


def _code(numbers: Sequence[float]) -> int:
    total: int = sum(int(one) * factor for one, factor in zip(numbers, _FACTORS, strict=False))
    return total & _MASK


@dataclass
class _Lane:
    """The values that a lane may hold in registers.

    `got` are those that it has loaded or received, in order, and `prefix` their running sums.
    `passed` are those that it has stored or given to other lanes, the last one first.
    """

    known: dict[int, Parts] = field(default_factory=lambda: {0: NOTHING})
    got: list[tuple[int, Parts]] = field(default_factory=list)
    prefix: list[int] = field(default_factory=lambda: [0])
    place: dict[int, int] = field(default_factory=lambda: {0: 0})
    passed: list[int] = field(default_factory=list)

    def take(self, code: int | None, parts: Parts | None) -> None:
        """Adds a value that the lane has got."""
        if not code or parts is None:
            return
        self.known.setdefault(code, parts)
        self.got.append((code, parts))
        self.prefix.append(self.prefix[-1] + code & _MASK)
        self.place[self.prefix[-1]] = len(self.got)

    def explain(self, code: int) -> Parts | None:
        """The parts of a value that the lane passes on."""
        found = self.known.get(code)
        if found is None:
            found = self._since(code)
        return found if found is not None else self._pair(code)

    def keep(self, code: int | None, parts: Parts | None) -> None:
        """Adds a value that the lane has passed on."""
        if code is not None and parts is not None:
            self.known[code] = parts
            self.passed = [code, *self.passed[:5]]

    def _since(self, code: int) -> Parts | None:
        """The last values that the lane has got, added to one that it has passed on before."""
        for base in (*self.passed, 0):
            first = self.place.get(self.prefix[-1] + base - code & _MASK)
            if first is not None and first < len(self.got):
                return sum((parts for _, parts in self.got[first:]), self.known[base])
        return None

    def _pair(self, code: int) -> Parts | None:
        for other, parts in reversed(self.got[-_RECENT:]):
            rest = self.known.get(code - other & _MASK)
            if rest is not None:
                return rest + parts
        return None


class Tracer:
    """Follows values through memory and registers.

    Attributes
    ----------
    steps
        Those of the run that is shown, with what their values contain.
    parts
        The sets that the steps have by number.
    unknown
        The first step that passes on a value with unknown parts, or at which the kernel took
        another branch for other elements; None: there is none.
    """

    def __init__(
        self, runs: Sequence[Sequence[Step]], arrays: Sequence[Memory], sums: np.dtype[Any]
    ) -> None:
        self.runs, self.arrays, self.sums = runs, arrays, sums
        self.memory: dict[_Key, tuple[int | None, Parts | None]] = {}
        self.lanes: dict[tuple[int, ...], _Lane] = {}
        self.parts: dict[Parts, int] = {}
        self.steps: list[Step] = []
        self.unknown: int | None = None
        self.dtype = sums

    def trace(self, name: str, elements: Sequence[_Array]) -> None:
        """Follows all steps. `elements` are those of each run, and `name` their parameter."""
        rows = enumerate(zip(*(numbers.tolist() for numbers in elements), strict=True))
        for memory in [one for one in self.arrays if one.is_input(name)][:1]:
            for i, (number, *coded) in rows:
                parts = Parts(1 << i, 0, "", number, abs(number), 1)
                self.memory[-1, -1, memory.base + i * memory.element] = _code(coded), parts
        count = _common(self.runs) if len(elements) > 1 else 0
        for step in self.runs[0][:count]:
            values, results = ([*map(self._number, found)] for found in self._follow(step))
            self.steps.append(replace(step, parts=tuple(values), result_parts=tuple(results)))
        if count < len(self.runs[0]) and self.unknown is None:
            self.unknown = count
        self.steps += self.runs[0][count:]

    def _follow(self, step: Step) -> tuple[list[Parts | None], list[Parts | None]]:
        """What the values and the results of the next step contain, by lane."""
        warp = step.launch, step.block, step.warp
        lanes = [self.lanes.setdefault((*warp, lane), _Lane()) for lane in step.lanes]
        self.dtype = self.sums
        if step.array is not None:
            self.dtype = dtypes.named(self.arrays[step.array].dtype)
        values = self._words("values")
        if step.kind == "copy":
            self._copy(step)
        elif step.kind in ("load", "store"):
            act = self._load if step.kind == "load" else self._store
            every = enumerate(zip(lanes, values, strict=True))
            return [act(lane, self._keys(step, i, len(one)), one) for i, (lane, one) in every], []
        elif step.kind == "atomic":
            pairs = [
                self._atomic(lane, self._keys(step, i, 1)[0], old[0], new[0])
                for i, (lane, old, new) in enumerate(
                    zip(lanes, values, self._words("results"), strict=True)
                )
            ]
            return [old for old, _ in pairs], [new for _, new in pairs]
        elif step.kind.startswith("__shfl") or step.kind == "__reduce_add_sync":
            given, got = ([one[0] for one in words] for words in (values, self._words("results")))
            return self._exchange(lanes, given, got, step.kind == "__reduce_add_sync")
        return [], []

    def _number(self, parts: Parts | None) -> int | None:
        return None if parts is None else self.parts.setdefault(parts, len(self.parts))

    def _words(self, what: str) -> list[list[_Word]]:
        """By lane that takes part in the next step: its values."""
        found = [getattr(run[len(self.steps)], what) for run in self.runs]
        return [
            [_word(*one) for one in zip(*lane, strict=True)]
            if isinstance(lane[0], tuple) else [_word(*lane)]
            for lane in zip(*found, strict=True)
        ]  # fmt: skip

    def _keys(self, step: Step, i: int, count: int) -> list[_Key]:
        array = self.arrays[step.array or 0]
        owner = step.owner[i] if step.owner else step.block
        scope = (step.launch, owner) if array.space == "shared" else (-1, -1)
        size = step.bytes if step.bytes % array.element else array.element
        return [(*scope, array.base + step.offsets[i] + k * size) for k in range(count)]

    def _is_sum(self, parts: Parts | None, word: _Word) -> bool:
        return parts is not None and parts.is_sum(word.number, self.dtype)

    def _held(self, key: _Key, word: _Word) -> Parts | None:
        """The parts of a word that is in memory."""
        before = word.foreign(BEFORE) if word.is_constant else None
        code, parts = self.memory.get(key, (word.code, before))
        return parts if code == word.code and self._is_sum(parts, word) else None

    def _pass(self, lane: _Lane, word: _Word, base: Parts | None = NOTHING) -> Parts | None:
        """The parts of a value that a lane stores, gives to others or adds to `base`."""
        parts = None if word.code is None else lane.explain(word.code)
        if parts is None and word.is_constant and word.code is not None and base is not None:
            parts = word.foreign(CONSTANT, base)
        if parts is not None and base is not None and self._is_sum(base + parts, word):
            return base + parts
        if self.unknown is None:
            self.unknown = len(self.steps)
        return None

    def _load(self, lane: _Lane, keys: list[_Key], words: list[_Word]) -> Parts | None:
        found = [self._held(key, word) for key, word in zip(keys, words, strict=True)]
        for word, parts in zip(words, found, strict=True):
            lane.take(word.code, parts)
        return _together(found)

    def _store(self, lane: _Lane, keys: list[_Key], words: list[_Word]) -> Parts | None:
        found = [self._pass(lane, word) for word in words]
        for key, word, parts in zip(keys, words, found, strict=True):
            self.memory[key] = word.code, parts
            lane.keep(word.code, parts)
        return _together(found)

    def _atomic(
        self, lane: _Lane, key: _Key, old: _Word, new: _Word
    ) -> tuple[Parts | None, Parts | None]:
        before = self._held(key, old)
        added = None if None in (old.code, new.code) else (new.code or 0) - (old.code or 0) & _MASK
        is_constant = old.is_constant and new.is_constant
        after = self._pass(lane, _Word(new.number, added, is_constant), before)
        self.memory[key] = new.code, after
        return before, after

    def _copy(self, step: Step) -> None:
        offset, number = step.sources
        array = self.arrays[number]
        for i, key in enumerate(self._keys(step, 0, step.bytes // array.element)):
            start = array.base + offset + i * array.element
            self.memory[key] = self.memory.get((-1, -1, start), (None, None))

    def _exchange(
        self, lanes: list[_Lane], given: list[_Word], got: list[_Word], adds: bool
    ) -> tuple[list[Parts | None], list[Parts | None]]:
        values = [self._pass(*each) for each in zip(lanes, given, strict=True)]
        by_code = {word.code: parts for word, parts in zip(given, values, strict=True)}
        if adds and None not in values:
            total = sum(word.code or 0 for word in given) & _MASK
            by_code[total] = sum((parts for parts in values if parts), NOTHING)
        results = []
        for lane, word, parts, result in zip(lanes, given, values, got, strict=True):
            lane.keep(word.code, parts)
            found = by_code.get(result.code)
            results.append(found if self._is_sum(found, result) else None)
            lane.take(result.code, results[-1])
        return values, results


def _common(runs: Sequence[Sequence[Step]]) -> int:
    """How many steps the runs have in common, but for the values."""
    for i, same in enumerate(zip(*runs, strict=False)):
        if len({(s.launch, s.block, s.warp, s.kind, s.lanes, s.line, s.offsets) for s in same}) > 1:
            return i
    return min(map(len, runs))


def _together(found: Sequence[Parts | None]) -> Parts | None:
    """The parts of the words of an access, without a mark beside the sum."""
    known = [parts for parts in found if parts is not None]
    sums = [parts for parts in known if parts.once or not parts.foreign]
    return sum(sums or known, NOTHING) if len(known) == len(found) else None
