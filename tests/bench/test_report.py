"""Printing and keeping what `gpureduce bench` measures."""

import fcntl
import json
import os
import pty
import struct
import termios

import pytest

from gpureduce.bench import report


def test_a_run_that_ends_early_leaves_what_it_has_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_KEPT_EACH_S", 0.0)
    path, seen = tmp_path / "bench.json", []

    def rows():
        yield {"n": 1}
        yield {"n": 2}
        seen.append(json.loads(path.read_text()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report.keeping(rows(), path, lambda found: {"rows": found})
    assert seen == [{"rows": [{"n": 1}, {"n": 2}], "unfinished": True}]
    assert json.loads(path.read_text()) == seen[0]
    assert report.keeping(iter([5, 6]), None, dict) == [5, 6]


def test_a_run_that_measures_nothing_leaves_an_earlier_record(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text("[]")

    def rows():
        raise ValueError("there is no such strategy")
        yield

    with pytest.raises(ValueError, match="no such"):
        report.keeping(rows(), path, lambda found: {"rows": found})
    assert path.read_text() == "[]"


def test_the_progress_bar_fits_its_terminal_though_standard_output_is_a_file(monkeypatch):
    reader, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    with os.fdopen(reader, "rb", 0) as reads, os.fdopen(screen, "w") as writes:
        monkeypatch.setattr(report.sys, "stderr", writes)
        report.progress_bar(1, 2, "kernel int8 20")
        drawn = reads.read(1000).decode().strip("\r")
    assert drawn.startswith("[####") and len(drawn) == 19
