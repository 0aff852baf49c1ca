"""Notes on the current case, which the parent prints if the case fails.

They lie in shared memory, so that they are there after a crash, too.
"""

from __future__ import annotations

_memory = memoryview(bytearray(256))
_used = 0


def keep_in(memory: memoryview) -> None:
    """Write into that memory from now on."""
    global _memory
    _memory = memory


def clear() -> None:
    global _used
    _used = 0
    _memory[0] = 0


def add(text: str) -> None:
    """Add a note; what does not fit is left out."""
    global _used
    said = f"{text}; ".encode()[: len(_memory) - 1 - _used]
    _memory[_used : _used + len(said)] = said
    _used += len(said)
    _memory[_used] = 0


def read(memory: memoryview) -> str:
    return bytes(memory).partition(b"\0")[0].decode(errors="replace").rstrip("; ")
