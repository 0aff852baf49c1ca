"""Charts: what is drawn, what is refused, and that labels do not run into each other."""

from __future__ import annotations

import builtins
import dataclasses
import itertools
import json

import pytest

import gpureduce
from cases import MADE, timed_rows
from gpureduce import lectures
from gpureduce.core import registry
from gpureduce.lectures import axes

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from gpureduce import plot  # noqa: E402
from gpureduce.plot import layout  # noqa: E402


def test_the_package_has_it():
    assert gpureduce.plot is plot and "plot" in dir(gpureduce)


def record(name, source="cuda_event", speed=lambda i: 1 + i):
    """A record as a card would give it, with times that the test knows."""
    rows = []
    for i, case in enumerate(lectures.find(name).cases(1)):
        strategy = registry.find(case.strategy)
        us = 1000.0 / speed(i)
        rows.append(
            lectures.Row(
                strategy.name, case.dtype, case.n, 4 * case.n, case.block or 256, case.grid or 64,
                "NVIDIA Test 9000", source, "cold", 5, us, us, us, 4800.0,
                label=case.label, finish=case.finish,
            )
        )  # fmt: skip
    return lectures.Record(name, 1, tuple(rows), MADE)


def texts(figure):
    """All that is written in the axes, with the box that it takes on the screen."""
    figure.set_dpi(100)
    matplotlib.backends.backend_agg.FigureCanvasAgg(figure).draw()
    renderer = figure.canvas.get_renderer()
    found = []
    for ax in figure.axes:
        ticks = [
            label
            for axis, view in ((ax.xaxis, ax.viewLim.intervalx), (ax.yaxis, ax.viewLim.intervaly))
            for at, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=False)
            if min(view) <= at <= max(view)
        ]
        # Without an annotation's line.
        found += [
            (text.get_text(), matplotlib.text.Text.get_window_extent(text, renderer))
            for text in (*ax.texts, *ticks)
            if text.get_text().strip()
        ]
    return found


def assert_readable(figure):
    """Nothing written runs into anything else, or out of the picture."""
    found = texts(figure)
    for (one, a), (two, b) in itertools.combinations(found, 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        high = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide <= 1 or high <= 2, f"{one!r} runs into {two!r}"
    for text, box in found:
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, f"{text!r} is cut off"


CHARTS = {
    "speedup": lambda: plot.speedup(record("lab"), title="lab"),
    "compare gains": lambda: plot.compare(None, record("warp_execution"), title="gains"),
    "compare with mine": lambda: plot.compare(record("lab"), record("lab", speed=lambda i: 9 - i)),
    "compare lines": lambda: plot.compare(None, record("block_sweep"), title="blocks"),
    "by size": lambda: plot.bandwidth(record("warp_execution").only(block=256), ceiling=4000.0),
    "all equal": lambda: plot.bandwidth(record("block_sweep", speed=lambda i: 1), x="block"),
    "heat": lambda: plot.heatmap(record("block_grid"), title="cascade"),
    "panels": lambda: plot.panels({"a, us": {"x": [1e7, 2], "y": [3, 4.5]}, "b": {"x": [1, 2]}},
                                  ["one", "two"]),
    "lines": lambda: plot.lines({"pi": ([8, 16], [1, 0.1]), "cpu": ([8, 16, 32], [1, 0.1, 0])},
                                "points", "error"),
    "spread": lambda: plot.spread({"exact": [0.2] * 3, "atomic_thread": [0.5, -60, 7]}, "ulps"),
    "times": lambda: plot.times(record("warp_execution").only(block=256), title="times"),
    "lines by grid": lambda: plot.bandwidth(record("block_grid"), x="block", per="grid"),
    "lecture alone": lambda: plot.compare(None, lectures.recorded("lab", "/nowhere")),
    "lecture's blocks": lambda: plot.compare(None, lectures.recorded("block_sweep", "/nowhere")),
    "lecture's sizes": lambda: plot.bandwidth(lectures.printed("warp_execution").only(block=256)),
    "lecture's map": lambda: plot.heatmap(lectures.printed("block_grid"), title="cascade"),
    "profile": lambda: plot.profile(lectures.printed("profile"), "seven kernels"),
    "counts": lambda: plot.counts(explained(), ["one", "two"], "counted"),
    "why": lambda: plot.why(lectures.printed("profile").only(
        strategy=("sequential", "cascade")), explained(), "why"),
}  # fmt: skip


def explained():
    return [gpureduce.explain(s, n=2**16, dtype="int32", block=256, finish="host")
            for s in ("sequential", "cascade")]  # fmt: skip


@pytest.mark.parametrize("name", CHARTS)
def test_readable(name):
    figure = CHARTS[name]()
    assert_readable(figure)
    for ax in figure.axes:
        assert ax.get_xlabel() or ax.get_ylabel() or ax.get_title(loc="left"), "an axis has no name"


def test_charts_name_the_source_of_their_times():
    assert "NVIDIA Test 9000: driver 580" in plot.speedup(record("lab"))._supxlabel.get_text()
    emulated = list(gpureduce.benchmark(["sequential", "cascade"], [1000], device="emulator",
                                        repeats=1))  # fmt: skip
    for figure in (plot.speedup(emulated), plot.bandwidth(emulated)):
        assert "tell nothing about a card" in figure._supxlabel.get_text()


def test_every_line_bears_its_name():
    written = {text.strip() for text, _ in texts(plot.bandwidth(record("block_sweep"), x="block"))}
    assert {"interleaved_mod", "unroll_full"} < written


def test_bars_tell_speedup_time_and_rate():
    written = [text for text, _ in texts(plot.speedup(record("lab")))]
    assert any("5.00x" in text and "200 us" in text and "336 GB/s" in text for text in written)


def test_gains_are_those_of_the_largest_size_and_the_lectures():
    one = record("warp_execution", speed=lambda i: 1 + i // 2)
    ends = [text for text, _ in texts(plot.compare(None, one)) if "x" in text]
    assert "Tesla T4: 2.65x" in ends and "Tesla T4: 2.66x" in ends
    most = one.only(n=2**30, block=256).rows
    assert f"9000, recorded: {most[0].median_us / most[-1].median_us:.2f}x" in ends


def test_emulated_and_real_times_do_not_mix():
    real, emulated = record("lab"), record("lab", source="emulator")
    with pytest.raises(ValueError, match="cannot share a chart"):
        plot.compare(emulated, real)
    with pytest.raises(ValueError, match="cannot share a chart"):
        plot.speedup([real.rows[0], dataclasses.replace(emulated.rows[1])])
    host = dataclasses.replace(real.rows[1], source="perf_counter")
    with pytest.raises(ValueError, match="cannot share a chart"):
        plot.bandwidth([host, emulated.rows[0]])
    plot.speedup([real.rows[0], host])  # both are real


def test_one_look_per_rung():
    other = ("broken", "axis", "segments", "keys", "scan")
    names = [s.name for s in gpureduce.strategies() if s.kind not in other]
    looks = [tuple(layout.look(name).items()) for name in names]
    assert len(set(looks)) == len(names)
    assert plot.colour("sum_seq") == plot.colour("sequential")
    lecture = {row.strategy for name in ("warp_execution", "block_sweep", "profile")
               for row in record(name).rows}  # fmt: skip
    assert len({plot.colour(name) for name in lecture}) == len(lecture) == 9


NOT_DRAWN = {
    "no rows to draw: .* keep them in a list": lambda: plot.bandwidth(iter([])),
    "have one name: .* record.only": lambda: plot.speedup(record("warp_execution")),
    "needs a record": lambda: plot.compare(None, None),
    "not all records": lambda: plot.compare(record("lab"), record("block_grid")),
    "no row": lambda: record("lab").only(block=7),
}


@pytest.mark.parametrize("words", NOT_DRAWN)
def test_what_cannot_be_drawn(words):
    with pytest.raises(ValueError, match=words):
        NOT_DRAWN[words]()


def test_a_chart_takes_rows():
    with pytest.raises(TypeError, match=r"rows of gpureduce\.benchmark, not a list of str"):
        plot.times("rows")


def test_without_matplotlib(monkeypatch):
    real = builtins.__import__
    monkeypatch.setattr("importlib.import_module",
                        lambda name: real("no_such_module_" + name.partition(".")[0]))  # fmt: skip
    with pytest.raises(ImportError, match=r"gpureduce\[plot\]"):
        plot.speedup(record("lab"))


def test_charts_say_what_is_not_recorded_yet():
    missing = lectures.recorded("lab", "/nowhere")
    for figure in (plot.speedup(missing), plot.compare(None, missing), plot.compare(None, missing)):
        said = " ".join(figure._supxlabel.get_text().split())
        assert "H100: not recorded yet" in said and "As printed in" in said
        assert figure._supxlabel.get_color() == layout.WARNING
    written = [text for text, _ in texts(plot.compare(None, missing)) if "4.03x" in text]
    assert written == ["the lecture's card: 4.03x"]


def test_three_sources_in_one_chart():
    written = [text for text, _ in texts(plot.compare(record("lab"), record("lab")))]
    ends = [text.partition(":")[0] for text in written if text.endswith("x") and ":" in text]
    assert ends == ["the lecture's card", "9000, recorded", "9000 (yours)"]


def test_emulated_charts_say_so_in_their_title():
    emulated = record("lab", source="emulator")
    assert plot.speedup(emulated, title="lab").axes[0].get_title(loc="left") == "lab (emulated)"
    assert emulated.real is None


def test_a_map_has_the_lectures_first_and_their_origin():
    figure = plot.heatmap(record("block_grid"), title="cascade")
    names = [ax.get_title(loc="left") for ax in figure.axes[:2]]
    assert names == ["the lecture's RTX 2080 Ti, us", "9000, recorded, us"]
    assert "As printed in" in figure._supxlabel.get_text()


def test_chart_of_the_cost_of_exact(tmp_path):
    rows = []
    for nbytes, us in ((2**20, 1e3), (2**30, 2**30 / 3.21e6)):
        for dtype in ("float32", "float64"):
            for data in ("uniform", "bits"):
                case = {"measure": "kernel", "dtype": dtype, "data": data, "nbytes": nbytes}
                rows += timed_rows(case | {"peak_gb_s": 4800.0}, {"cub": 0.8 * us, "exact": us})
    path = tmp_path / "exact_h200.json"
    path.write_text(json.dumps(MADE | {"schema": 2, "kind": "exact", "rows": rows}))
    figure = plot.exact_cost(path)
    assert_readable(figure)
    written = [text.strip() for text, _ in texts(figure)]
    assert written.count("3,210") == 4 and "cub_reproducible" not in written
    assert "NVIDIA Test 9000: driver 580" in figure._supxlabel.get_text()


def test_sums_beside_cub(tmp_path):
    def rows(names):
        usual = {"measure": "apart", "offset": 0, "producer": "", "way": "", "peak_gb_s": None}
        return [row for dtype in ("float32", "int8") for nbytes in (2**20, 2**30, 2**31)
                for row in timed_rows(usual | {"dtype": dtype, "n": nbytes, "nbytes": nbytes},
                                      names)]  # fmt: skip

    def drawn(found):
        path = tmp_path / "bench_h100.json"
        path.write_text(json.dumps(MADE | {"schema": 2, "kind": "bench", "rows": found}))
        figure = plot.beside_cub(path, "beside CUB")
        assert_readable(figure)
        return figure, {text for text, _ in texts(figure)}

    names = {"fast": 2.0, "exact": 4.0, "cub": 5.0, "load_only": 1.0}
    more = {**rows(names)[0], "dtype": "float64"}  # has no CUB beside it
    figure, written = drawn([*rows(names), more])
    assert len(figure.axes) == 2
    assert {"float32: 2.50x", "int8: 1.25x", "limit, float32: 5.00x", "1 MiB", "2 GiB"} < written
    assert not any("float64" in text for text in written)
    figure, _ = drawn(rows({"fast": 2.0, "exact": 8.0, "cub": 5.0}))
    assert figure.axes[1].get_ylim()[0] < 0.625, "exact is below the chart"
    figure, written = drawn(rows({"fast": 2.0, "cub": 5.0}))
    assert len(figure.axes) == 1 and not any("limit" in text for text in written)
    with pytest.raises(ValueError, match="no sums of fast or exact beside cub"):
        drawn(rows({"fast": 2.0}))


def test_spread_tells_how_many_values_there_are():
    written = [text for text, _ in texts(plot.spread({"a": [1, 1, 2], "b": [0, 0, 0]}, "x"))]
    assert {"2 values in 3 runs", "1 value in 3 runs"} < set(written)


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
