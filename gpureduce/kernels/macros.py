"""Expands a text's own macros, on the same lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpureduce.kernels.source_text import (
    KernelError,
    blanked,
    closing,
    line_at,
    number,
    split,
    without_comments,
    without_directives,
    words_in,
)  # fmt: skip

_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^()\n]*\))?((?:[ \t\\][^\n]*)?(?:(?<=\\)\n[^\n]*)*)", re.M
)
_SPECIFIER = re.compile(r"\b__(?:global|device|shared)__\b")
_DEPTH = 8  # of macros within macros
_MOST_LETTERS = 1 << 20  # that macros may add to a text


@dataclass(frozen=True)
class Macro:
    """A macro: its parameters, None if it takes none, its text, and where the text stands."""

    parameters: tuple[str, ...] | None
    body: str
    span: tuple[int, int]

    def with_arguments(self, arguments: list[str]) -> str:
        """The macro's text with arguments in place of its parameters."""
        names = list(self.parameters or ())
        if names[-1:] == ["..."]:
            first = len(names) - 1
            names[-1] = "__VA_ARGS__"
            arguments = [*arguments[:first], ",".join(arguments[first:])]
        given = dict(zip(names, map(str.strip, arguments), strict=False))
        body = re.sub(
            r"(?<!#)#(?!#)\s*(\w+)", lambda word: f'"{given.get(word[1], "")}"', self.body
        )
        body = re.sub(r"[A-Za-z_]\w*", lambda word: given.get(word[0], word[0]), body)
        return re.sub(r"\s*##\s*", "", body)


def _macros(text: str, code: str) -> Iterator[tuple[str, Macro]]:
    """The macros of a text; `code` is the text without comments."""
    for found in _DEFINE.finditer(code):
        body = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text[found.start(3) : found.end(3)], flags=re.S)
        parameters = None if found[2] is None else tuple(re.findall(r"\w+|\.\.\.", found[2]))
        yield found[1], Macro(parameters, re.sub(r"\\\n", " ", body).strip(), found.span(3))


def _first_of_each(text: str, code: str) -> dict[str, Macro]:
    return dict(reversed([*_macros(text, code)]))


def with_specifiers(text: str) -> str:
    """The text without macros that hold ``__global__``, ``__device__`` or ``__shared__``."""
    code = without_comments(text)
    known = _first_of_each(text, code)
    chosen = {name for name, one in known.items() if _SPECIFIER.search(one.body)}
    while more := {name for name in known.keys() - chosen if words_in(known[name].body) & chosen}:
        chosen |= more
    spans = [one.span for _, one in _macros(text, code)
             if _SPECIFIER.search(one.body) or words_in(one.body) & chosen]  # fmt: skip
    return _expanded(blanked(text, spans), {name: known[name] for name in chosen})


def expanded(code: str) -> str:
    """A text without comments, in which macros are expanded that are no numbers."""
    known = _first_of_each(code, code)
    plain = {name: one for name, one in known.items()
             if one.parameters is not None or number(one.body, {}) is None}  # fmt: skip
    numbers = known.keys() - plain.keys()
    chosen = {name: one for name, one in plain.items()
              if one.parameters is not None or not words_in(one.body) & numbers}  # fmt: skip
    return _expanded(code, chosen)


def _expanded(text: str, known: Mapping[str, Macro]) -> str:
    """The text with these macros expanded; the lines of directives stay."""
    most = len(text) + _MOST_LETTERS
    for _ in range(_DEPTH if known else 0):
        code = without_directives(without_comments(text))
        parts, at, length = [], 0, 0
        for word in re.finditer(rf"\b(?:{'|'.join(known)})\b", code):
            macro, end, arguments = known[word[0]], word.end(), list[str]()
            if word.start() < at:
                continue
            if macro.parameters is not None:
                opens = re.compile(r"\s*\(").match(code, end)
                if not opens:
                    continue
                close = closing(code, opens.end() - 1)
                end, arguments = close + 1, split(text[opens.end() : close], empty=True)
            parts += [text[at : word.start()], macro.with_arguments(arguments),
                      "\n" * text.count("\n", word.start(), end)]  # fmt: skip
            at, length = end, length + sum(map(len, parts[-3:]))
            if length > most:
                raise KernelError(
                    f"line {line_at(text, word.start())}: macros make the text longer than "
                    f"{most} characters"
                )
        if not parts:
            break
        text = "".join([*parts, text[at:]])
    return text
