"""The way of an array through the modules of Python, as docs/internals.md draws it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import gpureduce

DOCS = Path(__file__).resolve().parents[2] / "docs" / "internals.md"
X = np.ones((300, 300), np.float32)
IDS = np.zeros(300, np.int64)
CALLS = {
    "sum(x)": lambda x, device: gpureduce.sum(x, device=device),
    "sum(x, axis=0)": lambda x, device: gpureduce.sum(x, axis=0, device=device),
    "segment_sum(x, ids)": lambda x, device: gpureduce.segment_sum(x, IDS, device=device),
    "sum_parts([x])": lambda x, device: gpureduce.sum_parts([x]),
}


def way(call, device):
    """The modules with a function that gets the array or a view of it, in their order."""
    seen = {}

    def note(frame, event, _):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("gpureduce."):
            values = frame.f_locals.values()
            if any(v is X or (isinstance(v, np.ndarray) and v.base is X) for v in values):
                seen[module.rpartition(".")[2]] = True

    call(X, device)  # imports what it needs
    sys.setprofile(note)
    try:
        call(X, device)
    finally:
        sys.setprofile(None)
    return list(seen)


def test_the_picture_shows_the_way():
    ways = [(text, device, way(call, device))
            for device in ("cpu", "emulator") for text, call in CALLS.items()]  # fmt: skip
    lines = [f"{text:<19}  {device:<8}  {' > '.join(found)}" for text, device, found in ways]
    assert "\n".join(lines) in DOCS.read_text()
