"""`gpureduce bench --segments`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpureduce.bench import by_segment, in_turns, segment_cases
from gpureduce.bench.segment_cases import Case
from gpureduce.cli.main import main


def test_cases_cover_the_table_and_what_differs_from_it():
    found = by_segment.cases(1 << 26)
    table = {(c.segments, c.ids) for c in found if c.dtype == "float32" and c.columns == 1}
    for count in (100, 10_000, 1_000_000, 16_000_000):
        assert {(count, ids) for ids in ("unsorted", "sorted", "offsets")} <= table
    assert {c.ids for c in found} == set(segment_cases.IDS)
    assert {c.data for c in found} == set(segment_cases.DATA)
    assert {c.columns for c in found} == {1, 64, 256}
    assert {c.dtype for c in found} == {"float32", "float16", "bfloat16", "float64", "int64"}
    assert len(set(found)) == len(found)
    assert all(c.segments * c.columns <= c.n for c in by_segment.cases(5000))


def by_torch(case):
    torch = pytest.importorskip("torch")
    of = segment_cases.given_on_card(torch, case, "cpu")
    arrays = [x if x is None else x.numpy() for x in (of.values, of.ids, of.offsets, of.out)]
    return segment_cases.Given(*arrays, of.segments)


@pytest.mark.parametrize("kind", segment_cases.IDS)
@pytest.mark.parametrize("make", [segment_cases.given, by_torch])
def test_ids_are_as_named(make, kind):
    of = make(Case(5000, 50, kind))
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


@pytest.mark.parametrize("make", [segment_cases.given, by_torch])
def test_values_are_as_named(make):
    assert make(Case(4096, 9, dtype="int64")).values.dtype == np.int64
    rows = make(Case(4096, 9, dtype="float64", columns=64))
    assert rows.values.shape == (64, 64) and rows.out.shape == (9, 64) and len(rows.ids) == 64
    bits = make(Case(4096, 9, data="bits")).values
    assert np.isfinite(bits).all() and np.frexp(bits)[1].max() > 100
    uniform = make(Case(4096, 9, data="uniform", dtype="float16", index="int32"))
    assert (uniform.values >= 0).all() and (uniform.values <= 1).all()
    assert uniform.ids.dtype == np.int32 and uniform.values.dtype == np.float16


def test_rows_have_a_time_of_each_call():
    chosen = [Case(2000, 20, ids, columns=columns) for ids in ("sorted", "offsets")
              for columns in (1, 64)]  # fmt: skip
    rows = list(by_segment.measure(chosen, "emulator", ("numpy",), 2))
    assert [row["ids"] for row in rows] == [c.ids for c in chosen]
    for row in rows:
        names = {"exact", "exact, as called by default", "numpy.add.at"}
        names |= {"fast"} if row["ids"] == "offsets" else {"exact, sorted=True"}
        assert set(row["ms"]) == names and min(row["ms"].values()) > 0


def test_a_call_that_adds_up_something_else_is_refused():
    case = Case(2000, 20)
    runs, _ = by_segment._runs_elsewhere(case, ("numpy",), "emulator")
    assert in_turns.without_failing(runs, by_segment._comparison(case)) == {}
    runs["wrong"] = lambda: np.full(20, 1e6)
    with pytest.raises(ValueError, match="wrong does not add up"):
        in_turns.without_failing(runs, by_segment._comparison(case))


def test_a_library_that_fails_is_left_out():
    def fail():
        raise RuntimeError("no such thing\nfor these")

    runs = {"exact": lambda: 1, "peer": fail, "other": lambda: 2}
    assert in_turns.without_failing(runs) == {"peer": "RuntimeError: no such thing"}
    assert set(runs) == {"exact", "other"}
    with pytest.raises(RuntimeError, match="no such thing"):
        in_turns.without_failing({"exact": fail})


def test_slow_calls_are_repeated_less_often(monkeypatch):
    monkeypatch.setattr(in_turns, "_by_clock", lambda run: run())
    calls = dict.fromkeys(("quick", "slow", "very slow"), 0)

    def takes(name, ms):
        def run():
            calls[name] += 1
            return ms

        return run

    runs = {"quick": takes("quick", 1.0), "slow": takes("slow", 90.0),
            "very slow": takes("very slow", 5000.0)}  # fmt: skip
    found = in_turns.medians(runs, set(runs), None, 11)
    assert found == {"quick": 1.0, "slow": 90.0, "very slow": 5000.0}
    assert calls == {"quick": 12, "slow": 4, "very slow": 2}  # one of each warms up


@pytest.mark.filterwarnings("error")
def test_sums_of_random_bits_overflow_without_a_warning():
    case = Case(1 << 14, 10, data="bits")
    (found,) = by_segment.measure([case], "cpu", ("numpy",), 1)
    assert "numpy.add.at" in found["ms"]


def row(segments, ids, **ms):
    calls = {"exact": 1.0, "exact, as called by default": 1.1, "torch index_add": 2.0}
    made = vars(Case(1 << 26, segments, ids)) | {"clocked": [], "failed": {}}
    return made | {"ms": calls | {name.replace("_", " ", 1): value for name, value in ms.items()}}


def record(*rows):
    return {"device": "cuda", "rows": list(rows)}


def test_a_record_as_text():
    rows = [row(100, "unsorted", torch_deterministic=20.0),
            row(100, "offsets", fast=0.5, torch_segment_reduce=0.8)]  # fmt: skip
    rows[0] |= {"clocked": ["jax segment_sum"], "failed": {"cupy": "ImportError: no cupy"}}
    text = by_segment.as_text(record(*rows))
    lines = [line.split() for line in text.splitlines()]
    assert "Milliseconds for 67,108,864 numbers" in text and "* whole calls" in text
    assert "Left out:\ncupy: ImportError: no cupy" in text
    found = {line[1]: line for line in lines if line[:1] == ["float32"]}
    assert found["unsorted"][-2:] == ["0.50", "20.0"]  # over index_add; deterministic over ours
    assert found["offsets"][-1] == "1.25"  # over segment_reduce, not index_add


def test_targets_that_are_missed_are_named_worst_first():
    good = row(1_000_000, "unsorted", torch_deterministic=30.0)
    assert by_segment.missed([good]) == []
    slow = row(1_000_000, "unsorted", torch_deterministic=5.0)
    slow["ms"]["exact"] = 3.0
    far = row(16_000_000, "offsets", torch_segment_reduce=1.0)
    found = by_segment.missed([good, slow, far])
    assert [text.partition(":")[0] for text in found] == [
        "16,000,000 segments, offsets", "1,000,000 segments, unsorted",
        "1,000,000 segments, unsorted"]  # fmt: skip
    assert "1 of the best other call, not 0.02 (50.00 times off)" in found[0]
    assert "takes 1.67 times as long, not 20" in found[1] and "1.5 of index_add" in found[2]
    assert by_segment.missed([far | {"dtype": "float16"}, far | {"n": 1000}]) == []


def test_a_record_in_a_notebook(tmp_path):
    path = tmp_path / "segments_h100.json"
    assert "not recorded yet" in str(by_segment.recorded(path))
    rows = [row(100, "unsorted", torch_deterministic=20.0), row(100, "offsets")]
    made = record(*rows) | {"card": "H", "driver": "1", "date": "2026-01-01"}
    path.write_text(json.dumps(made))
    table = by_segment.recorded(path)
    assert table.rows == [["100", "unsorted", "2.000", "20.000", "1.000", "0.50"]]
    assert table.notes == ["H: driver 1, 2026-01-01; 67,108,864 elements."]


def test_a_library_of_cub_must_exist(capsys):
    words = ["bench", "--segments", "--device", "cpu", "--sizes", "500", "--repeats", "1"]
    assert main([*words, "--cub", "/no/such.so"]) == 2
    assert "/no/such.so" in capsys.readouterr().err
    assert main(["bench", "--cub", "x", "--axis"]) == 2
    assert "--cub is not for --axis" in capsys.readouterr().err


def test_other_dtypes_are_refused(capsys):
    assert main(["bench", "--segments", "--dtypes", "float80", "--sizes", "500"]) == 2
    assert "float32, float16, bfloat16, float64, int64" in capsys.readouterr().err


def test_without_a_card_the_processors_are_timed(capsys):
    words = ["bench", "--segments", "--sizes", "300", "--repeats", "1", "--json"]
    assert main([*words, "--dtypes", "int64"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["device"] in ("cpu", "cuda")


def test_a_limit_is_shown_beside_and_is_no_peer():
    text = by_segment.as_table([row(100, "unsorted", limit=0.5), row(100, "sorted")])
    first, second = text.splitlines()[-2:]
    assert text.splitlines()[0].split()[-2:] == ["determ./exact", "exact/limit"]
    assert first.split()[-2:] == ["0.50", "2.00"] and second.split()[-1] == "0.50"
    assert "limit" not in by_segment.as_table([row(100, "sorted")])
