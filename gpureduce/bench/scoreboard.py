"""Times of `fast` and other strategies beside those of other libraries, and their ratios.

``gpureduce bench --scoreboard --output FILE.json`` measures all parts that this machine can;
the README's tables are made of such records. Without a card only host arrays are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce.bench import libraries as _peers
from gpureduce.bench.benchmark import Measurement, benchmark
from gpureduce.bench.contenders.arrays import WAYS
from gpureduce.bench.libraries import LOAD_ONLY
from gpureduce.bench.targets import (
    GIB,
    KIB,
    LIMITS,
    MIB,
    Row,
    mean,
    misaligned,
    missed,
    ratios,
    way_of,
)
from gpureduce.core import devices, registry
from gpureduce.core.dtypes import is_here, named
from gpureduce.core.summation import sum as sum_of
from gpureduce.errors import CudaError
from gpureduce.text import markdown_table, shortfall, size_text

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Part:
    """Something to measure: every dtype at every size, in bytes."""

    measure: str
    strategies: tuple[str, ...]
    peers: tuple[str, ...]
    dtypes: tuple[str, ...]
    nbytes: tuple[int, ...]
    offset: int = 0
    repeats: int = 12
    ways: tuple[str, ...] = ("timing=False",)


_ALL = ("float32", "int8", "uint8", "float16", "bfloat16", "int32", "int64", "float64")
_LIBRARIES = ("cupy", "torch", "jax")
EVERY = "every strategy"

_FLOATS = tuple(dtype for dtype in _ALL if "float" in dtype)
_INTEGERS = tuple(dtype for dtype in _ALL if "int" in dtype)  # `exact` is `fast` there
_APART = (*(4**i * KIB for i in range(1, 12)), 8 * GIB)
_SOME = (16 * KIB, MIB, 64 * MIB, GIB)
_CALLED = (4, 256 * KIB, 4 * MIB)  # 1, 64 Ki and 1 Mi elements of float32

# Each run of a small array is already the mean over thousands of sums, so that one run a round is
# enough for the sums apart. This part takes most of the time.
ON_CARD = (
    Part("apart", ("fast", "exact"), ("cub", LOAD_ONLY), _FLOATS, _APART, repeats=3),
    Part("apart", ("fast",), ("cub", LOAD_ONLY), _INTEGERS, _APART, repeats=3),
    Part("kernel", ("fast",), ("cub",), ("float32", "int8", "float64"), _SOME, repeats=6),
    Part("kernel", ("fast",), (), ("float32", "int8", "float64"), _SOME, offset=1, repeats=6),
    Part("call", ("auto", "fast"), (*_LIBRARIES, "numpy"), ("float32",), _CALLED, ways=tuple(WAYS)),
    Part("call", (EVERY,), (*_LIBRARIES, "numpy"), ("float32",), _CALLED, repeats=6,
         ways=("default", "timing=False")),
    Part("call", ("fast",), ("cupy", "torch"), ("int32",), (GIB, 4 * GIB)),
    Part("host", ("auto", "cpu", "fast"), ("numpy", "cupy", "torch"), ("float32",),
         (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)),
    Part("host", ("auto", "cpu", "fast"), ("numpy", "cupy", "torch"), ("float32",),
         (GIB, 4 * GIB, 8 * GIB), repeats=3),
)  # fmt: skip

ON_HOST = (
    Part("call", ("auto", "cpu"), ("numpy",), ("float32",), _CALLED, ways=tuple(WAYS)),
    Part("host", ("cpu", "exact"), ("numpy",), _ALL,
         (256, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)),
    Part("host", ("cpu", "exact"), ("numpy",), ("float32",), (GIB,)),
)  # fmt: skip


def every_strategy(dtype: str, device: str | None) -> list[str]:
    """The strategies that can add up this dtype there, `warp_shfl` first; no choices, no hosts."""
    one = np.ones(1, named(dtype))
    found = []
    for row in sorted(registry.strategies(), key=lambda row: row.name != "warp_shfl"):
        if row.kind in ("kernel", "library", "everywhere"):
            try:
                sum_of(one, row.name, device=devices.choose_device(device).id)
            except (TypeError, CudaError):  # takes other dtypes, or needs another card
                continue
            found.append(row.name)
    return found


def parts_for(device: str | None) -> tuple[Part, ...]:
    """The parts that can be measured on this machine."""
    return ON_CARD if devices.choose_device(device).backend == "cuda" else ON_HOST


def measure(
    parts: Sequence[Part], device: str | None = None, progress: Progress | None = None
) -> Iterator[Measurement]:
    """Measure the parts; dtypes and libraries that are not installed are left out."""
    here = set(_peers.installed(("all",), device))
    jobs = [(part, dtype) for part in parts for dtype in part.dtypes if is_here(dtype)]
    for done, (part, dtype) in enumerate(jobs):
        if progress:
            progress(done, len(jobs), f"{part.measure} {dtype}")
        yield from benchmark(
            [
                name
                for one in part.strategies
                for name in (every_strategy(dtype, device) if one == EVERY else [one])
            ],
            [max(1, size // named(dtype).itemsize) for size in part.nbytes],
            [dtype],
            device=device,
            repeats=part.repeats,
            measure=[part.measure],
            peers=[peer for peer in part.peers if peer in here],
            offset=part.offset,
            ways=part.ways,
        )
    if progress:
        progress(len(jobs), len(jobs), "")


# --- the tables -----------------------------------------------------------------------------------


def markdown(record: dict[str, Any]) -> str:
    """The tables of a record, with where it was made."""
    rows = record["rows"]
    parts = [_apart_tables(rows), _kernel_table(rows), _call_table(rows), _named_table(rows),
             _host_table(rows), _calibrated(record)]  # fmt: skip
    if short := missed(record):
        parts.append(shortfall(short))
    return "\n\n".join([made(record), *filter(None, parts)])


def made(record: dict[str, Any]) -> str:
    """Where and when a record was made."""
    place = record["card"] if record["device"] == "cuda" else record["processor"]
    said = [f"driver {record['driver']}", f"CUDA {record['toolkit']}"] if record["driver"] else []
    said += [f"{name} {version}" for name, version in record["versions"].items() if name in
             ("numpy", "cupy", "torch", "jax")]  # fmt: skip
    threads = f"{record['processors']} processors"
    ended = " The run ended early." if record.get("unfinished") else ""
    return (
        f"Measured on {record['date']}: {place}, {', '.join([threads, *said])}, commit "
        f"{str(record['commit'])[:9]}; medians, all in one run, below 1 GiB in turns.{ended}"
    )


def _by_size(found: Sequence[Row], more: Callable[[Row], list[str]], head: list[str]) -> str:
    """A table of ratios: a line for each size, a column for each dtype.

    `more` makes the columns between from the size's row of the first dtype that it has.
    """
    cells = {(r["dtype"], r["nbytes"]): r for r in found}
    dtypes = list(dict.fromkeys(r["dtype"] for r in found))
    body = []
    for size in sorted({r["nbytes"] for r in found}):
        shown = [cells.get((dtype, size)) for dtype in dtypes]
        first = next(filter(None, shown))
        ratios = [f"{r['ratio']:.2f}" if r else "" for r in shown]
        body.append([size_text(size), *more(first), *ratios])
    return markdown_table(["bytes", *head, *(f"`{d}`" for d in dtypes)], body, left=())


def mean_and_least(found: Sequence[Row]) -> str:
    """The geometric mean of ratios, and the least one with its place."""
    worst = min(found, key=lambda r: float(r["ratio"]))
    where = f"{worst['dtype']}, {size_text(worst['nbytes'])}"
    return f"geometric mean {mean(found):.2f}, least {worst['ratio']:.2f} ({where})"


def _apart_tables(rows: Sequence[Row]) -> str:
    """The headline: one sum at a time."""
    limits = {(r["dtype"], r["nbytes"]): r for r in rows
              if r["measure"] == "apart" and r["strategy"] == LOAD_ONLY}  # fmt: skip

    def limit(row: Row) -> list[str]:
        told = [f"{row['median_us']:.2f}"]
        if least := limits.get((row["dtype"], row["nbytes"])):
            us = least["median_us"]
            return [*told, f"{us:.2f}", f"{100 * us / row['median_us']:.0f}%"]
        return told + ["", ""] * bool(limits)

    parts = []
    for name in ("fast", "exact"):
        found = ratios(rows, "apart", name, ["cub"])
        if not found:
            continue
        head = [f"us, {found[0]['dtype']}", *(["limit, us", "of limit"] if limits else [])]
        text = f"CUB's time divided by that of `{name}`: {mean_and_least(found)}."
        parts += [text, _by_size(found, limit, head)]
    if not parts:
        return ""
    parts[0] = (
        "**One sum at a time**, on the card's own arrays: the L2 cache is cold, something else "
        f"runs before and after each sum, and its time is subtracted. {parts[0]}"
    )
    if limits:
        parts.append(
            "The limit is a kernel that loads the array by ordinary loads and stores one word. "
            "`fast` may be quicker where it copies by bulk. " + _limit_beside(rows)
        )
    if ratios(rows, "apart", "exact", ["cub"]):
        parts.append("Of integers, `exact` is `fast`.")
    return "\n\n".join(parts)


def _limit_beside(rows: Sequence[Row]) -> str:
    """How much quicker than CUB the limit is on average, and `fast` for the same arrays."""
    of_limit = ratios(rows, "apart", LOAD_ONLY, ["cub"])
    places = {(row["dtype"], row["nbytes"]) for row in of_limit}
    beside = [row for row in ratios(rows, "apart", "fast", ["cub"])
              if (row["dtype"], row["nbytes"]) in places]  # fmt: skip
    if not of_limit or not beside:
        return ""
    return (
        f"CUB's time divided by the limit's: geometric mean {mean(of_limit):.2f}; by that of "
        f"`fast`, for the same arrays: {mean(beside):.2f}."
    )


def headline(record: dict[str, Any]) -> str:
    """The README's lines: one sum at a time, the mean over the dtypes at some sizes."""
    lines: dict[str, list[Row]] = {
        name: found
        for name in ("fast", "exact")
        if (found := ratios(record["rows"], "apart", name, ["cub"]))
    }
    if not lines:
        return ""
    every = [row for found in lines.values() for row in found]
    sizes = sorted({row["nbytes"] for row in every})
    sizes = [nbytes for nbytes in sizes if len(sizes) < 8 or nbytes in _SHOWN]
    body = []
    for name, found in lines.items():
        at = [[row for row in found if row["nbytes"] == nbytes] for nbytes in sizes]
        cells = [f"{mean(some):.2f}" if some else "" for some in at]
        body.append([f"CUB's time / that of `{name}`", *cells])
    dtypes = list(dict.fromkeys(row["dtype"] for row in every))
    whole = "; ".join(f"`{name}`: {mean_and_least(found)}" for name, found in lines.items())
    return "\n\n".join([
        f"{record['card']}, one sum at a time (cold cache; something else runs between two sums), "
        f"{'geometric means over ' * (len(dtypes) > 1)}{', '.join(dtypes)}:",
        markdown_table(["", *map(size_text, sizes)], body),
        f"Over all: {whole}.",
    ])  # fmt: skip


_SHOWN = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, 4 * GIB)


def _kernel_table(rows: Sequence[Row]) -> str:
    found = ratios(rows, "kernel", "fast", ["cub"])
    if not found:
        return ""

    def of_peak(row: Row) -> list[str]:
        percent = row["percent_of_peak"]
        return [f"{row['median_us']:.2f}", "" if percent is None else f"{percent:.0f}%"]

    text = (
        "**Back to back**: many sums in a row, each of which starts while the one before it "
        "finishes. CUB's time divided by that of `fast`: "
        f"{mean_and_least(found)}.\n\n"
    ) + _by_size(found, of_peak, [f"us, {found[0]['dtype']}", "of peak"])
    off = misaligned(rows)
    if off:
        most = max(off, key=lambda r: float(r["ratio"]))
        text += (
            f"\n\nArrays that start one element off take {mean(off):.3f} times as long, at most "
            f"{most['ratio']:.3f} ({most['dtype']}, {size_text(most['nbytes'])})."
        )
    return text


def _calls(rows: Sequence[Row], *, by_name: bool) -> list[Row]:
    """The rows of calls of our own: of `auto`, `fast` and `cpu`, or of the strategies by name."""
    return [
        row
        for row in rows
        if row["measure"] == "call"
        and _peers.is_ours(row["strategy"])
        and (row["strategy"] not in ("auto", "fast", "cpu")) == by_name
    ]


MEANING_OF_WAYS = (
    "`strided` adds up every second element, `dtype=` names the dtype of the default result, "
    "`cast` another one; all three with `timing=False`."
)


def call_lines(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table of calls; a column for each way."""
    found = _calls(rows, by_name=False)
    names = list(dict.fromkeys(row["strategy"] for row in found))
    compared = {
        (name, row["producer"], row["dtype"], row["n"], way_of(row)): row["best_us"]
        for name in names
        for library in dict.fromkeys(row["producer"] for row in found)
        for row in ratios(rows, "call", name, [library])
        if row["producer"] == library
    }
    ways = [way for way in WAYS if any(way_of(row) == way for row in found)]
    lines: dict[tuple[str, str, int, str], dict[str, str]] = {}
    for row in found:
        point = (row["producer"], row["dtype"], row["n"])
        own = compared.get((row["strategy"], *point, way_of(row)))
        cell = f"{row['median_us']:.1f}" + (f" ({own:.1f})" if own else "")
        lines.setdefault((*point, row["strategy"]), {})[way_of(row)] = cell
    body = [
        [producer, dtype, str(n), f"`{name}`", *(cells.get(way, "") for way in ways)]
        for (producer, dtype, n, name), cells in lines.items()
    ]
    return ["array of", "dtype", "n", "strategy", *(f"`{way}`" for way in ways)], body


def _call_table(rows: Sequence[Row]) -> str:
    head, body = call_lines(rows)
    if not body:
        return ""
    text = (
        "**Calls**, from an array to a Python number, in us; in brackets the library's own sum of "
        f"the same array. {MEANING_OF_WAYS}\n\n"
    )
    return text + markdown_table(head, body, left=())


def _named_table(rows: Sequence[Row]) -> str:
    """The calls of every strategy by name."""
    found = _calls(rows, by_name=True)
    if not found:
        return ""
    points = list(dict.fromkeys((row["producer"], row["n"]) for row in found))
    cells: dict[tuple[Any, ...], str] = {}
    for row in sorted(found, key=lambda row: list(WAYS).index(way_of(row))):
        at = (row["strategy"], row["producer"], row["n"])
        us = f"{row['median_us']:.1f}"
        cells[at] = f"{cells[at]}, {us}" if at in cells else us
    body = [
        [f"`{name}`", *(cells.get((name, *point), "") for point in points)]
        for name in dict.fromkeys(row["strategy"] for row in found)
    ]
    head = ["strategy", *(f"{producer}, n = {n}" for producer, n in points)]
    text = "**Calls by name**, in us: by default, then with `timing=False`.\n\n"
    return text + markdown_table(head, body)


def host_lines(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table of host arrays of the first dtype, in GB/s."""
    host = [row for row in rows if row["measure"] == "host"]
    names = list(dict.fromkeys(row["strategy"] for row in host))
    points: dict[tuple[str, int], dict[str, Row]] = {}
    for row in host:
        points.setdefault((row["dtype"], row["nbytes"]), {})[row["strategy"]] = row
    body = [
        [size_text(nbytes)]
        + [f"{found[name]['gb_s']:.3g}" if name in found else "" for name in names]
        for (dtype, nbytes), found in points.items()
        if dtype == host[0]["dtype"]
    ]
    return ["bytes", *(f"`{name}`" for name in names)], body


def _host_table(rows: Sequence[Row]) -> str:
    host = [row for row in rows if row["measure"] == "host"]
    names = list(dict.fromkeys(row["strategy"] for row in host))
    if not host:
        return ""
    ours = [name for name in names if _peers.is_ours(name)]
    others = [name for name in names if name not in (*ours, *LIMITS)]
    told = []
    for name in ours:
        found = ratios(rows, "host", name, others)
        worst = min(found, key=lambda r: float(r["ratio"]))
        where = [worst["dtype"], size_text(worst["nbytes"])]
        where += [worst["best"]] if len(others) > 1 else []
        told.append(f"`{name}` {worst['ratio']:.2f} ({', '.join(where)})")
    dtypes = list(dict.fromkeys(row["dtype"] for row in host))
    quickest = "the quickest of " * (len(others) > 1) + ", ".join(others)
    text = (
        f"**Arrays in host memory**, from NumPy array to number: {dtypes[0]}, in GB/s. "
        f"At all sizes ({', '.join(dtypes)}), our speed divided by that of {quickest} is at least: "
        f"{'; '.join(told)}."
    )
    if limits := [f"`{name}`, {LIMITS[name]}" for name in names if name in LIMITS]:
        text += " Here `fast` goes through the card, whatever is quicker; beside it: "
        text += f"{'; '.join(limits)}."
    table = markdown_table(*host_lines(rows), left=())
    return "\n\n".join(filter(None, [text, table, _disturbed(host), _price_of_exactness(rows)]))


def _disturbed(host: Sequence[Row]) -> str:
    """Medians that say more of the machine than of whose they are."""
    found = [
        f"`{r['strategy']}` of {size_text(r['nbytes'])} of {r['dtype']} "
        f"({r['nbytes'] / r['low_us'] / 1e3:.3g} GB/s)"
        for r in host
        if r["median_us"] > 3 * r["low_us"]
    ]
    if not found:
        return ""
    return (
        "Disturbed, as the median is more than three times the quickest tenth (which is in "
        f"brackets): {', '.join(found)}."
    )


def _price_of_exactness(rows: Sequence[Row]) -> str:
    """Why `auto` may take longer than a plain sum."""
    found = ratios(rows, "host", "auto", ["cpu"])
    if not found:
        return ""
    worst, last = min(found, key=lambda r: float(r["ratio"])), max(found, key=lambda r: r["nbytes"])
    return (
        "`cpu` rounds at every addition, as the others do; `auto` gives the correctly rounded sum. "
        f"That takes up to {1 / worst['ratio']:.2f} times as long as `cpu` "
        f"({size_text(worst['nbytes'])}), of {size_text(last['nbytes'])} "
        f"{1 / last['ratio']:.2f} times."
    )


def _calibrated(record: dict[str, Any]) -> str:
    """The calibration of `auto` on the machine of the record."""
    found = record.get("calibration")
    if not found:
        return ""
    both = found["both"]
    return (
        f"`auto` goes by what it measured once of large arrays: {found['cpu']['gb_s']:.3g} GB/s by "
        f"the processors, {found['cuda']['gb_s']:.3g} by the card, all copies included, and "
        f"{both['gb_s']:.3g} by both at once, the card taking {both['card_share']:.0%}."
    )
