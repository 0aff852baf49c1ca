"""Staging, against a runtime whose copies are late: the emulator's are there at once."""

from __future__ import annotations

import subprocess

import pytest

from cases import CSRC, ROOT, build_c, needs_c

pytestmark = needs_c


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    target = tmp_path_factory.mktemp("staged") / "staged_copies"
    sources = [CSRC / "engine/staging.c", CSRC / "engine/pinned.c", *CSRC.glob("threads/*.c")]
    sources += [ROOT / "tests/late_runtime.c", ROOT / "tests/staged_copies.c"]
    return build_c(target, sources, CSRC / "emulator/include", ROOT / "tests")


def run(program, threads, *arguments):
    done = subprocess.run(
        [program, *map(str, arguments)],
        env={"GPUREDUCE_THREADS": str(threads)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_copies_arrive_whole(program, threads):
    run(program, threads, "copies", 1, 1, 12)


@pytest.mark.parametrize("devices", [1, 2])
def test_copies_that_come_together(program, devices):
    run(program, 4, "copies", 3, devices, 8)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("mib", [1, 16, 17, 40])
def test_one_that_is_broken_off_before_it_begins(program, mib, threads):
    run(program, threads, "interrupted", mib)


@pytest.mark.parametrize("threads", [1, 3])
def test_any_call_may_fail(program, threads):
    run(program, threads, "failing", 40)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_child_made_in_the_middle_of_a_copy_makes_its_own(program, threads):
    run(program, threads, "forked")
