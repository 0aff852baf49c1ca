"""The gpu marker, and --record: what ran on a card, kept as evidence."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest

import gpureduce
from gpureduce.bench.provenance import provenance


def _why_no_gpu() -> str:
    return "" if gpureduce.devices()[0].backend == "cuda" else gpureduce.build_info()["why"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", metavar="FILE", help="write what ran on the GPU to a JSON file")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if any(item.iter_markers("gpu")) and (why := _why_no_gpu()):
        pytest.skip(f"no GPU: {why}")
    if any(item.iter_markers("several_gpus")) and (why := _why_not_several()):
        pytest.skip(why)


def _why_not_several() -> str:
    cards = sum(device.backend == "cuda" for device in gpureduce.devices())
    return "" if cards > 1 else f"needs two GPUs; there {'is 1' if cards else 'is none'}"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_COUNTS] = collections.Counter()
    config.stash[_RESULTS] = collections.Counter()


_COUNTS = pytest.StashKey[collections.Counter]()
_RESULTS = pytest.StashKey[collections.Counter]()


@pytest.fixture
def count_sum(request: pytest.FixtureRequest):
    """Counts sums per strategy and dtype, for the record."""
    counts = request.config.stash[_COUNTS]

    def count(strategy: str, dtype: str) -> None:
        counts[strategy, dtype] += 1

    return count


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if report.when == "call" or (report.when == "setup" and not report.passed):
        item.config.stash[_RESULTS][report.outcome] += 1
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--record")
    if not path or _why_no_gpu():
        return
    sums: dict[str, dict[str, int]] = {}
    for (strategy, dtype), number in session.config.stash[_COUNTS].items():
        sums.setdefault(strategy, {})[dtype] = number
    record = {
        **provenance("tests"),
        "tests": dict(session.config.stash[_RESULTS]),
        "sums_checked": sums,
    }
    Path(path).write_text(json.dumps(record, indent=1) + "\n")
