"""Names, casts and routes are those of snapshot.json, which tools/snapshot.py writes."""

from __future__ import annotations

import json

import pytest
import snapshot

BEFORE = json.loads(snapshot.SNAPSHOT.read_text())


@pytest.mark.parametrize("part", [key for key in BEFORE if key != "casts"])
def test_what_users_call_stays(part):
    found = json.loads(json.dumps(snapshot.names()[part]))
    assert list(snapshot.differences(BEFORE[part], found)) == []


@pytest.mark.parametrize("route", snapshot.ROUTES)
def test_casts_stay(monkeypatch, route):
    """``python tools/snapshot.py --output FILE`` on both versions shows what differs."""
    monkeypatch.setenv("GPUREDUCE_BACKEND", "emulator")
    assert snapshot.digests(route) == BEFORE["casts"][route]
