"""Counts do not depend on the host's compiler, nor on how it optimises."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cases import CSRC, ROOT
from gpureduce import _emulator_traced
from gpureduce.emulator.explain import explain

INCLUDES = [f"-I{CSRC / d}" for d in (".", "emulator/include", "kernels")]
COMMON = ["-g1", "-fPIC", *INCLUDES, "-c"]
COMPILERS = [c for c in ("g++", "clang++") if shutil.which(c)]
HOOKS = {
    "g++": ["-fsanitize=thread"],
    "clang++": ["-fsanitize=thread", "-mllvm", "-tsan-instrument-read-before-write=1"],
}
GRIDS = {
    "interleaved_idx": None, "unroll_warp": None, "warp_shfl": 3, "coop_groups": 3,
    "last_block": 12, "vector_load": 3,
}  # fmt: skip


def build_runtime(folder: Path) -> list[Path]:
    """The traced emulator's objects, all but kernels; by clang if it is there.

    The installed module's were made by another compiler, or at another level.
    """
    compiler = COMPILERS[-1]
    c_compiler = {"g++": "gcc", "clang++": "clang"}[compiler]
    flags = ["-O1", "-pthread", "-DGR_EMULATOR_TRACED", *COMMON]
    jobs = [[compiler, "-std=c++17", *flags, str(path)] for path in CSRC.glob("emulator/*/*.cpp")]
    jobs += [[c_compiler, *flags, str(path)] for path in CSRC.glob("threads/*.c")]
    folder.mkdir()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda job: subprocess.run(job, check=True, cwd=folder), jobs))
    return sorted(folder.glob("*.o"))


def counted_by(runtime: list[Path], compiler: str, level: str, folder: Path) -> list[str]:
    flags = ["-std=c++17", level, *HOOKS[compiler], "-gdwarf-4", "-gz=none", *COMMON]
    source, kernels = ROOT / "tests/native/counted_kernels.cpp", folder / f"{compiler}{level}.o"
    subprocess.run([compiler, *flags, source, "-o", kernels], check=True)
    program = kernels.with_suffix("")
    subprocess.run([COMPILERS[-1], "-pthread", kernels, *runtime, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=240)
    return sorted(done.stdout.splitlines())


def counted_here() -> list[str]:
    """The same by the installed module."""
    rows = []
    for strategy, grid in GRIDS.items():
        for line in explain(strategy, n=5000, block=128, grid=grid, sample=False).lines:
            counts = {**line.counters, **line.details}
            numbers = " ".join(str(counts[name]) for name in _emulator_traced.counter_names())
            rows.append(f"{strategy} {line.place} {numbers}")
    return sorted(rows)


def wide_loads(rows: list[str]) -> list[str]:
    """The line that loads 16 bytes at a time."""
    return [row for row in rows if row.startswith("vector_load common.h")]


@pytest.mark.slow
@pytest.mark.skipif(not CSRC.exists() or not COMPILERS, reason="no source, or no compiler")
def test_compilers_and_their_options_make_no_difference(tmp_path):
    """Counts per line are the same for each compiler of the kernels and for all its options."""
    runtime, right = build_runtime(tmp_path / "runtime"), counted_here()
    for compiler, level in itertools.product(COMPILERS, ("-O0", "-O2")):
        found, expected = counted_by(runtime, compiler, level, tmp_path), right
        if compiler == "clang++" and level != "-O0":
            # An optimising clang makes two loads of 8 bytes out of one of 16 before it puts in its
            # hooks. The build asks for -O0, always.
            assert wide_loads(found) and wide_loads(expected)
            found = [row for row in found if row not in wide_loads(found)]
            expected = [row for row in expected if row not in wide_loads(expected)]
        assert found == expected, (compiler, level)
    if "clang++" not in COMPILERS:
        pytest.skip("no clang++: compared g++ at two levels only")
