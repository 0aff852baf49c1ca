"""What a release says about itself in several files."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from gpureduce.version import VERSION

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_the_same_everywhere():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert cited and newest and cited.group(1) == newest.group(1) == VERSION


@pytest.mark.parametrize("cuda", [True, False])
def test_the_bill_of_materials_names_what_is_linked_in(cuda):
    bill = runpy.run_path(str(ROOT / "tools" / "sbom.py"))["bill"]
    info = {"cuda": cuda, "nvcc": "13.0", "cccl": "3.0.1", "compiler": "gcc 12"}
    text = bill("1.2.3", info)
    parts = json.loads(text)["components"]
    assert [part["version"] for part in parts] == (["13.0", "3.0.1"] if cuda else [])
    assert text == bill("1.2.3", info)  # nothing of the clock or of chance
    assert text != bill("1.2.4", info)
