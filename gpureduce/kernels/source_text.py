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


_DIRECTIVE_WORD = re.compile(
    r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|define|undef)\b[ \t]*((?:\\\n|[^\n])*)", re.M
)


def _without_dead(code: str) -> str:
    """The text without the branches of ``#if`` that its own macros exclude."""
    parts, at, live = [], 0, True
    # None: whether it is defined, or its value, is not known.
    macros: dict[str, str | None] = {"__CUDACC__": "1", "__CUDA_ARCH__": "900"}  # the emulator's
    # Headers of its own may define macros, too. Their names are blank here, as all strings are.
    knows_all = not re.search(r"^[ \t]*#[ \t]*include\b[ \t]*$", code, re.M)
    # Of each #if that is open: whether the text around it is live, and whether a branch was.
    groups: list[tuple[bool, bool | None]] = []
    for line in _DIRECTIVE_WORD.finditer(code):
        part = code[at : line.start()]
        parts.append(part if live else blank(part))
        at, word, rest = line.start(), line[1], line[2].strip()
        if word in ("define", "undef"):
            name, _, value = rest.partition(" ")
            if live:
                certain = all(taken for _, taken in groups)
                if word == "define" or not certain:
                    macros[name] = value.strip() if certain else None
                else:
                    macros.pop(name, None)
        elif word.startswith("if"):
            test = {"ifdef": f"defined({rest})", "ifndef": f"!defined({rest})"}.get(word, rest)
            truth = _truth(test, macros, knows_all) if live else False
            groups.append((live, truth))
            live = live and truth is not False
        elif groups and word == "endif":
            live = groups.pop()[0]
        elif groups:
            around, taken = groups.pop()
            truth = False if taken else _truth("1" if word == "else" else rest, macros, knows_all)
            unknown = taken is None or truth is None
            live = around and truth is not False
            groups.append((around, None if unknown and not taken else bool(taken or truth)))
    return "".join([*parts, code[at:] if live else blank(code[at:])])


_NO_TEST = r"[^-\d\s()+*/%<>=!andort]|\*\*|[\d)]\s*\(|<<(?!\s*\d{1,2}\b)"


def _truth(test: str, macros: dict[str, str | None], knows_all: bool) -> bool | None:
    """Whether the condition of an ``#if`` holds; None if the text does not tell."""
    unknown = False

    def value(word: re.Match[str]) -> str:
        nonlocal unknown
        name = word[1] or word[2] or word[3]
        given = macros.get(name, "" if knows_all and not name.startswith("_") else None)
        unknown = unknown or given is None
        if not word[3]:  # defined(NAME)
            return str(int(name in macros))
        return given or "0"

    test = re.sub(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))|\b([A-Za-z_]\w*)", value, test)
    test = re.sub(r"!(?!=)", " not ", test.replace("&&", " and ").replace("||", " or "))
    test = re.sub(r"(\d)[uUlL]+\b", r"\1", test)
    if unknown or len(test) > 200 or re.search(_NO_TEST, test):
        return None
    try:
        return bool(eval(test.strip(), {"__builtins__": {}}))
    except Exception:  # of a text that is no condition
        return None


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


def own_code(code: str, kernel: str) -> str:
    """A text without comments, without other kernels and functions that this kernel does not call.

    Every line keeps its number.
    """
    bodies = [(one, _callable_names(one)) for one in blocks(code) if one.is_function]
    used = {kernel} | words_in("\n".join(DIRECTIVE.findall(code)))
    used |= {word for one in blocks(code) if not one.is_function
             for word in words_in(code[one.open : one.end])}  # fmt: skip
    left = bodies
    while called := [row for row in left if _is_called(row, kernel, used)]:
        left = [row for row in left if row not in called]
        used |= {word for one, _ in called for word in words_in(code[one.open : one.end])}
    for one, _ in left:
        code = code[: one.first] + blank(code[one.first : one.end + 1]) + code[one.end + 1 :]
    return code


def _callable_names(function: Block) -> set[str]:
    return set(re.findall(r"\b(\w{1,99})\s{0,9}(?:<[^<>()]{0,200}>\s{0,9})?\(", function.head))


def _is_called(row: tuple[Block, set[str]], kernel: str, used: set[str]) -> bool:
    function, names = row
    return kernel in names if "__global__" in function.head else bool(names & used)
