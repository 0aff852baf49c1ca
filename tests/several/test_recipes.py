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


def run(name: str, *before: str) -> list[str]:
    """The results that a recipe prints, each with its rank; launchers may print more."""
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
    return sorted(re.findall(r"(?:rank \d of \d: )?-?0x1\.[0-9a-f]+p[+-]\d+", done.stdout))


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


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")
def test_ray():
    assert run("with_ray.py", sys.executable) == [right()]


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_torch_distributed(ranks):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    lines = run("with_torch_distributed.py", *launcher, "--nproc-per-node", str(ranks))
    assert lines == [f"rank {i} of {ranks}: {right()}" for i in range(ranks)]


def test_a_thousand_ranks_in_random_trees():
    import merge_trials

    assert merge_trials.run(trials=12, ranks=1000, seed=7) == 0
