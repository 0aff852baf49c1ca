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

from gpureduce.auditing.audit import audit
from gpureduce.auditing.results import running
from gpureduce.core import output_files
from gpureduce.kernels.verdict_html import whole_page


def _run(arguments: argparse.Namespace) -> None:
    target, file = arguments.target, arguments.args
    html = output_files.checked(
        arguments.html, "--html", "audit", (".html",), inputs=[file], force=arguments.force
    )
    module, _, name = target.partition(":")
    if not module or not name:
        raise ValueError(f"name a function as numpy:sum, MODULE:FUNCTION, not {target!r}")
    sys.path.insert(0, os.getcwd())
    with contextlib.redirect_stdout(sys.stderr):  # what the user's code prints
        with running(f"the import of {target}"):
            f = operator.attrgetter(name)(importlib.import_module(module))
        with running(file):
            given = runpy.run_path(file)
        args, bound = given.get("args"), given.get("kwargs", {})
        if not isinstance(args, (tuple, list)) or not isinstance(bound, dict):
            raise ValueError(f"{file} must set args to a tuple of arrays, and kwargs to a dict")
        f = functools.partial(f, **bound) if bound and callable(f) else f
        options = {name: given[name] for name in ("along", "truth", "checks") if name in given}
        found = audit(f, *args, **options)
    if html:
        output_files.write(html, whole_page([found.headline], [found._repr_html_()]), "audit")
    print(found.to_json() if arguments.json else found)
    if not found:
        raise SystemExit(1)


COMMAND = ("audit", _run, "does a function give the same bits? exit status 1 if not", {
    "target": {"metavar": "MODULE:FUNCTION", "help": "such as numpy:sum"},
    "--args": {"metavar": "FILE.py", "required": True, "help":
        "Python that sets args, a tuple of arrays; also kwargs, along, truth and checks"},
    "--html": {"metavar": "FILE.html", "help": "also write the table as a page"},
    "--force": output_files.FORCE,
})  # fmt: skip
