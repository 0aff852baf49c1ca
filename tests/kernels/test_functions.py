"""The page on writing kernels names the functions that the emulator has: all, and no others."""

from __future__ import annotations

import re

import pytest

from cases import CSRC

PAGE = CSRC.parent / "docs" / "write_a_kernel.md"
HEADERS = CSRC / "emulator" / "include"
pytestmark = pytest.mark.skipif(not HEADERS.exists(), reason="no source")


def test_the_page_names_every_function_of_the_emulator():
    defined = set()
    for header in HEADERS.rglob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        # A function, or a macro's line that defines some: GR_LOAD(__ldg).
        lines = r"^(?:\[\[noreturn\]\] | *GR_|template).*?[\s(](__\w+|atomic\w+)[(),]"
        defined.update(re.findall(lines, text, re.M))
    defined -= {"__half", "__half2"}  # constructors
    table = PAGE.read_text().split("## What a kernel may call")[1].split("\n\n")[2]
    named = set(re.findall(r"`(\w+)`", table))
    assert len(named) > 70
    assert {name for name in named if name.startswith(("__", "atomic"))} == defined
