"""Converts records of measurements from schema 1, in which each suite had a form of its own.

    python tools/convert_records.py notebooks/data/*.json

The files are rewritten in schema 2: one row for each contender on each case. Other files stay.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpureduce.bench import record
from gpureduce.bench.suites import several_devices
from gpureduce.core import dtypes

Row = dict[str, Any]
_UNKNOWN = {"repeats": None, "low_us": None, "high_us": None}  # schema 1 kept some medians only
_WHOLE_CALLS = ("JAX, whole call", "jax segment_sum")  # timed by the processor's clock on a card


def _itemsize(row: Row) -> int:
    return dtypes.named(row["dtype"]).itemsize


def _clock(made: Row, strategy: str) -> str:
    by_events = made["device"] == "cuda" and strategy not in _WHOLE_CALLS
    return "cuda_event" if by_events else "perf_counter"


def bench(made: Row) -> Iterator[Row]:
    """Rows of calls had no way: they were untimed."""
    for row in made["rows"]:
        yield {"way": "timing=False" * (row["measure"] == "call")} | row


def axis(made: Row) -> Iterator[Row]:
    """The milliseconds of all contenders were in one row."""
    for row in made["rows"]:
        times = row.pop("ms")
        if "rows" not in row:  # a copy, whose reads and writes count
            case = {"measure": "shapes", **row, "n": row["nbytes"] // 2 // _itemsize(row)}
        else:
            size = row["rows"] * row["columns"] * row["batches"]
            case = {"measure": row.pop("part"), **row, "n": size}
        for name, ms in times.items():
            clock = "perf_counter" if case["measure"] == "calls" else _clock(made, name)
            yield {**case, "strategy": name, "source": clock, **_UNKNOWN, "median_us": ms * 1e3}


def segments(made: Row) -> Iterator[Row]:
    """So were those of sums by segment."""
    for row in made["rows"]:
        times, _, _ = row.pop("ms"), row.pop("clocked"), row.pop("failed")
        case = {"measure": "segments", **row, "nbytes": row["n"] * _itemsize(row)}
        for name, ms in times.items():
            clock = _clock(made, name)
            yield {**case, "strategy": name, "source": clock, **_UNKNOWN, "median_us": ms * 1e3}


def devices(made: Row) -> Iterator[Row]:
    """NCCL's sums were compared with nothing, instead of the library's sum on one device."""
    for row in made["rows"]:
        yield row | {"strategy": row.pop("contender"), "source": "perf_counter"}


def exact(made: Row) -> Iterator[Row]:
    """Four lists of rows, of which those on one thread had nanoseconds per element."""
    peak = made.pop("peak_gb_s", None)
    made.pop("targets", None)
    for measure in ("kernels", "small", "calls"):
        for row in made.pop(measure, []):
            nbytes = row.get("nbytes", row.get("n", 0) * _itemsize(row))
            case = {"measure": measure, "dtype": row["dtype"], "data": row.get("data", "normal"),
                    "n": nbytes // _itemsize(row), "nbytes": nbytes}  # fmt: skip
            clock = "perf_counter" if measure == "calls" else _clock(made, "")
            for name, us in row["us"].items():
                fields = {"peak_gb_s": peak} if measure != "calls" else {"producer": "cupy"}
                yield {**case, "strategy": name, "source": clock, **fields, **_UNKNOWN,
                       "median_us": us}  # fmt: skip
    if "cpu" in made:
        made |= {"device": "cpu", "spread": "the 10th and the 90th percentile"}
    for row in made.pop("cpu", []):
        case = {"measure": "thread", **{name: row[name] for name in ("dtype", "data", "n")},
                "nbytes": row["n"] * _itemsize(row)}  # fmt: skip
        for name in ("exact", "numpy", "fsum", "fsum_of_list"):
            if name in row:
                us = {key: ns * row["n"] / 1e3 for key, ns in row[name].items()}
                times = {"median_us": us["ns"], "low_us": us["low"], "high_us": us["high"]}
                yield {**case, "strategy": name, "source": "thread_time", "repeats": None, **times}


def lecture(made: Row) -> Iterator[Row]:
    """The rows stay."""
    yield from made["rows"]


_KINDS: dict[str, Callable[[Row], Iterator[Row]]] = {
    "bench": bench, "axis": axis, "segments": segments, "devices": devices, "exact": exact,
    "lecture": lecture,
}  # fmt: skip


def converted(made: Row) -> Row:
    """A record of schema 1 in schema 2. The argument is used up."""
    rows = list(_KINDS[made["kind"]](made))
    if made["kind"] not in ("bench", "lecture"):
        rows = [record.derived(row) for row in rows]
    made |= {"schema": record.SCHEMA, "rows": rows}
    made["rows"] = made.pop("rows")  # last, after the head
    return several_devices.scaled(made) if made["kind"] == "devices" else made


def main() -> None:
    """Converts the files that are records of schema 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        made = json.loads(path.read_text())
        if made.get("schema") == 1 and made.get("kind") in _KINDS:
            record.write(path, converted(made))
            print(f"{path}: converted")


if __name__ == "__main__":
    main()
