"""``gpureduce bench --devices``: how sums scale with the number of devices.

Three measures:

``parts``
    `gpureduce.sum_parts` of as many equal parts as there are devices, one on each, for 1, 2, ... of
    them; beside it what a program does without gpureduce: a library's sum on each card and adding
    on the host, or an all-reduce of these sums by NCCL.
``call``
    The same for small parts: the time that each further device adds to a call.
``host``
    A host array by the processors, by all GPUs, and by both.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce.bench import libraries, report
from gpureduce.bench.contenders import timed_calls
from gpureduce.bench.provenance import provenance
from gpureduce.bench.targets import GIB, KIB, MIB
from gpureduce.core import arrays, device_array, devices
from gpureduce.core.dtypes import named
from gpureduce.core.summation import sum as sum_of
from gpureduce.lazy_import import load_other
from gpureduce.several.parts import sum_parts
from gpureduce.text import EMULATED, rate_text, size_text, table

_DTYPES, _STRATEGIES = ("float32", "float64"), ("fast", "exact")
_SMALL = 1024  # elements of a part whose sum takes no time
_ROUNDS = 3
_ON_CARD = (GIB, 4 * GIB, 8 * GIB, 16 * GIB, 32 * GIB)  # bytes per device
_EMULATED = (16 * KIB, 256 * KIB)
_HOST_ON_CARD, _HOST_EMULATED = (GIB, 8 * GIB, 64 * GIB), (8 * MIB,)
_LARGE_HOST = 16 * GIB  # larger host arrays are summed once in each round

Call = Callable[[], Any]


@dataclass(frozen=True)
class Scaling:
    """The time of one sum on a number of devices.

    Attributes
    ----------
    measure
        ``"parts"``, ``"call"`` or ``"host"``.
    contender
        The strategy, a library, ``"nccl"``, or for host arrays the devices.
    dtype, n, nbytes
        Of all parts together.
    devices
        The number of devices.
    repeats
        The number of runs.
    median_us, low_us, high_us
        Microseconds: the median, the fastest and the slowest run.
    linear
        The time on one device, of a part of the same size, divided by this one; 1 is ideal.
    added_us
        The microseconds that each further device added; None on one device.
    """

    measure: str
    contender: str
    dtype: str
    n: int
    nbytes: int
    devices: int
    repeats: int
    median_us: float
    low_us: float
    high_us: float
    linear: float | None = None
    added_us: float | None = None

    @property
    def gb_s(self) -> float:
        """Bytes of all parts per time, in 10^9 bytes a second."""
        return self.nbytes / self.median_us / 1e3


class _Pattern:
    """Numbers that repeat, so that cards make their own parts."""

    def __init__(self, dtype: str, nbytes: int) -> None:
        self.base = (np.arange(1, 1025) / 1024).astype(named(dtype))
        self.count = max(1, nbytes // self.base.nbytes)
        self.n, self.nbytes = self.count * self.base.size, self.count * self.base.nbytes
        self.dtype = self.base.dtype.name

    def array(self) -> np.ndarray[Any, Any]:
        """In host memory."""
        block = arrays.repeated(self.base, min(self.n, 1 << 24))
        made = np.empty(self.n, self.dtype)

        def fill(first: int) -> None:
            part = made[first : first + block.size]
            part[...] = block[: part.size]

        with ThreadPoolExecutor() as pool:  # one thread would take a minute for 64 GiB
            list(pool.map(fill, range(0, self.n, block.size)))
        return made

    def check(self, name: str, value: Any, parts: int) -> None:
        """Raises unless a sum of parts is right: figures of a wrong sum say nothing."""
        right = parts * self.count * float(self.base.sum(dtype=np.float64))
        if not abs(float(value) - right) <= 1e-3 * right:
            raise ArithmeticError(f"{name} of {parts} parts gave {value}, and {right} is right")


class _Maker:
    """Makes the parts: by PyTorch or CuPy on GPUs, in the emulator's own memory otherwise."""

    def __init__(self, found: list[devices.Device]) -> None:
        self.found = found
        self.emulated = found[0].backend == "emulator"
        self.library = "" if self.emulated else self._installed()

    @staticmethod
    def _installed() -> str:
        here = libraries.installed(("all",))
        for name in ("torch", "cupy"):
            if name in here:
                return name
        raise ValueError(
            "--devices needs PyTorch or CuPy, which put the parts on the cards: install one of them"
        )

    def parts(self, pattern: _Pattern) -> list[Any]:
        """An array on each device."""
        return [self._put(pattern, device) for device in self.found]

    def _put(self, pattern: _Pattern, device: devices.Device) -> Any:
        if self.library == "torch":
            base = load_other("torch").from_numpy(pattern.base)
            return base.to(f"cuda:{device.index}").repeat(pattern.count)
        if self.library == "cupy":
            cupy = load_other("cupy")
            with cupy.cuda.Device(device.index):
                return cupy.tile(cupy.asarray(pattern.base), pattern.count)
        array = pattern.array()
        made = device_array.empty(devices.emulator(), array.shape, pattern.dtype, device.index, 1)
        address = made.__cuda_array_interface__["data"][0]
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
        return made

    def synchronize(self) -> None:
        """Waits for the copies to the cards."""
        for device in self.found:
            if self.library == "torch":
                load_other("torch").cuda.synchronize(device.index)
            elif self.library == "cupy":
                load_other("cupy").cuda.Device(device.index).synchronize()

    def free(self) -> None:
        """Frees the memory that the library keeps."""
        if self.library:
            libraries.free((self.library,))


def _beside(library: str, parts: list[Any]) -> dict[str, Call]:
    """The sum of a program that does not use gpureduce."""
    if not library:
        return {}
    if library == "cupy":

        def by_cupy() -> float:
            sums = []
            for part in parts:
                with part.device:
                    sums.append(part.sum())
            return sum(float(one) for one in sums)

        return {"cupy": by_cupy}
    torch = load_other("torch")

    def by_torch() -> float:
        return sum(float(one.item()) for one in [part.sum() for part in parts])

    def by_nccl() -> float:
        sums = [part.sum().reshape(1) for part in parts]
        torch.cuda.nccl.all_reduce(sums)
        return float(sums[0].item())

    found: dict[str, Call] = {"torch": by_torch}
    if len(parts) > 1 and torch.cuda.nccl.is_available(parts):
        found["nccl"] = by_nccl
    return found


def _alternating(calls: dict[str, Call], repeats: int) -> dict[str, list[float]]:
    """Microseconds of each call; the calls take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            times[name] += timed_calls(call, -(-repeats // _ROUNDS))
    return times


def _counts(most: int) -> list[int]:
    """1, 2, 4, ... and all devices."""
    return sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})


def _row(
    measure: str, contender: str, pattern: _Pattern, count: int, times: list[float],
    first: dict[str, float],
) -> Scaling:  # fmt: skip
    median = statistics.median(times)
    alone = first.setdefault(contender, median)
    return Scaling(
        measure, contender, pattern.dtype, count * pattern.n, count * pattern.nbytes, count,
        len(times), median, min(times), max(times), linear=alone / median,
        added_us=(median - alone) / (count - 1) if count > 1 else None,
    )  # fmt: skip


def _of_parts(
    maker: _Maker, measure: str, pattern: _Pattern, strategies: Sequence[str],
    repeats: int,
) -> Iterator[Scaling]:  # fmt: skip
    parts = maker.parts(pattern)
    maker.synchronize()
    device = "emulator" if maker.emulated else None
    first: dict[str, float] = {}
    for count in _counts(len(parts)):
        some = parts[:count]

        def ours(name: str, some: list[Any] = some) -> Call:
            return lambda: sum_parts(some, name, device=device, timing=False).value

        calls = {name: ours(name) for name in strategies} | _beside(maker.library, some)
        for name, call in calls.items():
            pattern.check(name, call(), count)
        for name, times in _alternating(calls, repeats).items():
            first.setdefault("nccl", first.get("torch", 0.0))
            yield _row(measure, name, pattern, count, times, first)


def _of_host(
    found: list[devices.Device], nbytes: int, dtype: str, repeats: int
) -> Iterator[Scaling]:
    """A host array by the processors, by the GPUs, and by all of them."""
    pattern = _Pattern(dtype, nbytes)
    array = pattern.array()
    names = [device.id for device in found]
    ways = {"cpu": ["cpu"], "+".join(names[:1]): names[:1]}
    together = f"{len(names)} devices" if len(names) > 1 else names[0]
    ways |= {together: names, f"cpu + {together}": ["cpu", *names]}

    def call(device: list[str]) -> Call:
        return lambda: sum_of(array, device=device, timing=False).value

    calls = {name: call(device) for name, device in ways.items()}
    for name, one in calls.items():
        pattern.check(name, one(), 1)
    repeats = repeats if nbytes < _LARGE_HOST else _ROUNDS
    for name, times in _alternating(calls, repeats).items():
        count = len(ways[name])
        row = _row("host", name, pattern, 1, times, {})
        yield dataclasses.replace(row, devices=count, linear=None)


def _fits(found: list[devices.Device], nbytes: int) -> bool:
    return all(nbytes < 0.8 * device.memory_bytes for device in found)


def measure(
    names: Sequence[str] = (),
    nbytes: Sequence[int] = (),
    dtypes: Sequence[str] = _DTYPES,
    strategies: Sequence[str] = _STRATEGIES,
    repeats: int = 9,
    host_nbytes: Sequence[int] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Iterator[Scaling]:
    """Measure sums on 1, 2, ... of the named devices; by default on all GPUs.

    `nbytes` are the bytes per device, and `host_nbytes` those of host arrays.
    """
    found = devices_of(names)
    maker = _Maker(found)
    sizes = nbytes or [n for n in (_EMULATED if maker.emulated else _ON_CARD) if _fits(found, n)]
    on_host = host_nbytes
    if on_host is None:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        on_host = _HOST_EMULATED if maker.emulated else _HOST_ON_CARD
        on_host = [size for size in on_host if size <= memory // 4]
    jobs = [("call", dtype, _SMALL * named(dtype).itemsize) for dtype in dtypes]
    jobs += [("parts", dtype, size) for dtype in dtypes for size in sizes]
    jobs += [("host", dtypes[0], size) for size in on_host]
    for done, (what, dtype, size) in enumerate(jobs):
        if progress:
            progress(done, len(jobs), f"{what} {dtype} {size_text(size)}")
        if what == "host":
            yield from _of_host(found, size, dtype, repeats)
        else:
            yield from _of_parts(maker, what, _Pattern(dtype, size), strategies, repeats)
            maker.free()
    if progress:
        progress(len(jobs), len(jobs), "")


def devices_of(names: Sequence[str]) -> list[devices.Device]:
    """The devices that are measured."""
    wanted = list(names) or [f"{devices.default_backend()}:*"]
    found = [one for one in devices.several(wanted) or [] if one]
    if len(found) < len(wanted) or len({one.backend for one in found}) > 1:
        raise ValueError("--devices takes GPUs, or emulated ones, as cuda:0 cuda:1 or cuda:*")
    return found


def record(rows: list[Scaling], found: list[devices.Device]) -> dict[str, Any]:
    """The rows with their provenance."""
    said = provenance("devices", found[0])
    if found[0].backend == "cuda":
        here = libraries.installed(("all",))
        said["versions"] |= libraries.versions(tuple(n for n in here if n in ("torch", "cupy")))
    said["cards"] = [device.name for device in found]
    return said | {"rows": [dataclasses.asdict(row) | {"gb_s": row.gb_s} for row in rows]}


def as_text(made: dict[str, Any]) -> str:
    """A record as tables."""
    blocks = []
    for what, title in (
        ("parts", "Sums of equal parts, one on each device"),
        ("call", "Calls for small parts"),
        ("host", "Host arrays"),
    ):
        rows = [row for row in made["rows"] if row["measure"] == what]
        if rows:
            blocks.append(f"{title}\n\n{_table(what, rows)}")
    if made["device"] == "emulator":
        blocks.append(EMULATED)
    return "\n\n".join(blocks)


def _table(what: str, rows: list[dict[str, Any]]) -> str:
    head = ["by", "dtype", "bytes", "devices", "median us", "low", "high"]
    body = [
        [row["contender"], row["dtype"], size_text(row["nbytes"]), str(row["devices"]),
         *(f"{row[name]:.1f}" for name in ("median_us", "low_us", "high_us"))]
        for row in rows
    ]  # fmt: skip
    more: dict[str, Callable[[dict[str, Any]], str]] = {
        "parts": {"GB/s": lambda row: rate_text(row["gb_s"]),
                  "of linear": lambda row: f"{row['linear']:.3f}" if row["linear"] else ""},
        "call": {"us per further device": lambda row: _number(row["added_us"])},
        "host": {"GB/s": lambda row: f"{row['gb_s']:.1f}"},
    }[what]  # fmt: skip
    for name, cell in more.items():
        head.append(name)
        for line, row in zip(body, rows, strict=True):
            line.append(cell(row))
    return table(head, body, right=range(2, len(head)))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce bench --devices``."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # multicast is not to be had on every machine
    target = report.output_of(arguments, "devices")
    dtypes = tuple(arguments.dtypes or _DTYPES)
    nbytes = [n * named(dtypes[0]).itemsize for n in arguments.sizes or ()]
    found = devices_of(arguments.devices)
    before = report.clocks()
    measured = measure(
        arguments.devices, nbytes, dtypes, tuple(arguments.strategies or _STRATEGIES),
        arguments.repeats or 9, progress=report.progress(),
    )  # fmt: skip
    rows = report.keeping(measured, target, lambda rows: record(rows, found))
    made = record(rows, found) | {"clocks": {"before": before, "after": report.clocks()}}
    if target:
        report.write(target, made)
    print(json.dumps(made, indent=1) if arguments.json else as_text(made))
