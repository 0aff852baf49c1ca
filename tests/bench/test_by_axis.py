"""`gpureduce bench --axis`."""

from __future__ import annotations

import json

import pytest
from test_records import DEPENDS

from gpureduce.bench import by_axis
from gpureduce.cli.main import main


def test_shapes_go_from_the_narrowest_to_the_widest():
    found = by_axis.shapes(1 << 28)
    assert found[0] == (1 << 27, 2) and found[-1] == (1, 1 << 28)
    assert {(4, 1 << 26), (7, (1 << 28) // 7), (1 << 18, 1024), ((1 << 28) // 255, 255)} <= set(
        found
    )
    assert all(0.99 * 2**28 < rows * columns <= 2**28 for rows, columns in found)
    cases = by_axis.cases(1 << 28, ("float32", "int8"))
    assert sum(case.dtype == "float32" for case in cases) == 2 * len(found)
    assert sum(case.dtype == "int8" for case in cases) == 2 * -(-len(found) // 3)
    assert {case.axis for case in cases} == {0, 1}


@pytest.mark.parametrize(("device", "names"), [("emulator", {"exact", "fast", "NumPy"}),
                                               ("cpu", {"exact", "cpu", "NumPy"})])  # fmt: skip
def test_the_command(device, names, tmp_path, capsys):
    path = tmp_path / "axis.json"
    how = ["--device", device, "--sizes", "2000", "--dtypes", "float32", "int8", "--repeats", "2"]
    assert main(["bench", "--axis", *how, "--output", str(path)]) == 0
    said = capsys.readouterr().out
    assert "kernel of fast" in said and "1000 x 2 " in said
    assert ("Emulated times" in said) == (device == "emulator")
    made = json.loads(path.read_text())
    assert made["kind"] == "axis" and set(made["trees"]) >= DEPENDS["axis_"]
    rows = made["rows"]
    assert len(rows) == len(by_axis.cases(2000, ("float32", "int8")))
    for row in rows:
        assert min(row["ms"].values()) > 0
        assert set(row["ms"]) == names - ({"exact"} if row["dtype"] == "int8" else set())
    narrow = rows[0]
    assert (narrow["rows"], narrow["columns"], narrow["axis"]) == (1000, 2, 1)
    assert narrow["nbytes"] == 4 * (2000 + 1000)


def test_other_options_are_refused(capsys):
    assert main(["bench", "--axis", "--csv"]) == 2
    assert "--csv is not for --axis, which takes --sizes" in capsys.readouterr().err
