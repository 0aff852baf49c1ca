"""`gpureduce bench --segments`."""

from __future__ import annotations

import numpy as np
import pytest

from gpureduce.bench import by_segment, in_turns
from gpureduce.bench.by_segment import Case


def test_cases_cover_the_table_and_what_differs_from_it():
    found = by_segment.cases(1 << 26)
    table = {(c.segments, c.ids) for c in found if c.dtype == "float32" and c.columns == 1}
    for count in (100, 10_000, 1_000_000, 16_000_000):
        assert {(count, ids) for ids in ("unsorted", "sorted", "offsets")} <= table
    assert {c.ids for c in found} == set(by_segment.IDS)
    assert {c.data for c in found} == set(by_segment.DATA)
    assert {c.columns for c in found} == {1, 64, 256}
    assert {c.dtype for c in found} == {"float32", "float16", "bfloat16", "float64", "int64"}
    assert len(set(found)) == len(found)
    assert all(c.segments * c.columns <= c.n for c in by_segment.cases(5000))


@pytest.mark.parametrize("kind", by_segment.IDS)
def test_ids_are_as_named(kind):
    of = by_segment.given(Case(5000, 50, kind))
    counts = np.bincount(of.ids, minlength=50)
    assert counts.sum() == 5000 and of.values.shape == (5000,) and of.out.shape == (50,)
    is_sorted = bool(np.all(of.ids[1:] >= of.ids[:-1]))
    assert is_sorted == (kind in ("sorted", "offsets", "one"))
    largest = counts.max() / 5000
    assert {"one": largest == 1, "half": 0.4 < largest < 0.6, "zipf": 0.1 < largest < 0.4}.get(
        kind, largest < 0.05
    )
    if kind == "offsets":
        assert np.array_equal(np.diff(of.offsets), counts)


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
    by_segment._check(runs, case)
    with pytest.raises(ValueError, match="wrong does not add up"):
        by_segment._check(runs | {"wrong": lambda: np.full(20, 1e6)}, case)


def test_a_library_that_fails_is_left_out():
    def fail():
        raise RuntimeError("no such thing\nfor these")

    runs = {"exact": lambda: 1, "peer": fail, "other": lambda: 2}
    assert in_turns.without_failing(runs) == {"peer": "RuntimeError: no such thing"}
    assert set(runs) == {"exact", "other"}
