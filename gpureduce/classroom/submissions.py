"""Submissions of a class: a folder of files or of folders, as learning systems name them.

Names and contents are those of strangers. No link is followed, nothing is executed or unpacked.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gpureduce.core import text_files
from gpureduce.kernels.kernel import Kernel, Limits, kernel
from gpureduce.kernels.notebook import arguments, kernel_of_cell
from gpureduce.kernels.source_text import KernelError
from gpureduce.text import size_text, visible

T = TypeVar("T")
SUFFIXES = (".cu", ".cuh", ".py", ".ipynb")
_MOST_BYTES, _NOTEBOOK_BYTES = 1 << 20, 16 << 20  # a notebook has pictures
_MOST_ENTRIES = 200  # of a student's folder, and folders below it
_NOT_READ = (".", "__")
_MOODLE = re.compile(r"(?P<student>.+?)_(?P<id>\d+)_assignsubmission_.*", re.S)
_CANVAS = re.compile(  # -1 is that of a file that is handed in again
    r"(?P<student>[^_]+)_(?P<late>LATE_)?(?P<id>\d+)_\d+_(?P<file>.+?)(-\d+)?", re.I | re.S
)


@dataclass(frozen=True)
class Submission:
    """The file of a student, or why there is none; the learning system's number; whether late."""

    student: str
    path: str | None = None
    problem: str = ""
    id: str = ""
    remark: str = ""


def find(folder: Path, name: str) -> list[Submission]:
    """The submissions in a folder, sorted by student. `name` is the kernel's, or empty."""
    entries = [one for one in os.scandir(folder) if not one.name.startswith(_NOT_READ)]
    prefix = _classroom_prefix(folder, entries)
    groups: dict[tuple[str, str], tuple[list[Path], set[str]]] = {}
    for one in sorted(entries, key=lambda one: one.name):
        is_folder, path = os.path.isdir(one), Path(one.path)  # a link raises no error in these
        found = _MOODLE.fullmatch(one.name) or (None if is_folder else _CANVAS.fullmatch(one.name))
        if not (is_folder or _ending(path) in SUFFIXES or found):
            continue
        stem = one.name if is_folder else path.stem
        student, number = found.group("student", "id") if found else (stem.removeprefix(prefix), "")
        who = " ".join(visible(student or stem).split()), number
        paths, marks = groups.setdefault(who, ([], set()))
        marks |= {"late"} if found and found.groupdict().get("late") else set()
        if one.is_symlink():
            marks.add("link")
        elif is_folder or (one.is_file() and _ending(path) in SUFFIXES):
            paths += _files_below(path) if is_folder else [path]
    submissions = []
    for (student, number), (paths, marks) in groups.items():
        file, problem = None, ""
        try:
            file = str(_chosen(paths, name))
        except KernelError as error:
            problem = f"{error}; links are not followed" if "link" in marks else str(error)
        submissions.append(Submission(student, file, problem, number, "late" * ("late" in marks)))
    return submissions


def in_folder(folder: Path, name: str) -> Path:
    """The file in the folder of one student. Raises a KernelError that says why none is it."""
    return _chosen(_files_below(folder), name)


def _classroom_prefix(folder: Path, entries: list[os.DirEntry[str]]) -> str:
    """What GitHub Classroom puts before the names of students: that of the assignment."""
    if folder.name.endswith("-submissions"):
        return folder.name.removesuffix("submissions")
    repositories = [one.name for one in entries if os.path.exists(Path(one.path) / ".git")]
    letters = itertools.takewhile(lambda at: len({*at}) == 1, zip(*repositories, strict=False))
    common = "".join(at[0] for at in letters) if len(repositories) > 1 else ""
    return common[: common.rfind("-") + 1]


def _files_below(folder: Path) -> list[Path]:
    """The files of kernels in a folder and those below it."""
    found: list[Path] = []
    for seen, (place, folders, names) in enumerate(os.walk(folder)):
        folders[:] = sorted(f for f in folders if not f.startswith(_NOT_READ))
        paths = (Path(place, name) for name in sorted(names)[:_MOST_ENTRIES] if name[0] != ".")
        found += [path for path in paths if _ending(path) in SUFFIXES and _is_plain(path)]
        if seen == _MOST_ENTRIES:
            break
    return found


def _ending(path: Path) -> str:
    return path.suffix.lower()


def _is_plain(path: Path) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _chosen(paths: list[Path], name: str) -> Path:
    """The one file that has the kernel."""
    if not paths:
        raise KernelError(f"there is no file with the ending {', '.join(SUFFIXES)}")
    left = paths
    for pattern in (rb"__global__", rb"\b%s\b" % name.encode()) if len(paths) > 1 else ():
        left = [path for path in left if re.search(pattern, _data(path))] or left
    # Without the ending, and without what Canvas puts around a student's name of a file.
    stems = [m["file"] if (m := _CANVAS.fullmatch(one.stem)) else one.stem for one in left]
    if stems.count(name) == 1:
        left = [left[stems.index(name)]]
    if len(left) > 1:
        names = ", ".join(path.name for path in left[:5])
        raise KernelError(visible(f"there are {len(left)} files: which one of {names}?"))
    return left[0]


def _data(path: Path) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(_NOTEBOOK_BYTES)
    return b""


def read(path: Path, name: str, limits: Limits | None = None) -> Kernel:
    """The kernel of a submission. Raises an OSError, or a ValueError that says what is wrong."""
    most, size = _NOTEBOOK_BYTES if _ending(path) == ".ipynb" else _MOST_BYTES, path.lstat().st_size
    if not _is_plain(path):
        raise KernelError(f"{path.name} is not a file")
    if size > most:
        raise KernelError(f"the file has {size_text(size)}; at most {size_text(most)} are allowed")
    try:
        text = text_files.read(path)
    except ValueError as error:
        raise KernelError(str(error)) from None
    if _ending(path) == ".ipynb":
        line, cell = _cell(text, name)
        return kernel_of_cell(arguments(line), cell, limits)
    if _ending(path) == ".py":
        text = _string(text, name)
    if "\n" not in text:
        text += "\n"  # no path
    return kernel(text, name or None, limits=limits)


def _cell(text: str, name: str) -> tuple[str, str]:
    """The arguments of a notebook's last ``%%kernel`` cell of this name, and the cell below."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        raise KernelError("the notebook is not JSON: save it again in Jupyter") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    found: dict[str, tuple[str, str]] = {}
    for cell in cells if isinstance(cells, list) else ():
        source: Any = cell.get("source") if isinstance(cell, dict) else None
        if isinstance(source, list):
            source = "".join(part for part in source if isinstance(part, str))
        head, _, body = source.lstrip().partition("\n") if isinstance(source, str) else ("",) * 3
        magic = re.fullmatch(r"%%kernel\s+((\w+).*)", head.rstrip())
        if magic and cell.get("cell_type") == "code":
            found[magic[2]] = magic[1], body
    return _one_of(found, name, "cell that begins with %%kernel")


def _string(text: str, name: str) -> str:
    """The string with a kernel in a Python file, which is not executed."""
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise KernelError(f"it is not valid Python: {error}") from None
    found: dict[str, str] = {}
    for node in nodes:
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and "__global__" in value:
            named = re.search(r"__global__[^;{]*?\b(\w+)\s*\(", value)
            found[named[1] if named else f"string {len(found)}"] = value
    return _one_of(found, name, "string with a kernel")


def _one_of(found: dict[str, T], name: str, what: str) -> T:
    if name in found or len(found) == 1:
        return found.get(name) or next(iter(found.values()))
    called = f" called {name}" if name else ""
    raise KernelError(f"there must be one {what}{called}; there are {', '.join(found) or 'none'}")
