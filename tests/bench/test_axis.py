"""`gpureduce bench --axis`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_records import DATA, DEPENDS

import gpureduce
from cases import AXIS, MADE, timed_rows
from gpureduce.bench import record
from gpureduce.bench.contenders import matrices
from gpureduce.bench.contenders.matrices import Case
from gpureduce.bench.contenders.places import Place
from gpureduce.bench.runner import in_turns, one_by_one
from gpureduce.bench.suites import axis as suite
from gpureduce.cli.main import main

N = 1 << 28


def test_shapes_go_from_the_narrowest_to_the_widest():
    found = suite.shapes(N)
    assert found[0] == (N // 2, 2) and found[-1] == (1, N)
    assert {(4, N // 4), (7, N // 7), (1 << 18, 1024), (N // 255, 255)} <= set(found)
    assert all(0.99 * N < rows * columns <= N for rows, columns in found)
    every = suite.cases(N, ("float32", "int8"), ["shapes"])
    assert sum(case.dtype == "float32" for case in every) == 2 * len(found)
    assert sum(case.dtype == "int8" for case in every) == 2 * -(-len(found) // 3)
    assert {case.axis for case in every} == {0, 1}


def test_each_part_has_its_cases():
    """At the size of the records."""
    of = {part: suite.cases(N, ("float32", "float64", "int8"), [part]) for part in suite.PARTS}
    middle = {(case.shape, case.axis, case.dtype) for case in of["middle"]}
    for shape in ((64, 4096, 1024), (16384, 1024, 16)):
        assert {(shape, 1, dtype) for dtype in ("float32", "float64", "int8")} <= middle
    small = {(case.rows, case.columns) for case in of["small"]}
    assert small == {(1, 4096), (8, 4096), (32, 8192), (128, 8192), (1024, 1024), (4096, 4096)}
    assert {case.dtype for case in of["hard"]} == {"float32", "float64"}
    assert {case.axis for case in of["hard"]} == {0, 1} == {case.axis for case in of["rungs"]}
    assert [case.dtype for case in of["calls"]] == ["float32"]
    every = suite.cases(N, ("float32", "float64", "int8"))
    assert sorted(map(str, every)) == sorted(str(case) for some in of.values() for case in some)
    dtypes = [case.dtype for case in every]
    assert dtypes == sorted(dtypes, key=("float32", "float64", "int8").index)
    assert not suite.cases(10, ("float32",), ["small", "calls"])


def two_sum(total, x):
    after = total + x
    part = after - total
    return after, (total - (after - part)) + (x - part)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((300, 16), 1), ((9, 1001), 1), ((64, 64), 0)])
def test_every_sum_of_a_hard_matrix_is_zero_and_not_proven(shape, axis, dtype):
    """The bound of csrc/exact/proven.h, computed from the elements in their order."""
    matrix = matrices.hard_matrix(Case(*shape, axis, dtype, measure="hard"))
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
    made = record.load(path, "axis")
    assert set(made["trees"]) >= DEPENDS["axis_"] and made["device"] == device
    found = {}
    for row in made["rows"]:
        case = Case(*(row[name] for name in ("rows", "columns", "axis", "dtype", "batches")),
                    measure=row["measure"])  # fmt: skip
        found.setdefault(case, set()).add(row["strategy"])
        assert 0 < row["low_us"] <= row["median_us"] and row["repeats"] == 2
    assert list(found) == suite.cases(2000, ("float32", "int8"), parts)
    for case, strategies in found.items():
        assert strategies == names - ({"exact"} if case.dtype == "int8" else set())
    narrow = made["rows"][0]
    assert (narrow["rows"], narrow["columns"], narrow["axis"]) == (1000, 2, 1)
    assert narrow["nbytes"] == 4 * (2000 + 1000)


def test_the_other_parts(tmp_path, capsys):
    path = tmp_path / "axis.json"
    how = ["--device", "emulator", "--sizes", "40000", "--dtypes", "float32", "--repeats", "1"]
    parts = ["rungs", "small", "hard", "calls"]
    assert main(["bench", "--axis", *how, "--parts", *parts, "--output", str(path)]) == 0
    said = capsys.readouterr().out
    assert "row_thread  " in said and "times as long" in said and "1 x 4096 " in said
    of = {part: suite.of_part(json.loads(path.read_text())["rows"], part) for part in parts}
    names = {part: {row["strategy"] for row in rows} for part, rows in of.items()}
    wanted = {*AXIS} - {"exact_levels"}
    assert names["rungs"] == wanted
    widths = {row["columns"] for row in of["rungs"] if row["strategy"] == "row_tile"}
    assert 16 in widths and 2500 not in widths, "rows that are too long for it"
    assert {row["kernel"] for row in of["small"]} == {"row_block"}
    assert names["hard"] == {"exact", matrices.USUAL}
    assert names["calls"] == {"fast", "exact", "NumPy"}


def test_processors_run_no_kernels_by_name(capsys):
    words = ["bench", "--axis", "--device", "cpu", "--sizes", "512", "--repeats", "1"]
    assert main([*words, "--dtypes", "float32"]) == 0
    assert "GB/s of each kernel" not in capsys.readouterr().out


def test_sums_in_one_graph_are_captured_once_and_each_has_its_own_elements(monkeypatch):
    captured, seen = [], []
    monkeypatch.setattr(Place, "captured", lambda self, run: captured.append(run) or run)
    base = np.arange(10 * 4096, dtype=np.float32)
    case = Case(1, 4096, 1, measure="small")
    found = list(matrices.CONTENDERS["small"](Place("emulator", ("numpy",)), case, base))
    assert [one.strategy for one in found] == ["fast", "exact", "NumPy"] and len(captured) == 2
    times = in_turns(found, one_by_one(1))
    assert all(len(one) == 1 and one[0] > 0 for one in times)
    monkeypatch.setattr(matrices._Sums, "add", lambda self, matrix, *_, **__: seen.append(matrix))
    found[0].value()
    assert [matrix[0, 0] for matrix in seen] == [4096 * i for i in range(10)]


class Card:
    """Stands in for a card: events measure 1 ms, and the processor's clock measures 2 ms."""

    def by_clock(self, run):
        return lambda repeats: [2000.0 for _ in range(repeats) if run() or True]

    def by_events(self, run):
        return lambda repeats: [1000.0 for _ in range(repeats) if run() or True]


def test_on_a_card_only_what_has_its_own_stream_is_timed_by_the_clock():
    place = Place("emulator", (), card=Card())
    found = [place.contender("fast", lambda: 1), place.contender("JAX", lambda: 1, own_stream=True),
             place.contender("fast", lambda: 1, count=10)]  # fmt: skip
    assert [one.fields["source"] for one in found] == ["cuda_event", "perf_counter", "cuda_event"]
    assert in_turns(found, one_by_one(2)) == [[1000.0] * 2, [2000.0] * 2, [100.0] * 2]
    assert [one.may_fail for one in found] == [False, True, False]


def test_text_of_a_card():
    """The best library, a copy, and libraries that fail."""
    case = {"measure": "shapes", "rows": 4, "columns": 4, "axis": 1, "batches": 1, "kernel": "x"}
    rows = timed_rows({"measure": "shapes", "nbytes": 160}, {"copy": 1.0})
    rows += timed_rows(case | {"nbytes": 80}, {"fast": 1.0, matrices.CUB: 2.0, "torch": 3.0})
    failed = [case | {"strategy": matrices.JAX, "failed": "RuntimeError: no"}]
    said = suite.as_text(MADE | {"rows": rows, "failed": failed})
    assert f"{matrices.JAX} failed: RuntimeError: no" in said
    assert "DeviceSegmentedReduce, by torch.segment_reduce" in said
    line = next(line for line in said.splitlines() if "4 x 4" in line)
    assert line.split()[-2:] == ["2.00", "0.50"]


def test_calls_of_pytorch():
    torch = pytest.importorskip("torch")
    base = torch.arange(600, dtype=torch.float32)
    for case in (Case(20, 30, 1), Case(5, 6, 1, "float32", 20), Case(20, 30, 0)):
        of = matrices._Sums(Place("cpu", ()), case, base)
        runs = matrices.of_torch(torch, of)
        assert (matrices.CUB in runs) == case.has_rows
        for run in runs.values():
            matrix = of.matrices[0]
            assert torch.equal(run().reshape(of.outs[0].shape), matrix.sum(case.axis))


def test_calls_of_jax():
    pytest.importorskip("jax")
    matrix = np.arange(600, dtype=np.float64).reshape(20, 30)
    for axis in (0, 1):
        found = np.asarray(matrices.of_jax(Case(20, 30, axis, "float64"), matrix)())
        assert found.dtype == np.float64 and np.array_equal(found, matrix.sum(axis))


@pytest.mark.skipif(not (DATA / "axis_h100.json").exists(), reason="not measured yet")
def test_speeds_of_the_record():
    rows = record.load(DATA / "axis_h100.json", "axis")["rows"]
    for axis in (0, 1):
        found = suite.speeds(rows, axis)
        assert {"fast", "exact", "torch"} <= found.keys()
        assert set(found["fast"]) == {columns for _, columns in suite.shapes(N)}


def test_other_options_are_refused(capsys):
    assert main(["bench", "--axis", "--csv"]) == 2
    assert "--csv is not for --axis, which takes --sizes" in capsys.readouterr().err
    assert main(["bench", "--parts", "small"]) == 2
    assert "--parts is for --axis" in capsys.readouterr().err
