"""The order in which the emulator runs threads and blocks."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from gpureduce.core.checks import one_of, whole

#: The orders in which the emulator can run threads; see `schedule`.
ORDERS = ("forward", "reverse", "random", "lockstep")


class Schedule(NamedTuple):
    """The order in which the emulator runs threads and blocks.

    >>> import gpureduce
    >>> gpureduce.emulator.Schedule("random", seed=7)
    Schedule(order='random', seed=7)
    """

    order: str = "forward"
    seed: int = 0

    @property
    def number(self) -> int:
        """The C code's number of the order."""
        return ORDERS.index(self.order)

    @property
    def traced(self) -> bool:
        """Whether the order needs the traced build: lockstep needs a hook at every access."""
        return self.order == "lockstep"


_FORWARD = Schedule()
CURRENT: ContextVar[Schedule] = ContextVar("gpureduce_schedule", default=_FORWARD)


def checked(schedule: Schedule) -> Schedule:
    """Returns a valid schedule. Raises an error that lists the valid ones."""
    one_of("schedule", schedule.order, ORDERS)
    whole("seed", schedule.seed, 0, 2**64 - 1)
    return schedule


def current() -> Schedule:
    """The schedule that the next emulated sum will use.

    >>> import gpureduce
    >>> gpureduce.emulator.current()
    Schedule(order='forward', seed=0)
    """
    return CURRENT.get()
