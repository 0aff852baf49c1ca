"""Records of measurements: one format for all suites.

A record is a JSON object with its provenance (see `provenance`), the card's clocks, and `rows`: one
for each contender on each case. `failed` has a row for each contender that could not be measured,
with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gpureduce.bench.provenance import HEAD, output_of, provenance
from gpureduce.bench.runner import Row
from gpureduce.core import devices, json_files, output_files
from gpureduce.core.calibration import Calibration

SCHEMA = 2
# The fields of every row, and further fields of the rows of some suites.
_ALWAYS: dict[str, Any] = {
    **dict.fromkeys(("measure", "strategy", "dtype", "source"), str),
    **dict.fromkeys(("n", "nbytes"), int),
    **dict.fromkeys(("low_us", "high_us"), float | None),
    **dict.fromkeys(("median_us", "gb_s"), float),
    "repeats": int | None,
}
_MORE: dict[str, Any] = {
    **dict.fromkeys(("device", "cache", "producer", "way", "data", "kernel", "ids", "index",
                     "operation"), str),
    **dict.fromkeys(("offset", "rows", "columns", "batches", "segments", "devices", "window",
                     "table", "skew"), int),
    "axis": int | str,
    **dict.fromkeys(("block", "grid"), int | None),
    **dict.fromkeys(("peak_gb_s", "percent_of_peak", "percent_of_ceiling"), float | None),
    **dict.fromkeys(("error_ulps", "linear", "added_us"), float | None),
}  # fmt: skip
# The further fields that the tables of each kind of record read.
_NEEDED = {
    "axis": ("rows", "columns", "axis", "batches", "kernel"),
    "bench": ("producer", "way", "offset", "percent_of_peak"),
    "devices": ("devices", "linear", "added_us"),
    "exact": ("data",),
    "frames": ("operation",),
    "scan": ("rows", "columns", "axis"),
    "segments": ("segments", "ids", "columns", "data", "index"),
    "torch": ("operation", "columns", "table", "skew"),
}
_CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "temperature.gpu")
_KEPT_EACH_S = 5.0


def load(path: str | Path, kind: str) -> Row:
    """Reads a record. Raises ValueError that names the file and the wrong field."""
    path = Path(path)
    record = json_files.read_record(path, kind, SCHEMA, **HEAD, rows=list[dict[str, Any]])
    with json_files.naming(path):
        if not record["rows"]:
            raise ValueError("it has no rows")
        for i, row in enumerate(record["rows"]):
            _check(row, f"rows[{i}]", _NEEDED[kind])
        if record.get("calibration") is not None:
            json_files.made(Calibration, record["calibration"], "calibration")
    return record


def _check(row: Row, at: str, needed: Sequence[str]) -> None:
    for name, kind in (_ALWAYS | _MORE).items():
        if name in row:
            json_files.checked(row[name], kind, f"{at}.{name}")
        elif name in (_ALWAYS if row.get("strategy") == "copy" else (*_ALWAYS, *needed)):
            raise ValueError(f"{at}.{name} is missing")
    for name in ("n", "nbytes", "median_us", "low_us"):
        if row[name] is not None and row[name] <= 0:
            raise ValueError(f"{at}.{name} must be above 0, not {row[name]}")


def clocks() -> dict[str, float]:
    """The first GPU's clocks in MHz and its temperature, from nvidia-smi; {} without it."""
    asked = f"--query-gpu={','.join(_CLOCKS)}"
    found = output_of("nvidia-smi", asked, "--format=csv,noheader,nounits") or ""
    try:
        values = found.splitlines()[0].split(",")
        return {name: float(v) for name, v in zip(_CLOCKS, values, strict=True)}
    except (ValueError, IndexError):
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
    made = provenance(kind, device, SCHEMA) | {"clocks": {"before": clocks()}}
    return made if device else made | {"device": "cpu"}


def made(begun: Row, rows: Sequence[Row]) -> Row:
    """The record with these rows."""
    failed = [row for row in rows if "failed" in row]
    record = begun | {"clocks": begun["clocks"] | {"after": clocks()}}
    record |= {"failed": failed} if failed else {}
    return record | {"rows": [derived(row) for row in rows if "failed" not in row]}


def write(path: Path, record: Row) -> None:
    """Writes a record's file."""
    output_files.write(path, json_files.text_of(record))


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
