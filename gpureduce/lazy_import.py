"""Imports of modules when they are first used."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from types import ModuleType

# Python's lock of a half imported module stays locked in a child made by fork(). So a fork waits
# until the imports of other threads have ended, and an import waits until the forks of other
# threads have. Each writes its own entry first and then looks for the other's, so of two that
# begin together one sees the other. Both waits have a limit: an entry stays if a signal handler
# raises just before it would be removed, and an import may itself be waited for.
#
# A module that is imported at a first use must not set a handler that runs before forks, as logging
# does. That one takes a lock before ours waits for the import, and the import may need the lock.
_importing: dict[object, int] = {}  # an entry per import under way: the thread's number
_forking: dict[int, bool] = {}  # the numbers of the threads that fork
_PATIENCE_S = 2.0


def _before_fork() -> None:
    this_thread = threading.get_ident()
    _forking[this_thread] = True
    if this_thread in _importing.values():
        return  # another thread may wait for this import
    if not _emptied(_importing):
        _importing.clear()


def _after_fork() -> None:
    _forking.pop(threading.get_ident(), None)


def _in_child() -> None:
    """Drops the entries of other threads, which the child does not have."""
    this_thread = threading.get_ident()
    for entry, thread in list(_importing.items()):
        if thread != this_thread:
            del _importing[entry]
    _forking.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def load(name: str) -> ModuleType:
    """The module ``gpureduce.<name>``."""
    return load_other(f"gpureduce.{name}")


def load_other(name: str) -> ModuleType:
    """A module of any package."""
    found = sys.modules.get(name)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    this_thread, entry = threading.get_ident(), object()
    within_another = this_thread in _importing.values()
    if found is not None:
        if within_another:
            raise ImportError(
                f"a signal handler cannot use {name}, as it interrupts the import of that module; "
                "a program whose handlers call gpureduce makes such a call once before it sets them"
            )
        return importlib.import_module(name)
    try:
        _importing[entry] = this_thread
        while _forking and not within_another and this_thread not in _forking:
            del _importing[entry]
            if not _emptied(_forking):
                _forking.clear()
            _importing[entry] = this_thread
        return importlib.import_module(name)
    finally:
        _importing.pop(entry, None)


def _emptied(entries: dict[object, int] | dict[int, bool]) -> bool:
    """Wait until there are no entries left; False if some are still there after _PATIENCE_S."""
    end = time.monotonic() + _PATIENCE_S
    while entries and time.monotonic() < end:
        time.sleep(0.001)
    return not entries
