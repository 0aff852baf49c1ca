"""`gpureduce explain`, `gpureduce races` and `gpureduce replay`."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from cases import KERNELS
from gpureduce.core import registry
from gpureduce.emulator.explain import explain


def test_explain(command, tmp_path):
    status, out, _ = command("explain", "sum_idx", "--n", "2^16", "--block", "128")
    assert status == 0 and "Worst bank conflict" in out
    status, out, _ = command("explain", "sum_idx", "--n", "2^16", "--json")
    assert json.loads(out)["counters"] == explain("interleaved_idx", n=2**16).counters
    path = tmp_path / "both.svg"
    status, out, _ = command("explain", "sum_idx", "sum_seq", "--json", "--svg", path)
    assert status == 0 and json.loads(out)["lesson"] == registry.find("sequential").lesson
    assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")
    status, _, err = command("explain", "cub")
    assert status == 2 and "compiled library" in err


@pytest.mark.parametrize("width", [80, 120])
def test_text_of_explain_fits_the_terminal(command, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    widest = 0
    for strategy in KERNELS:
        for asked in (["--block", "1024"], ["--n", "5000", "--block", "96"], ["sequential"]):
            status, out, _ = command("explain", strategy, *asked)
            most = max(map(len, out.splitlines()))
            assert status == 0 and most <= width, out
            widest = max(widest, most)
    assert widest > width - 3


def test_races(command, tmp_path):
    status, out, _ = command("races", "sum_seq", "--n", "2^10", "--schedules", "forward")
    assert status == 0 and "sequential: no race in 1 order of threads" in out
    status, out, _ = command("races", "missing_barrier", "--json", "--block", "128")
    assert status == 0 and json.loads(out)["races"][0]["missing"] == "__syncthreads()"
    status, _, err = command("races", "cub")
    assert status == 2 and "no kernel of its own" in err
    pytest.importorskip("matplotlib")
    path = tmp_path / "race.svg"
    assert command("races", "missing_barrier", "--svg", path)[0] == 0
    assert "<svg" in path.read_text()
    status, _, err = command("races", "sequential", "--svg", tmp_path / "none.svg")
    assert status == 2 and "no race to show" in err


WRONG = """__global__ void wrong(const int *in, int *out, int n)
{
    if (threadIdx.x < n) *out += in[threadIdx.x];
}"""


def test_sums_by_segment(command, tmp_path):
    status, out, _ = command("replay", "key_warp", "--beside", "key_sorted", "--n", "64", "--json")
    assert status == 0 and json.loads(out)["segment_ids"][-1] == 7
    np.save(tmp_path / "ids.npy", np.arange(90) % 3)
    keyed = ["--segment-ids", tmp_path / "ids.npy", "--num-segments", "4"]
    status, out, _ = command("replay", "key_shared", *keyed)
    assert status == 0 and "90 elements" in out and "sums of 4 segments are" in out
    status, out, _ = command("explain", "key_shared", "key_atomic", *keyed, "--block", "64")
    assert status == 0 and "key_shared → key_atomic" in out and "64 threads" in out
    status, _, err = command("explain", "sequential", *keyed)
    assert status == 2 and "sequential takes no segment_ids" in err


def test_replay(command, tmp_path, monkeypatch):
    status, out, _ = command("replay", "sequential", "--n", "64", "--block", "32")
    assert status == 0 and out.startswith("sequential: 64 el") and "pass __syncthreads" in out
    status, out, _ = command("replay", "sequential", "--beside", "cascade", "--json")
    assert status == 0 and json.loads(out)["beside"]["strategy"] == "cascade"
    (tmp_path / "k.cu").write_text(WRONG)
    page = tmp_path / "page.html"
    race = ["races", "missing_barrier", "--replay"]
    for words in (["replay", tmp_path / "k.cu", "--output"], race,
                  ["check", tmp_path / "k.cu", "--replay"]):  # fmt: skip
        assert command(*words, page)[0] == (words[0] == "check")
        assert page.read_text().startswith("<!DOCTYPE html>")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    words = ["replay", "sequential", "--n", "64", "--output", page, "--open"]
    for more in ((), ("--json",)):
        assert command(*words, *more)[0] == 0
    assert opened == [page.as_uri()] * 2
    loop = "while (*(volatile const int *)in >= 0) ;"
    (tmp_path / "k.cu").write_text(WRONG.replace("{", f"{{ {loop}", 1))
    status, out, err = command("check", tmp_path / "k.cu", "--replay", tmp_path / "none.html")
    assert status == 1 and "Right or wrong" in out and "no replay: " in err and "never ends" in err
    status, out, err = command("races", "sequential", "--replay", tmp_path / "none.html")
    assert status == 2 and "no race in" in out and "no race to show" in err
