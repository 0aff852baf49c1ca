"""Formats the output of the commands: tables, numbers and JSON."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

EMULATED = (
    "Emulated times are those of this machine's processor playing a GPU: they tell nothing about a "
    "card."
)


# All but printed characters, tabs and line ends: also those that turn the direction of a text.
_CONTROL = re.compile("[^\n\t -~\u00a0-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\U0010ffff]")


def visible(text: str) -> str:
    r"""The text with control characters as escapes, such as \x1b, which no terminal obeys."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text.replace("\r\n", "\n"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table as text, with columns as wide as their cells. The columns `right` are flush right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)
) -> str:
    """A table in Markdown. All columns but `left` are flush right."""
    rule = ["---" if i in left else "---:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


@dataclass(frozen=True)
class Table:
    """A table that prints as text, and as HTML in a notebook."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    @property
    def right(self) -> list[int]:
        """The indexes of the numeric columns, which are aligned right."""
        columns = range(1, len(self.head))
        return [i for i in columns if not any(_is_words(row[i]) for row in self.rows)]

    def __str__(self) -> str:
        text = table(self.head, self.rows, right=self.right)
        return "\n".join([self.title, "", text, *self.notes])

    def _repr_html_(self) -> str:
        right = self.right

        def row(cells: Sequence[str], tag: str) -> str:
            made = (
                f'<{tag} style="text-align:{"right" if i in right else "left"}">'
                f"{_marked(cell)}</{tag}>"
                for i, cell in enumerate(cells)
            )
            return "<tr>" + "".join(made) + "</tr>"

        body = "\n".join(row(cells, "td") for cells in self.rows)
        notes = "".join(f"<div><small>{_marked(note)}</small></div>" for note in self.notes)
        title = f"<div><b>{_marked(self.title)}</b></div>"
        return f"{title}<table>\n{row(self.head, 'th')}\n{body}\n</table>{notes}"


def _marked(text: str) -> str:
    """A text as HTML, in which names between backticks are code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _is_words(cell: str) -> bool:
    return cell.removeprefix("`")[:1].isalpha() and cell not in ("n/a", "nan")


def plain(value: Any, most: float = math.inf) -> Any:
    """A value for JSON. NumPy's numbers become plain ones.

    Numbers that JSON lacks become text, and so do integers beyond `most`.
    """
    if type(value) is int:  # at once: most values of a replay are integers
        return value if abs(value) <= most else str(value)
    if isinstance(value, dict):
        return {key: plain(one, most) for key, one in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(one, most) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    is_number = isinstance(value, float) and math.isfinite(value)
    is_number = is_number or (isinstance(value, int) and abs(value) <= most)
    return value if is_number or isinstance(value, (str, type(None))) else str(value)


def show_json(what: object) -> None:
    """Prints JSON."""
    print(json.dumps(plain(what), indent=1, allow_nan=False))


def show(what: object, words: object, as_json: bool) -> None:
    """Prints values as JSON, or words."""
    show_json(what) if as_json else print(words)


def number(value: float | None, form: str = ".3f") -> str:
    """A number as text; empty for None."""
    return "" if value is None else format(value, form)


def decimal(value: float) -> str:
    """A number without an exponent, as points are written.

    >>> from gpureduce.text import decimal
    >>> decimal(2.0), decimal(0.5), decimal(1e6)
    ('2', '0.5', '1000000')
    """
    return f"{value:.6f}".rstrip("0").rstrip(".")


def score(got: float, most: float) -> str:
    """Points, and those that there are: 2.5 of 10."""
    return f"{decimal(got)} of {decimal(most)}"


def plural(n: int, noun: str) -> str:
    """A noun in the number that goes with `n`.

    >>> from gpureduce.text import plural
    >>> plural(1, "wavefront"), plural(2, "wavefront"), plural(0, "launch")
    ('wavefront', 'wavefronts', 'launches')
    """
    return noun if n == 1 else f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"


def counted(n: int, noun: str) -> str:
    """A number with its noun: 1 wavefront, 1,024 wavefronts."""
    return f"{n:,} {plural(n, noun)}"


def ones(bits: int) -> list[int]:
    """The places of the ones of an integer, from the lowest on.

    >>> from gpureduce.text import ones
    >>> ones(0b100101)
    [0, 2, 5]
    """
    digits = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), np.uint8)
    found: list[int] = np.flatnonzero(np.unpackbits(digits, bitorder="little")).tolist()
    return found


def runs(numbers: Sequence[int], most_step: float = math.inf) -> list[tuple[int, int, int]]:
    """Ascending numbers as runs of one step each: (first, step, count).

    >>> from gpureduce.text import runs
    >>> runs([0, 1, 2, 8, 12, 16, 17])
    [(0, 1, 3), (8, 4, 3), (17, 1, 1)]
    """
    found: list[tuple[int, int, int]] = []
    at, count = 0, len(numbers)
    while at < count:
        step = numbers[at + 1] - numbers[at] if at + 1 < count else 1
        end = at + 1
        while end < count and numbers[end] - numbers[end - 1] == step:
            end += 1
        if step > most_step or (end - at == 2 and step > 1):  # the second may begin a longer run
            step, end = 1, at + 1
        found.append((numbers[at], step, end - at))
        at = end
    return found


def ranges(numbers: Sequence[int], to: str = "-", most_step: float = 1) -> str:
    """Ascending numbers as ranges of one step each.

    >>> from gpureduce.text import ranges
    >>> ranges([*range(32), 64, 66, 68, 70]), ranges([*range(0, 32, 2), 99, 100], " to ", 2)
    ('0-31, 64, 66, 68, 70', '0, 2, .., 30, 99 to 100')
    """
    found, said = runs(numbers, most_step), list[str]()
    for first, step, count in found[:6]:
        last = first + step * (count - 1)
        if count > 1 and step == 1:
            said.append(f"{first}{to}{last}")
        elif count > 4:
            said.append(f"{first}, {first + step}, .., {last}")
        else:
            said += map(str, range(first, last + 1, step))
    return ", ".join(said) + ", ..." * (len(found) > 6)


def runs_of_ones(bits: int) -> list[tuple[int, int, int]]:
    """The places of the ones of an integer as runs. A single run of neighbours is found at once.

    >>> from gpureduce.text import runs_of_ones
    >>> runs_of_ones(0b11110), runs_of_ones(0b1010101)
    ([(1, 1, 4)], [(0, 2, 4)])
    """
    lowest = bits & -bits
    if bits and not bits & (bits + lowest):
        return [(lowest.bit_length() - 1, 1, bits.bit_count())]
    return runs(ones(bits)) if bits else []


def count(n: float) -> str:
    """A number in binary units: 4 Ki, 64 Mi."""
    for unit, name in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if n >= unit:
            return f"{n / unit:.4g} {name}"
    return f"{n:g}"


def rate_text(gb_s: float) -> str:
    """GB/s as a whole number, or with two digits below 1."""
    return f"{gb_s:.0f}" if gb_s >= 1 else f"{gb_s:.2g}"


def size_text(nbytes: float) -> str:
    """A number of bytes in binary units: 4 KiB, 64 MiB."""
    return f"{count(nbytes)}{'B' if nbytes >= 2**10 else ' B'}"
