"""What mends a split barrier or a race, by the lines of the kernel's text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpureduce.emulator.race import Race, SplitBarrier
from gpureduce.kernels.source_text import blank, closing, functions, line_at, without_comments

_BARRIER = re.compile(r"\b__syncthreads\w*\s*\(|\bsync\s*\(")
_ASSIGNED = re.compile(
    r"\b(\w{1,60})\s{0,9}(?:[-+*/&|^]|<<|>>)?=(?!=)"
    r"((?:[^;=(){},]|\((?:[^(){};]|\([^(){};]{0,99}\)){0,99}\)){1,300})"
)
_OF_A_THREAD = r"threadIdx|thread_rank|laneid"


def _start(code: str, line: int) -> int:
    """The index at which a line starts."""
    return sum(map(len, code.split("\n")[: line - 1])) + line - 1


def _heads(code: str, first: int, at: int) -> Iterator[tuple[str, str, int, int]]:
    """The ``if`` and loops around a place of a function, the outer ones first.

    Each with its keyword, its condition, and the indexes of its start and of its end.
    """
    for found in re.compile(r"\b(if|for|while)\s*(\()").finditer(code, first, at):
        close = closing(code, found.end() - 1)
        body = close + 1 + len(code[close + 1 :]) - len(code[close + 1 :].lstrip())
        if code.startswith("{", body):
            end = closing(code, body)
            other = re.compile(r"\}\s*else\b(?!\s*if)\s*\{").match(code, end)
            end = closing(code, other.end() - 1) if other and found[1] == "if" else end
        else:
            end = code.find(";", body)
        if close < at <= end:
            yield found[1], code[found.end() : close], found.start(), end


def _depends(code: str) -> re.Pattern[str]:
    """Finds the variables of a function that depend on the thread."""
    names = [_OF_A_THREAD]
    assigned = _ASSIGNED.findall(code)
    while True:
        pattern = re.compile(rf"\b(?:{'|'.join(names)})\b")
        more = {name for name, value in assigned if pattern.search(value)} - {*names}
        if not more:
            return pattern
        names += sorted(more)


def of_barrier(code: str, split: SplitBarrier) -> str:
    """Why part of a block misses a barrier, and where to put it; empty if the text hides why."""
    for place in split.places:
        start = _start(code, place.line)
        call = _BARRIER.search(code, start, code.find("\n", start) + 1 or len(code))
        function = next((one for one in functions(code) if one.open < start < one.end), None)
        if not call or not function:
            continue
        at = call.start()
        depends = _depends(code[function.open : function.end])
        name = f"line {place.line}: {place.what}()"
        for word, condition, first, end in _heads(code, function.open, at):
            if not depends.search(condition):
                continue
            line = line_at(code, first)
            if word != "if":
                return (
                    f"{name} stands in the loop of line {line}, which threads leave after "
                    "different numbers of steps: let all threads of a block make the same steps"
                )
            said = f"{name} stands in the if of line {line}, which not all threads enter: "
            if "{" not in code[first:at]:
                return said + "take it out of the if, to a line of its own"
            if re.fullmatch(r"[\s}]*", code[closing(code, call.end() - 1) + 1 : end].lstrip(" ;")):
                return f"{said}move it behind the if, to line {line_at(code, end) + 1}"
            return f"{said}end the if before it, and open another one behind it"
        for _, condition, first, _ in _ifs_that_leave(code, function.open, at):
            if depends.search(condition):
                return (
                    f"line {line_at(code, first)} leaves before the {place.what}() of line "
                    f"{place.line}: let these threads go on with 0, so that they reach it"
                )
    return ""


def _ifs_that_leave(code: str, first: int, at: int) -> Iterator[tuple[str, str, int, int]]:
    for found in re.compile(r"\b(?:return|break)\s*;").finditer(code, first, at):
        yield from _heads(code, first, found.start())


_UNSIGNED = r"\b(?:unsigned(?:\s+(?:int|long))*|size_t|uint\w*)\s+(?:[^;(){{}}]*,\s*)?{0}\b"


def of_hang(code: str) -> str:
    """Why a kernel does not end, if a loop of its text shows it; else empty."""
    for loop in re.finditer(r"\b(?:for|while)\s*\(", code):
        close = closing(code, loop.end() - 1)
        head, line = code[loop.end() : close], line_at(code, loop.start())
        counter = re.search(r"\b(\w+)\s*>=\s*0\b", head)
        if counter and re.search(_UNSIGNED.format(counter[1]), code):
            return f"line {line}: {counter[1]} is unsigned, so {counter[0]} always holds"
        if counter and re.search(rf"\b{counter[1]}\s*(?:/|>>)=", code[loop.start() :]):
            return f"line {line}: the steps of {counter[1]} end at 0, so {counter[0]} always holds"
        waits = re.search(r"\w\s*\[|\*\s*\w|\bvolatile\b|\batomic\w+\s*\(|\bload\s*\(", head)
        ends_do = code[: loop.start()].rstrip().endswith("}")
        polls = re.fullmatch(r"(?:[^;=+-]|[!=<>]=)*", head) and not ends_do
        if (waits or polls) and re.match(r"\s*(?:;|\{\s*\})", code[close + 1 :]):
            return (
                f"line {line}: threads wait there for other blocks. CUDA runs blocks in any order, "
                "and some only after others have ended: let a block wait only for blocks that have "
                "drawn an earlier number by an atomicAdd"
            )
    return ""


def of_one_memory(code: str) -> str:
    """That names of ``extern __shared__`` arrays are of the same memory; empty for one name."""
    found = re.findall(r"\bextern\b[^;\[]*\b__shared__\b[^;\[]*?(\w+)\s*\[\s*\]", code)
    names = " and ".join(dict.fromkeys(found))
    return f"{names} are one memory: all extern __shared__ arrays begin there" * (" " in names)


_VARIABLE = r"\b__device__\s[^;(){}]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=[^;]*|\{[^;]*\})?;"


def of_next_launch(text: str) -> str:
    """Which ``__device__`` variable makes the next launch wrong; empty if the text has none."""
    code = without_comments(text)
    names = re.findall(_VARIABLE, code)
    body = re.sub(_VARIABLE, lambda found: blank(found[0]), code)
    for used in re.finditer(r"\batomic\w+\s*\(\s*&?\s*(\w+)|\b(\w+)(?:\.fetch_add\b|\s*\+=)", body):
        name = used[1] or used[2]
        if name in names and not re.search(rf"\b{name}\s*(?:=|,|\.store\()\s*0\b", body):
            return (
                f"line {line_at(body, used.start())}: right once, wrong in the next launch: {name} "
                f"is not 0 again; let the last thread set {name} = 0"
            )
    said = "right once, wrong in the next launch: a __device__ variable keeps a value; reset it"
    return said if names else ""


def of_race(code: str, race: Race) -> str:
    """Between which lines a barrier is missing; empty if the text does not show it."""
    barrier, (a, b) = race.missing, race.sides
    read, write = (b, a) if a.kind == "write" else (a, b)
    if (
        barrier not in ("__syncthreads()", "__syncwarp()")
        or write.kind != "write"
        or read.kind not in ("read", "atomic")
    ):
        return ""
    start = _start(code, write.place.line)
    function = next((one for one in functions(code) if one.open < start < one.end), None)
    if not function or not function.open < _start(code, read.place.line) < function.end:
        return ""
    lines = sorted({read.place.line, write.place.line})
    stop = code.rfind(";", 0, (code.find("\n", _start(code, lines[-1])) + 1) or None)
    loops = [row for row in _heads(code, function.open, stop) if row[0] != "if"]
    around = code[loops[-1][2] : loops[-1][3]] if loops else ""
    if len(lines) == 1:
        if not around or not _BARRIER.search(around):
            said = f"put a {barrier} behind the statement of line {lines[0]}, within the loop"
            return said if around else ""
        return (
            f"in one step, threads at line {lines[0]} read elements that other threads write: "
            f"read into a variable, wait in a {barrier}, and write then; or let only those "
            "threads write whose elements no other thread reads in this step"
        )
    between = code[_start(code, lines[0] + 1) : _start(code, lines[1])]
    if _BARRIER.search(between):
        both = loops and loops[-1][2] < _start(code, lines[0])
        return f"put a {barrier} behind line {lines[1]}, before the loop goes on" if both else ""
    use = "reads" if read.kind == "read" else "updates"
    before, then = ("writes", use) if lines[0] == write.place.line else (use, "writes")
    return (
        f"line {lines[0]} {before} what line {lines[1]} {then} in another thread: put a {barrier} "
        "between the two lines"
    )
