"""``gpureduce grade SPEC.toml FILE.cu``: points for a kernel, on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpureduce.kernels import graders
from gpureduce.kernels.grading import grade
from gpureduce.text import show_json

Command = Callable[[str, Callable[[argparse.Namespace], None], str], Any]


def _run(arguments: argparse.Namespace) -> None:
    made = {"otter": graders.otter_test, "nbgrader": graders.nbgrader_cell}
    forms = [kind for kind in ("gradescope", *made, "json") if getattr(arguments, kind)]
    if len(forms) > 1:
        given = " and ".join(f"--{kind}" for kind in forms)
        raise ValueError(f"{given} are different outputs: give one of them")
    for kind, text_of in made.items():
        if name := getattr(arguments, kind):
            print(text_of(Path(arguments.spec), name, arguments.seed), end="")
            return
    if arguments.file is None:
        raise ValueError("name the kernel's file: gpureduce grade SPEC.toml FILE.cu")
    found = grade(Path(arguments.file), Path(arguments.spec), seed=arguments.seed)
    if arguments.gradescope:
        show_json(found.gradescope())
    else:
        print(found.to_json() if arguments.json else found)


def register(command: Command) -> None:
    """Add the command."""
    added = command("grade", _run, "give points to a kernel, by a spec of what must hold")
    added.add_argument("spec", metavar="SPEC.toml")
    added.add_argument("file", metavar="FILE.cu", nargs="?")
    added.add_argument("--seed", type=int, default=0, help="draws some of the sizes (default: 0)")
    added.add_argument(
        "--gradescope", action="store_true", help="print what Gradescope reads as results.json"
    )
    for kind, what in (("otter", "a test file of Otter-Grader"), ("nbgrader", "a test cell")):
        added.add_argument(
            f"--{kind}", metavar="NAME",
            help=f"print {what}, for the kernel that a notebook keeps in this variable",
        )  # fmt: skip
