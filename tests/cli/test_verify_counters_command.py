"""`gpureduce verify-counters`, from ncu's output to the record; a script stands in for ncu."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

import fake_ncu
from cases import AXIS, KERNELS
from gpureduce.hardware import ncu as _ncu
from gpureduce.hardware import report, verify_counters
from gpureduce.hardware.counters import METRICS, SHARED
from user_kernels import INDEX_BUG, TREE

MEASURED = [name for name in AXIS if name != "exact_levels"]
VERIFY = ["verify-counters", "--sizes", "2^10", "5000", "--blocks", "64"]


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    monkeypatch.setenv("NCU", str(fake_ncu.install(tmp_path)))
    return monkeypatch


def test_whole_run(ncu, command, tmp_path):
    """All kernels, on a card that does what the model says."""
    path = tmp_path / "counters.json"
    status, out, err = command(*VERIFY, "--record", path)
    record = json.loads(path.read_text())
    again = verify_counters.Table.of_record(record)
    alone = {(row.strategy, row.dtype) for row in again.control}
    matrices = [case for name in MEASURED for case in verify_counters.matrix_cases(name)]
    assert len(again.seen) == 2 * len(KERNELS) + len(matrices) and 20 <= len(alone) <= 25
    launches = len(again.seen) + len(alone)
    assert status == 0 and f"{launches} of {launches} launches" in err and "differs:" not in out
    assert {row.strategy for row in again.rows} == {*KERNELS, *MEASURED} and not again.failures
    assert {replace(one.case, grid=0) for one in again.seen if one.case.rows} == set(matrices)
    assert str(again) in out and again.as_dict().items() <= record.items()


def test_kernels_for_sums_along_an_axis(ncu, command, tmp_path):
    """They have matrices of their own; the record and the report tell which."""
    path, other = tmp_path / "counters.json", tmp_path / "again.json"
    names = ["--strategies", "row_lanes", "column_tiles", "row_split"]
    status, out, _ = command(*VERIFY, *names, "--record", path)
    assert status == 0 and "differs:" not in out
    record = json.loads(path.read_text())
    shapes = {(row[0], row[1] // row[-1], row[-1]) for row in record["rows"]}
    assert {("row_lanes", 64, 2048), ("column_tiles", 16, 4096), ("row_split", 40003, 1)} <= shapes
    assert command("verify-counters", "--again", path, "--record", other)[0] == 0
    assert other.read_text() == path.read_text()
    said = report.markdown(record)
    assert "3 kernels for sums along an axis ran on 64 x 4,096, 4,096 x 16, 100 x 777" in said

    launch = record["seen"]["launches"][-1]
    assert launch[0] == "row_lanes" and launch[-1] == 777
    launch[-3][record["seen"]["counters"].index("global_load_sectors")] += 1
    path.write_text(json.dumps(record))
    status, out, _ = command("verify-counters", "--again", path)
    assert status == 1
    assert "row_lanes 777 x 48 block=256 global_load_sectors: model 4,662, hardware 4,663" in out

    ncu.setenv("FAKE_NCU_REFUSES", "row_lanes")
    status, out, _ = command(*VERIFY, *names[:2], "--record", path)
    assert status == 1 and "row_lanes 2,048 x 64 block=256 could not be measured: Cuda" in out
    again = verify_counters.Table.of_record(json.loads(path.read_text()))
    assert [one.case.shape for one in again.failures] == [(2048, 64), (777, 48)]


def test_a_record_is_judged_again_without_a_card(ncu, command, tmp_path):
    path, other = tmp_path / "counters.json", tmp_path / "again.json"
    assert command(*VERIFY, "--strategies", "interleaved_idx", "tiles", "--record", path)[0] == 0
    ncu.setenv("NCU", str(tmp_path / "gone"))
    again = ["verify-counters", "--again", path, "--record", other]
    assert command(*again)[0] == 0
    assert other.read_text() == path.read_text()

    record = json.loads(path.read_text())
    at = record["seen"]["counters"].index("global_load_sectors")
    record["seen"]["launches"][0][-2][at] += 1
    path.write_text(json.dumps(record))
    status, out, _ = command(*again)
    assert status == 1 and "global_load_sectors: model 128, hardware 129" in out
    record["seen"]["launches"] = []
    path.write_text(json.dumps(record))
    status, _, err = command(*again)
    assert status == 2 and "no launches to judge again" in err


@pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
def test_a_kernel_of_yours(ncu, command, tmp_path):
    files = [tmp_path / "my_rung.cu", tmp_path / "shifted.cu"]
    for file, text in zip(files, (TREE, INDEX_BUG), strict=True):
        file.write_text(text)
    path = tmp_path / "counters.json"
    status, out, err = command(*VERIFY, "--strategies", "tiles", *files, "--record", path)
    assert status == 0 and "7 of 7 launches" in err and "differs:" not in out, out + err
    rows = json.loads(path.read_text())["rows"]
    assert {row[0] for row in rows} == {"tiles", "my_rung", "shifted"}
    ncu.setenv("FAKE_NCU_REFUSES", "my_rung")
    status, out, _ = command(*VERIFY, "--strategies", files[0])
    assert status == 1 and "my_rung n=1,024 block=64 could not be measured" in out


@pytest.mark.parametrize("text", [None, b"{", b'{"kind": "bench", "rows": []}'])
def test_a_record_that_cannot_be_read_is_an_error_in_one_line(command, tmp_path, text):
    path = tmp_path / "counters.json"
    if text is not None:
        path.write_bytes(text)
    status, out, err = command("verify-counters", "--again", path)
    assert status == 2 and not out and err.count("\n") == 1
    assert err.startswith("gpureduce: ") and str(path) in err


def test_conflicts_of_one_warp_alone_must_be_equal(ncu, command):
    names = ["--strategies", "interleaved_idx", "warp_shfl", "cluster", "atomic_thread", "redux"]
    status, out, _ = command(*VERIFY, *names)
    assert status == 0 and "one warp alone there is no arbitration. In 4 such launches, 8 of" in out
    assert "8 of 8 counts of bank conflicts (2 of them not 0) equal the model's" in out
    ncu.setenv("FAKE_NCU_ARBITRATES", "2")  # as between many warps, so also where there is one
    status, out, _ = command(*VERIFY, *names)
    assert status == 1 and "differs:" not in out and "0 of 8 counts" in out
    assert "interleaved_idx int64, one warp alone, shared_load_conflicts: model 8, hard" in out


def test_one_kernel_that_fails_does_not_cost_the_others(ncu, command):
    ncu.setenv("FAKE_NCU_FAILS", "sequential")
    status, out, _ = command(*VERIFY, "--json", "--strategies", "sequential", "warp_shfl")
    found = json.loads(out)
    assert status == 1 and {row[0] for row in found["rows"]} == {"warp_shfl"}
    launches = [["sequential", 1024, 64], ["sequential", 5000, 64], ["sequential", 32, 32]]
    assert [row[:3] for row in found["failures"]] == launches
    assert all("returned an error code" in row[-1] for row in found["failures"])


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        (METRICS["global_load_sectors"], "ncu has no {} on this card"),
        (SHARED, "ncu's listing of the machine code has no column {}"),
    ],
)
def test_a_counter_that_a_card_has_not_is_named(ncu, command, lacking, said):
    ncu.setenv("FAKE_NCU_LACKS", lacking)
    status, out, _ = command(*VERIFY, "--strategies", "sequential")
    assert status == 1 and said.format(lacking) in out


def test_kernels_without_shared_memory_need_no_counter_of_it(ncu, command):
    """For them ncu's listing of the machine code has no such column."""
    status, out, _ = command(*VERIFY, "--json", "--strategies", "global_tree", "atomic_thread")
    found = json.loads(out)
    assert status == 0 and {row[0] for row in found["rows"]} == {"global_tree", "atomic_thread"}
    assert not found["failures"]


def test_no_permission_to_read_counters(command, tmp_path, monkeypatch):
    path = tmp_path / "ncu"
    path.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1\n")
    path.chmod(0o755)
    monkeypatch.setenv("NCU", str(path))
    status, _, err = command(*VERIFY, "--strategies", "sequential")
    assert status == 2 and "may not read the card's counters" in err


def test_missing_ncu_and_missing_folder(command, monkeypatch):
    monkeypatch.setattr(_ncu.shutil, "which", lambda name: None)
    status, _, err = command(*VERIFY, "--strategies", "sequential")
    assert status == 2 and "Nsight Compute" in err
    status, _, err = command("verify-counters", "--record", "no/such/folder/x.json")
    assert status == 2 and "no folder no/such/folder" in err
