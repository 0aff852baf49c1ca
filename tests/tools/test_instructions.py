"""Counts of instructions: what is too slow, and that a count repeats."""

from __future__ import annotations

import functools
import gc
import json
import platform
from pathlib import Path

import instructions
import pytest

STORED = json.loads(instructions.BASELINE.read_text())


def test_a_call_that_takes_over_3_percent_more_is_named(capsys):
    after = {"a": 1030, "b": 1031, "c": 900}
    assert instructions.compared(dict.fromkeys(after, 1000), after) == ["b"]
    assert "+3.1%" in capsys.readouterr().out


def test_the_workflow_has_the_versions_of_the_baseline():
    workflow = Path(__file__).parents[2] / ".github" / "workflows" / "ci.yml"
    assert f"numpy=={STORED['Python, NumPy, compiler'][1]}" in workflow.read_text()
    assert list(STORED["calls"]) == list(instructions.calls())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the trap flag is of x86-64")
def test_counts_are_of_instructions(monkeypatch):
    """Twice as much work takes twice as many; a count repeats."""
    calls = {f"{n} {again}": functools.partial(sum, [0] * n) for n in (500, 1000) for again in "ab"}
    monkeypatch.setattr(instructions, "calls", lambda: calls)
    try:
        once, same, twice, _ = instructions.counted().values()
    finally:
        gc.enable()
    assert once == pytest.approx(same, rel=0.01) and twice == pytest.approx(2 * once, rel=0.1)
