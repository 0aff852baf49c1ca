"""``%load_ext gpureduce``: the cell magic ``%%kernel``, which makes and checks a kernel."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from gpureduce.kernels import process
from gpureduce.kernels.check import check
from gpureduce.kernels.kernel import kernel
from gpureduce.kernels.signature import OPTIONS
from gpureduce.kernels.verdict import Verdict


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(f"%%kernel: {message}; as in %%kernel my_rung --elements 2")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%kernel", add_help=False, allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("--dtype", nargs="+")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--no-hint", action="store_true")
    for option, values in OPTIONS.items():
        parser.add_argument(f"--{option}", choices=values)
    return parser


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%kernel`` to IPython; ``%load_ext gpureduce`` calls this.

    ``%%kernel NAME`` compiles the cell, binds the `Kernel` to the name, and shows the verdict of
    `check`. Options: ``--dtype float32``, ``--elements``, ``--shared``, ``--finishes``,
    ``--scratch``, ``--alone`` as in `kernel` (yes or no), ``--no-hint``, and ``--no-check`` to make
    the kernel only.

    >>> import gpureduce
    >>> class Shell:
    ...     def register_magic_function(self, function, kind, name):
    ...         print(kind, name)
    >>> gpureduce.load_ipython_extension(Shell())
    cell kernel
    """

    def magic(line: str, cell: str) -> Verdict | None:
        given = _parser().parse_args(shlex.split(line))
        options: dict[str, Any] = {name: getattr(given, name) for name in OPTIONS}
        made = kernel("\n" + cell if "\n" not in cell else cell, **options)
        shell.user_ns[given.name] = made
        if given.no_check:
            return None
        return check(made, given.dtype, hint=not given.no_hint)

    process.start()
    shell.register_magic_function(magic, "cell", "kernel")
