"""Staging and results on a runtime whose copies are late; the emulator's are there at once."""

from __future__ import annotations

import pytest

from cases import CSRC, NATIVE, build_on_late_runtime, needs_c, run_c

pytestmark = needs_c


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("staged")
    engine = [CSRC / "transfer/staging.c", CSRC / "transfer/pinned_memory.c"]
    return build_on_late_runtime(folder / "staged_copies", *engine, NATIVE / "staged_copies.c")


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
