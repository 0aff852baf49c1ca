"""A progress bar on standard error."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from gpureduce.bench.runner import Progress

_WIDTH = 24


def _columns_of(screen: TextIO) -> int:
    """The width of a terminal. `shutil` asks standard output's, which may be a file."""
    try:
        found = os.get_terminal_size(screen.fileno()).columns
    except (AttributeError, OSError, ValueError):
        found = 0
    return found or 80


def progress_bar(done: int, total: int, text: str) -> None:
    """Draws the progress bar on one line, and erases it at the end."""
    columns = _columns_of(sys.stderr) - 1
    full = _WIDTH * done // total
    line = f"[{'#' * full}{'.' * (_WIDTH - full)}] {done}/{total} {text}"
    end = "\r" if done < total else f"\r{' ' * columns}\r"
    sys.stderr.write(f"\r{line[:columns].ljust(columns)}{end}" if done < total else end)
    sys.stderr.flush()


def progress() -> Progress | None:
    """The progress callback of a long command: the bar on a terminal, otherwise None."""
    return progress_bar if sys.stderr.isatty() else None
