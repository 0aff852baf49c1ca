"""A verdict for a notebook: the parts as text, with the first race as a picture."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gpureduce.emulator import race_picture
from gpureduce.emulator.picture import ALARM, GOOD

if TYPE_CHECKING:
    from gpureduce.kernels.verdict import Verdict

_PRE = "font-family:monospace;margin:0"  # Jupyter's pages have no fixed width in an output


def page(verdict: Verdict) -> str:
    """The verdict as HTML."""
    colour = GOOD if verdict else ALARM
    parts = [
        f'<div style="border-left:4px solid {colour};padding-left:8px">'
        f"<b>{html.escape(verdict.headline)}</b>"
    ]
    for title, text in verdict.parts():
        parts.append(f'<p style="margin:10px 0 2px"><b>{html.escape(title)}</b></p>')
        if title == "Races and barriers" and verdict.races is not None:
            parts.append(race_picture.html(verdict.races))
        else:
            parts.append(f'<pre style="{_PRE}">{html.escape(text)}</pre>')
    return "\n".join([*parts, "</div>"])
