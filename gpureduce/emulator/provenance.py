"""Which elements a partial sum contains, found by running a kernel again with coded elements.

Each element gets a random number in each of a few runs. The numbers of all runs together are its
code. Sums of codes are unique for all practical purposes: sums of two different sets of elements
have equal codes by one chance in 2^40. So the value that a lane stores is a sum of what it has
loaded, got by a shuffle or added up before, if their codes say so, and if the value of the run that
is shown is the sum of these elements, too. Codes have both signs, so that a maximum, an absolute
value or a condition on an element is no sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gpureduce.emulator.replay_steps import BEFORE, CONSTANT, NOTHING, Parts, Reader, precision

_CODE_BITS = 44
_MASK = 2**64 - 1
_NAN = 2**63 + 2**40 + 1  # the code of nan
_RECENT = 48  # values that are tried in pairs

_Array = np.ndarray[Any, np.dtype[Any]]
_Key = tuple[int, int, int]  # launch and block, or -1 for global memory; byte
# A code is the sum of these times the numbers of the runs, modulo 2^64. So sums of codes are codes
# of sums.
_FACTORS = np.random.default_rng(1).integers(0, 2**63, 64, np.uint64) * np.uint64(2) + np.uint64(1)


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
    """A value of a step: its code, if it has one; its number; whether no element changes it."""

    code: int | None
    number: Any
    dtype: np.dtype[Any]
    is_constant: bool

    def foreign(self, what: str, base: Parts = NOTHING) -> Parts:
        """What is in it beside `base`, if no element is."""
        number = self.number - base.total
        return Parts(0, 0, what, number, abs(number), 1) if self.code else NOTHING


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

    def keep(self, code: int, parts: Parts) -> None:
        """Adds a value that the lane has passed on."""
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


@dataclass(frozen=True)
class Traced:
    """What the values of a replay contain.

    `values` and `results` have, by step and lane, a number of `parts`; None: not known. `unknown`
    is the first step that passes on a value with unknown parts, or at which the kernel took another
    branch for other elements; None: there is none.
    """

    parts: tuple[Parts, ...]
    values: list[tuple[int | None, ...]]
    results: list[tuple[int | None, ...]]
    unknown: int | None


def trace(
    reader: Reader, coded: Sequence[Reader], elements: Sequence[_Array], input_name: str,
    array: _Array,
) -> Traced:  # fmt: skip
    """Finds what each value of a run over `array` contains, from further runs over `elements`."""
    tracer = _Tracer(reader, coded)
    if elements:
        tracer.fill(input_name, array, elements)
    differs = _first_difference(reader, coded) if elements else 0
    for step in range(len(reader.table) if differs is None else differs):
        tracer.follow(step)
    missing: list[tuple[int | None, ...]] = [()] * (len(reader.table) - len(tracer.values))
    return Traced(
        tuple(tracer.numbers), [*tracer.values, *missing], [*tracer.results, *missing],
        differs if tracer.unknown is None else tracer.unknown,
    )  # fmt: skip


def _first_difference(reader: Reader, coded: Sequence[Reader]) -> int | None:
    own = reader.table
    first = len(own)
    for other in coded:
        count = min(len(own), len(other.table))
        names = ("launch", "block", "warp", "kind", "mask", "place")
        same = np.all([own[name][:count] == other.table[name][:count] for name in names], axis=0)
        same &= np.all(
            own["lane"]["offset"][:count] == other.table["lane"]["offset"][:count], axis=1
        )
        first = min(first, count, *np.flatnonzero(~same)[:1].tolist())
    return None if first == len(own) else first


class _Tracer:
    """Follows values through memory and registers."""

    def __init__(self, reader: Reader, coded: Sequence[Reader]) -> None:
        self.reader, self.coded = reader, coded
        self.memory: dict[_Key, tuple[int | None, Parts | None]] = {}
        self.lanes: dict[tuple[int, ...], _Lane] = {}
        self.numbers: dict[Parts, int] = {}
        self.values: list[tuple[int | None, ...]] = []
        self.results: list[tuple[int | None, ...]] = []
        self.unknown: int | None = None

    def fill(self, name: str, array: _Array, elements: Sequence[_Array]) -> None:
        """Puts the elements into memory."""
        found = [one for one in self.reader.arrays if one.is_input(name)]
        for i, (number, code) in enumerate(zip(array.tolist(), _code(elements)[0].tolist(), strict=True)):
            parts = Parts(1 << i, 0, "", number, abs(number), 1)
            for memory in found[:1]:
                self.memory[-1, -1, memory.base + i * array.itemsize] = code, parts

    def follow(self, step: int) -> None:
        """Takes the next step."""
        kind = self.reader.kinds[step]
        values: list[Parts | None] = []
        results: list[Parts | None] = []
        lanes = self._lanes(step)
        if kind == "copy":
            self._copy(step)
        elif kind == "load":
            values = [self._load(*each) for each in self._accesses(step, lanes)]
        elif kind == "store":
            values = [self._store(step, *each) for each in self._accesses(step, lanes)]
        elif kind == "atomic":
            after = self._words(step, "result")
            pairs = [
                self._atomic(step, lane, keys[0], old[0], new[0])
                for (lane, keys, old), new in zip(self._accesses(step, lanes), after, strict=True)
            ]
            values, results = [old for old, _ in pairs], [new for _, new in pairs]
        elif kind.startswith("__shfl") or kind == "__reduce_add_sync":
            values, results = self._exchange(step, lanes, kind == "__reduce_add_sync")
        self.values.append(tuple(map(self._number, values)))
        self.results.append(tuple(map(self._number, results)))

    def _number(self, parts: Parts | None) -> int | None:
        return None if parts is None else self.numbers.setdefault(parts, len(self.numbers))

    def _words(self, step: int, what: str) -> list[list[_Word]]:
        """By lane that takes part: its values."""
        lanes = list(self.reader.lanes[step])
        own = self.reader.elements(step, what)[lanes]
        runs = [reader.elements(step, what)[lanes] for reader in self.coded]
        code, is_whole = _code(runs)
        is_nan = np.all([one != one for one in (own, *runs)], axis=0)
        same = np.all([one == own for one in runs], axis=0) | is_nan
        return [
            [
                _Word(_NAN if nan else code if whole else None, number, own.dtype, constant)
                for code, whole, nan, number, constant in zip(*row, strict=True)
            ]
            for row in zip(*(one.tolist() for one in (code, is_whole, is_nan, own, same)),
                           strict=True)
        ]  # fmt: skip

    def _lanes(self, step: int) -> list[_Lane]:
        heads = self.reader.heads
        warp = heads["launch"][step], heads["block"][step], heads["warp"][step]
        return [self.lanes.setdefault((*warp, lane), _Lane()) for lane in self.reader.lanes[step]]

    def _accesses(
        self, step: int, lanes: list[_Lane]
    ) -> Iterator[tuple[_Lane, list[_Key], list[_Word]]]:
        """By lane: its registers; the words that it accesses, as keys of `memory`; their values."""
        every = zip(lanes, self.reader.lanes[step], self._words(step, "value"), strict=True)
        for own, lane, words in every:
            yield own, self._keys(step, lane, len(words)), words

    def _keys(self, step: int, lane: int, count: int) -> list[_Key]:
        heads, part = self.reader.heads, self.reader.table["lane"][step, lane]
        array, size = self.reader.arrays[int(part["array"])], heads["bytes"][step]
        scope = (-1, -1)
        if array.space == "shared":
            scope = heads["launch"][step], int(part["owner"])
        if size % array.element == 0:
            size = array.element
        first = array.base + int(part["offset"])
        return [(*scope, first + i * size) for i in range(count)]

    def _held(self, key: _Key, word: _Word) -> Parts | None:
        """The parts of a word that is in memory."""
        before = word.foreign(BEFORE) if word.is_constant else None
        code, parts = self.memory.get(key, (word.code, before))
        is_known = parts is not None and code == word.code and parts.is_sum(word.number, word.dtype)
        return parts if is_known else None

    def _pass(self, step: int, lane: _Lane, word: _Word, base: Parts = NOTHING) -> Parts | None:
        """The parts of a value that a lane stores, gives to others or adds to `base`."""
        parts = None if word.code is None else lane.explain(word.code)
        if parts is None and word.is_constant:
            parts = word.foreign(CONSTANT, base)
        if parts is not None and word.code is not None:
            parts = base + parts
            if parts.is_sum(word.number, word.dtype):
                return parts
        if self.unknown is None:
            self.unknown = step
        return None

    def _load(self, lane: _Lane, keys: list[_Key], words: list[_Word]) -> Parts | None:
        found = [self._held(key, word) for key, word in zip(keys, words, strict=True)]
        for word, parts in zip(words, found, strict=True):
            lane.take(word.code, parts)
        return _together(found)

    def _store(self, step: int, lane: _Lane, keys: list[_Key], words: list[_Word]) -> Parts | None:
        found = [self._pass(step, lane, word) for word in words]
        for key, word, parts in zip(keys, words, found, strict=True):
            self.memory[key] = word.code, parts
            if word.code is not None and parts is not None:
                lane.keep(word.code, parts)
        return _together(found)

    def _atomic(
        self, step: int, lane: _Lane, key: _Key, old: _Word, new: _Word
    ) -> tuple[Parts | None, Parts | None]:
        before, after = self._held(key, old), None
        if before is not None and old.code is not None and new.code is not None:
            added = new.code - old.code & _MASK
            is_constant = old.is_constant and new.is_constant
            after = self._pass(
                step, lane, new._replace(code=added, is_constant=is_constant), before
            )
        elif self.unknown is None:
            self.unknown = step
        self.memory[key] = new.code, after
        return before, after

    def _copy(self, step: int) -> None:
        (lane,) = self.reader.lanes[step]
        row = self.reader.table[step]
        offset, number = map(int, row["lane"][lane]["value"])
        array = self.reader.arrays[number]
        for i, key in enumerate(self._keys(step, lane, int(row["bytes"]) // array.element)):
            start = array.base + offset + i * array.element
            self.memory[key] = self.memory.get((-1, -1, start), (None, None))

    def _exchange(
        self, step: int, lanes: list[_Lane], adds: bool
    ) -> tuple[list[Parts | None], list[Parts | None]]:
        given = [words[0] for words in self._words(step, "value")]
        got = [words[0] for words in self._words(step, "result")]
        values = [self._pass(step, *each) for each in zip(lanes, given, strict=True)]
        by_code = {word.code: parts for word, parts in zip(given, values, strict=True)}
        if adds and None not in values:
            total = sum(word.code or 0 for word in given) & _MASK
            by_code[total] = sum((parts for parts in values if parts), NOTHING)
        results = []
        for lane, word, parts in zip(lanes, given, values, strict=True):
            if word.code is not None and parts is not None:
                lane.keep(word.code, parts)
        for lane, word in zip(lanes, got, strict=True):
            found = by_code.get(word.code)
            is_known = found is not None and found.is_sum(word.number, word.dtype)
            results.append(found if is_known else None)
            lane.take(word.code, results[-1])
        return values, results


def _code(runs: Sequence[_Array]) -> tuple[_Array, _Array]:
    """The codes of numbers, and which of them have one: floats that are no integer have none."""
    total, is_whole = np.zeros(1, np.uint64), np.ones(1, bool)
    for numbers, factor in zip(runs, _FACTORS, strict=False):
        whole = numbers
        if numbers.dtype.kind not in "iu":
            wide = numbers.astype(np.float64)
            whole = np.where(np.abs(wide) < 2**62, wide, 0).astype(np.int64)
            is_whole = is_whole & (whole == wide)
        total = total + whole.astype(np.int64).view(np.uint64) * factor
    return total, np.broadcast_to(is_whole, total.shape)


def _together(found: Sequence[Parts | None]) -> Parts | None:
    """The parts of the words of an access, without a mark beside the sum."""
    known = [parts for parts in found if parts is not None]
    sums = [parts for parts in known if parts.once or not parts.foreign]
    return sum(sums or known, NOTHING) if len(known) == len(found) else None
