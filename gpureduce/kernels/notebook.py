"""``%load_ext gpureduce``: the cell magic ``%%kernel``, which makes and checks a kernel."""

from __future__ import annotations

import argparse
import keyword
import shlex
from typing import Any

from gpureduce.kernels import compiling, conditions, process, programs, signature
from gpureduce.kernels.check import check
from gpureduce.kernels.kernel import Kernel, Limits, kernel
from gpureduce.kernels.options import OF_CHECK, OPTIONS
from gpureduce.kernels.verdict import Verdict


def _usage_error(message: object) -> Exception:
    """An error that IPython shows without a traceback."""
    from IPython.core.error import UsageError  # this runs in IPython only

    return UsageError(f"%%kernel: {message}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(f"{message}; as in %%kernel my_rung --elements 2, or %%kernel --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%kernel", add_help=False, allow_abbrev=False)
    parser.add_argument("name", help="the variable that holds the kernel")
    parser.add_argument("--no-check", action="store_true", help="only make the kernel")
    for option, how in OF_CHECK.items():
        parser.add_argument(option, **how)
    return parser


def arguments(line: str) -> argparse.Namespace:
    """The words behind ``%%kernel``. Raises a ValueError."""
    given = _parser().parse_args(shlex.split(line))
    if not given.name.isidentifier() or keyword.iskeyword(given.name):
        raise ValueError(f"{given.name!r} cannot name the variable that the kernel is stored in")
    return given


def kernel_of_cell(given: argparse.Namespace, cell: str, limits: Limits | None = None) -> Kernel:
    """The kernel of a cell below ``%%kernel`` and its arguments."""
    text = "\n" + cell if "\n" not in cell else cell
    names = signature.names_in(programs.device_code(text))
    one_of_them = given.name if given.name in names else None
    options: dict[str, Any] = {name: getattr(given, name) for name in (*OPTIONS, *conditions.KEYS)}
    return kernel(text, one_of_them, limits=limits, **options)


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
        if {"-h", "--help"} & {*line.split()}:
            print(_parser().format_help())
            return None
        try:
            given = arguments(line)
        except ValueError as error:
            raise _usage_error(error) from None
        made = kernel_of_cell(given, cell)
        shell.user_ns[given.name] = made
        if given.no_check:
            return None
        try:
            compiling.compiler()
        except RuntimeError as error:
            raise _usage_error(error) from None
        return check(
            made, given.dtype, hint=not given.no_hint, seed=given.seed, assume=given.assume
        )

    process.start()
    shell.register_magic_function(magic, "cell", "kernel")
