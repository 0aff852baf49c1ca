"""Host arrays that kernels read while threads bring them, by launchers that play the kernel."""

from __future__ import annotations

import pytest

from cases import CSRC, ROOT, build_on_late_runtime, needs_c, run_c

pytestmark = needs_c
with_threads = pytest.mark.parametrize("threads", [1, 2, 3, 16])


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reach")
    return build_on_late_runtime(folder / "reach", CSRC / "engine/reach.c", ROOT / "tests/reach.c")


def run(program, threads, *arguments):
    found = run_c(program, threads, *arguments).strip().split(", ")
    assert found[0] == "right"
    # Who is alone has all there before it launches.
    assert ("marked" in found) == (threads > 1)
    return found


@with_threads
@pytest.mark.parametrize("seed", [1, 2])
def test_kernels_read_each_piece_when_it_is_there(program, threads, seed):
    # Launches do not wait for the pieces, of which some come late; and threads that have nothing
    # left to bring make the last place blank for the next array.
    found = run(program, threads, "sizes", seed)
    assert ("early" in found) == ("blank" in found) == (threads > 1)


@with_threads
def test_launches_that_last_until_the_kernel_has_ended(program, threads):
    run(program, threads, "blocking")


@with_threads
def test_calls_from_tasks_of_the_same_pool(program, threads):
    run(program, threads, "nested")


@with_threads
def test_calls_at_once(program, threads):
    run(program, threads, "at_once", 4)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "what",
    ["whole", "failing", "growing", "interrupted", "nested_interrupted", "deserted", "asked"],
)
def test_other_arrays(program, threads, what):
    run(program, threads, what)


def test_a_child_made_when_others_have_begun(program):
    run(program, 3, "forked")
