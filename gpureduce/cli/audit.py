"""``gpureduce audit MODULE:FUNCTION``: the audit of a function of the user's."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import operator
import os
import runpy
import sys

from gpureduce.auditing.accuracy import TRUTHS
from gpureduce.auditing.audit import audit
from gpureduce.auditing.checks import CHECKS
from gpureduce.auditing.results import running
from gpureduce.cli.arguments import Command
from gpureduce.core import output_files


def _axes(text: str) -> int | list[int | None]:
    try:
        found = [None if part == "none" else int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"an axis is a number or none, not {text!r}") from None
    return found if len(found) > 1 or found[0] is None else found[0]


def _run(arguments: argparse.Namespace) -> None:
    target, file = arguments.target, arguments.args
    html = output_files.checked(
        arguments.html, "--html", "audit", (".html",), inputs=[file], force=arguments.force
    )
    module, _, name = target.partition(":")
    if not module or not name:
        raise ValueError(f"write the function as MODULE:FUNCTION, as in numpy:sum, not {target!r}")
    os.stat(file)  # raises for a file that is not there
    sys.path.insert(0, os.getcwd())
    with contextlib.redirect_stdout(sys.stderr):  # what the user's code prints
        with running(f"the import of {target}"):
            f = operator.attrgetter(name)(importlib.import_module(module))
        with running(file):
            given = {"kwargs": {}, "truth": None} | runpy.run_path(file)
            args = given.get("args")
            args = args() if callable(args) else args
        if not isinstance(args, (tuple, list)) or not isinstance(given["kwargs"], dict):
            raise ValueError(
                f"{file} must set args to a tuple of arrays, and may set kwargs to a dict"
            )
        if given["kwargs"] and callable(f):
            f = functools.partial(f, **given["kwargs"])
        truth = arguments.truth or given["truth"]
        found = audit(f, *args, along=arguments.along, truth=truth, checks=arguments.checks)
    if html:
        output_files.write(html, found.page(), "audit")
    print(found.to_json() if arguments.json else found)
    if not found:
        sys.stdout.flush()
        raise SystemExit(1)


def register(command: Command) -> None:
    """Add the command."""
    names = [one.name for one in CHECKS]
    command("audit", _run, "does a function give the same bits? exit status 1 if not", {
        "target": {"metavar": "MODULE:FUNCTION", "help": "such as numpy:sum"},
        "--args": {"metavar": "FILE.py", "required": True, "help": "Python that sets args, a tuple "
            "of arrays or a function that returns one; it may set kwargs and truth, too"},
        "--along": {"type": _axes, "default": 0, "metavar": "AXIS", "help":
            "the axis of the batch, or one for each array, as in 0,none (default: 0)"},
        "--truth": {"choices": TRUTHS, "help": "what it computes, to measure its accuracy"},
        "--checks": {"nargs": "+", "metavar": "NAME", "help":
            f"make only these checks: {', '.join(names)}"},
        "--html": {"metavar": "FILE.html", "help": "also write the table as a page"},
        "--force": output_files.FORCE,
    })  # fmt: skip
