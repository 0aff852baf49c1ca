"""Explanations of differences between the hardware's counts and the model's.

A difference is explained only if another counter, or the machine code, gives exactly its size. The
one exception is polling at a grid barrier, whose number of loads varies: see `_looks`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpureduce.hardware.counters import Case, Instruction

Machine = Sequence[Instruction]
Counts = dict[str, int]


def issued(code: Machine, pattern: str) -> int:
    """How often warps issued instructions whose opcode matches `pattern`."""
    return sum(i.issued for i in code if re.match(pattern, i.opcode))


def lanes(code: Machine, pattern: str) -> int:
    """Active lanes of the instructions whose opcode matches `pattern`."""
    return sum(i.lanes for i in code if re.match(pattern, i.opcode))


def why(case: Case, counter: str, model: Counts, seen: Counts, code: Machine) -> str:
    """The cause of a difference, if the machine code or another counter proves it; else ""."""
    extra = seen[counter] - model[counter]
    if model["grid_barriers"]:
        reason = _grid_barrier(case, counter, extra, model, seen, code)
        if reason:
            return reason
    if counter.endswith("_conflicts"):
        return _conflicts(counter, model, seen)
    if counter.startswith("shared_load"):
        return _merged(counter, extra, code)
    if counter == "global_load_requests":
        return _unrolled(extra, model, seen, code)
    if counter == "shared_store_lanes":
        return _generic(model, seen, code)
    if counter == "warp_barriers":
        return _together(model, code)
    if counter in ("atomics", "warp_reductions"):
        return _one_atomic(model, seen)
    if counter == "fences":
        return _fences(extra, code)
    return ""


def line_why(counter: str, model: Counts, seen: Counts, code: Machine) -> str:
    """The cause of a difference at one line of the source. `code` is the line's machine code."""
    if counter.startswith("shared_load"):
        return _merged(counter, seen[counter] - model[counter], code)
    return _generic(model, seen, code)


def _generic(model: Counts, seen: Counts, code: Machine) -> str:
    """Stores that may access another block's shared memory: they are ST, not STS."""
    missing = model["shared_store_lanes"] - seen["shared_store_lanes"]
    if missing and missing + model["cluster_store_lanes"] == lanes(code, r"ST(\.|$)"):
        return (
            f"the compiler uses ST, not STS, for stores to a cluster's shared memory ({missing:,})"
        )
    return ""


# --- a barrier of the grid ------------------------------------------------------------------------

_LOOK = r"LD\..*STRONG"


def _grid_barrier(
    case: Case, counter: str, extra: int, model: Counts, seen: Counts, code: Machine
) -> str:
    """The instructions of CUDA's grid barrier: hardware has none, so CUDA uses atomics and polling.

    One thread of each block adds to a counter, broadcasts the result as if its whole warp were
    active (by SHFL.IDX, which no kernel with such a barrier uses itself), and polls until all
    blocks have arrived.
    """
    times = model["grid_barriers"]
    comings = case.grid * times
    if counter == "block_barrier_instructions" and extra == 2 * (case.block // 32) * comings:
        return f"CUDA's grid barrier executes two block barriers per block ({extra:,})"
    if counter == "atomics" and extra == comings:
        return f"CUDA's grid barrier: each block adds to a counter in memory ({extra:,})"
    if counter == "shuffles" and extra == comings == issued(code, r"SHFL\.IDX"):
        return f"CUDA's grid barrier: a SHFL.IDX after each block's atomic ({extra:,})"
    if counter == "fences" and extra == issued(code, "MEMBAR"):
        return f"CUDA's grid barrier: a MEMBAR before each block's atomic ({extra:,})"
    if counter in ("global_load_requests", "global_load_sectors"):
        return _looks(comings, extra, model, seen, code)
    return ""


def _looks(comings: int, extra: int, model: Counts, seen: Counts, code: Machine) -> str:
    """The polling loads of a grid barrier.

    Their number varies from run to run, and ncu reads each counter in a run of its own. So the
    check is that all other loads, by instruction, equal the model's.
    """
    looks = issued(code, _LOOK)
    others = issued(code, r"LDG?(\.|$)") - looks
    own = others == model["global_load_requests"]
    own = own and seen["global_load_lanes"] == model["global_load_lanes"]
    if own and looks == lanes(code, _LOOK) and min(extra, looks) >= comings:
        return (
            "CUDA's grid barrier: a thread of each block polls until all blocks have arrived "
            f"({extra:,}); all other load instructions equal the model's"
        )
    return ""


def _unrolled(extra: int, model: Counts, seen: Counts, code: Machine) -> str:
    """The compiler unrolled a loop: lanes with more steps left execute another copy of a load."""
    copies = [i for i in code if re.match(r"LDG?(\.|$)", i.opcode) and i.lanes]
    alike = all(seen[f"global_load_{what}"] == model[f"global_load_{what}"]
                for what in ("lanes", "sectors"))  # fmt: skip
    apart = issued(copies, "") - model["global_load_requests"]
    if extra > 0 and len(copies) > 1 and alike and extra == apart:
        return f"the compiler unrolls the loop: lanes with fewer steps use another load ({extra:,})"
    return ""


# --- shared memory --------------------------------------------------------------------------------


def _conflicts(counter: str, model: Counts, seen: Counts) -> str:
    """Arbitration: wavefronts of the pipe that no instruction accounts for.

    Their number does not matter: without them, the conflicts exactly equal the model's.
    """
    kind = counter.removesuffix("_conflicts")
    surplus = seen[f"{kind}_pipe"] - seen[f"{kind}_wavefronts"]
    if not 0 < surplus == seen[counter] - model[counter]:
        return ""
    share = surplus / seen[f"{kind}_pipe"]
    return f"arbitration: {surplus:,} wavefronts ({share:.1%}) belong to no instruction"


def _merged(counter: str, extra: int, code: Machine) -> str:
    """Merged loads of neighbouring elements: an LDS.64 saves one load, an LDS.128 three."""
    count = lanes if counter.endswith("lanes") else issued
    saved = count(code, r"LDS\.64") + 3 * count(code, r"LDS\.128")
    if saved and -extra == saved:
        return f"the compiler merges two loads into one LDS.64 ({issued(code, 'LDS.64'):,})"
    return ""


# --- warps ----------------------------------------------------------------------------------------


_OWN = r"WARPSYNC(?!\.COLL)"


def _before(code: Machine, meeting: str) -> set[int]:
    """Indices of the WARPSYNC whose next synchronizing instruction matches `meeting`."""
    found = set()
    for at, one in enumerate(code):
        if re.match(_OWN, one.opcode):
            after = (i.opcode for i in code[at + 1 :] if i.issued)
            meets = (o for o in after if re.match(r"BAR\.|UCGABAR|SHFL|VOTE|WARPSYNC", o))
            if re.match(meeting, next(meets, "")):
                found.add(at)
    return found


def _together(model: Counts, code: Machine) -> str:
    """`__syncwarp` compiles to a WARPSYNC or NOP of 32 lanes. All others need another cause."""
    barriers = _before(code, r"BAR\.|UCGABAR")
    before = [one for at, one in enumerate(code) if at in barriers]
    rest = [one for at, one in enumerate(code) if at not in barriers]
    whole, fences = lanes(rest, _OWN) // 32, issued(code, "FENCE")  # a NOP follows each fence
    shuffled = lanes([code[at] for at in _before(code, "SHFL")], _OWN) // 32
    surplus = whole + issued(code, "NOP") - fences - model["warp_barriers"]
    if surplus not in (0, shuffled):
        return ""
    causes = {
        "WARPSYNC precede a barrier of the block or cluster": issued(before, ""),
        "WARPSYNC reconverge a warp before a shuffle": surplus,
        "WARPSYNC repeat these for the second part of a diverged warp": issued(rest, _OWN) - whole,
        "WARPSYNC reconverge diverged warps": issued(code, r"WARPSYNC\.COLL"),
        "NOP follow the fences of bulk copies": fences,
    }
    return "; ".join(f"{count:,} {said}" for said, count in causes.items() if count)


def _one_atomic(model: Counts, seen: Counts) -> str:
    alone = seen["atomics"] == model["atomic_instructions"] != model["atomics"]
    if alone and seen["warp_reductions"] - model["warp_reductions"] == seen["atomics"]:
        return (
            f"the compiler adds up each warp by REDUX ({seen['warp_reductions']:,}), and one lane "
            "executes the atomic"
        )
    return ""


def _fences(extra: int, code: Machine) -> str:
    if extra == issued(code, "UCGABAR_ARV"):
        return f"a cluster's barrier begins with a MEMBAR ({extra:,})"
    return ""
