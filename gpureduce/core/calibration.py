"""Calibration of large host arrays: whether processors, a GPU or both add them up fastest.

The fastest way depends on the machine: its cores and memory, and the link to the GPU. `auto`
measures once, at the first array of 64 MiB or more, and the result is kept in the user's cache
folder. Without a GPU nothing is measured.
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.core import devices, json_files, on_device, on_several, registry
from gpureduce.core.devices import LEAST_SHARED_BYTES
from gpureduce.core.dtypes import convert
from gpureduce.core.plan import Plan
from gpureduce.errors import CudaError
from gpureduce.version import VERSION

PIN = "GPUREDUCE_HOST_ARRAYS"
_PINS = ("cpu", "cuda", "both")

_SCHEMA = 2
_SMALL, _LARGE = LEAST_SHARED_BYTES, 4 * LEAST_SHARED_BYTES  # two points make a line
_REPEATS = 3
# `auto` uses processors and GPU together only if their time is below this fraction of the faster
# one's time, because other programs need both, too.
_WORTH_BOTH = 0.9


@dataclass(frozen=True)
class Way:
    """The speed of one way to add up int32 arrays in host memory: b bytes take latency + b / speed.

    `card_share` is the share of the array that the GPU adds up: 0, 1, or what it reached, copies
    included, while the processors added up the rest.
    """

    card_share: float
    gb_s: float
    latency_us: float

    def us(self, nbytes: int) -> float:
        """Predicted microseconds for an array of `nbytes`."""
        return self.latency_us + nbytes / self.gb_s / 1e3


@dataclass(frozen=True)
class Calibration:
    """How fast this machine adds up host arrays: on its processors, on a GPU, and on both together.

    `card`, `processors` and `version` (of gpureduce) identify the measured machine.

    >>> import gpureduce
    >>> found = gpureduce.calibration()
    >>> found is None or found.quickest(2**30) in ("cpu", "cuda", "both")
    True
    """

    cpu: Way
    cuda: Way
    both: Way
    card: str
    processors: int
    version: str

    def quickest(self, nbytes: int) -> str:
        """``"cpu"``, ``"cuda"`` or ``"both"``: the way that `auto` chooses for `nbytes`."""
        if nbytes < LEAST_SHARED_BYTES:
            return "cpu"
        cpu, cuda = self.cpu.us(nbytes), self.cuda.us(nbytes)
        if self.both.us(nbytes) < _WORTH_BOTH * min(cpu, cuda):
            return "both"
        return "cuda" if cuda < cpu else "cpu"


_measuring = threading.RLock()  # a signal handler may measure while the interrupted thread holds it


def _forget_who_measures() -> None:
    """Replaces the lock in a child of fork(): the thread that held it does not exist there."""
    global _measuring
    _measuring = threading.RLock()


os.register_at_fork(after_in_child=_forget_who_measures)
_known: dict[tuple[str, int], Calibration | None] = {}


def _card() -> devices.Device | None:
    """The GPU that `auto` would use, or None."""
    if devices.named_backend() == "emulator":
        return None
    first = devices.devices()[0]
    return first if first.backend == "cuda" else None


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _file(card: str, processors: int) -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = re.sub(r"[^A-Za-z0-9]+", "-", card).strip("-")
    return Path(folder) / "gpureduce" / f"calibration-{name}-{processors}.json"


def _way(card_share: float, array: Any, add: Callable[[Any], object]) -> Way:
    """Measures `add` for the array and for its first part, and fits a line to the two times."""
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
    if us_per_byte <= 0:  # noise: use the larger size alone
        return Way(card_share, _LARGE / large / 1e3, 0.0)
    return Way(card_share, 1 / us_per_byte / 1e3, max(0.0, small - us_per_byte * _SMALL))


def _measure(card: devices.Device) -> Calibration:
    array = np.ones(_LARGE // 4, np.int32)
    fast = Plan(registry.STRATEGIES["fast"], convert(array.dtype, None), timed=False)
    cpu = _way(0.0, array, lambda part: _host.sum_array(part, False, None))
    cuda = _way(1.0, array, lambda part: on_device.add(fast, part, card))

    both = _way(0.5, array, lambda part: on_several.add(fast, part, [None, card]))
    rates = on_several.rates([None, card])
    both = dataclasses.replace(both, card_share=rates[1] / sum(rates))
    return Calibration(cpu, cuda, both, card.name, _processors(), VERSION)


def _read(file: Path, card: str, processors: int) -> Calibration | None:
    """Reads a calibration of this machine and this version from a file.

    Returns None if there is none. Warns if the contents are not a calibration.
    """
    here = {"schema": _SCHEMA, "card": card, "processors": processors, "version": VERSION}
    try:
        said = json_files.read(file)
        with json_files.naming(file):
            json_files.checked(said, dict[str, Any], "")
            if any(json_files.field(said, name, type(one)) != one for name, one in here.items()):
                return None
            del said["schema"]
            found = json_files.made(Calibration, said, "")
            for name in _PINS:
                _check(name, getattr(found, name))
    except OSError:
        return None
    except ValueError as error:
        warnings.warn(f"the calibration is not used: {error}", RuntimeWarning, stacklevel=2)
        return None
    return found


def _check(name: str, way: Way) -> None:
    if not 0 <= way.card_share <= 1:
        raise ValueError(f"{name}.card_share must be from 0 to 1, not {way.card_share}")
    if way.gb_s <= 0:
        raise ValueError(f"{name}.gb_s must be above 0, not {way.gb_s}")
    if way.latency_us < 0:
        raise ValueError(f"{name}.latency_us must be 0 or more, not {way.latency_us}")


def _keep(file: Path, found: Calibration) -> None:
    """Writes the calibration to its file. Errors of the file system are ignored."""
    said = {"schema": _SCHEMA, **dataclasses.asdict(found)}
    if not file.is_absolute():  # "~/..." of a user without a home folder
        return
    try:
        json_files.write(file, said)
    except OSError:
        return


def known() -> Calibration | None:
    """An earlier calibration, by this process or another one, or None. Measures nothing."""
    card = _card()
    if card is None:
        return None
    key = (card.name, _processors())
    return _known.get(key) or _read(_file(*key), *key)


def _measured(*, again: bool) -> Calibration | None:
    card = _card()
    if card is None:
        return None
    with _measuring:
        found = None if again else known()
        if found is None:
            found = _measure(card)
            _known[card.name, found.processors] = found
            _keep(_file(card.name, found.processors), found)
        return found


def calibrate() -> Calibration | None:
    """Measure again how fast host arrays are added up, and keep the result; None without a GPU.

    Takes about a second, plus the first use of a device.

    >>> import gpureduce
    >>> found = gpureduce.calibrate()  # None without a GPU
    >>> found is None or found.cpu.gb_s > 0
    True
    """
    return _measured(again=True)


def calibration() -> Calibration | None:
    """How fast this machine adds up host arrays: on its processors, its GPU, and both together.

    The calibration is measured once and kept as JSON in the user's cache folder
    (``XDG_CACHE_HOME`` or ``~/.cache``); `calibrate` measures again. `auto` uses it for arrays of
    64 MiB or more. Returns None without a GPU. The environment variable GPUREDUCE_HOST_ARRAYS
    overrides the choice: ``cpu``, ``cuda``, or ``both``, which uses the measured share.

    >>> import gpureduce
    >>> found = gpureduce.calibration()  # None without a GPU
    >>> found is None or found.both.card_share > 0
    True
    """
    return _measured(again=False)


def pinned() -> str | None:
    """The value of GPUREDUCE_HOST_ARRAYS, checked; None if unset."""
    pin = os.environ.get(PIN)
    if pin and pin not in _PINS:
        raise ValueError(f"{PIN} must be cpu, cuda or both, not {pin!r}")
    return pin or None


def _known_to_auto(card: devices.Device) -> Calibration | None:
    key = (card.name, _processors())
    if key in _known:
        return _known[key]
    lock = _measuring
    if not lock.acquire(blocking=False):
        return None  # another thread measures; to wait in a signal handler could deadlock
    try:
        _known[key] = calibration()
    except (CudaError, MemoryError):
        _known[key] = None  # a GPU that cannot be measured is not used
    finally:
        lock.release()
    return _known[key]


def way_for(nbytes: int) -> tuple[str | None, bool]:
    """The way of `auto` for a host array: the GPU's name, and whether the processors help.

    Returns (None, False) for the processors alone.
    """
    nowhere = (None, False)
    if nbytes < LEAST_SHARED_BYTES:
        return nowhere
    pin = pinned()
    card = None if pin == "cpu" else _card()
    if card is None:
        return nowhere
    if pin == "cuda":
        return card.id, False
    found = _known_to_auto(card)
    if found is None:
        return nowhere
    way: Way = getattr(found, pin or found.quickest(nbytes))
    if not way.card_share:
        return nowhere
    with_processors = way.card_share < 1
    if with_processors:
        on_several.start_rates([None, card], [1 - way.card_share, way.card_share])
    return card.id, with_processors


def summary() -> dict[str, str]:
    """The lines on host arrays in the output of ``gpureduce info``."""
    pin = pinned()
    if _card() is None:
        return {"host_arrays": "cpu: there is no GPU"}
    if pin:
        return {"host_arrays": f"{pin} ({PIN})"}
    found = known()
    if found is None:
        return {"host_arrays": "cpu, cuda or both: to be measured at the first one of 64 MiB"}
    sizes = {"64 MiB": 1 << 26, "1 GiB": 1 << 30, "16 GiB": 1 << 34}
    ways = {
        "cpu": found.cpu,
        found.card: found.cuda,
        f"both, {found.both.card_share:.0%} of it on the card,": found.both,
    }
    return {
        "host_arrays": ", ".join(f"{found.quickest(n)} at {name}" for name, n in sizes.items()),
        "calibration": "; ".join(
            f"{name} {way.gb_s:.1f} GB/s + {way.latency_us:.0f} us" for name, way in ways.items()
        ),
    }
