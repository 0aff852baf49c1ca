"""``gpureduce bench``: measurements as a table, CSV or JSON, with a progress bar."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

from gpureduce.bench import libraries, scoreboard
from gpureduce.bench.benchmark import MEASURES, Measurement, benchmark
from gpureduce.bench.contenders.arrays import WAYS
from gpureduce.bench.provenance import provenance
from gpureduce.core import calibration, json_files, output_files
from gpureduce.text import EMULATED, number, table

_CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "temperature.gpu")
REPEATS = 11
_KEPT_EACH_S = 5.0
_Kept = TypeVar("_Kept")
DERIVED = ("gb_s", "percent_of_peak", "percent_of_ceiling")


def clocks() -> dict[str, float]:
    """The first GPU's clocks in MHz and its temperature, from nvidia-smi; {} without it."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_CLOCKS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        values = done.stdout.splitlines()[0].split(",")
        return {name: float(v) for name, v in zip(_CLOCKS, values, strict=True)}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}


def read_ceiling(device: str | None) -> float | None:
    """The read bandwidth of a GPU's memory in GB/s: the fastest kernel on 4 GiB."""
    rows = benchmark(
        ["bulk_copy", "tiles"], [2**30], ["float32"], device=device, repeats=5,
        peers=[libraries.LOAD_ONLY],
    )  # fmt: skip
    found = [row.gb_s for row in rows if row.source == "cuda_event"]
    return max(found) if found else None


def rows_of(found: Iterable[Measurement], ceiling: float | None) -> list[dict[str, Any]]:
    """Measurements as plain rows, with derived rates."""
    rows = []
    for m in found:
        derived = {
            "gb_s": m.gb_s,
            "percent_of_peak": m.percent_of_peak,
            "percent_of_ceiling": 100 * m.gb_s / ceiling if ceiling and m.peak_gb_s else None,
        }
        rows.append(dataclasses.asdict(m) | derived)
    return rows


def record(
    rows: list[dict[str, Any]], peers: tuple[str, ...], before: dict[str, float], ceiling: Any
) -> dict[str, Any]:
    """A record: the rows with their provenance, clocks and calibration."""
    said = provenance("bench")
    said["versions"] |= libraries.versions(peers)
    said["clocks"] = {"before": before, "after": clocks()}
    if found := calibration.known():
        said["calibration"] = dataclasses.asdict(found)
    return said | {"read_ceiling_gb_s": ceiling, "rows": rows}


def as_csv(rows: list[dict[str, Any]]) -> str:
    """The rows as CSV."""
    names = [field.name for field in dataclasses.fields(Measurement)] + list(DERIVED)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_table(rows: list[dict[str, Any]]) -> str:
    """The rows as a text table without empty columns."""
    columns: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("what", lambda r: r["measure"]),
        ("strategy", lambda r: r["strategy"]),
        ("array of", lambda r: r["producer"] if r["measure"] == "call" else ""),
        ("way", lambda r: r["way"]),
        ("dtype", lambda r: r["dtype"]),
        ("n", lambda r: str(r["n"])),
        ("block", lambda r: str(r["block"] or "")),
        ("grid", lambda r: str(r["grid"] or "")),
        ("median us", lambda r: f"{r['median_us']:.2f}"),
        ("low", lambda r: f"{r['low_us']:.2f}"),
        ("high", lambda r: f"{r['high_us']:.2f}"),
        ("GB/s", lambda r: f"{r['gb_s']:.2f}"),
        ("M elements/s", lambda r: f"{r['n'] / r['median_us']:.1f}"),
        ("% of peak", lambda r: number(r["percent_of_peak"], ".1f")),
        ("% of ceiling", lambda r: number(r["percent_of_ceiling"], ".1f")),
        ("error, ulps", lambda r: number(r["error_ulps"], ".2f")),
        ("L2", lambda r: r["cache"]),
        ("ran on", lambda r: r["device"]),
    ]
    kept = [(head, cell) for head, cell in columns if any(cell(row) for row in rows)]
    heads = [head for head, _ in kept]
    text = {"what", "strategy", "array of", "way", "dtype", "L2", "ran on"}
    right = [i for i, head in enumerate(heads) if head not in text]
    return table(heads, [[cell(row) for _, cell in kept] for row in rows], right)


def _columns_of(screen: TextIO) -> int:
    """The width of a terminal. `shutil` asks standard output's, which may be a file."""
    try:
        found = os.get_terminal_size(screen.fileno()).columns
    except (AttributeError, OSError, ValueError):
        found = 0
    return found or 80


def progress_bar(done: int, total: int, text: str) -> None:
    """Draws the progress bar on one line, and erases it at the end."""
    columns = _columns_of(sys.stderr) - 1
    width = 24
    full = width * done // total
    line = f"[{'#' * full}{'.' * (width - full)}] {done}/{total} {text}"
    end = "\r" if done < total else f"\r{' ' * columns}\r"
    sys.stderr.write(f"\r{line[:columns].ljust(columns)}{end}" if done < total else end)
    sys.stderr.flush()


def size(text: str) -> int:
    """Parses a number of elements, such as 1000 or 2^20."""
    base, caret, power = text.partition("^")
    try:
        number, times = int(base), int(power) if caret else 1
    except ValueError:
        number, times = -1, 1
    if not (0 <= number < 2**63 and 0 <= times < 64 and number**times < 2**63):
        raise argparse.ArgumentTypeError(
            f"a size is a whole number below 2^63, like 4096 or 2^12, not {text!r}"
        )
    return int(number**times)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gpureduce bench`` that are about measuring."""
    parser.add_argument(
        "--strategies",
        nargs="+",
        metavar="NAME",
        help="what to time: names, or files of kernels of yours (default: sequential cascade fast "
        "cpu)",
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=size,
        metavar="N",
        help="numbers of elements (default: 2^20)",
    )
    parser.add_argument(
        "--dtypes",
        nargs="+",
        metavar="DTYPE",
        help="dtypes of the elements (default: int32)",
    )
    parser.add_argument("--accumulate", metavar="DTYPE", help="the dtype to add up in")
    parser.add_argument("--block", nargs="+", type=int, help="threads per block")
    parser.add_argument("--grid", nargs="+", type=int, help="blocks")
    parser.add_argument("--device", help="cuda, cuda:1 or emulator")
    parser.add_argument("--repeats", type=int, help="runs of each (default: 11; 3 for the page)")
    parser.add_argument(
        "--measure",
        nargs="+",
        choices=MEASURES,
        help="launches in a row (the default), launches with something else between, calls on "
        "arrays of the peers, calls on NumPy arrays, explaining, or counting every block",
    )
    parser.add_argument(
        "--peers",
        nargs="*",
        metavar="NAME",
        help=f"measure beside: {', '.join(libraries.NAMES)}; without names, all that are installed",
    )
    parser.add_argument(
        "--ways",
        nargs="+",
        choices=list(WAYS),
        help="how the calls of --measure call are made (default: all)",
    )
    parser.add_argument("--offset", type=int, default=0, help="elements off a 512-byte boundary")
    parser.add_argument(
        "--scoreboard",
        action="store_true",
        help="measure what the README's tables show, and print such tables",
    )
    parser.add_argument(
        "--devices",
        nargs="*",
        metavar="DEVICE",
        help="measure sums over 1, 2, ... of these devices, or of all GPUs; --sizes are per device",
    )
    parser.add_argument("--csv", action="store_true", help="print CSV")
    output_files.add_force(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="also write the record: .json, or .csv for the rows alone; or the page: .html",
    )


# The options that say what to measure. Without any of them, the page is made.
_NAMES = ("strategies", "sizes", "dtypes", "accumulate", "block", "grid", "peers", "ways")


def names_nothing(arguments: argparse.Namespace, measure: list[str] | None = None) -> bool:
    """Whether no option says what to measure, except that --measure is `measure`."""
    named = [getattr(arguments, name) for name in _NAMES]
    others = named != [None] * len(named) or arguments.offset or arguments.scoreboard
    return arguments.measure == measure and not others


def output_of(
    arguments: argparse.Namespace, kind: str, suffixes: tuple[str, ...] = (".json",)
) -> Path | None:
    """The file to write a record of this kind to, checked before anything is measured."""
    return output_files.checked(
        arguments.output, "--output", kind, suffixes,
        inputs=arguments.inputs, force=arguments.force, head=as_csv([]),
    )  # fmt: skip


def write(path: Path, made: dict[str, Any]) -> None:
    """Writes a record, or its rows as CSV."""
    if path.suffix == ".csv":
        output_files.write(path, as_csv(made["rows"]))
    else:
        json_files.write(path, made)


def keeping(
    rows: Iterable[_Kept], target: Path | None, made: Callable[[list[_Kept]], dict[str, Any]]
) -> list[_Kept]:
    """Measures the rows. The file has the record of those so far, if the run ends early.

    Its field "unfinished" is true then. Without any rows, an earlier file stays. `made` makes a
    record of rows.
    """
    found: list[_Kept] = []

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


def _scoreboard(arguments: argparse.Namespace) -> Iterator[Measurement]:
    parts = scoreboard.parts_for(arguments.device)
    chosen = [part for part in parts if part.measure in (arguments.measure or MEASURES)]
    return scoreboard.measure(chosen, arguments.device, progress())


def _asked(arguments: argparse.Namespace, peers: Sequence[str]) -> Iterator[Measurement]:
    return benchmark(
        arguments.strategies or ["sequential", "cascade", "fast", "cpu"],
        arguments.sizes or [2**20],
        arguments.dtypes or ["int32"],
        arguments.block or (None,),
        arguments.grid or (None,),
        arguments.device,
        REPEATS if arguments.repeats is None else arguments.repeats,
        arguments.accumulate,
        measure=arguments.measure or ["kernel"],
        peers=peers,
        ways=arguments.ways or list(WAYS),
        offset=arguments.offset,
        progress=progress(),
    )


def progress() -> Callable[[int, int, str], None] | None:
    """The progress callback of a long command: the bar on a terminal, otherwise None."""
    return progress_bar if sys.stderr.isatty() else None


def _print(arguments: argparse.Namespace, made: dict[str, Any]) -> None:
    rows = made["rows"]
    if arguments.json:
        print(json.dumps(made, indent=1))
    elif arguments.csv:
        print(as_csv(rows), end="")
    elif arguments.scoreboard:
        print(scoreboard.markdown(made))
    else:
        print(as_table(rows))
        if any(row["source"] == "emulator" for row in rows):
            print(f"\n{EMULATED}")


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce bench``: measures, prints, and writes a record if asked to."""
    target = output_of(arguments, "bench", (".json", ".csv"))
    # `--measure call` alone: the tables of calls in every way and by every strategy.
    arguments.scoreboard |= names_nothing(arguments, ["call"])
    calls = arguments.peers is None and "call" in (arguments.measure or [])
    everything = arguments.peers == [] or arguments.scoreboard or calls
    peers = ["all"] if everything else arguments.peers or []
    before = clocks()
    found = _scoreboard(arguments) if arguments.scoreboard else _asked(arguments, peers)
    beside = libraries.installed(tuple(peers), arguments.device)

    def made_of(rows: list[Measurement], ceiling: float | None = None) -> dict[str, Any]:
        return record(rows_of(rows, ceiling), beside, before, ceiling)

    measured = keeping(found, target, made_of)
    on_card = any(m.source == "cuda_event" for m in measured)
    made = made_of(measured, read_ceiling(arguments.device) if on_card else None)
    if target:
        write(target, made)
    _print(arguments, made)
