"""Fuzz strategy "exact" against the integer oracle, for as long as you like.

    python tools/fuzz_exact.py --arrays 1000000 --ways 1000 --device cpu

Then it adds up the same elements in `--ways` ways (exact_ways.py), which must all give the same
bits. On a GPU (--device cuda), rows are slices of arrays on it. Prints one line per dtype and
writes the run to --record FILE. The exit status is 0 if all sums were right.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import gpureduce
from exact_cases import FLOATS, FORMATS, GENERATORS, Array, batches, bits_of, expected_rows
from exact_ways import check

COMPLEX = {"complex64": "float32", "complex128": "float64"}
DEVICES = {
    "cpu": ["cpu"],
    "emulator": ["emulator", "emulator array"],
    "cuda": ["cuda", "cuda array"],
}  # devices for the ways to add up, by --device; see exact_ways.py

Bits = tuple[int, ...]  # of the real part, and of the imaginary part if complex


def bits_of_parts(value: Any) -> Bits:
    return (
        (bits_of(value.real), bits_of(value.imag)) if value.dtype.kind == "c" else (bits_of(value),)
    )


def data(name: str, arrays: int, seed: int) -> Iterator[tuple[str, Array, list[Bits]]]:
    """Rows to add up with their right sums. Parts of complex rows come from two generators."""
    part = FORMATS[COMPLEX.get(name, name)]
    rng = np.random.default_rng([seed, 99])
    for label, rows in batches(part.name, arrays, seed):
        if name not in COMPLEX:
            yield label, rows, [(bits,) for bits in expected_rows(part, rows)]
            continue
        other = GENERATORS[rng.integers(len(GENERATORS))](part, rng, *rows.shape)
        both = np.empty(rows.shape, name)
        both.real, both.imag = rows, other
        wanted = zip(expected_rows(part, rows), expected_rows(part, other), strict=True)
        yield label, both, list(wanted)


def on_host(device: str) -> Callable[[Array], list[Bits]]:
    """Returns a function that sums each row, from host memory."""

    def run(rows: Array) -> list[Bits]:
        return [bits_of_parts(gpureduce.sum(row, "exact", device=device).value) for row in rows]

    return run


def on_card(rows: Array) -> list[Bits]:
    """Copies rows to the GPU and sums each row there."""
    import cupy

    name = rows.dtype.name
    there = cupy.asarray(rows.view(np.uint16) if name == "bfloat16" else rows)
    if name == "bfloat16":
        import torch

        there = torch.from_dlpack(there.view(cupy.int16)).view(torch.bfloat16)
    return [bits_of_parts(gpureduce.sum(row, "exact", timing=False).value) for row in there]


def fuzz(name: str, arrays: int, seed: int, run: Callable[[Array], list[Bits]]) -> dict[str, Any]:
    """Sums arrays of one dtype. Returns the counts of all and wrong sums, and some wrong ones."""
    checked = wrong = elements = 0
    examples = []
    start = time.perf_counter()
    for generator, rows, expected in data(name, arrays, seed):
        got = run(rows)
        checked += len(rows)
        elements += rows.size
        for i, (want, have) in enumerate(zip(expected, got, strict=True)):
            if want != have:
                wrong += 1
                words = f"u{rows.dtype.itemsize // len(want)}"
                bits = np.ascontiguousarray(rows[i]).view(words).tolist()
                examples.append({"generator": generator, "bits": bits, "want": want, "got": have})
    return {
        "dtype": name,
        "arrays": checked,
        "elements": elements,
        "seed": seed,
        "wrong": wrong,
        "examples": examples[:3],
        "seconds": round(time.perf_counter() - start, 1),
    }


def write(path: Path, device: str, run: dict[str, Any]) -> None:
    """Writes the run to the record. Runs on other devices are kept."""
    from gpureduce.bench.provenance import provenance
    from gpureduce.core import devices

    chosen = None if device == "cpu" else devices.choose_device(device)
    run = {**provenance("exact fuzz", chosen), "on": device, **run}
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    runs = sorted([*(r for r in runs if r["on"] != device), run], key=lambda r: r["on"])
    newest = {key: run[key] for key in run if key not in ("on", "fuzz", "ways")}
    path.write_text(json.dumps({**newest, "runs": runs}, indent=1) + "\n")


def main() -> int:
    """Fuzzes the dtypes of the command line, then tries ways to add up."""
    names = [*FLOATS, *COMPLEX]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrays", type=int, default=1_000_000, help="of each dtype")
    parser.add_argument("--ways", type=int, default=1000, help="to add up, of each real dtype")
    parser.add_argument("--dtype", nargs="+", choices=names, default=names)
    parser.add_argument("--device", choices=list(DEVICES), default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path)
    asked = parser.parse_args()
    runner = on_card if asked.device == "cuda" else on_host(asked.device)
    found: dict[str, list[dict[str, Any]]] = {"fuzz": [], "ways": []}
    for name in asked.dtype:
        found["fuzz"].append(fuzz(name, asked.arrays, asked.seed, runner))
        print(json.dumps(found["fuzz"][-1]), flush=True)
    for name in (name for name in asked.dtype if name in FLOATS and asked.ways):
        found["ways"].append(check(name, asked.ways, asked.seed, DEVICES[asked.device], 8000))
        print(json.dumps(found["ways"][-1]), flush=True)
    if asked.record:
        write(asked.record, asked.device, found)
    return 1 if any(row["wrong"] for rows in found.values() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
