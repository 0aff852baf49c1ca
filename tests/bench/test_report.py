"""Printing and keeping what `gpureduce bench` measures."""

import json

import pytest

from gpureduce.bench import report


def test_a_run_that_ends_early_leaves_what_it_has_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_KEPT_EACH_S", 0.0)
    path, seen = tmp_path / "bench.json", []

    def rows():
        yield {"n": 1}
        yield {"n": 2}
        seen.append(json.loads(path.read_text()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report.keeping(rows(), path, lambda found: {"rows": found})
    assert seen == [{"rows": [{"n": 1}, {"n": 2}], "unfinished": True}]
    assert json.loads(path.read_text()) == seen[0]
    assert report.keeping(iter([5, 6]), None, dict) == [5, 6]
