"""What `fast` and its kin are worth: measured beside the other libraries, and told as ratios.

``gpureduce bench --scoreboard --output FILE.json`` measures all parts that this machine can;
the README's tables are made of such records. Without a card only host arrays are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpureduce.bench import libraries as _peers
from gpureduce.bench.benchmark import Measurement, benchmark
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
    size_text,
)
from gpureduce.core import devices
from gpureduce.core.dtypes import is_here, named
from gpureduce.text import markdown_table, shortfall

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


_ALL = ("float32", "int8", "uint8", "float16", "bfloat16", "int32", "int64", "float64")
_LIBRARIES = ("cupy", "torch", "jax")

ON_CARD = (
    Part("kernel", ("fast",), ("cub",), _ALL, (*(4**i * KIB for i in range(1, 12)), 8 * GIB)),
    Part("kernel", ("fast",), (), ("float32", "int8", "float16", "int32", "float64"),
         (16 * KIB, 256 * KIB, MIB, 64 * MIB, GIB), offset=1),
    Part("apart", ("fast", "exact"), ("cub",), ("float32",),
         (MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB)),
    Part("call", ("fast",), _LIBRARIES, ("float32",), (4, 4 * KIB, 64 * KIB, 256 * KIB)),
    Part("call", ("fast",), ("cupy", "torch"), ("int32",), (GIB, 4 * GIB)),
    Part("host", ("auto", "cpu", "fast"), ("numpy", "cupy", "torch"), ("float32",),
         (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)),
    Part("host", ("auto", "cpu", "fast"), ("numpy", "cupy", "torch"), ("float32",),
         (GIB, 4 * GIB, 8 * GIB), repeats=6),
)  # fmt: skip

ON_HOST = (
    Part("host", ("cpu", "exact"), ("numpy",), _ALL,
         (256, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)),
    Part("host", ("cpu", "exact"), ("numpy",), ("float32",), (GIB,)),
)  # fmt: skip


def parts_for(device: str | None) -> tuple[Part, ...]:
    """What can be measured here."""
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
            part.strategies,
            [max(1, size // named(dtype).itemsize) for size in part.nbytes],
            [dtype],
            device=device,
            repeats=part.repeats,
            measure=[part.measure],
            peers=[peer for peer in part.peers if peer in here],
            offset=part.offset,
        )
    if progress:
        progress(len(jobs), len(jobs), "")


# --- the tables -----------------------------------------------------------------------------------


def markdown(record: dict[str, Any]) -> str:
    """The tables of a record, with where it was made."""
    rows = record["rows"]
    parts = [_kernel_table(rows), _call_table(rows), _host_table(rows), _calibrated(record)]
    if short := missed(record):
        parts.append(shortfall(short))
    return "\n\n".join([_made(record), *filter(None, parts)])


def _made(record: dict[str, Any]) -> str:
    place = record["card"] if record["device"] == "cuda" else record["processor"]
    said = [f"driver {record['driver']}", f"CUDA {record['toolkit']}"] if record["driver"] else []
    said += [f"{name} {version}" for name, version in record["versions"].items() if name in
             ("numpy", "cupy", "torch", "jax")]  # fmt: skip
    threads = f"{record['processors']} processors"
    return (
        f"Measured on {record['date']}: {place}, {', '.join([threads, *said])}, commit "
        f"{str(record['commit'])[:9]}; medians, all in one run and in turns."
    )


def _kernel_table(rows: Sequence[Row]) -> str:
    found = ratios(rows, "kernel", "fast", ["cub"])
    if not found:
        return ""
    cells = {(r["dtype"], r["nbytes"]): r for r in found}
    dtypes = list(dict.fromkeys(r["dtype"] for r in found))
    body = []
    for size in sorted({r["nbytes"] for r in found}):
        first = cells.get((dtypes[0], size))
        if first is None:
            continue
        of_peak = first["percent_of_peak"]
        told = [f"{first['median_us']:.2f}", "" if of_peak is None else f"{of_peak:.0f}%"]
        shown = [cells.get((dtype, size)) for dtype in dtypes]
        body.append([size_text(size), *told, *(f"{r['ratio']:.2f}" if r else "" for r in shown)])
    worst = min(found, key=lambda r: float(r["ratio"]))
    head = ["bytes", f"us, {dtypes[0]}", "of peak", *(f"`{d}`" for d in dtypes)]
    text = (
        "**Kernels**, on the card's own arrays, the L2 cache cold: CUB's time divided by that of "
        f"`fast` (geometric mean {mean(found):.2f}, least {worst['ratio']:.2f}).\n\n"
    ) + markdown_table(head, body, left=())
    off = misaligned(rows)
    if off:
        most = max(off, key=lambda r: float(r["ratio"]))
        text += (
            f"\n\nArrays that start one element off take {mean(off):.3f} times as long, at most "
            f"{most['ratio']:.3f} ({most['dtype']}, {size_text(most['nbytes'])})."
        )
    return "\n\n".join(filter(None, [text, _apart(rows)]))


def _apart(rows: Sequence[Row]) -> str:
    """What is left of the ratios where sums do not follow one another."""
    told = [
        f"`{name}` " + ", ".join(f"{r['ratio']:.2f} ({size_text(r['nbytes'])})" for r in found)
        for name in ("fast", "exact")
        if (found := ratios(rows, "apart", name, ["cub"]))
    ]
    if not told:
        return ""
    return (
        "These are back-to-back sums: each of ours starts while the one before it finishes. One "
        "sum at a time, with other work between two sums whose time is subtracted, float32: "
        f"{'; '.join(told)}."
    )


def _call_table(rows: Sequence[Row]) -> str:
    libraries = dict.fromkeys(row["producer"] for row in rows if row["measure"] == "call")
    body = [
        [library, r["dtype"], str(r["n"]), f"{r['median_us']:.1f}", f"{r['best_us']:.1f}",
         f"{r['ratio']:.2f}"]
        for library in libraries
        for r in ratios(rows, "call", "fast", [library])
    ]  # fmt: skip
    if not body:
        return ""
    head = ["array of", "dtype", "n", "`fast`, us", "its own sum, us", "ratio"]
    text = "**Calls**, from an array on the card to a Python number.\n\n"
    return text + markdown_table(head, body, left=())


def _host_table(rows: Sequence[Row]) -> str:
    host = [row for row in rows if row["measure"] == "host"]
    names = list(dict.fromkeys(row["strategy"] for row in host))
    if not host:
        return ""
    points: dict[tuple[str, int], dict[str, Row]] = {}
    for row in host:
        points.setdefault((row["dtype"], row["nbytes"]), {})[row["strategy"]] = row
    body = [
        [size_text(nbytes)]
        + [f"{found[name]['gb_s']:.3g}" if name in found else "" for name in names]
        for (dtype, nbytes), found in points.items()
        if dtype == host[0]["dtype"]
    ]
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
    text = (
        f"**Arrays in host memory**, from NumPy array to number: {dtypes[0]}, in GB/s. How many "
        f"times as fast as {' or '.join(others)} each of our ways is at its worst size "
        f"({', '.join(dtypes)}): {'; '.join(told)}."
    )
    if limits := [f"`{name}`, {LIMITS[name]}" for name in names if name in LIMITS]:
        text += " Here `fast` goes through the card, whatever is quicker; beside it: "
        text += f"{'; '.join(limits)}."
    head = ["bytes", *(f"`{name}`" for name in names)]
    table = markdown_table(head, body, left=())
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
    """What `auto` knew of the machine."""
    found = record.get("calibration")
    if not found:
        return ""
    both = found["both"]
    return (
        f"`auto` goes by what it measured once of large arrays: {found['cpu']['gb_s']:.3g} GB/s by "
        f"the processors, {found['cuda']['gb_s']:.3g} by the card, all copies included, and "
        f"{both['gb_s']:.3g} by both at once, the card taking {both['card_share']:.0%}."
    )
