"""``gpureduce audit MODULE:FUNCTION``: the audit of a function of the user's."""

from __future__ import annotations

import argparse
import functools
import importlib
import operator
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

from gpureduce.auditing.accuracy import TRUTHS
from gpureduce.auditing.audit import audit
from gpureduce.auditing.checks import CHECKS, said
from gpureduce.cli.arguments import Command
from gpureduce.core import output_files


def _user_code(what: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of code of the user's, which may raise anything, or exit."""
    try:
        return call(*arguments)
    except (Exception, SystemExit) as error:
        raise RuntimeError(f"{what}: {said(error)}") from error


def _axes(text: str) -> int | list[int | None]:
    try:
        found = [None if part == "none" else int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"an axis is a number or none, not {text!r}") from None
    return found if len(found) > 1 or found[0] is None else found[0]


def _run(arguments: argparse.Namespace) -> None:
    html = output_files.checked(
        arguments.html, "--html", "audit", (".html",), inputs=[arguments.args],
        force=arguments.force,
    )  # fmt: skip
    module, _, name = arguments.target.partition(":")
    if not module or not name:
        raise ValueError(f"name a function as numpy:sum, MODULE:FUNCTION, not {arguments.target!r}")
    os.stat(arguments.args)  # raises for a file that is not there
    sys.path.insert(0, os.getcwd())
    f = _user_code(module, importlib.import_module, module)
    f = _user_code(arguments.target, operator.attrgetter(name), f)
    if not callable(f):
        raise ValueError(f"{arguments.target} is no function")
    given = _user_code(arguments.args, runpy.run_path, arguments.args)
    args = given.get("args")
    args = _user_code(arguments.args, args) if callable(args) else args
    if not isinstance(args, (tuple, list)):
        raise ValueError(f"{arguments.args} must set args to a tuple of arrays")
    f = functools.partial(f, **given["kwargs"]) if given.get("kwargs") else f
    truth = arguments.truth or given.get("truth")
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
