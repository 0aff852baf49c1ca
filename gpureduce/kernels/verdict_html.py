"""A verdict for a notebook, and as a page: its parts as text, a race and the costs drawn."""

from __future__ import annotations

import html
from collections.abc import Iterable

from gpureduce.emulator import race_picture
from gpureduce.emulator.picture import ACTIVE, ALARM, FAINT, GOOD, HALF, INK, Page
from gpureduce.emulator.race import FoundRaces
from gpureduce.kernels.ladder import Comparison
from gpureduce.text import visible

_PRE = "font-family:monospace;margin:0;white-space:pre-wrap"  # notebooks have no fixed width
# The colours of pictures, by the names that a page's style may set.
_COLOURS = {INK: "ink", FAINT: "faint", ACTIVE: "active", HALF: "half", ALARM: "alarm",
            GOOD: "good", "#ffffff": "paper"}  # fmt: skip
_STYLE = """
:root { color-scheme: light dark; --page: #ffffff }
body { font: 16px/1.5 system-ui, "DejaVu Sans", Verdana, sans-serif; max-width: 52rem;
       margin: 2rem auto; padding: 0 1rem; background: var(--page); color: var(--ink) }
:root { --ink: #1f2933; --faint: #5f6b7a; --active: #2b6cb0; --half: #90cdf4; --alarm: #c53030;
        --good: #2f855a; --paper: #ffffff }
pre { font-size: 14px; overflow-x: auto }
svg { max-width: 100%; height: auto }
@media (prefers-color-scheme: dark) {
  :root { --page: #14181d; --ink: #e4e7eb; --faint: #9aa5b1; --active: #63b3ed; --half: #2a4365;
          --alarm: #fc8181; --good: #68d391; --paper: #14181d }
}
"""
_LEFT, _WIDTH, _BAR = 170.0, 440.0, 11.0


def picture_of_costs(compared: Comparison, name: str) -> str:
    """What times follow, as pairs of bars: the nearest rung's, and the kernel's."""
    page = Page()
    page.heading("Passes, beside the nearest rung",
                 f"passes for 65,536 elements: {compared.nearest.name}, "
                 f"and {name} below it")  # fmt: skip
    page.y += 8
    rows = [
        (cost, compared.nearest.costs[cost], count)
        for cost, count in compared.own.costs.items() if count or compared.nearest.costs[cost]
    ]  # fmt: skip
    most = max((max(row[1:]) for row in rows), default=1)
    for cost, theirs, own in rows:
        page.say(_LEFT - 10, 16, cost, anchor="end")
        for i, (count, fill) in enumerate(((theirs, HALF), (own, ACTIVE))):
            dy, width = i * (_BAR + 2), max(1.0, _WIDTH * count / most)
            page.box(_LEFT, dy, width, _BAR, fill, f"{cost}: {count:,}")
            page.say(_LEFT + width + 6, dy + _BAR - 1, f"{count:,}", size=10, fill=FAINT)
        page.y += 2 * _BAR + 14
    return _themed(page.done().svg())


def _themed(text: str) -> str:
    """Pictures whose colours a page's style may set."""
    for colour, name in _COLOURS.items():
        text = text.replace(f'fill="{colour}"', f'fill="var(--{name},{colour})"')
    return text


def text(words: str) -> str:
    """Text with its own line ends."""
    return f'<pre style="{_PRE}">{html.escape(words)}</pre>'


def picture_of_races(races: FoundRaces) -> str:
    """The first race as a picture, and all of them as text."""
    return _themed(race_picture.html(races))


def fragment(
    headline: str, passes: bool, conditional: bool, parts: Iterable[tuple[str, str]]
) -> str:
    """A verdict as a part of a page, as notebooks show it. `parts`: titles, and HTML."""
    colour = GOOD if passes else ACTIVE if conditional else ALARM
    rows = [
        f'<div style="border-left:4px solid {colour};padding-left:8px">'
        f"<b>{html.escape(headline)}</b>"
    ]
    for title, shown in parts:
        rows += [f'<p style="margin:10px 0 2px"><b>{html.escape(title)}</b></p>', shown]
    return visible("\n".join([*rows, "</div>"]))


def whole_page(headlines: Iterable[str], fragments: Iterable[str]) -> str:
    """A page for a browser: light or dark, as the reader has it."""
    title = html.escape("; ".join(headlines))
    parts = [
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>", f"<style>{_STYLE}</style>", "</head>", "<body>",
        *fragments, "</body>", "</html>\n",
    ]  # fmt: skip
    return "\n".join(parts)
