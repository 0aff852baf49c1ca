"""Prints how much of the Python package and of its C the tests without a GPU run.

    python tools/measure_coverage.py [--json FILE] [--keep FOLDER] [TEST ...]

Builds a copy of the tree with gcc's --coverage and runs pytest there: all tests, or those named.
Of Python it counts lines and branches (coverage.py, subprocesses included), of C and C++ the lines
(gcov). A line counts if it runs in any of the compiled modules. The kernels of the traced emulator
are built without: gcov's counters would be traced as the kernels' own memory. Tests whose signal
handlers raise exceptions run without coverage.py, which such an exception may leave locked.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from sanitizers import install, place, run

_COMPILER = """#!/bin/sh
case " $* " in
*" -fsanitize=thread "*) exec {compiler} "$@" ;;
*) exec {compiler} "$@" --coverage -fprofile-update=atomic ;;
esac
"""
_SETTINGS = """[run]
branch = True
parallel = True
patch = subprocess
source = {site}/gpureduce
data_file = {folder}/data
"""
_RAISING_SIGNALS = [
    "tests/core/test_interrupted.py",
    "tests/core/test_long_calls.py",
    "tests/tools/test_fuzz.py::test_slice[interrupts]",
]
Folders = dict[str, collections.Counter[str]]


def measure(folder: Path, tests: list[str]) -> tuple[bool, Path]:
    """Build and run the tests; whether they passed, and the folder of the installed package."""
    compilers = {"CC": "gcc", "CXX": "g++"}
    for name in compilers.values():
        (folder / name).write_text(_COMPILER.format(compiler=name))
        (folder / name).chmod(0o755)
    built_by = {variable: str(folder / name) for variable, name in compilers.items()}
    site = install(folder, **built_by)
    (folder / "settings").write_text(_SETTINGS.format(site=site, folder=folder))
    python = [sys.executable, "-P", "-m"]
    counting = [*python, "coverage", "run", f"--rcfile={folder}/settings", "-m"]
    pytest = ["pytest", "-q", "-m", "not gpu", "-n", str(len(os.sched_getaffinity(0)))]
    without = [f"--deselect={test}" for test in _RAISING_SIGNALS]
    commands = [[*counting, *pytest, *without, *tests]]
    commands += [] if tests else [[*python, *pytest, *_RAISING_SIGNALS]]
    os.chdir(folder / "tree")
    found = {"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    return all([run(command, **found) for command in commands]), site


def of_python(folder: Path, site: Path) -> Folders:
    """Lines and branches of the package, by folder."""
    for verb in (["combine", "-q"], ["json", "-q", "-o", str(folder / "coverage.json")]):
        command = [sys.executable, "-P", "-m", "coverage", *verb, f"--rcfile={folder}/settings"]
        subprocess.run(command, check=True)
    found: Folders = collections.defaultdict(collections.Counter)
    for name, file in json.loads((folder / "coverage.json").read_text())["files"].items():
        count = file["summary"]
        found[str((folder / name).resolve().parent.relative_to(site.resolve()))] += (
            collections.Counter(
                lines=count["num_statements"],
                lines_run=count["covered_lines"],
                branches=count["num_branches"],
                branches_run=count["covered_branches"],
            )
        )
    return found


def of_c(tree: Path) -> Folders:
    """Lines of csrc, by folder."""
    notes = sorted(map(str, (tree / "build").rglob("*.gcno")))
    command = ["gcov", "--json-format", "--stdout", *notes]
    said = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout
    runs: dict[tuple[str, int], int] = collections.Counter()
    for file in (file for line in said.splitlines() for file in json.loads(line)["files"]):
        name = os.path.relpath(tree / file["file"], tree)
        if name.startswith("csrc"):
            for line in file["lines"]:
                runs[name, line["line_number"]] += line["count"]
    found: Folders = collections.defaultdict(collections.Counter)
    for (name, _), count in runs.items():
        found[os.path.dirname(name)] += collections.Counter(lines=1, lines_run=count > 0)
    return found


def total(folders: Iterable[collections.Counter[str]]) -> collections.Counter[str]:
    return sum(folders, collections.Counter())


def show(title: str, folders: Folders) -> None:
    print(f"\n{title:<40}   lines     run  branches     run")
    for name, count in [*sorted(folders.items()), ("total", total(folders.values()))]:
        row = f"{name:<40} {count['lines']:>7} {count['lines_run'] / count['lines']:>7.1%}"
        if count["branches"]:
            row += f" {count['branches']:>9} {count['branches_run'] / count['branches']:>7.1%}"
        print(row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", metavar="TEST", help="as for pytest (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts here, too")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="build here, and leave it")
    options = parser.parse_args()
    report = options.json and options.json.resolve()
    kept = options.keep and options.keep.resolve()
    with place(kept, "coverage") as folder:
        passed, site = measure(folder, options.tests)
        found = {"Python": of_python(folder, site), "C and C++": of_c(folder / "tree")}
    for title, folders in found.items():
        show(title, folders)
    if report:
        report.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
