"""Kernels of no lesson, compiled with the emulator: masks, votes, faults, orders, loose heads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"


@pytest.mark.skipif(not CSRC.exists() or not shutil.which("g++"), reason="no source or compiler")
def test_kernels_of_no_lesson(tmp_path):
    sources = [*CSRC.glob("emulator/*.cpp"), ROOT / "tests" / "emulator_kernels.cpp"]
    includes = [f"-I{CSRC / d}" for d in (".", "emulator/include", "kernels")]
    program = tmp_path / "kernels"
    threads = [str(path) for path in CSRC.glob("threads/*.c")]
    subprocess.run(["gcc", "-O1", *includes, "-c", *threads], check=True, cwd=tmp_path)
    objects = [str(path) for path in tmp_path.glob("*.o")]
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-pthread", *includes, *map(str, sources), *objects,
         "-o", str(program)], check=True,
    )  # fmt: skip
    done = subprocess.run(
        [program], capture_output=True, text=True, timeout=240,
        env={**os.environ, "GPUREDUCE_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
