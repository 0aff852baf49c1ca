"""gpureduce.exact_bench: what is measured, and how it is judged and told."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpureduce.bench import exact_bench
from gpureduce.core import devices


@pytest.mark.parametrize("data", exact_bench.DATA)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_data_are_finite_and_as_large_as_asked(dtype, data):
    array = exact_bench.make(data, dtype, 50_000)
    assert array.dtype.name == dtype and array.nbytes == 50_000
    assert np.isfinite(array.astype(float)).all()
    exponents = len(np.unique(np.frexp(array[array != 0].astype(float))[1]))
    assert exponents > (25 if dtype == "float16" else 200) or data != "bits"


def test_the_emulator_is_measured_as_a_card_is(tmp_path, monkeypatch, capsys):
    path = tmp_path / "record.json"
    monkeypatch.setattr(
        "sys.argv",
        ["exact_bench", "--device", "emulator", "--mib", "0.1", "--kib", "1", "--rounds", "1",
         "--dtypes", "float32", "float64", "--record", str(path)],
    )  # fmt: skip
    assert exact_bench.main() == 0
    record = json.loads(path.read_text())
    assert len(record["kernels"]) == 8 and len(record["small"]) == 2
    assert all(row["us"]["exact"] > 0 for row in record["kernels"] + record["small"])
    assert capsys.readouterr().out.count("of fast") == 10
    table = exact_bench.markdown(record)
    assert "| float64, bits |" in table and record["card"] in table


def _row(dtype, data, mib, exact, cub, **more):
    us = {"cub": cub, "fast": cub, "exact": exact, **more}
    of = {name: time / exact for name, time in us.items() if name != "exact"}
    return {"dtype": dtype, "data": data, "nbytes": mib << 20, "us": us, "exact_of": of}


def test_targets_are_judged_by_the_worst_row():
    rows = [
        _row("float32", "uniform", 16, 10.0, 9.8),
        _row("float32", "bits", 16, 10.1, 9.7, cub_reproducible=12.0),
        _row("float32", "bits", 8, 20.0, 9.0),  # smaller than what the target is about
        _row("float64", "bits", 1024, 20.0, 9.0),
        _row("float64", "uniform", 1024, 10.0, 9.8),
        _row("float64", "normal", 64, 10.0, 9.9),
    ]
    for row, of_bus in zip(rows[3:], (0.45, 0.9, 0.95), strict=True):
        row["exact_of"]["bus"] = of_bus
    small = [{"us": {"fast": 2.0, "exact": 4.5}}, {"us": {"fast": 2.0, "exact": 5.5}}]
    found = {row["what"]: row for row in exact_bench.judge({"kernels": rows, "small": small})}
    assert found["float32, of CUB's sum"]["least"] == 9.7 / 10.1
    assert not found["float32, of CUB's sum"]["met"]
    assert found["any, of CUB's reproducible sum"]["met"]
    assert not found["float64 of random bits, of the bus"]["met"]
    assert found["float32 of 16 MiB, quickest data of slowest"]["met"]
    small_ones = found["small: us above fast"]
    assert (small_ones["most"], small_ones["met"]) == (3.5, False)
    assert found["float16 from 1 GiB, of the bus"]["met"] is None
    assert found["calls: us above fast"]["met"] is None
    missed, unknown = exact_bench._short_of(list(found.values()))
    others = "cub is at 1.000, fast is at 1.000, exact of uniform numbers is at 0.900"
    plain = f"(bits, 1024 MiB: 0.450; there {others})"
    assert f"float64 of random bits, of the bus: 0.45, not 0.5 {plain}" in missed
    assert "float32, of CUB's sum: 0.96, not 0.97 (bits, 16 MiB: 0.960)" in missed
    assert "small: us above fast: 3.5, not 3" in missed and "reproducible" not in missed
    assert "float16 from 1 GiB, of the bus" in unknown and "float32" not in unknown
    good = [row for row in found.values() if row["met"]]
    assert good and exact_bench._short_of(good) == []


def test_cpu_rows_have_their_spread_and_their_table():
    rows = exact_bench.cpu_rows((64, 4096), 3)
    assert len(rows) == 4 * 4 * 2
    for row in rows:
        assert 0 <= row["exact"]["low"] <= row["exact"]["ns"] <= row["exact"]["high"]
    record = {"cpu": rows, "processor": "a processor", "processors": 2, "load_average": 0.5}
    record |= {"date": "2026-01-01", "commit": "0" * 40}
    assert "| float16, in its cache |" in exact_bench.markdown(record)


def test_a_library_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(OSError, match=r"nothing\.so"):
        exact_bench.Reproducible(tmp_path / "nothing.so")
    device = devices.choose_device("emulator")
    row = exact_bench.compare("float32", "uniform", 4096, device, ["fast", "exact"], 1, 1)
    assert set(row["us"]) == {"fast", "exact"} and set(row["exact_of"]) == {"fast"}


def test_missed_targets_of_the_cpu_are_named():
    row = {"dtype": "float64", "data": "bits", "n": 64, "exact": {"ns": 1.3}, "of_fsum": 19.6}
    assert exact_bench.missed_on_cpu([row]) == [
        "float64 bits, n = 64: 1.30 ns, not 1.2", "float64 bits, n = 64: 19.6 times fsum, not 20",
    ]  # fmt: skip
    good = row | {"exact": {"ns": 1.2}, "of_fsum": 20.0, "of_fsum_of_list": 20.0}
    assert exact_bench.missed_on_cpu([good, good | {"dtype": "float16", "of_fsum": 90}]) == []
