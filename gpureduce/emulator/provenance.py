"""Which elements a partial sum contains, found by running a kernel again with coded elements.

Each element gets a random number in each of a few runs. The numbers of all runs together are its
code. Sums of codes are unique for all practical purposes: sums of two different sets of elements
have equal codes by one chance in 2^40. So the value that a lane stores is a sum of what it has
loaded, got by a shuffle or added up before, if their codes say so. This holds for kernels that only
add. For others, most values have unknown parts, and some get wrong ones: the larger of two elements
may be the same one in all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpureduce.emulator.replay_steps import Parts, Reader

_CODE_BITS = 44
_MASK = 2**64 - 1
_RECENT = 48  # values that are tried in pairs
_MOST_FOREIGN = 32  # how often a value that was in memory before may be in a sum

_Array = np.ndarray[Any, np.dtype[Any]]
# A code is the sum of these times the numbers of the runs, modulo 2^64. So sums of codes are codes
# of sums.
_FACTORS = np.random.default_rng(1).integers(0, 2**63, 64, np.uint64) * np.uint64(2) + np.uint64(1)


def codes(n: int, elements: np.dtype[Any], sums: np.dtype[Any]) -> list[_Array]:
    """The elements of each coded run; none for a type with too few values."""
    bits = min(_bits(elements), _bits(sums) - (2 * n).bit_length(), 32)
    if elements.kind == "b" or bits < 3:
        return []
    draw = np.random.default_rng(0)
    runs = -(-_CODE_BITS // bits)
    return [draw.integers(1, 2**bits, n).astype(elements) for _ in range(runs)]


def _bits(dtype: np.dtype[Any]) -> int:
    """Integers below 2 to this power are exact."""
    if dtype.kind in "iu":
        return 8 * dtype.itemsize - (dtype.kind == "i")
    return {2: 11, 4: 24, 8: 53}[dtype.itemsize] if dtype.kind == "f" else 8  # bfloat16


@dataclass
class _Lane:
    """The values that a lane may hold in registers.

    `got` are those that it has loaded or received, in order, and `prefix` their running sums.
    `passed` are those that it has stored or given to other lanes, the last one first.
    """

    known: dict[int, Parts] = field(default_factory=lambda: {0: Parts()})
    foreign: set[int] = field(default_factory=set)
    got: list[tuple[int, Parts]] = field(default_factory=list)
    prefix: list[int] = field(default_factory=lambda: [0])
    place: dict[int, int] = field(default_factory=lambda: {0: 0})
    passed: list[int] = field(default_factory=list)

    def take(self, code: int, parts: Parts) -> None:
        self.known.setdefault(code, parts)
        if code:
            self.got.append((code, parts))
            self.prefix.append(self.prefix[-1] + code & _MASK)
            self.place[self.prefix[-1]] = len(self.got)

    def explain(self, code: int) -> Parts | None:
        """The parts of a value that the lane passes on."""
        found = self.known.get(code)
        if found is None:
            found = self._since(code)
        if found is None:
            found = self._pair(code)
        if found is None:
            found = self._with_foreign(code)
        if found is not None:
            self.known[code] = found
            self.passed = [code, *self.passed[:5]]
        return found

    def _since(self, code: int) -> Parts | None:
        """The last values that the lane has got, added to one that it has passed on before."""
        for base in (*self.passed, 0):
            first = self.place.get(self.prefix[-1] + base - code & _MASK)
            if first is not None and first < len(self.got):
                parts = self.known[base]
                for _, more in self.got[first:]:
                    parts = parts + more
                return parts
        return None

    def _with_foreign(self, code: int) -> Parts | None:
        """A sum with values that were in memory before the kernel wrote there."""
        for foreign in self.foreign:
            rest = code
            for _ in range(_MOST_FOREIGN):
                rest = rest - foreign & _MASK
                found = self.known.get(rest) or self._since(rest)
                if found is not None:
                    return found + Parts(foreign=True)
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
    reader: Reader, coded: Sequence[Reader], elements: Sequence[_Array], input_name: str
) -> Traced:
    """Finds what each value of a run contains, from further runs over coded elements."""
    rows = [_together([number.item() for number in row]) for row in zip(*elements, strict=True)]
    tracer = _Tracer(reader, coded, rows, input_name)
    differs = _first_difference(reader, coded)
    count = len(reader.table) if differs is None else differs
    for step in range(count if elements else 0):
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

    def __init__(
        self, reader: Reader, coded: Sequence[Reader], codes: list[int], input_name: str
    ) -> None:
        self.reader, self.coded, self.codes = reader, coded, codes
        self.input_name = input_name
        self.memory: dict[tuple[int, int, int], tuple[int, Parts]] = {}
        self.lanes: dict[tuple[int, ...], _Lane] = {}
        self.numbers: dict[Parts, int] = {}
        self.values: list[tuple[int | None, ...]] = []
        self.results: list[tuple[int | None, ...]] = []
        self.unknown: int | None = None

    def follow(self, step: int) -> None:
        """Takes the next step."""
        kind = self.reader.kinds[step]
        values: list[Parts | None] = []
        results: list[Parts | None] = []
        if kind == "load":
            values = self._load(step)
        elif kind == "store":
            values = self._store(step)
        elif kind == "atomic":
            values, results = self._atomic(step)
        elif kind == "copy":
            self._copy(step)
        elif kind.startswith("__shfl") or kind == "__reduce_add_sync":
            values, results = self._exchange(step, kind == "__reduce_add_sync")
        self.values.append(tuple(map(self._number, values)))
        self.results.append(tuple(map(self._number, results)))

    def _number(self, parts: Parts | None) -> int | None:
        return None if parts is None else self.numbers.setdefault(parts, len(self.numbers))

    def _codes(self, step: int, what: str) -> list[list[int | None]]:
        """By lane that takes part, and element: its code. None: a float that is no integer.

        A number that no element changes has its code as -1 - code.
        """
        total, is_whole, is_constant = np.uint64(0), True, True
        first = self.coded[0].elements(step, what)
        for reader, factor in zip(self.coded, _FACTORS, strict=False):
            numbers = reader.elements(step, what)
            whole = _whole(numbers)
            total = total + whole.view(np.uint64) * factor
            is_whole = is_whole & (whole == numbers)
            is_constant = is_constant & ((numbers == first) | (numbers != numbers))
        codes = np.where(is_whole, total, 0)
        same = (is_constant & ((codes != 0) | ~np.asarray(is_whole))).tolist()
        codes, none = codes.tolist(), (~np.asarray(is_whole)).tolist()
        rows = []
        for lane in self.reader.lanes[step]:
            row = zip(codes[lane], none[lane], same[lane], strict=True)
            rows.append([-1 - code if one else None if no else code for code, no, one in row])
        return rows

    def _lanes(self, step: int) -> list[_Lane]:
        row = self.reader.table[step]
        warp = int(row["launch"]), int(row["block"]), int(row["warp"])
        return [self.lanes.setdefault((*warp, lane), _Lane()) for lane in self.reader.lanes[step]]

    def _words(self, step: int, lane: int) -> tuple[tuple[int, int, int], int, bool]:
        """The first word of an access, as a key of `memory`; its size; whether it is input."""
        row = self.reader.table[step]
        part = row["lane"][lane]
        array = self.reader.arrays[int(part["array"])]
        shared = array.space == "shared"
        scope = (int(row["launch"]), int(part["owner"])) if shared else (-1, -1)
        size = array.element if not int(row["bytes"]) % array.element else int(row["bytes"])
        is_input = array.name == self.input_name and array.launch == 0 and not shared
        return (*scope, array.base + int(part["offset"])), size, is_input

    def _element(self, key: tuple[int, int, int], size: int, step: int) -> int | None:
        """The number of the element of the input at a word."""
        array = self.reader.arrays[self.reader.array_of(step) or 0]
        number, within = divmod(key[2] - array.base, size)
        return number if not within and number < len(self.codes) else None

    def _load(self, step: int) -> list[Parts | None]:
        found: list[Parts | None] = []
        everything = zip(
            self._lanes(step), self.reader.lanes[step], self._codes(step, "value"), strict=True
        )
        for registers, lane, codes in everything:
            key, size, is_input = self._words(step, lane)
            parts: list[Parts | None] = []
            for i, code in enumerate(codes):
                word = (*key[:2], key[2] + i * size)
                element = self._element(word, size, step) if is_input else None
                if element is not None and code == self.codes[element]:
                    parts.append(Parts(1 << element))
                else:
                    parts.append(self._stored(registers, word, code))
            found.append(self._take(registers, codes, parts))
        return found

    def _stored(
        self, registers: _Lane, word: tuple[int, int, int], code: int | None
    ) -> Parts | None:
        """The parts of a word that the kernel has stored, or that was there before."""
        if word in self.memory or code is None or code >= 0:
            stored, parts = self.memory.get(word, (0, Parts()))
            return parts if stored == code else None
        registers.foreign.add(-1 - code)
        return Parts(foreign=True)

    @staticmethod
    def _take(registers: _Lane, codes: list[int | None], parts: list[Parts | None]) -> Parts | None:
        """Adds the elements of a load to a lane's registers. Returns the parts of their sum."""
        total, together = 0, Parts()
        for code, part in zip(codes, parts, strict=True):
            if code is None or part is None or code < 0:
                return part
            total, together = total + code & _MASK, together + part
            if len(codes) > 1:
                registers.known.setdefault(code, part)
        registers.take(total, together)
        return together

    def _pass(self, step: int, registers: _Lane, code: int | None) -> Parts | None:
        """The parts of a value that a lane stores or gives to others."""
        if code is not None and code < 0:
            return Parts(foreign=True) if -1 - code in registers.foreign else None
        parts = None if code is None else registers.explain(code)
        if parts is None and self.unknown is None:
            self.unknown = step
        return parts

    def _store(self, step: int) -> list[Parts | None]:
        found: list[Parts | None] = []
        everything = zip(
            self._lanes(step), self.reader.lanes[step], self._codes(step, "value"), strict=True
        )
        for registers, lane, codes in everything:
            key, size, _ = self._words(step, lane)
            together: Parts | None = Parts()
            for i, code in enumerate(codes):
                parts = self._pass(step, registers, code)
                self._keep((*key[:2], key[2] + i * size), code, parts)
                if parts is not None and together is not None:
                    together = together + parts
                elif not i or code is None or code >= 0:  # else a mark beside the sum
                    together = None
            found.append(together)
        return found

    def _keep(self, word: tuple[int, int, int], code: int | None, parts: Parts | None) -> None:
        if parts is None or code is None:
            self.memory.pop(word, None)
        else:
            self.memory[word] = code, parts

    def _atomic(self, step: int) -> tuple[list[Parts | None], list[Parts | None]]:
        before: list[Parts | None] = []
        after: list[Parts | None] = []
        everything = zip(
            self._lanes(step), self.reader.lanes[step], self._codes(step, "value"),
            self._codes(step, "result"), strict=True,
        )  # fmt: skip
        for registers, lane, old, new in everything:
            key, _, _ = self._words(step, lane)
            stored, parts = self.memory.get(key, (0, Parts()))
            added = None
            if stored == old[0] and new[0] is not None and new[0] >= 0:
                added = self._pass(step, registers, new[0] - stored & _MASK)
            before.append(parts if stored == old[0] else None)
            after.append(None if added is None else parts + added)
            self._keep(key, new[0], after[-1])
        return before, after

    def _copy(self, step: int) -> None:
        (lane,) = self.reader.lanes[step]
        row = self.reader.table[step]
        offset, array = map(int, row["lane"][lane]["value"])
        to, size = self._words(step, lane)[0], self.reader.arrays[array].element
        for i in range(int(row["bytes"]) // size):
            element = offset // size + i
            if self.reader.arrays[array].name == self.input_name and element < len(self.codes):
                word = (*to[:2], to[2] + i * size)
                self.memory[word] = self.codes[element], Parts(1 << element)

    def _exchange(self, step: int, adds: bool) -> tuple[list[Parts | None], list[Parts | None]]:
        registers = self._lanes(step)
        given = [codes[0] for codes in self._codes(step, "value")]
        got = [codes[0] for codes in self._codes(step, "result")]
        values = [self._pass(step, *each) for each in zip(registers, given, strict=True)]
        by_code = dict(zip(given, values, strict=True))
        if adds and None not in values and None not in given:
            together = Parts()
            for parts in values:
                together = together + (parts or Parts())
            by_code[sum(code or 0 for code in given) & _MASK] = together
        results = [by_code.get(code) for code in got]
        for lane, code, parts in zip(registers, got, results, strict=True):
            self._take(lane, [code], [parts])
        return values, results


def _whole(numbers: _Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers as integers; 0 for those that are none."""
    if numbers.dtype.kind in "iu":
        return numbers.astype(np.int64)
    wide = numbers.astype(np.float64)
    return np.where(np.abs(wide) < 2**62, wide, 0).astype(np.int64)


def _together(numbers: Sequence[float]) -> int:
    """The code of an element."""
    return (
        sum(int(number) * int(factor) for number, factor in zip(numbers, _FACTORS, strict=False))
        & _MASK
    )
