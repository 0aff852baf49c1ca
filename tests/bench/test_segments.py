"""`gpureduce bench --segments`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cases import MADE, timed_rows
from gpureduce.bench.contenders import segments as contenders
from gpureduce.bench.contenders.places import Place
from gpureduce.bench.contenders.segments import Case
from gpureduce.bench.runner import measure
from gpureduce.bench.suites import segments as suite
from gpureduce.cli.main import main
from gpureduce.lectures import keys


def test_cases_cover_the_table_and_what_differs_from_it():
    found = suite.cases(1 << 26)
    table = {(c.segments, c.ids) for c in found if c.dtype == "float32" and c.columns == 1}
    for count in (100, 10_000, 1_000_000, 16_000_000):
        assert {(count, ids) for ids in ("unsorted", "sorted", "offsets")} <= table
    assert {c.ids for c in found} == set(contenders.IDS)
    assert {c.data for c in found} == set(contenders.DATA)
    assert {c.columns for c in found} == {1, 64, 256}
    assert {c.dtype for c in found} == {"float32", "float16", "bfloat16", "float64", "int64"}
    assert len(set(found)) == len(found)
    assert all(c.segments * c.columns <= c.n for c in suite.cases(5000))


@pytest.mark.parametrize("kind", contenders.IDS)
def test_ids_are_as_named(kind):
    of = contenders.given(Case(5000, 50, kind))
    counts = np.bincount(of.ids, minlength=50)
    assert counts.sum() == 5000 and of.values.shape == (5000,) and of.out.shape == (50,)
    assert of.ids.min() >= 0 and of.ids.max() < 50 and of.ids.dtype == np.int64
    is_sorted = bool(np.all(of.ids[1:] >= of.ids[:-1]))
    assert is_sorted == (kind in ("sorted", "offsets", "one"))
    largest = counts.max() / 5000
    assert {"one": largest == 1, "half": 0.4 < largest < 0.6, "zipf": 0.1 < largest < 0.4}.get(
        kind, largest < 0.05
    )
    assert (of.offsets is not None) == is_sorted
    if is_sorted:
        assert of.offsets[0] == 0 and of.offsets.dtype == np.int64
        assert np.array_equal(np.diff(of.offsets), counts)


def test_values_are_as_named():
    def given(**more):
        return contenders.given(Case(4096, 9, **more))

    assert given(dtype="int64").values.dtype == np.int64
    rows = given(dtype="float64", columns=64)
    assert rows.values.shape == (64, 64) and rows.out.shape == (9, 64) and len(rows.ids) == 64
    bits = given(data="bits").values
    assert np.isfinite(bits).all() and np.frexp(bits)[1].max() > 100
    uniform = given(data="uniform", dtype="float16", index="int32")
    assert (uniform.values >= 0).all() and (uniform.values <= 1).all()
    assert uniform.ids.dtype == np.int32 and uniform.values.dtype == np.float16


def rows_of(*chosen, device="emulator", repeats=1):
    return list(measure(suite.groups(Place(device, ("numpy",)), chosen, repeats, None)))


def test_each_call_of_a_case_has_its_row():
    chosen = [Case(2000, 20, ids, columns=columns) for ids in ("sorted", "offsets")
              for columns in (1, 64)]  # fmt: skip
    found = suite.by_case(rows_of(*chosen, repeats=2))
    assert [next(iter(by.values()))["ids"] for by in found] == [c.ids for c in chosen]
    for by in found:
        names = {"exact", "exact, as called by default", "numpy.add.at"}
        names |= {"fast"} if by["exact"]["ids"] == "offsets" else {"exact, sorted=True"}
        assert by.keys() == names and all(row["low_us"] > 0 for row in by.values())


def test_a_call_that_adds_up_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(contenders, "_of_numpy", lambda of: {"wrong": lambda: np.full(20, 1e6)})
    with pytest.raises(ValueError, match="wrong does not add up"):
        rows_of(Case(2000, 20))


def test_a_library_that_cannot_take_the_arrays_is_named(monkeypatch):
    monkeypatch.setattr(contenders, "_of_numpy", lambda of: {"numpy": of.no_such_array})
    rows = rows_of(Case(2000, 20))
    assert [row.get("failed", "")[:15] for row in rows] == ["AttributeError:", "", ""]
    assert rows[0]["strategy"] == "numpy"


@pytest.mark.filterwarnings("error")
def test_sums_of_random_bits_overflow_without_a_warning():
    rows = rows_of(Case(1 << 14, 10, data="bits"), device="cpu")
    assert "numpy.add.at" in [row["strategy"] for row in rows]


def of_case(segments, ids, ms, more=()):
    """Rows of a case on a card, from milliseconds."""
    usual = {"exact": 1.0, "exact, as called by default": 1.1, "torch index_add": 2.0}
    case = vars(Case(1 << 26, segments, ids)) | {"measure": "segments"} | dict(more)
    return timed_rows(case, {name: 1e3 * time for name, time in (usual | ms).items()})


def record(*rows, **more):
    return MADE | {"schema": 2, "kind": "segments", "rows": [*rows]} | more


def test_a_record_as_text():
    rows = of_case(100, "unsorted", {"torch deterministic": 20.0, "jax segment_sum": 3.0})
    rows += of_case(100, "offsets", {"fast": 0.5, "torch segment_reduce": 0.8})
    rows[4]["source"] = "perf_counter"
    failed = [{"strategy": "cupy", "failed": "ImportError: no cupy"}]
    text = suite.as_text(record(*rows, failed=failed))
    lines = [line.split() for line in text.splitlines()]
    assert "Milliseconds for 67,108,864 numbers" in text and "* whole calls" in text
    assert "Left out:\ncupy: ImportError: no cupy" in text
    found = {line[1]: line for line in lines if line[:1] == ["float32"]}
    assert found["unsorted"][-2:] == ["0.50", "20.0"]  # over index_add; deterministic over ours
    assert found["offsets"][-1] == "1.25"  # over segment_reduce, not index_add


def test_a_limit_is_shown_beside_and_is_no_peer():
    rows = of_case(100, "sorted", {})
    assert "limit" not in suite.table(rows)
    text = suite.table([*of_case(100, "unsorted", {"limit": 0.5}), *rows])
    first, second = text.splitlines()[-2:]
    assert text.splitlines()[0].split()[-2:] == ["determ./exact", "exact/limit"]
    assert first.split()[-2:] == ["0.50", "2.00"] and second.split()[-1] == "0.50"


def test_a_record_in_a_notebook(tmp_path):
    path = tmp_path / "segments_h100.json"
    assert "not recorded yet" in str(keys.recorded(path))
    rows = of_case(100, "unsorted", {"torch deterministic": 20.0}) + of_case(100, "offsets", {})
    path.write_text(json.dumps(record(*rows)))
    table = keys.recorded(path)
    assert table.rows == [["100", "unsorted", "2.000", "20.000", "1.000", "0.50"]]
    assert table.notes == ["NVIDIA Test 9000: driver 580, 2026-01-01; 67,108,864 elements."]


WORDS = ["bench", "--segments", "--sizes", "500", "--repeats", "1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*WORDS, "--device", "cpu", "--cub", "/no/such.so"], "/no/such.so"),
        (["bench", "--cub", "x", "--axis"], "--cub is not for --axis"),
        ([*WORDS, "--dtypes", "float80"], "float32, float16, bfloat16, float64, int64"),
    ],
)
def test_errors(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_without_a_card_the_processors_are_timed(capsys):
    assert main([*WORDS, "--json", "--dtypes", "int64"]) == 0
    assert json.loads(capsys.readouterr().out)["device"] in ("cpu", "cuda")
