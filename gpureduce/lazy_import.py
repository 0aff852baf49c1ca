"""Imports of gpureduce's own modules when they are first used."""

from __future__ import annotations

import importlib
import os
import threading
from types import ModuleType

# A fork waits until another thread has imported: Python's locks of half imported modules would stay
# locked in the child.
_importing = threading.RLock()
os.register_at_fork(
    before=_importing.acquire,
    after_in_parent=_importing.release,
    after_in_child=_importing.release,
)


def load(name: str) -> ModuleType:
    """The module ``gpureduce.<name>``."""
    with _importing:
        return importlib.import_module(f"gpureduce.{name}")
