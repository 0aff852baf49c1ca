"""A condition in sentences: where the kernel is wrong, why, and the change that lifts it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpureduce.kernels.conditions import Condition, Domain
from gpureduce.kernels.trials import MOST_NAMED, Failure

_LOCKSTEP = (
    "Lanes ran in lockstep before Volta. Since then `volatile` orders nothing between lanes: in "
    "each step read, then __syncwarp(), then write, then __syncwarp(); or use __shfl_down_sync."
)
_ACTIVE = (
    "Lanes ran in lockstep before Volta. Since then __activemask() and coalesced_threads() name "
    "only lanes that happen to run together, perhaps one: take 0xffffffff, or the mask of a "
    "__ballot_sync before the branch."
)
_HALVES = r"(?:blockDim\s*\.\s*x|\.(?:size|num_threads)\s*\(\s*\))\s*(?:/\s*2|>>\s*1)"
_HALVING = r"/=\s*2|>>=\s*1|=\s*\w+\s*(?:/\s*2|>>\s*1)\b"


def sentences(
    condition: Condition, reasons: Mapping[str, Failure], wrong: tuple[int, ...], code: str,
    where: Domain,
) -> list[str]:  # fmt: skip
    """Where the kernel is wrong, why, and what lifts the condition."""
    said = []
    for part in ("least", "most", "only", "powers", "blocks"):
        if part in reasons:
            blocks = tuple(block for block in wrong if part in (condition.lacks(block), "blocks"))
            said.append(_blocks(condition, reasons[part], blocks, code, where))
    if "sizes" in reasons:
        said.append(_sizes(reasons["sizes"], code))
    if condition.lockstep:
        said.append(_LOCKSTEP if "volatile" in code else _ACTIVE)
    return said


def _what(failure: Failure) -> str:
    """What went wrong, in half a sentence."""
    if failure.fault:
        return "; ".join(failure.fault.splitlines()[:2])
    if failure.counted:
        return failure.elements
    return failure.narrow or f"{failure.what} is {failure.got}, not {failure.expected}"


def _listed(blocks: tuple[int, ...], example: int) -> str:
    """Three blocks, and the one of the example among them."""
    first = blocks[:3] if example in blocks[:3] else sorted({*blocks[:2], example})
    return ", ".join(map(str, first)) + ", ..." * (len(blocks) > 3)


def _blocks(
    condition: Condition, failure: Failure, wrong: tuple[int, ...], code: str, where: Domain
) -> str:
    block = failure.case.block
    if condition.powers and (tree := odd_steps(failure, code, where.per_thread)):
        return f"Wrong for {_listed(wrong, block)}: at {block} {tree}, to lift this."
    cure = _cure(condition, failure, where, code)
    return f"Wrong for {_listed(wrong, block)}: at {block}, {_what(failure)}.{cure}"


def odd_steps(failure: Failure, code: str, per_thread: int) -> str:
    """The steps of a tree that halves an odd one, and the change that mends it; else empty."""
    halves = re.search(_HALVES, code) and re.search(_HALVING, code)
    steps = _steps(failure.case.block) if halves and _is_plain_tree(failure, per_thread) else []
    odd = next((i for i, step in enumerate(steps[:-1]) if step % 2 and step > 1), None)
    if odd is None:
        return ""
    return (
        f"the steps are {', '.join(map(str, steps))}, and the step from {steps[odd]} to "
        f"{steps[odd + 1]} leaves out an element. Start at the next power of two that is at least "
        "half the block, and add only where tid + stride < blockDim.x"
    )


def _is_plain_tree(failure: Failure, per_thread: int) -> bool:
    """Whether a tree that halves the block leaves out just the elements that a failure tells.

    Or the same share, if there are too many to name them.
    """
    block, n = failure.case.block, failure.case.n
    cells = [{cell} for cell in range(block)]
    for step in _steps(block):
        for thread in range(step):
            cells[thread] |= cells[thread + step]
    lost = set(range(block)) - cells[0]
    if failure.case.n > MOST_NAMED and not failure.fault:
        got, expected = float(failure.got), float(failure.expected)
        return bool(lost) and abs(got - expected * len(cells[0]) / block) < 0.01 * expected
    missed = [i % (block * per_thread) for i, times in failure.counted if not times]
    strided = {i % block for i in missed}, {cell for cell in lost if cell < n}
    adjacent = {i // per_thread for i in missed}, {cell for cell in lost if cell * per_thread < n}
    added = any(times for _, times in failure.counted)
    return not added and bool(missed) and any(a == b for a, b in (strided, adjacent))


def _steps(block: int) -> list[int]:
    steps = [block // 2]
    while steps[-1] > 1:
        steps.append(steps[-1] // 2)
    return steps


def _cure(condition: Condition, failure: Failure, where: Domain, code: str) -> str:
    """The change that lifts a condition on blocks; empty if neither fault nor code shows one."""
    small = re.search(r"; (\w+) has \d+ elements?\b", failure.fault)
    if failure.ended:
        by = (
            ": end it by <, as a step may jump over the block"
            if re.search(r"!=\s*blockDim", code)
            else ""
        )
        return f" A loop that ends for every block lifts this{by}."
    most = max(condition.blocks)
    above = most < 1024 and failure.case.block > most
    if len(condition.blocks) == 1:
        larger = f" and make {small[1]} larger" if small and above else ""
        return f" Take blockDim.x in place of the constant{larger} to lift this."
    named = rf"\+\s*(?:{most}|{most // 2})\s*\]"
    more = f"ight steps for more than {most} threads lift this." if re.search(named, code) else ""
    if above and small:
        larger = " A larger array, or extern __shared__, lifts this."
        if more and not re.search(_HALVES, code) and not re.search(rf"\+\s*{most}\s*\]", code):
            larger = f" A larger array and r{more}"
        return f" {small[1]} has room for blocks of up to {most} threads.{larger}"
    if above:
        return f" R{more}" if more else ""
    if condition.powers and failure.case.block & (failure.case.block - 1):
        if not failure.counted and not failure.fault:
            return ""
        if failure.counted and not any(times for _, times in failure.counted):
            return " Add elements that have no partner, too, to lift this."
        return " Add only where the other element belongs to the block, to lift this."
    unrolled = re.search(rf"\+\s*{condition.least // 2}\s*\]", code)
    tested = re.search(rf">=?\s*{condition.least}\b", code)
    if unrolled and not tested:
        return (
            " Make the steps of the last warp depend on the block, as in "
            f"if (blockDim.x >= {condition.least}), to lift this."
        )
    return _bound(failure, code)


def _bound(failure: Failure, code: str) -> str:
    """The test that keeps a read at a sum of two indexes within the block."""
    read = re.search(r"line (\d+): .* reads (\w+)\[(\d+)\]; \2 has (\d+) elements", failure.fault)
    if not read or int(read[4]) != failure.case.block:
        return ""
    line = code.splitlines()[int(read[1]) - 1 : int(read[1])]
    index = re.search(rf"\b{read[2]}\s*\[([^\[\]]*\+[^\[\]]*)\]", "".join(line))
    return f" Add only where {index[1].strip()} < blockDim.x, to lift this." if index else ""


def _untested(failure: Failure, code: str, n: str) -> str:
    """The test that keeps a read of the elements within them, where its line shows the index."""
    read = re.search(r"line (\d+): .* reads (\w+)\[", failure.fault)
    if not read:
        return ""
    line = "".join(code.splitlines()[int(read[1]) - 1 : int(read[1])])
    for index in re.findall(rf"\b{read[2]}\s*\[([^\[\]]+)\]", line):
        if not re.search(rf"[(;&|=?,]\s*{re.escape(index.strip())}\s*<", code):
            read_ = f"{read[2]}[{index.strip()}]"
            return f" Read {read_} only where {index.strip()} < {n}, to lift this."
    return ""


_COUNT = r"(?:n|N|num\w*|n_?elem\w*|size|len\w*|count)"  # names of the number of elements


def _sizes(failure: Failure, code: str) -> str:
    tested = re.search(rf"<\s*\(?(?:\w+\))?\s*({_COUNT})\b", code)
    cure = " Test the bounds, as in i < n, to lift this."
    if tested:
        cure = _untested(failure, code, tested[1])
    if failure.counted and not failure.fault:
        cure = " Add the elements behind the last full part, too, to lift this."
    elif "no thread has written" in failure.fault:
        cure = " Store 0 where there is no element, to lift this."
    if found := re.search(rf"\w+\s*<=\s*{_COUNT}\b", code):
        cure = f" Take < in place of <= in {found[0]}, to lift this."
    elif re.search("return before the|shuffles from lane", failure.fault):
        cure = (
            " Let threads without an element go on with 0, so that they reach each barrier and "
            "shuffle, to lift this."
        )
    elif not cure and (not failure.fault or "nothing has stored" in failure.fault):
        cure = " A thread adds more than its elements: test the bounds of each read, and begin "
        cure += "with 0, to lift this."
    return (
        f"Wrong where n does not fill the blocks, as for n = {failure.case.n} and block = "
        f"{failure.case.block}: {_what(failure)}.{cure}"
    )
