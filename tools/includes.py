"""Checks the layers of C's includes, calls of Python, circles of calls in C, and repeated names.

``python tools/includes.py`` exits with 0 if so.

A file may include files of its own folder and of later entries in LAYERS. Folders of one entry may
not include each other. Kernels may include only `kernels/parts` and KERNELS_MAY_INCLUDE.
"""

from __future__ import annotations

import graphlib
import re
import sys
from pathlib import Path

CSRC = Path(__file__).resolve().parents[1] / "csrc"
LAYERS = (
    {"bindings/device"},
    {"cuda", "emulator"},
    {"engine"},
    {"transfer"},
    {"backend"},
    {"bindings/host"},
    {"bindings"},
    {"segments"},
    {"exact"},
    {"cpu"},
    {"shared"},
    {"threads"},
)
# Compiled into every backend, from engine/kernel_table.cu.
KERNELS_MAY_INCLUDE = {"kernels", "shared", "exact"}
# Headers that exist twice, in csrc/cuda and in csrc/emulator/include.
EITHER = {"device.h", "kernel_entry.h"}
PYTHON = re.compile(r"#include <(Python|numpy/\w+)\.h>")
CALLS_PYTHON = re.compile(r"\bPy(Object_(Call|Vectorcall)|Import_)\w*\(")
# What is decided in Python is decided before C is called.
MAY_CALL_PYTHON = {
    "device/dlpack.c": "asks producers of arrays",
    "device/cuda_interface.c": "asks producers of arrays",
    "device/gpu_job.c": "loads a user's kernel for a dtype; raises Python's errors",
    "device/run.c": "raises CudaError",
    "gil.c": "finds the main thread",
    "host/context_value.c": "holds a context variable",
    "host/sum_result.c": "calls methods of the value",
    "numpy_arrays.c": "finds ml_dtypes",
    "results.c": "finds the types of results, and the fields that timings share",
}


def layer_of(folder: str) -> int:
    """The index of a folder in LAYERS. A larger index is a lower layer."""
    return next(i for i, folders in enumerate(LAYERS) if folder in folders)


def folder_of(include: str, source: Path) -> str | None:
    """The folder of LAYERS that an include names; None for tables and for `EITHER`."""
    if include.endswith(".def") or include in EITHER:
        return None
    for root in (CSRC, source.parent, CSRC / "kernels", CSRC / "emulator" / "include"):
        found = root / include
        if found.exists():
            return entry_of(found.resolve())
    return "?"


def entry_of(path: Path) -> str:
    """The folder of a file: one of LAYERS, or `kernels`."""
    folder = path.relative_to(CSRC).parent
    return folder.as_posix() if folder.parts[0] == "bindings" else folder.parts[0]


def fault(include: str, source: Path) -> str | None:
    """Why the file `source` must not have this include; None if it may."""
    own, other = entry_of(source), folder_of(include, source)
    if other in (None, own):
        return None
    if other == "?":
        return "there is no such file"
    if own == "kernels":
        return None if other in KERNELS_MAY_INCLUDE else "kernels do not know it"
    if other == "kernels":
        return None if source.name == "kernel_table.cu" else "only kernel_table.cu includes kernels"
    if other.startswith("bindings") and not own.startswith("bindings"):
        return "only bindings know Python"
    same = layer_of(other) == layer_of(own)
    return None if layer_of(other) > layer_of(own) and not same else "it is not below"


def faults() -> list[str]:
    """All includes of higher or equal layers, and includes of Python.h outside of bindings."""
    found = []
    for source in sorted(CSRC.rglob("*")):
        if source.suffix not in (".c", ".h", ".cpp", ".cu"):
            continue
        name, text = source.relative_to(CSRC).as_posix(), source.read_text()
        for include in re.findall(r'#include "([^"]+)"', text):
            if why := fault(include, source):
                found.append(f'csrc/{name} includes "{include}": {why}')
        if PYTHON.search(text) and not name.startswith("bindings/"):
            found.append(f"csrc/{name} includes Python's or NumPy's headers")
    return found


def callbacks() -> list[str]:
    """Files of the bindings that call Python and are not in MAY_CALL_PYTHON, or need not be."""
    bindings = CSRC / "bindings"
    calling = {
        source.relative_to(bindings).as_posix()
        for source in bindings.rglob("*.[ch]")
        if CALLS_PYTHON.search(source.read_text())
    }
    return [
        f"csrc/bindings/{name} {'calls' if name in calling else 'no longer calls'} Python"
        for name in sorted(calling ^ set(MAY_CALL_PYTHON))
    ]


_GUARD = re.compile(r"^#ifndef (\w+_H)$", re.M)
_NAMES = re.compile(
    r"^\} (gr_\w+);$|^(?!static|typedef|return)[a-z][\w *]*?\b(gr_\w+)\([^;{]*\)\n\{", re.M
)


def circle() -> list[str]:
    """The files of a circle of calls, if there is one. Both backends are left out."""
    texts = {}
    for source in sorted(CSRC.rglob("*.c")):
        name = source.relative_to(CSRC).as_posix()
        if not name.startswith(("cuda/", "emulator/")):
            texts[f"csrc/{name}"] = source.read_text()
    home = {found: name for name, text in texts.items() for _, found in _NAMES.findall(text)}
    calls = {name: {home[one] for one in re.findall(r"\bgr_\w+", text) if one in home} - {name}
             for name, text in texts.items()}  # fmt: skip
    try:
        graphlib.TopologicalSorter(calls).prepare()
    except graphlib.CycleError as error:
        return [f"files that call each other in a circle: {', '.join(error.args[1])}"]
    return []


def repeated() -> list[str]:
    """Include guards, types of C and functions with a name that another file defines, too.

    The emulator's build and CUDA's have functions of the same names, which are never linked
    together.
    """
    files: dict[str, list[str]] = {}
    for source in sorted(CSRC.rglob("*.[ch]")):
        text, name = source.read_text(), source.relative_to(CSRC).as_posix()
        if name.startswith(("cuda/", "emulator/")):
            continue
        for found in {*_GUARD.findall(text), *filter(None, sum(_NAMES.findall(text), ()))}:
            files.setdefault(found, []).append(f"csrc/{name}")
    return [f"{name} stands in {' and '.join(of)}" for name, of in files.items() if len(of) > 1]


if __name__ == "__main__":
    sys.exit("\n".join([*faults(), *callbacks(), *circle(), *repeated()]) or 0)
