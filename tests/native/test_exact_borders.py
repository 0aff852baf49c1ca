"""Where the CPU's bins for `exact` end: exact_borders.py by every instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cases import SUPPORT
from exact_cases import FLOATS, INSTRUCTIONS

PROGRAM = Path(__file__).with_name("exact_borders.py")


@pytest.mark.parametrize("simd", INSTRUCTIONS)
@pytest.mark.parametrize("name", FLOATS)
def test_elements_that_just_fit_or_do_not(name, simd):
    command = [sys.executable, str(PROGRAM), name]
    env = {**os.environ, "GPUREDUCE_SIMD": simd, "PYTHONPATH": str(SUPPORT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    arrays, wrong = map(int, done.stdout.split())
    assert arrays > 1000 and wrong == 0
