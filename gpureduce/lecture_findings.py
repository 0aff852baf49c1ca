"""Tables of findings from the lectures' experiments: an alias of `gpureduce.lectures.findings`."""

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
