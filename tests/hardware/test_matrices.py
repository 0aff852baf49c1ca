"""The matrices of verify-counters: the emulator and a card plan the same launches for them."""

from __future__ import annotations

import pytest

from cases import AXIS, CSRC, NATIVE, build_c, needs_c, run_c
from gpureduce.core import registry
from gpureduce.emulator.explain import explain
from gpureduce.hardware.counters import Case
from gpureduce.hardware.verify_counters import matrix_cases

pytestmark = needs_c
NAMES = [name for name in AXIS if name != "exact_levels"]
EMULATED, CARDS = 4, (108, 132, 148)  # multiprocessors


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The plan of a case: grid, block, shares, teams and fold."""
    engine = [CSRC / "engine" / name for name in ("axis_form.c", "axis_matrix.c", "axis_plan.c")]
    sources = [NATIVE / "axis_plans.c", *engine, CSRC / "shared/registry.c"]
    target = tmp_path_factory.mktemp("plans") / "axis_plans"
    program = build_c(target, sources, CSRC / "emulator/include")

    def of(case, multiprocessors):
        axis = registry.find(case.strategy).axis
        told = run_c(program, 1, case.strategy, *case.shape, axis, case.block, multiprocessors)
        return list(map(int, told.split()))

    return of


@pytest.mark.parametrize("name", NAMES)
def test_shares_do_not_depend_on_the_card(name, plan):
    """The grid may, where `explain` takes the card's."""
    for case in matrix_cases(name):
        grid, *rest = plan(case, EMULATED)
        assert explain(name, shape=case.shape, block=case.block).grid == grid
        for card in CARDS:
            its_grid, *its_rest = plan(case, card)
            assert its_rest == rest, (case, card)
            if name in ("row_split", "column_tiles"):
                assert its_grid == grid, (case, card)
            else:
                explain(name, shape=case.shape, block=case.block, grid=its_grid)


def test_some_sums_are_split(plan):
    """Otherwise shares and folded rows would not be compared at all."""
    shares = {case: plan(case, EMULATED)[2] for name in ("row_split", "column_tiles")
              for case in matrix_cases(name)}  # fmt: skip
    assert sorted(shares.values()) == [1, 1, 2, 5, 8]
    folds = [plan(case, EMULATED)[4] for case in matrix_cases("column_tiles")]
    assert folds == [1, 8, 1]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_threads_get_no_more_rows_than_small_integers_leave_room_for(more, plan):
    """Sums of int16 in 32 bits: 2^16 rows at most. The last rows, too few to fold, are one more."""
    folded = 3 * (1 << 16) + more
    case = Case("column_tiles", (folded * 32 + 31) * 4, 32, 0, folded * 32 + 31)
    _, _, shares, teams, fold = plan(case, 1)
    assert fold == 32
    assert -(-folded // shares // teams) + 1 <= 1 << 16
