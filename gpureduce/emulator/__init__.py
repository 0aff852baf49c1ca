"""Controls of the emulated GPU: the order of threads, and the memory limit."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from gpureduce import _emulator, _emulator_traced, _host
from gpureduce.core.checks import whole
from gpureduce.core.schedule import CURRENT, ORDERS, Schedule, checked, current

__all__ = ["ORDERS", "Schedule", "current", "live_bytes", "memory_limit", "schedule"]

_tokens = itertools.count()


def schedule(order: str, seed: int = 0) -> AbstractContextManager[Schedule]:
    """Run the threads of emulated kernels in another order, for the length of a ``with`` block.

    A correct kernel gives the same answer in every order that CUDA allows. ``"forward"`` runs
    thread 0 first, ``"reverse"`` the last one; ``"random"`` shuffles threads and blocks, afresh
    after each barrier and the same way for the same `seed`; ``"lockstep"`` steps the 32 lanes of a
    warp through their memory accesses together, as GPUs did before Volta. After the block the order
    is the one before, even if a signal handler raises while the block is entered or left.

    >>> import gpureduce, numpy as np
    >>> with gpureduce.emulator.schedule("random", seed=7):
    ...     int(gpureduce.sum(np.arange(100), strategy="sequential", device="emulator").value)
    4950
    """
    return _host.ContextValue(CURRENT, checked(Schedule(order, seed)))


@contextmanager
def memory_limit(nbytes: int) -> Iterator[None]:
    """Give the emulated device only `nbytes` of memory, for the length of a ``with`` block.

    The limit applies to all threads. Of several limits, the last one set applies; at the end of its
    block, the previous one applies again.

    >>> import gpureduce, numpy as np
    >>> with gpureduce.emulator.memory_limit(2**20):
    ...     int(gpureduce.sum(np.ones(2**19, int), "sequential", device="emulator").value)
    524288
    """
    nbytes = whole("nbytes", nbytes, 1, sys.maxsize)
    token = next(_tokens)
    # A signal handler may raise after any call, so each of the two limits is removed by a separate
    # call. If a handler raises while the block is entered or left, the limits are removed when the
    # exception's frames are freed.
    try:
        _emulator.memory_limit(token, nbytes)
        _emulator_traced.memory_limit(token, nbytes)
        yield
    finally:
        try:
            _emulator.memory_limit(token, 0)
        finally:
            _emulator_traced.memory_limit(token, 0)


def live_bytes() -> int:
    """How many bytes are allocated on the emulated device now.

    Between calls, these are buffers kept for the next call. `gpureduce.free_scratch` frees them.

    >>> import gpureduce, numpy as np
    >>> result = gpureduce.sum(np.ones(1000), "sequential", device="emulator")
    >>> gpureduce.emulator.live_bytes() > 0
    True
    """
    return _emulator.live_bytes() + _emulator_traced.live_bytes()
