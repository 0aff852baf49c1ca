"""Goals that records miss are named."""

from __future__ import annotations

import json

import goals

from cases import MADE, timed_rows


def of_case(segments, ids, ms, **more):
    case = {"measure": "segments", "n": 1 << 26, "segments": segments, "ids": ids, "columns": 1,
            "data": "normal", "index": "int64", **more}  # fmt: skip
    return timed_rows(case, {name: 1e3 * time for name, time in ms.items()})


GOOD = {"exact": 1.0, "torch index_add": 2.0, "torch deterministic": 30.0}


def test_sums_by_segment_worst_first():
    def missed(*rows):
        return goals.of_segments({"rows": [*rows]})

    good = of_case(10_000, "unsorted", GOOD)
    assert missed(*good) == []
    times = {"exact": 3.0, "torch index_add": 2.0, "torch deterministic": 5.0}
    far = {"exact": 1.0, "torch index_add": 2.0, "torch segment_reduce": 1.0}
    found = missed(*good, *of_case(1_000_000, "unsorted", times),
                   *of_case(16_000_000, "offsets", far))  # fmt: skip
    assert [text.partition(":")[0] for text in found] == [
        "16,000,000 segments, offsets", "1,000,000 segments, unsorted",
        "1,000,000 segments, unsorted"]  # fmt: skip
    assert "1 of the best other call, not 0.02 (50.00 times off)" in found[0]
    assert "takes 1.67 times as long, not 20" in found[1] and "1.5 of index_add" in found[2]
    for other in ({"dtype": "float16"}, {"n": 1000}):
        assert missed(*of_case(16_000_000, "offsets", far, **other)) == []


def test_the_command(tmp_path, monkeypatch, capsys):
    path = tmp_path / "segments_x.json"
    rows = of_case(1_000_000, "unsorted", GOOD | {"exact": 4.0})
    path.write_text(json.dumps(MADE | {"schema": 2, "kind": "segments", "rows": rows}))
    other = tmp_path / "tests.json"
    other.write_text('{"kind": "tests"}')
    monkeypatch.setattr("sys.argv", ["goals", str(path), str(other)])
    assert goals.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("segments_x.json: 1,000,000 segments, unsorted: ") and len(said) == 2
