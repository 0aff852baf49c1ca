"""Calls in threads with the smallest stack that Python allows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


def run(calls: Sequence[Callable[[], object]]) -> None:
    """Makes each call in such a thread, and before in this one, with the imports that it makes."""
    for call in calls:
        call()
    threading.stack_size(32 * 1024)
    for call in calls:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
