"""`gpureduce bench --axis`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_records import DATA, DEPENDS

import gpureduce
from cases import AXIS
from gpureduce.bench import axis_runs, by_axis
from gpureduce.bench.axis_runs import Bench, Case, calls_of, cases
from gpureduce.cli.main import main

N = 1 << 28


def test_shapes_go_from_the_narrowest_to_the_widest():
    found = axis_runs.shapes(N)
    assert found[0] == (N // 2, 2) and found[-1] == (1, N)
    assert {(4, N // 4), (7, N // 7), (1 << 18, 1024), (N // 255, 255)} <= set(found)
    assert all(0.99 * N < rows * columns <= N for rows, columns in found)
    every = cases(N, ("float32", "int8"), ["shapes"])
    assert sum(case.dtype == "float32" for case in every) == 2 * len(found)
    assert sum(case.dtype == "int8" for case in every) == 2 * -(-len(found) // 3)
    assert {case.axis for case in every} == {0, 1}


def test_each_part_has_its_cases():
    """At the size of the records."""
    of = {part: cases(N, ("float32", "float64", "int8"), [part]) for part in axis_runs.PARTS}
    middle = {(case.shape, case.axis, case.dtype) for case in of["middle"]}
    for shape in ((64, 4096, 1024), (16384, 1024, 16)):
        assert {(shape, 1, dtype) for dtype in ("float32", "float64", "int8")} <= middle
    small = {(case.rows, case.columns) for case in of["small"]}
    assert small == {(1, 4096), (8, 4096), (32, 8192), (128, 8192), (1024, 1024), (4096, 4096)}
    assert {case.dtype for case in of["hard"]} == {"float32", "float64"}
    assert {case.axis for case in of["hard"]} == {0, 1} == {case.axis for case in of["rungs"]}
    assert [case.dtype for case in of["calls"]] == ["float32"]
    every = cases(N, ("float32", "float64", "int8"))
    assert sorted(map(str, every)) == sorted(str(case) for some in of.values() for case in some)
    dtypes = [case.dtype for case in every]
    assert dtypes == sorted(dtypes, key=("float32", "float64", "int8").index)
    assert not cases(10, ("float32",), ["small", "calls"])


def two_sum(total, x):
    after = total + x
    part = after - total
    return after, (total - (after - part)) + (x - part)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((300, 16), 1), ((9, 1001), 1), ((64, 64), 0)])
def test_every_sum_of_a_hard_matrix_is_zero_and_not_proven(shape, axis, dtype):
    """The bound of csrc/exact/proven.h, computed from the elements in their order."""
    matrix = axis_runs.hard_matrix(Case(*shape, axis, dtype, part="hard"))
    assert matrix.shape == shape and matrix.dtype == dtype
    assert not gpureduce.sum(matrix, "exact", axis=axis).value.any()
    terms = matrix.astype(np.float64) if axis == 0 else matrix.T.astype(np.float64)
    for numbers in (2, 3):
        total, rest, tail, bound = np.zeros((4, terms.shape[1]))
        for x in terms:
            total, error = two_sum(total, x)
            if numbers == 3:
                rest, error = two_sum(rest, error)
                tail = tail + error
            else:
                rest = rest + error
            bound = bound + abs(error)
        uncertain = 4 * len(terms) * 2.0**-52 * bound
        assert (uncertain > abs(total + rest + tail) / 4).all()


@pytest.mark.parametrize(("device", "names"), [("emulator", {"exact", "fast", "NumPy"}),
                                               ("cpu", {"exact", "cpu", "NumPy"})])  # fmt: skip
def test_the_command(device, names, tmp_path, capsys):
    path = tmp_path / "axis.json"
    how = ["--device", device, "--sizes", "2000", "--dtypes", "float32", "int8", "--repeats", "2"]
    parts = ["shapes", "middle"]
    assert main(["bench", "--axis", *how, "--parts", *parts, "--output", str(path)]) == 0
    said = capsys.readouterr().out
    assert "kernel of fast" in said and "1000 x 2 " in said and "4 x 7 x 64 " in said
    assert ("Emulated times" in said) == (device == "emulator")
    made = by_axis.load(path)
    assert made["kind"] == "axis" and set(made["trees"]) >= DEPENDS["axis_"]
    rows = made["rows"]
    assert len(rows) == len(cases(2000, ("float32", "int8"), parts))
    for row in rows:
        assert min(row["ms"].values()) > 0
        assert set(row["ms"]) == names - ({"exact"} if row["dtype"] == "int8" else set())
    narrow = rows[0]
    assert (narrow["rows"], narrow["columns"], narrow["axis"]) == (1000, 2, 1)
    assert narrow["nbytes"] == 4 * (2000 + 1000)


def test_the_other_parts(tmp_path, capsys):
    path = tmp_path / "axis.json"
    how = ["--device", "emulator", "--sizes", "40000", "--dtypes", "float32", "--repeats", "1"]
    parts = ["rungs", "small", "hard", "calls"]
    assert main(["bench", "--axis", *how, "--parts", *parts, "--output", str(path)]) == 0
    said = capsys.readouterr().out
    assert "row_thread  " in said and "times as long" in said and "1 x 4096 " in said
    rows = json.loads(path.read_text())["rows"]
    by_part = {part: [row for row in rows if row["part"] == part] for part in parts}
    rungs = [row["ms"].keys() for row in by_part["rungs"]]
    wanted = {*AXIS} - {"exact_levels"}
    assert set().union(*rungs) == wanted
    assert "row_tile" in rungs[0] and "row_tile" not in rungs[-3], "its rows are too long"
    assert {row["kernel"] for row in by_part["small"]} == {"row_block"}
    assert all(set(row["ms"]) == {"exact", axis_runs.USUAL} for row in by_part["hard"])
    assert [set(row["ms"]) for row in by_part["calls"]] == [{"fast", "exact", "NumPy"}]


def test_processors_run_no_kernels_by_name(capsys):
    words = ["bench", "--axis", "--device", "cpu", "--sizes", "512", "--repeats", "1"]
    assert main([*words, "--dtypes", "float32"]) == 0
    assert "GB/s of each kernel" not in capsys.readouterr().out


def test_sums_in_one_graph_are_captured_once_and_each_has_its_own_elements():
    captured = []

    def capture(run):
        captured.append(run)
        return run

    base = np.arange(10 * 4096, dtype=np.float32)
    bench = Bench("emulator", ("numpy",), capture=capture)
    of = calls_of(bench, Case(1, 4096, 1, part="small"), base)
    assert of.count == 10 and len(captured) == len(of.runs) == 3
    with pytest.MonkeyPatch.context() as patch:
        seen = []
        patch.setattr(Bench, "add", lambda self, matrix, *_, **how: seen.append(matrix[0, 0]))
        of.runs["fast"]()
    assert seen == [4096 * i for i in range(10)]
    ms = by_axis._milliseconds(of, "small", None, 1)
    assert set(ms) == {"fast", "exact", "NumPy"} and min(ms.values()) > 0


class Card:
    """Stands in for a card: events measure 1 ms, and the processor's clock measures 2 ms."""

    def by_clock(self, run):
        run()
        return 2.0

    def by_events(self, run):
        run()
        return 1.0


def test_on_a_card_only_what_has_its_own_stream_is_timed_by_the_clock():
    base = np.ones(4096, np.float32)
    of = calls_of(Bench("emulator", ()), Case(64, 64, 1), base)
    of.runs[axis_runs.JAX] = of.runs["fast"]
    of.clocked = {axis_runs.JAX}
    ms = by_axis._milliseconds(of, "shapes", Card(), 3)
    assert ms == {"fast": 1.0, "exact": 1.0, axis_runs.JAX: 2.0}


def test_libraries_that_fail_are_named():
    row = {"rows": 4, "columns": 4, "axis": 1, "dtype": "float32", "nbytes": 80, "kernel": "x"}
    row |= {"ms": {"fast": 1.0, axis_runs.CUB: 2.0}, "failed": {axis_runs.JAX: "RuntimeError: no"}}
    said = by_axis.as_text({"rows": [row], "device": "cuda"})
    assert f"{axis_runs.JAX} failed: RuntimeError: no" in said
    assert "DeviceSegmentedReduce, by torch.segment_reduce" in said and "2.00" in said


def test_calls_of_pytorch():
    torch = pytest.importorskip("torch")
    base = torch.arange(600, dtype=torch.float32)
    for case in (Case(20, 30, 1), Case(5, 6, 1, "float32", 20), Case(20, 30, 0)):
        matrix = base.reshape(case.shape)
        out = torch.empty_like(matrix.sum(case.axis))
        runs = axis_runs._torch_runs(torch, case, matrix, out)
        assert (axis_runs.CUB in runs) == case.has_rows
        for run in runs.values():
            assert torch.equal(run().reshape(out.shape), matrix.sum(case.axis))


def test_calls_of_jax():
    pytest.importorskip("jax")
    matrix = np.arange(600, dtype=np.float64).reshape(20, 30)
    for axis in (0, 1):
        run = axis_runs._jax_run(Case(20, 30, axis, "float64"), matrix)
        found = np.asarray(run())
        assert found.dtype == np.float64 and np.array_equal(found, matrix.sum(axis))


@pytest.mark.skipif(not (DATA / "axis_h100.json").exists(), reason="not measured yet")
def test_speeds_of_the_record():
    rows = by_axis.load(DATA / "axis_h100.json")["rows"]
    for axis in (0, 1):
        found = by_axis.speeds(rows, axis)
        assert {"fast", "exact", "torch"} <= found.keys()
        columns = {c for _, c in axis_runs.shapes(N)}
        assert set(found["fast"]) == columns


def test_other_options_are_refused(capsys):
    assert main(["bench", "--axis", "--csv"]) == 2
    assert "--csv is not for --axis, which takes --sizes" in capsys.readouterr().err
    assert main(["bench", "--parts", "small"]) == 2
    assert "--parts is for --axis" in capsys.readouterr().err
