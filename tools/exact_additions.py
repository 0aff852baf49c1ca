"""Exact additions beside atomicAdd: ``python tools/exact_additions.py LIBRARY [RECORD.json]``.

LIBRARY is a build of tools/exact_additions.cu. The L2 cache is flushed before every run. CUDA
events around the kernel give its time, and sums are rounded outside of it. All exact sums of a case
must have the same bits.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gpureduce
from gpureduce.bench.command import Suite, measured, write
from gpureduce.bench.progress import progress
from gpureduce.bench.runner import Contender, Group, Row, one_by_one
from gpureduce.text import table

N, REPEATS = 1 << 26, 11
CASE = ("dtype", "segments", "ids", "data")
COUNTS = (1, 100, 10**4, 10**6, 10**7)
WAYS = {"": 0, ", by warp": 1, ", by block": 2}
KINDS = {
    "f": {"atomicAdd float": 4, "atomicAdd 64 bits": 8, "exact_window float": 16,
          "exact_window float, K": 16, "exact_sum float": 72, "exact_sum float, unread": 264},
    "d": {"atomicAdd double": 8, "exact_window double": 16, "exact_sum double": 304},
}  # fmt: skip
BASE = {"f": "atomicAdd float", "d": "atomicAdd double"}
GOALS = (
    ("exact_window float", 1.3, lambda row: 10**4 <= row["segments"] <= 10**6),
    ("exact_window float, by warp", 1.0, lambda row: row["segments"] <= 100),
    ("exact_sum float", 4.0, lambda row: True),
)


def contenders(library: Any, case: Row) -> Iterator[Contender]:
    kind, count = "f" if case["dtype"] == "float32" else "d", case["segments"]
    made = library.exact_additions_begin(
        case["n"], count, kind.encode(), case["ids"] == "power law", case["data"] == "spread"
    )
    if made:
        raise RuntimeError(made.decode())
    for (name, size), (way, number) in itertools.product(KINDS[kind].items(), WAYS.items()):
        if ("window" in name and case["data"] == "spread") or (number and "atomic" in name):
            continue
        run = functools.partial(library.exact_additions_run, name.encode(), number)
        if (us := run()) == -1:
            continue
        if us < 0:
            raise RuntimeError(f"{name}{way} failed")

        def sums(run: Callable[[], float] = run) -> Any:
            run()
            found = np.empty(count)
            library.exact_additions_sums(found.ctypes.data_as(ctypes.c_void_p))
            return found

        value_bytes = 4 if kind == "f" else 8
        fields = {"source": "cuda_event", "nbytes": case["n"] * (4 + value_bytes) + count * size}
        yield Contender(
            name + way, lambda often, run=run: [run() for _ in range(often)], sums, fields
        )


def comparison() -> Callable[[str, Any], None]:
    """Raises if exact sums of a case differ in a bit, or others are far from them."""
    exact: dict[str, Any] = {}

    def compare(name: str, sums: Any) -> None:
        if name.startswith("exact"):
            first = exact.setdefault("sums", sums)
            if not np.array_equal(first.view(np.int64), sums.view(np.int64)):
                raise ValueError(f"{name} has other bits")

    return compare


def groups(library: Any) -> list[Group]:
    """A group for each type, number of addresses, law of ids, and range of values."""
    found = []
    for dtype, count, ids in itertools.product(
        ("float32", "float64"), COUNTS, ("uniform", "power law")
    ):
        for data in ("near 1", "spread") if ids == "uniform" else ("near 1",):
            case = {"measure": "additions", "n": N, "dtype": dtype, "segments": count, "ids": ids,
                    "data": data}  # fmt: skip
            make = functools.partial(contenders, library, case)
            found.append(Group(f"{dtype} {count} {ids} {data}", case, make, one_by_one(REPEATS),
                               comparison()))  # fmt: skip
    return found


def ratio(row: Row, rows: list[Row]) -> float:
    """How many times as long as atomicAdd of the same type a contender takes."""
    base = BASE["f" if row["dtype"] == "float32" else "d"]
    same = (r for r in rows if r["strategy"] == base and all(r[k] == row[k] for k in CASE))
    return float(row["median_us"] / next(same)["median_us"])


def missed(rows: list[Row]) -> list[str]:
    return [
        f"{name}: {ratio(row, rows):.2f} times {BASE['f']}, not {most}: "
        + ", ".join(str(row[k]) for k in CASE)
        for row in rows for name, most, on in GOALS
        if row["strategy"] == name and on(row) and ratio(row, rows) > most
    ]  # fmt: skip


def text(made: Row) -> str:
    head = ["values", "sums", "ids", "range", "by", "ms", "ratio", "MB"]
    rows = made["rows"]
    lines = [
        [*(f"{row[k]:,}" if k == "segments" else row[k] for k in CASE), row["strategy"],
         f"{row['median_us'] / 1e3:.3f}", f"{ratio(row, rows):.2f}", f"{row['nbytes'] / 1e6:,.0f}"]
        for row in rows
    ]  # fmt: skip
    return "\n".join([table(head, lines, right=(1, 5, 6, 7)), "", *missed(rows)])


def main() -> None:
    library = ctypes.CDLL(str(Path(sys.argv[1]).resolve()))
    library.exact_additions_begin.restype = ctypes.c_char_p
    kinds = (ctypes.c_size_t, ctypes.c_int, ctypes.c_char, ctypes.c_int, ctypes.c_int)
    library.exact_additions_begin.argtypes = kinds
    library.exact_additions_run.restype = ctypes.c_double
    device = gpureduce.devices()[0]
    suite = Suite("additions", device if device.backend == "cuda" else None, groups(library), text)
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    made = measured(suite, target, progress())
    if target:
        write(target, made)
    print(text(made))


if __name__ == "__main__":
    main()
