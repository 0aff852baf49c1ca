"""Whether large host arrays are added up sooner by the processors or by a card: measured, kept.

Which of the two it is depends on the machine: its cores and memory against the link to the card.
So it is measured, once, when `auto` first meets an array that is large enough for the question, and
kept in the user's cache folder. Without a GPU nobody asks.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version as _version
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce import _backends, _emulator
from gpureduce.errors import CudaError

# Smaller arrays are the processors': they are done before a card has been asked.
LEAST_BYTES = 1 << 26

PIN = "GPUREDUCE_HOST_ARRAYS"
_PINS = ("cpu", "cuda")

_SCHEMA = 1
_SMALL, _LARGE = 1 << 22, 1 << 26  # bytes; two points make a line
_REPEATS = 3


@dataclass(frozen=True)
class Calibration:
    """How quickly this machine adds up int32 arrays in host memory, on its processors and a card.

    A sum of b bytes takes about latency + b / speed. `card`, `processors` and `version` (of
    gpureduce) say where that was measured.
    """

    cpu_gb_s: float
    cpu_latency_us: float
    card_gb_s: float
    card_latency_us: float
    card: str
    processors: int
    version: str

    @property
    def quicker_on_card_from(self) -> int | None:
        """The bytes from which on the card is quicker, all copies included; None: never."""
        saved_us_per_byte = (1 / self.cpu_gb_s - 1 / self.card_gb_s) / 1e3
        if saved_us_per_byte <= 0:
            return None
        lost_us = max(0.0, self.card_latency_us - self.cpu_latency_us)
        return max(LEAST_BYTES, math.ceil(lost_us / saved_us_per_byte))


_lock = threading.Lock()
_known: dict[tuple[str, int], Calibration | None] = {}


def _card() -> _backends.Device | None:
    """The GPU that `auto` would go to."""
    if os.environ.get("GPUREDUCE_BACKEND") == "emulator":
        return None
    first = _backends.devices()[0]
    return first if first.backend == "cuda" else None


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _file(card: str, processors: int) -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = re.sub(r"[^A-Za-z0-9]+", "-", card).strip("-")
    return Path(folder) / "gpureduce" / f"calibration-{name}-{processors}.json"


def _line(add: Callable[[Any], object]) -> tuple[float, float]:
    """GB/s and latency in us of a way to add up an array."""
    array = np.ones(_LARGE // 4, np.int32)
    times = []
    for part in (array[: _SMALL // 4], array):
        add(part)
        found = []
        for _ in range(_REPEATS):
            start = time.perf_counter()
            add(part)
            found.append(time.perf_counter() - start)
        times.append(min(found) * 1e6)
    small, large = times
    us_per_byte = (large - small) / (_LARGE - _SMALL)
    if us_per_byte <= 0:  # noise: the large one alone tells
        return _LARGE / large / 1e3, 0.0
    return 1 / us_per_byte / 1e3, max(0.0, small - us_per_byte * _SMALL)


def _measure(card: _backends.Device) -> Calibration:
    from gpureduce._sum import sum as sum_of

    cpu = _line(lambda array: _emulator.quick_sum(array, False, False))
    by_card = _line(lambda array: sum_of(array, "fast", device=card.id, timing=False))
    return Calibration(*cpu, *by_card, card.name, _processors(), _version("gpureduce"))


def _read(file: Path, card: str, processors: int) -> Calibration | None:
    """What was kept, if it is of this machine and whole."""
    try:
        said = json.loads(file.read_text())
        if said.pop("schema") != _SCHEMA:
            return None
        said.pop("quicker_on_card_from")
        found = Calibration(**said)
        numbers = [getattr(found, f.name) for f in dataclasses.fields(found)][:4]
        whole = all(type(x) is float and math.isfinite(x) and x >= 0 for x in numbers)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    made_here = (found.card, found.processors, found.version)
    if not whole or not found.cpu_gb_s or not found.card_gb_s:
        return None
    return found if made_here == (card, processors, _version("gpureduce")) else None


def _keep(file: Path, found: Calibration) -> None:
    """Write it down, if that can be; nobody ever sees half a file."""
    said = {"schema": _SCHEMA, **dataclasses.asdict(found)}
    said["quicker_on_card_from"] = found.quicker_on_card_from
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as made:
            made.write(json.dumps(said, indent=1) + "\n")
        os.replace(made.name, file)
    except OSError:
        return


def known() -> Calibration | None:
    """What was measured earlier, by this process or another one; nothing is measured now."""
    card = _card()
    if card is None:
        return None
    key = (card.name, _processors())
    return _known.get(key) or _read(_file(*key), *key)


def _measure_and_keep(card: _backends.Device) -> Calibration:
    found = _measure(card)
    _known[card.name, found.processors] = found
    _keep(_file(card.name, found.processors), found)
    return found


def calibrate() -> Calibration | None:
    """Measure anew how quickly host arrays are added up, and keep it; None without a GPU.

    It takes well under a second, the first use of a device aside.
    """
    card = _card()
    if card is None:
        return None
    with _lock:
        return _measure_and_keep(card)


def calibration() -> Calibration | None:
    """How quickly this machine adds up host arrays, on its processors and on its card.

    It is measured once and kept as JSON in the user's cache folder (``XDG_CACHE_HOME`` or
    ``~/.cache``); `calibrate` measures anew. `auto` goes by it for arrays of 64 MiB or more. None
    without a GPU. The environment's GPUREDUCE_HOST_ARRAYS, ``cpu`` or ``cuda``, overrides it.
    """
    card = _card()
    if card is None:
        return None
    with _lock:
        return known() or _measure_and_keep(card)


def pinned() -> str | None:
    """GPUREDUCE_HOST_ARRAYS, checked."""
    pin = os.environ.get(PIN)
    if pin and pin not in _PINS:
        raise ValueError(f"{PIN} must be {' or '.join(_PINS)}, not {pin!r}")
    return pin or None


def _prefers_card(card: _backends.Device, nbytes: int) -> bool:
    key = (card.name, _processors())
    if key not in _known:
        try:
            _known[key] = calibration()
        except (CudaError, MemoryError):
            _known[key] = None  # a card that cannot be measured is left alone
    found = _known[key]
    from_bytes = found.quicker_on_card_from if found else None
    return from_bytes is not None and nbytes >= from_bytes


def card_for(nbytes: int) -> str | None:
    """The card that `auto` sends a host array to, as `device=` names it; None: the processors."""
    if nbytes < LEAST_BYTES:
        return None
    pin = pinned()
    if pin == "cpu":
        return None
    card = _card()
    if card is None:
        return None
    return card.id if pin or _prefers_card(card, nbytes) else None


def told() -> dict[str, str]:
    """What ``gpureduce info`` says of it."""
    if pin := pinned():
        return {"host_arrays": f"{pin} ({PIN})"}
    if _card() is None:
        return {"host_arrays": "cpu: there is no GPU"}
    found = known()
    if found is None:
        return {"host_arrays": "cpu or cuda: to be measured at the first one of 64 MiB"}
    edge = found.quicker_on_card_from
    return {
        "host_arrays": "cpu" if edge is None else f"cuda from {edge >> 20} MiB",
        "calibration": f"cpu {found.cpu_gb_s:.1f} GB/s + {found.cpu_latency_us:.0f} us, "
        f"{found.card} {found.card_gb_s:.1f} GB/s + {found.card_latency_us:.0f} us",
    }
