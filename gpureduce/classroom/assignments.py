"""Assignments: a spec, a start file, a reference, and wrong solutions that lose points.

The first line of a wrong solution says what it loses, as in ``// loses: right; no races``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpureduce.core import json_files, text_files
from gpureduce.core.checks import no_such
from gpureduce.kernels.grading import grade
from gpureduce.kernels.signature import names_in
from gpureduce.kernels.source_text import without_comments
from gpureduce.kernels.spec import Spec, checked
from gpureduce.text import score

_LOSES = re.compile(r"// loses: (.*)")
_OTHER_SEED = 7  # with which the reference gets all points, too


@dataclass(frozen=True)
class Assignment:
    """The files of an assignment, by their path in its folder."""

    name: str
    files: Mapping[str, str]

    @property
    def spec(self) -> dict[str, Any]:
        """The spec as a mapping, with the name of the kernel."""
        found: dict[str, Any] = tomllib.loads(self.files["spec.toml"])
        names = names_in(without_comments(self.files["start.cu"]))
        if not names:
            raise ValueError(f"{self.name}/start.cu has no kernel")
        return {"kernel": names[0]} | found

    @property
    def checked(self) -> Spec:
        """The spec, checked."""
        return checked(self.spec)

    @property
    def task(self) -> str:
        """The comment at the top of the start file."""
        lines = re.match(r"(?:\s*#[^\n]*\n|\s*\n)*((?://[^\n]*\n)*)", self.files["start.cu"])
        said = [line[2:].strip() for line in (lines[1] if lines else "").splitlines()]
        return "\n".join(line for line in said if not line.startswith("gpureduce:"))


def packaged_files() -> Any:
    """The files of the assignments and bundles that come with gpureduce, by folder and path."""
    return json_files.packaged("_assignments.json")


def packaged() -> dict[str, Assignment]:
    """The assignments that come with gpureduce, by name."""
    every = packaged_files()["assignments"]
    return {name: Assignment(name, files) for name, files in every.items()}


def find(name: str) -> Assignment:
    """An assignment of a folder, or one that comes with gpureduce."""
    folder = Path(name)
    if not (folder / "spec.toml").is_file():
        if name not in packaged():
            raise ValueError(no_such("assignment", name, [*packaged(), "FOLDER with a spec.toml"]))
        return packaged()[name]
    paths = [folder / "spec.toml", folder / "start.cu", folder / "reference.cu"]
    paths += sorted((folder / "wrong").glob("*.cu"))
    files = {}
    for path in paths:
        with json_files.naming(path):
            files[path.relative_to(folder).as_posix()] = text_files.read(path)
    made = Assignment(folder.resolve().name, files)
    with json_files.naming(folder / "spec.toml"):
        checked(made.spec)
    return made


def checked_file(one: Assignment, file: str) -> tuple[str, str]:
    """The points of a kernel of an assignment, and what is wrong with them."""
    text, is_reference = one.files[file], file == "reference.cu"
    found = grade(text, one.spec)
    if is_reference and found.points == found.most:
        found = grade(text, one.spec, seed=_OTHER_SEED)
    lost = [row.rule for row in found.rows if not row.holds]
    earned = [row.rule for row in found.rows if row.state == "holds"]
    problem = ""
    if is_reference and lost:
        problem = f"the reference loses {', '.join(lost)}"
    elif file == "start.cu" and earned:
        problem = f"it earns points: add given = true to the rules {', '.join(earned)}"
    elif file.startswith("wrong/"):
        problem = _wrongly(text, {*lost})
    return score(found.points, found.most), problem


def _wrongly(text: str, lost: set[str]) -> str:
    """What the first line of a wrong solution says and is not so; of a right kernel, all of it."""
    said = _LOSES.fullmatch(text.partition("\n")[0])
    if not said:
        return f"its first line must name what it loses, as in // loses: {'; '.join([*lost][:2])}"
    wanted, first = set(said[1].split("; ")), {"right", "no races", "compiles"}
    # The rules of counts are not judged for a wrong kernel.
    more = (lost - wanted) & first if wanted & first else lost - wanted
    if keeps := wanted - lost:
        return f"it does not lose {', '.join(sorted(keeps))}"
    return f"it also loses {', '.join(sorted(more))}" if more else ""


def new(name: str, like: Assignment) -> dict[str, str]:
    """The files of an assignment that begins as a copy, with the kernel named as its folder."""
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise ValueError(f"a folder's name is also the kernel's: letters, digits, _; not {name!r}")
    kernel, title = re.compile(rf"\b{like.checked.kernel}\b"), name.replace("_", " ").capitalize()
    files = {path: kernel.sub(name, text) for path, text in like.files.items()}
    spec = re.sub(r"(?m)^title = .*", f'title = "{title}"', files["spec.toml"], count=1)
    return files | {"spec.toml": spec}
