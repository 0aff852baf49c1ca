"""``gpureduce bench``: the strategies, sizes and measures that its options name."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Sequence

from gpureduce.bench import libraries, record
from gpureduce.bench.benchmark import Part, benchmark, combinations
from gpureduce.bench.command import REPEATS, Suite
from gpureduce.bench.contenders.arrays import WAYS
from gpureduce.bench.render import US, Cell, as_table, listing, of
from gpureduce.bench.runner import Group, Row
from gpureduce.core import calibration, devices
from gpureduce.text import EMULATED


def suite_of(
    groups: Iterable[Group], text: Callable[[Row], str], device: str | None, peers: Sequence[str]
) -> Suite:
    """A suite of kind ``bench``, with the calibration of `auto` and what a card's memory gives."""

    def finish(made: Row) -> Row:
        found = calibration.known()
        return made | ({"calibration": dataclasses.asdict(found)} if found else {})

    def end(made: Row) -> Row:
        on_card = any(row["source"] == "cuda_event" for row in made["rows"])
        return with_ceiling(made, read_ceiling(device) if on_card else None)

    more = {"read_ceiling_gb_s": None}
    here = libraries.installed(tuple(peers), device)
    return Suite("bench", devices.devices()[0], list(groups), text, here, more, finish, end)


def read_ceiling(device: str | None) -> float | None:
    """The read bandwidth of a GPU's memory in GB/s: the fastest kernel on 4 GiB."""
    rows = benchmark(
        ["bulk_copy", "tiles"], [2**30], ["float32"], device=device, repeats=5,
        peers=[libraries.LOAD_ONLY],
    )  # fmt: skip
    found = [row.gb_s for row in rows if row.source == "cuda_event"]
    return max(found) if found else None


def with_ceiling(made: Row, ceiling: float | None) -> Row:
    """The record with the percentages of what a card can be read at."""
    rows = [record.derived(row, ceiling) for row in made["rows"]]
    return made | {"read_ceiling_gb_s": ceiling, "rows": rows}


def suite(arguments: argparse.Namespace) -> Suite:
    measure = arguments.measure or ["kernel"]
    everything = arguments.peers == [] or (arguments.peers is None and "call" in measure)
    peers = ["all"] if everything else arguments.peers or []
    part = Part(
        "",
        arguments.strategies or ["sequential", "cascade", "fast", "cpu"],
        peers,
        arguments.dtypes or ["int32"],
        offset=arguments.offset,
        repeats=REPEATS if arguments.repeats is None else arguments.repeats,
        ways=arguments.ways or list(WAYS),
        blocks=arguments.block or (None,),
        grids=arguments.grid or (None,),
    )
    sizes = arguments.sizes or [2**20]
    groups = combinations(part, sizes, measure, arguments.device, arguments.accumulate)
    return suite_of(groups, as_text, arguments.device, peers)


_COLUMNS: dict[str, Cell] = {
    "what": of("measure"), "strategy": of("strategy"),
    "array of": lambda row: row["producer"] if row["measure"] == "call" else "",
    "way": of("way"), "dtype": of("dtype"), "n": of("n"), "block": of("block"), "grid": of("grid"),
    "median us": US, "low": of("low_us", ".2f"), "high": of("high_us", ".2f"),
    "GB/s": of("gb_s", ".2f"), "M elements/s": lambda row: f"{row['n'] / row['median_us']:.1f}",
    "% of peak": of("percent_of_peak", ".1f"), "% of ceiling": of("percent_of_ceiling", ".1f"),
    "error, ulps": of("error_ulps", ".2f"), "L2": of("cache"), "ran on": of("device"),
}  # fmt: skip
_WORDS = ("what", "strategy", "array of", "way", "dtype", "L2", "ran on")


def as_text(made: Row) -> str:
    """A record as a table, without its empty columns."""
    text = as_table(listing(made["rows"], _COLUMNS), _WORDS)
    emulated = any(row["source"] == "emulator" for row in made["rows"])
    return f"{text}\n\n{EMULATED}" if emulated else text
