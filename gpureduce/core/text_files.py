"""Text files that users name: kernels, specs, records. Sizes are limited: /dev/zero never ends."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 1 << 26


class FileError(ValueError):
    """A file has wrong contents. The message names the file."""


def read(path: str | os.PathLike[str]) -> str:
    """The text of a file. Raises a ValueError if it is no UTF-8, or too large."""
    with Path(path).open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")  # as Python's text files


def write(path: Path, text: str) -> None:
    """Writes a text file, as `replacing` does."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path`, renamed to it at the end: readers see the old or the whole new one.

    Links and what is no file, such as /dev/stdout, are written to and stay what they are.
    """
    if _is_standard_output(path):
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    half = path.with_name(f".gpureduce-{os.getpid()}-{threading.get_ident()}")
    try:
        with half.open("wb") as file:
            yield file
        if path.exists():
            shutil.copymode(path, half)
        os.replace(half, path)
    except BaseException as error:
        half.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(half)):  # None: a full disk
            error.filename, error.filename2 = str(path), None
        raise


def _is_standard_output(path: Path) -> bool:
    """Whether both are the same open file: replacing it would lose what is printed later."""
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (AttributeError, OSError, ValueError):
        return False
