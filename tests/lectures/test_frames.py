"""The slides of a lecture: each shows its moment, and no file is replaced."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from gpureduce.cli.main import main
from gpureduce.lectures.frames import TOPICS
from user_kernels import some

PAGE = Path(__file__).resolve().parents[2] / "docs" / "teach.md"
SAYS = {
    "04_interleaved_idx_conflict": "8 wavefronts where 1 would do",
    "06_sequential_half_a_warp": "no conflict",
    "09_unroll_warp_warp_barrier": "__syncwarp",
    "10_warp_shfl_shuffle": "__shfl_down_sync",
    "13_last_block_atomic": "ticket",
    "15_missing_barrier_one_order": "write shared[32..63]",
    "16_missing_barrier_other_order": "read shared[32..63]",
}


def test_frames(tmp_path, capsys):
    assert main(["lecture", "frames", "--out", str(tmp_path / "slides"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    said = {row["file"].removesuffix(".svg"): row["sentence"] for row in rows}
    assert all(part in said[name] for name, part in SAYS.items())
    assert sorted(said) == [*said], "files sort in the order of the lecture"
    assert [*dict.fromkeys(row["question"] for row in rows)] == [
        question for _, question, *_ in TOPICS
    ]
    index = (tmp_path / "slides" / "index.html").read_text()
    for row in rows:
        assert ET.parse(tmp_path / "slides" / row["file"]).getroot().tag.endswith("svg")
        assert row["file"] in index
    assert main(["lecture", "frames", "--out", str(tmp_path / "slides")]) == 2
    assert "exists and is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "begins"), some([("png", b"\x89PNG"), ("pdf", b"%PDF")], 2))
def test_formats(tmp_path, form, begins, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("gpureduce.lectures.frames.TOPICS", TOPICS[-1:])
    assert main(["lecture", "frames", "--out", str(tmp_path / "s"), "--format", form]) == 0
    made = [*(tmp_path / "s").glob(f"*.{form}")]
    assert len(made) == 2 and all(path.read_bytes().startswith(begins) for path in made)
    capsys.readouterr()


def test_the_page_for_teachers_asks_the_same_questions():
    page = PAGE.read_text()
    places = [page.index(question) for _, question, *_ in TOPICS]
    assert places == sorted(places)
    assert all(strategy in page for strategy, *_ in TOPICS)
