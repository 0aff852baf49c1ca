"""The progress bar of long sums of files."""

import io
import threading
import time

import numpy as np
import pytest

from gpureduce.cli import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def array(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(4 << 20, np.float32))
    return np.load(tmp_path / "a.npy", mmap_mode="r")


def lines_of(monkeypatch, array, after):
    """What is drawn while three quarters of an array are read."""
    monkeypatch.setattr(progress, "_AFTER_S", after)
    monkeypatch.setattr(progress, "_EACH_S", 0.01)
    screen = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", screen)
    with progress.shown(array.nbytes):
        assert array[: 3 << 20].sum() == 3 << 20
        time.sleep(0.2)
    return screen.getvalue()


def test_the_share_of_a_file_that_has_been_read_is_shown(monkeypatch, array):
    found = lines_of(monkeypatch, array, 0.001)
    *drawn, erased = found.split("\r")[1:]
    assert erased == "" and drawn[-1].strip() == ""
    percents = [int(text.partition("] ")[2].partition("/")[0]) for text in drawn if "]" in text]
    assert percents == sorted(percents) and 75 <= percents[-1] < 99
    assert "of 16 MiB read" in found


def test_a_short_sum_shows_nothing(monkeypatch, array):
    assert lines_of(monkeypatch, array, 60.0) == ""


def test_without_a_terminal_nothing_is_shown(capsys, monkeypatch, array):
    monkeypatch.setattr(progress, "_AFTER_S", 0.0)
    with progress.shown(array.nbytes):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_an_error_ends_the_bar(monkeypatch, array):
    monkeypatch.setattr(progress, "_AFTER_S", 0.001)
    monkeypatch.setattr(progress.sys, "stderr", Terminal())
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt), progress.shown(array.nbytes):
        raise KeyboardInterrupt
    assert threading.active_count() == before
