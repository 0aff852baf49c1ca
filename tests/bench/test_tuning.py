"""`gpureduce.tune`: the order of its groups, what an interruption leaves, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import gpureduce
from gpureduce.bench import tuning
from gpureduce.bench.contenders import arrays as contenders
from gpureduce.core import devices, fast_table, on_device, table_files
from gpureduce.core.table_files import Choice

EMULATOR = devices.choose_device("emulator")


@pytest.fixture(autouse=True)
def defaults():
    """The emulator's default table, before and after."""
    yield gpureduce.fast_table("emulator")
    fast_table.use((), EMULATOR)


def test_it_refuses_at_once_without_a_card(monkeypatch):
    monkeypatch.setattr(devices, "default_backend", lambda: "emulator")
    with pytest.raises(gpureduce.CudaError, match=r"tune measures a GPU, but .*device='emulator'"):
        gpureduce.tune()


def test_a_coarse_pass_comes_first():
    sizes = [2**power for power in range(12, 19)]
    stages = tuning.in_turn(sizes)
    assert stages[:4] == [[(w, 2**12), (w, 2**16), (w, 2**18)] for w in (4, 8, 2, 1)]
    assert stages[4:8] == [[(w, 2**13)] for w in (4, 8, 2, 1)]
    done = [group for stage in stages for group in stage]
    assert len(done) == len(set(done)) == 4 * len(sizes)
    assert tuning.in_turn([100, 100]) == [[(w, 100)] for w in (4, 8, 2, 1)]


def test_widths_without_times_keep_their_rows():
    old = [Choice(2**64 - 1, width, "tiles", 128) for width in (1, 4, 0)]
    best = Choice(4096, 0, "one_block", 256)
    some = {(4, 4096): {best: 1.0, Choice(4096, 0, "tiles", 64): 2.0}}
    new = Choice(2**64 - 1, 4, "one_block", 256)
    assert tuning.table_of(some, old) == (new, old[0], old[2])
    every = {(width, 4096): some[4, 4096] for width in (1, 2, 4, 8)}
    assert {c.strategy for c in tuning.table_of(every, old)} == {"one_block"}


def test_the_order_of_measuring_does_not_change_the_table():
    a, b = (Choice(2**12, 0, "tiles", block) for block in (64, 128))
    times = {(4, 2**12): {a: 1.0, b: 1.01}, (4, 2**13): {a: 1.01, b: 1.0}}
    back = dict(reversed(times.items()))
    assert tuning.table_of(times) == tuning.table_of(back) == (Choice(2**64 - 1, 4, "tiles", 64),)


def test_time_left():
    assert tuning.time_left({}, [1024]) == ""
    took = {2**12: 10.0, 2**24: 1.0}
    assert tuning.time_left(took, [2**13, 2**14, 2**23]) == ", 21 s left"
    assert tuning.time_left(took, [2**12] * 18) == ", 3 min left"


def test_candidates_are_timed_one_sum_at_a_time(monkeypatch):
    asked = []
    measure = on_device.measure

    def listen(*given, **more):
        asked.append(more["apart"])
        return measure(*given, **more)

    monkeypatch.setattr(contenders.on_device, "measure", listen)
    gpureduce.tune("emulator", sizes=[1024], repeats=1)
    assert asked and all(asked)


def test_progress_tells_the_time_left():
    told = []
    gpureduce.tune("emulator", [512, 1024], 1, progress=lambda *what: told.append(what))
    assert told[0] == (0, 8, "4-byte elements, 512 B")
    assert told[1][2].startswith("4-byte elements, 1 KiB, ") and told[1][2].endswith(" s left")
    assert told[-1] == (8, 8, "")


def test_ctrl_c_keeps_what_has_been_tuned(tmp_path, monkeypatch, defaults):
    """The widths that are done have new rows, the others those of before."""
    path, times = tmp_path / "table.json", tuning._group_times
    asked = []

    def interrupted(device, dtypes, nbytes, repeats):
        asked.append(dtypes)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return times(device, dtypes, nbytes, repeats)

    monkeypatch.setattr(tuning, "_group_times", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"table\.json has the table so far"):
        gpureduce.tune("emulator", [512, 1024], 1, path=path)
    kept = table_files.load(path)
    assert list(kept) == gpureduce.fast_table("emulator")
    assert [c for c in kept if c.element_bytes not in (0, 4)] == [
        c for c in defaults if c.element_bytes
    ]
    assert any(c.element_bytes == 4 for c in kept)


def test_nothing_is_written_before_a_table_is_of_use(tmp_path, monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_group_times", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        gpureduce.tune("emulator", [512, 1024], 1, path=tmp_path / "table.json")
    assert not stopped.value.args and not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_leaves_a_table(tmp_path, number):
    path = tmp_path / "table.json"
    words = ["tune", "--device", "emulator", "--repeats", "3", "--output", str(path), "--sizes"]
    words += [str(2**power) for power in range(9, 24)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "gpureduce", *words], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "GPUREDUCE_THREADS": "1"},
        # A shell's background job ignores SIGINT, and so would this process.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    end = time.monotonic() + 120
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert path.exists(), said
    assert {row["element_bytes"] for row in json.loads(path.read_text())["rows"]} >= {4}
    assert table_files.load(path)
    if number == signal.SIGINT:
        assert process.returncode == 130, said
        assert said.strip() == f"gpureduce: broken off: {path} has the table so far"
