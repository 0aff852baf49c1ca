"""The command line run in this process: its exit status and output, and nothing else, count."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Sequence

from gpureduce.cli import main
from tools.fuzz import notes
from tools.fuzz.outcomes import Failure, describe


def run(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    notes.add(" ".join(map(repr, arguments)))
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            status: object = main.main(list(arguments))
        except SystemExit as ended:
            status = 0 if ended.code is None else ended.code
        except Exception as error:
            raise Failure(f"a traceback: {describe(error)}") from error
    if status not in (0, 1, 2) or not isinstance(status, int):
        raise Failure(f"exit status {status!r}")
    text = err.getvalue()
    if "Traceback" in text:
        raise Failure(f"a traceback on standard error: {text[-200:]}")
    return status, out.getvalue(), text


def check_refusal(err: str) -> None:
    """Exit status 2 of a command: a line of reason, and perhaps one of usage."""
    lines = err.splitlines()
    used = [line for line in lines[1:] if not line.startswith("usage: gpureduce")]
    if not lines or not lines[0].startswith("gpureduce: ") or used or len(lines) > 2:
        raise Failure(f"exit status 2 without a reason: {err[-200:]!r}")
