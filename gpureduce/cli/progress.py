"""A progress bar for a long sum of a file: how much of the file has been read."""

from __future__ import annotations

import mmap
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpureduce.bench.progress import progress_bar
from gpureduce.core.text_files import FileError
from gpureduce.text import size_text

_AFTER_S = 1.0  # shorter sums have no bar
_EACH_S = 0.2


def _read_so_far() -> tuple[int, int]:
    """The bytes of files in this process's memory, and those that it has read from disks."""
    pages = int(Path("/proc/self/statm").read_text().split()[2])
    found = re.search(r"^read_bytes: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    return pages * mmap.PAGESIZE, int(found[1]) if found else 0


@contextmanager
def shown(nbytes: int) -> Iterator[None]:
    """Shows on a terminal how much of a mapped file has been read, until the block ends.

    A file in the page cache adds to the process's memory. A file larger than the memory adds to
    the reads from disks.
    """
    try:
        before = _read_so_far()
    except (OSError, ValueError, IndexError):  # not Linux
        before = None
    if before is None or not nbytes or not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()

    def draw() -> None:
        wait = _AFTER_S
        while not ended.wait(wait):
            wait = _EACH_S
            grown = (now - then for now, then in zip(_read_so_far(), before, strict=True))
            done = min(max(0, *grown), nbytes)
            said = f"{size_text(done)} of {size_text(nbytes)} read"
            progress_bar(min(100 * done // nbytes, 99), 100, said)
        if wait != _AFTER_S:
            progress_bar(100, 100, "")  # erases it

    drawing = threading.Thread(target=draw, daemon=True)
    drawing.start()
    try:
        yield
    finally:
        ended.set()
        drawing.join()


@contextmanager
def reading(*arrays: Any) -> Iterator[None]:
    """The same for arrays that NumPy has mapped. Raises if a file became shorter meanwhile.

    A page that such a file ends in has zeros in place of the lost elements. To read the pages after
    it ends the process by SIGBUS.
    """
    with shown(sum(array.nbytes for array in arrays)):
        yield
    for array in arrays:
        if array.base.size() < array.offset + array.nbytes:  # of the file, which the map holds open
            raise FileError(f"{array.filename} became shorter while it was read")
