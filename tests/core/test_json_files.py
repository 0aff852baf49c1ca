"""Records with wrong fields: errors name the file and the field, in one line."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, TypedDict

import pytest

import readme
from cases import ROOT
from gpureduce import lectures
from gpureduce.bench import record
from gpureduce.bench.suites import axis, segments, several_devices
from gpureduce.core import json_files
from gpureduce.hardware import report, tables, verify_counters
from gpureduce.lectures.tables import show

DATA = ROOT / "notebooks" / "data"
NO_JSON = [b"", b"{", b"\xff\xfe{", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"{}x"]
OTHERS = [b"{}", b"[]", b"null", b'"counters"', b'{"kind": "tests", "schema": 1}', b'{"kind": {}}']

needs_records = pytest.mark.skipif(not DATA.exists(), reason="no records here")


@dataclass(frozen=True)
class Part:
    number: int
    share: float = 0.5


class Told(TypedDict):
    name: str


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    names: dict[str, str]
    told: Told
    perhaps: int | None = None
    lists: list[list[Any]] = field(default_factory=list)


RIGHT = {"parts": [{"number": 1}], "names": {"a": "b"}, "told": {"name": "x"}}


def test_objects_become_dataclasses():
    more = {"perhaps": 2**64, "lists": [[1, "a"], []]}
    found = json_files.made(Whole, RIGHT | more, "")
    assert found == Whole((Part(1),), {"a": "b"}, {"name": "x"}, 2**64, [[1, "a"], []])
    assert type(json_files.checked(3, float, "x")) is float


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"parts": {}}, "parts must be a list, not an object"),
        ({"parts": [1]}, "parts[0] must be an object, not 1"),
        ({"parts": [{}]}, "parts[0].number is missing"),
        ({"parts": [{"number": 1.5}]}, "parts[0].number must be a whole number, not 1.5"),
        ({"parts": [{"number": True}]}, "parts[0].number must be a whole number"),
        ({"parts": [{"number": 2**65}]}, "parts[0].number must be a whole number of at most"),
        ({"parts": [{"number": 10**5000}]}, "parts[0].number must be a whole number of at most 64"),
        ({"told": {"name": 10**5000}}, "told.name must be a string, not a number that is too"),
        ({"parts": [{"number": 1, "share": float("inf")}]}, "parts[0].share must be a finite"),
        ({"parts": [{"number": 1, "share": "x" * 100}]}, f'not "{"x" * 56}...'),
        ({"parts": [{"number": 1, "size": 1}]}, "parts[0].size is not a field: there are number"),
        ({"names": {"a": 1}}, "names.a must be a string, not 1"),
        ({"told": {}}, "told.name is missing"),
        ({"told": {"name": None}}, "told.name must be a string, not null"),
        ({"perhaps": "1"}, 'perhaps must be a whole number, not "1"'),
        ({"lists": [1]}, "lists[0] must be a list, not 1"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(change, fault):
    with pytest.raises(ValueError, match=re.escape(fault)):
        json_files.made(Whole, RIGHT | change, "")


@pytest.mark.parametrize("text", [*NO_JSON, *OTHERS], ids=range(len(NO_JSON) + len(OTHERS)))
def test_other_readers_name_the_file(text, tmp_path):
    path = tmp_path / "counters_card.json"
    path.write_bytes(text)
    readers = [lectures.load, verify_counters.read, report.load_patterns]
    kinds = ("axis", "bench", "devices", "exact", "segments")
    readers += [lambda path, kind=kind: record.load(path, kind) for kind in kinds]
    readers += [lambda path: tables.recorded(["sequential"], 2**10, path=path)]
    for reader in readers:
        with pytest.raises(ValueError, match=re.escape(str(path))):
            reader(path)


def test_the_readmes_tables_end_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "notebooks" / "data").mkdir(parents=True)
    path = tmp_path / "notebooks" / "data" / "bench_h100.json"
    path.write_text("[]")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    monkeypatch.setattr("sys.argv", ["readme", str(tmp_path)])
    assert readme.main() == 2
    told = capsys.readouterr().err
    assert told == f"tools/readme.py: {path}: it is not a record of kind 'bench'\n"


# --- records of a card, with one value after the other made wrong ---------------------------------

SEED = 1  # others are as good
WRONG = [None, True, -1, 0, 0.0, 1.5, 2**63, 10**30, "", "x", "\0", [], [[]], {}, {"a": []}]


def spots(value, rng, most=100):
    """Paths to some of the values inside: all of the first levels, and some of the long lists."""
    found = []

    def walk(at, path):
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        for key in keys if isinstance(at, dict) or len(at) <= 12 else rng.sample(keys, 3):
            found.append((*path, key))
            if isinstance(at[key], (dict, list)):
                walk(at[key], (*path, key))

    walk(value, ())
    return rng.sample(found, min(most, len(found)))


def short(record):
    """The record with few rows, so that it is quick to copy and judge."""
    few = {key: one[:3] if isinstance(one, list) and len(one) > 40 and key != "cpu" else one
           for key, one in record.items()}  # fmt: skip
    if "seen" in record:
        launches = [one for one in record["seen"]["launches"] if one[1] <= 2**16][:2]
        few["seen"] = record["seen"] | {"launches": launches}
    return few


def text_of(kind, report):
    return lambda path: readme._named(path, report, record.load(path, kind))


def judged(path):
    with json_files.naming(path):
        return str(verify_counters.judge_again(verify_counters.read(path)))


def markdown_of_counters(path):
    return readme._named(path, report.markdown, verify_counters.read(path))


def fault_of(read, path):
    """What a reader says of the file, if it refuses it."""
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return ""


@needs_records
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("bench_h100.json", text_of("bench", readme._scoreboard)),
        ("exact_h200.json", text_of("exact", readme._exact)),
        ("exact_cpu.json", text_of("exact", readme._exact)),
        ("axis_h100.json", text_of("axis", axis.as_text)),
        ("segments_h100.json", text_of("segments", segments.as_text)),
        ("devices_h100_x4.json", text_of("devices", several_devices.as_text)),
        ("counters_h200.json", judged),
        ("counters_h200.json", markdown_of_counters),
        ("lecture_profile_h100.json", lambda path: str(show(lectures.load(path)))),
        ("lecture_trapezoid_h100.json", lambda path: str(show(lectures.load(path)))),
        ("wavefronts_h200.json", report.load_patterns),
    ],
)
def test_any_value_may_be_wrong(name, read, tmp_path):
    """It reads as before, or a ValueError names the file: no other exception gets out."""
    rng = random.Random(SEED)
    made = short(json.loads((DATA / name).read_text()))
    path = tmp_path / name
    path.write_text(json.dumps(made))
    assert not fault_of(read, path)
    refused = 0
    for spot in spots(made, rng):
        changed = copy.deepcopy(made)
        at = changed
        for key in spot[:-1]:
            at = at[key]
        if rng.random() < 0.2:
            del at[spot[-1]]
        else:
            at[spot[-1]] = rng.choice(WRONG)
        path.write_text(json.dumps(changed))
        fault = fault_of(read, path)
        assert not fault or fault.startswith(f"{path}: "), (spot, fault)
        refused += bool(fault)
    assert refused >= 5


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "table.json"
    json_files.write(path, {"a": 1})
    with pytest.raises(TypeError):
        json_files.write(path, {"a": object()})
    monkeypatch.setattr(os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        json_files.write(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1} and [*path.parent.iterdir()] == [path]
    plain = tmp_path / "plain"
    plain.write_text("")
    assert path.stat().st_mode == plain.stat().st_mode


def test_links_and_pipes_stay_what_they_are(tmp_path):
    """Such as /dev/stdout, which root could replace by a file."""
    there, link, pipe = tmp_path / "there.json", tmp_path / "link.json", tmp_path / "pipe.json"
    link.symlink_to(there)
    json_files.write(link, [1])
    assert link.is_symlink() and json.loads(there.read_text()) == [1]
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    json_files.write(pipe, [2])
    assert pipe.is_fifo() and json.loads(os.read(reader, 100)) == [2]
    os.close(reader)
    with pytest.raises(IsADirectoryError):
        json_files.write(tmp_path, [3])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "link.json", "pipe.json", "there.json"]  # fmt: skip


def test_standard_output_that_is_a_file_takes_the_text_between_other_texts(tmp_path):
    """`--output /dev/stdout > file`: the file would be replaced, and later texts lost."""
    code = (
        "from pathlib import Path; from gpureduce.core import json_files; print('before');"
        f"json_files.write(Path({str(tmp_path / 'out.json')!r}), [1]); print('after')"
    )
    (tmp_path / "out.json").symlink_to("/dev/stdout")
    with open(tmp_path / "all", "w") as file:
        subprocess.run([sys.executable, "-P", "-c", code], stdout=file, check=True)
    assert (tmp_path / "all").read_text() == "before\n[\n 1\n]\nafter\n"
