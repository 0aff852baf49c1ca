"""Correct kernels with one fault: a barrier, warp barrier, fence, mask or atomic is removed.

`MUTANTS` lists the kernel, the line, its replacement, and the missing part that the race detector
must name. tests/emulator/test_mutants.py builds all of them together with the unchanged kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CSRC = Path(__file__).resolve().parents[1] / "csrc"
KERNELS = CSRC / "kernels"


@dataclass(frozen=True)
class Mutant:
    """A replacement of the `nth` line with this text, in the kernel's file or in `file`."""

    kernel: str
    line: str
    missing: str
    becomes: str = ";"
    nth: int = 1
    file: str = ""
    n: int = 2055
    block: int = 256
    grid: int = 0

    @property
    def path(self) -> str:
        folder = {"key": "keys/", "scan": "scan/"}.get(self.kernel.partition("_")[0], "")
        return self.file or f"{folder}{self.kernel}.cu"

    @property
    def name(self) -> str:
        what = re.sub(r"\W+", "_", self.becomes).strip("_") or "gone"
        line = re.sub(r"\W+", "_", self.line).strip("_")
        return f"{self.kernel}-{line[:40]}-{self.nth}-{what[:40]}-{self.block}"

    def lines(self) -> tuple[int, list[str]]:
        """The number of the line, from 1, and the whole mutated file."""
        return mutated(KERNELS / self.path, self.line, self.becomes, self.nth)


def mutated(path: Path, line: str, becomes: str, nth: int) -> tuple[int, list[str]]:
    """The number, from 1, of the `nth` line with this text, and the file with it replaced."""
    lines = path.read_text().splitlines()
    found = [i for i, text in enumerate(lines) if text.strip() == line]
    assert len(found) >= nth, f"{path} has no {line!r} number {nth}"
    at = found[nth - 1]
    lines[at] = lines[at].replace(line, becomes)
    return at + 1, lines


BLOCK, WARP, FENCE = "__syncthreads()", "__syncwarp()", "__threadfence()"
GRID, CLUSTER, COPY = "grid.sync()", "cluster.sync()", "copy_wait()"
ATOMIC = "atomicAdd()"


def _barriers(kernel: str, expected: list[str], line: str, **more: Any) -> list[Mutant]:
    """A mutant for each barrier with the text `line`, in the order of the file."""
    return [Mutant(kernel, line, missing, nth=i + 1, **more) for i, missing in enumerate(expected)]


def _scans() -> list[Mutant]:
    alone: dict[str, Any] = {"n": 250}  # one block: the build has no scan_add
    far: dict[str, Any] = {"n": 8199}
    kernel, within = "scan_look_back", far | {"file": "parts/scan.h"}
    comments = ("all have read", "all have written")
    return [
        Mutant("scan_hillis_steele", "__syncthreads();", BLOCK, **alone),
        *(Mutant("scan_hillis_steele", f"__syncthreads(); /* {one} */", BLOCK, **alone)
          for one in comments),
        *_barriers("scan_blelloch", [BLOCK] * 3, "__syncthreads();", **alone),
        *_barriers("scan_warp", [BLOCK] * 2, "__syncthreads();", **alone),
        *_barriers(kernel, [BLOCK] * 2, "__syncthreads();", **far),
        *_barriers(kernel, [FENCE] * 3, "__threadfence();", **far),
        *_barriers(kernel, [BLOCK] * 2, "__syncthreads();", **within),
    ]  # fmt: skip


def _trees() -> list[Mutant]:
    found = []
    for kernel in ("interleaved_idx", "sequential", "first_add"):
        found += _barriers(kernel, [BLOCK, BLOCK], "__syncthreads();")
    # If a step stays within a warp, the detector names a warp barrier as missing.
    for kernel in ("global_tree", "interleaved_mod"):
        found += _barriers(kernel, [WARP, BLOCK], "__syncthreads();")
    found += _barriers("unroll_tail", [BLOCK, BLOCK, *[WARP] * 5], "__syncthreads();")
    for kernel in ("unroll_warp", "first_add_unroll_warp"):
        found += _barriers(kernel, [BLOCK, BLOCK], "__syncthreads();")
        found += _barriers(kernel, [WARP] * 5, "__syncwarp();")
    return found


def _templates() -> list[Mutant]:
    """Mutants of templates: each with a block size for which the mutated step is compiled."""
    found = []
    for kernel in ("unroll_full", "cascade"):
        barriers = _barriers(kernel, [BLOCK] * 6, "__syncthreads();", n=5000)
        for mutant, block in zip(barriers, (256, 416, 1024, 512, 256, 128), strict=True):
            found.append(Mutant(kernel, mutant.line, BLOCK, nth=mutant.nth, n=5000, block=block))
        found += _barriers(kernel, [WARP] * 5, "__syncwarp();")
    return found


def _masks() -> list[Mutant]:
    """Warp barriers whose mask omits one of two lanes that exchange data."""
    halves = [(16, "0xffffu", "0xffff0000u"), (8, "0xffu", "0xffffff00u"), (4, "0xfu", "~0xfu")]
    found = []
    for kernel in ("unroll_warp", "unroll_full"):
        for nth, (lanes, low, high) in enumerate(halves, 1):
            becomes = f"__syncwarp(tid < {lanes} ? {low} : {high});"
            found.append(Mutant(kernel, "__syncwarp();", WARP, becomes, nth))
    return found


def _warps() -> list[Mutant]:
    found = [Mutant("warp_shfl", "__syncthreads();", BLOCK)]
    found += [
        Mutant("redux", "__syncthreads();", BLOCK),
        Mutant("coop_groups", "block.sync();", BLOCK),
    ]
    found.append(Mutant("one_block", "__syncthreads();", BLOCK, n=20000))
    for kernel in ("vector_load", "atomic_block", "cluster"):
        found.append(Mutant(kernel, "__syncthreads();", BLOCK, file="parts/common.h", n=20000))
    return found


def _grids() -> list[Mutant]:
    """Mutants of synchronization between blocks: by a ticket, by a barrier, by an atomic."""
    fence = "__threadfence();"
    plain = "is_last = (*ticket)++ == gridDim.x - 1;"
    atomic = "is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;"
    grid_sync = "cooperative_groups::this_grid().sync();"
    found = [Mutant("last_block", fence, FENCE, nth=nth) for nth in (1, 2)]
    found += [Mutant("last_block", fence, FENCE, "__threadfence_block();", nth) for nth in (1, 2)]
    found.append(Mutant("last_block", atomic, ATOMIC, plain))
    put, got = (
        "put_marked(work + blockIdx.x, sum);",
        "marks &= get_marked(work + block + 32 * k, partial[k]);",
    )
    for kernel in ("tiles", "bulk_copy"):
        for whole, becomes in (
            (put, "work[blockIdx.x] = {sum, ~0u};"),
            (got, "partial[k] = work[block + 32 * k].value;"),
        ):
            found.append(
                Mutant(kernel, whole, GRID, becomes, file="parts/common.h", n=20000, grid=8)
            )
    found.append(Mutant("grid_sync", grid_sync, GRID))
    found.append(Mutant("grid_sync", grid_sync, GRID, "__syncthreads();"))
    found.append(Mutant("atomic_block", "atomicAdd(out, sum);", ATOMIC, "*out += sum;"))
    found.append(
        Mutant("atomic_thread", "atomicAdd(out, Acc(in[i]));", ATOMIC, "*out += Acc(in[i]);")
    )
    return found


def _clusters() -> list[Mutant]:
    first = "group.sync();"
    last = "group.sync(); /* no block may leave while its shared memory is still being read */"
    found = []
    for kernel in ("cluster", "one_cluster"):
        found.append(Mutant(kernel, first, CLUSTER, n=20000))
        found.append(Mutant(kernel, first, CLUSTER, "__syncthreads();", n=20000))
    found.append(Mutant("cluster", last, CLUSTER, n=20000))
    return found


def _copies() -> list[Mutant]:
    free = "__syncthreads(); /* the stage is free: all have read it */"
    wait = "copy_wait(&arrived[stage], round % 2);"
    ring = {"n": 9 * 8192 + 7, "grid": 1}
    return [
        Mutant("bulk_copy", "__syncthreads();", BLOCK, **ring),
        Mutant("bulk_copy", free, BLOCK, **ring),
        Mutant("bulk_copy", wait, COPY, **ring),
    ]


def _keys() -> list[Mutant]:
    """Mutants of the lessons on sums by key."""
    of = {"n": 2055, "grid": 0}
    return [
        Mutant("key_atomic", "atomicAdd(out + key[i], Acc(in[i]));", GRID,
               "out[key[i]] += Acc(in[i]);", **of),
        Mutant("key_warp", "atomicAdd(out + named, sum);", GRID, "out[named] += sum;", **of),
        *_barriers("key_shared", [BLOCK, BLOCK], "__syncthreads();", **of),
        Mutant("key_shared", "atomicAdd(of_block + key[i], Acc(in[i]));", BLOCK,
               "of_block[key[i]] += Acc(in[i]);", **of),
        Mutant("key_shared", "atomicAdd(out + k, of_block[k]);", GRID, "out[k] += of_block[k];",
               **of),
        *(Mutant("key_fixed", "__threadfence();", FENCE, nth=nth, **of) for nth in (1, 2)),
        Mutant("key_fixed", "__syncthreads();", GRID, **of),
        Mutant("key_fixed", "bool is_last = threadIdx.x == 0 && atomicInc(ticket, gridDim.x - 1) "
               "== gridDim.x - 1;", GRID,
               "bool is_last = threadIdx.x == 0 && (*ticket)++ == gridDim.x - 1;", **of),
    ]  # fmt: skip


MUTANTS = [
    *_trees(),
    *_templates(),
    *_masks(),
    *_warps(),
    *_grids(),
    *_clusters(),
    *_copies(),
]
SCAN_MUTANTS = _scans()  # cumsum runs them
KEY_MUTANTS = _keys()  # segment_sum runs them, not sum
