"""The command line in this process."""

from __future__ import annotations

import pytest

from gpureduce.cli import main


@pytest.fixture
def command(capsys):
    """Runs a command; returns its exit status, its output and its errors."""

    def run(*words: object) -> tuple[object, str, str]:
        try:
            status: object = main.main([*map(str, words)])
        except SystemExit as ended:
            status = ended.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
