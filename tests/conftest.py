"""Markers and options: gpu, slow; --record, --share, --slow. Builds that all workers share."""

from __future__ import annotations

import collections
import fcntl
import gc
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import gpureduce
from gpureduce.bench.provenance import provenance
from gpureduce.kernels import check

# Of each process that imports NumPy, OpenBLAS would start a thread per processor, which spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# JAX would take most of the GPU's memory in each process that uses it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _why_no_gpu() -> str:
    return "" if gpureduce.devices()[0].backend == "cuda" else gpureduce.build_info()["why"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", metavar="FILE", help="write what ran on the GPU to a JSON file")
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")
    parser.addoption(
        "--share", type=int, default=1, metavar="N", help="about one of N cases of each test"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --share N, keeps the first case of each test, and the same other ones in every run.

    Tests that have the GPU for themselves come last: all others wait while they run.
    """
    items.sort(key=lambda item: item.get_closest_marker("alone") is not None)
    seen: set[str] = set()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        chosen = (
            test not in seen or zlib.crc32(item.nodeid.encode()) % config.getoption("share") == 0
        )
        (kept if chosen else left).append(item)
        seen.add(test)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_collection_finish() -> None:
    """Garbage collection skips the tests and their modules, which stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # unknown without xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Of ``-n auto``: half as many again as processors, as some tests wait for limits of time."""
    processors = len(os.sched_getaffinity(0))
    return processors + (processors + 1) // 2


def pytest_runtest_setup(item: pytest.Item) -> None:
    if any(item.iter_markers("slow")) and not item.config.getoption("slow"):
        pytest.skip("slow: --slow runs it")
    if any(item.iter_markers("gpu")) and (why := _why_no_gpu()):
        pytest.skip(f"no GPU: {why}")
    if any(item.iter_markers("several_gpus")) and (why := _why_not_several()):
        pytest.skip(why)


def _why_not_several() -> str:
    cards = sum(device.backend == "cuda" for device in gpureduce.devices())
    return "" if cards > 1 else f"needs two GPUs; there {'is 1' if cards else 'is none'}"


def pytest_configure(config: pytest.Config) -> None:
    global _counts_here
    _counts_here = not hasattr(config, "workerinput")  # workers of pytest -n send their reports


_counts_here = True
_sums: collections.Counter[tuple[str, str]] = collections.Counter()
_results: collections.Counter[str] = collections.Counter()


@pytest.fixture(autouse=True)
def _hanging_kernels_end_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    if not gpureduce.build_info()["sanitize"]:
        monkeypatch.setattr(check, "_QUIET_S", 2.0)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Of tensors of PyTorch."""
    return str(request.param)


@pytest.fixture
def count_sum(request: pytest.FixtureRequest):
    """Counts sums per strategy and dtype, for the record."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()

    def count(strategy: str, dtype: str) -> None:
        counts[strategy, dtype] += 1

    yield count
    request.node.user_properties += [("sums", (*key, n)) for key, n in counts.items()]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not _counts_here:
        return
    if report.when == "call" or (report.when == "setup" and not report.passed):
        _results[report.outcome] += 1
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == "sums":
                strategy, dtype, number = value
                _sums[strategy, dtype] += number


@pytest.fixture(scope="session")
def built_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Of a name and a function: the folder that the function has filled, for all workers."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if hasattr(request.config, "workerinput") else base

    def folder_of(name: str, fill: Callable[[Path], object]) -> Path:
        folder = base / name
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                (folder / "complete").touch()
        return folder

    return folder_of


@pytest.fixture(autouse=True)
def _share_the_card(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """With pytest -n, a test marked alone has the GPU for itself."""
    if not (hasattr(request.config, "workerinput") and any(request.node.iter_markers("gpu"))):
        yield
        return
    alone, folder = any(request.node.iter_markers("alone")), tmp_path_factory.getbasetemp().parent
    with (folder / "card.lock").open("w") as file, (folder / "next.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # others begin no test while one waits to be alone
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield
        fcntl.flock(file, fcntl.LOCK_UN)  # children of fork() have the file open, too


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--record")
    if not path or not _counts_here or _why_no_gpu():
        return
    sums: dict[str, dict[str, int]] = {}
    for (strategy, dtype), number in _sums.items():
        sums.setdefault(strategy, {})[dtype] = number
    record = {
        **provenance("tests"),
        "tests": dict(_results),
        "sums_checked": sums,
    }
    Path(path).write_text(json.dumps(record, indent=1) + "\n")
