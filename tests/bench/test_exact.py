"""gpureduce.exact_bench: what is measured, and how it is told."""

from __future__ import annotations

import numpy as np
import pytest

from cases import MADE
from gpureduce.bench.runner import measure
from gpureduce.bench.suites import exact


@pytest.mark.parametrize("data", exact.DATA)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_data_are_finite_and_as_large_as_asked(dtype, data):
    array = exact.make(dtype, 25_000, data)
    assert array.dtype.name == dtype and array.size == 25_000
    assert np.isfinite(array.astype(float)).all()
    exponents = len(np.unique(np.frexp(array[array != 0].astype(float))[1]))
    assert exponents > (25 if dtype == "float16" else 200) or data != "bits"


def test_the_emulator_is_measured_as_a_card_is(tmp_path, monkeypatch, capsys):
    path = tmp_path / "record.json"
    words = ["exact_bench", "--device", "emulator", "--mib", "0.1", "--kib", "1", "--rounds", "1",
             "--dtypes", "float32", "float64", "--record", str(path)]  # fmt: skip
    monkeypatch.setattr("sys.argv", words)
    assert exact.main() == 0
    record = exact.load(path)
    assert {row["measure"] for row in record["rows"]} == {"kernel"} and len(record["rows"]) == 20
    assert sum(row["nbytes"] == 1024 for row in record["rows"]) == 2 * 2
    assert {row["strategy"] for row in record["rows"]} == {"fast", "exact"}
    assert all(row["median_us"] > 0 and row["repeats"] == 5 for row in record["rows"])
    table = exact.markdown(record)
    assert "| float64, bits |" in table and record["card"] in table
    assert capsys.readouterr().out.strip() == table


def test_one_thread_beside_fsum():
    rows = list(measure([*exact.on_thread(3, (64, 4096))]))
    timed = [row for row in rows if "failed" not in row]
    assert {(row["strategy"], row["data"]) for row in rows if "failed" in row} == {
        (name, "bits") for name in ("fsum", "fsum_of_list")
    }  # the partial sums of math.fsum overflow
    assert sum(row["strategy"] == "exact" for row in timed) == 4 * 4 * 2
    assert all(0 < row["low_us"] <= row["median_us"] <= row["high_us"] for row in timed)
    text = exact.markdown(MADE | {"rows": timed, "load_average": 0.5})
    assert "| float16, in its cache |" in text and "| float64, from memory |" in text
    assert "at a load average of 0.5 on 16 processors" in text and "times as quick as" in text


@pytest.mark.parametrize("words", [["--device", "emulator"], ["--cpu"]])
def test_a_library_that_is_missing_is_an_error(words, tmp_path, monkeypatch):
    library = str(tmp_path / "nothing.so")
    monkeypatch.setattr("sys.argv", ["exact_bench", *words, "--cub-reproducible", library])
    with pytest.raises(OSError, match=r"nothing\.so"):
        exact.main()
