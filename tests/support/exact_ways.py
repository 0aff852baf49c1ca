"""Ways to add up the same elements: their order, pieces, places, devices and launches.

Strategy "exact" and `Accumulator` must give one bit pattern for all of them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gpureduce
from exact_cases import FORMATS, GENERATORS, Array, Format, bits_of, expected_bits
from gpureduce.core import dtypes
from producers import ByDLPack

ORDERS: dict[str, Callable[[np.random.Generator, Array], Array]] = {
    "as made": lambda rng, array: array,
    "shuffled": lambda rng, array: rng.permutation(array),
    "rising": lambda rng, array: array[np.argsort(array.astype(float))],
    "falling": lambda rng, array: array[np.argsort(-array.astype(float))],
    "by size": lambda rng, array: array[np.argsort(np.abs(array.astype(float)))],
}
BLOCKS = (32, 64, 96, 160, 256, 320, 384)
GRIDS = (1, 2, 3, 5, 8)
GRIDS_OF_A_CARD = (*GRIDS, 132, 1000)
SCHEDULES = (("forward", 0), ("reverse", 0), ("random", 1), ("random", 2), ("lockstep", 0))
STEPS = (1, 2, 3, -1, -2)

Way = dict[str, Any]


def elements(fmt: Format, rng: np.random.Generator, each: int = 120) -> Array:
    """Finite elements on which the order shows: of many exponents, and mostly cancelling."""
    kinds = ("uniform", "normal", "lognormal", "random_bits", "cancelling", "subnormals", "narrow")
    made = [g(fmt, rng, 1, each)[0] for g in GENERATORS if g.__name__ in kinds]
    return rng.permutation(np.concatenate([*made, -made[3], -made[6]]))


def draw(rng: np.random.Generator, devices: list[str]) -> Way:
    """One way, at random. An "array" lies on the device; others are copied there, or are the CPU's.

    A launch of one's own choosing adds up the whole array; elsewhere pieces are merged.
    """
    pick = rng.integers
    device = devices[pick(len(devices))]
    way = {
        "device": device,
        "order": list(ORDERS)[pick(len(ORDERS))],
        "offset": int(pick(0, 9)),
        "step": STEPS[pick(len(STEPS))],
    }
    if device in ("emulator", "cuda"):
        grids = GRIDS_OF_A_CARD if device == "cuda" else GRIDS
        way |= {"block": BLOCKS[pick(len(BLOCKS))], "grid": grids[pick(len(grids))]}
    else:
        way |= {"pieces": int(pick(1, 6))}
    if device.startswith("emulator"):
        way["schedule"] = SCHEDULES[pick(len(SCHEDULES))]
    if device == "cpu":
        way["threads"] = int(pick(1, 6))
    return way


def placed(array: Array, offset: int, step: int) -> Array:
    """The same elements elsewhere: so many elements off a boundary, and with gaps."""
    room = np.full((array.size + 1) * abs(step) + offset, np.nan).astype(array.dtype)
    view = room[offset:][:: abs(step)][: array.size]
    if step < 0:
        view = view[::-1]
    view[:] = array
    return view


def on_card(array: Array) -> Any:
    import cupy

    if array.dtype.name != "bfloat16":
        return cupy.asarray(array)
    import torch

    return torch.from_numpy(array.view(np.int16).copy()).cuda().view(torch.bfloat16)


def _add(total: gpureduce.Accumulator, way: Way, piece: Array) -> None:
    if way["device"] == "emulator array":
        total.add(ByDLPack(piece), device="emulator")
    elif way["device"] == "cuda array":
        total.add(on_card(piece))
    elif piece.flags.c_contiguous:
        total._total.add(piece, dtypes.load_of(piece.dtype), 1, True, way["threads"])
    else:
        total.add(piece)


def _summed(way: Way, array: Array) -> int:
    if "block" in way:
        launch = {"device": way["device"], "block": way["block"], "grid": way["grid"]}
        view = placed(array, way["offset"], way["step"])
        return bits_of(gpureduce.sum(view, "exact", **launch).value)
    cuts = np.random.default_rng(way["offset"]).integers(0, array.size, way["pieces"] - 1)
    parts = []
    for piece in np.split(array, np.sort(cuts)):
        parts.append(gpureduce.Accumulator(array.dtype))
        _add(parts[-1], way, placed(piece, way["offset"], way["step"]))
    total = gpureduce.Accumulator(array.dtype)
    for part in reversed(parts):
        total += part
    return bits_of(total.value())


def run(way: Way, array: Array) -> int:
    """The bits that one way gives."""
    rng = np.random.default_rng(way["offset"])
    ordered = ORDERS[way["order"]](rng, array)
    if "schedule" not in way:
        return _summed(way, ordered)
    with gpureduce.emulator.schedule(*way["schedule"]):
        return _summed(way, ordered)


def distinct(seed: int, devices: list[str]) -> Iterator[Way]:
    """Ways that differ, without end."""
    rng, seen = np.random.default_rng([seed, 9]), set()
    while True:
        way = draw(rng, devices)
        key = tuple(way.items())
        if key not in seen:
            seen.add(key)
            yield way


def check(name: str, count: int, seed: int, devices: list[str], each: int = 120) -> dict[str, Any]:
    """How many ways of one dtype were tried, and how many bit patterns they gave."""
    array = elements(FORMATS[name], np.random.default_rng([seed, 8]), each)
    want, found = expected_bits(array), {}
    start = time.perf_counter()
    for way in itertools.islice(distinct(seed, devices), count):
        found.setdefault(run(way, array), []).append(way)
    wrong = [way for bits, ways in found.items() if bits != want for way in ways]
    return {
        "dtype": name,
        "elements": array.size,
        "ways": count,
        "bit_patterns": len(found),
        "wrong": len(wrong),
        "examples": wrong[:3],
        "seconds": round(time.perf_counter() - start, 1),
    }
