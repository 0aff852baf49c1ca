"""Fuzz strategy "exact" against the integer oracle, for as long as you like.

    python tests/fuzz_exact.py --arrays 1000000 --dtype float32 float64 --device cpu

On a card (--device cuda), rows are sliced out of arrays that lie there. Prints one line per dtype
and writes --record FILE; the exit status says whether all sums were right.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from exact_cases import FLOATS, FORMATS, Array, batches, bits_of, expected_rows

import gpureduce


def on_host(device: str) -> Callable[[Array], list[int]]:
    """Sums each row, from host memory."""

    def run(rows: Array) -> list[int]:
        return [bits_of(gpureduce.sum(row, "exact", device=device).value) for row in rows]

    return run


def on_card(rows: Array) -> list[int]:
    """Sums each row where it lies on the card."""
    import cupy

    name = rows.dtype.name
    there = cupy.asarray(rows.view(np.uint16) if name == "bfloat16" else rows)
    if name == "bfloat16":
        import torch

        there = torch.from_dlpack(there.view(cupy.int16)).view(torch.bfloat16)
    return [bits_of(gpureduce.sum(row, "exact", timing=False).value) for row in there]


def fuzz(name: str, arrays: int, seed: int, run: Callable[[Array], list[int]]) -> dict[str, Any]:
    """How many arrays of one dtype were summed, how many wrongly, and the first wrong ones."""
    checked = wrong = elements = 0
    examples = []
    start = time.perf_counter()
    for generator, rows in batches(name, arrays, seed):
        expected = expected_rows(FORMATS[name], rows)
        got = run(rows)
        checked += len(rows)
        elements += rows.size
        for i, (want, have) in enumerate(zip(expected, got, strict=True)):
            if want != have:
                wrong += 1
                bits = FORMATS[name].bits(rows[i]).tolist()
                examples.append({"generator": generator, "bits": bits, "want": want, "got": have})
    return {
        "dtype": name,
        "arrays": checked,
        "elements": elements,
        "wrong": wrong,
        "examples": examples[:3],
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> int:
    """Fuzz the dtypes that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrays", type=int, default=1_000_000)
    parser.add_argument("--dtype", nargs="+", choices=FLOATS, default=FLOATS)
    parser.add_argument("--device", choices=["cpu", "emulator", "cuda"], default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    run = on_card if arguments.device == "cuda" else on_host(arguments.device)
    rows = []
    for name in arguments.dtype:
        rows.append(fuzz(name, arguments.arrays, arguments.seed, run))
        print(json.dumps(rows[-1]), flush=True)
    if arguments.record:
        from gpureduce.record import provenance

        record = {**provenance("exact fuzz"), "on": arguments.device, "fuzz": rows}
        arguments.record.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
