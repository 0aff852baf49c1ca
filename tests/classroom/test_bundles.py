"""Bundles for nbgrader, Otter-Grader, Gradescope and GitHub Classroom, run where they can be."""

from __future__ import annotations

import ast
import csv
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gpureduce
from gpureduce.classroom import assignments, bundles
from gpureduce.cli.main import main
from gpureduce.core.output_files import write_new

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks" / "assignments" / "first_tree"
SEED = 987654321
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")


def needs(module):
    """Skips where a grading system is not installed."""
    reason = (
        f"{module} is not installed: pip install {'otter-grader' if module == 'otter' else module}"
    )
    return pytest.mark.skipif(not importlib.util.find_spec(module), reason=reason)


def exported(tmp_path, system, name=str(FOLDER)):
    files = bundles.export(assignments.find(name), system, SEED)
    write_new(tmp_path / system, {tmp_path / system / path: text for path, text in files.items()})
    return tmp_path / system


def run(folder, *command, **more):
    """Runs a command that uses this Python and this gpureduce."""
    paths = {
        "PYTHONPATH": str(Path(gpureduce.__file__).parents[1]),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(command, cwd=folder, env=os.environ | paths | more, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def with_kernel(notebook, file, to):
    """A notebook with another kernel in its %%kernel cell; None leaves the start file there."""
    found = json.loads(notebook.read_text())
    for cell in found["cells"]:
        if file and "".join(cell["source"]).startswith("%%kernel"):
            text = "%%kernel first_tree\n" + (FOLDER / file).read_text()
            cell["source"] = text.splitlines(keepends=True)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(found))


SOLUTIONS = {
    "right": ("reference.cu", 10), "unchanged": (None, 0),
    "powers": ("wrong/only_powers_of_two.cu", 3), "broken": ("wrong/does_not_compile.cu", 0),
}  # fmt: skip


@needs("nbgrader")
def test_nbgrader_itself(tmp_path):
    course = exported(tmp_path, "nbgrader")
    (course / "nbgrader_config.py").write_text(
        'c = get_config()\nc.CourseDirectory.course_id = "gpu"\n'
    )
    nbgrader = (sys.executable, "-m", "nbgrader")
    run(course, *nbgrader, "generate_assignment", "first_tree")
    release = course / "release" / "first_tree" / "first_tree.ipynb"
    assert str(SEED) not in release.read_text() and "HIDDEN" not in release.read_text()
    for who, (file, _) in SOLUTIONS.items():
        with_kernel(release, file, course / "submitted" / who / "first_tree" / release.name)
    run(course, *nbgrader, "autograde", "first_tree")
    run(course, *nbgrader, "export", "--to=grades.csv")
    rows = csv.DictReader((course / "grades.csv").read_text().splitlines())
    scores = {row["student_id"]: float(row["score"]) for row in rows}
    assert scores == {who: points for who, (_, points) in SOLUTIONS.items()}


@needs("otter")
@pytest.mark.parametrize("who", ["right", "powers"])
def test_otter_itself(tmp_path, who):
    bundle, (file, points) = exported(tmp_path, "otter"), SOLUTIONS[who]
    release = bundle / "release" / "first_tree.ipynb"
    assert all(str(SEED) not in one.read_text() for one in bundle.glob("release/**/*.*"))
    run(bundle / "autograder", sys.executable, "-m", "otter", "generate")
    with_kernel(release, file, tmp_path / "submission.ipynb")
    autograder = str(bundle / "autograder" / "autograder.zip")
    run(tmp_path, sys.executable, "-m", "otter", "run", "submission.ipynb", "-a", autograder)
    found = json.loads((tmp_path / "results.json").read_text())
    assert sum(row.get("score", 0) for row in found["tests"]) == points
    assert sum(row.get("max_score", 0) for row in found["tests"]) == 10


def check_results(found):
    """What Gradescope's documentation says of results.json."""
    kinds = {"score": float, "execution_time": (int, float), "output": str, "tests": list,
             "visibility": str, "stdout_visibility": str, "extra_data": dict}  # fmt: skip
    row_kinds = {"score": float, "max_score": float, "name": str, "number": str, "output": str,
                 "status": str, "tags": list, "visibility": str, "extra_data": dict}  # fmt: skip
    for what, known in ((found, kinds), *((row, row_kinds) for row in found["tests"])):
        for key, value in what.items():
            assert isinstance(value, known[key]), key
    for row in found["tests"]:
        assert 0 <= row["score"] <= row["max_score"] and row["status"] in ("passed", "failed")


@pytest.mark.parametrize("file", ["reference.cu", "wrong/does_not_compile.cu", None])
def test_gradescope(tmp_path, file):
    """The zip file is unpacked and run as the documentation says."""
    bundle, place = exported(tmp_path, "gradescope"), tmp_path / "autograder"
    with zipfile.ZipFile(bundle / "autograder.zip") as archive:
        assert {"setup.sh", "run_autograder"} < {*archive.namelist()}  # at its root
        assert archive.getinfo("run_autograder").external_attr >> 16 & 0o111
        archive.extractall(place / "source")
    for name in ("submission", "results", "bin"):
        (place / name).mkdir()
    shutil.copy(place / "source" / "run_autograder", place)
    shim = place / "bin" / "gpureduce"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m gpureduce "$@"\n')
    shim.chmod(0o755)
    if file:
        shutil.copy(FOLDER / file, place / "submission" / "my solution.cu")
    run(place, "bash", "./run_autograder", PATH=f"{shim.parent}:{os.environ['PATH']}")
    found = json.loads((place / "results" / "results.json").read_text())
    check_results(found)
    assert sum(row["score"] for row in found["tests"]) == (10 if file == "reference.cu" else 0)
    assert bool(found["output"]) is (file != "reference.cu")
    run(place, "bash", "-n", "source/setup.sh")


@needs("yaml")
def test_github(tmp_path):
    import yaml

    workflow = exported(tmp_path, "github") / "repository/.github/workflows/classroom.yml"
    (job,) = yaml.safe_load(workflow.read_text())["jobs"].values()
    rules = assignments.find(str(FOLDER)).checked.rules
    steps = {step["id"]: step["with"] for step in job["steps"] if "id" in step}
    assert [(one["test-name"], one["max-score"]) for one in steps.values()] == [
        (row.rule, row.points) for row in rules
    ]
    *_, reporter = job["steps"]
    assert reporter["with"]["runners"].split(",") == [*steps]
    assert [*reporter["env"]] == [f"{name.upper()}_RESULTS" for name in steps]
    command = steps["rule-2"]["command"].replace("${{ env.SEED }}", "5").split()
    assert main([*command[1:2], str(tmp_path / "github/repository/spec.toml"),
                 str(FOLDER / "reference.cu"), *command[4:]]) == 0  # fmt: skip


def test_the_cells_without_these_systems():
    """Each assignment's test cell, and its test file, are Python and give the points."""
    one = assignments.find(str(FOLDER))
    notebook = json.loads(
        bundles.export(one, "nbgrader", SEED)["source/first_tree/first_tree.ipynb"]
    )
    *body, last = ast.parse("".join(notebook["cells"][-1]["source"])).body
    names = {"first_tree": gpureduce.kernel(FOLDER / "wrong" / "only_powers_of_two.cu")}
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    assert eval(compile(ast.Expression(last.value), "cell", "eval"), names) == 3.0
    assert names["seed"] == SEED
    for name in assignments.packaged():
        for text in bundles.export(assignments.find(name), "otter", SEED).values():
            if "@test_case" in text:
                compile(text, name, "exec")


@pytest.mark.parametrize("system", bundles.SYSTEMS)
def test_what_students_get(tmp_path, system, capsys):
    """Neither the reference nor the seed; and no file is replaced."""
    out = tmp_path / "out"
    command = ["assignment", "export", "first_tree", "--for", system, "--out", str(out)]
    assert main([*command, "--seed", str(SEED)]) == 0
    assert str(out) in capsys.readouterr().out
    reference = (FOLDER / "reference.cu").read_text()
    wall = reference.splitlines()[7].strip()  # of the tree, which the start file lacks
    assert wall not in (FOLDER / "start.cu").read_text() and len(wall) > 20
    for path in out.rglob("*"):
        if path.is_file() and path.suffix != ".zip":
            assert wall not in path.read_text(), path
            is_release = "release" in path.parts or "repository" in path.parts
            assert not is_release or str(SEED) not in path.read_text(), path
    assert main(command) == 2 and "exists and is not empty" in capsys.readouterr().err


def test_a_title_ends_no_comment():
    one = assignments.find(str(FOLDER))
    spec = one.files["spec.toml"].replace("The first tree", """a\\"\\"\\"\\nraise SystemExit\\n""")
    hostile = assignments.Assignment(one.name, {**one.files, "spec.toml": spec})
    for system in bundles.SYSTEMS:
        for path, text in bundles.export(hostile, system, 0).items():
            if path.endswith(".py"):
                assert not re.search(r"(?m)^raise", text)
                assert not [x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Raise)]


def test_points_of_a_workflow_have_no_exponent():
    one = assignments.find(str(FOLDER))
    spec = re.sub(r"points = \d+", "points = 1000000", one.files["spec.toml"])
    many = assignments.Assignment(one.name, {**one.files, "spec.toml": spec})
    workflow = bundles.export(many, "github", 0)["repository/.github/workflows/classroom.yml"]
    assert "max-score: 1000000\n" in workflow and "e+" not in workflow


def test_an_assignment_of_ones_own(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["assignment", "new", "my_task", "--like", "no_conflicts"]) == 0
    assert main(["assignment", "new", "my_task"]) == 2
    folder = tmp_path / "my_task"
    assert 'title = "My task"' in (folder / "spec.toml").read_text()
    assert "void my_task(" in (folder / "reference.cu").read_text()
    for path in folder.glob("wrong/*"):
        if path.name != "strided_loads.cu":
            path.unlink()
    assert main(["assignment", "check", "my_task"]) == 0
    capsys.readouterr()
    wrong = folder / "wrong" / "strided_loads.cu"
    wrong.write_text("// loses: no races\n" + (folder / "reference.cu").read_text())
    spec = folder / "spec.toml"
    spec.write_text(spec.read_text().replace("given = true\n", "", 1))
    with pytest.raises(SystemExit, match="1"):
        main(["assignment", "check", "my_task"])
    said = capsys.readouterr().out
    assert "it does not lose no races" in said and "add given = true to the rules right" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list"], ""),
        (["check"], "name the assignment"),
        (["check", "first_three"], "did you mean first_tree?"),
        (["export", "first_tree"], "name the system by --for: nbgrader, otter"),
        (["new", "a-b"], "a folder's name is also the kernel's"),
        (["export", "first_tree", "--for", "otter", "--seed", "-1"], "seed must be"),
    ],
)
def test_arguments(tmp_path, words, message, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["assignment", *words]) == (2 if message else 0)
    said = capsys.readouterr()
    assert message in said.err and (message or "The last block finishes" in said.out)
    assert not [*tmp_path.iterdir()]


def test_those_of_the_package_are_those_of_the_source():
    texts = {path.name: path.read_text() for path in (ROOT / "notebooks" / "bundles").iterdir()}
    assert assignments.packaged_files()["bundles"] == texts, "build gpureduce again"
    for name, one in assignments.packaged().items():
        files = assignments.find(str(ROOT / "notebooks" / "assignments" / name)).files
        assert one.files == files, f"{name}: build gpureduce again"


def test_odd_assignments(tmp_path):
    """A task with the names of templates, a spec that names the second kernel, an odd folder."""
    first = "__global__ void before(const int *in, int *out, size_t n) { out[0] = in[0]; }\n"
    start = f"// Write {{{{seed}}}} and {{{{start}}}}.\n{first}" + (FOLDER / "start.cu").read_text()
    files = {**assignments.find(str(FOLDER)).files}
    one = assignments.Assignment("odd", files | {"start.cu": start})
    assert one.checked.kernel == "first_tree"
    for system in bundles.SYSTEMS:
        for path, text in bundles.export(one, system, SEED).items():
            if path.startswith(("release", "repository")):
                assert str(SEED) not in str(text), path
    with pytest.raises(ValueError, match="files are named after the folder"):
        bundles.export(assignments.Assignment("my $(task)", one.files), "github", SEED)
