"""Builds the compiled modules.

_host             sums by the processors, exact accumulators, the registry
_emulator         the kernels, for the emulated GPU
_emulator_traced  like _emulator, with a hook at every memory access of a kernel
_cuda             the kernels, for NVIDIA's GPUs

_cuda is built if there is an NVIDIA driver, for the GPUs of this machine. GPUREDUCE_CUDA=require
builds it without a driver, too, and fails if there is no nvcc. GPUREDUCE_CUDA=0 leaves it out.
GPUREDUCE_CUDA_ARCHS="80;90" names compute capabilities. For "90-virtual" the build has PTX and no
machine code. Without one of these, it has PTX of the last, too.

Other environment variables: NVCC, CUDA_HOME, CC, CXX, GPUREDUCE_SANITIZE="address,undefined" or
"thread", GPUREDUCE_WERROR=1, GPUREDUCE_JOBS.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import sbom  # noqa: E402
from building import modules, nvcc, written  # noqa: E402

FREE_THREADED = modules.FREE_THREADED
FILES = written.FILES  # beside the compiled modules


class BuildBackends(build_ext):
    """Compiles all objects of all backends together, then links each backend."""

    def build_extensions(self) -> None:
        folder = Path(self.build_temp).resolve()
        facts: dict[str, object] = {}
        builds = []
        for extension in self.extensions:
            build, said = modules.build_of(extension.name.rpartition(".")[2], folder)
            facts |= said
            if build:
                builds.append((extension, build))
            else:  # a leftover of an earlier build must not be packaged
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)

        self.extensions = [extension for extension, _ in builds]
        jobs = [job for _, build in reversed(builds) for job in build.jobs]  # nvcc's first
        modules.compile_all(jobs)
        for extension, build in builds:
            build.link(Path(self.get_ext_fullpath(extension.name)).resolve())
        for name, content in written.files(facts).items():
            (self.package_folder() / name).write_text(json.dumps(content, indent=1) + "\n")
        if not facts["cuda"]:
            print(f"gpureduce: built without CUDA: {facts['why']}", file=sys.stderr)

    def package_folder(self) -> Path:
        return Path(self.get_ext_fullpath("gpureduce._host")).parent

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        built = Path(self.build_lib) / "gpureduce"
        for name in FILES:
            shutil.copy(built / name, ROOT / "gpureduce")
        for copied in (ROOT / "gpureduce").glob("_cuda*.so"):
            if not (built / copied.name).exists():
                copied.unlink()

    def get_outputs(self) -> list[str]:
        return [*super().get_outputs(), *(str(self.package_folder() / name) for name in FILES)]


class WheelWithBill(bdist_wheel):
    """A wheel that also has a bill of materials."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        super().write_wheelfile(wheelfile_base, *arguments)
        built = Path(self.bdist_dir or "") / "gpureduce" / written.FACTS
        if built.exists():  # not if only the metadata is asked for
            path = Path(wheelfile_base) / sbom.FILE
            path.parent.mkdir(exist_ok=True)
            info = json.loads(built.read_text())
            path.write_text(sbom.bill(self.distribution.get_version(), info))


if __name__ == "__main__":
    setup(
        ext_modules=[
            Extension(f"gpureduce.{name}", sources=[], py_limited_api=not FREE_THREADED)
            for name in ("_host", "_emulator", "_emulator_traced", "_cuda")
        ],
        cmdclass={"build_ext": BuildBackends, "bdist_wheel": WheelWithBill},
        options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}},
        setup_requires=nvcc.wheels_to_build_with(),
    )
