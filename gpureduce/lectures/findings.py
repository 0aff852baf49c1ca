"""Findings from the lectures' records: where a GPU's order of rungs differs, and why.

Every table is computed from a record and the counts of `gpureduce.explain`, without fixed figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from gpureduce.core import registry
from gpureduce.emulator.explain import Explanation, explained
from gpureduce.lectures import experiments
from gpureduce.lectures.measuring import Row
from gpureduce.lectures.records import Record, printed
from gpureduce.lectures.tables import provenance_note, short_device
from gpureduce.text import Table

_TIE = 1.02  # times within this ratio count as equal


def _notes(*records: Record) -> list[str]:
    if any(record.emulated for record in records):
        raise ValueError("emulated times are never compared with a GPU's: pass the record of a GPU")
    return list(dict.fromkeys(provenance_note(record) for record in records))


def _beside_the_lecture(title: str, body: list[list[str]], records: Sequence[Record]) -> Table:
    head = ["", "", "the lecture", short_device(records[0])]
    return Table(title, head, body, _notes(*records))


def _their_card(record: Record) -> str:
    return experiments.lecture_card(record.lecture)


def _launches(record: Record) -> list[tuple[str, Record]]:
    """The record split into parts with one row per rung, by size and block if there are several."""
    labels = {row.label for row in record.rows}
    if len(labels) == len(record.rows):
        return [("", record)]
    found = []
    for n in dict.fromkeys(row.n for row in record.rows):
        for block in dict.fromkeys(row.block for row in record.rows):
            found.append((str(block), record.only(n=n, block=block)))
    return found


def ends(*records: Record) -> Table:
    """The speedup of the last rung over the first, on the record's GPU and the lecture's.

    Uses the largest size, with a line for each block. The records must be of one GPU.

    >>> from gpureduce import lecture_findings, lectures
    >>> record = lectures.recorded("lab", "notebooks/data")
    >>> [row[1] for row in lecture_findings.ends(record).rows]
    ['last warp unrolled (lab 28) over divergent interleaved (lab 25)']
    """
    body = []
    for record in records:
        for block, rows in _launches(record.largest):
            timed = zip(rows.rows, rows.their_us, strict=True)
            pairs = [(row, us) for row, us in timed if us]
            (first, their_first), (last, their_last) = pairs[0], pairs[-1]
            name = f"{record.lecture}, block {block}" if block else record.lecture
            theirs = f"{their_first / their_last:.2f}x on {_their_card(record)}"
            ours = f"{first.median_us / last.median_us:.2f}x"
            body.append([name, f"{last.label} over {first.label}", theirs, ours])
    return _beside_the_lecture("The last rung over the first", body, records)


def _range(ratios: Sequence[float]) -> str:
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    return f"{low}x" if low == high else f"{low} to {high}x"


def order(*records: Record) -> Table:
    """The pairs of rungs whose order on the records' GPU differs from the lectures'.

    Each pair has the speedup of the later rung over the earlier one. Times within 2% have no
    order. Kernels that are wrong on purpose are left out.

    >>> from gpureduce import lecture_findings, lectures
    >>> table = lecture_findings.order(lectures.printed("lab"))
    >>> table.rows[0][1]
    "nowhere: all rungs in the lecture's order"
    """
    body = []
    for record in records:
        pairs = swapped(record)
        for (later, earlier), seen in pairs.items():
            blocks = ", ".join(block for block, _, _ in seen)
            name = f"{record.lecture}, block {blocks}" if blocks else record.lecture
            theirs = f"{_range([ratio for _, ratio, _ in seen])} on {_their_card(record)}"
            ours = _range([ratio for _, _, ratio in seen])
            body.append([name, f"{later} over {earlier}", theirs, ours])
        if not pairs:
            body.append([record.lecture, "nowhere: all rungs in the lecture's order", "", ""])
    return _beside_the_lecture("Where the order differs", body, records)


def swapped(record: Record) -> dict[tuple[str, str], list[tuple[str, float, float]]]:
    """By pair of rungs: the block, and the later rung's speedup in the lecture and here.

    >>> from gpureduce import lecture_findings, lectures
    >>> lecture_findings.swapped(lectures.printed("lab"))
    {}
    """
    found: dict[tuple[str, str], list[tuple[str, float, float]]] = {}
    for block, rows in _launches(record):
        timed = [
            (row.label, row.median_us, us)
            for row, us in zip(rows.rows, rows.their_us, strict=True)
            if us and not registry.find(row.strategy).broken
        ]
        for (a, ours_a, theirs_a), (b, ours_b, theirs_b) in itertools.combinations(timed, 2):
            ours, theirs = ours_a / ours_b, theirs_a / theirs_b
            if min(ours, theirs) * _TIE < 1 < max(ours, theirs) / _TIE:
                found.setdefault((b, a), []).append((block, theirs, ours))
    return found


def _explained(row: Row) -> Explanation:
    how: dict[str, Any] = {"n": row.n, "dtype": row.dtype, "block": row.block, "grid": row.grid}
    return explained(row.strategy, finish=row.finish, **how)


def _total(found: Explanation, name: str) -> int:
    return sum({**kernel.counters, **kernel.details}[name] for kernel in found.kernels)


def _time(us: float) -> str:
    return f"{us:,.1f}" if us < 1000 else f"{us:,.0f}"


def counted(record: Record, report: Record | None = None) -> Table:
    """A record's times beside the counts of `explain` for the same sums, over all their launches.

    `report`, a record of the profiler, adds its instruction counts of the same kernels.

    >>> from gpureduce import lecture_findings, lectures
    >>> table = lecture_findings.counted(lectures.printed("lab"))
    >>> [row[4] for row in table.rows]  # shared wavefronts
    ['9,928,704', '9,928,704', '2,310,144', '1,155,072', '1,138,688']
    """
    card = short_device(record)
    seen = (
        {row.strategy: row.facts["executed_instructions"] for row in report.rows} if report else {}
    )
    head = [f"{card}: us", "launches", "blocks", "shared wavefronts", "of them conflicts",
            "idle lanes of 32", "warps at barriers",
            *(["sectors"] if record.rows[0].nbytes else [])]  # fmt: skip
    body = []
    for row in record.rows:
        e = _explained(row)
        wavefronts = _total(e, "shared_load_wavefronts") + _total(e, "shared_store_wavefronts")
        conflicts = _total(e, "shared_load_conflicts") + _total(e, "shared_store_conflicts")
        lanes = sum((kernel.active_lanes or 0) * kernel.memory_instructions for kernel in e.kernels)
        idle = 32 - lanes / max(sum(kernel.memory_instructions for kernel in e.kernels), 1)
        counts = [len(e.kernels), sum(kernel.grid for kernel in e.kernels), wavefronts, conflicts]
        body.append([row.label, _time(row.median_us), *(f"{count:,}" for count in counts),
                     f"{idle:.1f}", f"{_total(e, 'block_barrier_instructions'):,}"])  # fmt: skip
        if row.nbytes:  # 0 for an integral, which reads nothing
            body[-1].append(f"{_total(e, 'global_load_sectors'):,}")
        if seen:
            body[-1].append(f"{seen[row.strategy]:,.0f}" if row.strategy in seen else "")
    notes = [f"Counted on the emulator. Times: {provenance_note(record)}"]
    if report and seen:
        head.append("instructions, profiled")
        first = report.rows[0]
        notes.append(f"Instructions: by Nsight Compute, of {first.n:,} {first.dtype} in blocks of "
                     f"{first.block}; {provenance_note(report)}")  # fmt: skip
    first = record.rows[0]
    title = f"{first.n:,} {first.dtype}, {first.block} threads per block: time and counts"
    return Table(title, ["", *head], body, notes)


_BUSY = {"compute": "compute_sm_pct", "memory": "memory_pct", "DRAM": "dram_throughput_pct"}


def _busiest(facts: dict[str, float]) -> str:
    """The busiest unit and its share: "DRAM" if that is what makes the memory busy."""
    share, name = max((facts[key], name) for name, key in reversed(_BUSY.items()))
    if facts[_BUSY["DRAM"]] == share:
        name = "DRAM"
    return f"{name}, {share:.0f}%"


def busiest(report: Record) -> Table:
    """The busiest unit for each profiled kernel, on the record's GPU and the lecture's.

    >>> from gpureduce import lecture_findings, lectures
    >>> table = lecture_findings.busiest(lectures.printed("profile"))
    >>> table.rows[0]
    ['1 interleaved', 'compute, 41%']
    """
    theirs = printed(report.lecture).only(label=tuple(row.label for row in report.rows))
    records = list({short_device(record): record for record in (theirs, report)}.values())
    columns = [[_busiest(row.facts) for row in record.rows] for record in records]
    labels = [row.label for row in report.rows]
    body = [[label, *cells] for label, *cells in zip(labels, *columns, strict=True)]
    return Table("What is busiest", ["", *map(short_device, records)], body, _notes(*records))


def blocks_started(record: Record) -> Table:
    """Blocks of the first launch by microsecond of the sum, for each rung and block size.

    If several rungs have the same rate, starting blocks is their limit.

    >>> from gpureduce import lecture_findings, lectures
    >>> table = lecture_findings.blocks_started(lectures.printed("block_sweep"))
    >>> table.head
    ['threads per block', '32', '64', '128', '256', '512', '1024']
    """
    blocks = list(dict.fromkeys(row.block for row in record.rows))
    body = []
    for label in dict.fromkeys(row.label for row in record.rows):
        rows = {row.block: row for row in record.rows if row.label == label}
        rates = [(rows[block].grid or 0) / rows[block].median_us for block in blocks]
        body.append([label, *(f"{rate:,.0f}" for rate in rates)])
    head = ["threads per block", *map(str, blocks)]
    title = f"Blocks per microsecond, {short_device(record)}"
    return Table(title, head, body, _notes(record))


def filled(record: Record, per_multiprocessor: int = 2048, multiprocessors: int = 132) -> Table:
    """The cascade's launches, by the number of their reduction trees: occupied threads, and time.

    `explain` counts the warps at barriers. The default capacity in threads is that of an H100.

    >>> from gpureduce import lecture_findings, lectures
    >>> table = lecture_findings.filled(lectures.printed("block_grid"))
    >>> table.rows[0]
    ['128 x 512', '24%', '256', '4,096', '122.7']
    """
    room = per_multiprocessor * multiprocessors
    lines: list[tuple[int, list[str]]] = []
    for row, us in zip(record.rows, record.their_us, strict=True):
        warps = _total(_explained(row), "block_barrier_instructions")
        threads = (row.block or 0) * (row.grid or 0)
        cells = [f"{row.block} x {row.grid}", f"{min(threads / room, 1):.0%}",
                 f"{row.n / threads:,.0f}", f"{warps:,}"]  # fmt: skip
        cells += [_time(us or 0.0)] if not record.printed else []
        lines.append((warps, [*cells, _time(row.median_us)]))
    cards = (
        [short_device(record)] if record.printed else [_their_card(record), short_device(record)]
    )
    head = ["block x grid", f"of {room:,} threads", "elements per thread", "warps at barriers",
            *(f"{card}: us" for card in cards)]  # fmt: skip
    body = [cells for _, cells in sorted(lines, key=lambda line: line[0])]
    return Table("The cascade, by the trees it pays for", head, body, _notes(record))
