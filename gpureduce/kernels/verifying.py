"""Compares the counts of a user's kernel with a card's own counters, as `verify-counters` does.

ncu runs ``python -m gpureduce.kernels.verifying CASES DTYPE OUTPUT KERNEL`` for it.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpureduce.core import dtypes, sources
from gpureduce.hardware import counters, machine_code, verify_counters
from gpureduce.kernels import cubins, on_card
from gpureduce.kernels.kernel import Kernel


def verify(
    kernel: Kernel, sizes: Sequence[int], blocks: Sequence[int], dtype: str
) -> verify_counters.Table:
    """The table of a kernel's launches: model, hardware and difference for each counter."""
    cases = [verify_counters.case_of(kernel, n, block, dtype) for n in sizes for block in blocks]
    whole = verify_counters.Table(dtype)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel"
        file.write_bytes(pickle.dumps(kernel))
        program = ("gpureduce.kernels.verifying", str(file))
        for group in counters.profile(cases, dtype, program=program):
            whole += verify_counters.summarize(
                group, dtype, lambda _: _functions(kernel, dtype), kernel
            )
    return whole


def _functions(kernel: Kernel, dtype: str) -> machine_code.Functions:
    """The instructions of the kernel with their lines, for the first card."""
    arch = on_card.architecture(machine_code.first_card())
    sources.add(kernel.file, kernel.text)
    source = dtypes.named(dtype)
    pair = kernel.pairs(source, source)[0]
    made = cubins.cubin(kernel.source, kernel.signature, pair, arch)
    return machine_code.functions_of(machine_code.disassembled(made.path))


if __name__ == "__main__":
    counters.launch_here(sys.argv[1:4], pickle.loads(Path(sys.argv[4]).read_bytes()))
