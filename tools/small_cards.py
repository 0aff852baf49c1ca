"""Predicts sums on cards with few float64 units: ``python tools/small_cards.py``.

Counts the float64 instructions per element, conversions included, in the machine code of the lines
that add up elements. A sum is as fast as the slower of memory and float64 units allows. Prints the
table of docs/limits.md. Needs nvcc and nvdisasm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpureduce.core.sources import text_of
from gpureduce.hardware import machine_code
from gpureduce.text import markdown_table

FLOAT64 = re.compile(r"(@!?U?P\w+ +)?(D(ADD|MUL|FMA|SETP|MNMX)\b|(F2F|F2I|I2F)\.\S*F64)")
INTEGER = re.compile(r"(@!?U?P\w+ +)?(IADD3|IMAD|LOP3|SEL|SHF)\b")


class Card(NamedTuple):
    """10^9 bytes and 10^12 float32 operations per second, and float32 lanes per multiprocessor."""

    bandwidth: float
    float32: float
    lanes: int

    @property
    def rate(self) -> float:
        """10^9 float64 instructions per second: two per clock cycle and multiprocessor."""
        return self.float32 * 1e3 / self.lanes  # a multiply-add is two operations


class Sum(NamedTuple):
    """A sum, the bytes of an element, its kernel, and a part of its name in the machine code.

    `lines`: texts of the lines that add, and how many elements each one's instructions add. Where
    the compiler copies a loop, these are the elements of all copies.
    """

    name: str
    size: int
    kernel: str
    symbol: str
    lines: dict[str, int]


CARDS = {
    "T4": Card(320, 8.1, 64),
    "A10": Card(600, 31.2, 128),
    "L4": Card(300, 30.3, 128),
    "RTX 4090": Card(1008, 82.6, 128),
}
ROWS, OF_ROW = "add_short<Acc>(total, sizes, piece[k]);", "return add_to(sum, total);"
IN_TURN = (
    "each_in_turn(piece, [&](const Piece &one, unsigned) { add_short<Acc>(sum, sizes, one); });"
)
COLUMNS, OF_COLUMN = "total.add(pack[k]);", "add_to(sum[j], total.sum[j]);"
SUMS = (
    Sum("`exact` along rows, float32 of distant exponents", 4, "row_warp", "If6Proven",
        {ROWS: 16, IN_TURN: 4}),
    Sum("`exact` along rows, float64", 8, "row_warp", "Id6Proven",
        {"add_pack_to(sum, pack[k]);": 8}),
    Sum("`exact` along columns, float64", 8, "column_tiles", "Id6Proven", {"add(pack[k]);": 32}),
    Sum("`exact`, float64", 8, "exact", "IPKdd", {"x[j] = extract(x[j]);": 18}),
    Sum("`exact` along rows, float16", 2, "row_warp", "I6__half6Proven", {ROWS: 32, OF_ROW: 32}),
    Sum("`exact` along columns, float32", 4, "column_tiles", "If6Proven",
        {COLUMNS: 64, OF_COLUMN: 64}),
    Sum("`exact` along rows, float32", 4, "row_warp", "If6Proven", {ROWS: 16, OF_ROW: 16}),
    Sum("`exact`, float32", 4, "exact", "IPKff", {"deposit.add(pack, count);": 16}),
    Sum("`exact`, float16", 2, "exact", "IPK6__halff",
        {"sum[0] += widened(word << 16);": 32, "sum[1] += widened(word);": 32}),
    Sum("`fast`, float64", 8, "tiles", "IPKdd", {"sum += sum_of<Acc>(pack[k]);": 32}),
    Sum("`fast`, float32", 4, "tiles", "IPKff", {"sum += sum_of<Acc>(pack[k]);": 64}),
)  # fmt: skip
DIGITS = Sum("digits, float64", 8, "exact", "IPKdd", {"column.add(x[j]);": 36})


def per_element(one: Sum, functions: machine_code.Functions, kind: re.Pattern[str]) -> float:
    """The instructions of a kind that the lines of a sum take per element."""
    (code,) = (code for name, code in functions.items() if one.symbol in name)
    total = 0.0
    for line, elements in one.lines.items():
        of_line = [coded.text for coded in code if line in {text_of(*at) for at in coded.frames}]
        if not of_line:
            raise LookupError(f"{one.kernel} has no line {line!r}")
        total += sum(kind.match(text) is not None for text in of_line) / elements
    return total


def counts(arch: int) -> tuple[list[float], float]:
    """Float64 instructions per element of SUMS, and integer instructions of DIGITS."""
    of = {name: machine_code.functions_of(machine_code.disassembly(name, arch))
          for name in sorted({one.kernel for one in SUMS})}  # fmt: skip
    return ([per_element(one, of[one.kernel], FLOAT64) for one in SUMS],
            per_element(DIGITS, of["exact"], INTEGER))  # fmt: skip


def table(counted: Sequence[float]) -> str:
    """The predictions, in percent of each card's bandwidth."""
    rows = []
    for one, count in zip(SUMS, counted, strict=True):
        shares = [card.rate * one.size / count / card.bandwidth if count else 1
                  for card in CARDS.values()]  # fmt: skip
        rows.append([one.name, f"{count:g}", *(f"{min(1, share):.0%}" for share in shares)])
    return markdown_table(["sum", "float64 instructions per element", *CARDS], rows)


def main() -> None:
    """Counts for the oldest and the newest of the cards."""
    for arch in (75, 89):
        counted, integers = counts(arch)
        print(f"Compute capability {arch / 10}, digits: {integers:g} integer instructions\n")
        print(table(counted) + "\n")


if __name__ == "__main__":
    main()
