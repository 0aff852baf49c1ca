"""What users can call, and what casts and routes give: ``python tools/snapshot.py --output FILE``.

``--compare A B`` prints the differences of two such files. tests/core/test_snapshot.py compares
this checkout with tests/core/snapshot.json, which has a digest per route and strategy in place of
the casts; ``--update`` writes it.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import inspect
import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

import gpureduce as g  # noqa: E402
from gpureduce import exact_bench  # noqa: E402
from gpureduce.cli.main import _parser  # noqa: E402
from producers import OnDevice  # noqa: E402

SNAPSHOT = ROOT / "tests" / "core" / "snapshot.json"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SOURCES = ["?", "i1", "i4", "i8", "u4", "u8", "f2", BFLOAT16, "f4", "f8", "c8", "c16", ">i4",
           ">f8", "g", "S2"]  # fmt: skip
WANTED = [None, "?", "i1", "i4", "u4", "i8", "u8", "f2", BFLOAT16, "f4", "f8", "c8", "c16", ">f4",
          "g", "S2"]  # fmt: skip
STRATEGIES = ("auto", "exact", "fast", "cpu", "numpy", "warp_shfl", "exact_levels", "key_atomic")
OFFSETS = np.array([0, 3, 8])
IDS = np.array([0, 1, 1, 0, 1, 0, 0, 1])
EMULATED = {"device": "emulator"}
GPU_OFFSETS, GPU_IDS = OnDevice(OFFSETS), OnDevice(IDS)

# By name: the call of a route.
ROUTES: dict[str, Callable[..., Any]] = {
    "sum": g.sum,
    "sum, axis": lambda a, s, d: g.sum(a.reshape(2, 4), s, d, axis=1),
    "sum, ids": lambda a, s, d: g.segment_sum(a, IDS, strategy=s, dtype=d),
    "sum, offsets": lambda a, s, d: g.segment_sum(a, offsets=OFFSETS, strategy=s, dtype=d),
    "sum_parts": lambda a, s, d: g.sum_parts([a, a[::2]], s, d),
    "emulator": lambda a, s, d: g.sum(a, s, d, **EMULATED),
    "emulator, axis": lambda a, s, d: g.sum(a.reshape(2, 4), s, d, axis=1, **EMULATED),
    "emulator, ids": lambda a, s, d: g.segment_sum(a, IDS, strategy=s, dtype=d, **EMULATED),
    "emulator, offsets": lambda a, s, d: g.segment_sum(
        a, offsets=OFFSETS, strategy=s, dtype=d, **EMULATED
    ),
    "GPU": lambda a, s, d: g.sum(OnDevice(a), s, d, **EMULATED),
    "GPU, axis": lambda a, s, d: g.sum(
        OnDevice(a.reshape(2, 4)), s, d, axis=1, result="device", **EMULATED
    ),
    "GPU, ids": lambda a, s, d: g.segment_sum(
        OnDevice(a), GPU_IDS, num_segments=2, strategy=s, dtype=d, **EMULATED
    ),
    "GPU, offsets": lambda a, s, d: g.segment_sum(
        OnDevice(a), offsets=GPU_OFFSETS, strategy=s, dtype=d, **EMULATED
    ),
    "GPU, parts": lambda a, s, d: g.sum_parts([OnDevice(a), a], s, d, **EMULATED),
}


def array_of(source: Any) -> np.ndarray[Any, Any]:
    """Eight elements whose sums differ by cast: wide integers, rounded and large floats."""
    dtype = np.dtype(source)
    if dtype.kind in "iu":
        most, least = np.iinfo(dtype).max, np.iinfo(dtype).min
        wide = most // 3 | 1
        return np.array([wide, wide, 1, least // 5, 3, most // 7, 1, wide], dtype)
    if dtype.kind == "S":
        return np.array([b"1"] * 8, dtype)
    floats = np.array([1.1, 60000.0, 2.3e-3, -7.7, 59000.0, 16777217.0, 1e-30, 1.0])
    with np.errstate(over="ignore"):
        return floats.astype(dtype) * dtype.type(1 + 2j if dtype.kind == "c" else 1)


def outcome(call: Callable[..., Any], *arguments: Any) -> list[Any]:
    """An error's type and text, or dtype, bits and place of the sums, and their timing."""
    try:
        value, timing = call(*arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]
    kind = type(value).__name__
    value = value.to_numpy() if isinstance(value, g.DeviceArray) else value
    ran = [timing.strategy, timing.finish, timing.backend, timing.dtype, timing.nbytes]
    return [kind, str(value.dtype), value.shape, value.tobytes().hex(), *ran, timing.pieces]


def casts(route: str) -> Iterator[tuple[str, list[Any]]]:
    """The outcomes of a route, by strategy, dtype of the elements and dtype of the sums."""
    for strategy, source, wanted in itertools.product(STRATEGIES, SOURCES, WANTED):
        name = f"{strategy} {source} {wanted}"
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield name, outcome(ROUTES[route], array_of(source), strategy, wanted)


def digests(route: str) -> dict[str, str]:
    """A digest of the outcomes of a route for each strategy."""
    found = {strategy: hashlib.sha256() for strategy in STRATEGIES}
    for name, one in casts(route):
        found[name.partition(" ")[0]].update(json.dumps([name, one]).encode())
    return {strategy: digest.hexdigest()[:16] for strategy, digest in found.items()}


def _shown(name: str, module: Any = g) -> Any:
    """A public name: its parameters, and of a class its fields and attributes."""
    one = getattr(module, name)
    if one is g.exact:
        return {each: _shown(each, one) for each in one.__all__}
    found = {}
    if inspect.isroutine(one) or dataclasses.is_dataclass(one):
        every = inspect.signature(one).parameters.values()
        plain = [each.replace(annotation=inspect.Parameter.empty) for each in every]
        found["signature"] = str(inspect.Signature(plain))
    if isinstance(one, type):
        own = {key for each in one.__mro__ if each.__module__.startswith("gpureduce")
               for key in vars(each)}  # fmt: skip
        found["names"] = " ".join(sorted(key for key in own if not key.startswith("_")))
        if dataclasses.is_dataclass(one):
            found["fields"] = " ".join(field.name for field in dataclasses.fields(one))
    return found


def names() -> dict[str, Any]:
    """Public names, options of the command line, and bytes of accumulators."""
    options = {
        verb: {
            " ".join(one.option_strings) or one.dest: repr((one.nargs, one.choices, one.default))
            for one in parser._actions
            if one.dest != "help" and one.dest != "strategy"
        }
        for verb, parser in _parser().verbs.items()
    }
    kept = {}
    for kind in ("float16", "float32", "float64", "complex64"):
        total = g.Accumulator(kind).add(np.array([1.5, -(2.0**-20), 3e4], np.float32))
        kept[kind] = [total.to_bytes().hex(), " ".join(map(str, total.to_digits()))]
    return {"names": {name: _shown(name) for name in g.__all__}, "options": options,
            "strategies": [one.name for one in g.strategies()],
            "exact_bench": exact_bench.__all__, "accumulators": kept}  # fmt: skip


def differences(a: Any, b: Any, where: str = "") -> Iterator[str]:
    """A line per difference of two snapshots."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from differences(a.get(key), b.get(key), f"{where}/{key}")
    elif a != b:
        yield f"{where}\n  - {a}\n  + {b}"


def written(every: dict[str, Any]) -> str:
    """The snapshot as JSON, a line per entry of each part."""
    parts = []
    for name, part in every.items():
        pairs = part.items() if isinstance(part, dict) else [("", one) for one in part]
        lines = [f"{key and json.dumps(key) + ': '}{json.dumps(one)}" for key, one in pairs]
        begin, end = "{}" if isinstance(part, dict) else "[]"
        parts.append(f' "{name}": {begin}\n  ' + ",\n  ".join(lines) + f"\n {end}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    """Writes or compares snapshots. Returns 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--compare", type=Path, nargs=2)
    given = parser.parse_args()
    if given.compare:
        found = list(differences(*(json.loads(path.read_text()) for path in given.compare)))
        print("\n".join(found) or "no difference")
        return bool(found)
    os.environ["GPUREDUCE_BACKEND"] = "emulator"
    if given.output:
        every = {route: dict(casts(route)) for route in ROUTES}
        given.output.write_text(json.dumps(names() | {"casts": every}))
    if given.update:
        every = names() | {"casts": {route: digests(route) for route in ROUTES}}
        SNAPSHOT.write_text(written(every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
