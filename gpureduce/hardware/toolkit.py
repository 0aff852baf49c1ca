"""Finds the programs of the CUDA toolkit. setup.py runs this file too, without gpureduce."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def find(name: str) -> Path | None:
    """The path of a program such as nvcc; None if there is none.

    It is looked for in the environment variable of its name (NVCC), in CUDA_HOME and CUDA_PATH, on
    PATH, in the toolkit's usual place, and in the nvidia-* wheels.
    """
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    candidates = [os.environ.get(name.upper())]
    candidates += [f"{home}/bin/{name}" for home in homes if home]
    candidates += [name, f"/usr/local/cuda/bin/{name}"]
    for entry in sys.path:
        candidates += [str(path) for path in Path(entry or ".").glob(f"nvidia/cu*/bin/{name}")]
    for candidate in candidates:
        found = shutil.which(candidate) if candidate else None
        if found:
            return Path(found).absolute()
    return None
