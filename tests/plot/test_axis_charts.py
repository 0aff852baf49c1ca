"""Charts of sums along axes."""

from __future__ import annotations

import json

import pytest
from test_plot import assert_readable

from cases import MADE, timed_rows
from gpureduce.lectures import axes

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from gpureduce import plot  # noqa: E402


def rows_of(columns, axis, more=None, **ms):
    case = {"measure": "shapes", "rows": 2**20 // columns, "columns": columns, "axis": axis}
    case |= {"nbytes": 4_000_000, "kernel": "row_warp", "batches": 1, **(more or {})}
    return timed_rows(case, {name: 1e3 * time for name, time in ms.items()})


@pytest.fixture
def path(tmp_path):
    """A record in which each library has its speeds, and `theirs` is slow along axis 0."""
    rows = timed_rows({"measure": "shapes", "nbytes": 8_000_000}, {"copy": 2.0})
    for columns in (2, 16, 1024):
        rows += rows_of(columns, 1, fast=0.001, exact=0.00125, theirs=0.002)
        rows += rows_of(columns, 0, fast=0.001, exact=0.002, theirs=0.4)
    rows += rows_of(16, 0, {"dtype": "int8"}, fast=1.0)
    rows += rows_of(16, 1, {"measure": "rungs"}, row_warp=0.004)
    path = tmp_path / "axis_card.json"
    path.write_text(json.dumps(MADE | {"schema": 2, "kind": "axis", "rows": rows}))
    return path


def test_speeds_by_columns_and_axis(path):
    figure = plot.axis_speeds(path, title="All shapes")
    rows, columns = figure.axes
    assert rows.get_title(loc="left") == "each row (axis 1)"
    lines = {name: line.get_ydata() for ax, axis in ((rows, 1), (columns, 0))
             for name, line in zip(((n, axis) for n in ("fast", "exact", "theirs")),
                                   ax.lines, strict=False)}  # fmt: skip
    assert list(lines["fast", 1]) == [4000] * 3 and list(lines["exact", 1]) == [3200] * 3
    assert list(lines["theirs", 0]) == [10] * 3 and list(lines["theirs", 1]) == [2000] * 3
    assert [list(ax.lines[3].get_ydata()) for ax in figure.axes] == [[4000, 4000]] * 2
    assert "Dashed: a copy" in figure.get_supxlabel()
    assert_readable(figure)


def test_only_what_is_named_is_drawn(path):
    figure = plot.axis_speeds(path, ("theirs", "not there"))
    assert [text.get_text() for text in figure.axes[0].texts] == ["theirs"]
    with pytest.raises(ValueError, match="no matrices of all shapes by not there"):
        plot.axis_speeds(path, ("not there",))


def test_counts_of_kernels():
    names = ("row_thread", "row_group", "row_tile")
    figure = plot.axis_counts(axes.counted(names, (512, 16)), title="Rows of 16")
    bars = {ax.get_title(loc="left"): [bar.get_width() for bar in ax.patches]
            for ax in figure.axes}  # fmt: skip
    assert bars["sectors per load"] == [32, 16, 16] and bars["lanes per load"] == [32, 32, 32]
    assert bars["sectors"] == [512 * 16, 512 * 2, 512 * 2]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(names)
