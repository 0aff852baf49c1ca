"""Tables over several records: origins, gains from rung to rung, and the best block or grid."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gpureduce.lectures.records import Record, printed
from gpureduce.lectures.tables import missing_note, provenance_note, short_device
from gpureduce.text import Table


def _with_the_lecture(records: Sequence[Record | None]) -> list[Record]:
    """The records of GPUs, after the lecture's own figures unless they have them."""
    given = [record for record in records if record]
    found = [record for record in given if not record.emulated]
    if not any(record.printed for record in found):
        found.insert(0, printed(given[0].lecture))
    return found


def _summary_notes(records: Sequence[Record]) -> list[str]:
    notes = [f(record) for record in records for f in (missing_note, provenance_note)]
    return [note for note in notes if note]


def origins(*records: Record) -> Table:
    """A table of the records, and of the substitutes for missing ones."""
    rows = [[record.lecture, " ".join(_summary_notes([record]))] for record in records]
    return Table("Whose figures are shown", ["experiment", "shown"], rows)


def steps(*records: Record | None) -> Table:
    """A table of each rung's speedup over the previous one, at the largest size, by record."""
    found = _with_the_lecture(records)
    head, columns = [""], []
    labels: list[str] = []
    for record in found:
        for block in dict.fromkeys(row.block for row in record.rows):
            head.append(f"{short_device(record)}, {block} threads")
            rows = record.largest.only(block=block).rows
            labels = [row.label for row in rows]
            pairs = [*itertools.pairwise(rows), (rows[0], rows[-1])]
            columns.append([f"{a.median_us / b.median_us:.2f}x" for a, b in pairs])
    names = [*labels[1:], f"{labels[-1]} over {labels[0]}"]
    body = [[name, *cells] for name, *cells in zip(names, *columns, strict=True)]
    notes = _summary_notes(found)
    if len(labels) > 2:
        ranks = [_by_gain(*one, labels[1:]) for one in zip(head[1:], columns, strict=True)]
        notes = ["In order of gain:", *ranks, *notes]
    return Table("Times as fast as the rung before", head, body, notes)


def _by_gain(where: str, gains: Sequence[str], labels: Sequence[str]) -> str:
    """The steps of one column, the largest first."""
    order = sorted(zip(gains, labels, strict=False), key=lambda g: -float(g[0][:-1]))
    return f"{where}: {', '.join(label for _, label in order)}."


def quickest(*records: Record | None, by: str = "block") -> Table:
    """For each strategy, the block (or grid) with the shortest time, and the cost of the worst."""
    found = _with_the_lecture(records)
    head, columns = [""], []
    names = list(dict.fromkeys(row.strategy for row in found[0].rows))
    for record in found:
        head += [f"{short_device(record)}: quickest {by}", "over the slowest"]
        lines = [sorted(record.only(strategy=name).rows, key=lambda row: row.median_us)
                 for name in names]  # fmt: skip
        columns.append([str(getattr(line[0], by)) for line in lines])
        columns.append([f"{line[-1].median_us / line[0].median_us:.1f}x" for line in lines])
    body = [[name, *cells] for name, *cells in zip(names, *columns, strict=True)]
    return Table(f"The best {by}", head, body, _summary_notes(found))
