"""Rewrites a kernel's text for the emulator, on the same lines.

A declaration with ``__shared__`` becomes a reference to a place in the block's memory, with the
variable's name and size (csrc/emulator/include/shared_variables.h). So an access beside it is a
fault, and reports name it.
"""

from __future__ import annotations

import re

from gpureduce.kernels.source_text import (
    KernelError,
    blocks,
    closing,
    line_at,
    split,
    without_comments,
    without_directives,
)  # fmt: skip

_SPECIFIERS = re.compile(
    r"(?:\b(?:static|inline|__inline__|__inline|constexpr|__host__|__device__|__forceinline__|"
    r"__noinline__)\b\s*)+"
)
_INLINE = re.compile(r"\b(?:inline|__inline__|__inline)\b")
_DROPPED = re.compile(r"\b(?:__shared__|static|extern)\b")


def for_the_emulator(text: str) -> str:
    """The text as the emulator's compiler takes it."""
    return _with_places(_with_named_memory(_with_one_inline(text)))


_SHARED_ARRAY = re.compile(
    r"\b(\w+)(\s{0,9}=\s{0,9})shared_array\s{0,9}<([\w\s:]{1,99})>\s{0,9}\(\s{0,9}\)"
)


def _with_named_memory(text: str) -> str:
    """With the names of pointers to the block's dynamic shared memory."""
    code, parts, at = without_comments(text), [], 0
    for found in _SHARED_ARRAY.finditer(code):
        named = f'{found[1]}{found[2]}gr_dynamic_shared<{found[3]}>("{found[1]}")'
        parts += [text[at : found.start()], named]
        at = found.end()
    return "".join([*parts, text[at:]])


def _with_one_inline(text: str) -> str:
    """Without ``inline`` beside ``__device__``, which is ``inline`` itself there."""
    parts: list[str] = []
    at = 0
    for found in _SPECIFIERS.finditer(without_comments(text)):
        if "__device__" in found[0]:
            plain = _INLINE.sub(lambda word: " " * len(word[0]), found[0])
            parts += [text[at : found.start()], plain]
            at = found.end()
    return "".join([*parts, text[at:]])


def _with_places(text: str) -> str:
    comments_out = without_comments(text)
    code = without_directives(comments_out)
    if comments_out.count("__shared__") > code.count("__shared__"):
        at = next(m.start() for m in re.finditer("__shared__", comments_out)
                  if code[m.start()] == " ")  # fmt: skip
        raise KernelError(
            f"line {line_at(text, at)} has __shared__ in a macro: write the declaration itself"
        )
    functions = list(blocks(code))
    parts: list[str] = []
    at = 0
    for number, found in enumerate(re.finditer(r"\b__shared__\b", code)):
        if found.start() < at:
            continue
        start = 1 + max(code.rfind(mark, 0, found.start()) for mark in ";{}")
        start += len(code[start:]) - len(code[start:].lstrip())
        end = _end_of(code, start)
        inside = any(block.open < start < block.end for block in functions)
        parts += [text[at:start], _rewritten(text, start, end, number, inside)]
        at = end + 1
    return "".join([*parts, text[at:]])


def _end_of(code: str, start: int) -> int:
    """The index of the semicolon that ends a declaration."""
    at = start
    while at < len(code) and code[at] != ";":
        at = closing(code, at) + 1 if code[at] in "([{" else at + 1
    return at


def _rewritten(text: str, start: int, end: int, number: int, inside: bool) -> str:
    code = without_comments(text[start:end])
    line = line_at(text, start)
    declared = _DROPPED.sub(lambda word: " " * len(word[0]), code)
    if re.search(r"\bextern\b", code):
        return _dynamic(declared, line, inside)
    names = [_name(part, line) for part in split(declared)]
    which, rows = f"gr_shared_{number}", ", ".join(f'"{name}"' for name in names)
    parts = [
        f"struct {which} {{ {declared}; static const char *gr_name(int i) "
        f"{{ const char *const gr_names[] = {{{rows}}}; return gr_names[i]; }} }};"
    ]
    for i, name in enumerate(names):
        arguments = f"decltype({which}::{name}), {which}, {i}"
        parts.append(
            f"auto &{name} = gr_static_shared<{arguments}>();" if inside
            else f"static const gr_static_everywhere<{arguments}> {name}{{}};"
        )  # fmt: skip
    return " ".join(parts)


def _dynamic(declared: str, line: int, inside: bool) -> str:
    """What becomes of ``extern __shared__ T name[];``."""
    found = re.fullmatch(r"(.*?)\b(\w+)\s*\[\s*\]\s*", declared, re.S)
    if not found:
        raise KernelError(f"line {line}: extern __shared__ memory is declared as T name[]")
    kind = re.sub(r"__align__\s*\(\s*\d+\s*\)|alignas\s*\([^()]*\)", "", found[1]).strip()
    newlines, name = "\n" * declared.count("\n"), found[2]
    if inside:
        return f'{kind} *{name} = gr_dynamic_shared<{kind}>("{name}");{newlines}'
    return f'static const gr_dynamic_everywhere<{kind}> {name}{{"{name}"}};{newlines}'


def _name(declarator: str, line: int) -> str:
    """The variable that a declarator names."""
    if "=" in re.sub(r"\[[^\]]*\]", "", declarator):
        raise KernelError(f"line {line} gives a __shared__ variable a value: CUDA has none there")
    plain = re.sub(r"\{.*\}", " ", declarator, flags=re.S)
    found = re.search(r"\b(\w+)\s*((?:\[[^\]]*\]\s*)*)$", plain.rstrip())
    if not found:
        raise KernelError(f"line {line} has a __shared__ declaration that gpureduce cannot read")
    return found[1]
