"""Imports of gpureduce's own modules when they are first used."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from types import ModuleType

# Python's lock of a half imported module stays locked in a child made by fork(), so a fork waits
# until other threads have imported. The wait has a limit: an entry stays if a signal handler raises
# at the very end of load().
_importing: dict[object, int] = {}  # an entry per import under way: the thread's number
_PATIENCE_S = 2.0


def _before_fork() -> None:
    if threading.get_ident() in _importing.values():
        return  # another thread may wait for this import
    end = time.monotonic() + _PATIENCE_S
    while _importing and time.monotonic() < end:
        time.sleep(0.001)
    _importing.clear()


os.register_at_fork(before=_before_fork, after_in_child=_importing.clear)


def load(name: str) -> ModuleType:
    """The module ``gpureduce.<name>``."""
    name = f"gpureduce.{name}"
    if name in sys.modules:
        return importlib.import_module(name)
    entry = object()
    try:
        _importing[entry] = threading.get_ident()
        return importlib.import_module(name)
    finally:
        _importing.pop(entry, None)
