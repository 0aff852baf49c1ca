"""A bar chart as SVG text, for the README and the report: it needs no matplotlib."""

from __future__ import annotations

from collections.abc import Sequence

from gpureduce.emulator.picture import FAINT, GOOD, RUNG, WIDTH, Page

_COLOURS = {"cub": FAINT, "fast": GOOD, "exact": GOOD}
_LEFT, _HEIGHT = 170, 20


def svg_bars(title: str, bars: Sequence[tuple[str, float]]) -> str:
    """Horizontal bars with names and values.

    >>> from gpureduce.bench.svg_bars import svg_bars
    >>> svg_bars("GB/s", [("fast", 4500.0), ("cub", 4400.0)]).count("<rect")
    3
    """
    page, most = Page(), max(value for _, value in bars)
    page.heading(title)
    for name, value in bars:
        width = (WIDTH - _LEFT - 60) * value / most
        page.say(_LEFT - 8, 15, name, anchor="end")
        page.box(_LEFT, 2, width, _HEIGHT - 5, _COLOURS.get(name, RUNG), "")
        page.say(_LEFT + width + 6, 15, f"{value:,.{0 if value >= 100 else 2}f}")
        page.y += _HEIGHT
    return page.done().svg()
