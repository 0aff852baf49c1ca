"""Calls that take an array of a producer, and the check of their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

import gpureduce
from tools.fuzz import values
from tools.fuzz.outcomes import Answer, Failure, Mischief, attempt, check_injected

KERNELS = [s.name for s in gpureduce.strategies() if s.kind == "kernel"]
# They take every dtype.
CHOICES = ("fast", "exact", "auto")
MOST_STRIDED_DIMS = 8
_DTYPES = (*values.NAMES, "int", float, ">f4", "junk", "M8[s]", "O", object(), 7)


@dataclass
class Consumer:
    """A call, and what is asked of its result."""

    run: Callable[[Any], Any]
    strategy: str | None  # None: an accumulator's
    dtype: Any = None

    @property
    def name(self) -> str:
        return f"{self.strategy or 'Accumulator'}, dtype={self.dtype}"

    @property
    def plain(self) -> bool:
        """Whether it takes any array that is whole."""
        return self.dtype is None and self.strategy in CHOICES

    def check(self, value: Any, totals: list[tuple[str, complex | int]]) -> None:
        """Fail unless the value is the sum of one of these, given as names of dtypes and totals."""
        wrong = []
        for name, total in totals:
            wrong.append(values.difference(value, total, self._result(name)))
            if not wrong[-1]:
                return
        raise Failure(" and ".join(map(str, wrong)))

    def _result(self, name: str) -> np.dtype[Any]:
        if self.dtype is None:
            return values.default_result(name)
        dtype = values.dtype_of(self.dtype) if isinstance(self.dtype, str) else self.dtype
        return np.dtype(dtype).newbyteorder("=")


def _summing(rng: Random) -> Consumer:
    name = rng.choice((*CHOICES, *CHOICES, *CHOICES, rng.choice(KERNELS)))
    dtype = rng.choice(_DTYPES) if rng.random() < 0.3 else None
    words: dict[str, Any] = {"device": "emulator"}
    if rng.random() < 0.5:
        words["timing"] = False
    if rng.random() < 0.1:
        words["stream"] = rng.choice((1, 2, 12345))
    return Consumer(lambda a: gpureduce.sum(a, name, dtype=dtype, **words).value, name, dtype)


def _accumulating(rng: Random) -> Consumer:
    dtype = rng.choice((*values.FLOATS, *values.COMPLEX))

    def run(array: Any) -> Any:
        total = gpureduce.Accumulator(dtype)
        try:
            return total.add(array, device="emulator").value()
        except BaseException:
            if total.count or total != gpureduce.Accumulator(dtype):
                raise Failure("an array that failed was added in part") from None
            raise

    return Consumer(run, None, dtype)


def _on_host(rng: Random) -> Consumer:
    """A call that finds no GPU to read the array on."""
    name = rng.choice(("cpu", "numpy", "exact", "auto"))
    return Consumer(lambda a: gpureduce.sum(a, name, timing=rng.random() < 0.5).value, "host", name)


def _left_there(rng: Random) -> Consumer:
    """A sum that stays on the device, by the kernels of sums along axes."""
    name, timing = rng.choice(CHOICES), rng.random() < 0.5

    def run(array: Any) -> Any:
        found = gpureduce.sum(array, name, device="emulator", result="device", timing=timing)
        return found.value.to_numpy()[()]

    return Consumer(run, name)


def _as_a_part(rng: Random) -> Consumer:
    name = rng.choice(CHOICES)
    return Consumer(lambda a: gpureduce.sum_parts([a], name, device="emulator").value, name)


def consumer(rng: Random) -> Consumer:
    kinds = (_summing, _summing, _summing, _accumulating, _on_host, _left_there, _as_a_part)
    return rng.choice(kinds)(rng)


_ONES = np.ones(3000, np.int32)


def check_next(rng: Random) -> None:
    """The call after a case: it must work, whatever happened in the case."""
    name = rng.choice(("fast", "sequential", "last_block", "tiles", "cpu"))
    device = None if name == "cpu" else "emulator"
    answer = attempt(lambda: gpureduce.sum(_ONES, name, device=device, timing=False).value)
    if answer.value != 3000:
        raise Failure(f"the next call, {name}, gave {answer.value} {answer.error!r}, not 3000")


RIGHT, RAISES, EITHER, UNCHECKED = "right", "raises", "either", "unchecked"


def both(first: str, second: str) -> str:
    """The expectation for an array with two changes: the laxer one, unless one must be refused."""
    order = (RIGHT, EITHER, UNCHECKED)
    if RAISES in (first, second):
        return RAISES if {first, second} <= {RAISES, RIGHT} else UNCHECKED
    return max(first, second, key=order.index)


@dataclass
class Case:
    """A producer in the making, and what must come of it.

    `wanted` is RIGHT (the value, or one of `refusals`), RAISES, EITHER (the right value or a
    documented error) or UNCHECKED (anything documented).
    """

    rng: Random
    view: values.View
    wanted: str = field(default=RIGHT, kw_only=True)
    injected: list[BaseException] = field(default_factory=list, kw_only=True)
    totals: list[tuple[str, complex | int]] = field(default_factory=list, kw_only=True)

    def expect(self, wanted: str) -> None:
        """Note what must come of a change."""
        self.wanted = both(self.wanted, wanted)

    def mischief(self) -> Any:
        """Raise an exception of a producer's own."""
        made = self.rng.choice((Mischief, KeyboardInterrupt))("by the producer")
        self.injected.append(made)
        raise made

    @property
    def refusals(self) -> tuple[type[BaseException], ...]:
        """The errors that a whole array may get."""
        return (BufferError,) * (len(self.view.shape) > MOST_STRIDED_DIMS)

    def outcome(self, used: Consumer, array: object, refusals: tuple[type, ...]) -> str:
        """The outcome of a call with the producer's array, and of the next call."""
        found = self._judge(attempt(lambda: used.run(array)), used, refusals)
        if self.rng.random() < 0.2:
            check_next(self.rng)
        return found

    def _judge(self, answer: Answer, used: Consumer, refusals: tuple[type, ...]) -> str:
        found = check_injected(answer, self.injected)
        if found:
            return found
        if answer.error is not None:
            if self.wanted == RIGHT and used.plain and not isinstance(answer.error, refusals):
                raise Failure(f"a whole array was refused: {answer.error!r}") from answer.error
            return answer.name
        if used.strategy == "host" and self.wanted == RIGHT:
            raise Failure("a GPU's memory was read by the host")
        if self.wanted == RAISES:
            raise Failure(f"an array that cannot be was summed: {answer.value!r}")
        if self.wanted == UNCHECKED or used.strategy == "host":
            return "unchecked"
        used.check(answer.value, self.totals)
        return "right"


class Index:
    """A number that runs code when it is asked for."""

    def __init__(self, number: int, run: Callable[[], object]) -> None:
        self.number, self.run = number, run

    def __index__(self) -> int:
        self.run()
        return self.number
