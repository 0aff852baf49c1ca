"""Names, casts and routes are those of snapshot.json. `api.lost` lists what a newer file lacks."""

from __future__ import annotations

import json

import api
import pytest
import snapshot

NOW = json.loads((api.ROOT / api.SNAPSHOT).read_text())


def test_nothing_is_lost_between_equal_snapshots():
    assert list(api.lost(NOW, NOW)) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("(a, b=1)", "(a)", ["/signature: b is gone"]),
        ("(a, *, b=<factory>)", "(a, *, b)", ["/signature: b must be given"]),
        ("(a, b=1)", "(a, c=0, b=1)", ["/signature: other positions"]),
        ("(a, b=1)", "(a, *, b=1)", ["/signature: other positions"]),
        ("(a, *args)", "(a, c=0)", ["/signature: args is gone"]),
        ("(a, b=1)", "(a, b=2, c=3, *, d=4, **more)", []),
    ],
)
def test_a_signature(before, after, said):
    assert list(api.lost({"signature": before}, {"signature": after})) == said


def test_names_attributes_and_options():
    before = {"sum": {}, "Device": {"names": "index", "fields": "id name"}, "strategies": ["fast"]}
    after = {"Device": {"names": "index more", "fields": "name"}, "strategies": []}
    assert list(api.lost(before, after)) == [
        "/sum is gone", "/Device/fields: id is gone", "/strategies: fast is gone",
    ]  # fmt: skip


def test_signatures_of_the_snapshot_can_be_read():
    every = [*NOW["names"].values(), *NOW["names"]["exact"].values()]
    texts = [one["signature"] for one in every if "signature" in one]
    assert len(texts) > 60 and all(api.parameters(text) for text in texts)


@pytest.mark.parametrize("part", [key for key in NOW if key != "casts"])
def test_what_users_call_stays(part):
    found = json.loads(json.dumps(snapshot.names()[part]))
    assert list(snapshot.differences(NOW[part], found)) == []


@pytest.mark.parametrize("route", snapshot.ROUTES)
def test_casts_stay(monkeypatch, route):
    """``python tools/snapshot.py --output FILE`` on both versions shows what differs."""
    monkeypatch.setenv("GPUREDUCE_BACKEND", "emulator")
    assert snapshot.digests(route) == NOW["casts"][route]
