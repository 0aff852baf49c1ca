"""``gpureduce races STRATEGY``: the race detector on the command line."""

from __future__ import annotations

import argparse

from gpureduce.bench.command import size
from gpureduce.cli import kernel_files
from gpureduce.cli.kernel_files import NAME_OR_FILE, strategy_or_kernel
from gpureduce.core import output_files
from gpureduce.emulator.races import SCHEDULES, races
from gpureduce.emulator.replay import replay
from gpureduce.text import show


def _run(arguments: argparse.Namespace) -> None:
    target = kernel_files.target(arguments, "svg", "races", arguments.strategy)
    film = kernel_files.target(arguments, "replay", "replay", arguments.strategy)
    found = races(
        strategy_or_kernel(arguments.strategy), arguments.n, arguments.dtype, arguments.block,
        arguments.grid, arguments.schedules,
    )  # fmt: skip
    if target:
        output_files.write(target, found.svg(), "races")
    show(found.as_dict(), found, arguments.json)
    if film:
        if not found.races:
            raise ValueError(f"{found.strategy} has no race to show: leave --replay out")
        shown = replay(strategy_or_kernel(arguments.strategy), race=found.races[0])
        output_files.write(film, shown.page(), "replay")


COMMAND = ("races", _run, "look for accesses to memory that race, on the emulated GPU", {
    "strategy": {"metavar": "STRATEGY", "help": f"{NAME_OR_FILE}; broken ones, too"},
    "--n": {"type": size, "help": "how many elements (default: for several blocks)"},
    "--dtype": {"help": "the elements' dtype (default: int32, or the kernel's own)"},
    "--block": {"type": int, "default": 256, "help": "threads per block (default: 256)"},
    "--grid": {"type": int, "help": "blocks"},
    "--schedules": {"nargs": "+", "metavar": "ORDER", "default": SCHEDULES, "help":
        "forward, reverse, lockstep, 'random 7' (default: all, and three random ones)"},
    "--svg": {"metavar": "FILE.svg", "help": "also draw the first race"},
    "--replay": {"metavar": "FILE.html", "help":
        "also write a page that plays the first race in both orders"},
    "--force": output_files.FORCE,
})  # fmt: skip
