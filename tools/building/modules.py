"""Compiles the modules: a class for each kind of backend."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sbom import cccl_version

from building.kernels import CSRC, FEWER_HEADERS, INCLUDE, ROOT, Kernel, read_registry, units
from building.nvcc import (
    ARM_ARCHS,
    DEFAULT_ARCHS,
    Archs,
    archs_of_cards,
    cuda_wanted,
    find_tool,
    nvcc_release,
    self_description,
    toolkit_of,
    wants_cuda,
)

NVCC_ADVICE = """
gpureduce: nvcc could not compile the kernels. This is release {release}, {nvcc}.
- Without kernels for a GPU: GPUREDUCE_CUDA=0 pip install gpureduce
- Another toolkit, 12.3 or later: NVCC=FOLDER/bin/nvcc or CUDA_HOME=FOLDER
- "Unsupported gpu architecture": a newer toolkit, or GPUREDUCE_CUDA_ARCHS=90 with an architecture
  that `nvcc --list-gpu-arch` lists
- "unsupported GNU version": an older host compiler, such as CXX=g++-13
- "Killed", or no message: too little memory; GPUREDUCE_JOBS=1 compiles one file at a time"""
# Free-threaded Python has no stable ABI before 3.15: its modules are for one version of it.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
SANITIZE = os.environ.get("GPUREDUCE_SANITIZE", "")
# ThreadSanitizer is for the host's C. It does not support the emulator's fibers, and the traced
# emulator has its hooks for itself.
TSAN = SANITIZE == "thread"
WARNINGS = ["-Wall", "-Wextra"] + (["-Werror"] if os.environ.get("GPUREDUCE_WERROR") else [])
# By default clang omits the hook of a load if a store to the same address follows.
CLANG_HOOKS = ["-mllvm", "-tsan-instrument-read-before-write=1"]
# The line table that csrc/emulator/trace/lines.cpp reads. It needs no columns.
LINES = ["-gdwarf-4", "-g1", "-gno-column-info", "-gz=none"]
TRACED = ["-O0", "-fsanitize=thread", *LINES]
# The flags and paths that determine a kernel's machine code. -O is for the host's code alone, which
# takes a fourth less time to compile than by -O3.
NVCC_FLAGS = ["-std=c++17", "-O1"]
CUDA_INCLUDES = [CSRC / "cuda", CSRC / "kernels"]

# Kernels that are compiled together for an emulator, whose headers take longer than most kernels.
EMULATED_TOGETHER = 6

# Folders of C sources: for every module, for _host, and for each build of the kernels.
EVERY_MODULE = ("bindings", "shared", "threads", "cpu", "exact")
HOST = (*EVERY_MODULE, "segments", "bindings/host")
KNOWS_CUDA = ("bindings/device", "backend", "transfer", "engine")


@dataclass
class Job:
    """One object file and the command that makes it."""

    source: Path
    target: Path
    command: list[str]
    if_it_fails: str = ""  # what the user can do

    def stale(self) -> bool:
        """Whether one of the files in the compiler's dependency list is newer or missing."""
        try:
            made = self.target.stat().st_mtime
            said = self.target.with_suffix(".d").read_text().replace("\\\n", " ")
            read = shlex.split(said.partition(": ")[2])
            return any((ROOT / name).stat().st_mtime > made for name in read)
        except OSError:
            return True

    def compile(self) -> None:
        run(self.command, self.if_it_fails)


def run(command: list[str], if_it_fails: str = "") -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    output = (done.stdout + done.stderr).strip()
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{output}\n{if_it_fails}".rstrip())
    if output:
        print(output, file=sys.stderr)


def compile_all(jobs: list[Job]) -> None:
    """Compiles stale targets in parallel. Two jobs with the same target are compiled once."""
    todo = {job.target: job for job in jobs if job.stale()}
    for job in todo.values():
        job.target.parent.mkdir(parents=True, exist_ok=True)
    workers = int(os.environ.get("GPUREDUCE_JOBS", 0)) or len(os.sched_getaffinity(0))
    start = told = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        for done, _ in enumerate(pool.map(Job.compile, todo.values())):
            if time.monotonic() - told > 1:  # each line turns the wheel that pip shows meanwhile
                told = time.monotonic()
                print(
                    f"gpureduce: compiled {done + 1} of {len(todo)} files in {told - start:.0f} s",
                    file=sys.stderr, flush=True,
                )  # fmt: skip


def ask_compiler(option: str) -> str:
    """The first line that the C compiler prints for an option."""
    command = [*os.environ.get("CC", "gcc").split(), option]
    return self_description(command).stdout.partition("\n")[0]


def for_arm() -> bool:
    """Whether the compiler's code is for AArch64: it may be a cross compiler."""
    return ask_compiler("-dumpmachine").startswith("aarch64")


def is_clang(compiler: list[str]) -> bool:
    said = self_description([*compiler, "--version"]).stdout
    return "clang" in said


class Toolchain:
    """Compiler commands for one backend."""

    def __init__(self, folder: Path, module: str, includes: list[Path]) -> None:
        import numpy

        headers, numpy_headers = sysconfig.get_paths()["include"], numpy.get_include()
        self.folder = folder
        self.module = module
        self.cc = os.environ.get("CC", "gcc").split()
        self.cxx = os.environ.get("CXX", "g++").split()
        self.includes = [f"-I{p}" for p in (CSRC, *includes, INCLUDE)]
        self.python = [
            f"-I{headers}",
            f"-isystem{numpy_headers}",
            f"-ffile-prefix-map={headers}=python",
            f"-ffile-prefix-map={numpy_headers}=numpy",
        ]
        self.python += [] if FREE_THREADED else ["-DPy_LIMITED_API=0x030B0000"]
        # Keeps the build machine's paths out of the objects.
        self.rename = [f"-ffile-prefix-map={ROOT}=."]
        self.common = ["-O2", "-fPIC", "-fvisibility=hidden", "-pthread", *WARNINGS]
        # By other models, glibc allocates a thread's variables when it first uses one, and ends the
        # process if there is no memory.
        # Not for _cuda: the CUDA runtime in it has more of them than the room for this model.
        self.common += ["-ftls-model=initial-exec"] if module != "_cuda" else []
        self.common += ["-g1"] if SANITIZE else []  # other modules are stripped
        # Fused multiply-adds would change sums on processors that have them: AArch64.
        self.common.append("-ffp-contract=off")
        self.common += self.rename
        self.sanitize = (
            [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
            if SANITIZE and not (TSAN and module.endswith("_traced"))
            else []
        )

    def job(self, source: Path, command: list[str]) -> Job:
        key = hashlib.sha256("\0".join([*command, str(source)]).encode()).hexdigest()[:12]
        target = self.folder / f"{source.stem}-{key}.o"
        tell = ["-MMD", "-MF", str(target.with_suffix(".d"))]  # lists the files read
        return Job(source, target, [*command, *tell, "-c", str(source), "-o", str(target)])

    def c(self, source: Path, extra: Sequence[str] = ()) -> Job:
        folder = source.parent.relative_to(CSRC).as_posix()
        flags = ["-std=gnu11", *self.common, *self.sanitize, f"-I{CSRC}", *extra]
        flags += self.includes if folder in KNOWS_CUDA else []
        flags += self.python if folder.startswith("bindings") else []
        flags += [f"-DGR_MODULE={self.module}"] if source.name == "module.c" else []
        flags += ["-O3"] if folder in ("cpu", "segments") else []
        return self.job(source, [*self.cc, *flags])

    def together(self, kernels: list[Kernel], name: str = "") -> Path:
        """The source that compiles these kernels together, named after the first of them."""
        path = self.folder / f"{name or kernels[0].name}.cu"
        text = "".join(kernel.source() for kernel in kernels)
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return path

    def cpp(self, source: Path, extra: list[str], sanitize: bool = True) -> Job:
        sanitize = sanitize and not TSAN
        flags = ["-std=c++17", *self.common, *(self.sanitize if sanitize else [])]
        return self.job(source, [*self.cxx, *flags, *self.includes, *extra, "-x", "c++"])

    def link(self, target: Path, jobs: list[Job], libraries: list[str]) -> None:
        objects = list(dict.fromkeys(str(job.target) for job in jobs))
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [*self.cxx, "-shared", "-pthread", *self.sanitize, *objects, *libraries]
        # Without unused code and without symbols, the module is smaller.
        command.append("-Wl,--gc-sections")
        if not SANITIZE and self.module in ("_host", "_emulator", "_cuda"):
            command.append("-Wl,-s")
        run([*command, "-o", str(target)])
        if not SANITIZE and self.module == "_emulator_traced":
            # It reads the table of the kernels' lines from its own file.
            strip = ask_compiler("-print-prog-name=strip")
            run([strip, "--strip-all", "--keep-section=.debug_line", str(target)])


def c_sources(folders: Sequence[str]) -> list[Path]:
    found = [p for f in folders for p in sorted((ROOT / CSRC / f).glob("*.c"))]
    return [p.relative_to(ROOT) for p in found]


class Build(Protocol):
    """The objects of a module and how to link them."""

    jobs: list[Job]

    def link(self, target: Path) -> None:
        """Links the module."""


class HostBuild:
    """The build of sums by the processors: plain C, without CUDA."""

    def __init__(self, folder: Path, module: str) -> None:
        self.tools = Toolchain(folder, module, [])
        self.jobs = [self.tools.c(source) for source in c_sources(HOST)]

    def link(self, target: Path) -> None:
        self.tools.link(target, self.jobs, [])


class EmulatorBuild:
    """The build of the kernels as C++ for the host, with the emulator's own CUDA headers."""

    def __init__(self, folder: Path, module: str) -> None:
        traced = module.endswith("_traced")
        tools = Toolchain(folder, module, [CSRC / "emulator" / "include", CSRC / "kernels"])
        runtime = sorted((ROOT / CSRC / "emulator").rglob("*.cpp"))
        defines = ["-DGR_EMULATOR_TRACED"] if traced else []
        # The traced build's kernels have the hooks of a sanitizer, and therefore no other ones.
        # Others take a third less time to compile by -O1 than by -O2, and run faster.
        hooks = TRACED if traced else ["-O1"]
        hooks += CLANG_HOOKS if traced and is_clang(tools.cxx) else []
        # No exception passes through a kernel: fibers are ended without unwinding.
        hooks += [] if SANITIZE else ["-fno-exceptions", "-fno-asynchronous-unwind-tables"]

        self.tools = tools
        self.jobs = [tools.c(source) for source in c_sources(EVERY_MODULE)]
        for source in c_sources(KNOWS_CUDA):  # most are compiled once for both emulators
            differs = "GR_EMULATOR_TRACED" in (ROOT / source).read_text()
            self.jobs.append(tools.c(source, defines if differs else []))
        self.jobs += [tools.cpp(p.relative_to(ROOT), defines) for p in runtime]
        kernels = read_registry()
        for first in range(0, len(kernels), EMULATED_TOGETHER):
            some = kernels[first : first + EMULATED_TOGETHER]
            source = tools.together(some, f"emulated_{some[0].name}")
            self.jobs.append(tools.cpp(source, [*defines, *hooks], sanitize=not traced))

    def link(self, target: Path) -> None:
        # Users' kernels link to the functions that are visible; the module's own calls stay direct.
        self.tools.link(target, self.jobs, ["-Wl,-Bsymbolic", "-ldl"])


class CudaBuild:
    """The build of the kernels by nvcc. Links the CUDA runtime statically, and not libcuda."""

    def __init__(self, folder: Path, module: str, nvcc: Path, archs: Archs) -> None:
        home = toolkit_of(nvcc)
        tools = Toolchain(folder, module, CUDA_INCLUDES)
        self.rename = [*tools.rename, f"-ffile-prefix-map={home}=cuda"]
        self.tools = tools
        self.nvcc = nvcc
        self.release = nvcc_release(nvcc)
        self.options = self_description([nvcc, "--help"]).stdout
        self.libraries = [
            *(f"-L{home / d}" for d in ("lib64", "lib") if (home / d).is_dir()),
            *("-lcudart_static", "-ldl", "-lrt"),
        ]
        # The first takes longest.
        self.jobs = [self.cuda(CSRC / "cuda" / "backend.cu", archs.options(), "backend", [])]
        for unit in units(read_registry(), archs):
            options = archs.options(unit[0].capability)
            if options:  # some architecture can run them
                self.jobs.append(
                    self.cuda(tools.together(unit), options, unit[0].name, FEWER_HEADERS)
                )
        system = [*self.rename, f"-isystem{home / 'include'}"]
        self.jobs += [tools.c(source) for source in c_sources(EVERY_MODULE)]
        self.jobs += [tools.c(source, system) for source in c_sources(KNOWS_CUDA)]

    def cuda(self, source: Path, options: list[str], seed: str, extra: list[str]) -> Job:
        flags = [*NVCC_FLAGS, *self.tools.includes, *extra, *options]
        flags += ["--compress-mode=size"] if "--compress-mode " in self.options else []
        # nvcc makes names from random numbers and from the file's absolute path. With a seed and
        # a file name, two builds have the same bytes.
        if "--frandom-seed " in self.options:
            flags += [f"-frandom-seed={seed}", f"-Xcudafe=--orig_src_path_name={source.name}"]
        host = ["-fPIC", "-fvisibility=hidden", *self.rename]
        flags += [f"-Xcompiler={shlex.quote(flag)}" for flag in host]  # nvcc passes them to a shell
        if "CXX" in os.environ:
            flags.append(f"-ccbin={os.environ['CXX']}")
        job = self.tools.job(source, [str(self.nvcc), *flags])
        release = ".".join(map(str, self.release)) or "unknown"
        job.if_it_fails = NVCC_ADVICE.format(nvcc=self.nvcc, release=release)
        return job

    def link(self, target: Path) -> None:
        self.tools.link(target, self.jobs, self.libraries)


def _without_cuda(why: str) -> tuple[None, dict[str, object]]:
    return None, {"cuda": False, "cuda_archs": [], "cuda_ptx": [], "why": why}


def cuda_build(folder: Path, module: str) -> tuple[CudaBuild | None, dict[str, object]]:
    """The build of `_cuda`, or None, and what to record of it."""
    wanted, nvcc = cuda_wanted(), find_tool("nvcc")
    if wanted == "0":
        return _without_cuda("GPUREDUCE_CUDA was 0")
    if not wants_cuda():
        return _without_cuda(
            "there was no NVIDIA driver (GPUREDUCE_CUDA=require builds for all cards, "
            "GPUREDUCE_CUDA_ARCHS=90 for one kind)"
        )
    if not nvcc:
        why = "there was no nvcc (NVCC, CUDA_HOME, PATH, nvidia-cuda-nvcc)"
        if wanted == "require":
            sys.exit(f"GPUREDUCE_CUDA=require, but {why}")
        return _without_cuda(why)
    named = os.environ.get("GPUREDUCE_CUDA_ARCHS") or archs_of_cards()
    archs = Archs.named(named or (ARM_ARCHS if for_arm() else DEFAULT_ARCHS))
    said = {
        "cuda": True,
        "cuda_archs": archs.real,
        "cuda_ptx": archs.virtual or archs.real[-1:],
        "why": "",
        "nvcc": ".".join(map(str, nvcc_release(nvcc))) or "unknown",
        "cccl": cccl_version(toolkit_of(nvcc)),
    }
    return CudaBuild(folder, module, nvcc, archs), said


def build_of(module: str, folder: Path) -> tuple[Build | None, dict[str, object]]:
    """The build of a module, or None, and what to record of it."""
    if module == "_cuda":
        return cuda_build(folder, module)
    return (HostBuild if module == "_host" else EmulatorBuild)(folder, module), {}
