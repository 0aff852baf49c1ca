"""The events of timed sums, on a runtime that counts them and whose calls may fail."""

from __future__ import annotations

from cases import CSRC, NATIVE, build_c, needs_c, run_c

pytestmark = needs_c


def test_events_are_kept_and_let_go(tmp_path):
    includes = CSRC / "emulator/include"
    program = build_c(tmp_path / "kept_events", [NATIVE / "kept_events.c"], includes)
    assert run_c(program, 1) == "right\n"
