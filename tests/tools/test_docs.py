"""Every public name is in the documentation's reference, with an example."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

import docs
import gpureduce
from gpureduce.bench.svg_bars import svg_bars


def reference() -> str:
    return "\n".join(page.read_text() for page in (docs.DOCS / "api").glob("*.md"))


def test_every_public_name_is_in_the_reference_with_an_example():
    assert docs.undocumented(reference()) == []


def test_a_name_that_is_left_out_is_found(monkeypatch):
    def undocumented_function():
        """No example."""

    monkeypatch.setattr(gpureduce, "new_name", undocumented_function, raising=False)
    monkeypatch.setattr(gpureduce, "__all__", ["sum", "new_name"])
    assert docs.undocumented(reference()) == [
        "gpureduce.new_name is in no page of docs/api",
        "gpureduce.new_name has no example in its docstring",
    ]


def test_markdown_links_lead_to_files():
    assert docs.broken_files() == []


PICTURES = {
    **{path.name: path.read_text for path in sorted(docs.DOCS.glob("*.svg"))},
    "bars": lambda: svg_bars("GB/s", [("fast", 2.0), ("cub", 1.0), ("tiles", 1.5)]),
    "explain": lambda: gpureduce.explain("interleaved_idx", n=4096).picture().svg(),
    "races": lambda: gpureduce.races("missing_barrier").svg(),
    "atomics": lambda: gpureduce.races("global_race").svg(),
}


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", PICTURES)
def test_a_pictures_file_has_a_dark_scheme(name):
    """Every colour has a dark one, and what can be read in the light can be in the dark."""
    text = PICTURES[name]()
    style = re.search(r"<style>@media \(prefers-color-scheme:dark\)\{(.*)\}</style>", text)[1]
    dark = dict(re.findall(r'\[fill="(#\w{6})"\]\{fill:(#\w{6})\}', style))
    root = ElementTree.fromstring(text)
    drawn = [element for element in root.iter() if not element.tag.endswith("style")]
    for kind in ("fill", "stroke"):
        used = {e.get(kind) for e in drawn} - {None, "none"}
        assert used <= {*re.findall(rf'\[{kind}="(#\w{{6}})"\]', style)}
    for colour in {e.get("fill") for e in drawn if e.tag.endswith("text")} - {"#ffffff"}:
        assert contrast(dark[colour], dark["#ffffff"]) > 4


def test_a_picture_in_a_page_has_the_pages_scheme():
    assert "<style>" not in gpureduce.explain("cascade", n=4096)._repr_html_()
    assert "<style>" not in gpureduce.races("missing_barrier")._repr_html_()


def test_tables_and_charts_have_a_style_for_phones_and_for_the_dark():
    """As they were looked at with a browser, at 1300 and 390 pixels, light and dark."""
    static = docs.DOCS / "_static"
    css, script = (static / "gpureduce.css").read_text(), (static / "tables.js").read_text()
    config = (docs.DOCS / "conf.py").read_text()
    assert "gpureduce.css" in config and "tables.js" in config
    assert "background: white" not in css  # a white box in the dark
    for selector in ('body[data-theme="dark"]', 'body[data-theme="auto"]', "(max-width: 46em)"):
        assert selector in css
    assert set(re.findall(r"\.words\b", css)) and 'classList.add("words")' in script
    assert "attr(data-head)" in css and "dataset.head" in script
