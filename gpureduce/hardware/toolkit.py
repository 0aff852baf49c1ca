"""Finds the programs of the CUDA toolkit. setup.py runs this file too, without gpureduce."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

USUAL_PLACE = "/usr/local/cuda"


def find(name: str) -> Path | None:
    """The path of a program such as nvcc; None if there is none.

    It is looked for in the environment variable of its name (NVCC), in CUDA_HOME and CUDA_PATH, on
    PATH, in the toolkit's usual place, and in the nvidia-* wheels.
    """
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    candidates = [os.environ.get(name.upper())]
    candidates += [f"{home}/bin/{name}" for home in homes if home]
    candidates += [name, f"{USUAL_PLACE}/bin/{name}"]
    for entry in sys.path:
        candidates += [str(path) for path in Path(entry or ".").glob(f"nvidia/cu*/bin/{name}")]
    for candidate in candidates:
        found = shutil.which(candidate) if candidate else None
        if found:
            return Path(found).absolute()
    return None


def find_library(name: str) -> Path | None:
    """The path of a library such as nvrtc; None if there is none.

    It is looked for in the environment variable of its name (NVRTC), in CUDA_HOME and CUDA_PATH, in
    the toolkit's usual place, in the nvidia-* wheels, and on LD_LIBRARY_PATH.
    """
    named = os.environ.get(name.upper())
    if named:
        return Path(named) if Path(named).is_file() else None
    file = f"lib{name}.so"
    for home in filter(None, (*map(os.environ.get, ("CUDA_HOME", "CUDA_PATH")), USUAL_PLACE)):
        for folder in ("lib64", "lib"):
            if (Path(home) / folder / file).is_file():
                return Path(home) / folder / file
    folders = [f"{entry or '.'}/nvidia" for entry in sys.path]
    patterns = [(folder, f"cu[0-9]*/lib/{file}*") for folder in folders]
    patterns += [(folder, f"cuda_{name}/lib/{file}*") for folder in folders]
    patterns += [(path, f"{file}*") for path in os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    for place, pattern in patterns:
        if found := sorted(Path(place).glob(pattern)) if place else []:
            return found[-1]
    return None


def headers(beside: Path | None) -> list[Path]:
    """The folders of the toolkit's headers: those beside a library of it, else any; [] if none."""
    places = [beside.parent.parent / "include"] if beside else []
    places += [Path(home) / "include" for home in (os.environ.get("CUDA_HOME"), USUAL_PLACE)
               if home]  # fmt: skip
    for entry in sys.path:
        for pattern in ("nvidia/cu[0-9]*/include", "nvidia/cuda_runtime/include"):
            places += Path(entry or ".").glob(pattern)
    for place in places:
        if (place / "cuda_fp16.h").is_file():
            return [place, place / "cccl"]
    return []
