"""The kernels' source text, as it was when gpureduce was built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpureduce.core import json_files, registry


def files() -> dict[str, list[str]]:
    """The lines of every file in csrc/kernels, by its path."""
    texts: dict[str, list[str]] = json_files.packaged("_kernels.json")
    return texts


def add(file: str, text: str) -> None:
    """Keeps the text of a user's kernel, so that reports show the lines that they name."""
    files()[file] = text.splitlines()


def text_of(file: str, line: int) -> str:
    """The text of line `line` of a kernel's file, counted from 1; empty if unknown.

    >>> text_of("csrc/kernels/sequential.cu", 2 * 10**9)
    ''
    """
    lines = files().get(file, [])
    return lines[line - 1].strip() if 1 <= line <= len(lines) else ""


@dataclass(frozen=True, order=True)
class Place:
    """A line of a kernel's source: the file's bare name, the line from 1, and the line's text."""

    file: str
    line: int
    text: str

    @property
    def key(self) -> str:
        """File and line alone."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.key}  {self.text}"


@dataclass(frozen=True)
class Source:
    """The file of a kernel; ``str`` of it is the text.

    Attributes
    ----------
    file
        Its path in the source tree.
    text
        The whole file.

    Examples
    --------
    >>> import gpureduce
    >>> print(gpureduce.source("sequential").text.splitlines()[0])
    /* sequential: stride from half the block downward.
    """

    file: str
    text: str

    @property
    def code(self) -> str:
        """The kernel alone, without the head comment, which gives its lesson away."""
        return self.text[self.text.index("template") :]

    def __str__(self) -> str:
        return self.text


def source(strategy: str) -> Source:
    """The kernel that a strategy runs, as it was when gpureduce was built.

    >>> import gpureduce
    >>> print(gpureduce.source("sum_seq").file)
    csrc/kernels/sequential.cu
    """
    name = registry.find(strategy).name
    for file, lines in files().items():
        if Path(file).stem == name:
            return Source(file, "\n".join(lines))
    raise ValueError(f"{name} has no kernel file of its own")
