"""``gpureduce replay STRATEGY``: a page that shows what every thread does, step by step."""

from __future__ import annotations

import argparse
import webbrowser

from gpureduce.bench.command import size
from gpureduce.cli import npy_files
from gpureduce.cli.kernel_files import NAME_OR_FILE, strategy_or_kernel, target
from gpureduce.core import output_files
from gpureduce.emulator.replay import replay


def _run(arguments: argparse.Namespace) -> None:
    page = target(arguments, "output", "replay", arguments.strategy, arguments.beside)
    if arguments.open and not page:
        raise ValueError("--open shows the page that --output writes: add --output FILE")
    shown = replay(
        strategy_or_kernel(arguments.strategy), arguments.n, block=arguments.block,
        grid=arguments.grid, dtype=arguments.dtype, schedule=arguments.schedule,
        beside=strategy_or_kernel(arguments.beside) if arguments.beside else None,
        **npy_files.segments(arguments),
    )  # fmt: skip
    if page:
        output_files.write(page, shown.page(), "replay")
    if arguments.json:
        print(shown.to_json())
    else:
        print(shown, *(() if page else shown.sentences), sep="\n")
    if page and arguments.open:
        webbrowser.open(page.resolve().as_uri())


COMMAND = ("replay", _run, "show what every thread of a kernel does, step by step", {
    "strategy": {"metavar": "STRATEGY", "help": f"{NAME_OR_FILE}; broken ones, too"},
    "--beside": {"metavar": "STRATEGY", "help": "another one, shown beside it"},
    "--n": {"type": size, "help": "how many elements (default: 256)"},
    "--block": {"type": int, "help": "threads per block (default: 64)"},
    "--grid": {"type": int, "help": "blocks"},
    "--dtype": {"help": "the elements' dtype (default: int32, or the kernel's own)"},
    **npy_files.SEGMENTS,
    "--schedule": {"default": "lockstep", "help":
        "forward, reverse, lockstep, 'random 7' (default: lockstep)"},
    "-o --output": {"metavar": "FILE.html", "help": "write a page, which plays it"},
    "--open": {"action": "store_true", "help": "open the page in a browser"},
    "--force": output_files.FORCE,
})  # fmt: skip
