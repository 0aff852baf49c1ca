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

import hashlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
CSRC = Path("csrc")
# A card runs machine code of its major version, up to its minor one, or else the driver compiles
# PTX. A wheel with machine code for all of them has more than 12 MB. A card of 9.0 or newer must
# not run PTX of an older one, which lacks wait_for_earlier_kernels().
DEFAULT_ARCHS = "75;80;90;100-virtual;120"
# With machine code of Jetson Orin, 8.7, which runs no other card's.
ARM_ARCHS = "75-virtual;87;90;100-virtual;120"
CUDA_WHEELS = [
    f"nvidia-{name}==13.0.*"
    for name in ("cuda-nvcc", "nvvm", "cuda-crt", "cuda-runtime", "cuda-cccl")
]
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
# Files that the build writes beside the backends.
WRITTEN = ("_build.json", "_kernels.json", "_nvcc.json", "_headers.json", "_records.json")
# The flags and paths that determine a kernel's machine code. -O is for the host's code alone, which
# takes a fourth less time to compile than by -O3.
NVCC_FLAGS = ["-std=c++17", "-O1"]
CUDA_INCLUDES = [CSRC / "cuda", CSRC / "kernels"]
KERNEL_TABLE = CSRC / "engine" / "kernel_table.cu"
# Headers that no kernel needs. With them, most kernels take a fourth longer to compile, those of
# cooperative groups twice as long: libstdc++'s Bessel functions and the like, by the guard of the
# file that <cmath> includes for C++17, and the atomics of cooperative groups.
FEWER_HEADERS = ["-D_GLIBCXX_BITS_SPECFUN_H", "-D_CG_LIMIT_INCLUDED_DEPENDENCIES"]
# Kernels that nvcc compiles together, a line per run. All others have a run of their own, which
# takes a second for CUDA's headers alone. To the driver, the kernels of a run are one module: it
# loads the module when one of them is first used, which takes longer than for one kernel, and
# compiles all of them if there is only PTX. So these are small, and none sums whole arrays by
# default. In a module with dynamic shared memory, ptxas reserves 1 KiB of it for every kernel. So
# no line mixes kernels that have it with others.
TOGETHER = [
    # trees in shared memory
    "interleaved_mod interleaved_idx sequential unroll_tail unroll_warp first_add "
    "first_add_unroll_warp",
    "warp_volatile missing_barrier divergent_barrier",
    # warps, clusters and the grid
    "warp_shfl coop_groups redux vector_load atomic_block grid_sync cluster key_shared",
    # lessons without shared memory
    "global_tree global_race atomic_thread key_atomic key_warp key_sorted key_fixed",
    # steps of sums by segment, with and without shared memory
    "segment_bounds segment_sample segment_count segment_order",
    "segment_largest segment_range segment_clear segment_round segment_merge segment_join "
    "segment_put segment_claim",
]

SBOM = runpy.run_path(str(ROOT / "tools" / "sbom.py"))

# Folders of C sources: for every module, for _host, and for each build of the kernels.
EVERY_MODULE = ("bindings", "shared", "threads", "cpu", "exact")
HOST = (*EVERY_MODULE, "segments", "bindings/host")
KNOWS_CUDA = ("bindings/device", "backend", "transfer", "engine")


# --- the registry: the fields that the build needs ---------------------------------------------


@dataclass
class Kernel:
    """A line of strategies.def or steps.def that has a kernel file."""

    name: str
    path: Path
    traits: list[str]
    capability: int
    dtypes: str

    def macros(self) -> dict[str, str | int]:
        """The macros of kernel_table.cu."""
        return {
            "KERNEL": self.name,
            "KERNEL_FILE": f'"{self.path.relative_to(CSRC)}"',
            "PAIRS": f"GR_PAIRS_{self.dtypes}",
            "BLOCKS": int("BLOCK_TEMPLATE" in self.traits),
            "VIEWS": f"GR_VIEWS_{self.dtypes if 'ANY_ELEMENTS' in self.traits else 'NONE'}",
            "MATRIX": int(self.path.parent.name in ("axis", "segments")),
            "HAS_SHARES": int("ADDS_SHARES" in self.traits),
            "VIEWS_ONLY": int(self.dtypes != "ALL"),
            "SAMPLES": int(self.sums_samples()),
        }

    def defines(self) -> list[str]:
        """The flags to compile it alone, from kernel_table.cu."""
        return [*FEWER_HEADERS, *(f"-D{name}={value}" for name, value in self.macros().items())]

    def source(self) -> str:
        """Lines to compile it from a file with others."""
        lines = [f"#define {name} {value}" for name, value in self.macros().items()]
        return "\n".join([*lines, f'#include "{KERNEL_TABLE.relative_to(CSRC)}"', ""])

    def sums_samples(self) -> bool:
        """Whether it is compiled for samples of a function, which lie nowhere in memory."""
        in_memory = "RING" in self.traits or self.path.parent.name in ("axis", "segments")
        return self.dtypes == "ALL" and not in_memory


def read_registry() -> list[Kernel]:
    text = "".join((ROOT / CSRC / f"{name}.def").read_text() for name in ("strategies", "steps"))
    kernels = []
    for line in re.finditer(
        r"^STRATEGY\((\w+),\s+(\w+),\s+([\w\s|]+),\s+(\d+),\s+(\w+),", text, re.M
    ):
        name, kind, traits, capability, dtypes = line.groups()
        files = CSRC / "kernels"
        folder = {"KERNEL": files, "EVERYWHERE": files}
        folder |= {"BROKEN": files / "broken", "AXIS": files / "axis"}
        folder |= {"SEGMENTS": files / "segments", "KEYS": files / "keys"}
        folder = folder.get(kind)
        if folder:
            words = traits.replace("|", " ").split()
            kernels.append(Kernel(name, folder / f"{name}.cu", words, int(capability), dtypes))
    return kernels


def units(kernels: list[Kernel], archs: Archs) -> list[list[Kernel]]:
    """The kernels of each run of nvcc: those in a line of TOGETHER that have the same options."""
    lines = {name: line for line in TOGETHER for name in line.split()}
    found: dict[tuple[str, ...], list[Kernel]] = {}
    for kernel in kernels:
        key = (lines.get(kernel.name, kernel.name), *archs.options(kernel.capability))
        found.setdefault(key, []).append(kernel)
    return list(found.values())


# --- finding nvcc -------------------------------------------------------------------------------

# The package's own rule, from a file that imports nothing of the package.
find_tool = runpy.run_path(str(ROOT / "gpureduce" / "hardware" / "toolkit.py"))["find"]


def toolkit_of(nvcc: Path) -> Path:
    """The toolkit's folder, as nvcc reports it: the nvcc on PATH may be a wrapper script."""
    command = [nvcc, "--dryrun", "-x", "cu", os.devnull]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    top = re.search(r"^#\$ TOP=(.+)$", said, re.M)
    return Path(top.group(1)).resolve() if top else nvcc.resolve().parent.parent


def nvcc_release(nvcc: Path) -> tuple[int, ...]:
    """The toolkit's version as nvcc reports it, such as (13, 0); empty if it reports none."""
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    release = re.search(r"release ([\d.]+),", said)
    return tuple(map(int, release.group(1).split("."))) if release else ()


def has_driver() -> bool:
    return os.path.exists("/proc/driver/nvidia/version") or bool(shutil.which("nvidia-smi"))


def cuda_wanted() -> str:
    wanted = os.environ.get("GPUREDUCE_CUDA", "auto").lower() or "auto"
    if wanted not in ("0", "auto", "require"):
        sys.exit(f"GPUREDUCE_CUDA must be 0, auto or require, not {wanted!r}")
    return wanted


def wants_cuda() -> bool:
    """Whether to build _cuda: by default if there is an NVIDIA driver."""
    named = cuda_wanted() == "require" or bool(os.environ.get("GPUREDUCE_CUDA_ARCHS"))
    return cuda_wanted() != "0" and (named or has_driver())


def wheels_to_build_with() -> list[str]:
    """The toolkit's wheels, if _cuda is to be built and there is no nvcc."""
    if "egg_info" not in sys.argv:  # not the build front end's query for requirements
        return []
    return CUDA_WHEELS if wants_cuda() and not find_tool("nvcc") else []


@dataclass
class Archs:
    """Compute capabilities, times ten, to compile machine code (real) and PTX (virtual) for."""

    real: list[int]
    virtual: list[int]

    @classmethod
    def named(cls, text: str) -> Archs:
        """By a list such as "80;90" or "75;90-virtual". Without any virtual one: the last real."""
        if not re.fullmatch(r"\d+(-virtual)?([;, ]+\d+(-virtual)?)*", text):
            sys.exit(f"GPUREDUCE_CUDA_ARCHS must be like '80;90' or '75;90-virtual', not {text!r}")
        names = set(re.split(r"[;, ]+", text))
        real = sorted(int(name) for name in names if name.isdigit())
        virtual = sorted(int(name.partition("-")[0]) for name in names if not name.isdigit())
        return cls(real, virtual)

    def options(self, capability: int = 0) -> list[str]:
        """nvcc's, for a kernel that needs a capability; empty if no card can run it."""
        real = [arch for arch in self.real if arch >= capability]
        virtual = sorted({max(arch, capability) for arch in self.virtual}) or real[-1:]
        return [
            *(f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in real),
            *(f"-gencode=arch=compute_{arch},code=compute_{arch}" for arch in virtual),
        ]


def archs_of_cards() -> str:
    """The compute capabilities of this machine's GPUs, such as "80;90"; "" without a GPU."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return ";".join(found.replace(".", "") for found in re.findall(r"^\d+\.\d$", said, re.M))


# --- compiling ----------------------------------------------------------------------------------


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
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0]


def for_arm() -> bool:
    """Whether the compiler's code is for AArch64: it may be a cross compiler."""
    return ask_compiler("-dumpmachine").startswith("aarch64")


def is_clang(compiler: list[str]) -> bool:
    said = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
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
        self.includes = [f"-I{p}" for p in (CSRC, *includes)]
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
    return [p.relative_to(ROOT) for p in found if p.name != "absent_kernel.c"]


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
        self.jobs += [
            tools.cpp(KERNEL_TABLE, [*kernel.defines(), *defines, *hooks], sanitize=not traced)
            for kernel in read_registry()
        ]

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
        self.options = subprocess.run([nvcc, "--help"], capture_output=True, text=True).stdout
        self.libraries = [
            *(f"-L{home / d}" for d in ("lib64", "lib") if (home / d).is_dir()),
            *("-lcudart_static", "-ldl", "-lrt"),
        ]
        # The first takes longest.
        self.jobs = [self.cuda(CSRC / "cuda" / "backend.cu", archs.options(), "backend", [])]
        for unit in units(read_registry(), archs):
            options = archs.options(unit[0].capability)
            if options:
                self.jobs.append(self.cuda(self.write(unit), options, unit[0].name, FEWER_HEADERS))
            else:
                absent = CSRC / "engine" / "absent_kernel.c"
                self.jobs += [tools.c(absent, [f"-DKERNEL={kernel.name}"]) for kernel in unit]
        system = [*self.rename, f"-isystem{home / 'include'}"]
        self.jobs += [tools.c(source) for source in c_sources(EVERY_MODULE)]
        self.jobs += [tools.c(source, system) for source in c_sources(KNOWS_CUDA)]

    def write(self, unit: list[Kernel]) -> Path:
        """The source of a unit, which has the name of its first kernel."""
        path = self.tools.folder / f"{unit[0].name}.cu"
        text = "".join(kernel.source() for kernel in unit)
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return path

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


def kernel_sources() -> dict[str, list[str]]:
    """The lines of every kernel file, to show the source line of a count."""
    folder = ROOT / CSRC / "kernels"
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".cu", ".h"))
    return {p.relative_to(ROOT).as_posix(): p.read_text().splitlines() for p in files}


def nvcc_recipe() -> dict[str, object]:
    """Flags, defines and included files of a kernel, to compile it again on another machine."""
    around = [ROOT / KERNEL_TABLE]
    for folder in (".", "cuda", "engine", "shared", "exact"):
        around += sorted(p for p in (ROOT / CSRC / folder).iterdir() if p.suffix in (".h", ".def"))
    return {
        "flags": [*NVCC_FLAGS, *(f"-I{folder}" for folder in (CSRC, *CUDA_INCLUDES))],
        "file": KERNEL_TABLE.as_posix(),
        "defines": {kernel.name: kernel.defines() for kernel in read_registry()},
        "sources": {p.relative_to(ROOT).as_posix(): p.read_text() for p in around},
    }


def headers_for_users() -> dict[str, object]:
    """The headers and flags by which gpureduce.kernels compiles a user's kernel."""
    folder = ROOT / CSRC
    files = [p for p in (folder / "emulator" / "include").rglob("*") if p.is_file()]
    files += [*(folder / "shared").glob("*.h"), folder / "dtypes.def"]
    files += [folder / "engine" / "compiled_kernels.h", folder / "kernels" / "parts" / "common.h"]
    files += [folder / "cuda" / "device.h", *(folder / "cuda" / "nvrtc").iterdir()]
    return {
        "traced": [*TRACED, "-DGR_EMULATOR_TRACED"],
        "traced_by_clang": CLANG_HOOKS,
        "includes": ["emulator/include", "kernels", "."],
        "nvcc": NVCC_FLAGS,
        "cuda_includes": ["cuda", "kernels", "."],
        "files": {p.relative_to(folder).as_posix(): p.read_text() for p in sorted(files)},
    }


def records_of_lectures() -> dict[str, object]:
    """The records of the lectures' experiments on an H100, by experiment."""
    paths = sorted((ROOT / "notebooks" / "data").glob("lecture_*_h100.json"))
    made = [json.loads(path.read_text()) for path in paths]
    return {record["lecture"]: record for record in made}


def git_tree(folder: Path) -> tuple[str, dict[str, str]]:
    """Git's hash of a folder, and the hashes of its entries. Works without git."""
    rows, hashes = [], {}
    for path in folder.iterdir():
        if path.is_dir():
            name = git_tree(path)[0]
        else:
            content = path.read_bytes()
            name = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        mode = "40000" if path.is_dir() else "100755" if os.access(path, os.X_OK) else "100644"
        rows.append((path.name + "/" * path.is_dir(), f"{mode} {path.name}", bytes.fromhex(name)))
        hashes[path.name] = name
    tree = b"".join(entry.encode() + b"\0" + name for _, entry, name in sorted(rows))
    return hashlib.sha1(b"tree %d\0" % len(tree) + tree).hexdigest(), dict(sorted(hashes.items()))


# --- setuptools ---------------------------------------------------------------------------------


class BuildBackends(build_ext):
    """Compiles all objects of all backends together, then links each backend."""

    def build_extensions(self) -> None:
        folder = Path(self.build_temp).resolve()
        trees = git_tree(ROOT / CSRC)[1]
        info: dict[str, object] = {
            "sanitize": SANITIZE, "cuda": False, "cuda_archs": [], "cuda_ptx": [], "trees": trees,
            "compiler": ask_compiler("--version"),
        }  # fmt: skip
        builds = []
        for extension in self.extensions:
            module = extension.name.rpartition(".")[2]
            if module == "_cuda":
                build, said = self.cuda_build(folder, module)
                info |= said
            elif module == "_host":
                build = HostBuild(folder, module)
            else:
                build = EmulatorBuild(folder, module)
            if build:
                builds.append((extension, build))
            else:  # a leftover of an earlier build must not be packaged
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)

        self.extensions = [extension for extension, _ in builds]
        compile_all([job for _, build in reversed(builds) for job in build.jobs])  # nvcc's first
        for extension, build in builds:
            build.link(Path(self.get_ext_fullpath(extension.name)).resolve())
        self.write_info(info)
        if not info["cuda"]:
            print(f"gpureduce: built without CUDA: {info['why']}", file=sys.stderr)

    def cuda_build(self, folder: Path, module: str) -> tuple[CudaBuild | None, dict[str, object]]:
        wanted, nvcc = cuda_wanted(), find_tool("nvcc")
        if wanted == "0":
            return None, {"why": "GPUREDUCE_CUDA was 0"}
        if not wants_cuda():
            return None, {
                "why": "there was no NVIDIA driver (GPUREDUCE_CUDA=require builds "
                "for all cards, GPUREDUCE_CUDA_ARCHS=90 for one kind)"
            }
        if not nvcc:
            why = "there was no nvcc (NVCC, CUDA_HOME, PATH, nvidia-cuda-nvcc)"
            if wanted == "require":
                sys.exit(f"GPUREDUCE_CUDA=require, but {why}")
            return None, {"why": why}
        named = os.environ.get("GPUREDUCE_CUDA_ARCHS") or archs_of_cards()
        named = named or (ARM_ARCHS if for_arm() else DEFAULT_ARCHS)
        archs = Archs.named(named)
        said = {
            "cuda": True,
            "why": "",
            "cuda_archs": archs.real,
            "cuda_ptx": archs.virtual or archs.real[-1:],
            "nvcc": ".".join(map(str, nvcc_release(nvcc))) or "unknown",
            "cccl": SBOM["cccl_version"](toolkit_of(nvcc)),
        }
        return CudaBuild(folder, module, nvcc, archs), said

    def write_info(self, info: dict[str, object]) -> None:
        package = Path(self.get_ext_fullpath("gpureduce._host")).parent
        texts = (info, kernel_sources(), nvcc_recipe(), headers_for_users(), records_of_lectures())
        for name, said in zip(WRITTEN, texts, strict=True):
            (package / name).write_text(json.dumps(said, indent=1) + "\n")

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        built = Path(self.build_lib) / "gpureduce"
        for written in WRITTEN:
            shutil.copy(built / written, ROOT / "gpureduce")
        for copied in (ROOT / "gpureduce").glob("_cuda*.so"):
            if not (built / copied.name).exists():
                copied.unlink()

    def get_outputs(self) -> list[str]:
        package = Path(self.get_ext_fullpath("gpureduce._host")).parent
        return [*super().get_outputs(), *(str(package / written) for written in WRITTEN)]


class WheelWithBill(bdist_wheel):
    """A wheel that also has a bill of materials."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        super().write_wheelfile(wheelfile_base, *arguments)
        built = Path(self.bdist_dir or "") / "gpureduce" / WRITTEN[0]
        if built.exists():  # not if only the metadata is asked for
            path = Path(wheelfile_base) / SBOM["FILE"]
            path.parent.mkdir(exist_ok=True)
            info = json.loads(built.read_text())
            path.write_text(SBOM["bill"](self.distribution.get_version(), info))


if __name__ == "__main__":
    setup(
        ext_modules=[
            Extension(f"gpureduce.{name}", sources=[], py_limited_api=not FREE_THREADED)
            for name in ("_host", "_emulator", "_emulator_traced", "_cuda")
        ],
        cmdclass={"build_ext": BuildBackends, "bdist_wheel": WheelWithBill},
        options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}},
        setup_requires=wheels_to_build_with(),
    )
