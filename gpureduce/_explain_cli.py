"""`gpureduce explain` on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from gpureduce._explain import explain
from gpureduce.bench_report import size
from gpureduce.text import show_json

Command = Callable[[str, Callable[[argparse.Namespace], None], str], Any]


def register(command: Command) -> None:
    """Add the commands."""
    explaining = command("explain", _explain, "count what a kernel does, and why, without a GPU")
    explaining.add_argument("strategy", metavar="STRATEGY")
    explaining.add_argument("other", metavar="OTHER", nargs="?", help="compare the two")
    explaining.add_argument("--n", type=size, default=2**20, help="elements (default: 2^20)")
    explaining.add_argument("--dtype", default="int32", help="the dtype to add up in")
    explaining.add_argument("--input-dtype", metavar="DTYPE", help="of the elements, if another")
    explaining.add_argument("--block", type=int, default=256, help="threads per block")
    explaining.add_argument("--grid", type=int, help="blocks")


def _explain(arguments: argparse.Namespace) -> None:
    found = explain(
        arguments.strategy,
        arguments.other,
        n=arguments.n,
        dtype=arguments.dtype,
        input_dtype=arguments.input_dtype,
        block=arguments.block,
        grid=arguments.grid,
    )
    if arguments.json:
        show_json(found.as_dict())
    else:
        print(found)
