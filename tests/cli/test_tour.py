"""`gpureduce tour`: counts, an H100's recorded times, and the processors' sum beside NumPy's."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import gpureduce
from gpureduce import lectures
from gpureduce.cli import tour
from gpureduce.core import devices
from gpureduce.lectures import records

SMALL = ["tour", "--device", "emulator", "--n"]


def rows_of(text, first):
    """The cells of the table whose head begins with a word."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    table = lines[start + 2 :]
    return [line.split() for line in table[: table.index("")]]


def test_counts_stand_beside_an_h100s_times(command):
    status, out, _ = command(*SMALL, "2^16")
    said = " ".join(out.split())
    assert status == 0 and "recorded ones of an NVIDIA H100" in said and "H100: us" in out
    rows = rows_of(out, "rung ")
    assert [row[0] for row in rows] == list(tour.RUNGS)
    record = lectures.packaged("rungs").only(n=2**16)
    times = {row.strategy: f"{row.median_us:.1f}" for row in record.rows}
    assert [row[-1] for row in rows] == [times[name] for name in tour.RUNGS]
    counted = gpureduce.explain("interleaved_idx", n=2**16, dtype="float32", finish="relaunch")
    total = sum(kernel.conflicts for kernel in counted.kernels)
    assert rows[1][2] == f"{total:,}" and rows[0][2] == rows[2][2] == "0"
    assert "each of these 10 kernels has just added 65,536 integers to" in said


def test_no_emulated_time_is_shown(command):
    """Emulated times come in the wrong order, and say nothing about a card."""
    out = command(*SMALL, "2^16")[1]
    assert "emulated ms" not in out and "kernel ms" not in out
    columns = next(line for line in out.splitlines() if line.startswith("rung ")).split("  ")
    assert [c.strip() for c in columns if c] == [
        "rung", "wavefronts", "conflicts", "idle lanes", "barriers", "sectors", "H100: us"
    ]  # fmt: skip
    assert max(map(len, out.splitlines())) <= 100


def test_the_rungs_are_in_the_order_of_their_times(command):
    rows = rows_of(command(*SMALL, "2^24")[1], "rung ")
    times = [float(row[-1]) for row in rows]
    assert times == pytest.approx(sorted(times, reverse=True), rel=0.01)


def test_sizes_that_are_not_on_record_take_the_nearest(command):
    out = command(*SMALL, "5000")[1]
    assert "Why is each rung faster? 4,096 float32" in out and "5,000 elements" in out
    assert "Why is each rung faster? 1,024 float32" in command(*SMALL, "1")[1]
    assert command(*SMALL, "0")[0] == 2


def test_the_processors_are_timed_in_turns(command, monkeypatch):
    found = []
    real = tour.in_turns
    monkeypatch.setattr(tour, "in_turns", lambda *a: found.append(real(*a)) or found[-1])
    status, out, _ = command(*SMALL, "2^12", "--json")
    made = json.loads(out)
    assert status == 0 and [row["rung"] for row in made["rungs"]] == list(tour.RUNGS)
    ours = [row for row in made["processors"] if row["call"] == "gpureduce.sum"]
    assert [row["dtype"] for row in ours] == ["float32", "int32"]
    assert [row["ms"] for row in ours] == [min(us[0]) / 1e3 for us in found]
    assert all(len(taken) == 9 for us in found for taken in us)
    int32 = [row["sum"] for row in made["processors"] if row["dtype"] == "int32"]
    assert int32[0] == int32[1]


def test_the_next_things_to_do_are_commands(command):
    out = command(*SMALL, "2^10")[1]
    after = out.split("Next:\n")[1].splitlines()
    assert [line.split("gpureduce")[0].strip() for line in after] == [
        "to learn or teach", "to measure", "to add numbers",
    ]  # fmt: skip
    for line in after:
        words = re.search(r"gpureduce (\S+(?: \S+)*)  ", line)[1].split()
        assert command(words[0], "--help")[0] == 0


def test_with_a_card_the_times_are_the_cards(command, monkeypatch):
    card = dataclasses.replace(devices.choose_device("emulator"), backend="cuda", name="NVIDIA X9")
    mine = dataclasses.replace(lectures.packaged("rungs"), made={
        **lectures.packaged("rungs").made, "card": "NVIDIA X9"})  # fmt: skip
    monkeypatch.setattr(tour.devices, "choose_device", lambda _: card)
    monkeypatch.setattr(tour, "_checked", lambda device: f"checked on {device.name}")
    monkeypatch.setattr(tour, "_processors", lambda n: [])
    cases = []

    def measured(experiment, chosen, device, repeats):
        cases.extend(chosen)
        return mine.only(n=2**16)

    monkeypatch.setattr(tour, "measured", measured)
    out = command("tour", "--n", "2^16")[1]
    assert "The kernels' times are of this machine's NVIDIA X9." in out and "X9: us" in out
    assert {case.n for case in cases} == {2**16}
    assert {case.strategy for case in cases} == {*tour.RUNGS, "fast", "exact", "cub"}


@pytest.mark.gpu
def test_on_a_card(command):
    status, out, _ = command("tour", "--n", "2^20")
    assert status == 0 and "recorded" not in out and devices.devices()[0].name in out


def test_the_package_has_the_records_of_the_notebooks():
    folder = Path(__file__).parents[2] / "notebooks" / "data"
    for name in lectures.EXPERIMENTS:
        assert lectures.packaged(name) == lectures.recorded(name, folder)
    assert records.packaged("lab").device == "NVIDIA H100 80GB HBM3"
