"""Reads CUDA C as text: comments, brackets, constants, functions. Every line keeps its number."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """The text with other texts in place of some parts, each given by its start and its end."""
    pieces, at = [], 0
    for start, end, now in sorted(edits):
        pieces += [text[at:start], now]
        at = end
    return "".join([*pieces, text[at:]])


def without_comments(text: str) -> str:
    """The text with comments and strings blanked out."""
    # A comment or string that is not closed ends with the text or the line: otherwise the search
    # would start again at each opening mark.
    pattern = r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?'
    pattern += r"|(?<!\w)'(?:\\.|[^'\\\n])*'?"  # not a digit separator
    return _without_dead(re.sub(pattern, lambda found: blank(found[0]), text, flags=re.S))


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge,
    "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_DIRECTIVE_WORD = re.compile(
    r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|define|undef)\b[ \t]*((?:\\\n|[^\n])*)", re.M
)


def _without_dead(code: str) -> str:
    """The text without the branches of ``#if`` that its own whole-number macros exclude."""
    parts, at, live = [], 0, True
    # None: it has another value, or may have one.
    macros: dict[str, str | None] = {"__CUDACC__": "1", "__CUDA_ARCH__": "900"}  # the emulator's
    # Of each #if that is open: whether the text around it is live, and whether a branch was.
    groups: list[tuple[bool, bool | None]] = []
    for line in _DIRECTIVE_WORD.finditer(code):
        part = code[at : line.start()]
        parts.append(part if live else blank(part))
        at, word, rest = line.start(), line[1], line[2].strip()
        if word in ("define", "undef"):
            named = re.match(r"(\w+)[ \t]*(\d{1,9})?[uUlL]*[ \t]*$", rest)
            if live and (name := re.match(r"\w+", rest)):
                certain = word == "define" and all(taken for _, taken in groups)
                macros[name[0]] = named[2] if named and certain else None
        elif word.startswith("if"):
            test = {"ifdef": f"defined({rest})", "ifndef": f"!defined({rest})"}.get(word, rest)
            truth = _truth(test, macros) if live else False
            groups.append((live, truth))
            live = live and truth is not False
        elif groups and word == "endif":
            live = groups.pop()[0]
        elif groups:
            around, taken = groups.pop()
            truth = False if taken else _truth("1" if word == "else" else rest, macros)
            unknown = taken is None or truth is None
            live = around and truth is not False
            groups.append((around, None if unknown and not taken else bool(taken or truth)))
    return "".join([*parts, code[at:] if live else blank(code[at:])])


_TERM = re.compile(
    r"(!?)\s*(?:defined\s*(?:\(\s*(\w+)\s*\)|(\w+))|(\w+)(?:\s*(==|!=|<=|>=|<|>)\s*(\w+))?)"
)


def _truth(test: str, macros: Mapping[str, str | None]) -> bool | None:
    """Whether the condition of an ``#if`` holds; None if the text does not tell.

    It is read if it compares whole numbers, and joins comparisons by ``&&`` or by ``||``.
    """

    def number_of(word: str) -> int | None:
        found = re.fullmatch(r"(\d{1,9})[uUlL]*", macros.get(word) or word)
        return int(found[1]) if found else None

    def holds(term: str) -> bool | None:
        found = _TERM.fullmatch(term.strip())
        if not found:
            return None
        name = found[2] or found[3]
        if name:
            return None if macros.get(name) is None else not found[1]
        left, right = number_of(found[4]), number_of(found[6] or "0")
        if left is None or right is None or (found[1] and found[5]):
            return None
        held = COMPARISONS[found[5] or "!="](left, right)
        return held != bool(found[1])

    if len(test) > 200 or ("&&" in test and "||" in test):
        return None
    terms = [holds(term) for term in re.split(r"&&|\|\|", test)]
    if "||" in test:
        return True if True in terms else None if None in terms else False
    return False if False in terms else None if None in terms else True


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


def split(text: str, at: str = ",", empty: bool = False) -> list[str]:
    """The parts between separators that are in no brackets; with empty ones only if `empty`."""
    parts, depth, angles = [""], 0, 0
    for letter in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if not depth:  # within others, < and > compare or shift
            angles = max(0, angles + {"<": 1, ">": -1}.get(letter, 0))
        if letter == at and not depth and not angles:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if empty or part.strip()]


_CONSTANT = re.compile(
    r"^[ \t]{0,20}#[ \t]{0,20}define[ \t]+(?P<macro>\w{1,60})[ \t]+(?P<value>[^\n]{1,80})$"
    r"|\bconst(?:expr)?\s[\w\s]{0,60}?\b(?P<name>\w{1,60})\s{0,9}"
    r"(?:=\s{0,9}(?P<text>[^;{}]{1,80});|\{(?P<braced>[^;{}]{1,80})\})",
    re.M,
)
_MORE = re.compile(r",\s{0,9}(\w{1,60})\s{0,9}=\s{0,9}")
_ENUM = re.compile(r"\benum\b[\w\s:]{0,60}\{([^{}]{1,400})\}")


def _values(code: str) -> Iterator[tuple[str, int, int]]:
    """The names of constants, and where their values begin and end."""
    for match in _CONSTANT.finditer(code):
        name = match["macro"] or match["name"]
        group = next(one for one in ("value", "text", "braced") if match[one])
        begin, end = match.span(group)
        # A declaration may have several: const int N = 1 << 20, THREADS = 256;
        for more in _MORE.finditer(code, begin, end if group == "text" else begin):
            yield name, begin, more.start()
            name, begin = more[1], more.end()
        yield name, begin, end


def constants(code: str) -> dict[str, int]:
    """The constants of a text without comments that are whole numbers, by name."""
    rows = [(name, code[begin:end]) for name, begin, end in _values(code)]
    for found in _ENUM.finditer(code):
        rows += [tuple(part.split("=", 1)) for part in found[1].split(",") if "=" in part]
    known: dict[str, int] = {}
    for name, text in rows:
        value = number(text.strip(), known)
        if value is not None:
            known[name.strip()] = value
    return known


def with_constant(text: str, value: int, now: int) -> str:
    """The text with another number for constants of a value, as for ``const int N = 1 << 24``."""
    code = without_comments(text)
    places = [(begin, end) for _, begin, end in _values(code)]
    return edited(text, [(*at, f"{now}") for at in places if number(code[slice(*at)], {}) == value])


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


_DEEP = 8  # classes within classes
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
        head = re.sub(
            r"\b(?:__align__|alignas|__attribute__)\s{0,9}\((?:[^()]|\([^()]*\))*\)", " ",
            self.head[-_NEAR:],
        )  # fmt: skip
        return ")" in head and not re.search(r"\b(struct|class|union|enum)\b[^()]*$|=\s*$", head)


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


def functions(code: str, start: int = 0, depth: int = _DEEP) -> Iterator[Block]:
    """The functions of a text without comments and directives, those of classes among them."""
    for one in blocks(code):
        if one.is_function:
            yield Block(one.head, start + one.first, start + one.open, start + one.end)
        elif depth and re.search(r"\b(struct|class|union)\b", one.head):
            yield from functions(code[one.open + 1 : one.end], start + one.open + 1, depth - 1)


_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.M)
_CLASS = re.compile(r"\b(?:struct|class|union)\s+(\w+)(?:\s+final)?\s*(?::[^:()][^()]*)?$")


@dataclass(frozen=True)
class _Part:
    """A function, a class or a macro: where it stands, and the names of which one is its use.

    `always`: it may be used without its name.
    """

    first: int
    open: int  # its text behind the head
    end: int
    names: frozenset[str]
    always: bool = False


def _parts(code: str, kernel: str) -> Iterator[_Part]:
    found = list(blocks(code))
    classes = {}
    for one in found:
        named = _CLASS.search(one.head[-_NEAR:].rstrip())
        if named and not one.is_function and re.match(r"\s*;", code[one.end + 1 : one.end + _NEAR]):
            classes[one.open] = named[1]
    known = set(classes.values())
    for one in found:
        names, always = {classes.get(one.open, "")}, False
        if one.is_function:
            names = _callable_names(one)
            if "__global__" in one.head:
                names &= {kernel}
            elif re.search(r"\boperator\b|\w\s{0,9}>?\s{0,9}::", one.head[-_NEAR:]):
                names = words_in(one.head) & known  # an operator or a member of theirs
                always = not names
        elif one.open not in classes:
            continue
        before = [line.end() for line in DIRECTIVE.finditer(code, one.first, one.open)]
        yield _Part(max([one.first, *before]), one.open, one.end + 1, frozenset(names), always)
    heads = blanked(code, [(one.open, one.end) for one in found])
    for macro in _MACRO.finditer(heads):
        yield _Part(macro.start(), macro.start(2), macro.end(), frozenset({macro[1]}))


def blanked(code: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with these parts blanked out, of which none lies in another one."""
    return edited(code, ((first, end, blank(code[first:end])) for first, end in spans))


def own_code(code: str, kernel: str) -> str:
    """A text without comments, and without what this kernel does not use.

    Other kernels are left out, and functions, classes and macros without a use. Every line keeps
    its number.
    """
    parts = list(_parts(code, kernel))
    by_name: dict[str, list[_Part]] = {}
    for one in parts:
        for name in one.names:
            by_name.setdefault(name, []).append(one)
    left = set(parts)
    # Also variables, conditions of the preprocessor and names of types.
    new = {kernel} | words_in(blanked(code, [(one.first, one.end) for one in parts]))
    called = [one for one in parts if one.always]
    while new or called:
        called += [one for name in new for one in by_name.pop(name, ())]
        called = [one for one in called if one in left]
        left.difference_update(called)
        new = {word for one in called for word in words_in(code[one.open : one.end])}
        called = []
    return blanked(code, [(one.first, one.end) for one in left])


def _callable_names(function: Block) -> set[str]:
    return set(re.findall(r"\b(\w{1,99})\s{0,9}[<(]", function.head))
