"""Records of the lectures' experiments: run here, loaded from a file, or printed by a lecture.

A record is a JSON file with its provenance, so that notebooks can draw measurements of a GPU that
their reader does not have. `gpureduce.plot` draws records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce.bench import record as records
from gpureduce.bench.benchmark import MOST_REPEATS
from gpureduce.bench.provenance import HEAD, provenance
from gpureduce.core import devices, json_files, registry
from gpureduce.core.checks import whole
from gpureduce.lectures.experiments import (
    Experiment,
    Measured,
    find,
    lecture_card,
    microseconds,
    on_h100,
    sources,
)
from gpureduce.lectures.measuring import Bench, Case, Row, row_of
from gpureduce.lectures.tables import card_model, show


@dataclass(frozen=True)
class Record(Measured):
    """The rows of one experiment on one device, with their provenance.

    The sizes are the lecture's divided by `shrink`, which is 1 on a GPU. If `recorded` found no
    record of a GPU, this one replaces it and `missing` names that GPU. A notebook shows a record in
    the lecture's layout, beside the lecture's own figures.

    >>> from gpureduce import lectures
    >>> record = lectures.printed("lab")
    >>> record.printed, len(record.rows), record.only(block=1024) == record
    (True, 5, True)
    """

    def _repr_html_(self) -> str:
        return show(self)._repr_html_()

    def save(self, path: Path) -> None:
        """Write the record as JSON."""
        rows = [dataclasses.asdict(row) for row in self.rows]
        kept = {"lecture": self.lecture, "shrink": self.shrink, "rows": rows}
        records.write(path, self.made | kept)


def run(name: str, device: str | None = None, repeats: int = 11) -> Record:
    """Run an experiment on a device, by default the first GPU, or the emulator without one.

    Sizes that do not fit into a GPU's memory are left out.

    >>> from gpureduce import lectures
    >>> record = lectures.run("trapezoid", device="emulator", repeats=1)
    >>> record.emulated, len(record.rows)
    (True, 11)
    """
    experiment = find(name)
    repeats = whole("repeats", repeats, 1, MOST_REPEATS)
    chosen = devices.choose_device(device)
    shrink = experiment.shrink if chosen.backend == "emulator" else 1
    return measured(experiment, experiment.cases(shrink), chosen, repeats, shrink)


def measured(
    experiment: Experiment, cases: Sequence[Case], device: devices.Device, repeats: int,
    shrink: int = 1,
) -> Record:  # fmt: skip
    """Runs those cases of an experiment that fit into the device's memory."""
    bench = Bench(device, min(repeats, 3) if device.backend == "emulator" else repeats)
    fitting = [case for case in cases if _fits(case, device)]
    rows = tuple(experiment.measure(bench, fitting))
    return Record(experiment.name, shrink, rows, provenance("lecture", device, records.SCHEMA))


def _fits(case: Case, device: devices.Device) -> bool:
    nbytes = case.n * np.dtype(case.dtype).itemsize
    return device.backend == "emulator" or nbytes < 0.8 * device.memory_bytes


def file_name(lecture: str, card: str) -> str:
    """The name of an experiment's record on a card: ``lecture_NAME_CARD.json``."""
    return f"lecture_{lecture}_{card_model(card).lower().replace(' ', '-')}.json"


def load(path: str | Path) -> Record:
    """Reads a record from its JSON file. ValueError names the file and a wrong field.

    >>> import pathlib, tempfile
    >>> from gpureduce import lectures
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "lab.json")
    ...     lectures.recorded("lab", "notebooks/data").save(path)
    ...     lectures.load(path).device
    'NVIDIA H100 80GB HBM3'
    """
    path = Path(path)
    kinds = HEAD | {"lecture": str, "shrink": int, "rows": list[Any]}
    made = json_files.read_record(path, "lecture", records.SCHEMA, **kinds)
    with json_files.naming(path):
        name = find(made.pop("lecture")).name
        rows = json_files.checked(made.pop("rows"), tuple[Row, ...], "rows")
        if not rows:
            raise ValueError("it has no rows")
        for i, row in enumerate(rows):
            _check(row, name, f"rows[{i}]")
        return Record(name, made.pop("shrink"), rows, made)


def _check(row: Row, lecture: str, at: str) -> None:
    """Checks the assumptions of the tables and charts."""
    if row.strategy not in registry.STRATEGIES:
        raise ValueError(f"{at}.strategy must be a strategy, not {row.strategy!r}")
    if row.median_us <= 0:
        raise ValueError(f"{at}.median_us must be above 0, not {row.median_us}")
    needed: Sequence[str] = ["values"] if lecture == "trapezoid" else []
    if lecture == "profile":
        needed = sources()[str(find(lecture).source)]["metrics"]
    for fact in needed:
        if fact not in row.facts or row.facts[fact] == []:
            raise ValueError(f"{at}.facts.{fact} is missing")
    for fact, value in row.facts.items():
        kind = list[float] if fact == "values" else float
        json_files.checked(value, kind, f"{at}.facts.{fact}")


def _printed_row(case: Case, experiment: Experiment, counters: Sequence[str]) -> Row:
    lecture = sources()[str(experiment.source)]
    nbytes = case.n * np.dtype(case.dtype).itemsize
    us = microseconds(case.theirs or 0.0, experiment.unit, nbytes)
    facts = dict(zip(counters, lecture["kernels"][case.label], strict=True)) if counters else {}
    return row_of(
        case, 0 if experiment.name == "trapezoid" else nbytes, [us], block=case.block,
        grid=case.grid, device=lecture_card(experiment.name), source="lecture", cache="",
        peak_gb_s=lecture.get("peak_gb_s"), facts=facts,
    )  # fmt: skip


def printed(name: str) -> Record:
    """The times that the lecture prints, as a record. So every chart can draw them.

    >>> from gpureduce import lectures
    >>> [row.median_us for row in lectures.printed("lab").rows][0]
    706.0
    """
    experiment = find(name)
    if not experiment.source:
        raise ValueError(f"no lecture prints figures for {name}")
    lecture = sources()[experiment.source]
    counters = lecture["metrics"] if name == "profile" else ()
    cases = [case for case in experiment.cases(1) if case.theirs is not None]
    rows = tuple(_printed_row(case, experiment, counters) for case in cases)
    return Record(name, 1, rows, {"card": lecture_card(name), "title": lecture["title"]})


def packaged(name: str) -> Record:
    """An experiment's record on an H100. Every installation has it.

    >>> from gpureduce import lectures
    >>> lectures.packaged("lab") == lectures.recorded("lab", "notebooks/data")
    True
    """
    return Record(**vars(on_h100(name)))


def recorded(name: str, folder: str | Path = "data", card: str = "H100") -> Record:
    """An experiment's record on a card, from ``lecture_NAME_CARD.json`` in `folder`.

    If the file does not exist yet, returns the lecture's own figures, or if no lecture has any,
    the record of an H100. `Record.missing`, the tables and the charts say so.

    >>> from gpureduce import lectures
    >>> lectures.recorded("lab", "notebooks/data").device
    'NVIDIA H100 80GB HBM3'
    """
    path = Path(folder) / file_name(find(name).name, card)
    if path.exists():
        return load(path)
    instead = printed(name) if find(name).source else packaged(name)
    return dataclasses.replace(instead, missing=card)
