"""The kinds of fuzzers by name."""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = (
    "dlpack",
    "interface",
    "npy",
    "files",
    "accumulator",
    "cli",
    "threads",
    "interrupts",
    "allocations",
)
# With "all", one case of these stands for so many of another kind: they take longer.
FEWER = {"threads": 10}
# It fails on purpose, for a test, and is not among "all".
SELF_TEST = "self-test"
# Their processes load shim.cpp.
SHIMMED = ("interrupts", "allocations")
# The next case after a failure gets a new process: the failure may have spoiled the old one.
FRAGILE = ("interrupts", "allocations")
# Number of cases after which a process is replaced, so that first uses are tried, too.
CASES_PER_PROCESS = {"interrupts": 2000, "allocations": 250}
PYTHON_HELP = "allocations: let Python's own allocators fail instead of malloc"


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"tools.fuzz.{name.replace('-', '_')}_cases")
