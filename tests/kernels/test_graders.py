"""Test files for Otter-Grader and test cells for nbgrader, run as those run them."""

from __future__ import annotations

import ast
import shutil
import sys
import types
from pathlib import Path

import pytest

import gpureduce
from gpureduce.cli.main import main
from gpureduce.kernels import graders
from user_kernels import INDEX_BUG, TREE

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
SPEC = {
    "title": "A tree",
    "dtypes": ["int32"],
    "require": [
        {"rule": "right", "points": 3},
        {"rule": "use __syncwarp", "points": 2, "says": 'it\'s for the "last" warp'},
    ],
}


def run_otter(text, kernel, monkeypatch):
    """The points of each case, as Otter's ExceptionTestFile finds them (7.0)."""
    cases = []

    def test_case(name, points):
        return lambda function: cases.append((name, points, function))

    otter = types.ModuleType("otter.test_files")
    otter.test_case = test_case
    monkeypatch.setitem(sys.modules, "otter", types.ModuleType("otter"))
    monkeypatch.setitem(sys.modules, "otter.test_files", otter)
    namespace = {}
    exec(compile(text, "test.py", "exec"), namespace)
    assert namespace["name"] == "my_rung" and namespace["OK_FORMAT"] is False
    found = {}
    for name, points, function in cases:
        try:
            function(my_rung=kernel)
            found[name] = points
        except AssertionError as error:
            found[name] = str(error)
    return found


def test_otter(monkeypatch):
    text = graders.otter_test(SPEC, "my_rung")
    found = run_otter(text, gpureduce.kernel(TREE), monkeypatch)
    assert found == {"right": 3.0, "use __syncwarp": 'it\'s for the "last" warp'}
    found = run_otter(text, gpureduce.kernel(INDEX_BUG), monkeypatch)
    assert "element 0 was left out" in found["right"]
    found = run_otter(text, None, monkeypatch)  # the student has no such variable
    assert "a kernel is its text" in found["right"]


def test_otter_itself(monkeypatch, tmp_path):
    test_files = pytest.importorskip("otter.test_files")
    (tmp_path / "my_rung.py").write_text(graders.otter_test(SPEC, "my_rung"))
    file = test_files.ExceptionTestFile.from_file(str(tmp_path / "my_rung.py"))
    file.run({"my_rung": gpureduce.kernel(TREE)})
    assert (file.score, file.possible) == (3, 5)


def test_nbgrader():
    """The value of the last expression is the partial credit."""
    text = graders.nbgrader_cell(SPEC, "k", seed=4)
    assert "points of this cell to 5" in text and "seed=4" in text
    *body, last = ast.parse(text).body
    namespace = {"k": gpureduce.kernel(TREE)}
    exec(compile(ast.Module(body, []), "cell", "exec"), namespace)
    assert eval(compile(ast.Expression(last.value), "cell", "eval"), namespace) == 3.0


def test_nbgrader_itself():
    utils = pytest.importorskip("nbgrader.utils")
    nbformat = pytest.importorskip("nbformat")
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output(
        "execute_result", {"text/plain": "3.0"}
    )])  # fmt: skip
    cell.metadata["nbgrader"] = {"grade": True, "solution": False, "points": 5}
    assert utils.determine_grade(cell) == (3.0, 5.0)


def test_on_the_command_line(tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text('[[require]]\nrule = "right"\npoints = 4\nsays = "a \\"word\\""\n')
    assert main(["grade", str(spec), "--otter", "k", "--seed", "9"]) == 0
    said = capsys.readouterr().out
    assert "def test_0(k):" in said and "seed=9" in said and str(tmp_path) not in said
    assert main(["grade", str(spec), "--nbgrader", "k"]) == 0
    assert "gpureduce.grade(k, SPEC, seed=0)" in capsys.readouterr().out
    assert main(["grade", str(spec)]) == 2
    assert "name the kernel's file" in capsys.readouterr().err
    assert main(["grade", str(spec), "--otter", "no name"]) == 2
    assert "is that of a variable, not 'no name'" in capsys.readouterr().err


def test_every_assignment_has_its_forms():
    folder = Path(__file__).resolve().parents[2] / "notebooks" / "assignments"
    for spec in folder.glob("*/spec.toml"):
        for made in (graders.otter_test, graders.nbgrader_cell):
            compile(made(spec, "k"), str(spec), "exec")


def test_a_title_ends_no_comment():
    """It comes from the spec's file, and must not become code."""
    spec = {**SPEC, "title": 'a"""\nraise SystemExit\n"""\\'}
    for text in (graders.otter_test(spec, "k"), graders.nbgrader_cell(spec, "k")):
        found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Raise)]
        assert not found, text
