"""Tests without the mark `gpu` are about the emulator, also on a machine with a card."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _on_the_emulator(request, monkeypatch):
    if not any(request.node.iter_markers("gpu")):
        monkeypatch.setenv("GPUREDUCE_BACKEND", "emulator")
