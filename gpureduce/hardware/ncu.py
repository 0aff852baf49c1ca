"""Nsight Compute (ncu): hardware counters of the kernels that a command launches."""

from __future__ import annotations

import csv
import glob
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

Row = dict[str, str]
_SECONDS = 240  # time limit for one run, in case a kernel hangs


class Failed(OSError):
    """A run of ncu without usable output."""


def find() -> str:
    """The path of ncu: from the environment variable NCU, PATH, or its usual folder."""
    usual = ("/usr/local/cuda/bin/ncu", *sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu")))
    for candidate in (os.environ.get("NCU"), "ncu", *reversed(usual)):
        found = shutil.which(candidate) if candidate else None
        if found:
            return found
    raise FileNotFoundError(
        "there is no ncu (Nsight Compute) on PATH: it comes with the CUDA toolkit; "
        "the environment's NCU may say where it is"
    )


def run(command: Sequence[str], options: Sequence[str], *, cold: bool = False) -> list[Row]:
    """Profile `command`: a row of counters for each kernel that it launched.

    Times are in nanoseconds. With `cold`, ncu flushes the caches before each kernel.
    """
    return rows_of(_output(command, options, cold=cold))


def listings(command: Sequence[str], options: Sequence[str]) -> dict[str, list[list[Row]]]:
    """Profiles `command`: the listings of the kernels that it launched, by the kernel's name."""
    return listings_of(_output(command, options))


def _output(command: Sequence[str], options: Sequence[str], *, cold: bool = False) -> str:
    """The output of ncu. It does not lock the GPU's clocks, because no count depends on them."""
    fixed = ["--csv", "--print-units", "base", "--clock-control", "none"]
    fixed += ["--cache-control", "all" if cold else "none"]
    whole = [find(), *fixed, *options, *command]
    try:
        done = subprocess.run(whole, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"ncu did not finish within {_SECONDS} s") from error
    said = (done.stdout + done.stderr).strip()
    if "ERR_NVGPUCTRPERM" in said:
        raise PermissionError(
            "this user may not read the card's counters (ERR_NVGPUCTRPERM): run as root, or load "
            "the driver's module with NVreg_RestrictProfilingToAdminUsers=0"
        )
    if done.returncode or "==ERROR==" in said:
        raise Failed(f"ncu failed with status {done.returncode}: {said[-1500:]}")
    return done.stdout


def rows_of(text: str) -> list[Row]:
    """The rows of ncu's CSV, extracted from its other output and the program's."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    # Below the head, a row without an ID has the units.
    return [row for row in csv.DictReader(lines) if row.get("ID", "").strip()]


def listings_of(text: str) -> dict[str, list[list[Row]]]:
    """The rows of ncu's source pages by kernel: a row for each instruction.

    ncu may print the listing of one launch several times over.
    """
    tables: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith('"Kernel Name"'):
            name = re.sub(r"^void ", "", next(csv.reader([line]))[1])
            tables.append((re.split(r"[<(]", name)[0], []))
        elif line.startswith('"') and tables:
            tables[-1][1].append(line)
    found: dict[str, list[list[Row]]] = {}
    for name, lines in tables:
        found.setdefault(name, []).append(list(csv.DictReader(lines)))
    return found


def number(row: Row, metric: str) -> int | None:
    """A counter's value; None if ncu printed none."""
    text = row.get(metric, "").replace(",", "").strip()
    try:
        return round(float(text))
    except ValueError:
        return None


def counter(row: Row, metric: str) -> int:
    """A counter's value. Raises `Failed` if it is missing."""
    count = number(row, metric)
    if count is None:
        raise Failed(f"ncu has no {metric} on this card: {row.get(metric, 'no column')!r}")
    return count
