"""Files of kernels on the command line, in place of a strategy's name."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from gpureduce.core import output_files
from gpureduce.kernels.kernel import Kernel, kernel

NAME_OR_FILE = "a name, or the file of a kernel of yours"


def kernel_paths(words: Iterable[str | None]) -> list[str]:
    """The files of kernels among names of strategies."""
    paths = [(word or "").partition(":")[0] for word in words]
    return [path for path in paths if path.endswith((".cu", ".cuh"))]


def strategy_or_kernel(text: str) -> str | Kernel:
    """A strategy's name as it is, or the kernel in a file. FILE.cu:NAME is one of several."""
    file, name = file_and_name(text)
    return kernel(Path(file), name) if kernel_paths([file]) else text


def file_and_name(text: str, name: str | None = None) -> tuple[str, str | None]:
    """The file of FILE.cu:NAME, and the kernel's name; `name` is that of --name."""
    file, _, behind = text.partition(":")
    if not behind or not kernel_paths([file]):
        return text, name
    if name not in (None, behind):
        raise ValueError(f"{text} names {behind}, and --name {name}: give only one of the two")
    return file, behind


def target(
    arguments: argparse.Namespace, option: str, kind: str, *words: str | None
) -> Path | None:
    """The file of an option, checked before anything runs. `words` may name files of kernels."""
    suffix = ".svg" if option == "svg" else ".html"
    return output_files.checked(
        getattr(arguments, option), f"--{option}", kind, (suffix,),
        inputs=kernel_paths(words), force=arguments.force,
    )  # fmt: skip
