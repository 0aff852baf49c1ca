"""The table of sums by key, from a record of ``gpureduce bench --segments``, as in notebook 7."""

from __future__ import annotations

from pathlib import Path

from gpureduce.bench import record as records
from gpureduce.bench.ratios import by_case
from gpureduce.bench.suites import segments
from gpureduce.text import Table

PATH = "data/segments_h100.json"


def recorded(path: str | Path = PATH) -> Table:
    """The float32 sums of a record, unsorted and sorted: who takes how long, in milliseconds.

    Without that file the table says that it is not recorded yet.

    >>> from gpureduce.lectures import keys
    >>> keys.recorded("notebooks/data/segments_h100.json").rows[0][:2]
    ['100', 'unsorted']
    """
    title, path = "Sums by key on a card, in milliseconds", Path(path)
    head = ["keys", "ids", "index_add", "its deterministic mode", "exact", "exact over index_add"]
    if not path.exists():
        card = path.stem.partition("_")[2].upper()
        return Table(title, head, [], [f"{card}: not recorded yet. `gpureduce bench --segments`."])
    record = records.load(path, "segments")
    rows = []
    for by in by_case(record["rows"], segments.CASE).values():
        first = next(iter(by.values()))
        if segments.kind(first) != "float32" or first["ids"] == "offsets":
            continue
        if "torch index_add" not in by:
            continue
        ms = {name: row["median_us"] / 1e3 for name, row in by.items()}
        names = ("torch index_add", "torch deterministic", "exact")
        times = [f"{ms[name]:.3f}" if name in ms else "" for name in names]
        ratio = f"{ms['exact'] / ms['torch index_add']:.2f}"
        rows.append([f"{first['segments']:,}", first["ids"], *times, ratio])
    size = f"{record['rows'][0]['n']:,} elements"
    made = f"{record['card']}: driver {record['driver']}, {record['date']}; {size}."
    return Table(title, head, rows, [made])
