"""A spec for other graders: a test file of Otter-Grader, and a test cell of nbgrader.

Both hold the spec itself, so they need no further file.
"""

from __future__ import annotations

import keyword
import os
from collections.abc import Mapping
from typing import Any

from gpureduce.core.checks import shown
from gpureduce.kernels.spec import checked, given

_OTTER = '''"""{title}: made by gpureduce grade SPEC.toml --otter {name}"""

import functools

import gpureduce
from otter.test_files import test_case

OK_FORMAT = False
name = {name!r}
points = None

SPEC = {spec}


@functools.cache
def _grade(kernel):
    return gpureduce.grade(kernel, SPEC, seed={seed})


def _check(kernel, number):
    row = _grade(kernel).rows[number]
    assert row.holds, row.why
'''
_OTTER_CASE = """

@test_case(name={rule!r}, points={points!r})
def test_{number}({name}):
    _check({name}, {number})
"""
_NBGRADER = """# {title}: made by gpureduce grade SPEC.toml --nbgrader {name}. Set the points of this cell to {most:g}.
import gpureduce

SPEC = {spec}
grade = gpureduce.grade({name}, SPEC, seed={seed})
print(grade)
float(grade)  # the last value is the partial credit
"""  # noqa: E501

Spec = str | os.PathLike[str] | Mapping[str, Any]


def _parts(spec: Spec, name: str, seed: int) -> dict[str, Any]:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(
            f"the kernel's name in the notebook is that of a variable, not {shown(name)}"
        )
    known, text = checked(spec), given(spec)
    return {
        "title": _one_line(known.title),
        "name": name,
        "seed": seed,
        "spec": _literal(text),
        "most": sum(points for _, points, _ in known.rules),
        "rules": known.rules,
    }


def _one_line(title: str) -> str:
    """A title that ends neither a comment nor a docstring."""
    return " ".join(title.replace("\\", "/").replace('"', "'").split())


def _literal(spec: Mapping[str, Any]) -> str:
    """The spec as Python has it: a line for each rule."""
    rows = [f"    {key!r}: {value!r}," for key, value in spec.items() if key != "require"]
    rules = [f"        {dict(rule)!r}," for rule in spec["require"]]
    return "\n".join(["{", *rows, "    'require': [", *rules, "    ],", "}"])


def otter_test(spec: Spec, name: str, seed: int = 0) -> str:
    """The text of a test file for Otter-Grader: a test case for each rule of the spec.

    `name` is the variable that holds the student's kernel.

    >>> spec = {"require": [{"rule": "right", "points": 2}]}
    >>> print(otter_test(spec, "my_rung").splitlines()[-3])
    @test_case(name='right', points=2.0)
    """
    parts = _parts(spec, name, seed)
    cases = [
        _OTTER_CASE.format(rule=rule, points=points, number=number, **parts)
        for number, (rule, points, _) in enumerate(parts["rules"])
    ]
    return _OTTER.format(**parts) + "".join(cases)


def nbgrader_cell(spec: Spec, name: str, seed: int = 0) -> str:
    """The source of a test cell for nbgrader, whose last value is the partial credit.

    >>> spec = {"require": [{"rule": "right", "points": 2}]}
    >>> print(nbgrader_cell(spec, "my_rung").splitlines()[-1])
    float(grade)  # the last value is the partial credit
    """
    return _NBGRADER.format(**_parts(spec, name, seed))
