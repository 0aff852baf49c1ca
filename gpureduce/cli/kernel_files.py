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
    name = text.partition(":")[2]
    return kernel(Path(*paths), name or None) if (paths := kernel_paths([text])) else text


def picture(arguments: argparse.Namespace, kind: str, *words: str | None) -> Path | None:
    """The file of --svg, checked before anything runs. `words` may name files of kernels."""
    inputs = kernel_paths(words)
    return output_files.checked(
        arguments.svg, "--svg", kind, (".svg",), inputs=inputs, force=arguments.force
    )
