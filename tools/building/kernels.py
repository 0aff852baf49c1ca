"""The kernels that strategies.def and steps.def name, and how each is compiled."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from building.nvcc import Archs

ROOT = Path(__file__).resolve().parents[2]
CSRC = Path("csrc")
INCLUDE = Path("gpureduce") / "include"
KERNEL_TABLE = CSRC / "engine" / "kernel_table.cu"
# Headers that no kernel needs. With them, most kernels take a fourth longer to compile, those of
# cooperative groups twice as long: libstdc++'s Bessel functions and the like, by the guard of the
# file that <cmath> includes for C++17, and the atomics of cooperative groups.
FEWER_HEADERS = ["-D_GLIBCXX_BITS_SPECFUN_H", "-D_CG_LIMIT_INCLUDED_DEPENDENCIES"]
# The folders of kernels whose sums are of groups of elements.
OF_GROUPS = ("axis", "segments", "running")
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
    "scan_hillis_steele scan_blelloch scan_blelloch_padded scan_warp scan_three_launches "
    "scan_look_back",
    # lessons without shared memory
    "global_tree global_race atomic_thread key_atomic key_warp key_sorted key_fixed scan_add",
    # steps of sums by segment, with and without shared memory
    "segment_bounds segment_sample segment_count segment_order",
    "segment_largest segment_range segment_clear segment_round segment_join "
    "segment_put segment_claim segment_zeros",
]


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
            "MATRIX": int(self.path.parent.name in OF_GROUPS),
            "MOMENTS": int(self.path.parent.name == "axis" and self.dtypes == "ALL"),
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
        in_memory = "RING" in self.traits or self.path.parent.name in (
            "axis",
            "segments",
            "running",
        )
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
        named = {"running": files / "running", "scan": files / "scan"}
        folder = named.get(name.partition("_")[0], folder.get(kind))
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
