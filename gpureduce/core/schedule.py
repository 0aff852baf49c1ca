"""The order in which the emulator runs threads and blocks."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from gpureduce.core.checks import one_of, whole

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
        """The order as the C code counts it."""
        return ORDERS.index(self.order)

    @property
    def traced(self) -> bool:
        """Lanes can only be stepped from access to access where each access has a hook."""
        return self.order == "lockstep"


_FORWARD = Schedule()
CURRENT: ContextVar[Schedule] = ContextVar("gpureduce_schedule", default=_FORWARD)


def checked(schedule: Schedule) -> Schedule:
    """The schedule that was given, or an error that says what there is."""
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
