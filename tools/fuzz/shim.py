"""Builds shim.cpp, and puts it between gpureduce's compiled modules and the C library."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.cpp")
OFF, ONE, ALL_FROM, COUNT = range(4)
# The parent tells its workers by this variable where the shared object is.
VARIABLE = "GPUREDUCE_FUZZ_SHIM"
_MODULES = ("_emulator", "_emulator_traced", "_host")
_folders: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def build() -> Path:
    """The shared object; it lives as long as this process."""
    _folders.append(tempfile.TemporaryDirectory(prefix="fuzz-shim-"))
    target = Path(_folders[-1].name) / "shim.so"
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    flags = ["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-pthread"]
    environment = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
    command = [*compiler, *flags, str(SOURCE), "-o", str(target), "-ldl"]
    subprocess.run(command, check=True, env=environment)
    return target


@functools.cache
def loaded() -> ctypes.CDLL:
    """Its functions, which gpureduce's modules call from now on."""
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"gpureduce.{name}")
    found = ctypes.CDLL(os.environ[VARIABLE])
    found.fuzz_fail.argtypes = [ctypes.c_long, ctypes.c_int]
    found.fuzz_fail.restype = None
    found.fuzz_seen.restype = found.fuzz_failed.restype = ctypes.c_long
    found.fuzz_install.restype = ctypes.c_long
    found.fuzz_speed.argtypes = [ctypes.c_long]
    found.fuzz_speed.restype = None
    if not found.fuzz_install():
        raise RuntimeError("gpureduce's modules call none of the functions that are replaced")
    return found
