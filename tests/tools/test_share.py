"""pytest --share N: fewer cases, of every test."""

from __future__ import annotations

import collections
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def _cases(*options: str) -> collections.Counter[str]:
    """How many cases of each test of a file are chosen."""
    command = [sys.executable, *"-P -m pytest --collect-only -q -p no:cacheprovider".split()]
    done = subprocess.run(
        [*command, *options, str(TESTS / "core" / "test_cpu.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line for line in done.stdout.splitlines() if "::" in line]
    return collections.Counter(name.partition("[")[0] for name in names)


def test_a_share_of_the_cases_of_every_test():
    every, some = _cases(), _cases("--share", "4")
    assert set(some) == set(every)
    assert some.total() < every.total() / 2
