"""Tries a kernel: many sizes, blocks, grids and orders of threads, with numbers that show mistakes.

Runs in the process for kernels. A failing case is made smaller, and the elements that were left out
or counted twice are named.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from gpureduce import _emulator, _emulator_traced, _host
from gpureduce.core import bounds, dtypes, registry, running_on_device
from gpureduce.core.dtypes import Array
from gpureduce.core.plan import Launch
from gpureduce.core.registry import Strategy
from gpureduce.core.schedule import ORDERS
from gpureduce.emulator import trace
from gpureduce.errors import CudaError
from gpureduce.kernels import faults
from gpureduce.kernels.conditions import Domain
from gpureduce.text import ranges

BLOCKS = (32, 64, 96, 128, 160, 256, 512, 1024)
_MORE_BLOCKS = (192, 224, 320, 416, 480, 768, 992)  # with a few sizes each
_MANY_BLOCKS = ((128, 4099), (256, 20011), (1024, 9 * 8192 + 7), (32, 9 * 8192))
_PRIMES = (7, 97, 1009)
# Kinds of numbers. The first ones whose sums are wrong are shown.
_NUMBERS = ("different", "zeros and ones", "fractions", "cancellation", "nan")
_DRAWN = 12  # sizes drawn by the seed
_MOST_TRIED = 1500  # sizes, to find the smallest that fails
MOST_NAMED = 2048  # elements, to find out which of them is missing
_ANYWHERE = Domain()
ON_CARD = "the card's"  # order
_AGAIN = (
    "a second sum with the same scratch memory is {0.got}, not {0.expected}; a kernel leaves its "
    "ticket, or the marks of its block sums, as it finds them: 0"
)
_MOST_S = 0.5  # a larger case is left out if it would take longer
# Of numbers whose digits count how often elements were added: bases, each for n up to a limit.
_BASES = ((8, MOST_NAMED), (1024, 256))


@dataclass(frozen=True)
class Case:
    """One try: the size and the launch, the order of threads, and what kind of numbers."""

    n: int
    block: int
    grid: int
    order: str
    numbers: str
    dtype: str

    def __str__(self) -> str:
        grid = f", grid = {self.grid}" if self.grid else ""
        how = "on the card" if self.order == ON_CARD else f"threads in {self.order} order"
        kind = "" if self.numbers in ("different", "races") else f" ({self.numbers})"
        return f"n = {self.n}, block = {self.block}{grid}, {self.dtype}{kind}, {how}"


@dataclass(frozen=True)
class Failure:
    """A case with a wrong sum or a fault.

    `got` and `expected` are the sums as text. `fault` says what ended the launch; if `ended`, it
    ended the process. `counted` lists elements with how often each was added, where that is not
    once. `again`: only the second launch is wrong, which adds up the block sums of the first.
    `entry`: of running sums, the place of the first wrong one, of which `got` and `counted` tell.
    """

    case: Case
    got: str = ""
    expected: str = ""
    fault: str = ""
    counted: tuple[tuple[int, int], ...] = ()
    ended: bool = False
    again: bool = False
    entry: int | None = None

    @property
    def what(self) -> str:
        """What came out wrong: the sum, or the first wrong one of the running sums."""
        return "the sum" if self.entry is None else f"entry {self.entry} of the running sums"

    @property
    def elements(self) -> str:
        """Which elements were left out, and which were added more than once."""
        parts = []
        for times in sorted({times for _, times in self.counted}):
            members = [i for i, count in self.counted if count == times]
            how = {0: "left out", 2: "added twice"}.get(times, f"added {times} times")
            noun, verb = ("element", "was") if len(members) == 1 else ("elements", "were")
            parts.append(f"{noun} {ranges(members, ' to ')} {verb} {how}")
        return "; ".join(parts)

    @property
    def narrow(self) -> str:
        """The variable that is too narrow for the sum, if one explains it; else empty."""
        got, expected = _number(self.got), _number(self.expected)
        if not math.isfinite(got + expected) or not got:
            return ""
        for bits in (8, 16, 32) if got % 1 == 0 == expected % 1 else ():
            if (int(got) - int(expected)) % 2**bits == 0 and -(2 ** (bits - 1)) <= got < 2**bits:
                return f"the sum wrapped around in a variable of {bits} bits"
        for kind in (np.float32, np.float16):
            if abs(expected) < float(np.finfo(kind).max) and float(kind(expected)) == got:
                return f"the sum was rounded in a variable of type {kind.__name__}"
        return ""


def _number(text: str) -> float:
    """A sum from its text: floats do not hold the digits of large integers."""
    return int(text) if text.lstrip("-").isdecimal() else float(text or "nan")


def told(error: str) -> str:
    """The emulator's message on a failed launch, without the name of the runtime's call."""
    return error.partition("\n")[2] or error


@dataclass(frozen=True)
class Subject:
    """A kernel with one pair of types, ready to run."""

    strategy: Strategy
    dtype: str
    load: int
    acc: int
    finish: int
    text: str  # of the kernel, for messages
    # By the emulator that sees accesses whose values the kernel does not use.
    traced: bool = field(default=False, kw_only=True)
    entry: int = field(default=-1, kw_only=True)  # of running sums, where one number is asked for

    @property
    def _elements(self) -> np.dtype[Any]:
        return dtypes.named(self.dtype)

    @property
    def is_float(self) -> bool:
        """Whether it adds up floats."""
        return self.acc in (_host.ACC_F32, _host.ACC_F64)

    def by_host(self) -> Self:
        """The same kernel, but the host adds up its block sums. The same if it has none."""
        if self.strategy.traits & _host.FINISHES or self.strategy.kind == "scan":
            return self
        strategy = dataclasses.replace(self.strategy, finishes=("host",))
        return dataclasses.replace(self, finish=registry.finish_number("host"), strategy=strategy)

    def run(self, array: Array, case: Case, traced: bool = False, fresh: bool = True) -> Array:
        """The sum that the kernel leaves, or all entries. Raises CudaError for a fault.

        The traced emulator knows the line of an illegal access. Without `fresh`, scratch memory and
        ticket are as the sum before has left them.
        """
        lockstep = case.order.startswith("lockstep")
        module = _emulator_traced if traced or self.traced or lockstep else _emulator
        if fresh:  # memory of exactly this size, and nothing left of the case before
            module.free_scratch()
        return self._run_on(module, array, case)

    def _run_on(self, module: Any, array: Array, case: Case) -> Array:
        return self._entries(module.sum(array, self._launch(case))[0])

    def operations(self, case: Case) -> tuple[dict[str, int], int, Failure | None]:
        """The counters and the blocks of a case's launches, and what is wrong with its sums."""
        array = self.numbers(case)
        _emulator_traced.free_scratch()
        counters, blocks, got = self._counted_on(array, case)
        if case.order == "lockstep":  # counts are made in the usual order
            return counters, blocks, self.wrong(case)
        return counters, blocks, self._judged(array, case, got)

    def _counted_on(self, array: Array, case: Case) -> tuple[dict[str, int], int, Array]:
        # The memory ends where the array ends. So that it begins at a sector, as a card's memory
        # does, it is first taken for an array of whole sectors.
        _emulator_traced.sum(np.zeros(-(-case.n // 32) * 32, array.dtype), self._launch(case))
        bits, counters, blocks = trace.count_sum(array, self._launch(case))
        return counters, blocks, self._entries(bits)

    def _launch(self, case: Case) -> Launch:
        order, _, seed = case.order.partition(" ")
        return Launch(self.strategy.index, self.load, self.acc, case.block, case.grid,
                      self.finish, 0, ORDERS.index(order), int(seed or 0), False)  # fmt: skip

    def _entries(self, bits: bytes) -> Array:
        return np.frombuffer(bits, dtypes.number_of(self.acc), count=1)

    def numbers(self, case: Case) -> Array:
        """The elements of a case."""
        random = np.random.Generator(np.random.PCG64(case.n * 2048 + case.block))
        if case.numbers == "nan":
            array = np.ones(case.n, self._elements)
            array[case.n * 2 // 3] = math.nan
            return array
        if case.numbers == "cancellation":
            return _cancelling(random, case.n).astype(self._elements)
        if case.numbers == "zeros and ones":
            return random.integers(0, 2, case.n).astype(self._elements)
        if case.numbers == "fractions":
            whole = self.numbers(dataclasses.replace(case, numbers="different"))
            return (whole * 2.0 ** (-6 if self.dtype == "float16" else -20)).astype(self._elements)
        if self.dtype == "bool":
            return random.integers(0, 2, case.n).astype(bool)
        if not self.is_float:
            info = np.iinfo(self._elements)
            return random.integers(info.min, info.max, case.n, self._elements, endpoint=True)
        # Whole numbers, all different where there are few, whose sums are exact in any order.
        bits = {"float16": 11, "bfloat16": 8}.get(self.dtype, 24)
        most = min(2**bits, 2**24 // case.n)
        if most > 2 * case.n:
            return (1 + random.permutation(case.n)).astype(self._elements)
        return random.integers(1, max(2, most), case.n).astype(self._elements)

    def wrong(self, case: Case) -> Failure | None:
        """What is wrong with the sum of a case; None if nothing is."""
        array = self.numbers(case)
        try:
            got = self.run(array, case)
            failure = self._judged(array, case, got)
            if failure is None and self.strategy.traits & (_host.TICKET | _host.MARKED_BLOCKS):
                other = array.copy()  # so that the sum before is no right answer
                other[0] = 0 if other[0] else 1
                failure = self._judged(other, case, self.run(other, case, fresh=False))
                return failure and dataclasses.replace(failure, fault=_AGAIN.format(failure))
        except (CudaError, ValueError) as error:
            return Failure(case, fault=self.fault(error))
        return failure

    def _judged(self, array: Array, case: Case, got: Array) -> Failure | None:
        """What is wrong with a sum, or with the first wrong entry; None if nothing is."""
        wanted = self.wanted(array)
        wrong = got != wanted
        if self.is_float:
            bound: Any = 0.0
            if case.numbers == "cancellation":
                magnitude = self.wanted(np.abs(array.astype(np.float64)))
                bound = magnitude * bounds.in_any_order(case.n, got.dtype.name, 1.0)
            far = np.abs(got.astype(np.float64) - wanted)
            wrong = ~((far <= bound) | (np.isnan(got) & np.isnan(wanted)))
        if not wrong.any():
            return None
        at = int(np.argmax(wrong))
        entry = at if self.strategy.kind == "scan" else None
        return Failure(case, self._shown(got[at]), self._shown(wanted[at]), entry=entry)

    def wanted(self, array: Array) -> Array:
        """The right sum, or the right entries: floats, or unsigned numbers that wrap around."""
        if self.is_float:
            return np.array([math.fsum(array.astype(np.float64).tolist())])
        wide = np.uint64 if array.dtype.kind == "u" else np.int64
        return np.array([array.sum(dtype=wide)]).astype(dtypes.number_of(self.acc))

    def fault(self, error: Exception) -> str:
        """The message for a failed launch."""
        return faults.readable(told(str(error)), self.text)

    def with_line(self, failure: Failure) -> Failure:
        """A fault as the traced emulator tells it, if it is found there, too."""
        try:
            self.run(self.numbers(failure.case), failure.case, traced=True)
        except CudaError as error:
            return dataclasses.replace(failure, fault=self.fault(error))
        return failure

    def _shown(self, total: Any) -> str:
        """A sum as text: accumulators are unsigned, also for signed elements."""
        if self.is_float:
            return repr(float(total))
        bits = 8 * dtypes.number_of(self.acc).itemsize
        signed = self._elements.kind == "i" and total >= 2 ** (bits - 1)
        return str(int(total) - 2**bits if signed else total)

    def counted(self, failure: Failure) -> tuple[tuple[int, int], ...]:
        """The elements that are not added exactly once, with how often they are.

        Of running sums, those up to the first wrong entry.
        """
        case, entry = failure.case, failure.entry
        if entry is not None:
            found = dataclasses.replace(self, entry=entry)._miscounted(case)
            return tuple(
                next((up for one in found if (up := [x for x in one if x[0] <= entry])), ())
            )
        ones = self._sum_of(np.ones(case.n, self._elements), case)
        if self._sum_of(np.zeros(case.n, self._elements), case) != 0:
            return ()  # the elements are not all that it adds
        if ones and ones != case.n and ones % case.n == 0:
            times = ones // case.n
            small = np.arange(case.n) % 5
            if self._sum_of(small.astype(self._elements), case) == times * int(small.sum()):
                return tuple((i, times) for i in range(case.n))
        return tuple(next((x for x in self._miscounted(case) if x and self._explains(x, case)), ()))

    def _miscounted(self, case: Case) -> Iterator[list[tuple[int, int]]]:
        """By numbers to each base: the elements that are not added exactly once."""
        for base, most in _BASES:
            if case.n <= min(most, MOST_NAMED):
                yield self._by_digits(case, base)

    def _by_digits(self, case: Case, base: int) -> list[tuple[int, int]]:
        """The elements that are not added exactly once, if all are added less than `base` times.

        Several elements are counted by one sum: the k-th of them is a power of `base`, so the sum's
        digits tell how often each was added.
        """
        digits = 7 if self.acc != _host.ACC_F64 else 15
        digits = digits * 3 // (base.bit_length() - 1)
        kind, size = self._elements.kind, self._elements.itemsize
        if kind in "biu":
            most = {"b": 1, "i": 2 ** (8 * size - 1) - 1, "u": 2 ** (8 * size) - 1}[kind]
        else:
            most = 65504 if self.dtype == "float16" else 2**63
        while digits > 1 and base ** (digits - 1) > most:
            digits -= 1
        found = []
        for first in range(0, case.n, digits):
            array = np.zeros(case.n, self._elements)
            part = array[first : first + digits]
            part[:] = [base**k for k in range(part.size)]
            rest = self._sum_of(array, case)
            if rest is None:
                return []
            for k in range(part.size):
                rest, times = divmod(rest, base)
                if times != 1:
                    found.append((first + k, times))
        return found

    def _sum_of(self, array: Array, case: Case) -> int | None:
        """The kernel's sum; None for a fault, and for one that is not finite."""
        try:
            total = self.run(array, case)[self.entry]
        except CudaError:
            return None
        return int(total) if math.isfinite(total) else None

    def _explains(self, found: list[tuple[int, int]], case: Case) -> bool:
        """Whether the elements that are not added once account for the wrong sum."""
        array = self.numbers(case)
        got = self._sum_of(array, case)
        if got is None:
            return False
        values: list[Any] = array.tolist()
        expected = sum(values) + sum((times - 1) * values[i] for i, times in found)
        if self.is_float:
            return bool(expected == got)
        modulus: int = 2 ** (8 * dtypes.number_of(self.acc).itemsize)
        return (int(expected) - got) % modulus == 0


@dataclass(frozen=True)
class ScanSubject(Subject):
    """A kernel that makes running sums."""

    def _run_on(self, module: Any, array: Array, case: Case) -> Array:
        order, _, seed = case.order.partition(" ")
        how = self._arguments(module, array, case)
        module.run(*how, 0, ORDERS.index(order), int(seed or 0))
        return self._unsigned(how[-1])

    def _counted_on(self, array: Array, case: Case) -> tuple[dict[str, int], int, Array]:
        how = self._arguments(_emulator_traced, array, case)
        return *trace.count_sum(*how)[1:], self._unsigned(how[-1])

    def _arguments(self, module: Any, array: Array, case: Case) -> tuple[Any, ...]:
        return running_on_device.arguments_of_run(
            module, self.strategy, array, array.dtype, case.block, case.grid
        )

    def _unsigned(self, numbers: Array) -> Array:
        return numbers if self.is_float else numbers.view(f"u{numbers.itemsize}")

    def wanted(self, array: Array) -> Array:
        """The right entries. Sums of whole numbers below 2^24 and of nan are right in any order."""
        if self.is_float:
            return np.cumsum(array.astype(np.float64))
        return np.cumsum(self._unsigned(array), dtype=f"u{array.itemsize}")

    def other(self, where: Domain) -> str:
        """What the kernel makes in place of running sums, if that is known; else empty."""
        blocks = where.condition.blocks
        block = 64 if 64 in blocks else blocks[0]
        part = block * where.per_thread
        sizes = (part,) if where.within else (part, 3 * part)
        return next(filter(None, (self._other(n, block, part) for n in sizes)), "")

    def _other(self, n: int, block: int, part: int) -> str:
        case = Case(n, block, 0, "forward", "different", self.dtype)
        array = self.numbers(case)
        try:
            got, wanted = self.run(array, case), self.wanted(array)
        except (CudaError, ValueError):
            return ""
        known = {
            "": wanted,
            "exclusive running sums: entry i lacks element i": np.r_[wanted[:1] * 0, wanted[:-1]],
            "running sums from the last element on": self.wanted(array[::-1].copy())[::-1],
            "running sums that begin anew with each block": np.concatenate(
                [self.wanted(one) for one in np.split(array, n // part)]
            ),
        }
        return next((name for name, one in known.items() if np.array_equal(got, one)), "")


def subject_of(strategy: Strategy, *how: Any) -> Subject:
    """The subject of a kernel that makes sums, or running sums."""
    return (ScanSubject if strategy.kind == "scan" else Subject)(strategy, *how)


def _cancelling(random: np.random.Generator, n: int) -> Array:
    large = random.integers(1, 1000, n) * 2.0**5  # float16 ends at 65504
    large[n // 2 :] = -large[: n - n // 2]
    return large + random.random(n)


def _sizes(block: int, per_thread: int) -> list[int]:
    part = block * per_thread
    borders = [1, 2, block - 1, block, block + 1, part - 1, part, part + 1]
    borders += [2 * part - 1, 2 * part, 2 * part + 1, 3 * part + block // 2 + 1, *_PRIMES]
    borders += [*_large(part)]
    return sorted({n for n in borders if n > 0})


def _large(part: int) -> tuple[int, int]:
    """A large size that fills blocks, and one that does not."""
    full = -(-5000 // part) * part
    return full, full + part // 2 + 1


def _grids(traits: int) -> tuple[int, ...]:
    if not traits & _host.MANY or traits & _host.ALONE:
        return (0,)
    if traits & _host.CLUSTER:
        return 0, _host.CLUSTER_BLOCKS
    return 0, 1, 3


def tried_blocks(where: Domain) -> list[int]:
    """The blocks to try: the usual ones and those that the text or the user names."""
    blocks = {*BLOCKS, *where.named, *where.condition.only}
    return sorted(block for block in blocks if where.condition.allows_block(block))


def _usual(subject: Subject, where: Domain, seed: int) -> Iterator[Case]:
    traits, dtype = subject.strategy.traits, subject.dtype
    for block in tried_blocks(where):
        part = block * where.per_thread
        for n in where.sizes or [*_sizes(block, where.per_thread), *([part - 4] * where.within)]:
            for grid in _grids(traits):
                for order in ("forward", "reverse", f"random {n % 7}"):
                    if grid and order != "forward" and n < block:
                        continue
                    yield Case(n, block, grid, order, "different", dtype)
    for block in _MORE_BLOCKS:
        part = block * where.per_thread
        for n in (part, 3 * part + 7, _large(part)[0]):
            yield Case(n, block, 0, f"random {n % 7}", "different", dtype)
    for block in (64, 96, 256):
        yield Case(2 * block + 1, block, 0, "lockstep", "different", dtype)
    for block, n in (*_MANY_BLOCKS, (256, 2**18 + 7)):
        yield Case(n, block, 0, "forward", "different", dtype)
        part = block * where.per_thread
        yield Case(n // part * part, block, 0, "forward", "different", dtype)
    random = np.random.Generator(np.random.PCG64(seed))
    for n in random.integers(2, 20000, _DRAWN).tolist():
        yield Case(n, BLOCKS[n % len(BLOCKS)], 0, f"random {n}", "different", dtype)
    for numbers in _NUMBERS[1:] if subject.is_float and "float" in dtype else _NUMBERS[1:2]:
        for block, n in ((32, 97), (96, 1009), (256, 4099), (128, 4096), (64, 1024)):
            for order in ("forward", "random 1"):
                yield Case(n, block, 0, order, numbers, dtype)


def cases(subject: Subject, seed: int = 0, where: Domain = _ANYWHERE) -> Iterator[Case]:
    """All cases of a domain, the small ones first; the last sizes are drawn by the seed."""
    return _allowed(_usual(subject, where, seed), where)


def _allowed(which: Iterable[Case], where: Domain) -> Iterator[Case]:
    """Cases with sizes of whole vectors or in one block, each once, where a domain allows them."""
    if where.multiple > 1 or where.within:
        which = dict.fromkeys(
            dataclasses.replace(case, n=where.nearest(case.block, case.n)) for case in which
        )
    return (case for case in which if where.allows(case.block, case.n))


def in_lockstep(subject: Subject, where: Domain) -> Iterator[Case]:
    """Cases in which the lanes of a warp run in lockstep."""
    return _allowed(_in_lockstep(subject, where), where)


def _in_lockstep(subject: Subject, where: Domain) -> Iterator[Case]:
    for block in tried_blocks(where):
        part = block * where.per_thread
        for n in (1, block - 1, part, part + 1, 2 * part, 3 * part + block // 2 + 1, *_large(part)):
            for order in ("lockstep", "lockstep 1"):
                yield Case(n, block, 0, order, "different", subject.dtype)


def drawn(subject: Subject, where: Domain, count: int, seed: int) -> Iterator[Case]:
    """Cases that a domain allows, in orders and for blocks and sizes that are drawn."""
    random = np.random.Generator(np.random.PCG64([seed, count]))
    blocks = where.condition.blocks
    for i in range(count):
        block = int(random.choice(blocks))
        part = block * where.per_thread
        n = int(np.exp(random.uniform(0, np.log(20000))))
        n = min(n, part) if where.within else n
        if where.condition.full:
            n = part if where.alone else -(-n // part) * part
        n = int(random.choice(where.sizes)) if where.sizes else where.rounded(n)
        order = f"lockstep {i % 2}" if where.condition.lockstep else f"random {i}"
        order = "reverse" if order.startswith("random") and i % 5 == 0 else order
        yield Case(n, block, 0, order, "different", subject.dtype)


def try_all(
    subject: Subject, which: Iterable[Case], tell: Callable[[str, object], None]
) -> list[tuple[Case, Failure | None]]:
    """Runs the cases, but skips those that are too large for a slow kernel.

    Returns each case with what was wrong, or None.
    """
    tried = []
    largest, took = 1, 0.0  # of the largest case
    for case in which:
        if took * case.n > _MOST_S * largest:
            continue
        tell("case", case)
        start = time.process_time()
        tried.append((case, subject.wrong(case)))
        if case.n >= largest:
            largest, took = case.n, time.process_time() - start
    return tried


def smallest(
    subject: Subject, failures: list[Failure], tell: Callable[[str, object], None],
    where: Domain = _ANYWHERE,
) -> Failure:  # fmt: skip
    """The smallest failing case near those that failed, with the elements that it miscounts.

    A sum that the elements do not explain has often read what lies behind them: then a fault tells
    more, if there was one.
    """
    usual = dataclasses.replace(where.condition, powers=True)
    if where.condition.blocks and any(usual.allows_block(f.case.block) for f in failures):
        where = where.under(usual)  # other blocks have faults of their own
        failures = [failure for failure in failures if usual.allows_block(failure.case.block)]
    named = [block for block in where.named if block < BLOCKS[-1]]  # which fit all arrays
    if there := [failure for failure in failures if failure.case.block in named]:
        only, failures = dataclasses.replace(where.condition, only=tuple(named)), there
        where = where.under(only)
    faults = [failure for failure in failures if failure.fault]
    wrong_sums = [failure for failure in failures if not failure.fault]
    found = _shrunk(subject, wrong_sums or faults, tell, where)
    if faults and not (found.fault or found.counted):
        found = _shrunk(subject, faults, tell, where)
    by_host = subject.by_host()
    again = by_host is not subject and by_host.wrong(found.case) is None
    return dataclasses.replace(found, again=again)


def _shrunk(
    subject: Subject, failures: list[Failure], tell: Callable[[str, object], None], where: Domain
) -> Failure:
    best = min(
        failures,
        key=lambda f: (_NUMBERS.index(f.case.numbers), f.case.n, f.case.block, f.case.grid),
    )
    faulty = bool(best.fault)

    def first_of(smaller: Iterable[dict[str, int]]) -> None:
        nonlocal best
        for change in smaller:
            case = dataclasses.replace(best.case, **change)  # type: ignore[arg-type]
            if not where.allows(case.block, case.n):
                continue
            tell("case", case)
            failure = subject.wrong(case)
            if failure and bool(failure.fault) == faulty:
                best = failure
                return

    first_of({"n": n} for n in range(1, min(best.case.n, _MOST_TRIED)))
    first_of({"block": block} for block in BLOCKS if block < best.case.block)
    if best.fault:
        return subject.with_line(best)
    if best.case.numbers != "different":
        return best
    return dataclasses.replace(best, counted=subject.counted(best))
