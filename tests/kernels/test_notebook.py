"""``%load_ext gpureduce`` and ``%%kernel`` in a real IPython shell, and ``gpureduce check``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

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
    verdict = shell.run_cell_magic("kernel", "mine --dtype int32 --blocks 64", TREE)
    assert verdict and verdict.dtypes == ("int32",) and verdict.hint
    assert shell.user_ns["mine"].name == "my_rung"
    done = shell.run_cell("import gpureduce\nfloat(gpureduce.sum([1.0, 2.0], mine).value)")
    assert done.result == 3
    assert "border-left" in verdict._repr_html_()


def test_options_of_a_cell(shell):
    text = plain("if (threadIdx.x + blockIdx.x == 0) out[0] = in[0];")
    assert shell.run_cell_magic("kernel", "f --no-check --elements many", text) is None
    assert shell.user_ns["f"].options["elements"] == "many"
    verdict = shell.run_cell_magic("kernel", "f --no-hint --blocks 64", text)
    assert not verdict and verdict.hint is None and verdict.failures[0].case.n == 2
    assert shell.run_cell_magic("kernel", "f --dtype float32 --seed 3 --blocks 64", text).failures
    with pytest.raises(gpureduce.KernelError, match=r"my_rung\.cu:2:"):
        shell.run_cell_magic("kernel", "f", TREE.replace("{\n", "{ oops;\n", 1))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("f --speed", "unrecognized arguments: --speed; as in %%kernel my_rung --elements 2"),
        ("", "the following arguments are required: name"),
        ("f --elements 7x", "argument --elements: invalid choice: '7x'"),
        ("2f", "'2f' cannot name the variable that the kernel is stored in"),
        ("if", "'if' cannot name the variable that the kernel is stored in"),
        ("f 'a", "No closing quotation"),
    ],
)
def test_wrong_options_of_a_cell_are_a_line(shell, capsys, line, message):
    shell.run_cell(f"%%kernel {line}\n{TREE}")
    said = capsys.readouterr()
    assert (said.out + said.err).startswith(f"UsageError: %%kernel: {message}")
    assert len((said.out + said.err).splitlines()) == 1


def test_errors_of_a_cell_have_no_traceback(shell, capsys, monkeypatch):
    shell.run_cell("%%kernel f\n" + TREE.replace("{\n", "{ oops;\n", 1))
    said = capsys.readouterr().out
    assert said.startswith("KernelError: the compiler refuses the kernel:\nmy_rung.cu:2:")
    assert "Traceback" not in said and "run_cell_magic" not in said
    monkeypatch.setenv("CXX", "no-such-compiler")
    shell.run_cell("%%kernel f\n" + TREE)
    said = capsys.readouterr()
    assert (said.out + said.err).startswith("UsageError: %%kernel: a kernel of yours is compiled")


def test_a_cell_with_two_kernels(shell):
    text = TREE + TREE.replace("my_rung", "two")
    shell.run_cell_magic("kernel", "two --no-check", text)
    assert shell.user_ns["two"].name == "two"
    with pytest.raises(gpureduce.KernelError, match="name one of my_rung, two"):
        shell.run_cell_magic("kernel", "three --no-check", text)


def test_the_commands_without_a_compiler(tmp_path, capsys, monkeypatch):
    (tmp_path / "my.cu").write_text(TREE)
    (tmp_path / "spec.toml").write_text('[[require]]\nrule = "right"\npoints = 1\n')
    monkeypatch.setenv("CXX", "no-such-compiler")
    for asked in (["check"], ["grade", str(tmp_path / "spec.toml")], ["explain"], ["races"]):
        assert main([*asked, str(tmp_path / "my.cu")]) == 2, asked
        assert "install g++" in capsys.readouterr().err


def test_files_in_place_of_names(tmp_path, capsys):
    (tmp_path / "my.cu").write_text(TREE + TREE.replace("my_rung", "two"))
    file = f"{tmp_path / 'my.cu'}:two"
    assert main(["explain", "sequential", file, "--n", "2^10"]) == 0
    assert "sequential → two" in capsys.readouterr().out
    assert main(["races", file, "--schedules", "forward"]) == 0
    assert "two: no race in 1 order" in capsys.readouterr().out
    asked = ["bench", "--strategies", "sequential", file, "--sizes", "1000", "--device", "emulator"]
    assert main([*asked, "--repeats", "2", "--csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == ["sequential", "two"]
    assert main(["races", str(tmp_path / "my.cu")]) == 2
    assert "name one of my_rung, two" in capsys.readouterr().err


def test_the_command(tmp_path, capsys):
    (tmp_path / "my.cu").write_text(TREE)
    wrong = str(tmp_path / "wrong.cu")
    Path(wrong).write_text(TREE.replace("i < n ?", "i + 1 < n ?"))
    words = "--dtype int32 --blocks 64 --seed 3".split()
    assert main(["check", str(tmp_path / "my.cu"), *words]) == 0
    assert "nothing wrong found" in capsys.readouterr().out
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit) as status:
        main([*"check --dtype int32 --blocks 64 --json --html".split(), str(page), wrong])
    assert status.value.code == 1
    told = json.loads(capsys.readouterr().out)
    assert told["passes"] is False and told["failures"][0]["counted"] == [[0, 0]]
    assert "left out" in page.read_text()
    (tmp_path / "bad.cu").write_text(TREE.replace("threadIdx.x;", "threadIdx.q;"))
    assert main(["check", str(tmp_path / "bad.cu")]) == 2
    assert "bad.cu:4:" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none.cu")]) == 2
    assert "none.cu" in capsys.readouterr().err


def test_help_lists_the_options(shell, capsys):
    shell.run_cell_magic("kernel", "--help", "x")
    assert "--no-hint" in capsys.readouterr().out
