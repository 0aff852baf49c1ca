"""Generated parts of README.md and docs/, from the registry and records.

python tools/readme.py [FOLDER]
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import goals

from gpureduce import lectures
from gpureduce.bench import record
from gpureduce.bench.ratios import GIB, KIB, MIB, mean, ratios
from gpureduce.bench.suites import axis, exact, scoreboard, segments, several_devices
from gpureduce.bench.svg_bars import svg_bars
from gpureduce.cli import main as command_line
from gpureduce.core import json_files, registry
from gpureduce.hardware import report as _counter_report
from gpureduce.hardware import verify_counters
from gpureduce.lectures import scans
from gpureduce.text import markdown_table, size_text
from gpureduce.training import speed


def strategy_table() -> str:
    lines = ["| strategy | the lesson | also called | needs |", "|---|---|---|---|"]
    for row in registry.strategies():
        if row.broken:
            continue
        aliases = ", ".join(f"`{alias}`" for alias in row.aliases)
        needs = [row.needs] if row.needs else []
        needs += [" or ".join(row.dtypes)] if len(row.dtypes) == 2 else []
        name = f"[`{row.name}`](kernels.md#{row.name})" if row.launches_kernels else f"`{row.name}`"
        lines.append(f"| {name} | {_plain(row.lesson)} | {aliases} | {', '.join(needs)} |")
    return "\n".join(lines)


def scan_table() -> str:
    scans = (row for row in registry.strategies() if row.kind == "scan")
    rows = [[f"[`{row.name}`](kernels.md#{row.name})", _plain(row.lesson)] for row in scans]
    return markdown_table(["strategy", "the lesson"], rows, (0, 1))


def _plain(text: str) -> str:
    """A text with Markdown's special characters escaped."""
    return text.replace("*", "\\*").replace("__", "\\_\\_")


def kernel_listing() -> str:
    """Every kernel's file, for the documentation."""
    parts = []
    for row in registry.strategies():
        if row.launches_kernels:
            folder = "" if row.kind in ("kernel", "everywhere") else f"{row.kind}/"
            file = f"csrc/kernels/{folder}{row.name}.cu"
            include = f"```{{literalinclude}} ../{file}\n:language: cuda\n```"
            parts.append(f"## {row.name}\n\n{_plain(row.lesson)}\n[{file}](../{file})\n\n{include}")
    return "\n\n".join(parts)


def command_listing() -> str:
    parts = []
    for name, verb in command_line._parser().verbs.items():
        actions = [a for a in verb._actions if a.dest not in ("help", "json")]
        options = [f"| `{_shown(a)}` | {_meaning(a)} |" for a in actions if a.option_strings]
        usage = verb.format_usage().removeprefix("usage: ").rstrip()
        about = verb.description or ""
        parts += [f"## {name}", f"{about[:1].upper()}{about[1:]}.", f"```sh\n{usage}\n```"]
        if options:
            parts.append("\n".join(["| option | meaning |", "|---|---|", *options]))
    return "\n\n".join(parts)


def _shown(action: argparse.Action) -> str:
    """An option or argument as typed on the command line."""
    if action.nargs == 0:
        value = ""
    else:
        value = str(action.metavar or action.dest.upper())
        value += " ..." if action.nargs in ("+", "*") else ""
    return " ".join([*action.option_strings[-1:], *([value] if value else [])])


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "").replace("|", "\\|")
    if action.choices:
        text += f"{'; ' * bool(text)}one of {', '.join(f'`{c}`' for c in action.choices)}"
    return text


def _named(path: Path, report: Callable[[dict[str, Any]], str], record: dict[str, Any]) -> str:
    """A record's tables. Errors name the file."""
    with json_files.naming(path):
        return report(record)


def performance(records: Path) -> str:
    """The tables of all scoreboard records, those of GPUs first."""
    return _of_kind(records, "bench", _scoreboard)


def _scoreboard(record: dict[str, Any]) -> str:
    """A scoreboard, and the goals that it misses."""
    parts = [scoreboard.markdown(record), goals.shortfall(goals.of_scoreboard(record))]
    return "\n\n".join(filter(None, parts))


def exact_sums(records: Path) -> str:
    return _of_kind(records, "exact", _exact)


def _exact(record: dict[str, Any]) -> str:
    """The cost of `exact`, the goals that it misses, and those that were not measured."""
    unknown: list[str] = []
    if record["device"] == "cuda":
        missed, unknown = goals.judged(record)
    else:  # only the ratios to math.fsum: times vary with the machine
        missed = [text for text in goals.on_thread(record) if " ns; goal: " in text]
    parts = [exact.markdown(record), goals.shortfall(missed)]
    parts += [f"Not measured: {'; '.join(unknown)}."] * bool(unknown)
    return "\n\n".join(filter(None, parts))


def _of_kind(records: Path, kind: str, report: Callable[[dict[str, Any]], str]) -> str:
    """The text of all records of a kind, those of GPUs first."""
    paths = [path for path in sorted(records.glob(f"{kind}_*.json")) if path.stem != "exact_fuzz"]
    kept = [(path, record.load(path, kind)) for path in paths]
    kept.sort(key=lambda one: str(one[1]["device"] != "cuda"))
    return "\n\n".join(_named(path, report, made) for path, made in kept)


def measured(records: Path, kind: str, report: Callable[[dict[str, Any]], str]) -> str:
    """The text of all records of a kind, each with where and when it was measured."""

    def text(made: dict[str, Any]) -> str:
        versions = ", ".join(f"{k} {v}" for k, v in made["versions"].items() if k != "gpureduce")
        cards = made.get("cards") or [made["card"]]
        where = f"{len(cards)} x {cards[0]}" if len(cards) > 1 else cards[0]
        said = f"{where}, driver {made['driver']}, {versions}, {made['date']}:"
        return f"{said}\n\n```text\n{report(made)}\n```"

    return _of_kind(records, kind, text)


def counters(records: Path) -> str:
    """The comparisons of the emulator's counts with GPUs' counters."""
    told = []
    for path in sorted(records.glob("counters_*.json")):
        beside = path.with_name(path.name.replace("counters", "wavefronts"))
        patterns = _counter_report.load_patterns(beside) if beside.exists() else None
        report = functools.partial(_counter_report.markdown, patterns=patterns)
        told.append(_named(path, report, verify_counters.read(path)))
    return "\n\n".join(told) or _counter_report.NOT_YET


_SHOWN = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, 4 * GIB)


def headline(records: Path) -> str:
    path = records / "bench_h100.json"
    return _named(path, _headline, record.load(path, "bench"))


def _headline(made: dict[str, Any]) -> str:
    """One sum at a time, the mean over the dtypes at some sizes."""
    lines = {name: ratios(made["rows"], "apart", name, ["cub"]) for name in ("fast", "exact")}
    lines = {name: found for name, found in lines.items() if found}
    if not lines:
        return ""
    every = [row for found in lines.values() for row in found]
    sizes = sorted({row["nbytes"] for row in every})
    sizes = [nbytes for nbytes in sizes if len(sizes) < 8 or nbytes in _SHOWN]
    body = []
    for name, found in lines.items():
        at = [[row for row in found if row["nbytes"] == nbytes] for nbytes in sizes]
        cells = [f"{mean(some):.2f}" if some else "" for some in at]
        body.append([f"CUB's time / time of `{name}`", *cells])
    dtypes = list(dict.fromkeys(row["dtype"] for row in every))
    told = [f"`{name}`: {scoreboard.mean_and_least(found)}" for name, found in lines.items()]
    return "\n\n".join([
        f"{made['card']}, one sum at a time (cold L2 cache, other work before and after it), "
        f"{'geometric means over ' * (len(dtypes) > 1)}{', '.join(dtypes)}:",
        markdown_table(["", *map(size_text, sizes)], body),
        f"Over all sizes and dtypes: {'; '.join(told)}.",
    ])  # fmt: skip


def ladder_chart(records: Path) -> str:
    """GB/s of the lectures' rungs and of later strategies, as SVG bars."""
    record = lectures.load(records / "lecture_rungs_h100.json").largest
    speeds = {row.strategy: row.nbytes / row.median_us / 1e3 for row in record.rows}
    bars = [(name, speeds[name]) for name in _BARS]
    size = record.rows[0].nbytes >> 30
    return svg_bars(f"GB/s of {size} GiB float32, {record.device}, back to back", bars)


_BARS = ("global_tree", "interleaved_mod", "interleaved_idx", "sequential", "unroll_tail",
         "unroll_warp", "first_add", "first_add_unroll_warp", "unroll_full", "cascade",
         "warp_shfl", "vector_load", "tiles", "cub", "exact", "fast")  # fmt: skip


_NOT_MEASURED = "`gpureduce bench --segments` has not been recorded on a card yet."


def scan_times(records: Path) -> str:
    tables = [scans.recorded(of, records / Path(scans.PATH).name) for of in ("whole", "matrices")]
    return "\n\n".join(f"```text\n{table}\n```" for table in tables)


# The generated part of each page: the name of its two markers, and the function that makes it.
PAGES: dict[str, tuple[str, Callable[[Path], str]]] = {
    "README.md": ("headline", headline),
    "docs/strategies.md": ("strategies", lambda _: strategy_table()),
    "docs/kernels.md": ("kernels", lambda _: kernel_listing()),
    "docs/scans.md": ("scans", lambda records: f"{scan_table()}\n\n{scan_times(records)}"),
    "docs/command_line.md": ("commands", lambda _: command_listing()),
    "docs/performance.md": ("performance", performance),
    "docs/exactness.md": ("exact", exact_sums),
    "docs/counters.md": ("counters", counters),
    "docs/axis.md": ("axis", lambda records: measured(records, "axis", axis.as_text)),
    "docs/segments.md": (
        "segments",
        lambda records: measured(records, "segments", segments.as_text) or _NOT_MEASURED,
    ),
    "docs/torch.md": ("torch", lambda records: measured(records, "torch", speed.as_text)),
    "docs/cluster.md": (
        "devices",
        lambda records: measured(records, "devices", several_devices.as_text),
    ),
}
CHART = "docs/ladder.svg"


def rewrite(text: str, name: str, table: str) -> str:
    """A page with the text between the markers of this name replaced."""
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"there must be one place for the table {name!r}")
    before, rest = text.split(start)
    lines = f"{table}\n" if table else ""
    return f"{before}{start}{lines}{end}{rest.split(end)[1]}"


def pages(root: Path) -> dict[Path, str]:
    """The new text of every page with generated parts, and the chart."""
    records = root / "notebooks" / "data"
    made = {}
    for page, (name, table) in PAGES.items():
        with json_files.naming(root / page):
            text = (root / page).read_text()
            made[root / page] = rewrite(text, name, "")
        made[root / page] = rewrite(text, name, table(records))
    made[root / CHART] = ladder_chart(records)
    return made


def main() -> int:
    """Rewrites the pages of a folder, by default of this repository. Errors are one line."""
    try:
        for path, text in pages(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
            path.write_text(text)
    except (OSError, ValueError) as error:
        print(f"tools/readme.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
