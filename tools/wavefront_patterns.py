"""Shared memory's rules for a warp instruction, held against a card by random patterns.

    python tools/wavefront_patterns.py [--patterns 1200] [--record FILE]

Each pattern is one warp's access of 4, 8 or 16 bytes a lane, with some lanes idle. A kernel runs it
64 times as a load and 64 times as a store, and Nsight Compute counts the wavefronts. They must
equal `gr_shared_wavefronts`, which gpureduce.explain uses. Needs nvcc and ncu. Exits with status 1
if a pattern differs from the model, or could not be measured.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce import _emulator_traced
from gpureduce.bench.provenance import provenance
from gpureduce.hardware import ncu
from gpureduce.hardware.machine_code import find_tool

HERE = Path(__file__).resolve().parent
REPEATS = 64
TOGETHER = 300  # patterns per run of ncu
METRICS = {
    "load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "load_instructions": "smsp__inst_executed_op_shared_ld.sum",
    "store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "store_instructions": "smsp__inst_executed_op_shared_st.sum",
}


def random_pattern(draw: random.Random) -> dict[str, Any]:
    """A random pattern: a stride, permutation, broadcast or random access, in a random window."""
    size = draw.choice((4, 8, 16))
    window = draw.choice((1, 2, 8, 32, 64, 256, 1024))  # elements of that size
    kind = draw.choice(("chance", "stride", "shuffled", "groups"))
    first = draw.randrange(32)
    if kind == "chance":
        places = [draw.randrange(window) for _ in range(32)]
    elif kind == "stride":
        step = draw.choice((0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33))
        places = [first + step * lane for lane in range(32)]
    elif kind == "shuffled":
        places = draw.sample(range(max(window, 32)), 32)
    else:  # neighbours access the same element
        share = draw.choice((2, 4, 8, 16))
        step = draw.choice((1, 2, 8, 32))
        places = [first + lane // share * step for lane in range(32)]
    offsets = [place * size % (48 * 1024) for place in places]
    masks = (
        0xFFFFFFFF,
        0xFFFFFFFF,
        draw.getrandbits(32) or 1,
        (1 << draw.randrange(1, 33)) - 1,
        0x55555555,
        draw.getrandbits(32) & draw.getrandbits(32) & draw.getrandbits(32) or 1,
        0xFFFF << draw.choice((0, 8, 16)) & 0xFFFFFFFF,
    )
    return {"size": size, "mask": draw.choice(masks), "offsets": offsets, "kind": kind}


def model(pattern: dict[str, Any], op: str) -> tuple[int, int]:
    """The model's wavefronts, and the least possible number."""
    offsets = np.array(pattern["offsets"], np.uint32).tobytes()
    mask, size = pattern["mask"], pattern["size"]
    return _emulator_traced.shared_wavefronts(offsets, mask, size, op == "store")


def build(folder: Path) -> Path:
    program = folder / "patterns"
    source = HERE / "wavefront_patterns.cu"
    nvcc = find_tool("nvcc")
    subprocess.run([nvcc, "-O2", "-arch=native", "-o", program, source], check=True)
    return program


def measure(program: Path, patterns: list[dict[str, Any]]) -> list[dict[str, int]]:
    """The GPU's counts for the patterns."""
    data = program.with_suffix(".bin")
    rows = [[p["size"], p["mask"], *p["offsets"]] for p in patterns]
    np.array(rows, np.uint32).tofile(data)
    options = ["--page", "raw", "--metrics", ",".join(METRICS.values())]
    found = ncu.run([str(program), str(data)], options)
    if len(found) != len(patterns):
        raise ncu.Failed(f"{len(patterns)} patterns, but ncu saw {len(found)} kernels")
    return [{name: ncu.counter(row, key) for name, key in METRICS.items()} for row in found]


def measure_all(patterns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Measures and compares the patterns, `TOGETHER` at a time. Failed runs are left out."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for first in range(0, len(patterns), TOGETHER):
            some = patterns[first : first + TOGETHER]
            try:
                seen = measure(program, some)
            except ncu.Failed as error:
                print(f"patterns {first} to {first + len(some) - 1}: {error}", file=sys.stderr)
                continue
            rows += [compare(*pair) for pair in zip(some, seen, strict=True)]
            unequal = sum(not row["equal"] for row in rows)
            print(f"{len(rows)} of {len(patterns)} patterns measured, {unequal} not as the model "
                  "says", file=sys.stderr, flush=True)  # fmt: skip
    return rows


def compare(pattern: dict[str, Any], seen: dict[str, int]) -> dict[str, Any]:
    row: dict[str, Any] = {k: pattern[k] for k in ("kind", "size", "mask", "offsets")}
    row |= {"hardware": seen, "equal": True}
    for op in ("load", "store"):
        wavefronts, ideal = model(pattern, op)
        row[op] = {"wavefronts": wavefronts, "ideal": ideal}
        row["equal"] &= (
            seen[f"{op}_wavefronts"] == REPEATS * wavefronts
            and seen[f"{op}_conflicts"] == REPEATS * (wavefronts - ideal)
            and seen[f"{op}_instructions"] == REPEATS
        )
    return row


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patterns", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", metavar="FILE")
    arguments = parser.parse_args(argv)
    draw = random.Random(arguments.seed)
    rows = measure_all([random_pattern(draw) for _ in range(arguments.patterns)])
    for size in (4, 8, 16):
        of_size = [row for row in rows if row["size"] == size]
        equal = sum(row["equal"] for row in of_size)
        print(f"{size:2} bytes a lane: {equal} of {len(of_size)} patterns as the model says")
    for row in [row for row in rows if not row["equal"]][:10]:
        print(json.dumps(row))
    if arguments.record:
        record = {**provenance("wavefronts"), "repeats": REPEATS, "patterns": rows}
        text = json.dumps(record, indent=None, separators=(",", ":"))
        Path(arguments.record).write_text(text.replace('{"kind"', '\n{"kind"') + "\n")
    return int(len(rows) < arguments.patterns or not all(row["equal"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
