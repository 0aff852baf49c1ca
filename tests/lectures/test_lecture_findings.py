"""Where a card's order differs from a lecture's, and what is counted beside the times."""

from __future__ import annotations

import dataclasses

import pytest

import gpureduce
from cases import MADE
from gpureduce import lectures
from gpureduce.lecture_findings import blocks_started, busiest, counted, ends, filled, order
from gpureduce.lectures.summaries import steps
from gpureduce.lectures.tables import show


def measured(name, change=None):
    """The lecture's times as the record of a card. `change` returns a factor for a row's time."""
    rows = [
        dataclasses.replace(row, source="cuda_event", repeats=5,
                            median_us=row.median_us * (change(row) if change else 1))
        for row in lectures.printed(name).rows
    ]  # fmt: skip
    return lectures.Record(name, 1, tuple(rows), MADE)


def test_their_times():
    for name in ("warp_execution", "lab", "block_sweep", "block_grid", "profile", "trapezoid"):
        record = measured(name)
        assert record.their_us == pytest.approx([row.median_us for row in record.rows])
    assert measured("lab").their_us[0] == 706 and measured("trapezoid").their_us[0] == 5.5e6


def test_last_over_first_beside_the_lectures():
    twice = measured("lab", lambda row: 2 if row.strategy == "interleaved_mod" else 1)
    table = ends(measured("warp_execution"), twice, measured("profile"))
    cells = [(row[0], row[2], row[3]) for row in table.rows]
    assert cells == [
        ("warp_execution, block 256", "2.65x on Tesla T4", "2.65x"),
        ("warp_execution, block 1024", "2.66x on Tesla T4", "2.66x"),
        ("lab", "4.03x on the lecture's card", "8.07x"),
        ("profile", "8.96x on RTX 2080 Ti", "8.96x"),
    ]


def test_order():
    same = order(measured("lab"), measured("warp_execution"))
    assert [row[0] for row in same.rows] == ["lab", "warp_execution"]
    assert all(row[1].startswith("nowhere") for row in same.rows)

    def quicker(row):
        return 0.5 if row.strategy == "unroll_full" and row.block in (256, 512) else 1

    table = order(measured("block_sweep", quicker))
    assert [row[:2] for row in table.rows] == [
        ["block_sweep, block 256, 512", "templated (complete) over first add"],
        ["block_sweep, block 256, 512", "templated (complete) over unrolling (last warp)"],
    ]
    assert table.rows[0][2:] == ["0.78x on the lecture's card", "1.56x"]


def test_small_differences_do_not_change_the_order():
    """32 threads: 11.05 against 10.46; a hair less is still the lecture's order."""

    def a_hair(row):
        return 1.07 if row.strategy == "sequential" and row.block == 32 else 1

    assert order(measured("block_sweep", a_hair)).rows[0][1].startswith("nowhere")


def test_kernels_that_are_wrong_have_no_place():
    """The wrong one is the second quickest in the lecture; slowest of all here, it is not told."""
    slow = measured("trapezoid", lambda row: 1000 if row.strategy == "global_race" else 1)
    assert [row[1] for row in order(slow).rows] == ["nowhere: all rungs in the lecture's order"]


def test_counted_beside_times():
    record = measured("block_sweep").only(block=256)
    table = counted(record, lectures.printed("profile"))
    rows = {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows}
    one, two = rows["unrolling (last warp)"], rows["templated (complete)"]
    same = ("launches", "blocks", "shared wavefronts", "warps at barriers", "sectors")
    assert [one[name] for name in same] == [two[name] for name in same]
    assert one["launches"] == "3" and one["instructions, profiled"] == "23,964,288"
    explained = gpureduce.explain("first_add_unroll_warp", n=2**22, dtype="int32", block=256,
                                  finish="relaunch")  # fmt: skip
    assert one["shared wavefronts"] == f"{sum(k.wavefronts for k in explained.kernels):,}"
    assert "sectors" not in counted(measured("trapezoid").only(strategy="sequential")).head


def test_busiest():
    table = busiest(measured("profile"))
    assert table.head == ["", "RTX 2080 Ti", "9000"]
    assert table.rows[0][1:] == ["compute, 41%"] * 2 and table.rows[-1][1] == "DRAM, 86%"
    assert table.rows[1][1] == "memory, 50%"


def test_blocks_by_time():
    rows = measured("block_sweep").rows
    record = lectures.Record("block_sweep", 1, tuple(
        dataclasses.replace(row, grid=2**22 // row.block, median_us=100.0) for row in rows
    ), MADE)  # fmt: skip
    table = blocks_started(record)
    assert table.head[1:] == ["32", "64", "128", "256", "512", "1024"]
    assert table.rows[0][1:4] == ["1,311", "655", "328"]


def test_the_cascade_by_its_trees():
    table = filled(measured("block_grid"))
    warps = [int(row[3].replace(",", "")) for row in table.rows]
    assert warps == sorted(warps) and warps[0] == 512 * 4 * 2  # four warps, two barriers
    assert table.rows[0][:3] == ["128 x 512", "24%", "256"]
    assert len(filled(lectures.printed("block_grid")).head) == len(table.head) - 1


def test_steps_say_which_gains_most():
    notes = steps(lectures.printed("warp_execution")).notes
    assert "Tesla T4, 256 threads: sum_idx, sum_warp, sum_seq, sum_unroll." in notes


def test_whole_calls_stand_beside_the_launches():
    rows = tuple(
        dataclasses.replace(row, facts={"values": [0.0]} | (
            {} if row.strategy == "cpu" else {"call_us": 123.4}))
        for row in measured("trapezoid").rows
    )  # fmt: skip
    table = show(lectures.Record("trapezoid", 1, rows, MADE)).tables[0]
    at = table.head.index("whole call, us")
    assert [row[at] for row in table.rows][:2] == ["", "123"]
    assert {len(row) for row in table.rows} == {len(table.head)}
