"""Times of `fast` and other strategies beside those of other libraries, and their ratios.

``gpureduce bench --scoreboard --output FILE.json`` measures all parts that this machine can;
the README's tables are made of such records. Without a card only host arrays are measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gpureduce.bench import libraries
from gpureduce.bench.benchmark import EVERY, MEASURES, Maker, Part
from gpureduce.bench.command import Suite
from gpureduce.bench.contenders.arrays import LIMITS, WAYS
from gpureduce.bench.libraries import LOAD_ONLY
from gpureduce.bench.ratios import GIB, KIB, MIB, by_case, least, mean, misaligned, ratios
from gpureduce.bench.render import BYTES, US, Cell, Lines, Pivot, of
from gpureduce.bench.runner import Row
from gpureduce.bench.suites.strategies import suite_of
from gpureduce.core import devices
from gpureduce.text import markdown_table

_ALL = ("float32", "int8", "uint8", "float16", "bfloat16", "int32", "int64", "float64")
_LIBRARIES = ("cupy", "torch", "jax")
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


def suite(arguments: argparse.Namespace) -> Suite:
    """The suite of the command's options: all parts, or those of the measures that are named."""
    device = arguments.device
    parts = ON_CARD if devices.choose_device(device).backend == "cuda" else ON_HOST
    chosen = [part for part in parts if part.measure in (arguments.measure or MEASURES)]
    return suite_of(Maker(device).groups(chosen), markdown, device, ["all"])


# --- the tables -----------------------------------------------------------------------------------


def markdown(made: Row) -> str:
    """The tables of a record, with where it was made."""
    rows = made["rows"]
    parts = [place_and_date(made), _apart_tables(rows), _kernel_table(rows), _call_table(rows),
             _named_table(rows), _host_table(rows), _calibrated(made)]  # fmt: skip
    return "\n\n".join(filter(None, parts))


def place_and_date(made: Row) -> str:
    """Where and when a record was made."""
    place = made["card"] if made["device"] == "cuda" else made["processor"]
    said = [f"{made['processors']} processors"]
    said += [f"driver {made['driver']}", f"CUDA {made['toolkit']}"] if made["driver"] else []
    shown = ("numpy", *_LIBRARIES)
    said += [f"{name} {version}" for name, version in made["versions"].items() if name in shown]
    ended = " The run ended early." if made.get("unfinished") else ""
    return (
        f"Measured on {made['date']}: {place}, {', '.join(said)}, commit "
        f"{str(made['commit'])[:9]}. Times are medians of one run. Below 1 GiB, the strategies "
        f"alternate.{ended}"
    )


_DTYPE, _NAME = of("dtype", "`{}`".format), of("strategy", "`{}`".format)


def _by_size(found: Sequence[Row], first: dict[str, Cell]) -> str:
    """A table of ratios: a line for each size, a column for each dtype.

    `first` makes cells from the size's row of the first dtype that it has.
    """
    first = {f"us, {found[0]['dtype']}": US, **first}
    pivot = Pivot({"bytes": BYTES}, of("ratio", ".2f"), _DTYPE, first=first, key=["nbytes"])
    lines = sorted(found, key=lambda row: int(row["nbytes"]))
    return markdown_table(*pivot.lines(lines, list(dict.fromkeys(map(_DTYPE, found)))), left=())


def mean_and_least(found: Sequence[Row]) -> str:
    """The geometric mean of ratios, and the least one with its place."""
    worst = least(found)
    where = f"{worst['dtype']}, {BYTES(worst)}"
    return f"geometric mean {mean(found):.2f}, least {worst['ratio']:.2f} ({where})"


def _apart_tables(rows: Sequence[Row]) -> str:
    """The headline: one sum at a time."""
    apart = by_case((row for row in rows if row["measure"] == "apart"), ("dtype", "nbytes"))
    limits = {case: by[LOAD_ONLY]["median_us"] for case, by in apart.items() if LOAD_ONLY in by}
    parts = []
    for name in ("fast", "exact"):
        found = ratios(rows, "apart", name, ["cub"])
        for row in found:
            row["limit"] = limits.get((row["dtype"], row["nbytes"]))
            row["of_limit"] = row["limit"] and 100 * row["limit"] / row["median_us"]
        if found:
            first = {"limit, us": of("limit", ".2f"), "of limit": of("of_limit", "{:.0f}%".format)}
            parts.append(f"CUB's time divided by the time of `{name}`: {mean_and_least(found)}.")
            parts.append(_by_size(found, first if limits else {}))
    if not parts:
        return ""
    parts[0] = (
        "**One sum at a time**, of arrays on the GPU. The L2 cache is cold. Other work runs before "
        f"and after each sum, and its time is subtracted. {parts[0]}"
    )
    if limits:
        parts.append(
            "The limit is that of ordinary loads: a kernel loads the array and stores one word. "
            "`fast` may be faster, by bulk copies. " + _limit_beside(rows)
        )
    if ratios(rows, "apart", "exact", ["cub"]):
        parts.append("For integers, `exact` runs `fast`.")
    return "\n\n".join(parts)


def _limit_beside(rows: Sequence[Row]) -> str:
    """How much quicker than CUB the limit is on average, and `fast` for the same arrays."""
    of_limit = ratios(rows, "apart", LOAD_ONLY, ["cub"])
    places = by_case(of_limit, ("dtype", "nbytes"))
    beside = [row for row in ratios(rows, "apart", "fast", ["cub"])
              if (row["dtype"], row["nbytes"]) in places]  # fmt: skip
    if not beside:
        return ""
    return (
        f"CUB's time divided by the limit's: geometric mean {mean(of_limit):.2f}. CUB's time "
        f"divided by the time of `fast`, for the same arrays: {mean(beside):.2f}."
    )


def _kernel_table(rows: Sequence[Row]) -> str:
    found = ratios(rows, "kernel", "fast", ["cub"])
    if not found:
        return ""
    text = (
        "**Back to back**: many sums in a row. Each sum starts while the one before it finishes. "
        f"CUB's time divided by the time of `fast`: {mean_and_least(found)}.\n\n"
    ) + _by_size(found, {"of peak": of("percent_of_peak", "{:.0f}%".format)})
    if off := misaligned(rows):
        most = max(off, key=lambda r: float(r["ratio"]))
        text += (
            f"\n\nIf the array's start is shifted by one element, a sum takes "
            f"{mean(off):.3f} times as long, at most {most['ratio']:.3f} "
            f"({most['dtype']}, {BYTES(most)})."
        )
    return text


def _calls(rows: Sequence[Row], *, by_name: bool) -> list[Row]:
    """The rows of calls of our own: of `auto`, `fast` and `cpu`, or of the strategies by name."""
    return [
        row
        for row in rows
        if row["measure"] == "call"
        and libraries.is_ours(row["strategy"])
        and (row["strategy"] not in ("auto", "fast", "cpu")) == by_name
    ]


MEANING_OF_WAYS = (
    "`strided` adds up every second element. `dtype=` passes the dtype of the default result, and "
    "`cast` another dtype. These three calls have `timing=False`."
)


def call_lines(rows: Sequence[Row]) -> Lines:
    """Head and lines of the table of calls; a column for each way."""

    def point(row: Row) -> tuple[object, ...]:
        return tuple(row[name] for name in ("producer", "dtype", "n", "way"))

    own = {point(row): row["median_us"] for row in rows
           if row["measure"] == "call" and row["strategy"] == row["producer"]}  # fmt: skip

    def cell(row: Row) -> str:
        theirs = own.get(point(row))
        return f"{row['median_us']:.1f}" + (f" ({theirs:.1f})" if theirs else "")

    found = _calls(rows, by_name=False)
    here = {row["way"] for row in found}
    head = {"array of": of("producer"), "dtype": of("dtype"), "n": of("n"), "strategy": _NAME}
    ways = [f"`{way}`" for way in WAYS if way in here]
    return Pivot(head, cell, of("way", "`{}`".format)).lines(found, ways)


def _call_table(rows: Sequence[Row]) -> str:
    head, body = call_lines(rows)
    if not body:
        return ""
    text = (
        "**Calls**, from an array to a Python number, in us. The time of the library's own sum of "
        f"the same array is in brackets. {MEANING_OF_WAYS}\n\n"
    )
    return text + markdown_table(head, body, left=())


def _named_table(rows: Sequence[Row]) -> str:
    """The calls of every strategy by name."""
    found = _calls(rows, by_name=True)
    point = ("strategy", "producer", "n")
    times = by_case(found, point, "way")

    def cell(row: Row) -> str:
        by = times[tuple(row[name] for name in point)]
        return ", ".join(f"{by[way]['median_us']:.1f}" for way in WAYS if way in by)

    pivot = Pivot({"strategy": _NAME}, cell, "{0[producer]}, n = {0[n]}".format)
    text = "**Calls by name**, in us: first the default, then with `timing=False`.\n\n"
    return text + markdown_table(*pivot.lines(found)) if found else ""


def host_lines(rows: Sequence[Row]) -> Lines:
    """Head and lines of the table of host arrays of the first dtype, in GB/s."""
    host = [row for row in rows if row["measure"] == "host"]
    pivot = Pivot({"bytes": BYTES}, of("gb_s", ".3g"), _NAME, key=["nbytes"])
    shown = [row for row in host if row["dtype"] == host[0]["dtype"]]
    return pivot.lines(shown, list(dict.fromkeys(map(_NAME, host))))


def _host_table(rows: Sequence[Row]) -> str:
    host = [row for row in rows if row["measure"] == "host"]
    names = list(dict.fromkeys(row["strategy"] for row in host))
    if not host:
        return ""
    ours = [name for name in names if libraries.is_ours(name)]
    others = [name for name in names if name not in (*ours, *LIMITS)]
    parts = []
    for name in ours:
        worst = least(ratios(rows, "host", name, others))
        where = [worst["dtype"], BYTES(worst), *[worst["best"]] * (len(others) > 1)]
        parts.append(f"`{name}` {worst['ratio']:.2f} ({', '.join(where)})")
    dtypes = list(dict.fromkeys(row["dtype"] for row in host))
    quickest = "the fastest of " * (len(others) > 1) + ", ".join(others)
    text = (
        f"**Arrays in host memory**, from NumPy array to number. The table has GB/s for "
        f"{dtypes[0]}. Our speed divided by the speed of {quickest}, least value "
        f"over all sizes ({', '.join(dtypes)}): {'; '.join(parts)}."
    )
    if limits := [f"`{name}` is {LIMITS[name]}" for name in names if name in LIMITS]:
        text += " In this table, `fast` always uses the GPU, even if the CPU is faster. "
        text += "Parts of its work: "
        text += f"{'; '.join(limits)}."
    table = markdown_table(*host_lines(rows), left=())
    return "\n\n".join(filter(None, [text, table, _disturbed(host), _price_of_exactness(rows)]))


def _disturbed(host: Sequence[Row]) -> str:
    """Medians that say more of the machine than of the contender."""
    found = [
        f"`{r['strategy']}` of {BYTES(r)} of {r['dtype']} "
        f"({r['nbytes'] / r['low_us'] / 1e3:.3g} GB/s)"
        for r in host
        if r["low_us"] and r["median_us"] > 3 * r["low_us"]
    ]
    text = "Disturbed measurements, whose median is more than three times the fastest tenth (in "
    return f"{text}brackets): {', '.join(found)}." if found else ""


def _price_of_exactness(rows: Sequence[Row]) -> str:
    """Why `auto` may take longer than a plain sum."""
    found = ratios(rows, "host", "auto", ["cpu"])
    if not found:
        return ""
    worst, last = least(found), max(found, key=lambda r: int(r["nbytes"]))
    return (
        "`auto` returns the correctly rounded sum. `cpu` and the other libraries round at every "
        f"addition. `auto` takes up to {1 / worst['ratio']:.2f} times as long as `cpu` "
        f"({BYTES(worst)}), and {1 / last['ratio']:.2f} times for {BYTES(last)}."
    )


def _calibrated(made: Row) -> str:
    """The calibration of `auto` on the machine of the record."""
    found = made.get("calibration")
    if not found:
        return ""
    both = found["both"]
    return (
        "`auto` uses a one-time calibration with large arrays. Here it measured "
        f"{found['cpu']['gb_s']:.3g} GB/s for the processors, {found['cuda']['gb_s']:.3g} for the "
        f"GPU with all copies, and {both['gb_s']:.3g} for both together, with "
        f"{both['card_share']:.0%} of the array on the GPU."
    )
