"""Submissions: the names of learning systems, what is read out of each file, and hostile ones."""

from __future__ import annotations

import json
import os
import re

import pytest

import gpureduce
from gpureduce.classroom import submissions
from user_kernels import TREE

OTHER = TREE.replace("my_rung", "other")
NAMES = {
    "anna.cu": ("anna", "", ""),
    "bert.CU": ("bert", "", ""),
    "carl/Work.PY": ("carl", "", ""),
    "Anna Lee_123_assignsubmission_file_tree.cu": ("Anna Lee", "123", ""),
    "Bo Kim_77_assignsubmission_file_/work.ipynb": ("Bo Kim", "77", ""),
    "leeanna_4711_998_tree-1.cu": ("leeanna", "4711", ""),
    "kimbo_LATE_4712_999_tree.py": ("kimbo", "4712", "late"),
    "zoe/deep/er/tree.cu": ("zoe", "", ""),
    "__MACOSX/x.cu": None,
    ".hidden.cu": None,
    "grades.csv": None,
}


def made(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def notebook(*cells):
    rows = [{"cell_type": "code", "source": cell} for cell in cells]
    return json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_names_of_learning_systems(tmp_path):
    found = submissions.find(made(tmp_path, dict.fromkeys(NAMES, TREE)), "")
    expected = sorted(who for who in NAMES.values() if who)
    assert sorted((one.student, one.id, one.remark) for one in found) == expected
    assert all(one.path and not one.problem for one in found)


@pytest.mark.parametrize(
    ("folder", "inside", "students"),
    [
        ("tree-submissions", "tree.cu", ["anna", "bo-kim"]),
        ("repositories", ".git/config", ["anna", "bo-kim"]),
        ("plain", "x.txt", ["tree-anna", "tree-bo-kim"]),
    ],
)
def test_names_of_github_classroom(tmp_path, folder, inside, students):
    names = [f"tree-{who}/{file}" for who in ("anna", "bo-kim") for file in (inside, "my.cu")]
    found = submissions.find(made(tmp_path / folder, dict.fromkeys(names, TREE)), "")
    assert [one.student for one in found] == students


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ({"a.cu": TREE, "notes.py": "x = 1"}, "a.cu"),
        ({"a.cu": TREE, "b.cu": OTHER}, "a.cu"),
        ({"my_rung.cu": TREE, "old.cu": TREE}, "my_rung.cu"),
        ({"lee_7_1_my_rung-1.cu": TREE, "lee_7_2_old.cu": TREE}, "lee_7_1_my_rung-1.cu"),
        ({"a.cu": TREE, "b.cu": TREE}, "there are 2 files: which one of a.cu, b.cu?"),
        ({"a.pdf": b"%PDF", "b.zip": b"PK"}, "there is no file with the ending .cu"),
    ],
)
def test_the_file_of_several(tmp_path, files, chosen):
    made(tmp_path, files)
    if " " not in chosen:
        assert submissions.in_folder(tmp_path, "my_rung").name == chosen
        return
    with pytest.raises(gpureduce.KernelError, match=re.escape(chosen)):
        submissions.in_folder(tmp_path, "my_rung")


READ = {
    "a.cu": TREE,
    "a.py": f'import os\nos.abort()\nMINE = r"""\n{TREE}"""\nOTHER = """{OTHER}"""\n',
    "a.ipynb": notebook("%load_ext gpureduce", f"%%kernel other\n{OTHER}",
                        "%%kernel my_rung\nold", f"%%kernel my_rung --elements 1\n{TREE}"),
    "lines.ipynb": notebook(["%%kernel my_rung\n", *TREE.splitlines(keepends=True)]),
    "crlf.cu": TREE.replace("\n", "\r\n"),
    "a.PY": f'MINE = """\n{TREE}"""\n',
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_the_kernel_of_each_kind_of_file(tmp_path, name):
    """The last cell of this name counts, and a Python file is not executed."""
    found = submissions.read(made(tmp_path, {name: READ[name]}) / name, "my_rung")
    assert found.name == "my_rung" and "partial[tid + stride]" in found.text


DEEP = "[" * 200_000
HOSTILE = {
    "empty.cu": (b"", "there is no kernel"),
    "nul.cu": (b"\0" * 99, "there is no kernel"),
    "utf16.cu": (TREE.encode("utf-16"), "not UTF-8 text"),
    "large.cu": (b"x" * (2 << 20), "the file has 2 MiB; at most 1 MiB"),
    "broken.ipynb": (b'{"cells": [', "is not JSON"),
    "deep.ipynb": (DEEP.encode(), "is not JSON"),
    "list.ipynb": (b"[1, 2]", "there must be one cell that begins with %%kernel called my_rung"),
    "odd.ipynb": (b'{"cells": [5, {"source": 5}, {"source": [5]}]}', "there are none"),
    "option.ipynb": (notebook("%%kernel my_rung --speed 9\n" + TREE).encode(), "--speed"),
    "others.ipynb": (notebook("%%kernel a\nx", "%%kernel b\nx").encode(), "there are a, b"),
    "syntax.py": (b"def", "it is not valid Python"),
    "deep.py": (b"x = " + b"(" * 5000 + b")" * 5000, "it is not valid Python"),
    "none.py": (b"x = 'text'", "there must be one string with a kernel"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tmp_path, name):
    data, message = HOSTILE[name]
    with pytest.raises(ValueError, match=r"(?s).*") as error:
        submissions.read(made(tmp_path, {name: data}) / name, "my_rung")
    assert message in str(error.value)


def test_no_link_is_followed(tmp_path):
    secret = made(tmp_path / "secret", {"reference.cu": TREE}) / "reference.cu"
    made(tmp_path / "class", {"b/x.txt": "x"})
    links = {"a.cu": secret, "b/a.cu": secret, "c": secret.parent, "b/d": secret.parent,
             "loop.cu": "loop.cu", "b/long.cu": "x" * 300, "e/.git": "x" * 300}  # fmt: skip
    os.mkdir(tmp_path / "class" / "e")
    for name, target in links.items():
        os.symlink(target, tmp_path / "class" / name)
    os.mkfifo(tmp_path / "class" / "pipe.cu")
    found = submissions.find(tmp_path / "class", "")
    assert [one.student for one in found] == ["a", "b", "c", "e", "loop", "pipe"]
    assert all(one.path is None and one.problem for one in found)
    with pytest.raises(gpureduce.KernelError, match="is not a file"):
        submissions.read(tmp_path / "class" / "a.cu", "")


def test_no_two_submissions_have_the_same_name(tmp_path):
    """Each student has a page of that name."""
    found = submissions.find(made(tmp_path, {"a b.cu": "", "a  b.cu": "", "a\nb.cu": ""}), "")
    assert [(one.student, one.path) for one in found] == [("a b", None)]
    assert found[0].problem.startswith("there are 3 files")


def test_names_of_odd_characters(tmp_path):
    os.mkdir(os.fsencode(tmp_path) + b"/M\xfcller \x1b[31m\n")
    (found,) = submissions.find(tmp_path, "")
    assert found.student == r"M\udcfcller \x1b[31m" and found.path is None
