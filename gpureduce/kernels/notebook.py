"""``%load_ext gpureduce``: the cell magic ``%%kernel``, which makes and checks a kernel."""

from __future__ import annotations

import argparse
import keyword
import shlex
from typing import Any

from gpureduce.kernels import compiling, conditions, process, programs, signature
from gpureduce.kernels.check import check
from gpureduce.kernels.kernel import kernel
from gpureduce.kernels.options import OPTIONS
from gpureduce.kernels.verdict import Verdict


def _usage_error(message: str) -> Exception:
    """An error that IPython shows without a traceback."""
    from IPython.core.error import UsageError  # this runs in IPython only

    return UsageError(f"%%kernel: {message}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(f"{message}; as in %%kernel my_rung --elements 2")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%kernel", add_help=False, allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("--dtype", nargs="+")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--no-hint", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    for option, values in OPTIONS.items():
        parser.add_argument(f"--{option}", choices=values)
    for option in (*conditions.KEYS, "assume"):
        parser.add_argument(f"--{option}")
    return parser


def _arguments(line: str) -> argparse.Namespace:
    try:
        given = _parser().parse_args(shlex.split(line))
    except ValueError as error:
        raise _usage_error(str(error)) from None
    if not given.name.isidentifier() or keyword.iskeyword(given.name):
        raise _usage_error(f"{given.name!r} is no name of a variable, which holds the kernel")
    return given


def _compiler() -> None:
    try:
        compiling.compiler()
    except RuntimeError as error:
        raise _usage_error(str(error)) from None


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%kernel`` to IPython; ``%load_ext gpureduce`` calls this.

    ``%%kernel NAME`` compiles the cell, binds the `Kernel` to the variable NAME, and shows the
    verdict of `check`. If the cell has several kernels, it takes the one called NAME. Options:
    ``--dtype float32``, ``--elements``, ``--shared``, ``--finishes``, ``--scratch``, ``--alone``,
    ``--blocks``, ``--sizes`` as in `kernel` (yes or no), ``--assume`` and ``--seed`` as in `check`,
    ``--no-hint``, and ``--no-check`` to only make the kernel.

    >>> import gpureduce
    >>> class Shell:
    ...     def register_magic_function(self, function, kind, name):
    ...         print(kind, name)
    >>> gpureduce.load_ipython_extension(Shell())
    cell kernel
    """

    def magic(line: str, cell: str) -> Verdict | None:
        given = _arguments(line)
        options: dict[str, Any] = {
            name: getattr(given, name) for name in (*OPTIONS, *conditions.KEYS)
        }
        text = "\n" + cell if "\n" not in cell else cell
        names = signature.names_in(programs.device_code(text))
        one_of_them = given.name if given.name in names else None
        made = kernel(text, one_of_them, **options)
        shell.user_ns[given.name] = made
        if given.no_check:
            return None
        _compiler()
        return check(
            made, given.dtype, hint=not given.no_hint, seed=given.seed, assume=given.assume or ""
        )

    process.start()
    shell.register_magic_function(magic, "cell", "kernel")
