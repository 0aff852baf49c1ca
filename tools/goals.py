"""What records of a card miss of the project's goals.

python tools/goals.py notebooks/data/*.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpureduce.bench.suites import segments
from gpureduce.core import json_files

Row = dict[str, Any]

# --- sums by segment --------------------------------------------------------------------------

# What float32 sums of 2^26 numbers by int64 ids should reach on an H200. By segments: the time over
# that of torch's index_add at most, how many times its deterministic mode takes at least, the time
# by offsets and by sorted ids over that of the best other call at most.
_OF_SEGMENTS = {
    100: (0.03, 250, 1.1, 2),
    10_000: (0.65, 15, 1.1, 3),
    1_000_000: (1.0, 20, 0.12, 0.4),
    16_000_000: (1.3, 7, 0.02, 0.7),
}


def of_segments(record: Row) -> list[str]:
    """What sums by segment miss, worst first."""
    found = []
    for by in segments.by_case(record["rows"]):
        case = next(iter(by.values()))
        usual = tuple(case[name] for name in ("dtype", "columns", "data", "index", "n"))
        wanted = _OF_SEGMENTS.get(case["segments"])
        if usual != ("float32", 1, "normal", "int64", 1 << 26) or not wanted or "exact" not in by:
            continue
        us, best = {name: row["median_us"] for name, row in by.items()}, segments.best_other(by)
        add, certain = us.get("torch index_add"), us.get("torch deterministic")
        checks: list[tuple[float, str]] = []
        if case["ids"] == "unsorted" and add and certain:
            over, under = us["exact"] / add, certain / us["exact"]
            checks.append((over / wanted[0], f"{over:.3g} of index_add, not {wanted[0]}"))
            said = f"the deterministic index_add takes {under:.3g} times as long, not {wanted[1]}"
            checks.append((wanted[1] / under, said))
        most = {"offsets": wanted[2], "sorted": wanted[3]}.get(case["ids"])
        if most and best:
            ratio = us["exact"] / us[best]
            checks.append((ratio / most, f"{ratio:.3g} of the best other call, not {most}"))
        name = f"{case['segments']:,} segments, {case['ids']}"
        found += [(by_how_much, f"{name}: {said}") for by_how_much, said in checks]
    found = [one for one in found if one[0] > 1]
    return [f"{said} ({times:.2f} times off)" for times, said in sorted(found, reverse=True)]


MISSED: dict[str, tuple[Callable[[Path], Row], Callable[[Row], Sequence[str]]]] = {
    "segments": (segments.load, of_segments),
}


def main() -> int:
    """Prints what each record misses. Records of other kinds are passed over."""
    for path in map(Path, sys.argv[1:]):
        kind = json_files.read(path).get("kind")
        if kind in MISSED:
            load, missed = MISSED[kind]
            for text in missed(load(path)):
                print(f"{path.name}: {text}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
