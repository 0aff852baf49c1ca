"""Notebook 9: counts beside a copy's, the look-back by hand, and the tables of times."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import gpureduce
from gpureduce.lectures import scans


def test_the_look_back_by_hand_makes_the_bits_of_the_kernel():
    """If each tile knows all before it, as on the emulator. A 0 after a tile shows its sum."""
    x = np.random.default_rng(1).standard_normal((9, 2048)).astype(np.float32)

    def entries(of):
        return gpureduce.cumsum(of, "scan_look_back", device="emulator").value

    sums = np.array([entries(np.append(tile, np.float32(0)))[-1] for tile in x])
    x[1:, 0] = 0  # the first entry of a tile is then the sum before it
    sums[1:] = [entries(np.append(tile, np.float32(0)))[-1] for tile in x[1:]]
    assert scans.look_back(sums, known=1)[1:].tobytes() == entries(x.ravel())[2048::2048].tobytes()
    found = {scans.look_back(sums, seed)[-1].tobytes() for seed in range(99)}
    assert len(found) > 1
    whole = np.arange(99)
    assert np.array_equal(scans.look_back(whole), np.cumsum(whole) - whole)


def test_counts_beside_a_copy():
    found = scans.counted(["scan_blelloch", "scan_look_back"], n=4096)
    assert [panel[""][-1] for panel in found.values()] == [0, 0, 0, 0, 2 * 4096 // 8]
    assert found["bank conflicts"][""][:2] == [3942, 0]
    assert 1 < found["global sectors"][""][1] / 1024 < 1.05


def test_times_of_a_card(tmp_path):
    missing = scans.recorded(path=tmp_path / "scan_h200.json")
    assert not missing.rows and missing.notes == ["H200: not recorded yet."]
    data = Path(__file__).parents[2] / "notebooks" / "data" / "segments_h100.json"
    record = json.loads(data.read_text())
    row = {"measure": "whole", "source": "gpureduce", "dtype": "float32", "axis": 0, "gb_s": 1.0}
    row |= {"n": 2**28, "nbytes": 2**31, "low_us": 1.0, "high_us": 2.0, "repeats": 9, "rows": 1}
    row |= {"columns": 2**28, "strategy": "copy", "median_us": 533.0}
    torch, narrow = {"strategy": "torch", "median_us": 898.25}, {"rows": 2**22, "columns": 64}
    more = [row | torch, row | torch | narrow | {"measure": "matrices"}]
    record |= {"kind": "scan", "rows": [row, *more, row | {"dtype": "float64"}]}
    path = tmp_path / "scan_h100.json"
    path.write_text(json.dumps(record))
    found = scans.recorded(path=path)
    assert found.head == ["shape", "copy", "torch"]
    assert found.rows == [["268,435,456", "533", "898"]]
    found = scans.recorded("matrices", path)
    assert found.rows == [["4,194,304 x 64, axis 0", "898"]]
    assert scans.columns().rows[1][-1] == "361"
