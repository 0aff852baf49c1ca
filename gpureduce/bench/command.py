"""Runs a suite from the command line: measures, prints, and writes a record if asked to."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpureduce.bench import libraries, record, report
from gpureduce.bench.runner import Group, Row, measure
from gpureduce.core import devices

REPEATS = 11


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


def run(
    kind: str, suite_of: Callable[[argparse.Namespace], Suite], arguments: argparse.Namespace
) -> Row:
    """Measures a suite, prints it, and writes its record."""
    target = report.output_of(arguments, kind)
    suite = suite_of(arguments)
    begun = record.head(suite.kind, suite.device) | suite.more
    begun["versions"] |= libraries.versions(suite.peers)

    def made_of(rows: Sequence[Row]) -> Row:
        return suite.finish(record.made(begun, rows))

    rows = record.keeping(measure(suite.groups, report.progress()), target, made_of)
    made = suite.end(made_of(rows))
    if target:
        record.write(target, made)
    print(json.dumps(made, indent=1) if arguments.json else suite.text(made))
    return made
