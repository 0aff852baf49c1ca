"""Records of measurements: the names in them, reading them, and writing them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from cases import MADE, ROOT, timed_rows
from gpureduce.bench import progress, record
from gpureduce.core import devices

DATA = ROOT / "notebooks" / "data"
# What the lectures print was measured by others, elsewhere: it says so in its own way.
RECORDS = sorted(path for path in DATA.glob("*.json") if path.name != "lectures.json")


SUITES = {
    "additions",
    "axis",
    "bench",
    "devices",
    "exact",
    "frames",
    "lecture",
    "scan",
    "segments",
    "torch",
}


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: p.name)
def test_provenance(path):
    record = json.loads(path.read_text())
    assert record["schema"] == (2 if record["kind"] in SUITES else 1)
    on_card = ("driver", "toolkit") if record.get("device", "cuda") == "cuda" else ("processor",)
    for key in ("kind", "card", *on_card, "versions", "date", "commit", "trees"):
        assert record[key], key
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
    for name in (record["commit"], *record["trees"].values()):
        assert re.fullmatch(r"[0-9a-f]{40}", name), name


def test_the_lectures_say_what_they_measured_on():
    lectures = json.loads((DATA / "lectures.json").read_text())
    assert lectures["kind"] == "lectures" and lectures["schema"] == 1
    assert len(lectures["sources"]) == 5
    for source in lectures["sources"].values():
        for key in ("title", "gpu", "dtype"):
            assert source[key], key


def test_a_record_of_a_lecture_is_complete():
    """Each was measured on the card that it names, and has all cases at the lecture's sizes."""
    from gpureduce import lectures
    from gpureduce.lectures import records

    found = sorted(DATA.glob("lecture_*.json"))
    for path in found:
        record = lectures.load(path)
        assert path.name == records.file_name(record.lecture, record.device)
        assert record.made["device"].startswith("cuda"), "an emulated GPU is no card"
        assert not record.emulated and record.shrink == 1
        cases = lectures.find(record.lecture).cases(1)
        if record.lecture != "rungs":  # what a card cannot run is left out there
            assert len(record.rows) == len(cases)
        assert all(any(case.is_of(row) for case in cases) for row in record.rows)
    missing = set(lectures.EXPERIMENTS) - {lectures.load(path).lecture for path in found}
    if missing:
        pytest.skip(f"not recorded on a card yet: {', '.join(sorted(missing))}")


def test_tests_ran_and_passed_on_a_card():
    """On one card, those of several GPUs are skipped: `pytest -m several_gpus` collects some 80."""
    records = [json.loads(path.read_text()) for path in DATA.glob("tests_*.json")]
    sanitized = [found for record in records if (found := record.get("compute_sanitizer"))]
    assert sanitized
    for one in records:
        assert set(one["tests"]) <= {"passed", "skipped"} and one["tests"]["passed"] > 1000
        assert one["tests"].get("skipped", 0) < 100
    for tools in sanitized:
        assert set(tools) == {"memcheck", "racecheck", "synccheck", "initcheck"}
        assert all(tool["clean"] for tool in tools.values())


def test_explaining_is_quick():
    """A rung at 2^20 in a tenth of a second, and 3 million elements a second with all counted."""
    rows = json.loads((DATA / "explain_cpu.json").read_text())["rows"]
    kinds = {kind: [row for row in rows if row["measure"] == kind] for kind in ("explain", "count")}
    for row in rows:
        assert (row["n"], row["block"], row["dtype"]) == (2**20, 256, "int32")
    assert len(kinds["explain"]) >= 9
    assert all(row["median_us"] <= 100_000 for row in kinds["explain"])
    assert len(kinds["count"]) >= 9
    assert all(row["n"] / row["median_us"] >= 3 for row in kinds["count"])


# The folders of csrc that the figures of a record depend on, by the start of the record's name.
KERNELS = {"kernels", "exact", "engine", "cuda"}
DEPENDS = {
    "additions_": set(),  # gpureduce/include alone
    "axis_": KERNELS,
    "choices_": KERNELS,
    "scan_": KERNELS | {"cpu", "threads"},
    "segments_": KERNELS,
    "torch_": KERNELS,
    "bench_cpu": {"cpu", "exact", "threads"},
    "bench_": KERNELS | {"transfer", "cpu", "threads"},
    "devices_": KERNELS | {"transfer", "threads", "bindings"},
    "counters_": KERNELS | {"emulator"},
    "exact_cpu": {"cpu", "exact", "threads"},
    "exact_fuzz": {"kernels", "exact"},
    "exact_": KERNELS,
    "frames_": {"segments", "exact", "cpu", "threads"},
    "explain_": {"emulator", "engine", "kernels"},
    "lecture_": {"kernels", "engine", "cuda"},
    "tests_": None,  # all folders
    "wavefronts_": {"emulator"},
}


def changed(path, now):
    """The folders that a record depends on and that have changed since."""
    trees = json.loads(path.read_text())["trees"]
    start = next(start for start in DEPENDS if path.name.startswith(start))
    names = now if DEPENDS[start] is None else DEPENDS[start]
    return sorted(name for name in names if trees.get(name) != now[name])


def test_which_records_are_stale():
    """Not a failure, since only a machine with the card can make a record anew: a list."""
    stale = {path.name: changed(path, devices.build()["trees"]) for path in RECORDS}
    for path in RECORDS:
        if json.loads(path.read_text()).get("unfinished"):
            stale[path.name].append("ended early")
    if any(stale.values()):
        told = (f"{name} ({', '.join(folders)})" for name, folders in stale.items() if folders)
        pytest.xfail(f"measured before these folders of csrc changed: {', '.join(told)}")


def test_the_build_knows_the_trees_that_git_knows():
    try:
        commands = (["ls-tree", "HEAD:csrc"], ["status", "--porcelain", "csrc"])
        rows, dirty = (
            subprocess.run(["git", "-C", str(ROOT), *c], capture_output=True, text=True, check=True)
            for c in commands
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    if dirty.stdout:
        pytest.skip("csrc has changes that are not committed")
    known = {row.split()[3]: row.split()[2] for row in rows.stdout.splitlines()}
    assert devices.build()["trees"] == known


CASE = {"producer": "", "way": "", "offset": 0, "peak_gb_s": None}
ROWS = timed_rows(CASE, {"fast": 2.0, "exact": 3.0})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"schema": 1}, "schema must be 2, not 1"),
        ({"kind": "axis"}, "it is not a record of kind 'bench'"),
        ({"driver": 5}, "driver must be"),
        ({"rows": []}, "it has no rows"),
        ({"rows": [ROWS[0] | {"n": 0}]}, r"rows\[0\].n must be above 0, not 0"),
        ({"rows": [ROWS[0], ROWS[1] | {"median_us": -1.0}]}, r"rows\[1\].median_us must be above"),
        ({"rows": [ROWS[0] | {"low_us": None, "high_us": None, "repeats": None}]}, ""),
        ({"rows": [ROWS[0] | {"block": "x"}]}, r"rows\[0\].block must be"),
        ({"rows": [{**ROWS[0], "gb_s": 1}, {"strategy": "x"}]}, r"rows\[1\].measure is missing"),
        ({"rows": timed_rows({}, {"fast": 1.0})}, r"rows\[0\].(producer|way|offset) is missing"),
        ({"calibration": {"cpu": 1}}, "calibration.cpu must be an object"),
    ],
)
def test_wrong_fields_are_named(change, fault, tmp_path):
    path = tmp_path / "bench_x.json"
    made = MADE | {"schema": 2, "kind": "bench", "rows": ROWS} | change
    record.write(path, made)
    assert json.loads(path.read_text()) == made
    if not fault:
        assert record.load(path, "bench") == made
        return
    with pytest.raises(ValueError, match=f"bench_x.json: {fault}"):
        record.load(path, "bench")


def test_rates_follow_from_times():
    row = {"nbytes": 3000, "median_us": 2.0}
    assert record.derived(row)["gb_s"] == 1.5 and "percent_of_peak" not in record.derived(row)
    found = record.derived(row | {"peak_gb_s": 3.0}, 2.0)
    assert (found["percent_of_peak"], found["percent_of_ceiling"]) == (50, 75)
    found = record.derived(row | {"peak_gb_s": None}, 2.0)
    assert found["percent_of_peak"] is found["percent_of_ceiling"] is None


def test_contenders_that_failed_are_apart():
    begun = {"clocks": {"before": {}}}
    assert "failed" not in record.made(begun, ROWS)
    failed = {"strategy": "jax", "failed": "no"}
    found = record.made(begun, [ROWS[0], failed])
    assert found["rows"] == [ROWS[0]] and found["failed"] == [failed]
    assert found["clocks"].keys() == {"before", "after"}


def test_a_run_that_ends_early_leaves_what_it_has_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "_KEPT_EACH_S", 0.0)
    path, seen = tmp_path / "bench.json", []

    def rows():
        yield {"n": 1}
        yield {"n": 2}
        seen.append(json.loads(path.read_text()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record.keeping(rows(), path, lambda found: {"rows": found})
    assert seen == [{"rows": [{"n": 1}, {"n": 2}], "unfinished": True}]
    assert json.loads(path.read_text()) == seen[0]
    assert record.keeping(iter([5, 6]), None, dict) == [5, 6]


def test_a_run_that_measures_nothing_leaves_an_earlier_record(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text("[]")
    none = (1 / 0 for _ in range(1))
    with pytest.raises(ZeroDivisionError):
        record.keeping(none, path, lambda found: {"rows": found})
    assert path.read_text() == "[]"


def test_the_progress_bar_fits_its_terminal_though_standard_output_is_a_file(monkeypatch):
    reader, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    with os.fdopen(reader, "rb", 0) as reads, os.fdopen(screen, "w") as writes:
        monkeypatch.setattr(progress.sys, "stderr", writes)
        progress.progress_bar(1, 2, "kernel int8 20")
        drawn = reads.read(1000).decode().strip("\r")
    assert drawn.startswith("[####") and len(drawn) == 19
