"""What of README.md follows from the registry and records: ``python tools/readme.py``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpureduce.bench import exact_bench, scoreboard, targets
from gpureduce.core import json_files, registry
from gpureduce.emulator import races
from gpureduce.hardware import report as _counter_report
from gpureduce.hardware import verify_counters


def strategy_table() -> str:
    """The strategies as a Markdown table."""
    lines = ["| strategy | the lesson | also called | needs |", "|---|---|---|---|"]
    for row in registry.strategies():
        if row.broken:
            continue
        aliases = ", ".join(f"`{alias}`" for alias in row.aliases)
        needs = [row.needs] if row.needs else []
        needs += ["32-bit integers"] if len(row.dtypes) == 2 else []
        lines.append(f"| `{row.name}` | {row.lesson} | {aliases} | {', '.join(needs)} |")
    return "\n".join(lines)


def race_timeline() -> str:
    """What the race detector says of a broken kernel, as the terminal shows it."""
    race = races.races("missing_barrier").races[0]
    cited = f"{race.sides[0].place}    {race.sides[0].place.text}"
    return f"```text\n{cited}\n\n{race.timeline}\n\n  missing: {race.missing}\n```"


def _named(path: Path, report: Callable[[dict[str, Any]], str], record: dict[str, Any]) -> str:
    """A record's tables; errors name its file."""
    with json_files.naming(path):
        return report(record)


def performance(records: Path) -> str:
    """The tables of the scoreboards that are kept, the cards' first."""
    paths = sorted(records.glob("bench_*.json"))
    kept = [(path, targets.load(path)) for path in paths]
    kept.sort(key=lambda one: str(one[1]["device"] != "cuda"))
    return "\n\n".join(_named(path, scoreboard.markdown, record) for path, record in kept)


def exact_sums(records: Path) -> str:
    """The tables of what `exact` costs, the cards' first."""
    paths = [path for path in sorted(records.glob("exact_*.json")) if path.stem != "exact_fuzz"]
    kept = [(path, exact_bench.load(path)) for path in paths]
    kept.sort(key=lambda one: "cpu" in one[1])
    return "\n\n".join(_named(path, exact_bench.markdown, record) for path, record in kept)


def counters(records: Path) -> str:
    """What the cards say of the emulator's counts."""
    told = []
    for path in sorted(records.glob("counters_*.json")):
        beside = path.with_name(path.name.replace("counters", "wavefronts"))
        patterns = _counter_report.load_patterns(beside) if beside.exists() else None
        report = functools.partial(_counter_report.markdown, patterns=patterns)
        told.append(_named(path, report, verify_counters.read(path)))
    return "\n\n".join(told) or _counter_report.NOT_YET


def rewrite(text: str, records: Path) -> str:
    """The README with all that is generated made anew between its markers."""
    made = {
        "strategies": strategy_table(),
        "race": race_timeline(),
        "performance": performance(records),
        "exact": exact_sums(records),
        "counters": counters(records),
    }
    for name, table in made.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if text.count(start) != 1 or text.count(end) != 1:
            raise ValueError(f"README.md must have one place for the table {name!r}")
        before, rest = text.split(start)
        lines = f"{table}\n" if table else ""
        text = f"{before}{start}{lines}{end}{rest.split(end)[1]}"
    return text


def main() -> int:
    """Rewrite README.md in the current folder; errors go to standard error, in one line."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "README.md")
    try:
        path.write_text(rewrite(path.read_text(), path.parent / "notebooks" / "data"))
    except (OSError, ValueError) as error:
        print(f"tools/readme.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
