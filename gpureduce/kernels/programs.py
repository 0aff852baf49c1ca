"""Finds the kernels of a whole program, and leaves out what runs on the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gpureduce.kernels.macros import with_specifiers
from gpureduce.kernels.source_text import (
    DIRECTIVE,
    Block,
    KernelError,
    blank,
    blocks,
    edited,
    line_at,
    split,
    without_comments,
    without_directives,
    words_in,
)  # fmt: skip

# Headers of the C and C++ libraries, which the host's compiler has.
STANDARD = frozenset(
    "algorithm array assert.h cassert cctype cfloat chrono climits cmath complex cstddef cstdint "
    "cstdio cstdlib cstring ctime ctype.h fstream functional float.h iomanip iostream limits "
    "limits.h map math.h memory numeric random set stddef.h stdexcept stdint.h stdio.h stdlib.h "
    "string string.h sstream thread time.h tuple type_traits unordered_map utility vector "
    "sys/time.h unistd.h".split()
)
# Headers that the emulator and the card's compilers have.
_CUDA = ("cuda_runtime", "cuda.h", "cuda_fp16", "cuda_bf16", "cooperative_groups", "cuda/atomic")


def _is_program(code: str) -> bool:
    return bool(re.search(r"<<<|\bmain\s*\(|\bcuda[A-Z]\w{1,40}\s*\(", code))


_DEVICE = re.compile(r"\b(?:__global__|__device__|__shared__|__constant__|constexpr)\b")
_CLASS = re.compile(r"\b(?:struct|class|union)\s+(?:\w+\s+)*?(\w+)\s*(?:final\s*)?(?::[^:]|$)")
_NEEDED = re.compile(
    r"\s*(?:using|typedef|template|extern|enum|struct|class|union|static_assert)\b|.*\bconst\b",
    re.S,
)


def _host_parts(code: str) -> Iterator[tuple[int, int]]:
    """The functions, classes and variables of a program that its kernels do not need."""
    needed = words_in("\n".join(DIRECTIVE.findall(code)))
    classes: dict[str, Block] = {}
    outside, at = [], 0
    for one in blocks(code):
        named = _CLASS.search(one.head)
        outside += [code[at : one.first], blank(code[one.first : one.end + 1])]
        at = one.end + 1
        if one.is_function and not _DEVICE.search(one.head):
            yield one.first, at
        elif named and not _DEVICE.search(code, one.first, at):
            classes[named[1]] = one
        else:
            needed |= words_in(code[one.first : at])
    outside.append(code[at:])
    while kept := classes.keys() & needed:
        for name in kept:
            block = classes.pop(name)
            needed |= words_in(code[block.first : block.end])
    for one in classes.values():
        yield one.first, code.find(";", one.end) + 1 or len(code)
    for statement in re.finditer(r"[^;{}]+(?:;|(?=[{}])|$)", without_directives("".join(outside))):
        plain = statement[0].strip()
        if not plain.endswith(";") or plain == ";":
            continue
        plain = plain[:-1]
        heads = [re.split(r"[=\[({]", part)[0].split() for part in split(plain)]
        names = {words[-1].lstrip("*&") for words in heads if words}
        if not _NEEDED.match(plain) and not _DEVICE.search(plain) and not names & needed:
            yield statement.span()


def device_code(text: str, folder: str | None = None) -> str:
    """The text without functions of the host, if it is a program; every line keeps its number.

    `folder` has the program's own headers. Those that are not there are left out, too.
    """
    text = with_specifiers(text)
    code = without_comments(text)
    if _is_program(code):
        parts, at = [], 0
        for start, end in sorted(_host_parts(code)):
            parts += [text[at:start], blank(text[max(at, start) : end])]
            at = max(at, end)
        text = "".join([*parts, text[at:]])
        include = r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[">]'
        text = re.sub(include, lambda found: _kept(found, folder), text, flags=re.M)
    launch = re.search(r"<<<", without_comments(text))
    if launch:
        raise KernelError(
            f"line {line_at(text, launch.start())} launches a kernel from device code, which "
            "gpureduce does not support: it launches kernels itself"
        )
    return text


def _kept(include: re.Match[str], folder: str | None) -> str:
    """An include of a program; blank if it is of a library that only the host needs."""
    name = include[2]
    known = name in STANDARD or name.startswith(_CUDA)
    own = include[1] == '"' and folder is not None and (Path(folder) / name).is_file()
    return include[0] if known or own else blank(include[0])


# Functions that CUDA 9 replaced, and CUDA 13 no longer has.
_OBSOLETE = re.compile(r"\b__(shfl|shfl_up|shfl_down|shfl_xor|any|all|ballot)\s*\(")


def obsolete(text: str) -> list[tuple[int, str, str]]:
    """The calls of functions that CUDA has no more: line, name, and what to write."""
    code = without_comments(text)
    found = []
    for call in _OBSOLETE.finditer(code):
        arguments = "value, lanes" if call[1].startswith("shfl") else "predicate"
        now = f"__{call[1]}_sync(0xffffffff, {arguments})"
        found.append((line_at(code, call.start()), f"__{call[1]}", now))
    return found


def modern(text: str) -> str:
    """The text with `__shfl_sync` and its like in place of functions that CUDA no longer has."""
    calls = _OBSOLETE.finditer(without_comments(text))
    return edited(text, ((*call.span(), f"__{call[1]}_sync(0xffffffff, ") for call in calls))
