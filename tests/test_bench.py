"""The benchmark: what it measures, and that it says so."""

from __future__ import annotations

import json

import pytest

import gpureduce
from gpureduce import cli


def test_measurements_say_what_ran():
    rows = list(
        gpureduce.benchmark(
            ["reduce2", "fast", "cpu", "numpy"], [1000, 5000], ["int32"], [64], device="emulator",
            repeats=3,
        )
    )  # fmt: skip
    assert [r.strategy for r in rows] == ["sequential", "fast", "cpu", "numpy"] * 2
    assert rows[0].block == 64 and rows[0].grid == 16
    for row in rows:
        assert 0 < row.low_us <= row.median_us <= row.high_us
        assert row.gb_s == pytest.approx(row.n * 4 / row.median_us / 1e3)
        assert (row.source == "emulator") == (row.strategy in ("sequential", "fast"))
        assert row.percent_of_peak is None


def test_bfloat16_by_name():
    (row,) = gpureduce.benchmark(["cpu"], [1000], ["bfloat16"], repeats=1)
    assert row.dtype == "bfloat16" and row.nbytes == 2000


def test_bad_arguments():
    with pytest.raises(ValueError, match="no strategy"):
        list(gpureduce.benchmark(["quick"]))
    with pytest.raises(TypeError, match="without a cast"):
        list(gpureduce.benchmark(["cpu"], dtypes=["int32"], accumulate="float32"))


def test_command(capsys):
    some = ["bench", "--strategies", "cascade", "--sizes", "2^12", "--device", "emulator"]
    assert cli.main([*some, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["rows"][0]["n"] == 4096 and record["schema"] == 1
    assert cli.main(some) == 0
    assert "M elements/s" in capsys.readouterr().out


@pytest.mark.gpu
def test_on_the_card():
    rows = list(gpureduce.benchmark(["cub", "fast"], [2**20], ["float32"], device="cuda"))
    assert all(r.source == "cuda_event" and r.cache == "cold" for r in rows)
    assert all(0 < r.percent_of_peak < 100 for r in rows)
