"""``gpureduce check FILE.cu``: the verdict on a kernel, on the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpureduce.cli.kernel_files import file_and_name, target
from gpureduce.core import json_files, output_files, text_files
from gpureduce.kernels import conditions, programs, replaying, signature
from gpureduce.kernels.check import check
from gpureduce.kernels.kernel import Kernel, kernel
from gpureduce.kernels.options import OF_CHECK, OPTIONS
from gpureduce.kernels.process import KernelEnded
from gpureduce.kernels.source_text import KernelError, NotASum
from gpureduce.kernels.verdict import page
from gpureduce.text import visible


def _kernels(arguments: argparse.Namespace) -> tuple[list[Kernel], bool]:
    """The kernel that is named, or all of the file; and whether one cannot be launched."""
    options = {name: getattr(arguments, name) for name in (*OPTIONS, *conditions.KEYS)}
    with json_files.naming(Path(arguments.file)):
        text = text_files.read(Path(arguments.file))
    names: list[str | None] = [*signature.names_in(programs.device_code(text))] or [None]
    names = [arguments.name] if arguments.name else names
    made, refused = [], False
    for name in names:
        try:
            made.append(kernel(Path(arguments.file), name, **options))
        except KernelError as error:
            if name is names[-1] and not made:
                raise
            print(f"gpureduce: left out: {error}", file=sys.stderr)
            refused = refused or not isinstance(error, NotASum)
    return made, refused


def _run(arguments: argparse.Namespace) -> None:
    arguments.file, arguments.name = file_and_name(arguments.file, arguments.name)
    report = target(arguments, "html", "check", arguments.file)
    film = target(arguments, "replay", "replay", arguments.file)
    kernels, refused = _kernels(arguments)
    if film and len(kernels) > 1:
        names = ", ".join(made.name for made in kernels)
        raise ValueError(f"--replay shows one kernel: name one of {names} by --name")
    verdicts = [
        check(
            made, arguments.dtype, hint=not arguments.no_hint, seed=arguments.seed,
            device=arguments.device, assume=arguments.assume,
        )
        for made in kernels
    ]  # fmt: skip
    if report:
        output_files.write(report, page(verdicts), "check")
    if film:
        try:
            output_files.write(film, replaying.failing(kernels[0], verdicts[0]).page(), "replay")
        except (KernelEnded, ValueError) as error:  # the verdict stands
            print(f"gpureduce: no replay: {visible(str(error))}", file=sys.stderr)
            refused = True
    if arguments.json:
        several = ",\n".join(verdict.to_json() for verdict in verdicts)
        print(several if len(verdicts) == 1 else f"[{several}]")
    else:
        print("\n\n".join(verdict.report(arguments.all) for verdict in verdicts))
    if refused or not all(verdicts):
        sys.stdout.flush()
        raise SystemExit(1)


COMMAND = ("check", _run, "check a kernel of yours: exit status 1 if something is wrong", {
    "file": {"metavar": "FILE.cu", "help": "FILE.cu:NAME is one of several kernels"},
    "--name": {"help": "the kernel's name, if not all of the file are to be checked"},
    "--device": {"help":
        "the card to try it on, as cuda:1 (default: the first); emulator: none"},
    **OF_CHECK,
    "--all": {"action": "store_true", "help": "also races that a condition allows"},
    "--replay": {"metavar": "FILE.html", "help":
        "also write a page that plays the smallest failure, and opens at the step to look at"},
    "--html": {"metavar": "FILE.html", "help": "also write the verdict as a page"},
    "--force": output_files.FORCE,
})  # fmt: skip
