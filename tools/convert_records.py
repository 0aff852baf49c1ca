"""Converts records of measurements from schema 1, in which each suite had a form of its own.

    python tools/convert_records.py notebooks/data/*.json

The files are rewritten in schema 2: one row for each contender on each case. Other files stay.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpureduce.bench import record
from gpureduce.bench.suites import several_devices
from gpureduce.core import dtypes

Row = dict[str, Any]
_WHOLE_CALLS = ("JAX, whole call", "jax segment_sum")  # timed by the processor's clock on a card


def _itemsize(row: Row) -> int:
    return dtypes.named(row["dtype"]).itemsize


def _timed(made: Row, case: Row, us: Row, source: str = "", **more: Any) -> Iterator[Row]:
    """Rows of medians in microseconds by contender, all that schema 1 kept of some times."""
    for name, time in us.items():
        by_clock = made["device"] != "cuda" or name in _WHOLE_CALLS
        clock = source or ("perf_counter" if by_clock else "cuda_event")
        row = {**case, "strategy": name, "source": clock, "repeats": None, "median_us": time}
        yield record.derived(row | {"low_us": None, "high_us": None} | more)


def _us(row: Row) -> Row:
    return {name: ms * 1e3 for name, ms in row.pop("ms").items()}


def bench(made: Row) -> Iterator[Row]:
    """Rows of calls had no way: they were untimed."""
    for row in made["rows"]:
        yield row | {"way": row.get("way", "timing=False" * (row["measure"] == "call"))}


def axis(made: Row) -> Iterator[Row]:
    """The milliseconds of all contenders were in one row."""
    for row in made["rows"]:
        us = _us(row)
        if "rows" not in row:  # a copy, whose reads and writes count
            case = {"measure": "shapes", **row, "n": row["nbytes"] // 2 // _itemsize(row)}
        else:
            size = row["rows"] * row["columns"] * row["batches"]
            case = {"measure": row.pop("part"), **row, "n": size}
        yield from _timed(made, case, us, "perf_counter" * (case["measure"] == "calls"))


def segments(made: Row) -> Iterator[Row]:
    """So were those of sums by segment."""
    for row in made["rows"]:
        us, _, _ = _us(row), row.pop("clocked"), row.pop("failed")
        yield from _timed(
            made, {"measure": "segments", **row, "nbytes": row["n"] * _itemsize(row)}, us
        )


def devices(made: Row) -> Iterator[Row]:
    """NCCL's sums were compared with nothing, instead of the library's sum on one device."""
    rows = [row | {"strategy": row.pop("contender"), "source": "perf_counter"}
            for row in made["rows"]]  # fmt: skip
    yield from several_devices.scaled({"rows": rows})["rows"]


def exact(made: Row) -> Iterator[Row]:
    """Four lists of rows, of which those on one thread had nanoseconds per element."""
    peak = {"peak_gb_s": made.pop("peak_gb_s", None)}
    made.pop("targets", None)
    for part, measure in (("kernels", "kernel"), ("small", "kernel"), ("calls", "call")):
        for row in made.pop(part, []):
            nbytes = row.get("nbytes", row.get("n", 0) * _itemsize(row))
            case = {"measure": measure, "dtype": row["dtype"], "data": row.get("data", "normal"),
                    "n": nbytes // _itemsize(row), "nbytes": nbytes}  # fmt: skip
            call = measure == "call"
            more = {"producer": "cupy"} if call else peak
            yield from _timed(made, case, row["us"], "perf_counter" * call, **more)
    if "cpu" in made:
        made |= {"device": "cpu", "spread": "the 10th and the 90th percentile"}
    for row in made.pop("cpu", []):
        case = {"measure": "thread", **{name: row[name] for name in ("dtype", "data", "n")},
                "nbytes": row["n"] * _itemsize(row)}  # fmt: skip
        for name in ("exact", "numpy", "fsum", "fsum_of_list"):
            if name in row:
                us = {key: ns * row["n"] / 1e3 for key, ns in row[name].items()}
                spread = {"low_us": us["low"], "high_us": us["high"]}
                yield from _timed(made, case, {name: us["ns"]}, "thread_time", **spread)


def lecture(made: Row) -> Iterator[Row]:
    """The rows stay."""
    yield from made["rows"]


_KINDS: dict[str, Callable[[Row], Iterator[Row]]] = {
    "bench": bench, "axis": axis, "segments": segments, "devices": devices, "exact": exact,
    "lecture": lecture,
}  # fmt: skip


def main() -> None:
    """Converts the files that are records of schema 1."""
    for path in map(Path, sys.argv[1:]):
        made = json.loads(path.read_text())
        if made.get("schema") == 1 and made.get("kind") in _KINDS:
            rows = list(_KINDS[made["kind"]](made))
            made.pop("rows", None)
            record.write(path, made | {"schema": record.SCHEMA, "rows": rows})
            print(f"{path}: converted")


if __name__ == "__main__":
    main()
