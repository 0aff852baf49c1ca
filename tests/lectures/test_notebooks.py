"""The notebooks run from top to bottom, and what is committed of them shows what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gpureduce
from gpureduce import lectures
from gpureduce.hardware import tables
from gpureduce.lectures import axes, keys, scans
from user_kernels import some

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

import notebooks  # noqa: E402

FOLDER = notebooks.FOLDER
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LESSONS = ["01_the_ladder", "02_block_and_grid", "03_why", "04_trapezoid",
           "05_numbers_you_can_trust", "06_rows_and_columns", "07_adding_by_key",
           "08_your_turn", "09_every_prefix"]  # fmt: skip
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def code(cells):
    return [cell for cell in cells if cell.cell_type == "code"]


def outputs(cells):
    return [output for cell in code(cells) for output in cell.outputs]


def texts(cells):
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


def assert_no_errors(cells):
    for output in outputs(cells):
        assert output.output_type != "error", output.get("evalue")
        assert output.get("name") != "stderr", output.get("text")


def test_all_are_there():
    assert [path.stem for path in NOTEBOOKS] == LESSONS


@pytest.mark.parametrize("path", some(NOTEBOOKS[::-1], len(LESSONS)), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # Jupyter's own
@pytest.mark.skipif(
    bool(gpureduce.build_info()["sanitize"]),
    reason="a sanitizer's library is preloaded into this Python, not into a notebook's",
)
def test_runs_from_top_to_bottom(path, monkeypatch, tmp_path_factory):
    # The user's list of fonts may name those of an environment that is gone.
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path_factory.getbasetemp() / "matplotlib"))
    monkeypatch.setenv("PYTHONPATH", str(Path(gpureduce.__file__).parent.parent))
    notebook = notebooks.read(path)
    before = [cell.source for cell in notebook.cells]
    notebooks.run(notebook, FOLDER)
    assert_no_errors(notebook.cells)
    notebooks.strip(notebook)
    assert [cell.source for cell in notebook.cells] == before
    nbformat.validate(notebook)


@each
def test_is_committed_with_its_outputs(path):
    cells = notebooks.read(path).cells
    assert_no_errors(cells)
    counts = [cell.execution_count for cell in code(cells)]
    assert counts == list(range(1, len(counts) + 1)), "run tools/notebooks.py"
    shown = [output.get("data", {}) for output in outputs(cells)]
    assert sum("image/png" in data for data in shown) >= 3, "it has hardly a chart"


@each
def test_is_committed_without_what_changes_by_chance(path):
    notebook = notebooks.read(path)
    kept = notebook.copy()
    notebooks.strip(notebook)
    assert kept == notebook, "run tools/notebooks.py"
    assert "/tmp/" not in path.read_text() and "/home/" not in path.read_text()


@each
def test_is_a_lesson(path):
    """The takeaway first, predictions before what they predict, exercises with answers last."""
    found = texts(notebooks.read(path).cells)
    assert found[0].startswith("# ") and found[0].splitlines()[0].endswith("?")
    assert "**The takeaway.**" in found[0]
    assert sum("**Predict" in text for text in found) >= 3
    assert sum("**Look" in text for text in found) >= 2
    assert found[-1].startswith("## Exercises") and "\n5. " in found[-1]
    exercises, _, answers = found[-1].partition("<details><summary>Answers</summary>")
    assert len(re.findall(r"^\d\. ", exercises, re.M)) == len(re.findall(r"^\d\. ", answers, re.M))


@each
def test_cells_are_calls_and_times_are_not_typed_in(path):
    cells = notebooks.read(path).cells
    for cell in code(cells):
        most = 32 if cell.source.startswith("%%kernel") else 16
        assert len(cell.source.splitlines()) <= most, cell.source
        assert "matplotlib" not in cell.source
    for text in texts(cells):
        times = r"\d\s?(us|µs|ms|GB/s|TB/s|times as fast|% of peak)\b"
        assert not re.search(times, text), text


@each
def test_says_what_is_not_recorded_yet(path):
    """A record that is there has been run into the notebook; one that is not is named missing."""
    text = path.read_text()
    names = set(re.findall(r"lectures\.recorded\(\\\"(\w+)\\\"\)", text))
    paths = [f"data/lecture_{name}_h100.json" for name in names]
    paths += [tables.PATH] * ("counter_tables.recorded" in text)
    paths += [axes.PATH] * ("axes.load()" in text)
    paths += [keys.PATH] * ("key_tables.recorded()" in text)
    paths += [scans.PATH] * ("scans.recorded()" in text)
    missing = [path for path in paths if not (FOLDER / path).exists()]
    assert paths and names <= set(lectures.EXPERIMENTS)
    assert ("not recorded yet" in text) == bool(missing), "run tools/notebooks.py"


def test_strip():
    """Joins what was printed in pieces, numbers the cells, and forgets when they ran."""
    stream = {"output_type": "stream", "name": "stdout", "text": "a\n"}
    cell = nbformat.v4.new_code_cell(
        "print()", outputs=[nbformat.from_dict({**stream}), nbformat.from_dict({**stream})]
    )
    cell.metadata["execution"] = {"iopub.status.busy": "2026-01-01"}
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebooks.strip(notebook)
    assert [output.text for output in notebook.cells[0].outputs] == ["a\na\n"]
    assert notebook.cells[0].metadata == {} and notebook.cells[0].id == "cell-00"
