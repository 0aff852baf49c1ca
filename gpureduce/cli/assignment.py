"""``gpureduce assignment``: assignments that come with gpureduce, and those of a teacher."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from gpureduce.classroom import assignments, bundles
from gpureduce.core import output_files
from gpureduce.core.checks import whole
from gpureduce.text import show_json, table


def _run(arguments: argparse.Namespace) -> None:
    deed, name, after = arguments.deed, arguments.name, ""
    if deed == "list":
        head = ["assignment", "title"]
        rows = [[one.name, one.checked.title] for one in assignments.packaged().values()]
    elif name is None:
        raise ValueError(f"name the assignment: gpureduce assignment {deed} NAME")
    elif deed == "check":
        head, one = ["file", "points", "problem"], assignments.find(name)
        files = [file for file in one.files if file.endswith(".cu")]
        rows = [[file, *assignments.checked_file(one, file)] for file in files]
    else:
        head, (folder, made, after) = ["file"], (_new if deed == "new" else _exported)(arguments)
        output_files.write_new(folder, {folder / path: text for path, text in made.items()})
        rows = [[str(folder / path)] for path in made]
    if arguments.json:
        show_json([dict(zip(head, row, strict=True)) for row in rows])
    else:
        print(table(head, rows), after, sep="\n\n" if after else "", end="\n")
    if deed == "check" and any(problem for *_, problem in rows):
        raise SystemExit(1)


def _new(arguments: argparse.Namespace) -> tuple[Path, bundles.Files, str]:
    folder = Path(arguments.out or arguments.name)
    made = assignments.new(folder.name, assignments.find(arguments.like))
    return folder, {**made}, f"Change it, and then: gpureduce assignment check {folder}"


def _exported(arguments: argparse.Namespace) -> tuple[Path, bundles.Files, str]:
    one, system = assignments.find(arguments.name), arguments.system
    if system is None:
        raise ValueError(f"name the system by --for: {', '.join(bundles.SYSTEMS)}")
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    made = bundles.export(one, system, whole("seed", seed, 0, 2**64 - 1))
    return Path(arguments.out or f"{one.name}_{system}"), made, str(made["README.md"]).rstrip()


_DEEDS = ("list", "new", "check", "export")
COMMAND = ("assignment", _run, "list, begin, check or export an assignment for a class", {
    "deed": {"metavar": "|".join(_DEEDS), "choices": _DEEDS},
    "name": {"metavar": "NAME", "nargs": "?", "help": "its name, or its folder"},
    "--for": {"dest": "system", "choices": [*bundles.SYSTEMS], "help":
        "export: the grading system"},
    "--out": {"metavar": "FOLDER", "help":
        "new, export: the folder, which must be new or empty"},
    "--seed": {"type": int, "help":
        "export: the seed by which it grades (default: a random one)"},
    "--like": {"metavar": "NAME", "default": "first_tree", "help":
        "new: the assignment to begin with (default: first_tree)"},
})  # fmt: skip
