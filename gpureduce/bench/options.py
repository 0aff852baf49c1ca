"""The options of ``gpureduce bench`` that are about measuring."""

from __future__ import annotations

import argparse
from typing import Any

from gpureduce.bench import libraries
from gpureduce.bench.benchmark import MEASURES
from gpureduce.bench.command import size
from gpureduce.bench.contenders.arrays import WAYS
from gpureduce.bench.suites.axis import PARTS
from gpureduce.core import output_files

# The options that say what to measure. Without any of them, the page is made.
NAMES = ("strategies", "sizes", "dtypes", "accumulate", "block", "grid", "peers", "ways")


_SEVERAL: dict[str, Any] = {"nargs": "+"}
_FLAG: dict[str, Any] = {"action": "store_true"}
OPTIONS: dict[str, dict[str, Any]] = {
    "strategies": {**_SEVERAL, "metavar": "NAME", "help":
        "what to time: names, or files of kernels of yours (default: sequential cascade fast cpu)"},
    "sizes": {**_SEVERAL, "type": size, "metavar": "N",
              "help": "numbers of elements (default: 2^20)"},
    "dtypes": {**_SEVERAL, "metavar": "DTYPE", "help": "dtypes of the elements (default: int32)"},
    "accumulate": {"metavar": "DTYPE", "help": "the dtype to add up in"},
    "block": {**_SEVERAL, "type": int, "help": "threads per block"},
    "grid": {**_SEVERAL, "type": int, "help": "blocks"},
    "device": {"help": "cuda, cuda:1 or emulator"},
    "repeats": {"type": int, "help": "runs of each (default: 11; 3 for the page)"},
    "measure": {**_SEVERAL, "choices": MEASURES, "help":
        "launches in a row (the default), launches with something else between, calls on arrays of "
        "the peers, calls on NumPy arrays, explaining, or counting every block"},
    "peers": {"nargs": "*", "metavar": "NAME", "help":
        f"measure beside: {', '.join(libraries.NAMES)}; without names, all that are installed"},
    "ways": {**_SEVERAL, "choices": list(WAYS),
             "help": "how the calls of --measure call are made (default: all)"},
    "offset": {"type": int, "default": 0, "help": "elements off a 512-byte boundary"},
    "scoreboard": {**_FLAG, "help":
        "measure what the README's tables show, and print such tables"},
    "devices": {"nargs": "*", "metavar": "DEVICE", "help":
        "measure sums over 1, 2, ... of these devices, or of all GPUs; --sizes are per device"},
    "csv": {**_FLAG, "help": "print CSV"},
    "force": output_files.FORCE,
    "output": {"metavar": "FILE", "help":
        "also write the record: .json, or .csv for the rows alone; or the page: .html"},
    "axis": {**_FLAG, "help":
        "time sums along both axes of matrices of all shapes beside other libraries; takes "
        "--sizes, --dtypes, --parts, --device, --repeats and --output"},
    "parts": {**_SEVERAL, "choices": PARTS, "help": "with --axis: what to time (default: all)"},
    "scan": {**_FLAG, "help":
        "time running sums beside other libraries, and windows on processors; takes --sizes, "
        "--dtypes, --device, --repeats and --output"},
    "segments": {**_FLAG, "help":
        "time sums by segment beside other libraries; takes --sizes, --dtypes, --device, "
        "--repeats and --output"},
    "torch": {**_FLAG, "help":
        "time additions by index and steps of training in PyTorch programs, plain and "
        "reproducible; takes --sizes, --device, --repeats and --output"},
    "cub": {"metavar": "LIBRARY", "help":
        "with --segments on a card: a build of tools/cub_segments.cu, for CUB and limits"},
}  # fmt: skip


def names_nothing(arguments: argparse.Namespace, measure: list[str] | None = None) -> bool:
    """Whether no option says what to measure, except that --measure is `measure`."""
    named = [getattr(arguments, name) for name in NAMES]
    others = named != [None] * len(named) or arguments.offset or arguments.scoreboard
    return bool(arguments.measure == measure and not others)
