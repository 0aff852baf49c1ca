"""What users type and read of benchmarks stays: options, signatures, fields of rows and records."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re

import pytest

import gpureduce
from gpureduce import exact_bench
from gpureduce.cli.main import _parser, main

# By option, as argparse has it: the number of words, the words that it takes, the default.
OPTIONS = {
    "bench": {
        "--json": (0, None, False), "--strategies": ("+", None, None), "--sizes": ("+", None, None),
        "--dtypes": ("+", None, None), "--accumulate": (None, None, None),
        "--block": ("+", None, None), "--grid": ("+", None, None), "--device": (None, None, None),
        "--repeats": (None, None, None),
        "--measure": ("+", "kernel apart call host explain count", None),
        "--peers": ("*", None, None),
        "--ways": ("+", "default timing=False dtype= strided cast", None),
        "--offset": (None, None, 0), "--scoreboard": (0, None, False),
        "--devices": ("*", None, None), "--csv": (0, None, False), "--force": (0, None, False),
        "--output": (None, None, None), "--axis": (0, None, False),
        "--parts": ("+", "shapes middle rungs small hard calls", None),
        "--segments": (0, None, False), "--cub": (None, None, None),
        "--lecture": (None, None, None), "--record": (None, None, None),
    },
    "tune": {
        "--json": (0, None, False), "--device": (None, None, None), "--show": (0, None, False),
        "--output": (None, None, None), "--force": (0, None, False),
        "--sizes": ("+", None, tuple(2**power for power in range(12, 31))),
        "--repeats": (None, None, 31),
    },
}  # fmt: skip
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


@pytest.mark.parametrize("verb", OPTIONS)
def test_options(verb):
    found = {}
    for action in _parser().verbs[verb]._actions:
        if action.dest != "help":
            choices = action.choices and " ".join(action.choices)
            found[action.option_strings[-1]] = (action.nargs, choices, action.default)
    assert found == OPTIONS[verb]


def test_options_of_exact_bench(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["exact_bench", "--help"])
    with pytest.raises(SystemExit):
        exact_bench.main()
    assert set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) == OF_EXACT_BENCH
    assert exact_bench.__all__ == ["load", "main", "markdown"]


def test_signatures():
    names = {
        gpureduce.benchmark: "strategies sizes dtypes blocks grids device repeats accumulate "
        "measure peers ways offset progress",
        gpureduce.tune: "device sizes repeats path progress",
    }
    for function, words in names.items():
        assert " ".join(inspect.signature(function).parameters) == words
    assert [field.name for field in dataclasses.fields(gpureduce.Measurement)] == ROW
    assert {"gb_s", "elements_per_us", "percent_of_peak"} <= vars(gpureduce.Measurement).keys()
    assert [field.name for field in dataclasses.fields(gpureduce.Tuned)] == [
        "card", "choices", "measured", "path"
    ]  # fmt: skip


def test_fields_of_json_and_csv(capsys):
    words = ["bench", "--strategies", "cpu", "sequential", "--sizes", "100", "--repeats", "1"]
    assert main([*words, "--device", "emulator", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made.keys() >= RECORD and made["kind"] == "bench"
    assert [row.keys() for row in made["rows"]] == [{*ROW, *DERIVED}] * 2
    assert main([*words, "--device", "emulator", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split(",") == [*ROW, *DERIVED]
