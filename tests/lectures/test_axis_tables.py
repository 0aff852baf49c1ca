"""The tables of notebook 6."""

from __future__ import annotations

import pytest

from cases import MADE, timed_rows
from gpureduce.lectures import axes


def rows_of(rows, columns, axis, measure="shapes", kernel="row_warp", **us):
    case = {"rows": rows, "columns": columns, "axis": axis, "measure": measure, "kernel": kernel}
    return timed_rows(case | {"nbytes": 4 * rows * columns}, us)


RECORD = MADE | {
    "kind": "axis",
    "rows": [
        *timed_rows({"measure": "shapes"}, {"copy": 1.0}),
        *rows_of(1000, 10, 1, theirs=1.0, fast=0.5),
        *rows_of(1000, 10, 0, theirs=7.0, fast=0.5, kernel="column_tiles"),
        *rows_of(100, 100, 1, theirs=3.0, fast=0.5, kernel="row_tile"),
        *rows_of(100, 100, 0, theirs=2.0, fast=0.6, kernel="column_tiles"),
        *rows_of(50, 200, 1, theirs=3.0, fast=0.5, kernel="row_tile"),
        *rows_of(50, 200, 0, theirs=1.0, fast=0.5, kernel="column_tiles"),
        *rows_of(4, 1000, 0, "small", theirs=1000.0),
    ],
}


def test_the_matrix_whose_axes_differ_most():
    table = axes.slower_axis(RECORD, ("theirs", "fast"))
    assert table.rows[0] == ["theirs", "1,000 x 10", "the columns", "7.0"]
    assert table.rows[1] == ["fast", "100 x 100", "the columns", "1.2"]
    assert axes.slower_axis(RECORD | {"rows": RECORD["rows"][5:]}, ["theirs"]).rows == [
        ["theirs", "50 x 200", "the rows", "3.0"]
    ]


def test_speed_of_a_block():
    found = axes.per_block(RECORD, "theirs", axis=0, share=32)
    assert [row[0] for row in found.rows] == ["10", "100", "200"]
    assert [row[2] for row in found.rows] == ["1", "4", "7"]
    assert "if each has 32 columns" in found.head[2]
    rows = axes.per_block(RECORD, "theirs", axis=1, share=1)
    assert [row[0] for row in rows.rows] == ["50", "100"], "1,000 blocks are more than a card runs"
    assert rows.head[2] == "blocks, if each has one row"


def test_kernels_that_refuse_a_shape_are_left_out():
    found = axes.counted(("row_thread", "row_group", "row_tile", "row_warp"), (4, 1001))
    assert list(found) == ["row_thread", "row_warp"]
    with pytest.raises(TypeError):
        axes.counted(("row_thread",), (4,))


def test_kernels_by_name():
    assert "no times of the kernels" in str(axes.rungs(RECORD))
    rows = rows_of(16, 100, 1, "rungs", "", row_warp=0.5, row_lanes=1.0)
    rows += rows_of(16, 100, 0, "rungs", "", column_tiles=0.25)
    table = axes.rungs(RECORD | {"rows": rows})
    assert [line[0] for line in table.rows] == ["row_warp", "row_lanes", "column_tiles"]
    assert [bool(cell) for cell in table.rows[0][1:]] == [True, False]
    assert table.head[1] == "16 x 100, axis 1"


def test_what_fast_takes_is_told_where_it_changes():
    table = axes.chosen(RECORD)
    assert table.rows == [["10", "row_warp", "column_tiles"], ["100", "row_tile", "column_tiles"]]
