"""`gpureduce segments` on the command line."""

from __future__ import annotations

import argparse
import dataclasses

import gpureduce
from gpureduce.cli import npy_files, progress
from gpureduce.core.registry import IN_GROUPS
from gpureduce.text import EMULATED, number, show_json, table


def _run(arguments: argparse.Namespace) -> None:
    target = npy_files.target(arguments, arguments.values, arguments.ids)
    values, ids = npy_files.load(arguments.values), npy_files.load(arguments.ids)
    segments = {"offsets": ids} if arguments.offsets else {"segment_ids": ids}
    with progress.reading(values, ids):
        sums, timing = gpureduce.segment_sum(
            values,
            num_segments=arguments.num_segments,
            strategy=arguments.strategy,
            dtype=arguments.dtype,
            device=arguments.device,
            **segments,
        )
    if target:
        npy_files.save(target, sums)
    if arguments.json:
        show_json(dataclasses.asdict(timing) | {"value": sums, "gb_s": timing.gb_s})
        return
    head = ["strategy", "sums", "kernel ms", "total ms", "GB/s", "ran on"]
    shape = f"{sums.dtype}{list(sums.shape)}"
    times = [number(timing.kernel_ms), number(timing.total_ms), number(timing.gb_s, ".2f")]
    print(table(head, [[timing.strategy, shape, *times, timing.device]], right=range(2, 5)))
    if timing.source == "emulator":
        print(f"\n{EMULATED}")
    print(f"\n{sums}")


COMMAND = ("segments", _run, "add up the elements of a .npy file by segment", {
    "values": {"metavar": "VALUES.npy"},
    "ids": {"metavar": "IDS.npy"},
    "--offsets": {"action": "store_true", "help":
        "IDS.npy has the offsets of the segments, not ids"},
    "--num-segments": {"type": int, "metavar": "K", "help": "default: the largest id plus one"},
    "--strategy": {"choices": IN_GROUPS, "default": "auto", "help": "default: auto"},
    "--dtype": {"help": "the dtype of the sums"},
    "--device": {"help": "cpu, cuda, cuda:1 or emulator (default: cpu)"},
    **npy_files.OUTPUT,
})  # fmt: skip
