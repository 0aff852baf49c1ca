"""`gpureduce bench`: its forms of output, the scoreboard, the lectures; and `gpureduce tune`."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import sys

import pytest

import gpureduce
import readme
from gpureduce import _emulator, lectures
from gpureduce.bench import benchmark, libraries
from gpureduce.bench.command import size
from gpureduce.bench.contenders.arrays import WAYS
from gpureduce.bench.runner import measure
from gpureduce.bench.suites import scoreboard
from gpureduce.core import devices, fast_table, table_files
from gpureduce.lectures.tables import show

EMULATOR = devices.choose_device("emulator")
BENCH = ["bench", "--strategies", "cascade", "numpy", "--sizes", "2^12", "--device", "emulator"]
LAB = ["bench", "--lecture", "lab", "--device", "emulator"]
TUNE = ["tune", "--sizes", "2^12", "--repeats", "1"]


def test_sizes(command):
    assert [size(text) for text in ("0", "7", "2^20", "10^3", "2^0")] == [
        0, 7, 2**20, 1000, 1,
    ]  # fmt: skip
    for text in ("", "2^", "^2", "2^-3", "-2^2", "2^99999999999", "2^63", "1.5", "2^2^2"):
        status, _, err = command("bench", f"--sizes={text}")
        assert status == 2 and f"like 4096 or 2^12, not {text!r}" in err


def test_output_forms(command, tmp_path):
    status, out, _ = command(*BENCH, "--csv", "--output", tmp_path / "a.json")
    rows = list(csv.DictReader(io.StringIO(out)))
    record = json.loads((tmp_path / "a.json").read_text())
    assert status == 0 and [row["strategy"] for row in rows] == ["cascade", "numpy"]
    assert float(rows[0]["median_us"]) == record["rows"][0]["median_us"]
    assert record["schema"] == 2 and {"commit", "clocks"} <= record.keys()
    status, out, _ = command(*BENCH, "--output", tmp_path / "a.csv")
    assert status == 0 and "\nnumpy," in (tmp_path / "a.csv").read_text()
    assert "tell nothing about a card" in out and "M elements/s" in out
    status, out, _ = command("bench", "--strategies", "cpu", "--sizes", "1000")
    assert status == 0 and "M elements/s" in out and "tell nothing about a card" not in out
    status, out, _ = command(*BENCH, "--json")
    assert status == 0 and json.loads(out)["rows"][0]["n"] == 4096


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*BENCH, "--output", "a.txt"], "must end in .json or .csv"),
        (["bench", "--scoreboard", "--output", "no/x.json"], "there is no folder no to write x"),
        (["bench", "--strategies", "cpu", "--device", "bogus"], "device must be None, 'cuda'"),
        (["bench", "--lecture", "physics"], "warp_execution"),
        (["bench", "--record", "x.json"], "--lecture"),
        (["bench", "--lecture", "all", "--record", "x.json"], "folder"),
        (["bench", "--lecture", "profile", "--device", "emulator", "--record", "."], "needs a GPU"),
        *(
            ([*LAB, *words], f"{words[0]} is not for --lecture")
            for words in (
                ["--json"], ["--csv"], ["--output", "a.json"], ["--strategies", "fast"],
                ["--scoreboard"], ["--peers"],
            )
        ),
    ],
)  # fmt: skip
def test_errors(command, words, said):
    status, out, err = command(*words)
    assert status == 2 and not out and said in err


def test_bfloat16_needs_ml_dtypes(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    status, out, err = command(*BENCH, "--dtypes", "bfloat16")
    assert status == 2 and not out and "pip install ml_dtypes" in err


def test_scoreboard(command, monkeypatch, tmp_path):
    called, small = (
        dataclasses.replace(part, nbytes=(256, 4096), repeats=2) for part in scoreboard.ON_HOST[:2]
    )
    monkeypatch.setattr(scoreboard, "ON_HOST", (called, small))
    monkeypatch.setattr(scoreboard, "ON_CARD", (called, small))
    kept = tmp_path / "bench_here.json"
    status, out, _ = command("bench", "--scoreboard", "--output", kept)
    assert status == 0 and "| 256 B |" in out and "bfloat16" in out
    rows = json.loads(kept.read_text())["rows"]
    assert {r["strategy"] for r in rows} == {"auto", "cpu", "exact", "numpy"}
    assert {r["dtype"] for r in rows} == set(small.dtypes)
    assert {r["way"] for r in rows if r["measure"] == "call"} == set(called.ways)
    assert readme.performance(tmp_path).startswith(out.strip())
    status, out, _ = command("bench", "--measure", "call")  # without names: the scoreboard's calls
    assert status == 0 and out.count("**") == 2 and "**Calls**" in out


def test_the_parts_for_a_card(monkeypatch):
    """On the emulator, with small sizes: the sums apart beside the limit, and calls by name."""
    parts = [
        dataclasses.replace(part, nbytes=(4, 4096), dtypes=("float32",), repeats=1)
        for part in scoreboard.ON_CARD
        if not part.offset
    ]
    monkeypatch.setattr(libraries, "installed", lambda *_: ("load_only", "numpy"))
    of = {"apart": [], "call": [], "kernel": [], "host": []}
    for row in measure([*benchmark.Maker("emulator").groups(parts)]):
        of[row["measure"]].append((row["strategy"], row["n"]))
    assert {"load_only", "fast", "exact"} == {name for name, _ in of["apart"]}
    names = [name for name, n in of["call"] if n == 1]
    assert names.index("warp_shfl") < names.index("sequential") and "cub" not in names


def test_calls_show_all_ways(command):
    words = ["bench", "--measure", "call", "--strategies", "auto", "--sizes", "10"]
    status, out, _ = command(*words, "--dtypes", "float32", "--repeats", "1", "--peers", "numpy")
    assert status == 0 and all(f" {way} " in out for way in WAYS)
    status, out, _ = command(*words, "--repeats", "1", "--ways", "strided", "--json")
    assert {row["way"] for row in json.loads(out)["rows"]} == {"strided"}


def test_the_record_of_a_lecture_reads_as_it_was_written(command, tmp_path):
    status, said, _ = command(*LAB, "--record", tmp_path)
    (path,) = tmp_path.iterdir()
    assert status == 0 and path.name == "lecture_lab_emulator.json"
    record = lectures.load(path)
    assert record.emulated and record.shrink > 1 and record.lecture == "lab"
    assert str(show(record)) in said
    assert json.loads(path.read_text())["commit"] == record.made["commit"]
    again = tmp_path / "again.json"
    record.save(again)
    assert again.read_text() == path.read_text()


@pytest.mark.parametrize("name", lectures.EXPERIMENTS)
def test_a_lecture_without_a_card_shows_an_h100s_record(command, name, monkeypatch):
    """Nothing is run, and no emulated time stands beside the lecture's."""
    monkeypatch.setattr(lectures.records, "measured", None)
    status, out, _ = command("bench", "--lecture", name, "--device", "emulator")
    assert status == 0 and "emulated ms" not in out and "No GPU ran here" in out
    tables = show(lectures.packaged(name)).tables
    assert all(str(table) in out for table in tables) and "NVIDIA H100" in out


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The user's folder of tables; the emulator's default table afterwards."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    yield tmp_path / "config"
    fast_table.use((), EMULATOR)


def test_tune_measures_saves_and_uses(command, config, monkeypatch):
    card = dataclasses.replace(EMULATOR, id="cuda:0", backend="cuda", l2_bytes=0)
    monkeypatch.setattr(devices, "choose_device", lambda _: card)
    monkeypatch.setattr(devices, "module_of", lambda _: _emulator)
    status, out, _ = command(*TUNE)
    path = config / "gpureduce" / "gpureduce-emulator.json"
    assert status == 0 and str(path) in out
    kept = json.loads(path.read_text())
    assert kept["schema"] == 1 and kept["card"] == EMULATOR.name
    assert {row["element_bytes"] for row in kept["rows"]} == {1, 2, 4, 8}
    assert list(table_files.load(path)) == gpureduce.fast_table("emulator")
    status, out, _ = command("tune", "--show", "--json")
    assert status == 0 and json.loads(out) == kept["rows"]


def test_tune_writes_the_emulators_table_only_where_it_is_told_to(command, config, tmp_path):
    status, out, _ = command(*TUNE, "--device", "emulator")
    assert status == 0 and "not written" in out and not config.exists()
    path = tmp_path / "table.json"
    status, out, err = command(*TUNE, "--device", "emulator", "--json", "--output", path)
    assert status == 0 and json.loads(out) == json.loads(path.read_text())["rows"]
    assert str(path) in err
