"""``gpureduce audit``: its output and its exit statuses."""

from __future__ import annotations

import json

import pytest

from gpureduce.cli import main

ARGS = """
import numpy as np
from gpureduce import exact
args = (np.random.default_rng(0).standard_normal((9, 700), np.float32),)
kwargs = {"axis": 1}
"""


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Runs the command in a folder with modules; returns its exit status, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "args.py").write_text(ARGS)

    def run(*words):
        try:
            status = main.main(["audit", *map(str, words)])
        except SystemExit as ended:
            status = ended.code
        return (status, *capsys.readouterr())

    return run


def test_statuses_and_reports(command, tmp_path):
    status, out, err = command("gpureduce.exact:sum", "--args", "args.py")
    assert (status, err) == (0, "") and out.startswith("sum(axis=1) gives the same bits in 9")
    status, out, _ = command(
        "numpy:sum",
        "--args",
        "args.py",
        "--json",
        "--html",
        "a.html",
        "--checks",
        "strides",
        "twice",
    )
    assert status == 1 and [one["check"] for one in json.loads(out)["findings"]] == [
        "twice", "strides"
    ]  # fmt: skip
    assert "strides" in (tmp_path / "a.html").read_text()
    assert command("numpy:sum", "--args", "args.py", "--html", "a.html")[0] == 1  # an earlier one
    (tmp_path / "b.html").write_text("mine")
    assert command("numpy:sum", "--args", "args.py", "--html", "b.html")[0] == 2
    status, out, _ = command("numpy:linalg.norm", "--args", "args.py", "--truth", "norm")
    assert status == 1 and "from the exact norm" in out


def test_a_module_of_the_users(command, tmp_path):
    (tmp_path / "users_own.py").write_text("def f(x, w):\n    return x.max(axis=1) + w.max()\n")
    (tmp_path / "two.py").write_text(
        "import numpy as np\ndef args():\n    return np.eye(4), np.eye(3)"
    )
    status, out, err = command("users_own:f", "--args", "two.py", "--along", "0,none")
    assert (status, err) == (0, "") and out.startswith("f gives the same bits")


BAD = {
    "no function": (["numpy", "--args", "args.py"], "name a function as numpy:sum"),
    "no module": (["no_such_one:f", "--args", "args.py"], "No module named 'no_such_one'"),
    "no name": (["numpy:summ", "--args", "args.py"], "has no attribute 'summ'"),
    "no file": (["numpy:sum", "--args", "none.py"], "no file none.py"),
    "no args": (["numpy:sum", "--args", "exits.py"], "exits.py: SystemExit: 0"),
    "no tuple": (["numpy:sum", "--args", "empty.py"], "empty.py must set args to a tuple"),
    "raises": (["numpy:linalg.cholesky", "--args", "args.py"], "the function raises TypeError"),
    "an axis": (["numpy:sum", "--args", "args.py", "--along", "row"], "--along"),
    "a check": (["numpy:sum", "--args", "args.py", "--checks", "twise"], "did you mean twice?"),
    "missing": (["numpy:sum"], "--args is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_usage(name, command, tmp_path):
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    (tmp_path / "empty.py").write_text("")
    words, reason = BAD[name]
    status, out, err = command(*words)
    assert status == 2 and not out and reason in err and "Traceback" not in err
