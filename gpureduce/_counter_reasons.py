"""Why the hardware counts otherwise than the model: differences that the evidence accounts for.

A difference is explained only if another counter, or the machine code, gives exactly its size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpureduce._hardware_counters import Case, Instruction

Machine = Sequence[Instruction]
Counts = dict[str, int]

# Of bank conflicts, or of the accesses where those are more: how much the pipe may add.
MOST_NOISE = 0.05


def issued(code: Machine, pattern: str) -> int:
    """How often warps came by an instruction whose opcode begins so."""
    return sum(i.issued for i in code if re.match(pattern, i.opcode))


def lanes(code: Machine, pattern: str) -> int:
    """The same, counted in lanes that were on."""
    return sum(i.lanes for i in code if re.match(pattern, i.opcode))


def why(case: Case, counter: str, model: Counts, seen: Counts, code: Machine) -> str:
    """Where a difference comes from, if the machine code or another counter proves it."""
    if model["grid_barriers"]:
        reason = _grid_barrier(case, counter, model, seen, code)
        if reason:
            return reason
    if counter.endswith("_conflicts"):
        return _conflicts(counter, model, seen)
    if counter.startswith("shared_load"):
        return _merged(model, seen, code)
    if counter == "shared_store_lanes":
        return _generic(model, seen, code)
    if counter == "warp_barriers":
        return _together(seen[counter] - model[counter], code)
    if counter in ("atomics", "warp_reductions"):
        return _one_atomic(model, seen)
    if counter == "fences":
        return _fences(model, seen, code)
    return ""


def line_why(counter: str, model: Counts, seen: Counts, code: Machine) -> str:
    """The same of one line of the source and its part of the machine code."""
    if counter.startswith("shared_load"):
        return _merged(model, seen, code)
    return _generic(model, seen, code)


def _generic(model: Counts, seen: Counts, code: Machine) -> str:
    """Stores that may go to another block's shared memory are other instructions."""
    missing = model["shared_store_lanes"] - seen["shared_store_lanes"]
    if missing and missing + model["cluster_store_lanes"] == lanes(code, r"ST(\.|$)"):
        return f"the cluster's stores go by ST, also to a block's own shared memory ({missing:,})"
    return ""


def _grid_barrier(case: Case, counter: str, model: Counts, seen: Counts, code: Machine) -> str:
    """A grid has no barrier in hardware: CUDA makes one of an atomic and of loads that wait."""
    extra, times = seen[counter] - model[counter], model["grid_barriers"]
    warps = case.grid * (case.block // 32)
    if counter == "block_barrier_instructions" and extra == 2 * warps * times:
        return f"CUDA's barrier of the grid holds two of each block ({extra:,} instructions)"
    if counter == "atomics" and extra == case.grid * times:
        return f"CUDA's barrier of the grid: each block adds to a counter in memory ({extra:,})"
    if counter == "fences" and extra == issued(code, "MEMBAR"):
        return f"CUDA's barrier of the grid is fenced by each block ({extra:,} MEMBAR)"
    polls = r"LDG?\..*STRONG"
    waits = lanes(code, r"LDG\..*STRONG") if counter.endswith("lanes") else issued(code, polls)
    if counter.startswith("global_load") and extra == waits > 0:
        return (
            f"CUDA's barrier of the grid: a thread of each block looks again and again ({extra:,})"
        )
    return ""


def _conflicts(counter: str, model: Counts, seen: Counts) -> str:
    """The pipe's wavefronts less those that its instructions take are nobody's addresses."""
    kind = counter.removesuffix("_conflicts")
    noise = seen[f"{kind}_pipe"] - seen[f"{kind}_wavefronts"]
    accesses = model[f"{kind}_wavefronts"] - model[counter]
    if not 0 <= noise <= MOST_NOISE * max(model[counter], accesses):
        return ""
    if noise != seen[counter] - model[counter]:
        return ""
    share = noise / seen[f"{kind}_wavefronts"]
    return (
        f"{noise:,} wavefronts ({share:.1%}) of the pipe belong to no instruction: arbitration; "
        "counted by instruction, wavefronts are as the model has them"
    )


def _merged(model: Counts, seen: Counts, code: Machine) -> str:
    """Neighbouring elements by one load: each LDS.64 brings one more, each LDS.128 three."""
    missing = model["shared_load_lanes"] - seen["shared_load_lanes"]
    wide = lanes(code, r"LDS\.64") + 3 * lanes(code, r"LDS\.128")
    if missing and missing == wide:
        return f"the compiler reads two neighbours by one LDS.64 ({issued(code, 'LDS.64'):,})"
    return ""


def _together(extra: int, code: Machine) -> str:
    fences = issued(code, "FENCE")  # each with a NOP after it
    extra -= fences
    if not 0 < extra <= issued(code, "WARPSYNC"):
        return ""
    said = (
        f"{extra:,} WARPSYNC.ALL stand before a shuffle or a vote, where the compiler is not sure "
        "that the warp is together"
    )
    return said + (f"; {fences:,} NOP follow the fences of bulk copies" if fences else "")


def _one_atomic(model: Counts, seen: Counts) -> str:
    alone = seen["atomics"] == model["atomic_instructions"] != model["atomics"]
    if alone and seen["warp_reductions"] - model["warp_reductions"] == seen["atomics"]:
        return (
            f"the compiler adds up each warp by REDUX ({seen['warp_reductions']:,}) and lets one "
            "lane do the atomic"
        )
    return ""


def _fences(model: Counts, seen: Counts, code: Machine) -> str:
    extra = seen["fences"] - model["fences"]
    if extra == issued(code, "UCGABAR_ARV"):
        return f"a cluster's barrier begins with a MEMBAR ({extra:,})"
    if extra == issued(code, r"MEMBAR\.ALL\.CTA"):
        return f"barriers for bulk copies are fenced when they are made: MEMBAR.ALL.CTA ({extra:,})"
    return ""
