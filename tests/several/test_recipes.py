"""The programs of docs/recipes: an engine that adds integers merges exact sums."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from cases import ROOT

RECIPES = ROOT / "docs" / "recipes"


def output(name: str, *before: str) -> str:
    """What a recipe prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(gpureduce.__file__).parents[1]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMP_NUM_THREADS": "1",
        "GPUREDUCE_THREADS": "1",
    }
    done = subprocess.run(
        [*before, str(RECIPES / name)],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(name: str, *before: str) -> list[str]:
    """The results that a recipe prints, each with its rank; launchers may print more."""
    pattern = r"(?:rank \d of \d: )?-?0x1\.[0-9a-f]+p[+-]\d+"
    return sorted(re.findall(pattern, output(name, *before)))


def right() -> str:
    return gpureduce.sum(np.random.default_rng(1).standard_normal(100_000)).value.hex()


def test_multiprocessing():
    assert run("with_multiprocessing.py", sys.executable) == [right()]


@pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun")
@pytest.mark.parametrize("ranks", [1, 4])
def test_mpi4py(ranks):
    if not importlib.util.find_spec("mpi4py"):
        pytest.skip("mpi4py is not installed")
    lines = run("with_mpi4py.py", "mpirun", "-n", str(ranks), sys.executable)
    assert lines == [f"rank {i} of {ranks}: {right()}" for i in range(ranks)]


@pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun")
def test_segments_with_mpi4py():
    if not importlib.util.find_spec("mpi4py"):
        pytest.skip("mpi4py is not installed")
    printed = output("segments_with_mpi4py.py", "mpirun", "-n", "4", sys.executable)
    rng = np.random.default_rng(1)
    numbers, ids = rng.standard_normal(100_000), rng.integers(0, 5, 100_000)
    sums = " ".join(value.hex() for value in gpureduce.segment_sum(numbers, ids).value)
    assert sorted(printed.splitlines()) == [f"rank {i} of 4: {sums}" for i in range(4)]


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")
def test_ray():
    assert run("with_ray.py", sys.executable) == [right()]


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_torch_distributed(ranks):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    lines = run("with_torch_distributed.py", *launcher, "--nproc-per-node", str(ranks))
    assert lines == [f"rank {i} of {ranks}: {right()}" for i in range(ranks)]


BY_KEY = {
    "index_add_in_training.py": "torch",
    "graph_network_epoch.py": "torch",
}


@pytest.mark.parametrize("name", BY_KEY)
def test_adding_by_key_has_the_same_bits_in_any_order(name):
    if not importlib.util.find_spec(BY_KEY[name]):
        pytest.skip(f"{BY_KEY[name]} is not installed")
    lines = output(name, sys.executable).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["order 0", "order 1", "order 2"]
    assert len({line.partition(":")[2] for line in lines}) == 1 and len(lines[0]) > 20


def test_a_thousand_ranks_in_random_trees():
    import merge_trials

    assert merge_trials.run(trials=12, ranks=1000, seed=7) == 0
