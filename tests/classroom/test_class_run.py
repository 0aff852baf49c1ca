"""A class graded in one go: the files that it writes, hostile submissions, runs broken off."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_submissions import made, notebook

from gpureduce.classroom import class_run, report, similarity
from gpureduce.classroom.submissions import Submission
from gpureduce.cli.main import main
from gpureduce.kernels import compiler_process, compiling, process
from user_kernels import TREE

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
SPEC = """title = "T <b>"
kernel = "my_rung"
dtypes = ["int32"]
blocks = "64"
[[require]]
rule = "compiles"
given = true
[[require]]
rule = "right"
points = 2
[[require]]
rule = "forbid atomicAdd"
"""
START = re.sub(r"    for .*?\n    }\n", "", TREE, flags=re.S)
HANGS = TREE.replace("    __syncthreads();\n    for", "    while (n) *out = 1;\n    for")
# The compiler gives up a constant after some seconds, and goes on with the next one.
SLOW = (
    f"{TREE}\ntemplate <int k> constexpr long f(long n) "
    "{ return n < 2 ? k : f<k>(n - 1) + f<k>(n - 2); }\n"
    + "".join(f'static_assert(f<{k}>(60) == 0, "");\n' for k in range(30))
)
ENDS = "#include <signal.h>\n#include <unistd.h>\n" + TREE.replace(
    "if (tid == 0)", "kill(getppid(), SIGKILL); if (tid == 0)"
)
MARK = "/* </pre><script>alert(1)</script> */"
# By name: the submission, and its points.
CLASS = {
    "<script>alert(2)<&script>/a.cu": (TREE + MARK, 4),
    "=1+1/a.cu": (TREE, 4),
    "+copy/a.cu": (TREE.replace("tid", "t") + "// mine", 4),
    "@start.cu": (START, 0),
    "-empty.cu": ("", 0),
    "Nb Student_12_assignsubmission_file_/w.ipynb": (notebook(f"%%kernel my_rung\n{TREE}"), 4),
    "Py Student_13_assignsubmission_file_/w.py": (f"K = '''{TREE}'''", 4),
    "slow_LATE_1_2_a.cu": (HANGS, 0),
    "prints_3_4_a.cu": (TREE.replace("if (tid == 0)", 'printf("%99d", 1); if (tid == 0)'), 4),
    "pdf_5_6_a.pdf": (b"%PDF", 0),
}


@pytest.fixture
def course(tmp_path):
    made(tmp_path / "class", {name: text for name, (text, _) in CLASS.items()})
    made(tmp_path, {"spec.toml": SPEC, "start.cu": START})
    return tmp_path


def words(course, *more):
    return ["grade", str(course / "spec.toml"), str(course / "class"), *more]


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def outputs(course):
    return ("--csv", str(course / "g.csv"), "--html", str(course / "g.html"))


def test_a_class(course, capsys):
    assert main(words(course, *outputs(course))) == 0
    said = capsys.readouterr()
    assert f"{len(CLASS)} submissions" in said.out
    rows = rows_of(course / "g.csv")
    got = sorted(float(row["points"]) for row in rows)
    assert got == sorted(points for _, points in CLASS.values())
    students = {row["student"]: row for row in rows}
    assert students["Nb Student"]["id"] == "12" and students["slow"]["remark"] == "late"
    assert "took more than 5 s" in students["slow"]["verdict"]
    for row in rows:
        assert not any(value[:1] in "=+-@" for value in row.values() if value), row
    pages = [course / "g.html", *(course / "g_students").iterdir()]
    assert len(pages) == len(CLASS) + 1
    for page in pages:
        text = page.read_text()
        assert "<script" not in text and text.endswith("<!-- gpureduce grade -->\n")
        for link in re.findall(r'href="([^"#]+)"', text):
            assert (course / link).is_file()
    whole = pages[0].read_text()
    assert "100% folded" in whole and whole.count("<details>") == 2
    assert (
        "&lt;script&gt;alert(1)"
        in next(course.glob("g_students/script_alert_2_script_*")).read_text()
    )

    # The second run takes all results of the first one, and grades what has changed.
    (course / "class" / "@start.cu").write_text(TREE + "\n")
    assert main(words(course, *outputs(course))) == 0
    assert capsys.readouterr().err.count("of an earlier run") == len(CLASS) - 1
    rows = rows_of(course / "g.csv")
    assert {row["student"]: row["points"] for row in rows}["'@start"] == "4"


@pytest.mark.skipif(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, reason="SIGINT is ignored")
def test_it_goes_on_after_ctrl_c(tmp_path):
    texts = {f"class/{student}.cu": f"{TREE}// {student}" for student in "abcd"}
    course = made(tmp_path, {"spec.toml": SPEC, **texts})
    command = [sys.executable, "-P", "-m", "gpureduce", *words(course, *outputs(course))]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    running.stderr.readline()
    running.send_signal(signal.SIGINT)
    said = running.stderr.read()
    assert running.wait(20) == 130 and "broken off" in said and "Traceback" not in said
    journal = course / "g.results.jsonl"
    before = len(journal.read_text().splitlines()) - 1
    assert 1 <= before < len(texts) and not (course / "g.csv").exists()
    journal.write_text(journal.read_text() + '{"student": "half a li')
    again = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    assert again.stderr.count("of an earlier run") == before
    assert len(journal.read_text().splitlines()) - 1 == len(texts)


def test_a_limit_is_for_everything(tmp_path, capsys):
    """Also for the reader of the text and for the compiler.

    On a busy machine, the right kernel may need a larger limit. It is never called wrong.
    """
    made(tmp_path, {"spec.toml": SPEC, "class/slow.cu": SLOW, "class/fast.cu": TREE})
    for limit in (3, 15, 45):
        start = time.monotonic()
        with contextlib.suppress(SystemExit):  # of kernels that are to be graded again
            main(words(tmp_path, "--csv", str(tmp_path / "g.csv"), "--limit", f"{limit}"))
        assert time.monotonic() - start < 2 * limit + 20
        rows = {row["student"]: row for row in rows_of(tmp_path / "g.csv")}
        ended = f"not graded: it took more than {limit} s in all; a larger --limit grades it again"
        assert (rows["slow"]["points"], rows["slow"]["verdict"]) == ("0", ended)
        if rows["fast"]["points"] == "4":
            break
        assert rows["fast"]["verdict"] == ended
    assert rows["fast"]["points"] == "4"
    capsys.readouterr()


@pytest.mark.parametrize("text", ["#if 1\n" * 150_000, SLOW], ids=["reader", "compiler"])
def test_a_limit_is_for_one_submission_too(tmp_path, text, capsys):
    made(tmp_path, {"spec.toml": SPEC, "one/a.cu": text})
    start = time.monotonic()
    command = ["grade", str(tmp_path / "spec.toml"), str(tmp_path / "one"), "--gradescope"]
    assert main([*command, "--limit", "0.5"]) == 0
    assert time.monotonic() - start < 20
    found = json.loads(capsys.readouterr().out)
    assert found["output"].startswith("not graded: it took more than 0.5 s in all")
    assert len(found["tests"]) == 3 and not any(row["score"] for row in found["tests"])
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


TASK = class_run.Task({"kernel": "my_rung", "require": [{"rule": "right"}]}, 0, 60.0)


@pytest.mark.parametrize("line", ["{}", "[" * 100_000, "1", "", "é"])
def test_a_line_that_a_kernel_wrote_ends_no_run(line):
    code = f"import sys; input(); sys.stdout.buffer.write({line.encode('latin-1')!r} + b'\\n')"
    grader = class_run.Grader()
    grader.process = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True,
                                      start_new_session=True)  # fmt: skip
    found = grader.grade(TASK, Submission("a"), "key")
    assert found.headline == "its grader ended: it was not graded" and not found.key


@pytest.mark.parametrize(("used", "key"), [(0.6, "key"), (0.4, "")])
def test_what_a_busy_machine_did_not_grade_is_graded_again(used, key, monkeypatch):
    """What used half of the limit, or more, is not."""
    grader, used = class_run.Grader(), iter((7.0, 7.0 + used))
    monkeypatch.setattr(process, "cpu_s_of_tree", lambda _: next(used))
    grader.process = subprocess.Popen(["sleep", "60"], stdin=-1, stdout=-1, text=True,
                                      start_new_session=True)  # fmt: skip
    found = grader.grade(replace(TASK, seconds=1.0), Submission("a"), "key")
    assert "more than 1 s in all" in found.headline and found.key == key


def test_no_limit_of_a_check_is_shorter_than_that_of_its_submission(tmp_path, monkeypatch):
    """It is by the clock: a right kernel on a busy machine was called wrong."""
    one, limits = Submission("a", str(made(tmp_path, {"a.cu": TREE}) / "a.cu")), []

    def keep(chosen, *_, **__):
        limits.append(chosen.limits.times(3))
        return class_run.ungraded(class_run.checked(TASK.spec), "")

    monkeypatch.setattr(class_run, "grade", keep)
    class_run.graded(TASK, one, "")
    assert limits[0].seconds >= TASK.seconds


def test_what_must_be_graded_again(tmp_path, monkeypatch, capsys):
    """After a fault of this machine, a grader's end, or a change of the file."""
    one = Submission("a", str(made(tmp_path, {"a.cu": TREE}) / "a.cu"))
    key, found = TASK.key(one), class_run.ungraded(class_run.checked(TASK.spec), "")
    monkeypatch.setattr(class_run, "grade", lambda *_, **__: found)
    assert class_run.graded(TASK, one, key).key == key
    assert class_run.graded(TASK, one, "of an older file").key == ""

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(class_run, "grade", full)
    lost = class_run.graded(TASK, one, key)
    assert lost.key == "" and "No space left" in lost.headline
    monkeypatch.setattr(class_run.Grader, "grade", lambda *_: lost)
    assert len([*class_run.grade_all(TASK, [one], tmp_path / "g.jsonl", 1)]) == 1
    assert (tmp_path / "g.jsonl").read_text() == class_run.HEAD
    made(tmp_path, {"spec.toml": SPEC, "class/a.cu": TREE, "class/b.cu": TREE})
    with pytest.raises(SystemExit, match="1"):
        main(words(tmp_path, "--csv", str(tmp_path / "g.csv")))
    assert "2 submissions could not be graded" in capsys.readouterr().err
    assert len(rows_of(tmp_path / "g.csv")) == 2


def test_a_compiler_on_a_full_disk_says_nothing_of_the_kernel(tmp_path, monkeypatch):
    said = "/tmp/x.s: Fatal error: can't write to 0.o: No space left on device"
    compiling.compiler()  # kept: it is found by `run`, too
    monkeypatch.setattr(compiler_process, "run", lambda *_: [(1, said)])
    one = Submission(
        "a",
        str(
            made(tmp_path, {"a.cu": f"{TREE}// full {time.time_ns()}\nint full{time.time_ns()};"})
            / "a.cu"
        ),
    )
    lost = class_run.graded(TASK, one, TASK.key(one))
    assert lost.key == "" and "refuses" not in lost.headline and "No space" in lost.headline


def test_points_have_no_exponent():
    rules = [{"rule": "right", "points": 1e6}, {"rule": "no races", "points": 0.25}]
    found = class_run.ungraded(class_run.checked({"require": rules}), "x")
    found = replace(found, rows=tuple(replace(row, state="holds") for row in found.rows))
    table = report.as_csv([class_run.Result(Submission("a"), "", found, "")])
    assert table.splitlines()[1] == "a,,,1000000.25,1000000.25,,,1000000,0.25"
    assert "1000000 of 1000000" in str(found)


def test_a_headline_fits_into_a_cell():
    found = class_run.ungraded(class_run.checked(TASK.spec), "x" * 99_999)
    assert len(class_run._headline(found)) == 500
    found = class_run.ungraded(class_run.checked(TASK.spec), "a\n  b\n  c")
    assert class_run._headline(found) == "a b …", "what is left out is marked"


def test_graders_end_with_the_run(tmp_path):
    made(tmp_path, {"spec.toml": SPEC, "class/slow.cu": SLOW})
    command = [sys.executable, "-P", "-m", "gpureduce", *words(tmp_path)]
    running = subprocess.Popen(command)

    def graders(parent):
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                found += [path.parent] if int(fields[1]) == parent and fields[0] != "Z" else []
        return found

    end = time.monotonic() + 30
    while not (found := [p for p in graders(running.pid) if graders(int(p.name))]):
        assert time.monotonic() < end
        time.sleep(0.1)
    running.kill()
    running.wait()
    end = time.monotonic() + 5
    while any(path.exists() for path in found):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("name", ["g.csv", "g.html", "g.results.jsonl", "g_students/a_*.html"])
def test_no_file_of_somebody_else_is_replaced(tmp_path, name, capsys):
    page = report.student_pages(Path("g.html"), [Submission("a")])[0]
    name = name.replace("a_*.html", page.name)
    made(tmp_path, {"spec.toml": SPEC, "class/a.cu": "", name: "mine"})
    assert main(words(tmp_path, *outputs(tmp_path))) == 2
    assert "is not known as an earlier output" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "mine"
    assert main(words(tmp_path, *outputs(tmp_path), "--force")) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--csv", "g.txt"], "--csv must end in .csv"),
        (["--name", "a", "--csv", "g.csv"], "--name is for one submission"),
        (["--gradescope", "--html", "g.html"], "--gradescope is for one submission"),
        (["--html", "/dev/null"], "--html takes a file's name"),
        (["--html", "class/g.html"], "name a file outside the submissions' folder"),
        (["--limit", "0"], "seconds must be above 0"),
        (["--jobs", "0"], "--jobs must be from 1"),
    ],
)
def test_wrong_arguments(tmp_path, more, message, capsys, monkeypatch):
    made(tmp_path, {"spec.toml": SPEC, "class/a.cu": ""})
    monkeypatch.chdir(tmp_path)
    assert main(words(tmp_path, *more)) == 2
    assert message in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["class", "spec.toml"]


def test_one_submission(tmp_path, capsys):
    """A notebook, a Python file, and the folder of one student, as Gradescope has it."""
    made(
        tmp_path,
        {
            "spec.toml": SPEC,
            "a/w.ipynb": notebook(f"%%kernel my_rung\n{TREE}"),
            "b/w.py": f"K = '''{TREE}'''",
            "c/x.txt": "",
            "d/w.ipynb": notebook(f"%%kernel my_rung --speed 9\n{TREE}"),
            "e/ends_the_server.cu": ENDS,
        },
    )
    for file, points in (("a/w.ipynb", 4), ("b/w.py", 4), *zip("acde", (4, 0, 0, 0), strict=True)):
        kind = "--gradescope" if file in "abcde" else "--json"
        assert main(["grade", str(tmp_path / "spec.toml"), str(tmp_path / file), kind]) == 0
        found = json.loads(capsys.readouterr().out)
        got = sum(row["score"] for row in found["tests"]) if file in "abcde" else found["points"]
        assert got == points, file


def test_a_start_file_that_is_no_text(tmp_path, capsys):
    made(tmp_path, {"spec.toml": SPEC, "class/a.cu": "", "start.cu": b"\xff"})
    assert main(words(tmp_path, *outputs(tmp_path))) == 2
    assert (
        "start.cu: it is not UTF-8 text" in capsys.readouterr().err
        and not (tmp_path / "g.csv").exists()
    )


def test_a_class_of_none(tmp_path, capsys):
    made(tmp_path, {"spec.toml": SPEC, "class/notes.txt": ""})
    assert main(words(tmp_path, *outputs(tmp_path))) == 0
    assert (tmp_path / "g.csv").read_text() == f"{report.CSV_HEAD}\n"
    assert "No submissions" in (tmp_path / "g.html").read_text()
    assert main(words(tmp_path, "--csv", "/dev/null")) == 0
    assert "0 submissions" in capsys.readouterr().out


def test_a_cell_is_no_formula():
    for text in ("=1", "+1", "-1", "@x", " =1", "\t=1", "\n=1", "\r-1", "\x00=1"):
        assert report._cell(text)[:1] in ("'", "\\"), text
    assert report._cell("a; =1;-2") == "a;' =1;'-2" and report._cell("＝1") == "'＝1"


def test_names_of_pages():
    students = [("Ann", ""), ("ann", ""), ("Äñn/../x", "7"), ("日本", ""), ("..", "")]
    made_ = [Submission(name, id=number) for name, number in students]
    names = [path.name for path in report.student_pages(Path("g.html"), made_)]
    assert len({name.lower() for name in names}) == 5
    stems = [name[:-12] for name in names]
    assert stems == ["Ann", "ann", "Ann_x_7", "student", "student"]


def test_pairs():
    """Renamed and commented copies are found; unchanged start files and usual answers are not."""
    renamed = re.sub(r"\btid\b", "me", TREE).replace("partial", "cache") + "// mine\n"
    other = TREE.replace(
        "stride = 512; stride > 0; stride /= 2", "stride = 1; stride < n; stride *= 2"
    )
    texts = [TREE, renamed, other, START, START]
    assert [pair[:3] for pair in similarity.pairs(texts, START)] == [(0, 1, 1.0)]
    usual = [TREE.replace("tid", f"t{i}") for i in range(9)]
    assert similarity.pairs(usual, "") == []
    assert [pair[:2] for pair in similarity.pairs([*usual, usual[4]], "")] == [(4, 9)]
    copies = similarity.pairs([TREE] * 20 + [other] * 2, "")
    assert {*copies[0][:2]} < {*range(20)} and len(copies) == 20, "19 pairs, and that of `other`"
    assert (20, 21) in [pair[:2] for pair in copies]
