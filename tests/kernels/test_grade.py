"""Grades: the rules, the specs, and the assignments with the solutions that must lose points."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import gpureduce
from gpureduce.cli.main import main
from user_kernels import TREE

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
ASSIGNMENTS = Path(__file__).resolve().parents[2] / "notebooks" / "assignments"
NAMES = sorted(path.name for path in ASSIGNMENTS.iterdir()) if ASSIGNMENTS.exists() else []
WRONG = sorted(path.relative_to(ASSIGNMENTS) for path in ASSIGNMENTS.glob("*/wrong/*.cu"))


def test_there_are_assignments():
    assert len(NAMES) == 8 and len(WRONG) >= 45
    for name in NAMES:  # each can be wrong in at least three ways
        assert sum(path.parts[0] == name for path in WRONG) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_a_reference_passes_and_its_start_does_not(name):
    folder = ASSIGNMENTS / name
    grade = gpureduce.grade(folder / "reference.cu", folder / "spec.toml")
    assert grade.points == grade.most == 10, str(grade)
    assert gpureduce.grade(folder / "reference.cu", folder / "spec.toml", seed=7).points == 10
    start = gpureduce.grade(folder / "start.cu", folder / "spec.toml")
    assert start.points < 7, str(start)


@pytest.mark.parametrize("path", WRONG, ids=str)
def test_a_wrong_solution_loses_the_points_it_should(path):
    """The first line of the file names the rules; of a wrong kernel, no other rule but these."""
    file, spec = ASSIGNMENTS / path, ASSIGNMENTS / path.parts[0] / "spec.toml"
    first = file.read_text().partition("\n")[0]
    loses = set(re.fullmatch(r"// loses: (.*)", first)[1].split("; "))
    grade = gpureduce.grade(file, spec)
    lost = {row.rule for row in grade.rows if not row.holds}
    assert loses <= lost, str(grade)
    if "right" not in loses and "no races" not in loses:
        assert lost == loses, str(grade)
    else:  # the rules of counts give points to right kernels alone
        others = lost - loses
        assert not others & {"right", "no races", "compiles"}, str(grade)


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("lines <= 15", True),
        ("lines < 15", False),
        ("use __syncthreads", True),
        ("forbid __syncthreads", False),
        ("block_barriers <= 12 per block", True),
        ("block_barriers < 10 per block", False),
        ("global_load_sectors <= 1.05 times the least", True),
        ("global_load_sectors < 1 times the least", False),
        ("shared_load_conflicts == 0", True),
        ("atomics > 0", False),
    ],
)
def test_a_rule(rule, holds):
    spec = {"dtypes": ["int32"], "require": [{"rule": rule, "points": 5}]}
    grade = gpureduce.grade(TREE, spec)
    assert (grade.rows[0].holds, grade.points) == (holds, 5.0 * holds), str(grade)
    assert bool(grade.rows[0].why) is not holds


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "has no rule"),
        ({"rules": []}, "has 'rules'; a spec has title, dtypes, require"),
        ({"require": [{"rule": "fast"}]}, "has the rule 'fast'; a rule is one of"),
        ({"require": [{"rule": "speed <= 3"}]}, "a rule is one of"),
        ({"require": [{"rule": "atomics <= 2 times the least"}]}, "the least is known for"),
        ({"require": [{"rule": "right", "points": -1}]}, "points are a number from 0"),
        ({"require": [{"points": 3}]}, "it has rule, points, says"),
    ],
)
def test_a_spec_that_cannot_be(spec, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        gpureduce.grade(TREE, spec)


def test_files_that_are_no_specs(tmp_path):
    (tmp_path / "spec.toml").write_text("title = ")
    with pytest.raises(ValueError, match="is no TOML"):
        gpureduce.grade(TREE, tmp_path / "spec.toml")
    with pytest.raises(FileNotFoundError):
        gpureduce.grade(TREE, tmp_path / "none.toml")


def test_forms_of_a_grade(tmp_path, capsys):
    spec = {"title": "T", "require": [{"rule": "right", "points": 2}, {"rule": "use foo"}]}
    grade = gpureduce.grade(TREE, spec)
    assert float(grade) == 2 and grade.most == 3 and "T: 2 of 3 points" in str(grade)
    told = json.loads(grade.to_json())
    assert told["points"] == 2 and told["rules"][1]["why"] == "foo is not there"
    tests = grade.gradescope()["tests"]
    assert [(t["score"], t["max_score"], t["status"]) for t in tests] == [
        (2, 2, "passed"),
        (0, 1, "failed"),
    ]
    (tmp_path / "spec.toml").write_text('[[require]]\nrule = "right"\npoints = 4\n')
    (tmp_path / "my.cu").write_text(TREE)
    paths = [str(tmp_path / "spec.toml"), str(tmp_path / "my.cu")]
    assert main(["grade", *paths, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"] == 4
    assert main(["grade", *paths, "--gradescope", "--seed", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["tests"][0]["score"] == 4


@pytest.mark.parametrize(
    "spec",
    [
        {"require": 5},
        {"require": "right"},
        {"require": [5]},
        {"require": [[1]]},
        {"require": [{5: 5}]},
        {"require": [{"rule": "right", "points": 10**400}]},
        {"require": [{"rule": "right", "points": float("nan")}]},
        {"require": [{"rule": "right", "points": float("inf")}]},
        {"require": [{"rule": "right"}], "dtypes": 5},
        {"require": [{"rule": "right"}], "dtypes": "float32"},
        {"require": [{"rule": "right"}], "dtypes": [5]},
        {"require": [{"rule": "right"}], "dtypes": ["float33"]},
    ],
)
def test_a_field_of_another_type(spec):
    with pytest.raises(ValueError, match=r"^the spec"):
        gpureduce.grade(TREE, spec)


def test_files_that_do_not_end_or_are_nested_too_deeply(tmp_path):
    deep = tmp_path / "deep.toml"
    deep.write_text("x = " + "[" * 50_000)
    for path in (deep, Path("/dev/zero")):
        with pytest.raises(ValueError, match=rf"{path} is no TOML: it (has more|is nested)"):
            gpureduce.grade(TREE, path)
    with pytest.raises(gpureduce.KernelError, match="/dev/zero is no kernel's text"):
        gpureduce.kernel(Path("/dev/zero"))
