"""Records: reading them, and keeping what is measured."""

import fcntl
import json
import os
import pty
import struct
import termios

import pytest

from cases import MADE, timed_rows
from gpureduce.bench import progress, record

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
