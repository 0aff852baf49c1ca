"""Every public name is in the documentation's reference, with an example."""

from __future__ import annotations

import docs
import gpureduce


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
