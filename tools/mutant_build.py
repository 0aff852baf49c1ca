"""Builds the mutants and the unchanged kernels as an additional build of the emulator."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from building import modules

from mutants import CSRC, KERNELS, Mutant

RACE_KERNELS = Path(__file__).resolve().parents[1] / "tests/emulator/race_kernels.cu"
BLOCKS = (32, 64, 128, 256, 512, 1024)
# No mutant runs on the processors' vector units, whose code takes long to compile.
BASELINE = [f"-Dgr_{what}_{unit}=gr_{what}_baseline"
            for what in ("cpu", "extract", "proven")
            for unit in ("avx2", "avx512")]  # fmt: skip
HEAD = """
#include "device.h"
#include "kernel_entry.h"
#include "engine/compiled_kernels.h"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

static void add(gr_kernel_list *list, unsigned block, const void *entry)
{
    gr_kernel *kernel = &list->kernel[list->count++];
    kernel->load = GR_LOAD_u32;
    kernel->acc = GR_ACC_u32;
    kernel->block = block;
    kernel->entry = entry;
}
"""


def _registry() -> dict[str, str]:
    """The traits and capability of each kernel, as strategies.def spells them."""
    text = (CSRC / "strategies.def").read_text()
    rows = re.finditer(r"^STRATEGY\((\w+),\s+(?:K\w+|SCAN),\s+([\w\s|]+),\s+(\d+),", text, re.M)
    return {name: " ".join(f"{traits}, {capability}".split()) for name, traits, capability in
            (row.groups() for row in rows)}  # fmt: skip


def _kind(kernel: str) -> str:
    return {"key": "KEYS", "scan": "SCAN"}.get(kernel.partition("_")[0], "KERNEL")


def _write(folder: Path, name: str, kernel: str, mutant: Mutant | None) -> str:
    """Writes the kernel's files to a folder of their own. Returns the C++ that compiles them."""
    own = Mutant(kernel, "", "").path
    beside = (folder / name / own).parent
    (beside / "parts").mkdir(parents=True)
    for file in ("parts/common.h", "parts/scan.h", own):
        lines = (KERNELS / file).read_text().splitlines()
        if mutant and mutant.path == file:
            lines = mutant.lines()[1]
        (beside / file if file != own else folder / name / own).write_text("\n".join(lines) + "\n")
    adds = []
    for block in BLOCKS if "BLOCK_TEMPLATE" in _registry()[kernel] else (0,):
        types = "const uint32_t *, uint32_t" + (f", {block}" if block else "")
        adds.append(f"    add(list, {block}, kernel_entry({name}::{kernel}<{types}>));")
    return (
        f"namespace {name} {{\n#undef GPUREDUCE_COMMON_H\n#undef GPUREDUCE_KERNEL_SCAN_H\n"
        f'#include "{name}/{own}"\n}}\n'
        f'extern "C" void gr_kernels_{name}(gr_kernel_list *list)\n{{\n' + "\n".join(adds) + "\n}\n"
    )


def race_kernels() -> dict[str, tuple[str, str]]:
    """The kernels of race_kernels.cu: their traits, and the missing barrier or fence, if any."""
    text = RACE_KERNELS.read_text()
    rows = re.findall(r"^// KERNEL (\w+): ([A-Z_ |]+): (.+)$", text, re.M)
    return {name: (traits, missing) for name, traits, missing in rows}


def _write_race_kernels(folder: Path) -> str:
    (folder / "races").mkdir()
    (folder / "races" / RACE_KERNELS.name).write_text(RACE_KERNELS.read_text())
    text = (
        f'namespace races {{\n#undef GPUREDUCE_COMMON_H\n#include "races/{RACE_KERNELS.name}"\n}}\n'
    )
    for name in race_kernels():
        entry = f"kernel_entry(races::{name}<const uint32_t *, uint32_t>)"
        text += f'extern "C" void gr_kernels_{name}(gr_kernel_list *list)\n'
        text += f"{{\n    add(list, 0, {entry});\n}}\n"
    return text


def _sources(folder: Path, mutants: Sequence[Mutant]) -> list[Path]:
    """Writes the kernels to one file per processor, and the registry that lists them."""
    registry = _registry()
    wanted = [(f"right_{kernel}", kernel, None) for kernel in sorted({m.kernel for m in mutants})]
    wanted += [(f"mutant_{i}", mutant.kernel, mutant) for i, mutant in enumerate(mutants)]
    texts = [_write(folder, *row) for row in wanted]
    (folder / "steps.def").write_text("")
    (folder / "strategies.def").write_text(
        "".join(
            f'STRATEGY({name}, {_kind(kernel)}, {registry[kernel]}, INT32, "", "{kernel}")\n'
            for name, kernel, _ in wanted
        )
        + "".join(
            f'STRATEGY({name}, KERNEL, {traits}, 0, INT32, "", "")\n'
            for name, (traits, _) in race_kernels().items()
        )
    )
    texts.append(_write_race_kernels(folder))
    parts = len(os.sched_getaffinity(0))
    paths = []
    for part in range(parts):
        paths.append(folder / f"kernels_{part}.cpp")
        paths[-1].write_text(HEAD + "\n".join(texts[part::parts]))
    return paths


def emulator(folder: Path) -> Iterator[Path]:
    """Files that compile two folders of the emulator each: its headers take longest."""
    for names in (("races", "runtime"), ("scheduler", "trace")):
        path = folder / f"emulator_{names[0]}.cpp"
        sources = [
            each for name in names for each in sorted((CSRC / "emulator" / name).glob("*.cpp"))
        ]
        path.write_text("".join(f'#include "{source}"\n' for source in sources))
        yield path


def build(folder: Path, mutants: Sequence[Mutant]) -> Path:
    """The emulator's traced build with these kernels as its only strategies."""
    includes = [CSRC / "emulator" / "include", CSRC / "kernels"]
    tools = modules.Toolchain(folder, "_mutants", includes)
    # The folder comes first, for its strategies.def.
    tools.common = [f"-I{folder}", *tools.common, "-w", f"-ffile-prefix-map={folder}=."]
    tools.sanitize = []
    traced = ["-DGR_EMULATOR_TRACED"]
    hooks = [*traced, "-O0", "-fsanitize=thread", *modules.LINES]
    jobs = [tools.cpp(path, hooks) for path in _sources(folder, mutants)]
    jobs += [tools.cpp(path, [*traced, "-Og"]) for path in emulator(folder)]
    sources = modules.c_sources((*modules.EVERY_MODULE, *modules.KNOWS_CUDA))
    host = [tools.c(path, [*traced, *BASELINE]) for path in sources if "_avx" not in path.stem]
    for job in host:  # little of it runs
        job.command = [flag for flag in job.command if flag not in ("-O2", "-O3")]
    jobs += host
    modules.compile_all(jobs)
    library = folder / "_mutants.so"
    tools.link(library, jobs, [])
    return library


def strategies(folder: Path) -> list[str]:
    return re.findall(r"^STRATEGY\((\w+),", (folder / "strategies.def").read_text(), re.M)


def load(library: Path) -> ModuleType:
    name = library.stem
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
