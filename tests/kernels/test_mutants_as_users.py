"""Every mutant of tools/mutants.py is reported when a user gives it, and no kernel of ours is."""

from __future__ import annotations

import os
import shutil

import pytest

import gpureduce
from mutants import CSRC, FENCE, KERNELS, MUTANTS
from user_kernels import some

pytestmark = pytest.mark.skipif(
    not CSRC.exists() or not shutil.which("g++"), reason="no source, no compiler"
)
# Options of a kernel that its text does not show.
OPTIONS = {
    "global_tree": {"scratch": "thread"},
    "one_block": {"alone": True},
    "one_cluster": {"alone": True, "shared": "thread"},
    "bulk_copy": {"shared": "ring"},
}
# `exact` leaves digits, not a number: no trait that a user's kernel can ask for.
OURS = [s.name for s in gpureduce.strategies() if s.kind == "kernel"]


# Each takes some two seconds. GPUREDUCE_ALL_MUTANTS=1 tries all.
STEP = 1 if os.environ.get("GPUREDUCE_ALL_MUTANTS") else 24


@pytest.mark.parametrize("number", range(0, len(MUTANTS), STEP), ids=lambda i: MUTANTS[i].name)
def test_a_mutant_is_reported(number, tmp_path):
    mutant = MUTANTS[number]
    (tmp_path / "parts").mkdir()
    for file in ("parts/common.h", f"{mutant.kernel}.cu"):
        text = (KERNELS / file).read_text()
        if mutant.path == file:
            text = "\n".join(mutant.lines()[1]) + "\n"
        (tmp_path / file).write_text(text)
    given = gpureduce.kernel(tmp_path / f"{mutant.kernel}.cu", **OPTIONS.get(mutant.kernel, {}))
    verdict = gpureduce.check(given, "int32")
    if mutant.kernel == "last_block" and mutant.missing == FENCE and mutant.nth == 2:
        assert "__threadfence() after the atomic" in str(verdict)  # as in NVIDIA's samples
        return
    assert not verdict, f"not reported: {mutant}"
    assert not verdict.right or verdict.races.races


@pytest.mark.parametrize("name", some(OURS, 3))
def test_no_kernel_of_ours_is_reported(name):
    given = gpureduce.kernel(KERNELS / f"{name}.cu", **OPTIONS.get(name, {}))
    own = gpureduce.strategies()
    traits = next(s.traits for s in own if s.name == name)
    verdict = gpureduce.check(given, "int32" if name == "redux" else None)
    assert verdict, str(verdict)
    assert verdict.tried > 300 and verdict.looked
    assert verdict.comparison.own.counters["global_load_requests"] > 0
    overlaps_and_shared = traits ^ given.traits
    from gpureduce import _host

    for trait in ("ONE", "TWO", "MANY", "PARTIALS", "FINISHES", "ZEROED", "TICKET", "OVERLAPS",
                  "COOPERATIVE", "CLUSTER", "ALONE", "RING", "BLOCK_TEMPLATE", "WORK_ELEMENTS",
                  "WORK_BLOCKS", "MARKED_BLOCKS"):  # fmt: skip
        assert not overlaps_and_shared & getattr(_host, trait), trait
