"""The suite's own warnings are errors; those of other pytest plugins are not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpureduce
from cases import ROOT

PROJECT = ROOT / "pyproject.toml"

pytestmark = pytest.mark.skipif(not PROJECT.exists(), reason="not a source checkout")

PLUGIN = """
import warnings

def say(when):
    for kind in (UserWarning, DeprecationWarning, PendingDeprecationWarning, RuntimeWarning):
        warnings.warn(f"of the plugin, {when}", kind)

def pytest_configure(): say("configure")
def pytest_sessionstart(): say("start")
def pytest_collection_modifyitems(): say("collection")
def pytest_runtest_setup(): say("setup")
def pytest_runtest_call(): say("call")
def pytest_runtest_teardown(): say("teardown")
def pytest_sessionfinish(): say("finish")
"""

TESTS = """
import threading, warnings
import numpy as np, pytest
import gpureduce, gpureduce.core.arrays

def test_plain():
    assert gpureduce.sum(np.ones(3)).value == 3

def test_the_tests_own():
    warnings.warn("mine", DeprecationWarning)

def test_of_numpy_in_a_test():
    np.array([1e300]) * 1e300

def test_of_numpy_below():
    np.float32(1e30) + np.sum(np.full(2, 3e38, np.float32))

@pytest.mark.parametrize(
    "module", ["gpureduce", "gpureduce.core.summation", "numpy._core.fromnumeric"]
)
@pytest.mark.parametrize("kind", [UserWarning, RuntimeWarning, DeprecationWarning, FutureWarning])
def test_in_the_package(module, kind):
    warnings.warn_explicit("in the package", kind, "file.py", 1, module)

def test_of_numpy_in_the_package(monkeypatch):
    there = {"np": np, "__name__": "gpureduce.core.arrays"}
    overflow = eval("lambda *_: np.array([1e300]) * 1e300", there)
    monkeypatch.setattr(gpureduce.core.arrays, "convert", overflow)
    gpureduce.sum(np.ones(3))

def test_threads():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

class Spoilt:
    def __del__(self):
        raise ValueError

def test_unraisable():
    Spoilt()
"""


def test_our_own_warnings_are_errors_and_a_plugins_are_not(tmp_path):
    (tmp_path / "warning_plugin.py").write_text(PLUGIN)
    (tmp_path / "test_some.py").write_text(TESTS)
    package = Path(gpureduce.__file__).parents[1]
    paths = [str(tmp_path), str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "-c", PROJECT, "--rootdir", tmp_path, "-v"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "warning_plugin", "test_some.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("PYTHONWARNINGS", None)
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    verdicts = dict(re.findall(r"^test_some\.py::(\S+) (PASSED|FAILED|ERROR)", done.stdout, re.M))
    assert done.returncode == 1 and verdicts.pop("test_plain") == "PASSED", done.stdout
    assert len(verdicts) == 18 and set(verdicts.values()) == {"FAILED"}, verdicts
    assert "of the plugin, call" in done.stdout
