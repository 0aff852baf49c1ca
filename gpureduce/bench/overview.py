"""``gpureduce bench`` with nothing named: a summary of this machine on one page, in a minute.

The page shows the card's limit, the bandwidth of each strategy and library, the time of calls, the
speed of host arrays, the choices of `auto`, and whether `gpureduce tune` would gain anything.
Without a GPU it is about the processors. All of it is measured by the parts of a scoreboard and by
the functions of `tune`.
"""

from __future__ import annotations

import argparse
import html
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpureduce.bench import libraries, report, scoreboard, tuning
from gpureduce.bench.contenders.arrays import WAYS
from gpureduce.bench.libraries import LOAD_ONLY
from gpureduce.bench.scoreboard import EVERY, Part
from gpureduce.bench.svg_bars import svg_bars
from gpureduce.bench.targets import GIB, KIB, MIB, Row
from gpureduce.core import calibration, devices, output_files
from gpureduce.text import EMULATED, Table, number, size_text

_PEERS = tuple(peer.name for peer in libraries.PEERS)
_REPEATS = 3
# A gain below this may be noise: the best of many candidates is partly luck.
_WORTH = 1.03


@dataclass(frozen=True)
class Sizes:
    """The sizes in bytes that the page is about; those of a single float32 are 4."""

    large: int
    called: tuple[int, ...]
    host: tuple[int, ...]
    tuned: tuple[int, ...]


ON_CARD = Sizes(GIB, (4, 256 * KIB, 4 * MIB), (MIB, 64 * MIB, 256 * MIB),
                (64 * KIB, 4 * MIB, 256 * MIB))  # fmt: skip
ON_HOST = Sizes(256 * MIB, (4, 256 * KIB, 4 * MIB), (MIB, 64 * MIB, 256 * MIB), ())
EMULATED_SIZES = Sizes(256 * KIB, (4, 4 * KIB), (256 * KIB,), (KIB, 16 * KIB, 256 * KIB))


def _kind(device: str | None) -> str:
    """``"cuda"``, ``"emulator"`` if that is named, or ``"cpu"``."""
    backend = devices.choose_device(device).backend
    return "cpu" if device is None and backend == "emulator" else backend


def parts(kind: str, repeats: int) -> list[Part]:
    """The parts of the page for a kind of device."""
    sizes = {"cuda": ON_CARD, "cpu": ON_HOST, "emulator": EMULATED_SIZES}[kind]
    float32 = ("float32",)
    if kind == "cpu":
        return [
            Part("call", ("auto", "cpu"), ("numpy",), float32, sizes.called, 0, repeats,
                 tuple(WAYS)),
            Part("host", ("auto", "cpu", "exact"), ("numpy", *_PEERS), float32, sizes.host, 0,
                 repeats),
        ]  # fmt: skip
    found = [
        Part("apart", ("fast", EVERY), (LOAD_ONLY,), float32, (sizes.large,), 0, repeats),
        Part("call", ("auto", "fast", "warp_shfl"), (*_PEERS, "numpy"), float32, sizes.called, 0,
             repeats, tuple(WAYS)),
        Part("host", ("auto", "cpu", "fast"), ("numpy", *_PEERS), float32, sizes.host, 0, repeats),
    ]  # fmt: skip
    if kind == "cuda":
        found.insert(1, Part("call", (), _PEERS, float32, (sizes.large,), 0, repeats))
    return found


def measured(
    device: str | None = None,
    repeats: int = _REPEATS,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Measures the page's record: rows like a scoreboard's, gains of tuning, facts on `auto`."""
    kind = _kind(device)
    before = report.clocks()
    found = list(scoreboard.measure(parts(kind, repeats), device, progress))
    limits = [m.gb_s for m in found if m.strategy == LOAD_ONLY and kind == "cuda"]
    ceiling = max(limits, default=None)
    gains: list[dict[str, Any]] = []
    if kind != "cpu":
        sizes = ON_CARD if kind == "cuda" else EMULATED_SIZES
        gains = tuning.gains(devices.choose_device(device), sizes.tuned, repeats)
    if kind == "cuda":
        calibration.calibration()
    here = libraries.installed(("all",), device)
    record = report.record(report.rows_of(found, ceiling), here, before, ceiling)
    return record | {"page": kind, "auto": calibration.told(), "gains": gains}


def tables(record: dict[str, Any]) -> list[Table]:
    """The page's tables."""
    rows = record["rows"]
    found = [_ends(record), _calls(rows), _host(rows), _auto(record), _tuning(record)]
    return [table for table in found if table]


def _head(record: dict[str, Any]) -> list[str]:
    """The first lines of the page: the machine, and whether the times are emulated."""
    place = {"cpu": record["processor"], "emulator": "the emulated GPU"}
    title = f"gpureduce on {place.get(record['page'], record['card'])}"
    emulated = [EMULATED] if record["page"] == "emulator" else []
    return [title, scoreboard.made(record), *emulated]


def _ends_of(record: dict[str, Any]) -> list[Row]:
    """The rows of the large size on a card, quickest first."""
    apart = [row for row in record["rows"] if row["measure"] == "apart"]
    nbytes = max((row["nbytes"] for row in apart), default=0)
    own = [
        row
        for row in record["rows"]
        if row["measure"] == "call" and row["nbytes"] == nbytes
        and row["strategy"] == row["producer"] in _PEERS
    ]  # fmt: skip
    return sorted([*apart, *own], key=lambda row: float(row["median_us"]))


def _ends(record: dict[str, Any]) -> Table | None:
    rows = _ends_of(record)
    if not rows:
        return None
    limit = next((row["gb_s"] for row in rows if row["strategy"] == LOAD_ONLY), None)
    body = [
        [row["strategy"], f"{row['median_us']:.1f}", f"{row['gb_s']:.4g}",
         number(limit and 100 * row["gb_s"] / limit, ".1f"), number(row["percent_of_peak"], ".1f"),
         "a call" if row["measure"] == "call" else "launches"]
        for row in rows
    ]  # fmt: skip
    return Table(
        f"Bandwidth: {size_text(rows[0]['nbytes'])} of float32, one sum at a time",
        ["strategy", "us", "GB/s", "% of limit", "% of peak", "measured"],
        body,
        [f"The limit is {LOAD_ONLY}: a kernel that loads the array and stores one word."]
        * bool(limit),
    )


def _calls(rows: list[Row]) -> Table:
    head, body = scoreboard.call_lines(rows)
    return Table(
        "Calls, from an array to a Python number, in us (in brackets the library's own sum)",
        head, body, [scoreboard.MEANING_OF_WAYS],
    )  # fmt: skip


def _host(rows: list[Row]) -> Table:
    head, body = scoreboard.host_lines(rows)
    return Table("Float32 arrays in host memory, in GB/s", head, body)


def _auto(record: dict[str, Any]) -> Table:
    lines = [
        ["floats", "exact, the correctly rounded sum"],
        ["integers", "fast for an array on a card, else cpu"],
        *([name.replace("_", " "), text] for name, text in record["auto"].items()),
    ]
    note = "`auto` takes the quickest way of adding up large host arrays, by this calibration."
    title, measured = "What `auto` does", "calibration" in record["auto"]
    return Table(title, ["arrays", "by"], lines, [note] * measured)


def _tuning(record: dict[str, Any]) -> Table | None:
    gains = record["gains"]
    if not gains:
        return None
    best = max(row["fast_us"] / row["us"] for row in gains)
    told = [
        f"`gpureduce tune` would make some sums {100 * (best - 1):.0f}% faster."
        if best >= _WORTH
        else "`gpureduce tune` would gain nothing here."
    ]
    body = [
        [size_text(row["nbytes"]), f"{row['fast_us']:.2f}", f"{row['us']:.2f}",
         f"{row['fast_us'] / row['us']:.3f}", f"{row['strategy']}, block {row['block']}"]
        for row in gains
    ]  # fmt: skip
    head = ["bytes", "`fast`, us", "best candidate, us", "gain", "candidate"]
    return Table(
        "What tuning would gain, float32", head, body, told if record["page"] == "cuda" else []
    )


def as_text(record: dict[str, Any]) -> str:
    """The page as text."""
    return "\n\n".join([*_head(record), *map(str, tables(record))])


_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:.5em 0 .5em}td,th{padding:.15em .7em;font-size:90%;"
    "border-bottom:1px solid #8886}svg{max-width:48em}section{margin:2em 0}"
)


def as_html(record: dict[str, Any]) -> str:
    """The page as one HTML file, with a chart of the large sums."""
    sections = [f"<section>{table._repr_html_()}</section>" for table in tables(record)]
    ends = _ends_of(record)
    if ends:
        emulated = " (emulated)" if record["page"] == "emulator" else ""
        title = f"GB/s of {size_text(ends[0]['nbytes'])} of float32, one sum at a time{emulated}"
        bars = [(row["strategy"], row["gb_s"]) for row in ends]
        sections.insert(1, f"<section>{svg_bars(title, bars)}</section>")
    title, *told = map(html.escape, _head(record))
    return "\n".join([
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>",
        *(f"<p>{text}</p>" for text in told), *sections, "</body></html>\n",
    ])  # fmt: skip


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce bench`` with nothing named: measures, prints, and writes a file."""
    target = report.output_of(arguments, "bench", (".html", ".json", ".csv"))
    made = measured(arguments.device, arguments.repeats or _REPEATS, report.progress())
    if target and target.suffix == ".html":
        output_files.write(target, as_html(made), "bench")
    elif target:
        report.write(target, made)
    if arguments.json:
        print(json.dumps(made, indent=1))
    elif arguments.csv:
        print(report.as_csv(made["rows"]), end="")
    else:
        print(as_text(made))
