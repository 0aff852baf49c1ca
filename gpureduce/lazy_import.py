"""Imports of gpureduce's own modules when they are first used."""

from __future__ import annotations

import importlib
import os
import threading
from types import ModuleType

# Python's lock of a half-imported module stays locked in a child of fork(). So fork() waits until
# the imports of other threads are done. Importing threads do not wait for each other.
_changed = threading.Condition()
_importing: dict[int, int] = {}  # number of running imports, by thread


def _before_fork() -> None:
    _changed.acquire()
    _changed.wait_for(lambda: not _importing.keys() - {threading.get_ident()})


os.register_at_fork(
    before=_before_fork, after_in_parent=_changed.release, after_in_child=_changed.release
)


def load(name: str) -> ModuleType:
    """The module ``gpureduce.<name>``."""
    thread = threading.get_ident()
    with _changed:
        _importing[thread] = _importing.get(thread, 0) + 1
    try:
        return importlib.import_module(f"gpureduce.{name}")
    finally:
        with _changed:
            _importing[thread] -= 1
            if not _importing[thread]:
                del _importing[thread]
            _changed.notify_all()
