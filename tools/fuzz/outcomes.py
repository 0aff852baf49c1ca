"""Outcomes of a case: the documented ones, which are counted, and failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpureduce

DOCUMENTED = {
    "CudaError": gpureduce.CudaError,
    "BufferError": BufferError,
    "MemoryError": MemoryError,
    "OverflowError": OverflowError,
    "TypeError": TypeError,
    "ValueError": ValueError,
}
# All names that a case may return. Their counts lie in shared memory in this order.
NAMES = (
    "right",
    "unchecked",
    *DOCUMENTED,
    "OSError",
    "interrupted",
    "own exception",
    "exit 0",
    "exit 1",
    "exit 2",
    "warned",
    "failed",
)


class Failure(Exception):
    """The error that a case found."""


class Mischief(Exception):
    """Raised by a producer or a signal handler; must reach the caller unchanged."""


@dataclass
class Answer:
    """The value that a call returned, or the exception that it raised."""

    value: Any = None
    error: BaseException | None = None

    @property
    def name(self) -> str:
        """The name of the documented class of the error; Failure if there is none."""
        for name, kind in DOCUMENTED.items():
            if isinstance(self.error, kind):
                return name
        raise Failure(f"undocumented {describe(self.error)}") from self.error


def attempt(call: Callable[[], Any]) -> Answer:
    try:
        return Answer(call())
    except Failure:
        raise
    except BaseException as error:
        return Answer(error=error)


def describe(error: BaseException | None) -> str:
    text = str(error).partition("\n")[0][:160]
    return f"{type(error).__name__}: {text}"


def check_injected(answer: Answer, injected: list[BaseException]) -> str | None:
    """The outcome where user code raised: that exception must reach the caller."""
    if not injected:
        return None
    if answer.error not in injected:
        got = "was lost" if answer.error is None else f"became {describe(answer.error)}"
        raise Failure(f"{describe(injected[0])} {got}") from answer.error
    return "own exception" if isinstance(answer.error, Mischief) else "interrupted"
