"""An assignment as other grading systems take it: a release for students, and what grades it.

The release has neither the reference nor the seed that grades. Texts: notebooks/bundles.
"""

from __future__ import annotations

import io
import json
import pprint
import re
import zipfile
from collections.abc import Callable
from typing import Any

from gpureduce.classroom.assignments import Assignment, packaged_files
from gpureduce.text import decimal
from gpureduce.version import VERSION

Files = dict[str, str | bytes]
_Cell = tuple[str, str, dict[str, Any]]  # its kind, its text, and nbgrader's fields


def _filled(template: str, facts: dict[str, Any]) -> str:
    """A text of notebooks/bundles with values in place of names in double braces."""
    text: str = packaged_files()["bundles"][template]
    return re.sub(r"\{\{(\w+)\}\}", lambda found: f"{facts[found[1]]}", text)


def _facts(one: Assignment, seed: int) -> dict[str, Any]:
    wanted = one.checked
    rows = [f"| `{row.rule}` | {decimal(row.points)} |" for row in wanted.rules]
    return {
        "name": one.name, "kernel": wanted.kernel, "task": one.task, "seed": seed,
        "version": VERSION, "start": one.files["start.cu"],
        "title": " ".join(wanted.title.replace("\\", "/").replace('"', "'").split()),
        "rules": "\n".join(["| rule | points |", "|---|---:|", *rows]),
        "spec": pprint.pformat(one.spec, sort_dicts=False, width=100),
    }  # fmt: skip


def _of_rules(template: str, one: Assignment) -> str:
    """A text for each rule."""
    return "".join(
        _filled(template, {
            "number": number, "quoted": json.dumps(row.rule), "points": decimal(row.points),
            "kernel": one.checked.kernel, "name": one.name,
        })
        for number, row in enumerate(one.checked.rules, 1)
    )  # fmt: skip


def _notebook(one: Assignment, facts: dict[str, Any], before: list[_Cell], after: _Cell) -> str:
    """A notebook: the task, some cells, the start file in a %%kernel cell, and a last cell."""
    task = f"# {facts['title']}\n\n{one.task}\n\n{facts['rules']}\n"
    cells: list[_Cell] = [("markdown", task, {"grade_id": "task"}), *before,
                          ("code", "%load_ext gpureduce", {"grade_id": "load"}),
                          ("code", f"%%kernel {one.checked.kernel}\n{facts['start']}", {}),
                          after]  # fmt: skip
    made: list[dict[str, Any]] = []
    for number, (kind, text, fields) in enumerate(cells):
        usual = {"grade": False, "locked": True, "schema_version": 3, "solution": False,
                 "task": False, "cell_type": kind}  # fmt: skip
        made.append({
            "cell_type": kind, "id": f"cell-{number}", "source": text.splitlines(keepends=True),
            "metadata": {"nbgrader": usual | fields} if fields else {},
            **({"execution_count": None, "outputs": []} if kind == "code" else {}),
        })  # fmt: skip
    names = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": names}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1) + "\n"


def _release(one: Assignment, facts: dict[str, Any], folder: str) -> Files:
    """What students get where they hand in a .cu file."""
    return {
        f"{folder}/{one.name}.cu": facts["start"], f"{folder}/spec.toml": one.files["spec.toml"],
        f"{folder}/README.md": _filled("release.md", facts),
    }  # fmt: skip


def nbgrader(one: Assignment, facts: dict[str, Any]) -> Files:
    """A notebook for the folder ``source`` of a course of nbgrader."""
    points = sum(row.points for row in one.checked.rules)
    fields = {"grade_id": "points", "grade": True, "points": points}
    cell = _filled("nbgrader_cell.txt", facts).rstrip()
    notebook = _notebook(one, facts, [], ("code", cell, fields))
    return {f"source/{one.name}/{one.name}.ipynb": notebook}


def otter(one: Assignment, facts: dict[str, Any]) -> Files:
    """A notebook for students, and the test files of Otter-Grader."""
    first: _Cell = ("code", f'import otter\n\ngrader = otter.Notebook("{one.name}.ipynb")', {})
    cases = _of_rules("otter_case.txt", one)
    last: _Cell = ("code", f'grader.check("{one.checked.kernel}")', {})
    return {
        f"release/{one.name}.ipynb": _notebook(one, facts, [first], last),
        f"release/tests/{one.checked.kernel}.py": _filled("otter_test.txt", facts | {"seed": 0})
        + cases,
        f"autograder/tests/{one.checked.kernel}.py": _filled("otter_test.txt", facts) + cases,
        "autograder/requirements.txt": f"gpureduce=={VERSION}\n",
    }


def gradescope(one: Assignment, facts: dict[str, Any]) -> Files:
    """The zip file of an autograder of Gradescope."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("setup.sh", "run_autograder", "spec.toml"):
            text = one.files[name] if name in one.files else _filled(name, facts)
            row = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            row.external_attr = 0o755 << 16
            archive.writestr(row, text)
    return {**_release(one, facts, "release"), "autograder.zip": packed.getvalue()}


def github(one: Assignment, facts: dict[str, Any]) -> Files:
    """A template repository of GitHub Classroom, whose workflow grades each push."""
    if odd := [row.points for row in one.checked.rules if not row.points.is_integer()]:
        raise ValueError(f"GitHub Classroom takes only whole points, not {decimal(odd[0])}")
    steps = [f"rule-{i}" for i in range(1, len(one.checked.rules) + 1)]
    results = [f'          {step.upper()}_RESULTS: "${{{{steps.{step}.outputs.result}}}}"\n'
               for step in steps]  # fmt: skip
    workflow = _filled("classroom.txt", facts | {
        "steps": _of_rules("classroom_step.txt", one), "results": "".join(results),
        "runners": ",".join(steps),
    })  # fmt: skip
    path = "repository/.github/workflows/classroom.yml"
    return {**_release(one, facts, "repository"), path: workflow}


SYSTEMS: dict[str, Callable[[Assignment, dict[str, Any]], Files]] = {
    "nbgrader": nbgrader, "otter": otter, "gradescope": gradescope, "github": github,
}  # fmt: skip


def export(one: Assignment, system: str, seed: int) -> Files:
    """The files of a bundle by their path, and a README.md that says what goes where."""
    if not re.fullmatch(r"[\w-]+", one.name, re.ASCII):
        raise ValueError(
            f"files are named after the folder: letters, digits, _ and -, not {one.name!r}"
        )
    facts = _facts(one, seed)
    return {**SYSTEMS[system](one, facts), "README.md": _filled(f"{system}.md", facts)}
