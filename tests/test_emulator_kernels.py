"""Kernels compiled with the emulator: of no lesson, and the ladder's where their array arrives."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
INCLUDES = [f"-I{CSRC / d}" for d in (".", "emulator/include", "kernels")]
CXX = ["g++", "-std=c++17", "-O1", "-pthread", *INCLUDES]

pytestmark = pytest.mark.skipif(
    not CSRC.exists() or not shutil.which("g++"), reason="no source or compiler"
)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulator")
    threads = [str(path) for path in CSRC.glob("threads/*.c")]
    sources = [str(path) for path in CSRC.glob("emulator/*.cpp")]
    subprocess.run(["gcc", "-O1", *INCLUDES, "-c", *threads], check=True, cwd=folder)
    subprocess.run([*CXX, "-c", *sources], check=True, cwd=folder)
    return [str(path) for path in folder.glob("*.o")]


@pytest.mark.parametrize("name", ["emulator_kernels", "arriving_kernels"])
def test_kernels(emulator, tmp_path, name):
    program = tmp_path / name
    source = str(ROOT / "tests" / f"{name}.cpp")
    subprocess.run([*CXX, source, *emulator, "-o", str(program)], check=True)
    done = subprocess.run(
        [program], capture_output=True, text=True, timeout=240,
        env={**os.environ, "GPUREDUCE_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
