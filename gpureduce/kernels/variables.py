"""The ``__device__`` variables of a kernel's libraries, as they are before its first launch.

Launches leave values there, for the next launch. A check restores them to tell whether these
values make a sum wrong.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

_MOST_BYTES = 1 << 24  # of libraries with more, nothing is saved
_LOAD, _RELRO, _WRITABLE = 1, 0x6474E552, 2  # in ELF program headers
loaded: list[str] = []  # paths of libraries
_saved: list[tuple[int, bytes]] = []


def _spans() -> Iterator[tuple[int, int]]:
    """The address and size of each writable segment of the libraries."""
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    starts = {row[-1]: int(row[0].partition("-")[0], 16) for row in maps
              if len(row) > 5 and not int(row[2], 16)}  # fmt: skip
    page = os.sysconf("SC_PAGESIZE")
    for path in map(os.path.realpath, loaded):
        if path not in starts:
            continue
        with open(path, "rb") as file:
            head = file.read(64)
            size, count = struct.unpack_from("<2H", head, 54)
            file.seek(*struct.unpack_from("<Q", head, 32))
            rows = [struct.unpack_from("<2I6Q", file.read(size)) for _ in range(count)]
        fixed = max((row[3] + row[6] for row in rows if row[0] == _RELRO), default=0)
        for kind, flags, _, first, _, _, bytes_, _ in rows:
            if kind == _LOAD and flags & _WRITABLE:
                start = max(first, fixed // page * page)
                yield starts[path] + start, first + bytes_ - start


def save() -> None:
    """Saves the variables of the loaded libraries."""
    spans = list(_spans()) if os.path.exists("/proc/self/maps") else []
    if sum(size for _, size in spans) <= _MOST_BYTES:
        _saved[:] = [(address, ctypes.string_at(address, size)) for address, size in spans]


def restore() -> None:
    """Gives the variables the saved values."""
    for address, data in _saved:
        ctypes.memmove(address, data, len(data))
