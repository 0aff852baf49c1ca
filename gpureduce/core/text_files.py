"""Text files that people name: kernels, specs, records. A device such as /dev/zero never ends."""

from __future__ import annotations

import os
from pathlib import Path

MOST_BYTES = 1 << 26


def read(path: str | os.PathLike[str]) -> str:
    """The text of a file. Raises a ValueError if it is no UTF-8, or too large."""
    with Path(path).open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")  # as Python's text files
