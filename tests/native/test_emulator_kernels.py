"""Programs with the emulator: kernels of no lesson, and forks."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

import mutant_build
from cases import CSRC, NATIVE

INCLUDES = [f"-I{CSRC / d}" for d in (".", "emulator/include", "kernels")]
CXX = ["g++", "-std=c++17", "-O1", "-pthread", *INCLUDES]

pytestmark = pytest.mark.skipif(
    not CSRC.exists() or not shutil.which("g++"), reason="no source or compiler"
)


def build_emulator(folder):
    threads = [str(path) for path in CSRC.glob("threads/*.c")]
    subprocess.run(["gcc", "-O1", *INCLUDES, "-c", *threads], check=True, cwd=folder)
    subprocess.run([*CXX, "-c", *mutant_build.emulator(folder)], check=True, cwd=folder)


@pytest.fixture
def emulator(built_once):
    return [str(path) for path in built_once("emulator", build_emulator).glob("*.o")]


def test_kernels(emulator, tmp_path):
    run(tmp_path / "kernels", NATIVE / "emulator_kernels.cpp", *emulator)


def test_children_made_while_others_have_locks(emulator, tmp_path):
    sources = [NATIVE / "forks.c", CSRC / "backend/status.c"]
    sources += [CSRC / "engine" / name for name in ("workspace.c", "times.c")]
    options = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-pthread"]
    subprocess.run(["gcc", *options, *INCLUDES, "-c", *sources], check=True, cwd=tmp_path)
    run(tmp_path / "forks", *tmp_path.glob("*.o"), *emulator)


def run(program, *parts):
    subprocess.run([*CXX, *parts, "-o", program], check=True)
    # Without the sanitizers' library, which may be preloaded: its malloc() may hang in a child.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [program], capture_output=True, text=True, timeout=240,
        env={**env, "GPUREDUCE_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
