"""``gpureduce audit``: its output and its exit statuses."""

from __future__ import annotations

import json
import sys

import pytest

ARGS = """
import numpy as np
args = (np.random.default_rng(0).standard_normal((9, 700), np.float32),)
kwargs = {"axis": 1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "args.py").write_text(ARGS)
    return tmp_path


def test_statuses_and_reports(command, folder):
    status, out, err = command("audit", "gpureduce.exact:sum", "--args", "args.py")
    assert (status, err) == (0, "") and out.startswith("sum(axis=1) gives the same bits in 9")
    (folder / "some.py").write_text(ARGS + "checks = ['strides', 'twice']")
    words = ["audit", "numpy:sum", "--args", "some.py", "--json"]
    status, out, _ = command(*words, "--html", "a.html")
    rows = json.loads(out)["findings"]
    assert status == 1 and [one["check"] for one in rows] == ["twice", "strides"]
    page = (folder / "a.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "strides" in page
    assert command(*words, "--html", "a.html")[0] == 1  # an earlier one
    (folder / "b.html").write_text("mine")
    assert command(*words, "--html", "b.html")[0] == 2
    (folder / "norm.py").write_text(ARGS + "truth = 'norm'")
    status, out, _ = command("audit", "numpy:linalg.norm", "--args", "norm.py")
    assert status == 1 and "from the exact norm" in out


def test_a_module_of_the_users(command, folder):
    (folder / "users_own.py").write_text("def f(x, w):\n    return x.max(axis=0) + w\n")
    (folder / "two.py").write_text("import numpy\nargs, along = (numpy.eye(4),) * 2, 1")
    status, out, err = command("audit", "users_own:f", "--args", "two.py")
    assert (status, err) == (0, "") and out.startswith("f gives the same bits")


def test_what_the_users_code_prints_is_no_json(command, folder):
    (folder / "prints.py").write_text("print(1)\ndef f(x):\n    print(2)\n    return x")
    (folder / "args.py").write_text(ARGS + "print(3)\nkwargs = {}")
    status, out, err = command("audit", "prints:f", "--args", "args.py", "--json")
    assert status == 0 and json.loads(out)["holds"] and err.startswith("1\n3\n2\n")


BAD = {
    "numpy": "name a function as numpy:sum, MODULE:FUNCTION",
    "no_such_one:f": "No module named 'no_such_one'",
    "numpy:summ": "has no attribute 'summ'",
    "numpy:pi": "f must be a function, not 3.14",
    "numpy:linalg.cholesky": "the function raises TypeError",
    "numpy:sum --args none.py": "none.py raises FileNotFoundError",
    "numpy:sum --args exits.py": "exits.py raises SystemExit: 0",
    "numpy:sum --args empty.py": "empty.py must set args to a tuple",
    "numpy:sum --args odd.py": "odd.py must set args to a tuple of arrays, and kwargs to a dict",
    "numpy:sum --args truth.py": "truth must be one of sum, mean",
    "numpy:sum --args checks.py": "checks must be one of arguments, twice",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_usage(words, command, folder):
    (folder / "exits.py").write_text("raise SystemExit(0)")
    (folder / "empty.py").write_text("")
    (folder / "odd.py").write_text(ARGS + "kwargs = 5")
    (folder / "truth.py").write_text(ARGS + "truth = 'summ'")
    (folder / "checks.py").write_text(ARGS + "checks = ['twise']")
    file = [] if "--args" in words else ["--args", "args.py"]
    status, out, err = command("audit", *words.split(), *file)
    assert status == 2 and not out and BAD[words] in err and "Traceback" not in err
