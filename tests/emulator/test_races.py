"""gpureduce.races: the broken kernels are found, the right ones are not, and how it tells."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import gpureduce
from cases import BROKEN, KERNELS, gpureduce_strategy

SEEDS = [f"random {seed}" for seed in range(50)]
EVERY = ("forward", "reverse", "lockstep", *SEEDS)
TREE = "partial[tid] += partial[tid + stride];"

# Which two lines race, and what is missing between them.
WRONG = {
    "missing_barrier": (TREE, TREE, "__syncthreads()", "shared["),
    "global_race": ("work[i] += work[i + stride];", "work[i] += work[i + stride];", "grid.sync()",
                    "work["),
    "warp_volatile": ("partial[tid] = partial[tid] + partial[tid + 16];",
                      "partial[tid] = partial[tid] + partial[tid + 32];", "__syncwarp()",
                      "shared["),
    "divergent_barrier": ("Acc right = partial[tid + stride];", "partial[tid] += right;",
                          "__syncthreads()", "shared["),
}  # fmt: skip


def test_every_broken_kernel_is_here():
    assert sorted(WRONG) == sorted(BROKEN)


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("dtype", ["int32", "float64", "int8"])
def test_broken_kernels_are_found(name, dtype):
    reader, writer, missing, space = WRONG[name]
    found = gpureduce.races(name, dtype=dtype)
    assert found
    assert found.wrong, "some order of threads must give a wrong sum"
    for race in found.races:
        sides = {side.kind: side for side in race.sides}
        if sorted(sides) != ["read", "write"] or race.missing != missing:
            continue
        if (sides["read"].place.text, sides["write"].place.text) == (reader, writer):
            break
    else:
        pytest.fail(f"{reader} and {writer} are not named:\n{found}")
    assert race.address.startswith(space)
    (block_a, thread_a), (block_b, thread_b) = race.lanes
    assert (block_a == block_b) != (name == "global_race")
    if name == "missing_barrier":
        assert thread_a // 32 != thread_b // 32
    if name == "warp_volatile":
        assert thread_a // 32 == thread_b // 32 and thread_a != thread_b
    for side in race.sides:
        assert side.place.file == f"csrc/kernels/broken/{name}.cu"
        assert side.place.line > 10


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("order", ["forward", "reverse", "lockstep", "random 3"])
def test_broken_kernels_are_found_in_any_order(name, order):
    found = gpureduce.races(name, schedules=[order])
    assert WRONG[name][2] in {race.missing for race in found.races}


def test_barrier_in_a_branch_is_reported_as_such():
    found = gpureduce.races("divergent_barrier")
    (barrier,) = found.barriers
    inside, after = barrier.places
    assert inside.text == after.text == "__syncthreads();" and inside.line < after.line
    assert barrier.threads == (tuple(range(128)), tuple(range(128, 256)))
    assert "threads 0-127" in str(found) and f"divergent_barrier.cu:{after.line}" in str(found)
    assert not gpureduce.races("missing_barrier").barriers


@pytest.mark.parametrize("name", KERNELS)
def test_right_kernels_have_no_race_in_any_order(name):
    found = gpureduce.races(name, n=500, block=64, schedules=EVERY)
    assert not found, str(found)
    assert not found.wrong and "no race" in str(found)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_exact_has_no_race_in_any_order(dtype):
    found = gpureduce.races("exact", dtype=dtype, n=500, block=64, grid=3, schedules=EVERY)
    assert not found and not found.wrong, str(found)


@pytest.mark.parametrize("name", KERNELS)
def test_right_kernels_have_no_race_in_any_shape(name):
    dtypes = gpureduce_strategy(name).dtypes
    shapes = [(1, 32), (33, 32), (700, 96), (4099, 256), (2500, 416), (5000, 1024)]
    orders = "forward", "lockstep", "random 1"
    turned = KERNELS.index(name) % len(dtypes)  # another kernel has the other dtypes
    for (n, block), dtype in zip(shapes, (6 * list(dtypes))[turned:], strict=False):
        found = gpureduce.races(name, n=n, block=block, dtype=dtype, schedules=orders)
        assert not found, str(found)
        assert not found.wrong, (n, block, dtype, found.wrong)


@pytest.mark.parametrize("name", ["bulk_copy", "tiles", "last_block", "grid_sync", "one_cluster"])
def test_right_kernels_have_no_race_where_blocks_meet(name):
    for n, grid in ((70_000, 2), (70_000, 7)):
        found = gpureduce.races(name, n=n, grid=grid if "cluster" not in name else None)
        assert not found, str(found)


def test_bulk_copies_come_round_by_default():
    assert not gpureduce.races("bulk_copy", schedules=EVERY[:8])


@pytest.mark.parametrize("name", WRONG)
def test_report_fits_a_terminal(name):
    assert max(map(len, str(gpureduce.races(name)).splitlines())) <= 80


def test_wrong_sums_are_reported_even_without_a_race():
    found = gpureduce.races("sequential", schedules=["forward"])
    assert "came out wrong" not in str(found) + found._repr_html_()
    lost = dataclasses.replace(found, wrong={"forward": 1})
    for shown in (str(lost), lost._repr_html_()):
        assert "no race" in shown and f"The sum is {found.expected}, and came out wrong" in shown


def test_report_shows_a_timeline():
    found = gpureduce.races("missing_barrier")
    text = str(found)
    assert found.races[0].timeline in text
    before, after = found.races[0].sides[0].before, found.races[0].sides[0].after
    assert before.what == after.what == "__syncthreads" and before.line < after.line
    assert before.meeting == found.races[0].sides[1].before.meeting > 0
    assert f"line {before.line}: __syncthreads()" in text and "missing: __syncthreads()" in text
    assert "came out wrong in 5 of 6 orders of threads (forward: " in " ".join(text.split())


def test_report_is_plain_json_and_html():
    found = gpureduce.races("global_race")
    again = json.loads(json.dumps(found.as_dict()))
    assert again["races"][0]["sides"][0]["place"]["text"] == "work[i] += work[i + stride];"
    assert again["wrong"].keys() == found.wrong.keys()
    assert "global_race" in found._repr_html_()
    assert "no race" in gpureduce.races("sequential")._repr_html_()


def test_pictures_name_both_threads_and_the_missing_barrier():
    pytest.importorskip("matplotlib")
    found = gpureduce.races("missing_barrier")
    picture = found.svg()
    for words in ("missing here: __syncthreads()", "thread 0", "thread 32", "reads shared[32]"):
        assert words in picture
    assert picture.startswith("<svg") and "<svg" in found._repr_html_()
    with pytest.raises(ValueError, match="race must be from 0 to 0"):
        found.svg(1)
    pytest.importorskip("matplotlib")
    words = [t.get_text() for t in found.plot().axes[0].texts]
    assert "missing here: __syncthreads()" in words


A_SEED = gpureduce.emulator.Schedule("random", 2**64 + 1)
TOO_LARGE = r"seed must be from 0 to 2\*\*64 - 1, not 1844674"


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("sequentially", {}, ValueError, "there is no strategy"),
        ("numpy", {}, ValueError, "runs on the processor"),
        ("fast", {}, ValueError, "picks another strategy"),
        ("row_lanes", {}, ValueError, "row_lanes sums along an axis"),
        ("key_warp", {}, ValueError, "key_warp adds up by segment"),
        ("sequential", {"block": 2000}, ValueError, "block"),
        ("sequential", {"block": 33}, ValueError, "block"),
        ("sequential", {"n": 0}, ValueError, "n must be from 1"),
        ("sequential", {"n": 2.5}, TypeError, "must be a whole number"),
        ("redux", {"dtype": "float32"}, TypeError, "redux takes int32, uint32"),
        ("exact", {"dtype": "complex64"}, TypeError, "a complex sum is two real sums"),
        *(
            ("sequential", {"schedules": [schedule]}, ValueError, "a schedule is one of")
            for schedule in ("backward", "random x", "forward 1")
        ),
        ("sequential", {"schedules": [f"random {2**64 + 1}"]}, ValueError, TOO_LARGE),
        ("sequential", {"schedules": [A_SEED]}, ValueError, TOO_LARGE),
        ("sequential", {"schedules": []}, ValueError, "at least one of forward"),
        ("sequential", {"schedules": [5]}, TypeError, "a schedule is a name or a Schedule"),
        ("sequential", {"schedules": [None]}, TypeError, "a schedule is a name or a Schedule"),
    ],
)
def test_wrong_arguments_are_named(name, options, error, words):
    with pytest.raises(error, match=words):
        gpureduce.races(name, **options)


def test_a_schedule_may_stand_alone():
    for schedule in ("forward", gpureduce.emulator.Schedule("random", 3)):
        assert not gpureduce.races("sequential", n=64, schedules=schedule, dtype=np.int32)


def test_sums_are_not_watched_afterwards():
    """The findings of one call are not in the next, and later sums are right in any order."""
    assert gpureduce.races("missing_barrier") and not gpureduce.races("sequential")
    with gpureduce.emulator.schedule("lockstep"):
        assert int(gpureduce.sum(range(1000), "sequential", device="emulator").value) == 499500
