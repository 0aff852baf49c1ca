"""Staging, results and events on runtimes whose copies are late, or whose calls may fail."""

from __future__ import annotations

import pytest

from cases import CSRC, NATIVE, build_c, build_on_late_runtime, needs_c, run_c

pytestmark = needs_c


def build_staged(folder):
    sources = [CSRC / "transfer/staging.c", CSRC / "transfer/pinned_memory.c"]
    build_on_late_runtime(folder / "staged_copies", *sources, NATIVE / "staged_copies.c")


@pytest.fixture
def program(built_once):
    return built_once("staged", build_staged) / "staged_copies"


def run(program, threads, *arguments):
    assert run_c(program, threads, *arguments) == "right\n"


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_copies_arrive_whole(program, threads):
    run(program, threads, "copies", 1, 1, 12)


@pytest.mark.parametrize("devices", [1, 2])
def test_copies_that_come_together(program, devices):
    run(program, 4, "copies", 3, devices, 8)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("mib", [1, 16, 17, 40])
def test_a_copy_that_is_interrupted_before_it_begins(program, mib, threads):
    run(program, threads, "interrupted", mib)


@pytest.mark.parametrize("threads", [1, 3])
def test_any_call_may_fail(program, threads):
    run(program, threads, "failing", 40)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_child_made_in_the_middle_of_a_copy_makes_its_own(program, threads):
    run(program, threads, "forked")


def test_a_result_is_waited_for_until_all_its_words_are_there(tmp_path):
    # Leaves out the parts of sum.c that call what is not linked.
    flags = ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
    source = NATIVE / "late_results.c"
    run(build_on_late_runtime(tmp_path / "late_results", source, flags=flags), 1)


def test_events_are_kept_and_let_go(tmp_path):
    includes = CSRC / "emulator/include"
    run(build_c(tmp_path / "kept_events", [NATIVE / "kept_events.c"], includes), 1)
