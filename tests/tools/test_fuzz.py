"""A slice of each fuzzer of tools/fuzz. CI runs more of them, with sanitizers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

import gpureduce
from cases import ROOT

FUZZ = ROOT / "tools" / "fuzz"
pytestmark = pytest.mark.skipif(not FUZZ.exists(), reason="no tools beside the tests")

CASES = {
    "dlpack": 50, "interface": 50, "npy": 25, "files": 25, "accumulator": 25, "cli": 10,
    "threads": 5, "interrupts": 15, "allocations": 15,
}  # fmt: skip
SHIMMED = ("interrupts", "allocations")


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(FUZZ), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("kind", CASES)
def test_slice(kind):
    if kind in SHIMMED and not shutil.which("c++"):
        pytest.skip("no C++ compiler")
    done = fuzz(kind, "--cases", str(CASES[kind]), "--timeout", "60", "--failures", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{kind}: {CASES[kind]} cases, seed 1,")


def test_kinds_are_all_here():
    text = (FUZZ / "kinds.py").read_text()
    assert re.findall(r'^    "(\w+)",$', text, re.M) == [*CASES]


SANITIZED = bool(gpureduce.build_info()["sanitize"])  # a sanitizer ends the process itself
SELF_TEST = {
    0: "the process ended with status 1: AddressSanitizer: SEGV"
    if SANITIZED
    else "the process died of SIGSEGV",
    1: "hung for 2 s",
    2: "unexpected KeyError: 'mended'",
    3: "the process ended with status 3",
}


def test_failures_are_printed_with_the_command_that_repeats_them():
    """By a kind that crashes, hangs, raises and exits on purpose, and is right in between."""
    done = fuzz("self-test", "--cases", "8", "--timeout", "2")
    assert done.returncode == 1
    for case, head in SELF_TEST.items():
        assert f"FAILED self-test, case {case}: {head}" in done.stdout
        assert f"self-test --cases 1 --seed 1 --start {case}\n" in done.stdout
    assert "4 right, 4 failed; 4 failures" in done.stdout
    again = fuzz("self-test", "--cases", "1", "--start", "2")
    assert again.returncode == 1 and SELF_TEST[2] in again.stdout
