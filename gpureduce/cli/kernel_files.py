"""Files of kernels on the command line, in place of a strategy's name."""

from __future__ import annotations

from pathlib import Path

from gpureduce.kernels.kernel import Kernel, kernel

NAME_OR_FILE = "a name, or the file of a kernel of yours"


def strategy_or_kernel(text: str) -> str | Kernel:
    """A strategy's name as it is, or the kernel in a file. FILE.cu:NAME is one of several."""
    path, _, name = text.partition(":")
    return kernel(Path(path), name or None) if path.endswith((".cu", ".cuh")) else text
