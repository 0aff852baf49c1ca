"""A battery of sums finds every fault in the integers of sums by segment, and none as they are."""

from __future__ import annotations

import os
import shutil

import pytest
import segment_mutants
from segment_mutants import CSRC, KERNELS, MUTANTS, KernelBuilds, ProcessorBuilds, caught

pytestmark = pytest.mark.skipif(
    not CSRC.exists() or not shutil.which("g++"), reason="no source, no compiler"
)
# Each takes some ten seconds. GPUREDUCE_ALL_MUTANTS=1 tries all.
STEP = 1 if os.environ.get("GPUREDUCE_ALL_MUTANTS") else 11


@pytest.fixture(scope="module")
def kernels(built_once):
    return KernelBuilds(built_once("KernelBuilds", KernelBuilds))


@pytest.fixture(scope="module")
def processors(built_once):
    return ProcessorBuilds(built_once("ProcessorBuilds", ProcessorBuilds))


def test_there_are_enough_and_all_differ():
    assert len(MUTANTS) >= 50 and len(set(MUTANTS)) == len(MUTANTS)
    assert all(mutant.text() for mutant in MUTANTS)


@pytest.mark.slow
def test_the_arithmetic_as_it_is_passes(kernels, processors):
    assert caught(kernels.build(-1, None)) == ""
    assert caught(processors.build(-1, None)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, len(MUTANTS), STEP))
def test_a_mutant_is_caught(number, request):
    name = "kernels" if number < len(KERNELS) else "processors"
    mutant = MUTANTS[number]
    by = caught(request.getfixturevalue(name).build(number, mutant))
    assert by, f"not caught: {mutant}"
    assert "Error" not in by, by  # of this test itself


def test_a_case_that_hangs_is_caught(monkeypatch, tmp_path):
    monkeypatch.setattr(segment_mutants, "SECONDS", 0.01)
    assert caught(tmp_path / "_host.so") == "it hangs"
