"""How a suite of ``gpureduce bench`` is run, printed and recorded."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpureduce.bench import libraries, record
from gpureduce.bench.benchmark import Measurement
from gpureduce.bench.progress import progress
from gpureduce.bench.runner import Group, Row, measure
from gpureduce.core import devices, output_files

REPEATS = 11
DERIVED = ("gb_s", "percent_of_peak", "percent_of_ceiling")


@dataclass(frozen=True)
class Suite:
    """What to measure, and how the record is shown.

    `device` is None for the processors. `more` are further fields of the record. `finish` adds to a
    record what follows from its rows, and `end` what is measured after all of them.
    """

    kind: str
    device: devices.Device | None
    groups: Sequence[Group]
    text: Callable[[Row], str]
    peers: tuple[str, ...] = ()
    more: Row = field(default_factory=dict)
    finish: Callable[[Row], Row] = lambda made: made
    end: Callable[[Row], Row] = lambda made: made


def measured(suite: Suite, target: Path | None = None, bar: Any = None) -> Row:
    """The record of a suite. The file has the rows so far, if the run ends early."""
    begun = record.head(suite.kind, suite.device) | suite.more
    begun["versions"] |= libraries.versions(suite.peers)

    def made_of(rows: Sequence[Row]) -> Row:
        return suite.finish(record.made(begun, rows))

    rows = record.keeping(measure(suite.groups, bar), target, made_of, write)
    return suite.end(made_of(rows))


def run(
    kind: str,
    suite_of: Callable[[argparse.Namespace], Suite],
    arguments: argparse.Namespace,
    page: Callable[[Row], str] | None = None,
    option: str = "--output",
) -> None:
    """Measures a suite, writes its record if asked to, and prints it. `page` makes it HTML."""
    suffixes = [".html"] * bool(page) + [".json"] + [".csv"] * (kind == "bench")
    target = output_of(arguments, kind, suffixes, option)
    suite = suite_of(arguments)
    kept = target if target and target.suffix != ".html" else None
    made = measured(suite, kept, progress())
    if kept:
        write(kept, made)
    elif target and page:
        output_files.write(target, page(made), kind)
    if arguments.json:
        print(json.dumps(made, indent=1))
    elif getattr(arguments, "csv", False):
        print(as_csv(made["rows"]), end="")
    else:
        print(suite.text(made))


def as_csv(rows: list[Row]) -> str:
    """The rows as CSV."""
    names = [field.name for field in dataclasses.fields(Measurement)] + list(DERIVED)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write(path: Path, made: Row) -> None:
    """Writes a record, or its rows as CSV."""
    if path.suffix == ".csv":
        output_files.write(path, as_csv(made["rows"]))
    else:
        record.write(path, made)


def output_of(
    arguments: argparse.Namespace, kind: str, suffixes: Sequence[str] = (".json",),
    option: str = "--output",
) -> Path | None:  # fmt: skip
    """The file to write a record of this kind to, checked before anything is measured."""
    return output_files.checked(
        arguments.output, option, kind, suffixes,
        inputs=arguments.inputs, force=arguments.force, head=as_csv([]),
    )  # fmt: skip


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
