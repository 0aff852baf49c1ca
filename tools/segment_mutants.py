"""Sums by segment with one fault in the arithmetic of their integers, and a battery of sums.

``python tools/segment_mutants.py NUMBER ...`` builds mutants, or all, and says which of them the
battery (segment_battery.py) lets pass. tests/emulator/test_segment_mutants.py does the same. Each
mutant's battery runs in a process of its own, because a wrong place in memory may end it.

`KERNELS` are faults in headers of the kernels, which are built for the emulator. `PROCESSORS` are
faults in csrc/segments.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from building import modules
from segment_battery import Array, cases

from mutant_build import load
from mutants import CSRC, mutated

SECONDS = 300  # a battery that takes longer hangs


@dataclass(frozen=True)
class Mutant:
    """A replacement of the `nth` line with this text in a file of csrc."""

    file: str
    line: str
    becomes: str
    nth: int = 1

    def text(self) -> str:
        """The whole mutated file."""
        lines = mutated(CSRC / self.file, self.line, self.becomes, self.nth)[1]
        return "\n".join(lines) + "\n"


def _of(file: str, *changes: tuple[Any, ...]) -> list[Mutant]:
    return [Mutant(file, *change) for change in changes]


_WORDS = "kernels/parts/segment_words.h"
KERNELS = [
    *_of(
        _WORDS,
        # elements as integers
        ("unsigned long long size = up < 0 ? without_bits(s.size, -up) : s.size << (up & 63);",
         "unsigned long long size = s.size << (up & 63);"),
        ("return s.is_negative ? -whole : whole;", "return whole;"),
        ("return {s.is_negative ? -whole : whole, k, 0};", "return {whole, k, 0};"),
        ("return {0, 0, plan.flags ? s.flag : 0};", "return {0, 0, 0};"),
        ("unsigned long long size = up < 0 ? without_bits(s.size, -up) : s.size;",
         "unsigned long long size = s.size;"),
        # words
        ("unsigned long long mask = (1ull << plan.width) - 1;",
         "unsigned long long mask = (1ull << (plan.width - 1)) - 1;"),
        ("rest = is_top ? 0 : rest >> (plan.width - shift);",
         "rest = is_top ? 0 : rest >> plan.width;"),
        ("add(k, s.is_negative ? -(long long)part : (long long)part);",
         "add(k, (long long)part);"),
        ("shift = 0;", ";"),
        # overflow
        ("return ((a ^ sum) & (b ^ sum)) < 0;", "return false;"),
        ("if (overflows(before, value))", "if (false)"),
        ("if (((before ^ after) & ((int)up ^ after)) < 0)", "if (false)"),
        # shared memory
        ("carry = atomicAdd(low + at, part) > ~part;",
         "carry = atomicAdd(low + at, part) >= ~part;"),
        ("carry = atomicAdd(low + at, part) > ~part;", "atomicAdd(low + at, part);"),
        ("unsigned up = (unsigned)(value >> 32) + carry;",
         "unsigned up = (unsigned)((unsigned long long)value >> 33) + carry;"),
        ("flags |= (unsigned)part;", "flags = (unsigned)part;"),
    ),
    *_of(
        "exact/round.h",
        ("if (last < format.unit)", "if (0)"),
        ("uint64_t half = (uint64_t)1 << (drop - 1), rest = m & (2 * half - 1);",
         "uint64_t half = (uint64_t)1 << (drop - 1), rest = m & (half - 1);"),
        ("mantissa += rest > half || (rest == half && mantissa & 1);",
         "mantissa += rest >= half;"),
        ("mantissa += rest > half || (rest == half && mantissa & 1);", "mantissa += rest > half;"),
        ("if (bits > infinity)", "if (0)"),
        ("return negative ? bits | sign : bits;", "return bits;"),
    ),
    *_of(
        "kernels/parts/segment_rounding.h",
        ("while (32 * (next + 1) <= position)", "if (32 * (next + 1) <= position)"),
        ("give(next, (long long)-1);", ";"),
    ),
    *_of(
        "kernels/parts/exact_rounding.h",
        ("bool more = (size & (((unsigned __int128)1 << drop) - 1)) != 0;", "bool more = false;"),
        ("long long rest = value >> (32 - shift);", "long long rest = value >> (31 - shift);"),
        ("carry = (value - low) >> 32;", "carry = 0;"),
        ("rest = under;", "rest = 0;"),
        ("under = below[1] ? sign(below[1]) : under;", "under = sign(below[1]);"),
    ),
    *_of(
        "kernels/parts/exact_levels.h",
        ("x -= without_bits_below(x, 32 * (first + count));", ";"),
        ("end = last + 53 > end ? last + 53 : end;", "end = last + 20 > end ? last + 20 : end;"),
    ),
    *_of(
        "kernels/parts/segment_extremes.h",
        ("if (field <= low)", "if (field < low)"),
        ("merge_maximum(&to->high, (largest ? largest - 1 : 0) + digits);",
         "merge_maximum(&to->high, (largest ? largest - 1 : 0) + digits - 1);"),
        ("unsigned lowest = unsigned(s.exponent + __ffsll((long long)s.size) - 1);",
         "unsigned lowest = unsigned(s.exponent + __ffsll((long long)s.size));"),
        ("merge_maximum(&to->specials, specials);", ";"),
    ),
    *_of(
        "kernels/parts/segment_runs.h",
        ("ends[k] = strip.id[k] != (k ? strip.id[k - 1] : before);",
         "ends[k] = k && strip.id[k] != strip.id[k - 1];"),
        ("if (lane >= head + offset)", "if (lane > head + offset)"),
        ("if (lane >= head + offset)", "if (lane >= offset)"),
        ("sum += opened;", ";"),
        ("tail = 0;", ";"),
        ("bool fits = !is_short<Acc, Short> || sizes.allow_in_warp(strip.rows);",
         "bool fits = true;"),
        ("is_known = is_known && fits && (!is_short<Acc, Short> || "
         "both.allow(2 * strip.rows));",
         "is_known = is_known && fits;"),
        ("sum = threadIdx.x % 32 == 31 ? Acc(part) : Acc(0);", "sum = Acc(0);"),
        ("if (closes && is_first)", "if (false)"),
        ("closed = sum;", ";"),
    ),
    *_of(
        "kernels/parts/segment_hot.h",
        ("if (!__all_sync(0xffffffffu, is_there && at == first))",
         "if (!__any_sync(0xffffffffu, is_there && at == first))"),
        ("return threadIdx.x % 32 ? 0 : (long long)sum;", "return (long long)sum;"),
    ),
    *_of(
        "shared/segment_sums.h",
        ("while (width > 1 && rows && (rows - 1) >> (63 - width))",
         "while (width > 1 && rows && (rows - 1) >> (64 - width))"),
        ("unsigned words = bits <= width ? 1 : (bits + width - 1) / width;",
         "unsigned words = bits <= width ? 1 : bits / width;"),
        ("GR_CHECKED_BITS = 57,     /* most bits of an element in a checked word */",
         "GR_CHECKED_BITS = 63,"),
        ("return width > 30 ? width - 23 : 0;", "return width > 30 ? width - 21 : 0;"),
        ("unsigned words = bits > 24 ? (bits - 24) / of->overlap + 1 : 1;",
         "unsigned words = bits > 24 ? (bits - 24 + of->overlap - 1) / of->overlap : 1;"),
        ("plan->word_step = sums;", "plan->word_step = sums - 1;"),
    ),
]  # fmt: skip
_PAIRS = "segments/pairs.c"
_DIGITS = "segments/digits.c"
PROCESSORS = [
    *_of(
        "segments/pairs.h",
        ("uint64_t shift = (bits >> 52 & 0x7ff) - (uint64_t)window.low;",
         "uint64_t shift = (bits >> 52 & 0x7ff) - (uint64_t)window.low - 1;"),
        ("bool fits = shift <= (uint64_t)window.most;",
         "bool fits = shift <= (uint64_t)window.most + 1;"),
        ("uint64_t size = ((bits & (one - 1)) | one) >> window.spare;",
         "uint64_t size = (bits & (one - 1)) >> window.spare;"),
        ("__int128 pair = (int64_t)((size ^ sign) - sign);",
         "__int128 pair = (int64_t)(size ^ sign);"),
        ("to->outliers += !fits && bits << 1 != 0;", "to->outliers += !fits && bits >> 63;"),
    ),
    *_of(
        _PAIRS,
        ("int more = last < least ? least - last : 0; /* bits that a subnormal result lacks */",
         "int more = 0;"),
        ("if (more > format.fraction + 1)", "if (more > format.fraction)"),
        ("uint64_t rest = top << (64 - drop) | ((uint64_t)all != 0), half = (uint64_t)1 << 63;",
         "uint64_t rest = top << (64 - drop), half = (uint64_t)1 << 63;"),
        ("mantissa += (rest > half) | ((rest == half) & mantissa);", "mantissa += rest >= half;"),
        ("mantissa += (rest > half) | ((rest == half) & mantissa);", "mantissa += rest > half;"),
        ("rounded = rounded > infinity ? infinity : rounded;", ";"),
        ("return rounded | (sign & (uint64_t)negative);", "return rounded;"),
        ("int64_t parts[] = {(uint32_t)x, (uint32_t)(x >> 32), (int64_t)(x >> 64)};",
         "int64_t parts[] = {(uint32_t)x, (uint32_t)(x >> 32), (int64_t)(uint64_t)(x >> 65)};"),
        ("const int up[] = {0, 32, 64};", "const int up[] = {0, 32, 63};"),
    ),
    *_of(
        _DIGITS,
        ("uint64_t mantissa = (bits & (one - 1)) | (field ? one : 0);",
         "uint64_t mantissa = (bits & (one - 1)) | one;"),
        ("uint64_t place = field ? field - 1 : 0; /* the mantissa's last bit, in units of "
         "2^-1074 */",
         "uint64_t place = field;"),
        ("uint64_t first = place / 32 - (uint64_t)job->first_digit;",
         "uint64_t first = place / 31 - (uint64_t)job->first_digit;"),
        ("for (int k = 0; k < 3; k++, shifted >>= 32)",
         "for (int k = 0; k < 2; k++, shifted >>= 32)"),
        ("digit[k] += ((int64_t)(uint32_t)shifted ^ sign) - sign;",
         "digit[k] += (int64_t)(uint32_t)shifted ^ sign;"),
        ("sum.flags |= (uint32_t)words[job->digits];", ";"),
    ),
]  # fmt: skip
MUTANTS = [*KERNELS, *PROCESSORS]


# --- building ----------------------------------------------------------------------------------

_HEAD = """
#include "device.h"
#include "kernel_entry.h"
#include "engine/compiled_kernels.h"
#include "shared/cuda_types.h"

static void add(gr_kernel_list *list, gr_load load, gr_acc acc, const void *entry)
{
    gr_kernel *kernel = &list->kernel[list->count++];
    kernel->load = load;
    kernel->acc = acc;
    kernel->block = 0;
    kernel->entry = entry;
}
"""
_WHOLE, _FLOATS = "u64 u64", ("f32 u64", "f64 u64")
# The kernels of sums by ids that are not sorted, and of float32 and integers by those that are; and
# the elements and accumulators that they are compiled for.
_PAIRS_OF = {
    "segment_range": _FLOATS,
    "segment_clear": (_WHOLE,),
    "segment_atomics": (*_FLOATS, _WHOLE),
    "segment_shared": (*_FLOATS, _WHOLE),
    "segment_round": (_WHOLE,),
    "segment_runs": ("f32 proven", _WHOLE),
    "segment_join": ("f32 proven", _WHOLE),
    "segment_digits": (_WHOLE,),
    "segment_put": (_WHOLE,),
}


def _write(path: Path, text: str) -> None:
    """Leaves a file with this text alone: what is compiled from it is newer."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


class KernelBuilds:
    """Builds the emulator with these kernels. What no mutant changes is compiled once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = [f'STRATEGY({name}, SEGMENTS, 0, 0, ALL, "", "")\n' for name in _PAIRS_OF]
        _write(folder / "strategies.def", "")
        _write(folder / "steps.def", "".join(names))
        text = _HEAD
        for name, pairs in _PAIRS_OF.items():
            adds = "".join(
                f"    add(list, GR_LOAD_{load}, GR_ACC_{acc}, "
                f"kernel_entry({name}<type_{load}, type_{acc}>));\n"
                for load, acc in map(str.split, pairs)
            )
            text += f'#include "kernels/segments/{name}.cu"\n'
            text += f'extern "C" void gr_kernels_{name}(gr_kernel_list *list)\n{{\n{adds}}}\n'
        _write(folder / "kernels.cpp", text)
        self.base = self._jobs(folder, [])
        modules.compile_all(self.base)

    def _tools(self, folder: Path, mutated: list[Path]) -> Any:
        tools = modules.Toolchain(
            folder, "_mutants", [CSRC / "emulator" / "include", CSRC / "kernels"]
        )
        first = [f"-I{path}" for path in (*mutated, self.folder)]
        tools.common = [*first, "-w", *tools.common]
        tools.sanitize = []
        return tools

    def _jobs(self, folder: Path, mutated: list[Path]) -> list[Any]:
        tools = self._tools(folder, mutated)
        jobs = [tools.cpp(path, []) for path in sorted(CSRC.glob("emulator/*/*.cpp"))]
        sources = modules.c_sources((*modules.EVERY_MODULE, *modules.KNOWS_CUDA))
        return jobs + [tools.c(path) for path in sources]

    def build(self, number: int, mutant: Mutant | None) -> Path:
        """The library of a mutant, or of the kernels as they are."""
        own = self.folder / f"mutant_{number}"
        mutated = []
        if mutant:
            # A header finds those beside it first, so all of a folder are copied.
            for folder in ("kernels/parts", "shared"):
                shutil.copytree(CSRC / folder, own / "csrc" / folder)
            (own / "csrc" / "exact").mkdir()
            (own / "csrc" / mutant.file).write_text(mutant.text())
            mutated = [own / "csrc", own / "csrc" / "kernels"]
        tools = self._tools(own, mutated)
        jobs = [tools.cpp(self.folder / "kernels.cpp", ["-O0"])]
        base = self.base
        if mutant and mutant.file.startswith("shared/"):  # the engine plans by it
            planning = [job for job in base if job.source.name in ("segments.c", "segment_plan.c")]
            base = [job for job in base if job not in planning]
            jobs += [tools.c(job.source) for job in planning]
        modules.compile_all(jobs)
        library = own / "_mutants.so"
        tools.link(library, [*jobs, *base], [])
        return library


class ProcessorBuilds:
    """Builds the module _host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = modules.HostBuild(folder, "_host").jobs
        modules.compile_all(self.base)

    def build(self, number: int, mutant: Mutant | None) -> Path:
        """The library of a mutant, or of the sources as they are."""
        own = self.folder / f"mutant_{number}"
        tools = modules.Toolchain(own, "_host", [])
        jobs = list(self.base)
        if mutant:
            root = own / "csrc"
            shutil.copytree(CSRC / "segments", root / "segments")
            (root / mutant.file).write_text(mutant.text())
            tools.common = [f"-I{root}", *tools.common, "-w", "-O3"]
            jobs = [job for job in jobs if job.source.parent.name != "segments"]
            for path in sorted((root / "segments").glob("*.c")):
                flags = ["-std=gnu11", *tools.common, f"-I{CSRC}"]
                jobs.append(tools.job(path, [*tools.cc, *flags]))
        modules.compile_all(jobs)
        library = own / "_host.so"
        tools.link(library, jobs, [])
        return library


# --- the battery -------------------------------------------------------------------------------


def _expected(values: Array, ids: Array, count: int, dtype: str, initial: float) -> Array:
    import gpureduce

    how: dict[str, Any] = {"dtype": dtype, "initial": initial}
    if values.dtype.kind in "iu":
        how["initial"] = int(initial)
    sums = [gpureduce.sum(values[ids == k], "auto", axis=0, **how).value for k in range(count)]
    return np.array(sums, dtype)


def _by_kernels(module: Any, values: Array, ids: Array, count: int, dtype: str, initial: float,
                is_sorted: bool = False) -> Array:  # fmt: skip
    from gpureduce import _host
    from gpureduce.core import dtypes

    target, out = np.dtype(dtype), np.full(count, 77, dtype)
    whole = target.kind in "iu"
    acc = _host.ACC_U64 if whole or values.itemsize < 8 else _host.ACC_F64
    acc = acc if whole or values.itemsize == 8 else _host.ACC_F32
    pair = (int(initial), 0) if whole else (float(initial), 0.0)
    kind = values.dtype.kind, values.itemsize
    request = module.request(*kind, acc, not whole, dtypes.load_of(target), pair, False,
                             segments=count, sorted=int(is_sorted), check=True)  # fmt: skip
    module.run(request, values, ids.astype(np.int64), out)
    return out


def _by_processors(module: Any, values: Array, ids: Array, count: int, dtype: str, initial: float
                   ) -> Array:  # fmt: skip
    from gpureduce.core import dtypes, groups

    target, out = np.dtype(dtype), np.full(count, 77, dtype)
    first = groups.initial_terms(int(initial) if target.kind in "iu" else initial, target)
    kinds = dtypes.line_of(values.dtype), dtypes.line_of(target)
    module.sum_segments(values, ids.astype(np.int64), None, out, *kinds, first)
    return out


def same(found: Array, expected: Array) -> bool:
    """Whether all bits agree; every nan is one."""
    if found.dtype.kind == "f":
        nan = np.isnan(expected)
        if not np.array_equal(np.isnan(found), nan):
            return False
        found, expected = np.where(nan, 0, found), np.where(nan, 0, expected)
    return found.tobytes() == expected.tobytes()


def battery(library: Path) -> str:
    """The first case that a build gets wrong, or an empty text."""
    module = load(library)
    add = _by_kernels if library.stem == "_mutants" else _by_processors
    for name, values, ids, count, dtype, initial in cases():
        expected = _expected(values, ids, count, dtype, initial)
        given, more = (values, ids), 0
        if add is _by_processors:  # with two zeros, since sorted ids are added up in another way
            given = np.append(values, np.zeros_like(values[:2])), np.append(ids, [count, 0])
            more = 1
        if not same(add(module, *given, count + more, dtype, initial)[:count], expected):
            return f"{name}, {values.dtype}, {count} segments"
        # Sorted float64 numbers and initial numbers take no kernels of their own.
        if add is _by_kernels and (initial or values.dtype == np.float64):
            continue
        order = np.argsort(ids, kind="stable")
        how = {"is_sorted": True} if add is _by_kernels else {}
        found = add(module, values[order], ids[order], count, dtype, initial, **how)
        if not same(found, expected):
            return f"{name}, {values.dtype}, {count} segments, sorted"
    return ""


def caught(library: Path) -> str:
    """How the battery catches a build: a case, or how its process ended. Empty: it does not."""
    command = [sys.executable, __file__, "--battery", str(library)]
    # The code without vector instructions, which the mutants change.
    environment = {**os.environ, "GPUREDUCE_SIMD": "baseline"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return "it hangs"
    if done.returncode not in (0, 1):
        return f"its process ended with {done.returncode}: {done.stderr.strip()[-200:]}"
    if done.returncode and not done.stdout.strip():
        raise RuntimeError(f"the battery does not run: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def main(words: Sequence[str]) -> int:
    """Builds mutants and says what catches them."""
    if words[:1] == ["--battery"]:
        found = battery(Path(words[1]))
        print(found)
        return bool(found)
    numbers = [int(word) for word in words] or range(len(MUTANTS))
    missed = 0
    with tempfile.TemporaryDirectory() as made:
        folders = [Path(made, name) for name in ("kernels", "processors")]
        for folder in folders:
            folder.mkdir()
        builds = [KernelBuilds(folders[0]), ProcessorBuilds(folders[1])]
        for builder in builds:
            by = caught(builder.build(-1, None))
            print(f"{type(builder).__name__}, as it is: {by or 'right'}", flush=True)
            missed += bool(by)
        for number in numbers:
            mutant = MUTANTS[number]
            builder = builds[number >= len(KERNELS)]
            by = caught(builder.build(number, mutant))
            missed += not by
            print(f"{number} {mutant.file}: {mutant.becomes}: {by or 'NOT CAUGHT'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
