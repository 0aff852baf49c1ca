"""Microseconds of small calls: ``python tools/calls.py [--beside CHECKOUT]``.

With ``--beside``, another checkout, with its extensions built, is timed in turns with this one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import timeit
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORT = ROOT / "tests" / "support"
CALLS = """
g.sum(a, timing=False)
g.sum(a)
g.sum(a, dtype="f8", timing=False)
g.sum(a, "cpu", dtype="f4", timing=False)
g.sum(a[:, ::2], timing=False)
g.sum([1.0, 2.0])
g.sum(a, axis=1, timing=False)
g.sum(a, axis=1)
g.sum(a, axis=1, dtype="f8", timing=False)
g.sum(a, axis=1, where=a > 1, timing=False)
g.sum(a, axis=1, out=out, timing=False)
g.segment_sum(a[:, 0], ids, timing=False)
g.segment_sum(a[:, 0], ids, num_segments=2, timing=False)
g.segment_sum(a[:, 0], offsets=offsets, timing=False)
g.segment_sum(a[:, 0], offsets=offsets)
g.sum_parts([a, a], timing=False)
g.trapezoid(a[0])
g.digits(a, axis=0)
g.Accumulator().add(a)
g.sum(a, "fast", device="emulator")
g.sum(a, "fast", axis=1, device="emulator")
g.sum(OnDevice(a), "fast", axis=1, device="emulator")
g.segment_sum(OnDevice(a[:, 0]), OnDevice(ids), device="emulator", num_segments=2)
g.integrate("pi", n=101, device="cpu")
""".strip().splitlines()
SETUP = """
import numpy as np, gpureduce as g
from producers import OnDevice
a, out = np.arange(12.0).reshape(3, 4), np.empty(3)
ids, offsets = np.array([0, 1, 0]), np.array([0, 1, 3])
"""

_BATCH_S = 1e-3  # short beside the slices of time that busy processors give


def measured(repeat: int) -> list[float]:
    """The least microseconds of each call."""
    found = []
    for call in CALLS:
        timer = timeit.Timer(call, SETUP)
        number = max(1, int(_BATCH_S / (timer.timeit(20) / 20)))
        found.append(min(timer.repeat(repeat, number)) / number * 1e6)
    return found


def of(checkout: Path, only: str) -> list[float]:
    """The same in a process that imports gpureduce from a checkout."""
    path = {"PYTHONPATH": os.pathsep.join(map(str, (checkout, SUPPORT)))}
    line = [sys.executable, "-P", __file__, "--json", "--only", only]
    done = subprocess.run(line, env=os.environ | path, capture_output=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Prints a line per call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="calls with this text")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    CALLS[:] = [call for call in CALLS if given.only in call]
    if given.json:
        print(json.dumps(measured(100)))
        return
    checkouts = [ROOT] if given.beside is None else [given.beside, ROOT]
    rounds = [[of(one, given.only) for one in checkouts] for _ in range(given.rounds)]
    for i, call in enumerate(CALLS):
        best = [min(one[k][i] for one in rounds) for k in range(len(checkouts))]
        more = f" {best[-1] - best[0]:+7.2f}" if given.beside else ""
        print("".join(f"{us:8.2f}" for us in best) + f"{more}  {call}")


if __name__ == "__main__":
    main()
