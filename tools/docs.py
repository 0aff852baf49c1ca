"""Builds and checks the documentation: ``python tools/docs.py [--external]``.

1. Runs the examples of the pages and of all docstrings, on the emulator.
2. Builds the pages by Sphinx to docs/_build/html. Warnings are errors.
3. Checks the links of the built pages, and the files that the Markdown sources link to.

``--external`` also checks links to other sites, which needs a network.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import sys
import time
import types
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import gpureduce

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
HTML = DOCS / "_build" / "html"
MODULES = (
    "dask",
    "pandas",
    "polars",
    "xarray",
    "emulator",
    "plot",
    "lectures",
    "lecture_findings",
    "exact_bench",
)


def sources() -> list[Path]:
    pages = [path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages]


def public_names() -> Iterator[tuple[str, Any]]:
    """Every public name with its module, and its object."""
    for module in (gpureduce, *(importlib.import_module(f"gpureduce.{m}") for m in MODULES)):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def undocumented(pages: str) -> list[str]:
    """Public names that are missing in the reference pages, or have no example."""
    missing = []
    whole = re.findall(r"automodule:: (\S+)\n   :members:", pages)
    for name, what in public_names():
        directive = r"auto(module|function|class|exception|data):: " + re.escape(name)
        if name.rpartition(".")[0] not in whole and not re.search(rf"{directive}\b", pages):
            missing.append(f"{name} is in no page of docs/api")
        takes_example = callable(what) and not isinstance(what, types.ModuleType)
        if takes_example and ">>>" not in (inspect.getdoc(what) or ""):
            missing.append(f"{name} has no example in its docstring")
    return missing


def page_examples(path: Path) -> doctest.DocTest:
    """The examples in the Python blocks of a page, as one session."""
    text, parser, examples = path.read_text(), doctest.DocTestParser(), []
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
        line = text[: block.start(1)].count("\n")
        for example in parser.get_examples(block[1], str(path)):
            example.lineno += line
            examples.append(example)
    return doctest.DocTest(examples, {}, str(path.relative_to(ROOT)), str(path), 0, None)


def run_examples() -> int:
    """Runs all examples. Returns the number of failures."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for path in sources():
        runner.run(page_examples(path))
    finder = doctest.DocTestFinder()
    for found in pkgutil.walk_packages(gpureduce.__path__, "gpureduce."):
        # These need PyTorch, which is not installed here.
        if not found.name.endswith("__main__") and not found.name.startswith(
            ("gpureduce.torch", "gpureduce.training")
        ):
            for test in finder.find(importlib.import_module(found.name)):
                runner.run(test)
    failed, tried = runner.summarize(verbose=False)
    print(f"{tried} examples, {failed} failed")
    return failed


def build(builder: str, folder: Path) -> int:
    from sphinx.cmd.build import main

    trees = DOCS / "_build" / "doctrees"
    options = ["-q", "-E", "-W", "--keep-going", "-d", str(trees)]
    return main([*options, "-b", builder, str(DOCS), str(folder)])


class _Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(value for key in ("id", "name") if (value := given.get(key)))
        link = given.get("src") if tag in ("img", "script") else given.get("href")
        if link and tag != "link":
            self.links.append(link)


def broken_links() -> list[str]:
    """Links between the built pages that lead nowhere."""
    pages: dict[Path, _Page] = {}
    for path in HTML.rglob("*.html"):
        pages[path] = _Page()
        pages[path].feed(path.read_text())
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else None
            lost = parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors
            if not target.exists() or lost:
                broken.append(f"{path.relative_to(HTML)} links to {link}")
    return broken


def broken_files() -> list[str]:
    """Links of the Markdown sources to files that are not there."""
    broken = []
    for path in sources():
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            file = target.partition("#")[0]
            if file and "://" not in file and not (path.parent / file).exists():
                broken.append(f"{path.relative_to(ROOT)} links to {target}")
    return broken


def main() -> int:
    start = time.monotonic()
    os.environ |= {"GPUREDUCE_BACKEND": "emulator", "MPLBACKEND": "Agg"}
    os.chdir(ROOT)  # examples read notebooks/data
    faults = undocumented("\n".join(p.read_text() for p in (DOCS / "api").glob("*.md")))
    faults += broken_files()
    failed = run_examples() + build("html", HTML)
    faults += broken_links()
    if "--external" in sys.argv[1:]:
        failed += build("linkcheck", DOCS / "_build" / "linkcheck")
    print(*faults, sep="\n", end="\n" * bool(faults))
    print(f"{HTML.relative_to(ROOT)}/index.html, in {time.monotonic() - start:.0f} s")
    return 1 if failed or faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
