"""The files that commands write.

No command overwrites its input. It replaces an existing file if that is an earlier output of the
same kind, or with --force.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpureduce.core import json_files, text_files

_COMMENTED = (".svg", ".html")


FORCE: dict[str, Any] = {  # the option --force
    "action": "store_true",
    "help": "replace an existing file, also if it is no earlier output of this command",
}


def checked(
    named: str | None, option: str, kind: str, suffixes: Sequence[str], *,
    inputs: Iterable[str | os.PathLike[str]] = (), force: bool = False, head: str = "",
) -> Path | None:  # fmt: skip
    """The path that an option names, checked before anything is computed. None for None.

    `kind` is that of a JSON record, or the comment at the end of a picture. `head` is the first
    line of a CSV file. These tell earlier outputs of a command from other files.
    """
    if named is None:
        return None
    path = Path(named)
    if path.exists() and not path.is_file() and not path.is_dir():
        return path  # a pipe or a device, which keeps nothing
    if path.suffix not in suffixes:
        raise ValueError(f"{option} must end in {' or '.join(suffixes)}, not {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file for {option}")
    if not os.access(path.resolve().parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.resolve()))
    if not path.exists():
        return path
    for given in inputs:
        if os.path.exists(given) and os.path.samefile(path, given):
            raise ValueError(f"{option} would overwrite the input {given}: name another file")
    if not force and path.stat().st_size and not _is_earlier(path, kind, head):
        how = "add --force" if option.startswith("--") else "give force=True"
        raise FileExistsError(
            f"{path} exists and is not known as an earlier output: name another file, or {how} to "
            "replace it"
        )
    return path


def _is_earlier(path: Path, kind: str, head: str) -> bool:
    """Whether the file is an output of this kind. A .npy header does not name its kind."""
    try:
        if path.suffix == ".json":
            found = json_files.read(path)  # of any schema
            return isinstance(found, dict) and found.get("kind") == kind
        text = text_files.read(path)
    except (OSError, ValueError):
        return False
    if path.suffix in _COMMENTED:
        return text.endswith(_comment(kind))
    return bool(head) and text.startswith(head)


def _comment(kind: str) -> str:
    return f"<!-- gpureduce {kind} -->\n"


def write(path: Path, text: str, kind: str = "") -> None:
    """Writes a text. A picture or page ends in a comment that names its kind."""
    end = _comment(kind) if path.suffix in _COMMENTED else ""
    text_files.write(path, text + end)


def write_new(folder: Path, files: Mapping[Path, str | bytes]) -> None:
    """Writes the files of a folder that is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not empty: name another folder")
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with text_files.replacing(path) as file:
            file.write(data.encode() if isinstance(data, str) else data)
