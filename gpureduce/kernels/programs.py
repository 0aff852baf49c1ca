"""Finds the kernels of a whole program, and leaves out what runs on the host."""

from __future__ import annotations

import re

from gpureduce.kernels.source_text import (
    KernelError,
    blank,
    blocks,
    line_at,
    without_comments,
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
_CUDA = ("cuda_runtime", "cuda.h", "cuda_fp16", "cuda_bf16", "cooperative_groups", "device_launch")


def _is_program(code: str) -> bool:
    return bool(re.search(r"<<<|\bmain\s*\(", code))


def _of_the_host(head: str) -> bool:
    return not re.search(r"\b(__global__|__device__|constexpr)\b", head)


def device_code(text: str) -> str:
    """The text without functions of the host, if it is a program; every line keeps its number."""
    code = without_comments(text)
    if _is_program(code):
        for block in blocks(code):
            if block.is_function and _of_the_host(block.head):
                found = text[block.first : block.end + 1]
                text = text[: block.first] + blank(found) + text[block.end + 1 :]
        text = re.sub(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[">]', _kept, text, flags=re.M)
    launch = re.search(r"<<<", without_comments(text))
    if launch:
        raise KernelError(
            f"line {line_at(text, launch.start())} has a launch in device code: gpureduce "
            "launches a kernel itself, and has no launches by kernels"
        )
    return text


def _kept(include: re.Match[str]) -> str:
    """An include of a program; blank if it is of a library that only the host needs."""
    name = include[2]
    known = name in STANDARD or name.startswith(_CUDA)
    return (
        include[0] if known or (include[1] == '"' and "helper" not in name) else blank(include[0])
    )


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
    """The text with the functions that CUDA has now."""
    code, parts, at = without_comments(text), [], 0
    for call in _OBSOLETE.finditer(code):
        parts += [text[at : call.start()], f"__{call[1]}_sync(0xffffffff, "]
        at = call.end()
    return "".join([*parts, text[at:]])
