"""Records with wrong fields: errors name the file and the field, in one line."""

from __future__ import annotations

import json
import os
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
from gpureduce.core import json_files
from gpureduce.hardware import report, tables, verify_counters

NO_JSON = [b"", b"{", b"\xff\xfe{", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"{}x"]
OTHERS = [b"{}", b"[]", b"null", b'"counters"', b'{"kind": "tests", "schema": 1}', b'{"kind": {}}']


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
