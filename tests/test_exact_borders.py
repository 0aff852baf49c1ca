"""Where the CPU's bins for `exact` end: exact_borders.py by every instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from exact_cases import FLOATS, INSTRUCTIONS

PROGRAM = Path(__file__).with_name("exact_borders.py")


@pytest.mark.parametrize("simd", INSTRUCTIONS)
@pytest.mark.parametrize("name", FLOATS)
def test_elements_that_just_fit_or_do_not(name, simd):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), name],
        capture_output=True, text=True, timeout=300, env={**os.environ, "GPUREDUCE_SIMD": simd},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    arrays, wrong = map(int, done.stdout.split())
    assert arrays > 1000 and wrong == 0
