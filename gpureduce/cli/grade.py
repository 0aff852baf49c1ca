"""``gpureduce grade SPEC.toml FILE.cu``: points for a kernel, or for those of a class."""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpureduce.classroom import report, similarity, submissions
from gpureduce.classroom.class_run import HEAD, Result, Task, grade_all, too_long
from gpureduce.cli.kernel_files import file_and_name
from gpureduce.core import json_files, output_files, text_files
from gpureduce.core.checks import whole
from gpureduce.kernels import compiling
from gpureduce.kernels.grading import Grade, grade, ungraded
from gpureduce.kernels.spec import Spec, checked, given
from gpureduce.kernels.worker import Limits
from gpureduce.text import counted, plain, score, show_json, table

_FOR_ONE = ("gradescope", "name", "rule")
_AGAIN_S = 5  # until the next signal, should the error of the first one be lost in a destructor


def _run(arguments: argparse.Namespace) -> None:
    is_class = arguments.csv or arguments.html
    if is_class or (Path(arguments.file).is_dir() and not arguments.gradescope):
        if extra := [name for name in _FOR_ONE if getattr(arguments, name)]:
            raise ValueError(f"--{extra[0]} is for one submission, not for a class")
        return _grade_class(arguments)
    forms = [f"--{name}" for name in ("gradescope", "rule", "json") if getattr(arguments, name)]
    if len(forms) > 1:
        raise ValueError(f"{' and '.join(forms)} are different outputs: give one of them")
    found = _grade_in_time(arguments)
    rule = found.rows[whole("--rule", arguments.rule or 1, 1, len(found.rows)) - 1]
    if arguments.gradescope:
        show_json(found.gradescope())
    else:
        print(found.to_json() if arguments.json else found)
    if arguments.rule and rule.state != "holds":
        raise SystemExit(1)


class _TimeOverError(BaseException):
    """Raised by a signal handler. No handler of errors takes it for one of its own."""


def _grade_in_time(arguments: argparse.Namespace) -> Grade:
    """The grade of one submission. One that takes longer than the limit is not graded."""

    def end(*_: object) -> None:
        raise _TimeOverError

    seconds, wanted = Limits(arguments.limit).seconds, checked(Path(arguments.spec))
    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
        return _grade_one(arguments, wanted)
    except _TimeOverError:
        return ungraded(wanted, too_long(seconds))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _grade_one(arguments: argparse.Namespace, wanted: Spec) -> Grade:
    file, name = file_and_name(arguments.file, arguments.name)
    made: Any = Path(file)
    try:
        if made.is_dir():  # of one student
            made = submissions.read(submissions.in_folder(made, wanted.kernel), wanted.kernel)
        elif made.suffix.lower() in (".py", ".ipynb"):
            made = submissions.read(made, name or wanted.kernel)
    except ValueError as error:  # also of the words behind %%kernel
        return ungraded(wanted, str(error))
    return grade(made, Path(arguments.spec), seed=arguments.seed, name=name)


def _grade_class(arguments: argparse.Namespace) -> None:
    folder, spec = Path(arguments.file), Path(arguments.spec)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder of submissions")
    wanted, jobs = checked(spec), whole("--jobs", arguments.jobs, 1, 64)
    seed, seconds = whole("seed", arguments.seed, 0, 2**64 - 1), Limits(arguments.limit).seconds
    task = Task(plain(dict(given(spec))), seed, seconds)
    found = submissions.find(folder, wanted.kernel)
    table_file, page, journal = _targets(arguments, found)
    compiling.compiler()  # raises where there is none
    start, start_text = spec.with_name("start.cu"), ""
    if page and start.is_file():
        with json_files.naming(start):
            start_text = text_files.read(start)
    results: dict[int, Result] = {}
    for i, result, is_earlier in grade_all(task, found, journal, jobs):
        results[i] = result
        if not arguments.json:
            grade, how = result.grade, " (of an earlier run)" * is_earlier
            said = f"{len(results)} of {len(found)}: {result.submission.student}"
            print(f"{said}, {score(grade.points, grade.most)}{how}", file=sys.stderr)
    ordered = [results[i] for i in range(len(found))]
    if table_file:
        output_files.write(table_file, report.as_csv(ordered), "grade")
    if page:
        pairs = similarity.pairs([one.text for one in ordered], start_text)
        for path, text in report.pages(page, ordered, pairs).items():
            output_files.write(path, text, "grade")
    _show(ordered, arguments.json)
    if left := sum(not one.key for one in ordered):
        said = f"{counted(left, 'submission')} could not be graded, or changed meanwhile"
        print(f"gpureduce: {said}: run this again", file=sys.stderr)
        raise SystemExit(1)


def _targets(
    arguments: argparse.Namespace, found: Sequence[submissions.Submission]
) -> tuple[Path | None, Path | None, Path | None]:
    """The table, the page and the file of results, checked before anything is graded."""

    def target(named: str | None, option: str, suffix: str, head: str = "") -> Path | None:
        return output_files.checked(
            named, option, "grade", (suffix,), inputs=[arguments.spec], force=arguments.force,
            head=head,
        )  # fmt: skip

    table_file = target(arguments.csv, "--csv", ".csv", report.CSV_HEAD)
    page = target(arguments.html, "--html", ".html")
    if page and page.exists() and not page.is_file():
        raise ValueError(f"--html takes a file's name, and {page} is no file")
    if page and page.resolve().parent == Path(arguments.file).resolve():
        raise ValueError("--html writes a folder, too: name a file outside the submissions' folder")
    files = [one for one in (table_file, page) if one and (one.is_file() or not one.exists())]
    journal = files[0].with_name(f"{files[0].stem}.results.jsonl") if files else None
    target(str(journal) if journal else None, "the file of results", ".jsonl", HEAD)
    if page:
        for path in report.student_pages(page, found):
            path.parent.mkdir(exist_ok=True)
            target(str(path), "--html", ".html")
    return table_file, page, journal


def _show(results: Sequence[Result], as_json: bool) -> None:
    if as_json:
        shown = (replace(one, page="", text="") for one in results)
        return show_json([asdict(one) | {"points": one.grade.points} for one in shown])
    rows = [[one.submission.student, score(one.grade.points, one.grade.most),
             textwrap.shorten(one.headline, 100, placeholder=" …")] for one in results]  # fmt: skip
    print(table(["student", "points", "verdict"], rows, right=[1]))
    print(f"\n{counted(len(results), 'submission')}")


COMMAND = ("grade", _run, "give points to a kernel, or to a class, by a spec", {
    "spec": {"metavar": "SPEC.toml"},
    "file": {"metavar": "FILE.cu", "help":
        "a .cu, .py or .ipynb file, FILE.cu:NAME for one of several kernels, or the folder "
        "of a class"},
    "--name": {"help": "the kernel's name, if the file has several"},
    "--seed": {"type": int, "default": 0, "help": "draws some of the sizes (default: 0)"},
    "--gradescope": {"action": "store_true", "help":
        "print what Gradescope reads as results.json"},
    "--rule": {"type": int, "metavar": "N", "help":
        "exit status 1 unless rule N of the spec earns points"},
    "--csv": {"metavar": "FILE.csv", "help": "a class: write a row for each student"},
    "--html": {"metavar": "FILE.html", "help":
        "a class: write a page, and one for each student into a folder beside it"},
    "--limit": {"type": float, "default": 120.0, "metavar": "SECONDS", "help":
        "the time for each submission (default: 120)"},
    "--jobs": {"type": int, "default": 2, "help":
        "a class: submissions at a time (default: 2)"},
    "--force": output_files.FORCE,
})  # fmt: skip
