"""A bar chart as SVG text, for the README and the report: it needs no matplotlib."""

from __future__ import annotations

import html
from collections.abc import Sequence

_COLOURS = {"cub": "#999999", "fast": "#117733", "exact": "#117733"}
_LEFT, _WIDTH, _HEIGHT = 170, 760, 20


def svg_bars(title: str, bars: Sequence[tuple[str, float]]) -> str:
    """Horizontal bars with names and values.

    >>> from gpureduce.bench.svg_bars import svg_bars
    >>> svg_bars("GB/s", [("fast", 4500.0), ("cub", 4400.0)]).count("<rect")
    3
    """
    most, bottom = max(value for _, value in bars), _HEIGHT * len(bars) + 34
    texts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{bottom}" fill="white"/>',
        f'<text x="8" y="17" font-size="14">{html.escape(title, quote=False)}</text>',
    ]
    for i, (name, value) in enumerate(bars):
        y, long = 28 + _HEIGHT * i, (_WIDTH - _LEFT - 60) * value / most
        colour = _COLOURS.get(name, "#332288")
        texts += [
            f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end" fill="#222">{name}</text>',
            f'<rect x="{_LEFT}" y="{y + 2}" width="{long:.1f}" height="{_HEIGHT - 5}" '
            f'fill="{colour}"/>',
            f'<text x="{_LEFT + long + 6:.1f}" y="{y + 13}" fill="#222">'
            f"{value:,.{0 if value >= 100 else 2}f}</text>",
        ]
    return "\n".join([*texts, "</svg>", ""])
