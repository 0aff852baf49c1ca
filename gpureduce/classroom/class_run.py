"""Grades all submissions of a class, several at a time; a run that was broken off goes on.

Each grader is a process of its own, which is ended if a submission takes too long: one may hang the
reader of its text, too. The process answers each line of JSON by one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpureduce.classroom import submissions
from gpureduce.classroom.submissions import Submission
from gpureduce.core import json_files, text_files
from gpureduce.kernels import process
from gpureduce.kernels.grading import Grade, grade, ungraded
from gpureduce.kernels.source_text import KernelError
from gpureduce.kernels.spec import checked
from gpureduce.kernels.worker import Limits, end_with
from gpureduce.text import decimal, visible
from gpureduce.version import VERSION

HEAD = '{"kind": "gpureduce grades", "schema": 1}\n'  # of the file of results
_SHARE = 3  # of the limit: a check gets three calls per dtype, and so no shorter time by the clock
_MOST_TEXT = 1 << 17  # of a kernel that a report shows
_MOST_WORDS = 500  # characters of a headline: a spreadsheet's cell takes 32,767


@dataclass(frozen=True)
class Task:
    """What all submissions are graded by: a spec, the seed, and the seconds for each."""

    spec: Mapping[str, Any]
    seed: int
    seconds: float

    def key(self, submission: Submission) -> str:
        """Tells whether a result of an earlier run still holds."""
        path = submission.path or ""
        facts = json.dumps([VERSION, asdict(self), submission.problem, path[-4:]], default=str)
        found = hashlib.sha256(facts.encode())
        with contextlib.suppress(OSError), open(path, "rb") as file:
            found.update(file.read(1 << 25))
        return found.hexdigest()


@dataclass(frozen=True)
class Result:
    """The grade of a submission as plain values; `page` is the verdict as HTML.

    `key` is empty for a submission that the next run grades again.
    """

    submission: Submission
    key: str
    grade: Grade
    headline: str
    page: str = ""
    text: str = ""


def too_long(seconds: float) -> str:
    """Says that the limit for a submission ended its grading."""
    limit = decimal(seconds)
    return f"not graded: it took more than {limit} s in all; a larger --limit grades it again"


def _headline(found: Grade) -> str:
    """The first rule that is lost, and why."""
    first = next((row for row in found.rows if not row.holds), None)
    if first is None:
        return "nothing wrong found"
    why = found.notes[0] if found.verdict is None else f"{first.rule}: {first.why}"
    lines = why.splitlines()
    said = " ".join(line.strip() for line in lines[:2])[:_MOST_WORDS]
    return said + " …" * (len(lines) > 2)


def _result(submission: Submission, key: str, found: Grade, text: str = "") -> Result:
    page = "" if found.verdict is None else found.verdict._repr_html_()
    return Result(submission, key, replace(found, verdict=None), _headline(found), page,
                  visible(text[:_MOST_TEXT]))  # fmt: skip


def graded(task: Task, submission: Submission, key: str) -> Result:
    """Grades a submission, in this process. `key` is that of its file when the run began."""
    wanted, text = checked(task.spec), ""
    try:
        if submission.path is None:
            raise KernelError(submission.problem)
        limits = Limits(seconds=task.seconds / _SHARE)
        made = submissions.read(Path(submission.path), wanted.kernel, limits)
        text, key = made.text, key if key == task.key(submission) else ""
        found = grade(made, task.spec, seed=task.seed)
    except (ValueError, TypeError, OSError, RecursionError, MemoryError) as error:
        found = ungraded(wanted, visible(str(error)) or type(error).__name__)
        if text and isinstance(error, OSError):  # a fault of this machine, such as a full disk
            key = ""
    return _result(submission, key, found, text)


def serve(parent: int) -> None:
    """Grades what standard input names, until it or the parent process ends."""
    end_with(parent)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else may write a reply
    for line in sys.stdin:
        task, submission, key = json.loads(line)
        replies.write(_line(graded(Task(**task), Submission(**submission), key)))
        replies.flush()


def _line(result: Result) -> str:
    return json.dumps(asdict(result)) + "\n"


def _result_of(line: str) -> Result:
    """A result out of a line of JSON. Raises a ValueError if it is none."""
    return json_files.made(Result, json.loads(line), "result")


class Grader:
    """A process that grades one submission after the other, and is started when it is needed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def grade(self, task: Task, submission: Submission, key: str) -> Result:
        """The result of a submission. One that takes longer than the limit ends the process."""
        if self.process is None:
            top = str(Path(__file__).parents[2])
            code = f"import sys; sys.path.insert(0, {top!r}); from {__name__} import serve; "
            code += f"serve({os.getpid()})"
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, start_new_session=True,
            )  # fmt: skip
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps([asdict(task), asdict(submission), key], default=str) + "\n")
            stdin.flush()
        used = process.cpu_s_of_tree(self.process.pid)
        in_time = bool(select.select([stdout], [], [], task.seconds)[0])
        with contextlib.suppress(ValueError, RecursionError):  # it has ended, or a kernel wrote it
            found = _result_of(stdout.readline() if in_time else "")
            return replace(found, submission=submission, key=found.key and key)
        # On a busy machine, it got little processor time: the next run grades it again.
        is_busy = process.cpu_s_of_tree(self.process.pid) < used + task.seconds / 2
        self.stop()
        why = "its grader ended: it was not graded" if in_time else too_long(task.seconds)
        lost = ungraded(checked(task.spec), why)
        return _result(submission, "" if in_time or is_busy else key, lost)

    def kill(self) -> None:
        """Ends the process, from any thread: `grade` then returns."""
        if running := self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Ends the process, and forgets it."""
        self.kill()
        ended, self.process = self.process, None
        if ended:
            ended.communicate()


def grade_all(
    task: Task, found: Sequence[Submission], journal: Path | None, jobs: int
) -> Iterator[tuple[int, Result, bool]]:
    """The index and the result of each submission, as they come; whether it is an earlier one.

    `journal` is the file of results, a line of JSON for each: that of an earlier run is read first.
    """
    earlier = {}
    for line in text_files.read(journal).splitlines() if journal and journal.exists() else ():
        with contextlib.suppress(ValueError):  # the head, or a line that was broken off
            result = _result_of(line)
            earlier[result.key] = result
    keys = [task.key(one) for one in found]
    kept = {i: replace(earlier[keys[i]], submission=one) for i, one in enumerate(found)
            if keys[i] in earlier}  # fmt: skip
    if journal:
        text_files.write(journal, HEAD + "".join(map(_line, kept.values())))
    yield from ((i, result, True) for i, result in kept.items())
    graders, pool = [Grader() for _ in range(jobs)], ThreadPoolExecutor(jobs)
    free = [*graders]

    def work(i: int) -> Result:
        grader = free.pop()
        try:
            return grader.grade(task, found[i], keys[i])
        finally:
            free.append(grader)

    try:
        left = {pool.submit(work, i): i for i in range(len(found)) if i not in kept}
        for done in as_completed(left):
            if journal and done.result().key:
                with journal.open("a") as file:
                    file.write(_line(done.result()))
            yield left[done], done.result(), False
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for grader in graders:
            grader.kill()
        pool.shutdown()
        for grader in graders:
            grader.stop()
