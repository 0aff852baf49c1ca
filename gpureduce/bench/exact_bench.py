"""Measure `exact` beside other strategies, in one run, whatever the data.

    python -m gpureduce.exact_bench --record notebooks/data/exact_CARD.json
    python -m gpureduce.exact_bench --cpu --record notebooks/data/exact_cpu.json

On a GPU, kernels are compared with `fast` and with CUB's ordinary sum. If a library built from
tools/cub_reproducible.cu is named, CUB's reproducible sum is measured last, after all others. Small
arrays are compared with `fast`, and with CuPy also calls on them. Kernels are timed as
`gpureduce bench` times them. The strategies alternate in several rounds, so that clock drift
affects all of them; the medians are compared.

On the CPU, the unit is nanoseconds per element of one thread's processor time. `exact` alternates
with numpy.sum, with math.fsum of the array, and with math.fsum of a list of its numbers.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from gpureduce import _host
from gpureduce.bench.benchmark import in_turns
from gpureduce.bench.contenders import arrays as contenders
from gpureduce.bench.contenders.arrays import Contender, Input, rotation
from gpureduce.bench.exact_targets import judge, missed_on_cpu
from gpureduce.bench.provenance import HEAD, provenance
from gpureduce.bench.targets import MIB
from gpureduce.core import arrays, devices, json_files, output_files, registry
from gpureduce.core.dtypes import Array, convert, load_of, named, quietly
from gpureduce.text import markdown_table, shortfall

_BASE_BYTES = 64 * MIB  # bytes of random numbers; larger arrays repeat the numbers


def _random_bits(rng: np.random.Generator, n: int, kind: np.dtype[Any]) -> Array:
    """Random bits as finite floats, spread over all exponents."""
    words = rng.integers(0, 256, n * kind.itemsize, dtype=np.uint8).view(f"u{kind.itemsize}")
    fraction = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[kind.name]
    field = words.dtype.type(((1 << (8 * kind.itemsize - 1)) - 1) >> fraction << fraction)
    low = words.dtype.type(1 << fraction)
    return np.where(words & field == field, words & ~low, words).view(kind)


def _floats(values: Array, kind: np.dtype[Any]) -> Array:
    """Converts to `kind`, with all its significant digits filled. Nothing overflows float16."""
    return (np.minimum(values, 60000.0) if kind.name == "float16" else values).astype(kind)


DATA: dict[str, Callable[[np.random.Generator, int, np.dtype[Any]], Array]] = {
    "uniform": lambda rng, n, kind: _floats(rng.random(n), kind),
    "normal": lambda rng, n, kind: _floats(rng.standard_normal(n), kind),
    "lognormal": lambda rng, n, kind: _floats(rng.lognormal(0, 5, n), kind),
    "bits": _random_bits,
}


def make(name: str, dtype: str, nbytes: int) -> Array:
    """An array of `nbytes` with data of the kind `name`."""
    kind = named(dtype)
    base = DATA[name](arrays.random_numbers(1), min(nbytes, _BASE_BYTES) // kind.itemsize, kind)
    return arrays.repeated(base, nbytes // kind.itemsize)


class Reproducible:
    """CUB's reproducible sum, from a library built from tools/cub_reproducible.cu."""

    def __init__(self, library: Path) -> None:
        self._measure = ctypes.CDLL(str(library.resolve())).cub_reproducible
        self._measure.restype = ctypes.c_char_p

    def us(self, array: Array, device: devices.Device, repeats: int) -> float:
        """The median time of one sum, as our kernels are measured."""
        times, value = (ctypes.c_double * repeats)(), ctypes.c_double()
        error = self._measure(
            array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.size), array.itemsize,
            rotation(device, array.nbytes)[0], 2, repeats, times, ctypes.byref(value),
        )  # fmt: skip
        if error:
            raise RuntimeError(f"CUB's reproducible sum: {error.decode()}")
        return float(statistics.median(times))


def compare(
    dtype: str,
    data: str,
    nbytes: int,
    device: devices.Device,
    strategies: Sequence[str] = ("cub", "fast", "exact"),
    rounds: int = 3,
    repeats: int = 5,
) -> dict[str, Any]:
    """One row: the time of each strategy on the same array. Strategies alternate."""
    array = make(data, dtype, nbytes)
    given = Input(array, convert(array.dtype, None), None, device.id)
    made = [contenders.kernel(given, registry.find(name), None, None) for name in strategies]
    us = _medians(made, rounds, repeats)
    row: dict[str, Any] = {"dtype": dtype, "data": data, "nbytes": array.nbytes, "us": us}
    _work_out(row, device)
    return row


def _medians(made: Sequence[Contender], rounds: int, repeats: int) -> dict[str, float]:
    times = in_turns(made, rounds * repeats, rounds)
    return {c.strategy: statistics.median(found) for c, found in zip(made, times, strict=True)}


def _work_out(row: dict[str, Any], device: devices.Device) -> None:
    """Sets the fields of a row that are computed from its times."""
    us = row["us"]
    row["gb_s"] = {name: round(row["nbytes"] / t / 1e3, 1) for name, t in us.items()}
    row["exact_of"] = {name: round(us[name] / us["exact"], 4) for name in us if name != "exact"}
    if device.peak_gb_s:
        row["exact_of"]["bus"] = round(row["gb_s"]["exact"] / device.peak_gb_s, 4)


def beside_reproducible(
    row: dict[str, Any], device: devices.Device, reproducible: Reproducible, rounds: int
) -> None:
    """Adds the time of CUB's reproducible sum to a row."""
    array = make(row["data"], row["dtype"], row["nbytes"])
    found = [reproducible.us(array, device, 5) for _ in range(rounds)]
    row["us"]["cub_reproducible"] = statistics.median(found)
    _work_out(row, device)


def small_calls(sizes: Sequence[int] = (1, 1000, 10_000, 100_000, 1_000_000)) -> list[Any]:
    """The times of calls of `exact` and `fast` on small arrays. Needs CuPy to make the arrays."""
    rows = []
    for dtype in ("float32", "float64", "float16"):
        for n in sizes:
            array = make("normal", dtype, 8 * n)[:n]
            given = Input(array, convert(array.dtype, None), None, None)
            made = [contenders.call(given, name, "cupy", "timing=False") for name in _CALLED]
            us = _medians([c for c in made if c], 5, 5)
            row = {name: round(found, 2) for name, found in us.items()}
            rows.append({"dtype": dtype, "n": n, "us": row})
    return rows


_CALLED = ("fast", "exact")


def _seconds(measure: Callable[[], object], repeats: int) -> float:
    """The processor time of all repeats."""
    if repeats > 1:  # small: reload the cache, which the others used
        measure()
    start = time.thread_time()
    for _ in range(repeats):
        measure()
    return time.thread_time() - start


def _cpu_row(dtype: str, data: str, n: int, rounds: int) -> dict[str, Any]:
    array = make(data, dtype, n * named(dtype).itemsize)
    load = load_of(array.dtype)
    numbers = array.tolist()
    repeats = max(1, (1 << 18) // n)  # makes the cost of reading the clock negligible
    measures: dict[str, Callable[[], object]] = {
        "exact": lambda: _host.Exact(load, 1).add(array, load, 1, True, 1),
        "numpy": lambda: np.add.reduce(array),
        "fsum": lambda: math.fsum(array),
        "fsum_of_list": lambda: math.fsum(numbers),
    }
    ns: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            try:
                seconds = quietly(_seconds, measure, repeats)
            except OverflowError:  # math.fsum overflowed in a partial sum
                continue
            ns[name].append(seconds / n / repeats * 1e9)
    row: dict[str, Any] = {"dtype": dtype, "data": data, "n": n}
    for name, found in ns.items():
        if found:
            low, middle, high = (round(float(x), 4) for x in np.percentile(found, (10, 50, 90)))
            row[name] = {"ns": middle, "low": low, "high": high}
    for name in ("fsum", "fsum_of_list"):
        if name in row:
            row[f"of_{name}"] = round(row[name]["ns"] / row["exact"]["ns"], 1)
    return row


def cpu_rows(sizes: Sequence[int] = (1 << 16, 1 << 22), rounds: int = 15) -> list[dict[str, Any]]:
    """Nanoseconds per element of one thread, with data in its cache and in memory."""
    dtypes = ("float16", "bfloat16", "float32", "float64")
    return [_cpu_row(dtype, data, n, rounds) for dtype in dtypes for data in DATA for n in sizes]


def _print(row: dict[str, Any]) -> None:
    size = f"{row['nbytes'] / MIB:8.2f} MiB"
    times = "  ".join(f"{name} {us:9.2f} us" for name, us in row["us"].items())
    ratios = "  ".join(f"of {name} {ratio:.3f}" for name, ratio in row["exact_of"].items())
    print(f"{row['dtype']:9}{row['data']:10}{size}  {times}  {ratios}", flush=True)


def _print_cpu(row: dict[str, Any]) -> None:
    times = "  ".join(f"{k} {row[k]['ns']:8.3f}" for k in ("exact", "numpy", "fsum") if k in row)
    more = f"  {row['of_fsum']:6.1f} x fsum" if "of_fsum" in row else ""
    print(f"{row['dtype']:9}{row['data']:10}{row['n']:9}  ns per element: {times}{more}")


def _measure_device(asked: argparse.Namespace) -> dict[str, Any]:
    if asked.cub_reproducible and not asked.cub_reproducible.is_file():
        raise FileNotFoundError(f"there is no library {asked.cub_reproducible}")
    device = devices.choose_device(asked.device)
    others = ["cub", "fast", "exact"] if device.backend == "cuda" else ["fast", "exact"]
    record: dict[str, Any] = provenance("exact", device)
    record |= {"peak_gb_s": device.peak_gb_s, "small": [], "kernels": []}
    jobs = [("kernels", mib * MIB) for mib in asked.mib] + [
        ("small", kib * 1024) for kib in asked.kib
    ]
    for dtype in asked.dtypes:
        for where, nbytes in jobs:
            for data in asked.data if where == "kernels" else ["normal"]:
                row = compare(dtype, data, int(nbytes), device, others, asked.rounds)
                record[where].append(row)
                _print(row)
    if device.backend == "cuda" and importlib.util.find_spec("cupy"):
        record["calls"] = small_calls()
        for row in record["calls"]:
            print(row)
    if asked.cub_reproducible:
        # Measured last: after the reproducible sum of small arrays, CUB's ordinary sum is slower.
        reproducible = Reproducible(asked.cub_reproducible)
        for row in (*record["kernels"], *record["small"]):
            if row["dtype"] in ("float32", "float64"):  # the dtypes of CUB's reproducible sum
                beside_reproducible(row, device, reproducible, asked.rounds)
                _print(row)
    # Emulated times say nothing about a GPU.
    record["targets"] = judge(record) if device.backend == "cuda" else []
    for row in record["targets"]:
        print(row)
    return record


class _OfFsum(TypedDict, total=False):
    of_fsum: float
    of_fsum_of_list: float


class _OnCpu(_OfFsum):
    dtype: str
    data: str
    n: int
    exact: dict[str, float]


class _OnCard(TypedDict):
    dtype: str
    data: str
    nbytes: int
    gb_s: dict[str, float]


class _Reached(TypedDict, total=False):
    least: float | None
    most: float | None
    short: list[str]


class _Target(_Reached):
    what: str
    wanted: float
    met: bool | None


def load(path: Path) -> dict[str, Any]:
    """Reads a record of this module. Raises ValueError that names the file and the wrong field.

    >>> from pathlib import Path
    >>> from gpureduce import exact_bench
    >>> record = exact_bench.load(Path("notebooks/data/exact_cpu.json"))
    >>> record["cpu"][0]["dtype"]
    'float16'
    """
    record = json_files.read_record(path, "exact", **HEAD)
    with json_files.naming(path):
        if "cpu" in record:
            json_files.fields(record, load_average=float, cpu=list[_OnCpu])
            rows = record["cpu"]
            _check_cpu(rows)
        else:
            kinds = {"peak_gb_s": float | None, "kernels": list[_OnCard], "targets": list[_Target]}
            json_files.fields(record, **kinds)
            rows = record["kernels"]
            for i, row in enumerate(record["targets"]):
                if row["met"] is not None and row.get("least", row.get("most")) is None:
                    raise ValueError(f"targets[{i}] has neither least nor most")
        if not rows:
            raise ValueError("it has no rows")
    return record


def _check_cpu(rows: Sequence[dict[str, Any]]) -> None:
    """Checks that the table has a row for each combination, and compares float64 with fsum."""
    keys = ("dtype", "data", "n")
    of = [set(row[key] for row in rows) for key in keys]
    there = {tuple(row[key] for key in keys) for row in rows}
    if len(of[2]) != 2 or len(there) != math.prod(map(len, of)):
        raise ValueError("cpu must have a row for each dtype and kind of data at two sizes")
    of_fsum = set(_OfFsum.__annotations__)
    compared = set()
    for i, row in enumerate(rows):
        lacking = {"exact.ns"} if "ns" not in row["exact"] else set()
        if of_fsum & row.keys():
            lacking |= of_fsum - row.keys()
            compared |= {row["n"]} if row["dtype"] == "float64" else set()
        if lacking:
            raise ValueError(f"cpu[{i}] lacks {', '.join(sorted(lacking))}")
    if compared != of[2]:
        raise ValueError("cpu must have rows of float64 with of_fsum at both sizes")


def _cpu_markdown(record: dict[str, Any]) -> str:
    rows = record["cpu"]
    sizes, kinds = sorted({row["n"] for row in rows}), list(dict.fromkeys(r["data"] for r in rows))
    lines = []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        for n, where in zip(sizes, ("in its cache", "from memory"), strict=True):
            of = {r["data"]: r["exact"]["ns"] for r in rows if (r["dtype"], r["n"]) == (dtype, n)}
            lines.append([f"{dtype}, {where}", *(f"{of[k]:.2f}" for k in kinds)])
    doubles = [row for row in rows if row["dtype"] == "float64" and "of_fsum" in row]
    # Only the ratios to math.fsum: the targets in nanoseconds are left out.
    missed = [text for text in missed_on_cpu(rows) if " ns, not " in text]
    least = [
        min(row[name] for row in doubles if row["n"] == n)
        for name in ("of_fsum", "of_fsum_of_list")
        for n in sizes
    ]
    return (
        f"`exact` on one thread of {record['processor']} ({record['date']}, commit "
        f"{str(record['commit'])[:9]}; medians of processor time, at a load average of "
        f"{record['load_average']} on {record['processors']} processors; bits: random ones). "
        "Of float64 it is at least {:.0f} times as quick as `math.fsum` of the array in its cache, "
        "and {:.0f} times from memory; {:.0f} and {:.0f} times where fsum is given a list."
        "\n\n".format(*least)
        + markdown_table(["one thread, ns per element", *kinds], lines)
        + (f"\n\n{shortfall(missed)}" if missed else "")
    )


def how_taken(names: Sequence[str]) -> str:
    """A phrase on how a GPU's record with these strategies was measured."""
    last = ", cub_reproducible behind the others" if "cub_reproducible" in names else ""
    return f"all in one run and in turns{last}"


def _card_markdown(record: dict[str, Any]) -> str:
    most = max(row["nbytes"] for row in record["kernels"])
    rows = [row for row in record["kernels"] if row["nbytes"] == most]
    names = list(dict.fromkeys(name for row in rows for name in row["gb_s"]))
    lines = []
    for row in rows:
        cells = [f"{row['gb_s'][name]:.0f}" if name in row["gb_s"] else "" for name in names]
        lines.append([f"{row['dtype']}, {row['data']}", *cells])
    head = [f"{most // MIB} MiB, GB/s", *(f"`{name}`" for name in names)]
    return "\n\n".join(
        [
            f"`exact` on {record['card']} ({record['date']}, commit "
            f"{str(record['commit'])[:9]}), kernels, {how_taken(names)}.",
            markdown_table(head, lines),
            *_short_of(record["targets"]),
        ]
    )


def _short_of(targets: Sequence[dict[str, Any]]) -> list[str]:
    """Paragraphs on the targets that are missed, and on those without measurements."""
    missed = [
        f"{row['what']}: {row.get('least', row.get('most')):.3g}, not {row['wanted']}"
        + (f" ({'; '.join(row['short'])})" if "short" in row else "")
        for row in targets
        if row["met"] is False
    ]
    unknown = [row["what"] for row in targets if row["met"] is None]
    told = [shortfall(missed)] if missed else []
    return told + ([f"Not measured: {'; '.join(unknown)}."] if unknown else [])


def markdown(record: dict[str, Any]) -> str:
    """A record's table.

    >>> from pathlib import Path
    >>> from gpureduce import exact_bench
    >>> text = exact_bench.markdown(exact_bench.load(Path("notebooks/data/exact_cpu.json")))
    >>> text.splitlines()[2]
    '| one thread, ns per element | uniform | normal | lognormal | bits |'
    """
    return _cpu_markdown(record) if "cpu" in record else _card_markdown(record)


def main() -> int:
    """Measure and print, and write a record if one is asked for.

    >>> import contextlib, io, sys
    >>> from gpureduce import exact_bench
    >>> sys.argv, before = ["exact_bench", "--help"], sys.argv
    >>> with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
    ...     exact_bench.main()
    >>> sys.argv = before
    >>> "--record" in printed.getvalue()
    True
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    dtypes = ["float32", "float64", "float16", "bfloat16"]
    parser.add_argument("--dtypes", nargs="+", default=dtypes, choices=dtypes)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--mib", nargs="*", type=float, default=[16, 64, 256, 1024])
    parser.add_argument("--kib", nargs="*", type=float, default=[1, 16, 64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device")
    parser.add_argument("--cub-reproducible", type=Path, metavar="LIBRARY")
    parser.add_argument("--cpu", action="store_true", help="only the CPU, one thread")
    parser.add_argument("--record", metavar="FILE.json")
    output_files.add_force(parser)
    asked = parser.parse_args()
    target = output_files.checked(asked.record, "--record", "exact", (".json",), force=asked.force)
    if asked.cpu:
        load = {"load_average": round(os.getloadavg()[0], 1)}  # load by other programs
        record: dict[str, Any] = {**provenance("exact"), **load}
        record["cpu"] = cpu_rows(rounds=3 * asked.rounds)
        for row in record["cpu"]:
            _print_cpu(row)
        for text in missed_on_cpu(record["cpu"]):
            print(f"missed: {text}")
    else:
        record = _measure_device(asked)
    if target:
        json_files.write(target, record)
    return 0
