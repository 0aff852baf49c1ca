"""The performance targets of `exact`, and the targets that a record of `exact_bench` misses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gpureduce.bench.targets import MIB

# A target of `exact`: its name, the least ratio of speeds, the other strategy (or "bus", the peak
# bandwidth), and a filter for its rows.
Target = tuple[str, float, str, Callable[[dict[str, Any]], bool]]


def _is(dtype: str, *data: str, mib: int = 16) -> Callable[[dict[str, Any]], bool]:
    return lambda row: bool(
        row["dtype"] == dtype and (not data or row["data"] in data) and row["nbytes"] >= mib * MIB
    )


TARGETS: list[Target] = [
    ("float32, of CUB's sum", 0.97, "cub", _is("float32")),
    ("float64, of CUB's sum", 0.97, "cub", _is("float64", "uniform", "normal", "lognormal")),
    ("float64 of random bits, of the bus", 0.5, "bus", _is("float64", "bits")),
    ("float16 from 1 GiB, of the bus", 0.85, "bus", _is("float16", mib=1024)),
    ("bfloat16 from 1 GiB, of the bus", 0.75, "bus", _is("bfloat16", mib=1024)),
    ("any, of CUB's reproducible sum", 1.0, "cub_reproducible", lambda row: True),
]


# Targets on one thread: the most nanoseconds per element, and the least speedup over math.fsum.
CPU_MOST_NS = {"float32": 0.6, "float64": 1.2}
CPU_LEAST_OF_FSUM = 20


def missed_on_cpu(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences on the CPU rows that miss these targets, fsum of a list included."""
    missed = []
    for row in rows:
        what = f"{row['dtype']} {row['data']}, n = {row['n']:,}"
        most = CPU_MOST_NS.get(row["dtype"], math.inf)
        if row["exact"]["ns"] > most:
            missed.append(f"{what}: {row['exact']['ns']:.2f} ns, not {most}")
        for name, other in (("of_fsum", "fsum"), ("of_fsum_of_list", "fsum of a list")):
            if row.get(name, math.inf) < CPU_LEAST_OF_FSUM:
                missed.append(f"{what}: {row[name]:.1f} times {other}, not {CPU_LEAST_OF_FSUM}")
    return missed


def _short_at(row: dict[str, Any], other: str, kernels: Sequence[dict[str, Any]]) -> str:
    """Describes a row whose ratio is too small.

    For ratios to the bus, adds the ratios of plain sums, and of `exact` with its fastest data.
    """
    ratio = row["exact_of"][other]
    told = f"{row['data']}, {row['nbytes'] // MIB} MiB: {ratio:.3f}"
    if other != "bus":
        return told
    reached = {
        name: ratio * row["us"]["exact"] / row["us"][name]
        for name in ("cub", "fast")
        if name in row["us"]
    }
    size = (row["dtype"], row["nbytes"])
    same = [r for r in kernels if (r["dtype"], r["nbytes"]) == size]
    kindest = max(same, key=lambda r: r["exact_of"].get("bus", 0))
    if kindest is not row:
        reached[f"exact of {kindest['data']} numbers"] = kindest["exact_of"]["bus"]
    return f"{told}; there {', '.join(f'{name} is at {r:.3f}' for name, r in reached.items())}"


def judge(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Compares a record with its targets. Returns a row per target, with `wanted` and `met`.

    A row has the least ratio found, or for small arrays the most microseconds above `fast`. `met`
    is None if the record has no data for a target.
    """
    found: list[dict[str, Any]] = []
    for what, least, other, on in TARGETS:
        rows = [r for r in record["kernels"] if on(r) and other in r["exact_of"]]
        short = [
            _short_at(r, other, record["kernels"]) for r in rows if r["exact_of"][other] < least
        ]
        ratios = [r["exact_of"][other] for r in rows]
        told = {"what": what, "wanted": least, "least": min(ratios, default=None)}
        found.append(told | ({"short": short} if short else {}))
    floats = [r for r in record["kernels"] if r["dtype"] == "float32"]
    for size in sorted({r["nbytes"] for r in floats}):
        us = [r["us"]["exact"] for r in floats if r["nbytes"] == size]
        what = f"float32 of {size // MIB} MiB, quickest data of slowest"
        found.append({"what": what, "wanted": 0.98, "least": round(min(us) / max(us), 4)})
    for where in ("small", "calls"):
        more = [round(r["us"]["exact"] - r["us"]["fast"], 2) for r in record.get(where, [])]
        found.append(
            {"what": f"{where}: us above fast", "wanted": 3, "most": max(more, default=None)}
        )
    for row in found:
        lowest, highest = row.get("least"), row.get("most")
        row["met"] = None
        if lowest is not None:
            row["met"] = lowest >= row["wanted"]
        elif highest is not None:
            row["met"] = highest <= row["wanted"]
    return found
