"""Results, from a runtime that brings their words late: the emulator's are there at once."""

from __future__ import annotations

from cases import ROOT, build_on_late_runtime, needs_c, run_c


@needs_c
def test_a_result_is_waited_for_until_all_its_words_are_there(tmp_path):
    # What only other parts of sum.c call is not there: those are left out.
    flags = ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
    program = build_on_late_runtime(
        tmp_path / "late_results", ROOT / "tests/native/late_results.c", flags=flags
    )
    assert run_c(program, 1) == "right\n"
