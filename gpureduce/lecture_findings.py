"""What the lectures' experiments show, in tables; the same as `gpureduce.lectures.findings`."""

from gpureduce.lectures.findings import (
    blocks_started,
    busiest,
    counted,
    ends,
    filled,
    order,
    swapped,
)

__all__ = ["blocks_started", "busiest", "counted", "ends", "filled", "order", "swapped"]
