"""Submissions that are nearly the same, with comments and names of variables folded: a hint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from gpureduce.kernels.source_text import without_comments

_WORDS = 8  # in a row
_ALIKE = 0.9  # of all rows of words that two kernels have
_FEW = 12  # rows of words beside those of the start file, or there is nothing to compare
_NAME = re.compile(r"(?!__|atomic)[A-Za-z_]")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|[<>=!+\-*/&|^%]=|&&|\|\||<<|>>|\S")
_KEPT = frozenset(
    "if else for while do return break continue switch case template typename const unsigned int "
    "float double long short char bool void auto static volatile extern size_t struct true false "
    "x y z In Acc threadIdx blockIdx blockDim gridDim warpSize shared_array min max".split()
)

# Two submissions, by index, and the shares of words that are the same, folded and as written.
Pair = tuple[int, int, float, float]


def _rows(words: Sequence[str]) -> frozenset[tuple[str, ...]]:
    """All rows of words."""
    return frozenset(zip(*(words[i:] for i in range(_WORDS)), strict=False))


def folded(text: str) -> list[str]:
    """The words of a kernel without comments, with one word for all names.

    >>> folded("sum += in[tid]; // add") == folded("total += values[t];")
    True
    """
    words = _TOKEN.findall(without_comments(text))
    return [word if word in _KEPT or not _NAME.match(word) else "name" for word in words]


def _share(a: frozenset[tuple[str, ...]], b: frozenset[tuple[str, ...]]) -> float:
    return len(a & b) / max(1, len(a | b))


def pairs(texts: Sequence[str], start: str = "") -> list[Pair]:
    """The pairs that are nearly the same, those that are also written the same first.

    Of a group of such kernels, each is in a pair with the one that is most like it, so that a group
    has one pair less than kernels. Kernels that hardly differ from the start file are left out. So
    are those of a fifth of the class and more that agree when folded alone: a short task has one
    usual answer.
    """
    code = [_rows(folded(text)) for text in texts]
    given = _rows(folded(start))
    own = [i for i, rows in enumerate(code) if len(rows - given) >= _FEW]
    usual = Counter(code[i] for i in own)
    words = {i: _rows(_TOKEN.findall(texts[i])) for i in own}
    found: list[Pair] = []
    for i, j in combinations(own, 2):
        if (share := _share(code[i], code[j])) < _ALIKE:
            continue
        written = _share(words[i], words[j])
        is_usual = max(usual[code[i]], usual[code[j]]) > max(3, len(texts) // 5)
        if not is_usual or written >= _ALIKE:
            found.append((i, j, share, written))
    group = {i: i for i in own}
    shown = []
    for pair in sorted(found, key=lambda pair: (-pair[3], -pair[2])):
        first, second = group[pair[0]], group[pair[1]]
        if first != second:
            shown.append(pair)
            group = {i: first if at == second else at for i, at in group.items()}
    return shown
