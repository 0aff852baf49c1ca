"""Measure `exact` beside other strategies, in one run, whatever the data.

    python -m gpureduce.exact_bench --record notebooks/data/exact_CARD.json
    python -m gpureduce.exact_bench --cpu --record notebooks/data/exact_cpu.json

On a GPU, kernels are compared with `fast` and with CUB's ordinary sum. If a library built from
tools/cub_reproducible.cu is named, CUB's reproducible sum is measured last, after all others. Small
arrays are compared with `fast`, and with CuPy also calls on them. Kernels are timed as
`gpureduce bench` times them. The strategies alternate in several rounds, so that clock drift
affects all of them; the medians are compared.

On the CPU, times are the processor time of one thread. `exact` alternates with numpy.sum, with
math.fsum of the array, and with math.fsum of a list of its numbers.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.bench import command, record
from gpureduce.bench.benchmark import Maker, Part
from gpureduce.bench.clocks import Run, of_thread
from gpureduce.bench.contenders.arrays import rotation
from gpureduce.bench.ratios import MIB, by_case
from gpureduce.bench.render import Pivot, of
from gpureduce.bench.runner import Contender, Group, Row, Turns
from gpureduce.core import arrays, devices, output_files
from gpureduce.core.dtypes import Array, load_of, named
from gpureduce.text import markdown_table

_BASE_BYTES = 64 * MIB  # bytes of random numbers; larger arrays repeat the numbers
_IN_A_ROUND = 5  # runs of kernels
_CALLED = (1, 1000, 10_000, 100_000, 1_000_000)
_THREAD_SIZES = (1 << 16, 1 << 22)  # with data in the thread's cache, and in memory
_DTYPES = ("float32", "float64", "float16", "bfloat16")


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


def make(dtype: str, n: int, data: str) -> Array:
    """An array with data of this kind."""
    kind = named(dtype)
    base = DATA[data](arrays.random_numbers(1), min(n, _BASE_BYTES // kind.itemsize), kind)
    return arrays.repeated(base, n)


# --- what is measured -----------------------------------------------------------------------------


def reproducible(library: Path, device: devices.Device, array: Array) -> Contender:
    """CUB's reproducible sum, from a library built from tools/cub_reproducible.cu."""
    measure = ctypes.CDLL(str(library.resolve())).cub_reproducible
    measure.restype = ctypes.c_char_p
    value = ctypes.c_double()

    def timed(repeats: int) -> list[float]:
        times = (ctypes.c_double * repeats)()
        error = measure(
            array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.size), array.itemsize,
            rotation(device, array.nbytes)[0], 2, repeats, times, ctypes.byref(value),
        )  # fmt: skip
        if error:
            raise RuntimeError(f"CUB's reproducible sum: {error.decode()}")
        return list(times)

    fields = {"source": "cuda_event", "peak_gb_s": device.peak_gb_s}
    return Contender("cub_reproducible", timed, lambda: value.value, fields)


def on_device(device: devices.Device, options: argparse.Namespace) -> Iterator[Group]:
    """Kernels of large and of small arrays, calls, and CUB's reproducible sums last."""
    names = ("cub", "fast", "exact") if device.backend == "cuda" else ("fast", "exact")
    maker, often = Maker(device.id, make=make), options.rounds * _IN_A_ROUND
    sizes = [(int(mib * MIB), options.data) for mib in options.mib]
    sizes += [(int(kib * 1024), ["normal"]) for kib in options.kib]
    kernels = [
        Part("kernel", names, (), (dtype,), (nbytes,), repeats=often, data=data,
             rounds=options.rounds)
        for dtype in options.dtypes for nbytes, kinds in sizes for data in kinds
    ]  # fmt: skip
    yield from maker.groups(kernels)
    if device.backend == "cuda" and importlib.util.find_spec("cupy"):
        for dtype in _DTYPES[:3]:
            nbytes = [n * named(dtype).itemsize for n in _CALLED]
            yield from maker.groups([
                Part("call", ("fast", "exact"), ("cupy",), (dtype,), nbytes, repeats=25,
                     data="normal", rounds=5)
            ])  # fmt: skip
    if options.cub_reproducible:  # last: after it, CUB's ordinary sum of small arrays is slower
        for group in maker.groups(part for part in kernels if part.dtypes[0] in _DTYPES[:2]):
            case = group.case
            array = functools.partial(make, case["dtype"], case["n"], case["data"])
            yield Group(
                f"reproducible {group.name}", case,
                lambda array=array: [reproducible(options.cub_reproducible, device, array())],  # type: ignore[misc]
                group.turns,
            )  # fmt: skip


def _on_thread(case: Row) -> Iterator[Contender]:
    n, array = case["n"], make(case["dtype"], case["n"], case["data"])
    load, numbers = load_of(array.dtype), array.tolist()
    often = max(1, (1 << 18) // n)  # makes the cost of reading the clock negligible
    runs: dict[str, Run] = {
        "exact": lambda: _host.Exact(load, 1).add(array, load, 1, True, 1),
        "numpy": lambda: np.add.reduce(array),
        "fsum": lambda: math.fsum(array),
        "fsum_of_list": lambda: math.fsum(numbers),
    }
    for name, run in runs.items():  # math.fsum may overflow in a partial sum
        fields = {"source": "thread_time"}
        yield Contender(name, of_thread(run, often), run, fields, may_fail="fsum" in name)


def on_thread(rounds: int, sizes: Sequence[int] = _THREAD_SIZES) -> Iterator[Group]:
    """One thread of the processor."""
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for data in DATA:
            for n in sizes:
                case = {"measure": "thread", "dtype": dtype, "data": data, "n": n,
                        "nbytes": n * named(dtype).itemsize}  # fmt: skip
                yield Group(
                    f"thread {dtype} {data} {n}", case, functools.partial(_on_thread, case),
                    Turns(rounds, rounds), lambda *_: None,
                )  # fmt: skip


# --- the record as text ---------------------------------------------------------------------------


def load(path: Path) -> Row:
    """Reads a record of this module. Raises ValueError that names the file and the wrong field.

    >>> from pathlib import Path
    >>> from gpureduce import exact_bench
    >>> record = exact_bench.load(Path("notebooks/data/exact_cpu.json"))
    >>> record["rows"][0]["dtype"]
    'float16'
    """
    return record.load(path, "exact")


def fsum_over_exact(rows: Sequence[Row], strategy: str) -> dict[tuple[str, str, int], float]:
    """How many times as long fsum takes as `exact` on one thread, by dtype, data and n."""
    return {case: by[strategy]["median_us"] / by["exact"]["median_us"]
            for case, by in by_case(rows, ("dtype", "data", "n")).items()
            if {strategy, "exact"} <= by.keys()}  # fmt: skip


def _thread_markdown(made: Row) -> str:
    rows = [row for row in made["rows"] if row["measure"] == "thread"]
    sizes = sorted({row["n"] for row in rows})
    where = dict.fromkeys(sizes, "from memory") | {sizes[0]: "in its cache"}
    pivot = Pivot(
        {"one thread, ns per element": lambda row: f"{row['dtype']}, {where[row['n']]}"},
        lambda row: f"{1e3 * row['median_us'] / row['n']:.2f}",
        of("data"),
        key=["n"],
    )
    lines = pivot.lines(row for row in rows if row["strategy"] == "exact")
    said = (
        f"`exact` on one thread of {made['processor']} ({made['date']}, commit "
        f"{str(made['commit'])[:9]}). Times are medians of CPU time, at a load average of "
        f"{made.get('load_average')} on {made['processors']} processors. `bits` are random bits."
    )
    doubles = [row for row in rows if row["dtype"] == "float64"]
    least = [
        min((ratio for (_, _, n), ratio in fsum_over_exact(doubles, name).items() if n == size),
            default=math.nan)
        for name in ("fsum", "fsum_of_list") for size in (sizes[0], sizes[-1])
    ]  # fmt: skip
    said += (
        " For float64, `exact` is at least {:.0f} times as fast as `math.fsum` if the array is in "
        "the cache, and {:.0f} times from memory. If `math.fsum` gets a list, these are {:.0f} and "
        "{:.0f} times."
    ).format(*least)
    return f"{said}\n\n{markdown_table(*lines)}"


def how_taken(names: Sequence[str]) -> str:
    """A phrase on how a GPU's record with these strategies was measured."""
    last = "; CUB's reproducible sum was measured last" if "cub_reproducible" in names else ""
    return f"all in one run, alternating{last}"


def largest(made: Row) -> list[Row]:
    """The rows of kernels on the largest arrays."""
    rows = [row for row in made["rows"] if row["measure"] == "kernel"]
    most = max((row["nbytes"] for row in rows), default=0)
    return [row for row in rows if row["nbytes"] == most]


def _card_markdown(made: Row) -> str:
    rows = largest(made)
    if not rows:
        raise ValueError("it has no rows of kernels")
    head = {f"{rows[0]['nbytes'] // MIB} MiB, GB/s": lambda row: f"{row['dtype']}, {row['data']}"}
    lines = Pivot(head, of("gb_s", ".0f"), of("strategy", "`{}`".format)).lines(rows)
    return (
        f"`exact` on {made['card']} ({made['date']}, commit {str(made['commit'])[:9]}), kernels, "
        f"{how_taken([row['strategy'] for row in rows])}.\n\n{markdown_table(*lines)}"
    )


def markdown(record: Row) -> str:
    """A record's table.

    >>> from pathlib import Path
    >>> from gpureduce import exact_bench
    >>> text = exact_bench.markdown(exact_bench.load(Path("notebooks/data/exact_cpu.json")))
    >>> text.splitlines()[2]
    '| one thread, ns per element | uniform | normal | lognormal | bits |'
    """
    on_thread = any(row["measure"] == "thread" for row in record["rows"])
    return _thread_markdown(record) if on_thread else _card_markdown(record)


def suite(options: argparse.Namespace) -> command.Suite:
    """The suite of the options."""
    if options.cub_reproducible and not options.cub_reproducible.is_file():
        raise FileNotFoundError(f"there is no library {options.cub_reproducible}")
    if options.cpu:
        more = {"load_average": round(os.getloadavg()[0], 1)}  # load by other programs
        groups = list(on_thread(3 * options.rounds))
        return command.Suite("exact", None, groups, markdown, more=more)
    device = devices.choose_device(options.device)
    return command.Suite("exact", device, list(on_device(device, options)), markdown)


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
    parser.add_argument("--dtypes", nargs="+", default=list(_DTYPES), choices=_DTYPES)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--mib", nargs="*", type=float, default=[16, 64, 256, 1024])
    parser.add_argument("--kib", nargs="*", type=float, default=[1, 16, 64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device")
    parser.add_argument("--cub-reproducible", type=Path, metavar="LIBRARY")
    parser.add_argument("--cpu", action="store_true", help="only the CPU, one thread")
    parser.add_argument("--record", metavar="FILE.json", dest="output")
    parser.add_argument("--force", **output_files.FORCE)
    parser.set_defaults(inputs=(), json=False)
    command.run("exact", suite, parser.parse_args(), option="--record")
    return 0
