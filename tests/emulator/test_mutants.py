"""The race detector finds every mutant, says what is missing, and nothing in the right kernels."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from gpureduce import _host
from gpureduce.core import registry
from gpureduce.core.schedule import Schedule
from gpureduce.emulator import races
from mutant_build import build, load, race_kernels, strategies
from mutants import CSRC, KEY_MUTANTS, SCAN_MUTANTS, Mutant
from mutants import MUTANTS as OF_SUMS

pytestmark = [
    pytest.mark.skipif(
        not CSRC.exists() or not shutil.which("g++"), reason="no source, no compiler"
    ),
]
MUTANTS = [*OF_SUMS, *SCAN_MUTANTS]
# Of each kernel, one for each part that may be missing; the others are built for --slow alone.
FIRST = [*{(m.kernel, m.missing, m.file): m for m in reversed(MUTANTS)}.values()]
EVERY = [*FIRST, *KEY_MUTANTS, *(m for m in MUTANTS if m not in FIRST)]
RIGHT = sorted({(m.kernel, m.n, m.block, m.grid) for m in MUTANTS})


@pytest.fixture(scope="module")
def built(built_once, request):
    """The folder and the module."""
    every = request.config.getoption("slow")
    chosen = EVERY if every else EVERY[: len(FIRST) + len(KEY_MUTANTS)]
    folder = built_once("mutants", lambda folder: build(folder, chosen))
    return folder, load(folder / "_mutants.so")


def examine(built, name: str, mutant: Mutant, schedules=("forward", "random 1")) -> races.Races:
    folder, module = built
    index = strategies(folder).index(name)
    strategy = dataclasses.replace(registry.find(mutant.kernel), index=index)
    launch = (mutant.block, mutant.grid)
    return races.examine(module, strategy, mutant.n, "uint32", launch, schedules)


def test_there_are_enough_and_all_differ():
    assert len(MUTANTS) >= 50
    assert len({(m.name, m.file) for m in EVERY}) == len(EVERY)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, marks=() if m in FIRST else pytest.mark.slow, id=m.name) for m in MUTANTS],
)
def test_mutant_is_found(built, mutant):
    number = EVERY.index(mutant)
    found = examine(built, f"mutant_{number}", mutant)
    assert found.races, f"not found: {mutant}"
    assert mutant.missing in {race.missing for race in found.races}, str(found)
    for race in found.races:
        a, b = race.sides
        assert (a.block, a.thread) != (b.block, b.thread) or a.copy or b.copy
        assert {a.kind, b.kind} not in ({"read"}, {"atomic"})
        for side in race.sides:
            assert side.place.file.startswith(f"mutant_{number}/")
            own = ("parts/common.h", "parts/scan.h", f"{mutant.kernel}.cu")
            assert side.place.file.endswith(own)
            lines = (built[0] / side.place.file).read_text().splitlines()
            assert lines[side.place.line - 1].strip()


@pytest.mark.parametrize(("kernel", "n", "block", "grid"), RIGHT)
def test_the_kernel_as_it_is_has_no_race(built, kernel, n, block, grid):
    mutant = Mutant(kernel, "", "", n=n, block=block, grid=grid)
    schedules = ("forward", "reverse", "lockstep", "random 1")
    found = examine(built, f"right_{kernel}", mutant, schedules)
    assert not found, str(found)
    assert not found.wrong


def examine_keys(built, name: str, kernel: str, n: int, order: str) -> list[dict]:
    """The races of a kernel that adds by key. In forward order, wrong ones may have right sums."""
    folder, module = built
    rng = np.random.default_rng(n)
    values, ids = rng.integers(0, 99, n, np.uint32), rng.integers(0, 7, n, np.uint32)
    ids = np.sort(ids) if kernel == "key_sorted" else ids
    out, reports, schedule = np.full(7, 77, np.uint32), [], Schedule(order, 1)
    number = strategies(folder).index(name)
    request = module.request("u", 4, _host.ACC_U32, False, _host.LOAD_U32, (0, 0), False,
                             segments=7, sorted=0, check=True, strategy=number)  # fmt: skip
    module.free_scratch()
    place = 0, schedule.number, schedule.seed
    module.watched(request, values, ids, out, *place, reports)
    if name.startswith("right_") and kernel != "key_fixed":  # its floats are no uint32
        assert out.tolist() == np.bincount(ids, values, 7).tolist()
    return json.loads(reports[0])["races"]


@pytest.mark.parametrize("number", range(len(KEY_MUTANTS)), ids=lambda i: KEY_MUTANTS[i].name)
def test_a_mutant_that_adds_by_key_is_found(built, number):
    mutant, name = KEY_MUTANTS[number], f"mutant_{len(FIRST) + number}"
    runs = [examine_keys(built, name, mutant.kernel, mutant.n, order)
            for order in ("forward", "random")]  # fmt: skip
    assert all(runs), f"not found: {mutant}"
    assert mutant.missing in {race["missing"] for found in runs for race in found}, runs


@pytest.mark.parametrize("kernel", sorted({m.kernel for m in KEY_MUTANTS}))
@pytest.mark.parametrize("order", ["forward", "reverse", "lockstep", "random"])
def test_a_kernel_that_adds_by_key_has_no_race(built, kernel, order):
    assert examine_keys(built, f"right_{kernel}", kernel, 2055, order) == []


@pytest.mark.parametrize("name", race_kernels())
@pytest.mark.parametrize("order", ["forward", "reverse", "lockstep", "random 1", "random 2"])
def test_accesses_that_are_ordered_and_that_are_not(built, name, order):
    missing = race_kernels()[name][1]
    found = examine(built, name, Mutant("sequential", "", "", n=2048, block=96), (order,))
    assert {race.missing for race in found.races} == {missing} - {"nothing"}, str(found)
    assert not found.faults
