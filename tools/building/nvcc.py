"""Finds nvcc, and the architectures to compile for."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
# The package's own rule, from a file that imports nothing of the package.
find_tool = runpy.run_path(str(ROOT / "gpureduce" / "hardware" / "toolkit.py"))["find"]


def self_description(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    """The output of a tool on itself, which takes a moment: a minute is the limit."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def toolkit_of(nvcc: Path) -> Path:
    """The toolkit's folder, as nvcc reports it: the nvcc on PATH may be a wrapper script."""
    command = [nvcc, "--dryrun", "-x", "cu", os.devnull]
    said = self_description(command).stderr
    top = re.search(r"^#\$ TOP=(.+)$", said, re.M)
    return Path(top.group(1)).resolve() if top else nvcc.resolve().parent.parent


def nvcc_release(nvcc: Path) -> tuple[int, ...]:
    """The toolkit's version as nvcc reports it, such as (13, 0); empty if it reports none."""
    said = self_description([nvcc, "--version"]).stdout
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
        said = self_description(command).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return ";".join(found.replace(".", "") for found in re.findall(r"^\d+\.\d$", said, re.M))
