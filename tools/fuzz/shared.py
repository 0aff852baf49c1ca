"""Memory that a worker shares with its parent: the case that it is at, counts and notes."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from tools.fuzz import outcomes

CASE, STARTED_NS, FIRST_COUNT = 0, 1, 2
_NOTES = 8 * (FIRST_COUNT + len(outcomes.NAMES))
_BYTES = _NOTES + 256


def create(path: Path) -> None:
    """Make the file behind it; no case has begun."""
    path.write_bytes(b"\xff" * 8 + bytes(_BYTES - 8))


def open_memory(path: Path) -> tuple[memoryview, memoryview]:
    """Its words, as signed integers, and the text of the notes behind them."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        memory = memoryview(mmap.mmap(descriptor, _BYTES))
        return memory[:_NOTES].cast("q"), memory[_NOTES:]
    finally:
        os.close(descriptor)


def count(memory: memoryview, name: str) -> None:
    memory[FIRST_COUNT + outcomes.NAMES.index(name)] += 1


def counts(memory: memoryview) -> dict[str, int]:
    return dict(zip(outcomes.NAMES, memory[FIRST_COUNT:].tolist(), strict=True))
