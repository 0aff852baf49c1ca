"""The programs of docs/examples/exact_add: compiled anywhere, run on a card."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpureduce
from cases import ROOT
from gpureduce.hardware import toolkit
from gpureduce.kernels import nvrtc

FOLDER = ROOT / "docs" / "examples" / "exact_add"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="no documentation")
needs_nvcc = pytest.mark.skipif(not toolkit.find("nvcc"), reason="no nvcc")
PATH = Path(gpureduce.include_path())


@pytest.fixture
def program(tmp_path):
    """A build by CMake, for sm_90."""
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    options = [f"-DCMAKE_CUDA_COMPILER={toolkit.find('nvcc')}", "-DCMAKE_CUDA_ARCHITECTURES=90"]
    options += [f"-DGPUREDUCE_INCLUDE={PATH}"]
    subprocess.run(["cmake", "-S", FOLDER, "-B", tmp_path, *options], check=True)
    subprocess.run(["cmake", "--build", tmp_path], check=True)
    return tmp_path / "histogram"


@needs_nvcc
@pytest.mark.slow
def test_cmake_builds_it(program):
    assert program.exists()


@needs_nvcc
@pytest.mark.gpu
def test_cmakes_program(program):
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    assert "exact_sum: 1" in done.stdout


@needs_nvcc
@pytest.mark.slow
def test_functions_for_numba(tmp_path):
    """As PTX and as an LTO object. Two files that include the header are linked together."""
    nvcc, source = toolkit.find("nvcc"), FOLDER / "for_numba.cu"
    include = f"-I{PATH}"
    options = [nvcc, "-arch=sm_90", include, source]
    subprocess.run([*options, "-rdc=true", "-ptx", "-o", "a.ptx"], check=True, cwd=tmp_path)
    found = re.findall(r"^\.visible \.func .* (\w+)\($", (tmp_path / "a.ptx").read_text(), re.M)
    assert found == ["exact_add_float", "exact_value_float"]
    subprocess.run([*options, "-dlto", "-dc", "-o", "a.o"], check=True, cwd=tmp_path)
    other = source.read_text().replace("_float(", "_also(")
    (tmp_path / "b.cu").write_text(f"{other}\nint main() {{}}\n")
    both = [nvcc, "-arch=sm_90", include, "-rdc=true", source, "b.cu"]
    subprocess.run(both, check=True, cwd=tmp_path)


def test_nvrtc_compiles_cupys_kernel():
    compiler = nvrtc.find()
    if not compiler:
        pytest.skip("no NVRTC")
    text = re.search(r'KERNEL = """(.*?)"""', (FOLDER / "with_cupy.py").read_text(), re.S)[1]
    header = (PATH / "gpureduce" / "exact_add.cuh").read_text()
    for standard in ("c++14", "c++20"):
        options = ["--gpu-architecture=sm_90", f"--std={standard}"]
        headers = {"gpureduce/exact_add.cuh": header}
        assert compiler.cubin(text, "kernel.cu", headers, ["add", "finish"], options)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch", "numba", "warp"])
def test_on_a_card(library, tmp_path):
    if not importlib.util.find_spec(library):
        pytest.skip(f"no {library}")
    for file in FOLDER.iterdir():
        shutil.copy(file, tmp_path)
    if library in ("numba", "torch") and not toolkit.find("nvcc"):
        pytest.skip("no nvcc")
    if library == "numba":
        pytest.importorskip("cffi")  # which Numba takes pointers by
        command = [toolkit.find("nvcc"), "-rdc=true", "-ptx", "-arch=sm_80", f"-I{PATH}"]
        subprocess.run([*command, "for_numba.cu"], check=True, cwd=tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(Path(gpureduce.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, tmp_path / f"with_{library}.py"],
        env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0 and "\n1 " in f"\n{done.stdout}", done.stdout + done.stderr
