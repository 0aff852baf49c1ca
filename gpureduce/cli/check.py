"""``gpureduce check FILE.cu``: the verdict on a kernel, on the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpureduce.core import output_files
from gpureduce.kernels.check import check
from gpureduce.kernels.kernel import kernel
from gpureduce.kernels.signature import OPTIONS

Command = Callable[[str, Callable[[argparse.Namespace], None], str], Any]


def _run(arguments: argparse.Namespace) -> None:
    target = output_files.checked(
        arguments.html, "--html", "check", (".html",),
        inputs=[arguments.file], force=arguments.force,
    )  # fmt: skip
    options = {name: getattr(arguments, name) for name in OPTIONS}
    made = kernel(Path(arguments.file), arguments.name, **options)
    verdict = check(
        made, arguments.dtype, hint=not arguments.no_hint, seed=arguments.seed,
        device=arguments.device,
    )  # fmt: skip
    if target:
        output_files.write(target, verdict._repr_html_(), "check")
    print(verdict.to_json() if arguments.json else verdict)
    if not verdict:
        sys.stdout.flush()
        raise SystemExit(1)


def register(command: Command) -> None:
    """Add the command."""
    added = command("check", _run, "check a kernel of yours: exit status 1 if something is wrong")
    added.add_argument("file", metavar="FILE.cu")
    added.add_argument("--name", help="the kernel's name, if there are several in the file")
    added.add_argument(
        "--dtype", nargs="+", metavar="DTYPE",
        help="the elements' dtypes (default: int32 and float32, or the kernel's own)",
    )  # fmt: skip
    added.add_argument(
        "--device", help="the card to try it on, as cuda:1 (default: the first); emulator: none"
    )
    for option, values in OPTIONS.items():
        added.add_argument(f"--{option}", choices=values, help="as in gpureduce.kernel")
    added.add_argument("--seed", type=int, default=0, help="draws some of the sizes (default: 0)")
    added.add_argument("--no-hint", action="store_true", help="do not tell what to try next")
    added.add_argument(
        "--html", metavar="FILE.html", help="also write the verdict with its picture"
    )
    output_files.add_force(added)
