"""``%load_ext gpureduce`` and ``%%kernel`` in a real IPython shell, and ``gpureduce check``."""

from __future__ import annotations

import json
import shutil

import pytest

import gpureduce
from gpureduce.cli.main import main
from user_kernels import TREE, plain

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")


@pytest.fixture
def shell():
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    made = interactive.InteractiveShell.instance()
    made.run_line_magic("load_ext", "gpureduce")
    yield made
    interactive.InteractiveShell.clear_instance()


def test_a_cell(shell):
    verdict = shell.run_cell_magic("kernel", "mine --dtype int32", TREE)
    assert verdict and verdict.dtypes == ("int32",) and verdict.hint
    assert shell.user_ns["mine"].name == "my_rung"
    done = shell.run_cell("import gpureduce\nfloat(gpureduce.sum([1.0, 2.0], mine).value)")
    assert done.result == 3
    assert "border-left" in verdict._repr_html_()


def test_options_of_a_cell(shell):
    text = plain("if (threadIdx.x + blockIdx.x == 0) out[0] = in[0];")
    assert shell.run_cell_magic("kernel", "f --no-check --elements many", text) is None
    assert shell.user_ns["f"].options["elements"] == "many"
    verdict = shell.run_cell_magic("kernel", "f --no-hint", text)
    assert not verdict and verdict.hint is None and verdict.failures[0].case.n == 2
    with pytest.raises(ValueError, match="%%kernel: unrecognized arguments: --speed"):
        shell.run_cell_magic("kernel", "f --speed", text)
    with pytest.raises(gpureduce.KernelError, match=r"my_rung\.cu:2:"):
        shell.run_cell_magic("kernel", "f", TREE.replace("{\n", "{ oops;\n", 1))


def test_the_command(tmp_path, capsys):
    (tmp_path / "my.cu").write_text(TREE)
    (tmp_path / "wrong.cu").write_text(TREE.replace("i < n ?", "i + 1 < n ?"))
    assert main(["check", str(tmp_path / "my.cu"), "--dtype", "int32"]) == 0
    assert "nothing wrong found" in capsys.readouterr().out
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit) as status:
        main(["check", str(tmp_path / "wrong.cu"), "--json", "--html", str(page)])
    assert status.value.code == 1
    told = json.loads(capsys.readouterr().out)
    assert told["passes"] is False and told["failures"][0]["counted"] == [[0, 0]]
    assert "left out" in page.read_text()
    (tmp_path / "bad.cu").write_text(TREE.replace("threadIdx.x;", "threadIdx.q;"))
    assert main(["check", str(tmp_path / "bad.cu")]) == 2
    assert "bad.cu:4:" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none.cu")]) == 2
    assert "none.cu" in capsys.readouterr().err
