"""Charts: what is drawn, what is refused, and that labels do not run into each other."""

from __future__ import annotations

import builtins
import dataclasses
import itertools

import pytest

import gpureduce
from gpureduce import lectures

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from gpureduce import plot  # noqa: E402

MADE = {"card": "NVIDIA Test 9000", "driver": "580", "toolkit": "13.0", "date": "2026-01-01",
        "commit": "0" * 40}  # fmt: skip


def record(name, source="cuda_event", speed=lambda i: 1 + i):
    """A record as a card would give it, with times that the test knows."""
    rows = []
    for i, case in enumerate(lectures.find(name).cases(1)):
        strategy = gpureduce._registry.find(case.strategy)
        us = 1000.0 / speed(i)
        rows.append(
            lectures.Row(
                case.label, strategy.name, case.dtype, case.n, 4 * case.n, case.block or 256,
                case.grid or 64, case.finish, "NVIDIA Test 9000", source, "cold", 5, us, us, us,
                4800.0,
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
}  # fmt: skip


@pytest.mark.parametrize("name", CHARTS)
def test_readable(name):
    figure = CHARTS[name]()
    assert_readable(figure)
    for ax in figure.axes:
        assert ax.get_xlabel() or ax.get_ylabel() or ax.get_title(loc="left"), "an axis has no name"


def test_charts_say_where_times_are_from():
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
    assert f"Test 9000: {most[0].median_us / most[-1].median_us:.2f}x" in ends


def test_emulated_and_real_times_do_not_mix():
    real, emulated = record("lab"), record("lab", source="emulator")
    with pytest.raises(ValueError, match="do not go into one chart"):
        plot.compare(emulated, real)
    with pytest.raises(ValueError, match="do not go into one chart"):
        plot.speedup([real.rows[0], dataclasses.replace(emulated.rows[1])])
    host = dataclasses.replace(real.rows[1], source="perf_counter")
    with pytest.raises(ValueError, match="do not go into one chart"):
        plot.bandwidth([host, emulated.rows[0]])
    plot.speedup([real.rows[0], host])  # both are real


def test_one_look_per_rung():
    names = [s.name for s in gpureduce.strategies() if not s.broken]
    looks = [tuple(plot._look(name).items()) for name in names]
    assert len(set(looks)) == len(names)
    assert plot.colour("sum_seq") == plot.colour("sequential")
    lecture = {row.strategy for name in ("warp_execution", "block_sweep", "profile")
               for row in record(name).rows}  # fmt: skip
    assert len({plot.colour(name) for name in lecture}) == len(lecture) == 9


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="nothing to draw"):
        plot.bandwidth([])
    with pytest.raises(ValueError, match="only"):
        plot.speedup(record("warp_execution"))
    with pytest.raises(ValueError, match="needs a record"):
        plot.compare(None, None)
    with pytest.raises(ValueError, match="not all records"):
        plot.compare(record("lab"), record("block_grid"))
    with pytest.raises(ValueError, match="no row"):
        record("lab").only(block=7)


def test_without_matplotlib(monkeypatch):
    real = builtins.__import__
    monkeypatch.setattr("importlib.import_module",
                        lambda name: real("no_such_module_" + name.partition(".")[0]))  # fmt: skip
    with pytest.raises(ImportError, match=r"gpureduce\[plot\]"):
        plot.speedup(record("lab"))
