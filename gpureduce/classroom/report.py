"""The grades of a class as CSV, as a page for the class, and as a page for each student."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from gpureduce.classroom.class_run import Result
from gpureduce.classroom.similarity import Pair
from gpureduce.classroom.submissions import Submission
from gpureduce.kernels import verdict_html
from gpureduce.text import counted, decimal, score, visible

_COLUMNS = ("student", "id", "file", "points", "of", "remark", "verdict")
CSV_HEAD = ",".join(_COLUMNS)
_STYLE = """<style>
table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: 2px 10px 2px 0; text-align: left; vertical-align: top }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem }
.pair > div { min-width: 0 }
.pair pre { white-space: pre-wrap }
a { color: var(--active); overflow-wrap: anywhere }
</style>"""


def _cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = " ".join(visible(text).split())
    return re.sub(r"(^|;)(?=\s*[-=+@＝＋－＠])", r"\1'", text)  # some separate cells by ;


def as_csv(results: Sequence[Result]) -> str:
    """The grades as CSV: a row for each student, with the points of each rule."""
    file = io.StringIO()
    write = csv.writer(file, lineterminator="\n").writerow
    write([*_COLUMNS, *(_cell(row.rule) for one in results[:1] for row in one.grade.rows)])
    for one in results:
        who, grade = one.submission, one.grade
        words = (who.student, who.id, Path(who.path or "").name, decimal(grade.points),
                 decimal(grade.most), who.remark, one.headline)  # fmt: skip
        write([_cell(word) for word in words] + [decimal(row.got) for row in grade.rows])
    return file.getvalue()


def student_pages(target: Path, students: Sequence[Submission]) -> list[Path]:
    """The path of each student's page, beside the class's: no two differ by capitals alone."""
    folder, made = target.with_name(f"{target.stem}_students"), []
    for one in students:
        name = f"{one.student} {one.id}"
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        stem = re.sub(r"[^A-Za-z0-9-]+", "_", plain).strip("_-")[:60] or "student"
        made.append(folder / f"{stem}_{hashlib.sha256(name.encode()).hexdigest()[:6]}.html")
    return made


def pages(target: Path, results: Sequence[Result], found: Sequence[Pair]) -> dict[Path, str]:
    """The pages by their path: those of the students, and that of the class."""
    paths = student_pages(target, [one.submission for one in results])
    links = [
        f'<a href="{quote(path.parent.name)}/{path.name}">{html.escape(one.submission.student)}</a>'
        for path, one in zip(paths, results, strict=True)
    ]
    made = dict(zip(paths, map(_student, results), strict=True))
    return {**made, target: _class(results, links, found)}


def _student(one: Result) -> str:
    """The page for a student: the points, the verdict, and the kernel."""
    name = one.submission.student
    parts = [_STYLE, f"<h1>{html.escape(name)}</h1>", one.grade._repr_html_()]
    if one.text:
        parts += ["<h2>The verdict</h2>", one.page] if one.page else []
        numbered = "\n".join(f"{i:4}  {line}" for i, line in enumerate(one.text.split("\n"), 1))
        parts.append(f"<h2>The kernel</h2><pre>{html.escape(numbered)}</pre>")
    return verdict_html.whole_page([f"{name}, {one.grade.head}"], parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML."""
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    top = "".join(f"<th>{cell}</th>" for cell in head)
    return f"<table><tr>{top}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _class(results: Sequence[Result], links: Sequence[str], found: Sequence[Pair]) -> str:
    """The page for a teacher: the points of all, the rules that are lost, similar submissions."""
    if not results:
        return verdict_html.whole_page(["No submissions"], ["<h1>No submissions</h1>"])
    grades = [one.grade for one in results]
    mean = sum(grade.points for grade in grades) / len(grades)
    head = (f"{grades[0].title}: {counted(len(grades), 'submission')}, "
            f"{score(round(mean, 2), grades[0].most)} points on average")  # fmt: skip
    lost = [[i for i, row in enumerate(grade.rows) if not row.holds] for grade in grades]
    rules = []
    for i, row in enumerate(grades[0].rows):
        first = [link for link, own in zip(links, lost, strict=True) if own[:1] == [i]]
        count, rule = f"{sum(i in own for own in lost)}", html.escape(row.rule)
        rules.append([f"<code>{rule}</code>", count, ", ".join(first)])
    students = [
        [link, one.submission.id, decimal(one.grade.points), one.submission.remark,
         html.escape(one.headline)]
        for link, one in zip(links, results, strict=True)
    ]  # fmt: skip
    return verdict_html.whole_page([head], [
        _STYLE, f"<h1>{html.escape(head)}</h1><h2>Which rule loses whom</h2>",
        _table(["rule", "lost by", "those who lose no rule before it"], rules),
        "<h2>Students</h2>", _table(["student", "id", "points", "", "verdict"], students),
        "<h2>Similar submissions</h2><p>A hint, and no proof: short kernels for one task are often "
        "alike. The first share folds comments and names of variables; the second one is for the "
        "code as it is written.</p>", *(_pair(results, links, pair) for pair in found),
        "" if found else "<p>None.</p>",
    ])  # fmt: skip


def _pair(results: Sequence[Result], links: Sequence[str], pair: Pair) -> str:
    """Two submissions side by side."""
    first, second, folded, written = pair
    sides = "".join(f"<div>{links[i]}<pre>{html.escape(results[i].text)}</pre></div>"
                    for i in (first, second))  # fmt: skip
    names = " and ".join(results[i].submission.student for i in (first, second))
    said = f"{html.escape(names)}: {folded:.0%} folded, {written:.0%} as written"
    return f'<details><summary>{said}</summary><div class="pair">{sides}</div></details>'
