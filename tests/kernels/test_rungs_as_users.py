"""No kernel of ours is reported when a user gives it."""

from __future__ import annotations

import shutil

import pytest

import gpureduce
from gpureduce import _host
from mutants import CSRC, KERNELS
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


@pytest.mark.parametrize("name", some(OURS, 12))
def test_no_kernel_of_ours_is_reported(name):
    given = gpureduce.kernel(KERNELS / f"{name}.cu", **OPTIONS.get(name, {}))
    own = gpureduce.strategies()
    traits = next(s.traits for s in own if s.name == name)
    verdict = gpureduce.check(given, "int32" if name == "redux" else None)
    assert verdict, str(verdict)
    assert verdict.tried > 300 and verdict.looked
    assert verdict.comparison.own.counters["global_load_requests"] > 0
    overlaps_and_shared = traits ^ given.traits
    for trait in ("ONE", "TWO", "MANY", "PARTIALS", "FINISHES", "ZEROED", "TICKET", "OVERLAPS",
                  "COOPERATIVE", "CLUSTER", "ALONE", "RING", "BLOCK_TEMPLATE", "WORK_ELEMENTS",
                  "WORK_BLOCKS", "MARKED_BLOCKS"):  # fmt: skip
        assert not overlaps_and_shared & getattr(_host, trait), trait
