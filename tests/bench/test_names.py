"""Options of exact_bench and fields of rows and records stay."""

from __future__ import annotations

import json
import re

import pytest

from gpureduce import exact_bench
from gpureduce.cli.main import main

OF_EXACT_BENCH = {
    "--dtypes", "--data", "--mib", "--kib", "--rounds", "--device", "--cub-reproducible", "--cpu",
    "--record", "--force", "--help",
}  # fmt: skip
ROW = ["strategy", "dtype", "n", "nbytes", "block", "grid", "device", "source", "cache", "repeats",
       "median_us", "low_us", "high_us", "peak_gb_s", "measure", "producer", "offset",
       "error_ulps", "way"]  # fmt: skip
DERIVED = ["gb_s", "percent_of_peak", "percent_of_ceiling"]
RECORD = {"schema", "kind", "card", "device", "processor", "processors", "driver", "toolkit",
          "versions", "date", "commit", "trees", "clocks", "read_ceiling_gb_s", "rows"}  # fmt: skip


def test_options_of_exact_bench(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["exact_bench", "--help"])
    with pytest.raises(SystemExit):
        exact_bench.main()
    assert set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) == OF_EXACT_BENCH


def test_fields_of_json_and_csv(capsys):
    words = ["bench", "--strategies", "cpu", "sequential", "--sizes", "100", "--repeats", "1"]
    assert main([*words, "--device", "emulator", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made.keys() >= RECORD and made["kind"] == "bench"
    assert [row.keys() for row in made["rows"]] == [{*ROW, *DERIVED}] * 2
    assert main([*words, "--device", "emulator", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split(",") == [*ROW, *DERIVED]
