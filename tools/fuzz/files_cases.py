"""JSON files: tables of `fast`, calibrations, records of lectures and of counters."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import gpureduce
from gpureduce import _emulator, lectures
from gpureduce.bench import record
from gpureduce.bench.suites import axis, exact, scoreboard, segments, several_devices
from gpureduce.core import calibration, devices, fast_table, json_files, table_files
from gpureduce.hardware import report, verify_counters
from gpureduce.lectures.tables import show
from tools.fuzz import commands, consumers, mutations, notes
from tools.fuzz.outcomes import Answer, Failure, attempt, describe

ROOT = Path(__file__).resolve().parents[2]
_DATA = ROOT / "notebooks" / "data"
_CARD = "Fuzzed"
_ARRAYS = {n: np.ones(n, np.float32) for n in (100, 5000, 60_000)}


def _write(rng: Random, path: Path, value: Any) -> None:
    """Put a value there, changed; or something that is no file of text."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        path.rmdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    way = rng.random()
    if way < 0.01:
        path.mkdir()
    elif way < 0.02:
        path.symlink_to(path)
    else:
        made = value if way < 0.1 else mutations.of_json(rng, value)
        path.write_bytes(mutations.json_text(rng, made))


def _documented(answer: Answer) -> str:
    """The outcome of a loader that raises: OSError is one of its errors, too."""
    return "OSError" if isinstance(answer.error, OSError) else answer.name


# --- tables of `fast` ----------------------------------------------------------------------------


@functools.cache
def _table() -> Any:
    table = json.loads(next((ROOT / "gpureduce" / "core" / "tables").glob("*.json")).read_text())
    table["rows"] = table["rows"][:6]
    return table


def _quick(choice: Any) -> bool:
    """Whether an emulated sum by that row is over soon."""
    return choice.grid <= 2048 and choice.blocks_per_sm <= 64


def _check_fast() -> None:
    if not all(map(_quick, fast_table.fast_table("emulator"))):
        return
    for n, array in _ARRAYS.items():
        answer = attempt(lambda a=array: gpureduce.sum(a, "fast", device="emulator").value)
        if answer.value != n:
            raise Failure(f"fast by that table: {answer.value} {answer.error!r}, not {n}")


def _load_table(rng: Random, folder: Path) -> str:
    path = folder / "table.json"
    _write(rng, path, _table())
    answer = attempt(lambda: table_files.load(path))
    return _documented(answer) if answer.error is not None else "right"


def _use_table(rng: Random, _: Path) -> str:
    """As at the first use of a card: at most a warning, and `fast` works."""
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "gpureduce" / table_files._file_name(_CARD)
    _write(rng, path, _table())
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            table_files.load_for(_emulator, [_CARD])
        if len(warned) > 1 or any(w.category is not RuntimeWarning for w in warned):
            raise Failure(f"warnings: {[str(w.message)[:80] for w in warned]}")
        _check_fast()
    finally:
        fast_table.use([], devices.choose_device("emulator"))
    return "warned" if warned else "right"


# --- calibrations --------------------------------------------------------------------------------


def _calibration_file(rng: Random, folder: Path) -> str:
    ways = {
        n: {"card_share": 0.5, "gb_s": 10.0, "latency_us": 3.0} for n in ("cpu", "cuda", "both")
    }
    version = gpureduce.__version__
    kept = {"schema": 2, **ways, "card": _CARD, "processors": 2, "version": version}
    path = folder / "calibration.json"
    _write(rng, path, kept)
    found = calibration._read(path, _CARD, 2)
    if found is None:
        return "unchecked"
    for power in (0, 20, 26, 40, 63):
        if found.quickest(2**power) not in ways:
            raise Failure("a calibration that is read, but of no use")
    return "right"


# --- records -------------------------------------------------------------------------------------


def _text_of(kind: str, text: Callable[[Any], str]) -> Callable[[Path], object]:
    def read(path: Path) -> str:
        with json_files.naming(path):
            return text(record.load(path, kind))

    return read


def _counters_text(path: Path) -> str:
    with json_files.naming(path):
        return report.markdown(verify_counters.read(path))


# The records of cards, by the beginnings of their names, and what makes a text of each.
_READERS: dict[str, Callable[[Path], object]] = {
    "bench": _text_of("bench", scoreboard.markdown), "exact": _text_of("exact", exact.markdown),
    "axis": _text_of("axis", axis.as_text), "segments": _text_of("segments", segments.as_text),
    "devices": _text_of("devices", several_devices.as_text), "wavefronts": report.load_patterns,
    "lecture": lambda path: str(show(lectures.load(path))), "counters": _counters_text,
}  # fmt: skip


@functools.cache
def _few(path: Path) -> Any:
    """A record with few rows."""
    made = json.loads(path.read_text())
    few = {key: one[:3] if isinstance(one, list) and len(one) > 40 and key != "cpu" else one
           for key, one in made.items()}  # fmt: skip
    if "seen" in made:
        few["seen"] = made["seen"] | {"launches": made["seen"]["launches"][:2]}
    return few


def _card_record(rng: Random, folder: Path) -> str:
    """It is read, or a ValueError names the file."""
    name = rng.choice([*_READERS])
    path = folder / f"{name}_card.json"
    _write(rng, path, _few(rng.choice(sorted(_DATA.glob(f"{name}_*.json")))))
    notes.add(name)
    answer = attempt(lambda: _READERS[name](path))
    if isinstance(answer.error, ValueError) and not str(answer.error).startswith(f"{path}: "):
        raise Failure(f"the file is not named: {describe(answer.error)}") from answer.error
    return _documented(answer) if answer.error is not None else "right"


@functools.cache
def _counters() -> Any:
    record = json.loads((_DATA / "counters_h200.json").read_text())
    seen = record["seen"] | {"launches": _clipped(record["seen"]["launches"][:2])}
    small = ("rows", "lines", "predicated", "failures", "unplaced", "control")
    return record | {"seen": seen} | {name: record[name][:2] for name in small}


def _clipped(value: Any) -> Any:
    """The same with sizes that are counted soon."""
    if isinstance(value, list):
        return [_clipped(part) for part in value]
    if isinstance(value, dict):
        return {key: _clipped(part) for key, part in value.items()}
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 20_000:
        return 20_000
    return value


def _counter_record(rng: Random, folder: Path) -> str:
    path = folder / "counters.json"
    _write(rng, path, _counters())
    if path.is_file() and not path.is_symlink():
        _clip_file(path)
    more = rng.choice(([], ["--json"], ["--record", str(folder / "again.json")]))
    status, _, err = commands.run(["verify-counters", "--again", str(path), *more])
    if status == 2:
        commands.check_refusal(err)
    return f"exit {status}"


def _clip_file(path: Path) -> None:
    """Sizes that a change made large are made small again: to count them takes long."""
    text = path.read_bytes()
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(record, dict) and "seen" in record:
        record["seen"] = _clipped(record["seen"])
        path.write_bytes(json.dumps(record).encode("utf-8", "surrogatepass"))


KINDS: tuple[Callable[[Random, Path], str], ...] = (
    _load_table, _load_table, _use_table, _use_table, _calibration_file, _card_record,
    _card_record, _counter_record,
)  # fmt: skip


def case(rng: Random) -> str:
    """A file of one sort, changed, and its loader."""
    kind = rng.choice(KINDS)
    notes.add(kind.__name__.strip("_"))
    try:
        outcome = kind(rng, Path(tempfile.gettempdir()))
    except Failure:
        raise
    except Exception as error:
        raise Failure(f"undocumented {describe(error)}") from error
    if rng.random() < 0.05:
        consumers.check_next(rng)
    return outcome
