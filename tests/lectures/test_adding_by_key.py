"""Statements of notebook 07 on counts, on orders of threads, and on the simulation."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gpureduce
from cases import MADE, timed_rows
from gpureduce import lectures
from gpureduce.lectures import keys as tables

N = 2**14
RNG = np.random.default_rng(7)
ZIPF = np.minimum(RNG.zipf(1.3, N), 4096) - 1
MANY = RNG.integers(0, 4096, N)


def count(strategy, keys):
    return gpureduce.explain(strategy, dtype="float32", segment_ids=keys, num_segments=4096)


def test_the_busiest_address():
    for keys in (ZIPF, MANY, np.zeros(N, int)):
        found = count("key_atomic", keys).contention["global"]
        assert (found.atomics, found.most) == (N, np.bincount(keys).max())
    assert 0.2 < count("key_atomic", ZIPF).contention["global"].most / N < 0.3


def test_lanes_that_agree():
    one, many, zipf = (count("key_warp", keys) for keys in (np.zeros(N, int), MANY, ZIPF))
    assert one.contention["global"].atomics == N / 32
    assert one.counters["shuffles"] == 6 * N / 32
    assert many.contention["global"].atomics > 0.95 * N
    assert many.counters["shuffles"] == 6 * many.contention["global"].atomics
    before = count("key_atomic", ZIPF).contention["global"].most
    assert zipf.contention["global"].most < before / 5


def test_a_private_copy_for_each_block():
    found = count("key_shared", ZIPF)
    assert found.grid == 32
    assert found.contention["global"].atomics == 32 * 4096 > N
    assert found.contention["global"].most == 32
    assert found.contention["shared"].atomics == N


def test_a_network_that_is_trained_is_such_a_computation():
    """Two runs drift apart to opposite ends of the ring, and exact sums keep them together."""

    def run(strategy, seed, steps):
        rng = np.random.default_rng(seed)

        def add(charge, cell, cells):
            with gpureduce.emulator.schedule("random", seed=int(rng.integers(2**31))):
                how = {"num_segments": cells, "strategy": strategy, "device": "emulator"}
                return gpureduce.segment_sum(charge, cell, **how).value

        return lectures.two_streams(add, steps)

    first, second = (run("key_atomic", seed, 700) for seed in (1, 2))
    apart = first.apart(second)
    assert apart[0] == 0 and apart[20] < 1e-3 and apart[-1] > 16
    assert first.positions.dtype == np.float32 and first.energies.shape == (701,)
    first, second = (run("exact", seed, 150) for seed in (1, 2))
    assert not first.apart(second).any()
    assert first.energies.tobytes() == second.energies.tobytes()


def test_the_streams_become_unstable():
    """The field is small at first, grows, and stays bounded: kinetic energy feeds it."""
    run = lectures.two_streams(lambda charge, cell, cells: np.bincount(cell, charge, cells), 400)
    assert run.cells == 64 and (run.positions >= 0).all() and (run.positions <= 64).all()
    kinetic = 64 * 5.0**2 / 2  # of a mean density of 1
    assert run.energies[60] < 1 < 30 < run.energies[400] < kinetic


def test_a_table_of_the_record(tmp_path):
    table = tables.recorded(tmp_path / "segments_h100.json")
    assert "H100: not recorded yet" in str(table)
    (tmp_path / "segments_x.json").write_text("{")
    with pytest.raises(ValueError, match="segments_x"):
        tables.recorded(tmp_path / "segments_x.json")
    case = {"measure": "segments", "n": 1000, "segments": 100, "columns": 1, "data": "normal",
            "index": "int64"}  # fmt: skip
    us = {"torch index_add": 2000.0, "torch deterministic": 20_000.0, "exact": 1000.0}
    rows = timed_rows(case | {"ids": "unsorted"}, us) + timed_rows(case | {"ids": "offsets"}, us)
    made = MADE | {"schema": 2, "kind": "segments", "rows": rows}
    (tmp_path / "segments_x.json").write_text(json.dumps(made))
    table = tables.recorded(tmp_path / "segments_x.json")
    assert table.rows == [["100", "unsorted", "2.000", "20.000", "1.000", "0.50"]]
    assert table.notes == ["NVIDIA Test 9000: driver 580, 2026-01-01; 1,000 elements."]
