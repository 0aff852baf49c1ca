"""Exact sums on the CPU by every instruction set: exact_borders.py."""

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
def test_quick_ways_add_up_what_single_elements_do(name, simd):
    command = [sys.executable, str(PROGRAM), name]
    env = {**os.environ, "GPUREDUCE_SIMD": simd, "PYTHONPATH": str(SUPPORT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    arrays, elements, wrong = map(int, done.stdout.split())
    assert arrays > 3000 and elements > 1_000_000 and wrong == 0
