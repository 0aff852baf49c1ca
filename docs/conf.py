"""Settings of Sphinx; ``python tools/docs.py`` builds the pages to docs/_build/html."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import Any

from pygments.lexers import CudaLexer, PythonLexer
from sphinx.application import Sphinx

import gpureduce

HERE = Path(__file__).resolve().parent

project = "gpureduce"
author = "the gpureduce contributors"
copyright = f"2026, {author}"
version = release = gpureduce.__version__

extensions = ["sphinx.ext.autodoc", "numpydoc", "myst_nb"]
exclude_patterns = ["_build"]

default_role = "py:obj"
suppress_warnings = ["ref.python"]  # several classes have a `dtype`
python_maximum_signature_line_length = 72
add_module_names = False
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_mock_imports = [] if importlib.util.find_spec("torch") else ["torch"]
autodoc_type_aliases = {"npt.ArrayLike": "ArrayLike", "npt.DTypeLike": "DTypeLike"}
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the outputs that are stored are shown
nb_merge_streams = True

html_theme = "furo"
html_title = f"gpureduce {version}"
html_static_path = ["_static", "_build/static"]
html_css_files = ["gpureduce.css"]
html_js_files = ["tables.js"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "default"  # "friendly" prints outputs in a grey of too little contrast
pygments_dark_style = "monokai"

# The notebooks stay where Jupyter opens them. Sphinx reads only what lies in its own folder.
(HERE / "notebooks").mkdir(exist_ok=True)
for _notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
    _copy = HERE / "notebooks" / _notebook.name
    if not _copy.exists() or _copy.read_bytes() != _notebook.read_bytes():
        shutil.copy(_notebook, _copy)


# A replay of every rung, which the pages show in frames.
REPLAYS = HERE / "_build" / "static" / "replays"
REPLAYS.mkdir(parents=True, exist_ok=True)
for _row in gpureduce.strategies():
    if _row.launches_kernels and _row.kind not in ("axis", "segments", "choice"):
        gpureduce.replay(_row.name, 128 if _row.name == "exact" else 256).save(
            REPLAYS / f"{_row.name}.html"
        )
for _before, _after in (("interleaved_mod", "interleaved_idx"), ("interleaved_idx", "sequential")):
    _both = gpureduce.replay(_before, 256, beside=_after)
    _both.save(REPLAYS / f"{_before}_{_after}.html")


# Links out of docs/, which a repository follows, and the page here that has the same.
PAGES = {
    HERE.parent / "README.md": HERE / "index.md",
    HERE.parent / "CONTRIBUTING.md": HERE / "contributing.md",
    HERE.parent / "CHANGELOG.md": HERE / "changelog.md",
    HERE.parent / "csrc" / "kernels": HERE / "kernels.md",
}


def _link(folder: Path, link: re.Match[str]) -> str:
    """A link that leads out of docs/, as a link to a page here; a link to a folder as text."""
    text, target = link[1], (folder / link[2]).resolve()
    page = PAGES.get(target)
    if target.suffix == ".ipynb":
        page = HERE / "notebooks" / target.name
    if page:
        return f"[{text}]({os.path.relpath(page, folder)})"
    return text if target.is_dir() else link[0]


def _point_inside(app: Sphinx, docname: str, source: list[str]) -> None:
    folder = (HERE / docname).parent
    links = r"\[([^]]+)\]\((\.\./[^)#]+)\)"
    source[0] = re.sub(links, functools.partial(_link, folder), source[0])


def _short_types(app: Sphinx, *what: Any) -> tuple[str | None, str | None]:
    """Sphinx shows an alias in a union by the class that stands for it."""
    shown = (text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) for text in what[-2:])
    return next(shown), next(shown)


class CellLexer(PythonLexer):
    """Python, and CUDA C in the cells of notebooks that begin with %%kernel."""

    def get_tokens(self, text: str, unfiltered: bool = False) -> Any:
        """The tokens of a cell."""
        lexer = CudaLexer() if text.startswith("%%kernel") else super()
        return lexer.get_tokens(text, unfiltered)


def setup(app: Sphinx) -> None:
    """What Sphinx calls when it starts."""
    app.add_lexer("python", CellLexer)
    app.connect("autodoc-process-signature", _short_types)
    app.connect("source-read", _point_inside)
