"""Makes the emulator's faults short: the line, the thread, and the element by the array's name."""

from __future__ import annotations

import re

from gpureduce.kernels.source_text import closing, without_comments
from gpureduce.text import visible

_THREAD = re.compile(r"thread \((\d+),0,0\) of block \((\d+),0,0\)")
_INDEX = re.compile(
    r"(?m)^(?P<file>[^\n:]+):(?P<line>\d+):(?P<column>\d+): (?P<who>.+?) uses index "
    r"(?P<index>-?\d+) of "
    r"an array of type '(?P<type>[^']*)'"
)
_TYPE = re.compile(r"'(?:(?:const|volatile|struct) )*([\w ]+)'(?= at an address)")
_LINE = re.compile(r"(?m)^[^\s:]+:(\d+): (?=(?:thread|a thread) )")


def _who(found: re.Match[str]) -> str:
    return f"thread {found[1]}" + (f" of block {found[2]}" if found[2] != "0" else "")


def readable(fault: str, text: str) -> str:
    """A fault in a kernel's text, as a sentence."""
    if fault.startswith("deadlock"):
        return visible(_deadlock(fault))
    fault = _INDEX.sub(lambda found: _bad_index(found, text), _THREAD.sub(_who, fault))
    fault = _BEYOND.sub(lambda found: _guarded(found, text), fault)
    fault = _TYPE.sub(r"\1", fault)
    return visible(_LINE.sub(r"line \1: ", fault))


_BEYOND = re.compile(r"\b(\w+)\[(\d+)\]; \1 has (\d+) elements?\b")


def _guarded(found: re.Match[str], text: str) -> str:
    """An access behind a parameter's array, and why accesses nearer to its end are no faults."""
    parameter = rf"(?:\*\s*(?:const\s+|__restrict(?:__)?\s+)*|\bIn\s+){found[1]}\s*[,)]"
    near = int(found[3]) < int(found[2]) < int(found[3]) + 16
    guard = " (its guard begins at the next 16 bytes)"
    return found[0] + guard * bool(near and re.search(parameter, text))


_MASKED = re.compile(
    r"(?m)^ *[^\s:]+:(\d+): \d+ wait in (__\w+_sync|__syncwarp)\(0x([0-9a-f]{8})\): threads (.*)$"
)


def _deadlock(fault: str) -> str:
    """Where the threads of the first block wait, behind the mask whose lanes do not all come."""
    first, *others = re.split(r"(?m)^(?=  block )", fault.replace("(0,0,0)", "0"))[1:] or [""]
    if not (found := _MASKED.search(first)):
        return fault
    named = int(found[3], 16).bit_count()
    spans = [[*map(int, span.split("-"))] for span in re.findall(r"\d+(?:-\d+)?", found[4])]
    threads = [i for span in spans for i in range(span[0], span[-1] + 1)]
    lacking = named - sum(i // 32 == threads[0] // 32 for i in threads)
    do = "does" if lacking == 1 else "do"
    said = f"line {found[1]}: the mask of {found[2]} names {named} lanes"
    said += f", {lacking} of which {do} not arrive"
    also = "  other blocks wait, too\n" * bool(others)
    wait = "deadlock: every thread waits for a thread that never arrives"
    return f"{said}\n{wait}\n{first}{also}".rstrip()


def _bad_index(found: re.Match[str], text: str) -> str:
    lines = without_comments(text).splitlines()
    line, column, index = int(found["line"]), int(found["column"]), found["index"]
    source = lines[line - 1] if line <= len(lines) else ""
    name, verb = _element(source, column - 1)
    size = re.search(r"\[(\d+)\]", found["type"])
    count = f"; {name} has {size[1]} element{'s' * (size[1] != '1')}" if size else ""
    return f"{found['file']}:{line}: {found['who']} {verb} {name}[{index}]{count}"


def _element(source: str, at: int) -> tuple[str, str]:
    """The array that is indexed at a column, and whether the code writes it.

    The column is that of a bracket (gcc: in templates the opening one, elsewhere the closing one),
    or of the name (clang).
    """
    if not 0 <= at < len(source):
        return "an array", "uses"
    bracket = source.find("[", at)
    if source[at] == "]":
        bracket = next((i for i in range(at, -1, -1)
                        if source[i] == "[" and closing(source, i) == at), -1)  # fmt: skip
    before = re.search(r"(\w+)\s*(?:\[[^\[\]]*\]\s*)*$", source[:bracket]) if bracket >= 0 else None
    if not before:
        return "an array", "uses"
    after = source[closing(source, bracket) + 1 :].lstrip()
    while after.startswith("["):
        after = after[closing(after, 0) + 1 :].lstrip()
    writes = re.match(r"(?:[-+*/|&^]|<<|>>)?=(?!=)|\+\+|--", after)
    return before[1], "writes" if writes else "reads"
