"""Reads CUDA C as text: comments, brackets, constants, functions. Every line keeps its number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


class KernelError(ValueError):
    """A kernel that cannot be compiled: its form is wrong, or the compiler refuses it.

    The message names the kernel's own lines.

    >>> import gpureduce
    >>> try:
    ...     gpureduce.kernel("__global__ void f(float *out) {}")
    ... except gpureduce.KernelError as error:
    ...     print(str(error).partition(", as in")[0])
    f has no parameter for the sums; a kernel takes elements, sums and their number
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the message, since the error is in the kernel's lines."""
        return [f"{type(self).__name__}: {self}"]


class NotASum(KernelError):
    """A kernel without parameters for elements or for sums, as programs have beside their sums."""


def blank(text: str) -> str:
    """Spaces of the same length, with the same line breaks."""
    return re.sub(r"[^\n]", " ", text)


def without_comments(text: str) -> str:
    """The text with comments and strings blanked out."""
    # A comment or string that is not closed ends with the text or the line: otherwise the search
    # would start again at each opening mark.
    pattern = r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?'
    pattern += r"|(?<!\w)'(?:\\.|[^'\\\n])*'?"  # not a digit separator
    return _without_dead(re.sub(pattern, lambda found: blank(found[0]), text, flags=re.S))


_IF = re.compile(r"^[ \t]*#[ \t]*(if|elif|else|endif)(\w*)[ \t]*([^\n]*)", re.M)


def _without_dead(code: str) -> str:
    """The text without what stands between ``#if 0`` and its ``#else`` or ``#endif``."""
    parts, at, start, depth = [], 0, -1, 0
    for line in _IF.finditer(code):
        if start < 0:
            dead = line[1] == "if" and not line[2] and line[3].strip() == "0"
            start, depth = (line.end(), 0) if dead else (-1, 0)
        elif line[1] == "if":
            depth += 1
        elif depth:
            depth -= line[1] == "endif"
        else:
            parts += [code[at:start], blank(code[start : line.start()])]
            at, start = line.start(), -1
    return "".join([*parts, code[at:]])


def words_in(code: str) -> set[str]:
    """The names, words and numbers of a text."""
    return set(re.findall(r"\w+", code))


def line_at(text: str, index: int) -> int:
    """The number of the line that has this index."""
    return text.count("\n", 0, index) + 1


_CLOSING = {"(": ")", "{": "}", "[": "]"}


def closing(code: str, start: int) -> int:
    """The index of the bracket that closes the one at `start`; the text's end if none does."""
    opens, closes, depth = code[start], _CLOSING[code[start]], 0
    for i in range(start, len(code)):
        depth += (code[i] == opens) - (code[i] == closes)
        if not depth:
            return i
    return len(code)


def split(text: str, at: str = ",") -> list[str]:
    """The parts between separators that are in no brackets."""
    parts, depth, angles = [""], 0, 0
    for letter in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if not depth:  # within others, < and > compare or shift
            angles = max(0, angles + {"<": 1, ">": -1}.get(letter, 0))
        if letter == at and not depth and not angles:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


_CONSTANT = re.compile(
    r"^[ \t]{0,20}#[ \t]{0,20}define[ \t]+(?P<macro>\w{1,60})[ \t]+(?P<value>[^\n]{1,80})$"
    r"|\bconst(?:expr)?\s[\w\s]{0,60}?\b(?P<name>\w{1,60})\s{0,9}"
    r"(?:=\s{0,9}(?P<text>[^;{}]{1,80});|\{(?P<braced>[^;{}]{1,80})\})",
    re.M,
)
_ENUM = re.compile(r"\benum\b[\w\s:]{0,60}\{([^{}]{1,400})\}")


def constants(code: str) -> dict[str, int]:
    """The constants of a text without comments that are whole numbers, by name."""
    rows = [
        (match["macro"] or match["name"], match["value"] or match["text"] or match["braced"])
        for match in _CONSTANT.finditer(code)
    ]
    for found in _ENUM.finditer(code):
        rows += [tuple(part.split("=", 1)) for part in found[1].split(",") if "=" in part]
    known: dict[str, int] = {}
    for name, text in rows:
        value = number(text.strip(), known)
        if value is not None:
            known[name.strip()] = value
    return known


def aliases(code: str) -> dict[str, str]:
    """Other names of types, by ``typedef``, ``using`` and ``#define``."""
    pattern = (
        r"\btypedef\s+([\w\s]{1,60}?)\s+(\w{1,60})\s*;|\busing\s+(\w{1,60})\s*=\s*([\w\s]{1,60}?)\s*;"
        r"|^[ \t]{0,20}#[ \t]{0,20}define[ \t]+(\w{1,60})[ \t]+([a-zA-Z_][\w ]{0,60}?)[ \t]*$"
    )
    found = {}
    for a, b, c, d, e, f in re.findall(pattern, code, re.M):
        found[b or c or e] = a or d or f
    return found


def number(text: str, known: dict[str, int]) -> int | None:
    """The value of whole numbers and constants joined by ``+ - * / <<``; else None."""
    text = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: str(known.get(word[0], word[0])), text)
    text = re.sub(r"\b(\d+|0[xX][\da-fA-F]+)[uUlL]+\b", r"\1", text)
    odd = r"[^-\dxXa-fA-F+*/()\s<]|\*\*|//|<<(?!\s*\d{1,2}(?![\dxX]))|[\d)]\s*\("
    if re.search(odd, text) or len(text) > 60:
        return None
    try:
        value = eval(text.replace("/", "//").strip(), {"__builtins__": {}})
    except Exception:  # of a text that is no number
        return None
    return value if isinstance(value, int) else None


DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)


def without_directives(code: str) -> str:
    """The text with lines of the preprocessor blanked out."""
    return DIRECTIVE.sub(lambda found: blank(found[0]), code)


_NEAR = 300  # letters before a brace, in which its head says what it opens


@dataclass(frozen=True)
class Block:
    """A function or a class: the text before its braces, and the indexes of its parts."""

    head: str
    first: int
    open: int
    end: int

    @property
    def is_function(self) -> bool:
        """Whether it is a function, of the host or of a device."""
        return ")" in self.head and not re.search(
            r"\b(struct|class|union|enum)\b[^()]*$|=\s*$", self.head
        )


def blocks(code: str) -> Iterator[Block]:
    """The functions and classes of a text without comments, but no members."""
    code, start = without_directives(code), 0
    while (brace := code.find("{", start)) >= 0:
        first = 1 + max(start - 1, code.rfind(";", start, brace), code.rfind("}", start, brace))
        while brace >= 0 and code.count("(", first, brace) > code.count(")", first, brace):
            brace = code.find("{", closing(code, brace))  # that was in a default argument
        if brace < 0:
            return
        head = code[first:brace]
        if re.search(r"\b(namespace|extern)\b[^()]*$", head[-_NEAR:]):
            start = brace + 1
            continue
        end = closing(code, brace)
        yield Block(head, first, brace, end)
        start = end + 1


def functions(code: str, start: int = 0) -> Iterator[Block]:
    """The functions of a text without comments and directives, those of classes among them."""
    for one in blocks(code):
        if one.is_function:
            yield Block(one.head, start + one.first, start + one.open, start + one.end)
        elif re.search(r"\b(struct|class|union)\b", one.head):
            yield from functions(code[one.open + 1 : one.end], start + one.open + 1)
