"""``gpureduce bench`` with nothing named: a summary of this machine on one page, in a minute.

The page shows the card's limit, the bandwidth of each strategy and library, the time of calls, the
speed of host arrays, the choices of `auto`, and whether `gpureduce tune` would gain anything.
Without a GPU it is about the processors. All of it is measured by parts like a scoreboard's and by
the functions of `tune`.
"""

from __future__ import annotations

import argparse
import dataclasses
import html
from typing import NamedTuple

from gpureduce.bench import libraries, tuning
from gpureduce.bench.benchmark import EVERY, Maker, Part
from gpureduce.bench.command import Suite
from gpureduce.bench.contenders.arrays import WAYS
from gpureduce.bench.libraries import LOAD_ONLY
from gpureduce.bench.ratios import GIB, KIB, MIB
from gpureduce.bench.render import BYTES, Cell, listing, of
from gpureduce.bench.runner import Row
from gpureduce.bench.suites import scoreboard
from gpureduce.bench.suites.strategies import suite_of, with_ceiling
from gpureduce.bench.svg_bars import svg_bars
from gpureduce.core import calibration, devices
from gpureduce.text import EMULATED, Table, number, size_text

_PEERS = tuple(peer.name for peer in libraries.PEERS)
_REPEATS = 3
# A gain below this may be noise: the best of many candidates is partly luck.
_WORTH = 1.03


class Sizes(NamedTuple):
    """The sizes in bytes that the page is about; those of a single float32 are 4."""

    large: int
    called: tuple[int, ...]
    host: tuple[int, ...]
    tuned: tuple[int, ...]


SIZES = {
    "cuda": Sizes(GIB, (4, 256 * KIB, 4 * MIB), (MIB, 64 * MIB, 256 * MIB),
                  (64 * KIB, 4 * MIB, 256 * MIB)),
    "cpu": Sizes(256 * MIB, (4, 256 * KIB, 4 * MIB), (MIB, 64 * MIB, 256 * MIB), ()),
    "emulator": Sizes(256 * KIB, (4, 4 * KIB), (256 * KIB,), (KIB, 16 * KIB, 256 * KIB)),
}  # fmt: skip


def parts(kind: str, repeats: int) -> list[Part]:
    """The parts of the page for a kind of device."""
    sizes, ways, every = SIZES[kind], tuple(WAYS), (*_PEERS, "numpy")
    found = [
        Part("apart", ("fast", EVERY), (LOAD_ONLY,), nbytes=(sizes.large,)),
        Part("call", (), _PEERS, nbytes=(sizes.large,)),
        Part("call", ("auto", "fast", "warp_shfl"), every, nbytes=sizes.called, ways=ways),
        Part("host", ("auto", "cpu", "fast"), every, nbytes=sizes.host),
    ]
    if kind == "emulator":
        del found[1]
    if kind == "cpu":
        found = [
            Part("call", ("auto", "cpu"), ("numpy",), nbytes=sizes.called, ways=ways),
            Part("host", ("auto", "cpu", "exact"), every, nbytes=sizes.host),
        ]
    return [dataclasses.replace(part, dtypes=("float32",), repeats=repeats) for part in found]


def suite(arguments: argparse.Namespace) -> Suite:
    """The suite of the command's options: rows like a scoreboard's, gains of tuning, `auto`."""
    device, repeats = arguments.device, arguments.repeats or _REPEATS
    backend = devices.choose_device(device).backend
    kind = "cpu" if device is None and backend == "emulator" else backend

    def end(made: Row) -> Row:
        """The limit that was measured among the rows is the ceiling."""
        limits = [row["gb_s"] for row in made["rows"] if row["strategy"] == LOAD_ONLY]
        made = with_ceiling(made, max(limits, default=None) if kind == "cuda" else None)
        gains = []
        if kind != "cpu":
            gains = tuning.gains(devices.choose_device(device), SIZES[kind].tuned, repeats)
        if kind == "cuda":
            calibration.calibration()
        return usual.finish(made) | {"page": kind, "auto": calibration.summary(), "gains": gains}

    usual = suite_of(Maker(device).groups(parts(kind, repeats)), as_text, device, ["all"])
    return dataclasses.replace(usual, end=end)


# --- the page -------------------------------------------------------------------------------------


def tables(made: Row) -> list[Table]:
    """The page's tables."""
    head, body = scoreboard.call_lines(made["rows"])
    title = "Calls, from an array to a Python number, in us (in brackets the library's own sum)"
    calls = Table(title, head, body, [scoreboard.MEANING_OF_WAYS])
    host = Table("Float32 arrays in host memory, in GB/s", *scoreboard.host_lines(made["rows"]))
    found = [_ends(made), calls, host, _auto(made), _tuning(made)]
    return [table for table in found if table]


def _head(made: Row) -> list[str]:
    """The first lines of the page: the machine, and whether the times are emulated."""
    place = {"cpu": made["processor"], "emulator": "the emulated GPU"}
    title = f"gpureduce on {place.get(made['page'], made['card'])}"
    return [title, scoreboard.place_and_date(made), *[EMULATED] * (made["page"] == "emulator")]


def _ends_of(made: Row) -> list[Row]:
    """The rows of the large size on a card, quickest first."""
    apart = [row for row in made["rows"] if row["measure"] == "apart"]
    nbytes = max((row["nbytes"] for row in apart), default=0)
    own = [
        row
        for row in made["rows"]
        if row["measure"] == "call" and row["nbytes"] == nbytes
        and row["strategy"] == row["producer"] in _PEERS
    ]  # fmt: skip
    return sorted([*apart, *own], key=lambda row: float(row["median_us"]))


def _ends(made: Row) -> Table | None:
    rows = _ends_of(made)
    if not rows:
        return None
    limit = next((row["gb_s"] for row in rows if row["strategy"] == LOAD_ONLY), None)
    columns: dict[str, Cell] = {
        "strategy": of("strategy"), "us": of("median_us", ".1f"), "GB/s": of("gb_s", ".4g"),
        "% of limit": lambda row: number(limit and 100 * row["gb_s"] / limit, ".1f"),
        "% of peak": of("percent_of_peak", ".1f"),
        "measured": lambda row: "a call" if row["measure"] == "call" else "launches",
    }  # fmt: skip
    return Table(
        f"Bandwidth: {size_text(rows[0]['nbytes'])} of float32, one sum at a time",
        *listing(rows, columns),
        [f"The limit is {LOAD_ONLY}: a kernel that loads the array and stores one word."]
        * bool(limit),
    )


def _auto(made: Row) -> Table:
    lines = [
        ["floats", "exact, the correctly rounded sum"],
        ["integers", "fast for an array on a card, else cpu"],
        *([name.replace("_", " "), text] for name, text in made["auto"].items()),
    ]
    note = "`auto` takes the quickest way of adding up large host arrays, by this calibration."
    measured = "calibration" in made["auto"]
    return Table("What `auto` does", ["arrays", "by"], lines, [note] * measured)


def _tuning(made: Row) -> Table | None:
    gains = made["gains"]
    if not gains:
        return None
    best = max(row["fast_us"] / row["us"] for row in gains)
    lines = (
        f"`gpureduce tune` would make some sums {100 * (best - 1):.0f}% faster."
        if best >= _WORTH
        else "`gpureduce tune` would gain nothing here."
    )
    columns: dict[str, Cell] = {
        "bytes": BYTES, "`fast`, us": of("fast_us", ".2f"), "best candidate, us": of("us", ".2f"),
        "gain": lambda row: f"{row['fast_us'] / row['us']:.3f}",
        "candidate": lambda row: f"{row['strategy']}, block {row['block']}",
    }  # fmt: skip
    notes = [lines] * (made["page"] == "cuda")
    return Table("What tuning would gain, float32", *listing(gains, columns), notes)


def as_text(made: Row) -> str:
    """The page as text."""
    return "\n\n".join([*_head(made), *map(str, tables(made))])


_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:.5em 0 .5em}td,th{padding:.15em .7em;font-size:90%;"
    "border-bottom:1px solid #8886}svg{max-width:48em}section{margin:2em 0}"
)


def as_html(made: Row) -> str:
    """The page as one HTML file, with a chart of the large sums."""
    sections = [f"<section>{table._repr_html_()}</section>" for table in tables(made)]
    if ends := _ends_of(made):
        emulated = " (emulated)" if made["page"] == "emulator" else ""
        title = f"GB/s of {size_text(ends[0]['nbytes'])} of float32, one sum at a time{emulated}"
        bars = [(row["strategy"], row["gb_s"]) for row in ends]
        sections.insert(1, f"<section>{svg_bars(title, bars)}</section>")
    title, *lines = map(html.escape, _head(made))
    return "\n".join([
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>",
        *(f"<p>{text}</p>" for text in lines), *sections, "</body></html>\n",
    ])  # fmt: skip
