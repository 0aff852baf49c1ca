"""Rewrites a kernel's text for the emulator, on the same lines.

A declaration with ``__shared__`` becomes a reference to a place in the block's memory, with the
variable's name and size (csrc/emulator/include/shared_variables.h). So an access beside it is a
fault, and reports name it. If it stands outside of functions, each function that uses the name
begins with such a reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpureduce.kernels.source_text import (
    DIRECTIVE,
    Block,
    KernelError,
    blank,
    closing,
    edited,
    functions,
    split,
    without_comments,
    without_directives,
    words_in,
)  # fmt: skip

_SPECIFIERS = re.compile(
    r"(?:\b(?:static|inline|__inline__|__inline|constexpr|__host__|__device__|__forceinline__|"
    r"__noinline__)\b\s*)+"
)
_INLINE = re.compile(r"\b(?:inline|__inline__|__inline)\b")
_DROPPED = re.compile(
    r"\b(?:__shared__|static|extern)\b|\b__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)"
)
_NAMED_CLASS = re.compile(r"\s*(?:struct|union|class)\s+(\w+)\s*\{")


def for_the_emulator(text: str) -> str:
    """The text as the emulator's compiler takes it."""
    return _with_places(_with_named_memory(_with_one_inline(_with_yields(text))))


_DECLARES = r"\s*(?:const\b|auto\b|unsigned\b|int\b|float\b|double\b|size_t\b)"
_NEAR_LOOP = 300  # letters before the condition of a do-while loop


def _with_yields(text: str) -> str:
    """With loops that let other threads run while they poll a flag. Atomics do so themselves."""
    code, edits = without_comments(text), []
    for loop in re.finditer(r"\bwhile\s*\(", code):
        close = closing(code, loop.end() - 1)
        head, near = code[loop.end() : close], code[: loop.start()].rstrip()
        near = near[-_NEAR_LOOP:] if near.endswith("}") else ""  # perhaps of do { } while
        waits = re.match(r"\s*(?:;|\{\s*\})", code[close + 1 :])
        if waits and "atomic" not in near + head and not re.match(_DECLARES, head):
            edits.append((loop.end(), loop.end(), "gr_yield(), "))
    return edited(text, edits)


_SHARED_ARRAY = re.compile(
    r"\b(\w+)(\s{0,9}=\s{0,9})shared_array\s{0,9}<([\w\s:]{1,99})>\s{0,9}\(\s{0,9}\)"
)


def _with_named_memory(text: str) -> str:
    """With the names of pointers to the block's dynamic shared memory."""
    return edited(text, (
        (*found.span(), f'{found[1]}{found[2]}gr_dynamic_shared<{found[3]}>("{found[1]}")')
        for found in _SHARED_ARRAY.finditer(without_comments(text))
    ))  # fmt: skip


def _with_one_inline(text: str) -> str:
    """Without ``inline`` beside ``__device__``, which is ``inline`` itself there."""
    edits = []
    for found in _SPECIFIERS.finditer(without_comments(text)):
        if "__device__" in found[0]:
            plain = _INLINE.sub(lambda word: " " * len(word[0]), found[0])
            if text[: found.start()].rstrip().endswith("]"):  # of a lambda
                plain = blank(found[0])
            edits.append((*found.span(), plain))
    return edited(text, edits)


_SPACE_AND_LABELS = re.compile(r"(?:\s*(?:case\b[^;{}]{1,200}?|\w+\s*)(?<!:):(?!:))*\s*")
_MOST_BYTES = 48 << 10
_TOO_MUCH = (
    '"nvcc: uses too much shared data. A kernel has at most 49152 bytes of __shared__ variables; '
    'extern __shared__ memory may be larger"'
)


def _with_places(text: str) -> str:
    comments_out = without_comments(text)
    code = without_directives(comments_out)
    bodies = list(functions(code))
    edits: list[tuple[int, int, str]] = []
    everywhere: dict[str, tuple[int, str]] = {}  # declared outside of functions: where, and text
    visible: list[tuple[int, str]] = []  # depth and sum of bytes, of declarations in open scopes
    at = depth = index = 0
    line = 1
    for number, found in enumerate(re.finditer(r"\b__shared__\b", code)):
        if found.start() < at:
            continue
        start = max(at, 1 + max(code.rfind(mark, at, found.start()) for mark in ";{}"))
        start += _SPACE_AND_LABELS.match(code, start).end() - start  # type: ignore[union-attr]
        for brace in re.findall(r"[{}]", code[at:start]):
            depth += 1 if brace == "{" else -1
            while visible and visible[-1][0] > depth:
                visible.pop()
        line += text.count("\n", at, start)
        at = _end_of(code, start) + 1
        made, references = _rewritten(text[start : at - 1], line, number)
        line += text.count("\n", start, at)
        while index < len(bodies) and bodies[index].end < start:
            index += 1
        inside = index < len(bodies) and bodies[index].open < start
        if made:
            bytes_, before = f"gr_bytes_{number}", visible[-1][1] if inside and visible else 0
            visible += [(depth, bytes_)] if inside else []
            made += (
                f" constexpr unsigned long {bytes_} = {before} + sizeof(gr_shared_{number}); "
                f"static_assert({bytes_} <= {_MOST_BYTES}, {_TOO_MUCH});"
            )
        if inside:
            edits.append((start, at, f"{made} {' '.join(references.values())}"))
        else:
            for name, reference in references.items():
                kind, _, value = reference.partition(f"{name} = ")
                made += f" GR_INTRINSIC {kind}gr_find_{name}() {{ return {value} }}"
                everywhere[name] = at, f"{kind}{name} = gr_find_{name}();"
            edits.append((start, at, made))
    macros = words_in("\n".join(DIRECTIVE.findall(comments_out)))
    edits += _in_functions(code, bodies, everywhere, macros) if everywhere else []
    return edited(text, edits)


def _in_functions(
    code: str, bodies: list[Block], everywhere: dict[str, tuple[int, str]], macros: set[str]
) -> Iterator[tuple[int, int, str]]:
    """The edits that declare references in each function that names such a variable."""
    for body in bodies:
        used = macros | words_in(code[body.open : body.end])
        used -= used if "constexpr" in body.head else words_in(body.head)
        places = {everywhere[name] for name in used & everywhere.keys()}
        if here := [place for end, place in sorted(places) if end <= body.first]:
            yield body.open, body.open + 1, f"{{ {' '.join(here)} {{"
            yield body.end, body.end, "}"


def _breaks(text: str) -> str:
    return "\n" * text.count("\n")


def _end_of(code: str, start: int) -> int:
    """The index of the semicolon that ends a declaration."""
    at = start
    while at < len(code) and code[at] != ";":
        at = closing(code, at) + 1 if code[at] in "([{" else at + 1
    return at


# A declaration with a whole array or variable, and a statement on the line below.
_NOT_ENDED = re.compile(
    r"((?:[^\n]*\n)*?[^\n]*(?:\]|\w\s+\w+))[ \t]*\n\s*"
    r"(?:(?:const|auto|unsigned|int|float|double|size_t|if|for|while|return|__\w+)\b|\w+\s*[-+*/]?=)"
)


def _rewritten(text: str, line: int, number: int) -> tuple[str, dict[str, str]]:
    """A class that has the variables as members, and the declaration of each as a reference."""
    code = without_comments(text)
    if open_ := _NOT_ENDED.match(code):
        raise KernelError(f"line {line + code.count(chr(10), 0, open_.end(1))}: a ; is missing")
    declared = _DROPPED.sub(lambda word: blank(word[0]), code)
    if re.search(r"\bextern\b", code):
        return "", _dynamic(declared, line)
    first = ""
    if named := _NAMED_CLASS.match(declared):  # other declarations may need that name
        close = closing(declared, named.end() - 1) + 1
        first, declared = f"{declared[:close]}; ", f"{named[1]} {declared[close:]}"
    names = [_name(part, line) for part in split(declared)]
    which, rows = f"gr_shared_{number}", ", ".join(f'"{name}"' for name in names)
    made = (
        f"{first}struct {which} {{ {declared}; static const char *gr_name(int i) "
        f"{{ const char *const gr_names[] = {{{rows}}}; return gr_names[i]; }} }};"
    )
    return made, {
        name: f"auto &{name} = gr_static_shared<decltype({which}::{name}), {which}, {i}>();"
        for i, name in enumerate(names)
    }


def _dynamic(declared: str, line: int) -> dict[str, str]:
    """What becomes of ``extern __shared__ T name[];``."""
    found = re.fullmatch(r"(.*?)\b(\w+)\s*\[\s*\]\s*((?:\[[^\[\]]*\]\s*)*)", declared, re.S)
    if not found:
        raise KernelError(f"line {line}: declare extern __shared__ memory as T name[]")
    kind = re.sub(r"__align__\s*\(\s*\d+\s*\)|alignas\s*\([^()]*\)", "", found[1]).strip()
    made = f'auto *{found[2]} = gr_dynamic_shared<{kind}{found[3]}>("{found[2]}");'
    return {found[2]: made + _breaks(declared)}


def _name(declarator: str, line: int) -> str:
    """The variable that a declarator names."""
    if "=" in re.sub(r"\[[^\]]*\]", "", declarator):
        raise KernelError(f"line {line} initializes a __shared__ variable, which CUDA forbids")
    plain = re.sub(r"\{.*\}", " ", declarator, flags=re.S)
    found = re.search(r"\b(\w+)\s*((?:\[[^\]]*\]\s*)*)$", plain.rstrip())
    if not found:
        raise KernelError(f"line {line} has a __shared__ declaration that gpureduce cannot read")
    return found[1]
