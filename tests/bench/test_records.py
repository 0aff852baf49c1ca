"""Records of measurements name the card, the date and the sources of the kernels."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from cases import ROOT
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
    for record in records:
        assert set(record["tests"]) <= {"passed", "skipped"} and record["tests"]["passed"] > 1000
        assert record["tests"].get("skipped", 0) < 100
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
