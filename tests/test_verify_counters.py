"""verify-counters: how ncu's tables are read and judged, and the records that a card has left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import wavefront_patterns

from cases import KERNELS
from gpureduce import _ncu, cli, verify_counters
from gpureduce._explain import COUNTERS, explain


def test_ncu_tables_are_read():
    raw = (
        '==PROF== Connected\n"ID","Kernel Name","a.sum"\n"","","inst"\n"0","void k<1>(int)","1,234"'
    )
    (row,) = _ncu.rows_of(raw)
    assert _ncu.number(row, "a.sum") == 1234 and _ncu.number(row, "Kernel Name") is None
    page = (
        '"Kernel Name","void tree<const unsigned int *, unsigned int>(T1)",\n'
        '"Address","Source","inst_executed"\n"0x0","@!P0  LDS R0, [R11]","16384"\n'
    )
    listings = _ncu.listings_of(page + page.replace("tree<", "other<") + page)
    assert {name: len(found) for name, found in listings.items()} == {"tree": 2, "other": 1}
    assert listings["tree"][1][0]["Source"] == "@!P0  LDS R0, [R11]"


def as_hardware(strategy: str, n: int, block: int) -> tuple[dict[str, int], list]:
    """What a card would tell that did just as the model says."""
    found = explain(strategy, n=n, block=block)
    model = {**found.counters, **found.details}
    seen = {name: model[name] for name in verify_counters.METRICS}
    for kind in ("load", "store"):
        seen[f"shared_{kind}_pipe"] = seen[f"shared_{kind}_wavefronts"]
    opcodes = {
        "shared_load_lanes": "@P0 LDS R1",
        "shared_store_lanes": "STS",
        "global_load_lanes": "LDG.E",
        "global_store_lanes": "STG.E",
        "block_barrier_instructions": "BAR.SYNC",
        "warp_barriers": "NOP",
        "shuffles": "SHFL.DOWN",
        "warp_reductions": "REDUX.SUM",
        "atomics": "REDG.E.ADD",
        "fences": "MEMBAR.SC.GPU",
    }
    code = [
        verify_counters.Instruction(f"  {opcodes[name]} x", model[name], model[name], 0)
        for name in verify_counters.OPCODES
    ]
    return seen, code


def test_verification_finds_what_differs():
    case = verify_counters.Case("unroll_warp", 2**16, 256, 256)
    seen, code = as_hardware("unroll_warp", 2**16, 256)
    table = verify_counters.summarize([(case, seen, code)], "int32")
    assert {row.verdict for row in table.rows} == {"equal"} and not table.differing
    assert [line.text for line in table.predicated] == ["@P0 LDS R1 x"]

    # Noise of the pipe is explained, wavefronts or sectors that are not the model's are not.
    noisy = seen | {"shared_load_conflicts": 7, "shared_load_pipe": seen["shared_load_pipe"] + 7}
    (row,) = [
        r for r in verify_counters.summarize([(case, noisy, code)], "int32").rows if r.difference
    ]
    assert row.verdict == "explained" and "arbitration" in row.why
    for counter in ("shared_load_wavefronts", "global_load_sectors", "shared_load_conflicts"):
        for change in (1, -1):
            wrong = seen | {counter: seen[counter] + change}
            found = verify_counters.summarize([(case, wrong, code)], "int32")
            assert counter in {row.counter for row in found.differing}
    lost = [i for i in code if "BAR" not in i.text]
    found = verify_counters.summarize([(case, seen, lost)], "int32")
    assert [row.counter for row in found.differing] == ["block_barrier_instructions"]
    assert "differs:" in str(found) and "model 6,144, hardware 0" in str(found)


def test_verification_explains_what_the_compiler_merges():
    case = verify_counters.Case("unroll_warp", 2**16, 256, 256)
    seen, code = as_hardware("unroll_warp", 2**16, 256)
    for counter in ("shared_load_instructions", "shared_load_wavefronts", "shared_load_pipe"):
        seen[counter] -= 256
    merged = []
    for one in code:
        if "LDS" in one.text:
            merged.append(verify_counters.Instruction("@P0 LDS x", one.issued, one.lanes - 512, 0))
            merged.append(verify_counters.Instruction("LDS.64 x", 256, 256, 256))
        else:
            merged.append(one)
    table = verify_counters.summarize([(case, seen, merged)], "int32")
    assert not table.differing
    assert {row.counter for row in table.rows if "LDS.64 (256)" in row.why} == {
        "shared_load_instructions", "shared_load_wavefronts", "shared_load_lanes",
    }  # fmt: skip


def test_verification_needs_ncu(monkeypatch, capsys):
    monkeypatch.setattr(_ncu.shutil, "which", lambda name: None)
    assert cli.main(["verify-counters", "--strategies", "sequential", "--sizes", "2^10"]) == 2
    assert "Nsight Compute" in capsys.readouterr().err


ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "notebooks" / "data" / "counters_h200.json"
WAVEFRONTS = ROOT / "notebooks" / "data" / "wavefronts_h200.json"


@pytest.mark.skipif(not RECORD.exists(), reason="not measured yet")
def test_record_of_the_counters():
    record = json.loads(RECORD.read_text())
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    assert {row["strategy"] for row in rows} == set(KERNELS)
    assert len({row["n"] for row in rows}) >= 3 and len({row["block"] for row in rows}) >= 2
    for row in rows:
        assert row["difference"] == row["hardware"] - row["model"]
        assert row["verdict"] in ("equal", "explained") or row["strategy"] == "grid_sync", row
        if row["counter"].endswith("_conflicts"):
            assert row["difference"] >= 0, row


@pytest.mark.skipif(not RECORD.exists(), reason="not measured yet")
def test_the_model_is_still_the_recorded_one():
    record = json.loads(RECORD.read_text())
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    for row in rows:
        if row["n"] > 2**20 or row["block"] != 256 or row["counter"] not in COUNTERS:
            continue
        options = {"n": row["n"], "block": row["block"], "grid": row["grid"]}
        found = explain(row["strategy"], **options)
        wide = row["counter"] in ("shared_load_instructions", "shared_load_wavefronts")
        extra = found.details["cluster_load_instructions"] if wide else 0
        assert found.counters[row["counter"]] + extra == row["model"], row


@pytest.mark.skipif(not WAVEFRONTS.exists(), reason="not measured yet")
def test_wavefronts_are_those_of_the_card():
    record = json.loads(WAVEFRONTS.read_text())
    assert len(record["patterns"]) >= 1000
    for row in record["patterns"]:
        for op in ("load", "store"):
            counted = wavefront_patterns.model(row, op)
            measured = row["hardware"][f"{op}_wavefronts"] / record["repeats"]
            conflicts = row["hardware"][f"{op}_conflicts"] / record["repeats"]
            assert counted == (measured, measured - conflicts)
