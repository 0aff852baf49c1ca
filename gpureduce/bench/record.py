"""Records of measurements: one format for all suites.

A record is a JSON object with its provenance (see `provenance`), the card's clocks, and `rows`: one
for each contender on each case. `Fields` lists the fields of a row. `failed` has a row for each
contender that could not be measured, with the reason.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypedDict

from gpureduce.bench.provenance import HEAD, provenance
from gpureduce.bench.runner import Row
from gpureduce.core import devices, json_files, output_files

SCHEMA = 2
_CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "temperature.gpu")
_KEPT_EACH_S = 5.0


class _Measured(TypedDict):
    """The fields that all rows have."""

    measure: str  # what is timed, of what the suite times
    strategy: str  # the contender
    dtype: str
    n: int
    nbytes: int
    source: str  # the clock
    repeats: int | None
    median_us: float
    low_us: float | None
    high_us: float | None


class Fields(_Measured, total=False):
    """The fields of a row, of which each suite has some."""

    gb_s: float
    percent_of_peak: float | None
    percent_of_ceiling: float | None
    peak_gb_s: float | None
    # how a contender ran
    block: int | None
    grid: int | None
    device: str
    cache: str
    producer: str
    way: str
    error_ulps: float | None
    # arrays
    offset: int
    data: str
    # matrices, and rows of values
    rows: int
    columns: int
    axis: int
    batches: int
    kernel: str
    # segments
    segments: int
    ids: str
    index: str
    # several devices
    devices: int
    linear: float | None
    added_us: float | None


def load(path: Path, kind: str, needed: Callable[[Row], Iterable[str]]) -> Row:
    """Reads a record. Raises ValueError that names the file and the wrong field.

    `needed` names the fields of a row that a suite's tables read, besides those of all rows.
    """
    record = json_files.read_record(path, kind, SCHEMA, **HEAD, rows=list[Fields])
    with json_files.naming(path):
        if not record["rows"]:
            raise ValueError("it has no rows")
        for i, row in enumerate(record["rows"]):
            for name in needed(row):
                if name not in row:
                    raise ValueError(f"rows[{i}].{name} is missing")
            for name in ("n", "nbytes", "median_us", "low_us"):
                if row[name] is not None and row[name] <= 0:
                    raise ValueError(f"rows[{i}].{name} must be above 0, not {row[name]}")
    return record


def clocks() -> dict[str, float]:
    """The first GPU's clocks in MHz and its temperature, from nvidia-smi; {} without it."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_CLOCKS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        values = done.stdout.splitlines()[0].split(",")
        return {name: float(v) for name, v in zip(_CLOCKS, values, strict=True)}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}


def derived(row: Row, ceiling: float | None = None) -> Row:
    """The row with its rates. `ceiling` is what the card's memory can be read at, in GB/s."""
    row = row | {"gb_s": row["nbytes"] / row["median_us"] / 1e3}
    if "peak_gb_s" in row:
        for name, most in (("peak", row["peak_gb_s"]), ("ceiling", row["peak_gb_s"] and ceiling)):
            row[f"percent_of_{name}"] = 100 * row["gb_s"] / most if most else None
    return row


def head(kind: str, device: devices.Device | None) -> Row:
    """A record without rows. Without a device, it is one of the processors."""
    made = provenance(kind, device, SCHEMA)
    if device is None:
        made["device"] = "cpu"
    return made | {"clocks": {"before": clocks()}}


def made(begun: Row, rows: Iterable[Row], ceiling: float | None = None) -> Row:
    """The record with these rows."""
    rows = list(rows)
    failed = [row for row in rows if "failed" in row]
    record = begun | {"clocks": begun["clocks"] | {"after": clocks()}}
    record |= {"failed": failed} if failed else {}
    return record | {"rows": [derived(row, ceiling) for row in rows if "failed" not in row]}


def write(path: Path, record: Row) -> None:
    """Writes a record, a row on a line."""
    rows = ",\n".join(json.dumps(row) for row in record["rows"])
    text = json.dumps({**record, "rows": []}, indent=1)
    output_files.write(path, text.replace('"rows": []', f'"rows": [\n{rows}\n ]') + "\n")


def keeping(
    rows: Iterable[Row], target: Path | None, made: Callable[[Sequence[Row]], Row],
    write: Callable[[Path, Row], None] = write,
) -> list[Row]:  # fmt: skip
    """Measures the rows. The file has the record of those so far, if the run ends early.

    Its field "unfinished" is true then. Without any rows, an earlier file stays. `made` makes a
    record of rows.
    """
    found: list[Row] = []

    def keep() -> None:
        if target and found:
            write(target, made(found) | {"unfinished": True})

    kept = time.monotonic()
    try:
        for row in rows:
            found.append(row)
            if time.monotonic() - kept > _KEPT_EACH_S:
                keep()
                kept = time.monotonic()
    except BaseException:
        keep()
        raise
    return found
