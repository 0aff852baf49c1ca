"""The page of a replay: one HTML file with its data, script and style inside."""

from __future__ import annotations

import base64
import gzip
import html
import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "page"
MOST_BYTES = 1_000_000
_SCRIPTS = ("model.js", "scene.js", "player.js")


def page(data: dict[str, Any]) -> str:
    """The page that plays this data, which is that of `Replay.as_dict`."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
    title = data["strategy"]
    if "beside" in data:
        other = data["beside"]["strategy"]
        title += f" and {other}" if other != title else ": both orders of a race"
    inside = {
        "TITLE": html.escape(title),
        "STYLE": (_FOLDER / "style.css").read_text(),
        "SCRIPT": "\n".join((_FOLDER / name).read_text() for name in _SCRIPTS),
        "DATA": packed,
    }
    made = (_FOLDER / "page.html").read_text()
    for name, value in inside.items():
        made = made.replace(f"{{{{{name}}}}}", value)
    if len(made) > MOST_BYTES:
        n = data["n"] * MOST_BYTES // len(made)
        raise ValueError(
            f"a page has at most 1 MB, this one {len(made) / 1e6:.1f} MB: take "
            f"n={2 ** (n.bit_length() - 1):,} with block={max(data['block'], 256)}"
        )
    return made
