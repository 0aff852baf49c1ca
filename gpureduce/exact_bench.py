"""Measure `exact` beside other strategies, in one run, whatever the data.

    python -m gpureduce.exact_bench --record notebooks/data/exact_CARD.json

Kernels are timed as `gpureduce bench` times them. The strategies take turns, several rounds each,
so that a drifting clock meets all of them; what is compared are the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce import _backends, _emulator, _exact, _gpu, _inputs, _registry
from gpureduce.record import provenance

MIB = 1 << 20
_BASE_BYTES = 64 * MIB  # random numbers made; larger arrays repeat them
_COLD_BYTES = 192 * MIB  # copies of the input, so that it does not stay in the L2 cache


def _random_bits(rng: np.random.Generator, n: int, kind: np.dtype[Any]) -> _inputs.Array:
    """Any finite floats: all exponents alike."""
    words = rng.integers(0, 256, n * kind.itemsize, dtype=np.uint8).view(f"u{kind.itemsize}")
    fraction = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[kind.name]
    field = words.dtype.type(((1 << (8 * kind.itemsize - 1)) - 1) >> fraction << fraction)
    low = words.dtype.type(1 << fraction)
    return np.where(words & field == field, words & ~low, words).view(kind)


def _floats(values: _inputs.Array, kind: np.dtype[Any]) -> _inputs.Array:
    return np.minimum(values, 60000.0).astype(kind)


DATA: dict[str, Callable[[np.random.Generator, int, np.dtype[Any]], _inputs.Array]] = {
    "uniform": lambda rng, n, kind: _floats(rng.random(n, np.float32), kind),
    "normal": lambda rng, n, kind: _floats(rng.standard_normal(n, np.float32), kind),
    "lognormal": lambda rng, n, kind: _floats(rng.lognormal(0, 5, n), kind),
    "bits": _random_bits,
}


def make(name: str, dtype: str, nbytes: int) -> _inputs.Array:
    """An array of that many bytes."""
    kind = _inputs.named(dtype)
    base = DATA[name](np.random.default_rng(1), min(nbytes, _BASE_BYTES) // kind.itemsize, kind)
    return np.resize(base, nbytes // kind.itemsize)


def device_us(
    array: _inputs.Array, strategy: str, device: _backends.Device, repeats: int,
    block: int = 0, grid: int = 0,
) -> float:  # fmt: skip
    """The median time of one sum of an array that lies on the device."""
    row = _registry.find(strategy)
    conversion = _inputs.convert(array.dtype, None)
    copies = 1 if device.backend != "cuda" else 1 + min(_COLD_BYTES // array.nbytes, 200)
    times, *_ = _backends.module_of(device).measure(
        array, conversion.load, conversion.acc, -1 if row.kind == "choice" else row.index,
        block, grid, 0, int(device.id.partition(":")[2] or 0), copies, 2, repeats, 0,
    )  # fmt: skip
    return float(np.median(np.frombuffer(times)) * 1e3)


def compare(
    dtype: str,
    data: str,
    nbytes: int,
    device: _backends.Device,
    strategies: Sequence[str] = ("cub", "fast", "exact"),
    rounds: int = 3,
    repeats: int = 5,
) -> dict[str, Any]:
    """One row: the time of each strategy on the same array, in turns."""
    array = make(data, dtype, nbytes)
    times: dict[str, list[float]] = {name: [] for name in strategies}
    for _ in range(rounds):
        for name in strategies:
            times[name].append(device_us(array, name, device, repeats))
    us = {name: statistics.median(found) for name, found in times.items()}
    row: dict[str, Any] = {"dtype": dtype, "data": data, "nbytes": array.nbytes, "us": us}
    row["gb_s"] = {name: round(array.nbytes / t / 1e3, 1) for name, t in us.items()}
    others = [name for name in strategies if name != "exact"]
    row["exact_of"] = {name: round(us[name] / us["exact"], 4) for name in others}
    return row


def call_us(array: object, strategy: str, repeats: int = 300) -> float:
    """The median time of a call, Python to Python, on an array that lies on a GPU."""
    number = _gpu.QUICK[strategy]
    module = _gpu.module_for(None)
    assert module is not None
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        _gpu.quick_sum(module, array, number, 0)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def small_calls(sizes: Sequence[int] = (1, 1000, 10_000, 100_000, 1_000_000)) -> list[Any]:
    """Calls on small arrays, `exact` beside `fast`; needs CuPy to make the arrays."""
    import importlib

    cupy = importlib.import_module("cupy")

    rows = []
    for dtype in ("float32", "float64", "float16"):
        for n in sizes:
            there = cupy.asarray(make("normal", dtype, 8 * n)[:n])
            for name in ("fast", "exact"):
                call_us(there, name, 50)
            us: dict[str, list[float]] = {"fast": [], "exact": []}
            for _ in range(5):
                for name, found in us.items():
                    found.append(call_us(there, name))
            row = {name: round(statistics.median(found), 2) for name, found in us.items()}
            rows.append({"dtype": dtype, "n": n, "us": row})
    return rows


def cpu_rows(n: int = 1 << 22, repeats: int = 9) -> list[dict[str, Any]]:
    """Nanoseconds per element of one thread, beside math.fsum."""
    import math

    rows = []
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for data in DATA:
            array = make(data, dtype, n * _inputs.named(dtype).itemsize)
            load, times = _exact.load_of(array.dtype), []
            for _ in range(repeats):
                times.append(_emulator.Exact(load, 1).add(array, load, 1, True, 1))
            ns = statistics.median(times) / n * 1e6
            row: dict[str, Any] = {"dtype": dtype, "data": data, "n": n, "ns": round(ns, 4)}
            if dtype == "float64" and data != "bits":  # of which fsum overflows
                numbers = array.tolist()
                start = time.perf_counter()
                math.fsum(numbers)
                row["fsum_ns"] = round((time.perf_counter() - start) / n * 1e9, 3)
            rows.append(row)
    return rows


def _print(row: dict[str, Any]) -> None:
    size = f"{row['nbytes'] / MIB:8.2f} MiB"
    times = "  ".join(f"{name} {us:9.2f} us" for name, us in row["us"].items())
    ratios = "  ".join(f"of {name} {ratio:.3f}" for name, ratio in row["exact_of"].items())
    print(f"{row['dtype']:9}{row['data']:10}{size}  {times}  {ratios}", flush=True)


def main() -> int:
    """Measure and print, and write a record if one is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    dtypes = ["float32", "float64", "float16", "bfloat16"]
    parser.add_argument("--dtypes", nargs="+", default=dtypes, choices=dtypes)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--mib", nargs="+", type=float, default=[16, 64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device")
    parser.add_argument("--cpu", action="store_true", help="only the CPU's rows")
    parser.add_argument("--calls", action="store_true", help="and calls on small arrays")
    parser.add_argument("--record", type=Path)
    asked = parser.parse_args()
    record: dict[str, Any] = provenance("exact")
    if asked.cpu:
        record["cpu"] = cpu_rows()
        for row in record["cpu"]:
            print(row)
    else:
        device = _backends.choose_device(asked.device)
        others = ["cub", "fast", "exact"] if device.backend == "cuda" else ["fast", "exact"]
        record |= {"peak_gb_s": device.peak_gb_s, "kernels": []}
        for dtype in asked.dtypes:
            for mib in asked.mib:
                for data in asked.data:
                    row = compare(dtype, data, int(mib * MIB), device, others, asked.rounds)
                    record["kernels"].append(row)
                    _print(row)
        if asked.calls:
            record["calls"] = small_calls()
            for row in record["calls"]:
                print(row)
    if asked.record:
        asked.record.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
