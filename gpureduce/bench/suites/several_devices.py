"""``gpureduce bench --devices``: how sums scale with the number of devices.

Three measures:

``parts``
    `gpureduce.sum_parts` of as many equal parts as there are devices, one on each, for 1, 2, ... of
    them; beside it what a program does without gpureduce: a library's sum on each card and adding
    on the host, or an all-reduce of these sums by NCCL.
``call``
    The same for small parts: the time that each further device adds to a call.
``host``
    A host array by the processors, by all GPUs, and by both.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpureduce.bench import libraries, record
from gpureduce.bench.command import Suite
from gpureduce.bench.contenders.parts import Maker, Pattern, of_host, of_parts
from gpureduce.bench.render import Cell, Section, as_table, listing
from gpureduce.bench.render import as_text as text_of
from gpureduce.bench.runner import ROUNDS, Group, Latest, Row, Turns
from gpureduce.core import devices
from gpureduce.core.dtypes import named
from gpureduce.text import number, rate_text, size_text

_DTYPES, _STRATEGIES = ("float32", "float64"), ("fast", "exact")
_SMALL = 1024  # elements of a part whose sum takes no time
_GIB, _MIB, _KIB = 2**30, 2**20, 2**10
_ON_CARD = (_GIB, 4 * _GIB, 8 * _GIB, 16 * _GIB, 32 * _GIB)  # bytes per device
_EMULATED = (16 * _KIB, 256 * _KIB)
_HOST_ON_CARD, _HOST_EMULATED = (_GIB, 8 * _GIB, 64 * _GIB), (8 * _MIB,)
_LARGE_HOST = 16 * _GIB  # larger host arrays are summed once in each round
_REPEATS = 9


def counts(most: int) -> list[int]:
    """1, 2, 4, ... and all devices."""
    return sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})


def _case(measure: str, pattern: Pattern, parts: int) -> Row:
    return {
        "measure": measure,
        "dtype": pattern.dtype,
        "n": parts * pattern.n,
        "nbytes": parts * pattern.nbytes,
        "devices": parts,
    }


def _of_parts(
    maker: Maker, measure: str, pattern: Pattern, strategies: Sequence[str], repeats: int
) -> Iterator[Group]:
    for count in counts(len(maker.found)):
        yield Group(
            f"{measure} {pattern.dtype} {size_text(pattern.nbytes)} x {count}",
            _case(measure, pattern, count),
            functools.partial(of_parts, maker, pattern, count, strategies),
            Turns(repeats),
            functools.partial(pattern.check, parts=count),
        )


def groups(
    found: list[devices.Device], nbytes: Sequence[int], dtypes: Sequence[str],
    strategies: Sequence[str], repeats: int,
) -> list[Group]:  # fmt: skip
    """Sums on 1, 2, ... of the devices. `nbytes` are the bytes per device."""
    maker = Maker(found)
    of_device = _EMULATED if maker.emulated else _ON_CARD
    fitting = [n for n in of_device if all(n < 0.8 * device.memory_bytes for device in found)]
    jobs = [("call", dtype, _SMALL * named(dtype).itemsize) for dtype in dtypes]
    jobs += [("parts", dtype, size) for dtype in dtypes for size in nbytes or fitting]
    made = [
        group
        for measure, dtype, size in jobs
        for group in _of_parts(maker, measure, Pattern(dtype, size), strategies, repeats)
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    array = Latest(Pattern.array)
    for size in _HOST_EMULATED if maker.emulated else _HOST_ON_CARD:
        if size <= memory // 4:
            pattern = Pattern(dtypes[0], size)
            made.append(Group(
                f"host {pattern.dtype} {size_text(size)}",
                _case("host", pattern, 1),
                functools.partial(of_host, found, pattern, array),
                Turns(repeats if size < _LARGE_HOST else ROUNDS),
                functools.partial(pattern.check, parts=1),
            ))  # fmt: skip
    return made


def scaled(made: Row) -> Row:
    """The record with two more fields of each row.

    `linear` is the time on one device, of a part of the same size, over this one; 1 is ideal.
    `added_us` are the microseconds that each further device added.
    """
    alone: dict[tuple[str, str, int, str], float] = {}
    rows = []
    for row in made["rows"]:
        linear = added = None
        if row["measure"] != "host":
            count, us = row["devices"], row["median_us"]
            by = "torch" if row["strategy"] == "nccl" else row["strategy"]
            first = alone.setdefault((row["measure"], row["dtype"], row["nbytes"] // count, by), us)
            linear = first / us
            added = (us - first) / (count - 1) if count > 1 else None
        rows.append(row | {"linear": linear, "added_us": added})
    return made | {"rows": rows}


_HEAD: dict[str, Cell] = {
    "by": lambda row: row["strategy"],
    "dtype": lambda row: row["dtype"],
    "bytes": lambda row: size_text(row["nbytes"]),
    "devices": lambda row: str(row["devices"]),
    "median us": lambda row: f"{row['median_us']:.1f}",
    "low": lambda row: number(row["low_us"], ".1f"),
    "high": lambda row: number(row["high_us"], ".1f"),
}
_MORE: dict[str, tuple[str, dict[str, Cell]]] = {
    "parts": ("Sums of equal parts, one on each device", {
        "GB/s": lambda row: rate_text(row["gb_s"]),
        "of linear": lambda row: number(row["linear"]),
    }),
    "call": ("Calls for small parts", {
        "us per further device": lambda row: number(row["added_us"], ".2f"),
    }),
    "host": ("Host arrays", {"GB/s": lambda row: f"{row['gb_s']:.1f}"}),
}  # fmt: skip


def _section(measure: str) -> Section:
    title, more = _MORE[measure]
    return Section(
        measure, title, lambda rows: as_table(listing(rows, _HEAD | more), ("by", "dtype"))
    )


def as_text(made: Row) -> str:
    """A record as tables."""
    return text_of(made, [_section(measure) for measure in _MORE])


def load(path: Path) -> Row:
    """Reads a record. ValueError names the file and a wrong field."""
    return record.load(path, "devices", lambda row: ("devices", "gb_s", "linear", "added_us"))


def devices_of(names: Sequence[str]) -> list[devices.Device]:
    """The devices that are measured."""
    wanted = list(names) or [f"{devices.default_backend()}:*"]
    found = [one for one in devices.several(wanted) or [] if one]
    if len(found) < len(wanted) or len({one.backend for one in found}) > 1:
        raise ValueError("--devices takes GPUs, or emulated ones, as cuda:0 cuda:1 or cuda:*")
    return found


def suite(arguments: argparse.Namespace) -> Suite:
    """The suite of the command's options."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # multicast is not to be had on every machine
    dtypes = arguments.dtypes or _DTYPES
    nbytes = [n * named(dtypes[0]).itemsize for n in arguments.sizes or ()]
    found = devices_of(arguments.devices)
    strategies, repeats = arguments.strategies or _STRATEGIES, arguments.repeats or _REPEATS
    here = libraries.installed(("all",)) if found[0].backend == "cuda" else ()
    return Suite(
        "devices", found[0], groups(found, nbytes, dtypes, strategies, repeats), as_text,
        peers=tuple(name for name in here if name in ("torch", "cupy")),
        more={"cards": [device.name for device in found]},
        finish=scaled,
    )  # fmt: skip
