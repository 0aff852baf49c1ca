"""`gpureduce explain` and `gpureduce verify-counters` on the command line."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from gpureduce.bench.command import size
from gpureduce.cli import kernel_files, npy_files
from gpureduce.cli.kernel_files import NAME_OR_FILE, strategy_or_kernel
from gpureduce.core import json_files, output_files
from gpureduce.emulator import explain_text
from gpureduce.emulator.explain import Comparison, explain
from gpureduce.hardware import verify_counters
from gpureduce.text import counted, show, show_json

_WIDEST = 120  # longer lines are hard to read


def _shape(text: str) -> tuple[int, int]:
    rows, _, columns = text.partition("x")
    try:
        return int(rows), int(columns)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"a shape is rows x columns, such as 4096x64, not {text!r}"
        ) from None


def _explain(arguments: argparse.Namespace) -> None:
    target = kernel_files.target(arguments, "svg", "explain", arguments.strategy, arguments.other)
    found = explain(
        strategy_or_kernel(arguments.strategy),
        arguments.other and strategy_or_kernel(arguments.other),
        n=arguments.n,
        dtype=arguments.dtype,
        input_dtype=arguments.input_dtype,
        block=arguments.block,
        grid=arguments.grid,
        shape=arguments.shape,
        **npy_files.segments(arguments),
    )
    if target:
        output_files.write(target, found.picture().svg(), "explain")
    if arguments.json:
        show_json(found.as_dict())
        return
    columns = min(max(shutil.get_terminal_size().columns, explain_text.WIDTH), _WIDEST)
    if isinstance(found, Comparison):
        print(explain_text.comparison(found, columns))
    else:
        print(explain_text.explanation(found, columns))


def _verify(arguments: argparse.Namespace) -> None:
    inputs = [arguments.again] if arguments.again else []
    record = output_files.checked(
        arguments.record, "--record", "counters", (".json",), inputs=inputs, force=arguments.force
    )

    def so_far(table: verify_counters.Table, measured: int, of: int) -> None:
        print(
            f"{measured} of {counted(of, 'launch')}: {counted(len(table.rows), 'counter')}, "
            f"{len(table.differing)} of them differ; "
            f"{counted(len(table.failures), 'launch')} could not be measured",
            file=sys.stderr,
            flush=True,
        )
        if record:
            table.record(record)

    if arguments.again:
        made = verify_counters.read(Path(arguments.again))
        with json_files.naming(Path(arguments.again)):
            table = verify_counters.judge_again(made)
        if record:
            table.record(record, made)
    else:
        names = arguments.strategies and [*map(strategy_or_kernel, arguments.strategies)]
        table = verify_counters.verify(
            names, arguments.sizes, arguments.blocks, arguments.dtype, so_far
        )
    show(table.as_dict(), table, arguments.json)
    if table.differing or table.failures:
        raise SystemExit(1)


EXPLAIN = ("explain", _explain, "count what a kernel does, and why, without a GPU", {
    "strategy": {"metavar": "STRATEGY", "help": NAME_OR_FILE},
    "other": {"metavar": "OTHER", "nargs": "?", "help": "compare the two"},
    "--n": {"type": size, "help": "elements (default: 2^20)"},
    "--dtype": {"help": "the dtype to add up in (default: int32, or what the kernel takes)"},
    "--input-dtype": {"metavar": "DTYPE", "help": "of the elements, if another"},
    "--block": {"type": int, "default": 256, "help": "threads per block (default: 256)"},
    "--grid": {"type": int, "help": "blocks"},
    "--shape": {"type": _shape, "metavar": "ROWSxCOLUMNS", "help":
        "for kernels of sums along an axis (default: 4096x64)"},
    **npy_files.SEGMENTS,
    "--svg": {"metavar": "FILE.svg", "help": "draw it to a file"},
    "--force": output_files.FORCE,
})  # fmt: skip

VERIFY = ("verify-counters", _verify,
    "compare the counts with those of a card, by Nsight Compute (ncu); status 1 if they "
    "differ", {
    "--strategies": {"nargs": "+", "metavar": "NAME", "help":
        "names, or files of kernels of yours (default: all kernels)"},
    "--sizes": {"nargs": "+", "type": size, "metavar": "N",
        "default": list(verify_counters.SIZES), "help": "numbers of elements"},
    "--blocks": {"nargs": "+", "type": int, "metavar": "THREADS",
        "default": list(verify_counters.BLOCKS), "help": "threads per block"},
    "--dtype": {"default": "int32", "help": "of the elements (default: int32)"},
    "--record": {"metavar": "FILE.json", "help": "write the table as JSON, as it grows"},
    "--force": output_files.FORCE,
    "--again": {"metavar": "FILE.json", "help":
        "judge what a record holds again, without a card"},
})  # fmt: skip
