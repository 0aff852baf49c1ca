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
import functools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpureduce.bench import libraries, render
from gpureduce.bench.clocks import Run, of_calls
from gpureduce.bench.command import Suite
from gpureduce.bench.ratios import GIB, KIB, MIB
from gpureduce.bench.render import BYTES, GB_S, Cell, as_table, listing, of
from gpureduce.bench.runner import ROUNDS, Contender, Group, Latest, Row, Turns
from gpureduce.core import arrays, device_array, devices
from gpureduce.core.dtypes import named
from gpureduce.core.summation import sum as sum_of
from gpureduce.several.parts import sum_parts
from gpureduce.text import size_text

_DTYPES, _STRATEGIES = ("float32", "float64"), ("fast", "exact")
_SMALL = 1024  # elements of a part whose sum takes no time
_ON_CARD = (GIB, 4 * GIB, 8 * GIB, 16 * GIB, 32 * GIB)  # bytes per device
_EMULATED = (16 * KIB, 256 * KIB)
_HOST_ON_CARD, _HOST_EMULATED = (GIB, 8 * GIB, 64 * GIB), (8 * MIB,)
_LARGE_HOST = 16 * GIB  # larger host arrays are summed once in each round
_REPEATS = 9


def counts(most: int) -> list[int]:
    """1, 2, 4, ... and all devices."""
    return sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})


# --- the contenders ------------------------------------------------------------------------------


class Pattern:
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
        """Raises unless a sum of parts is right: the time of a wrong sum says nothing."""
        right = parts * self.count * float(self.base.sum(dtype=np.float64))
        if not abs(float(value) - right) <= 1e-3 * right:
            raise ArithmeticError(f"{name} of {parts} parts gave {value}, and {right} is right")


def on_devices(pattern: Pattern, found: Sequence[devices.Device], library: str) -> list[Any]:
    """An array on each device: of PyTorch, of CuPy, or in the emulator's own memory without one."""
    made = [_on_device(pattern, device, library) for device in found]
    for device in found:  # waits for the copies to the cards
        if library == "torch":
            libraries.load("torch")[1].cuda.synchronize(device.index)
        elif library == "cupy":
            libraries.load("cupy")[1].cuda.Device(device.index).synchronize()
    return made


def _on_device(pattern: Pattern, device: devices.Device, library: str) -> Any:
    if library == "torch":
        base = libraries.load("torch")[1].from_numpy(pattern.base)
        return base.to(f"cuda:{device.index}").repeat(pattern.count)
    if library == "cupy":
        cupy = libraries.load("cupy")[1]
        with cupy.cuda.Device(device.index):
            return cupy.tile(cupy.asarray(pattern.base), pattern.count)
    array = pattern.array()
    made = device_array.empty(devices.emulator(), array.shape, pattern.dtype, device.index, 1)
    address = made.__cuda_array_interface__["data"][0]
    ctypes.memmove(address, array.ctypes.data, array.nbytes)
    return made


def _others(library: str, parts: list[Any]) -> dict[str, Run]:
    """The sums of programs that do not use gpureduce."""
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
    torch = libraries.load("torch")[1]

    def by_torch() -> float:
        return sum(float(one.item()) for one in [part.sum() for part in parts])

    def by_nccl() -> float:
        sums = [part.sum().reshape(1) for part in parts]
        torch.cuda.nccl.all_reduce(sums)
        return float(sums[0].item())

    found: dict[str, Run] = {"torch": by_torch}
    if len(parts) > 1 and torch.cuda.nccl.is_available(parts):
        found["nccl"] = by_nccl
    return found


def _ours(name: str, call: Run, **fields: Any) -> Contender:
    def value() -> Any:
        return call().value

    return Contender(name, of_calls(value), value, {"source": "perf_counter", **fields})


def of_parts(library: str, parts: list[Any], strategies: Sequence[str]) -> Iterator[Contender]:
    """Sums of parts, each on a device of its own."""
    device = None if library else "emulator"
    for name in strategies:
        yield _ours(name, functools.partial(sum_parts, parts, name, device=device, timing=False))
    for name, call in _others(library, parts).items():
        yield Contender(name, of_calls(call), call, {"source": "perf_counter"})


def of_host(found: Sequence[devices.Device], array: Any) -> Iterator[Contender]:
    """A host array by the processors, by one GPU, by all, and by processors and GPUs."""
    names = [device.id for device in found]
    together = f"{len(names)} devices" if len(names) > 1 else names[0]
    lists = {"cpu": ["cpu"], names[0]: names[:1], together: names}
    lists[f"cpu + {together}"] = ["cpu", *names]
    for name, device in lists.items():
        call = functools.partial(sum_of, array, device=device, timing=False)
        yield _ours(name, call, devices=len(device))


# --- the groups ----------------------------------------------------------------------------------


def groups(
    found: Sequence[devices.Device], library: str, nbytes: Sequence[int], dtypes: Sequence[str],
    strategies: Sequence[str], repeats: int,
) -> Iterator[Group]:  # fmt: skip
    """Sums on 1, 2, ... of the devices. `nbytes` are the bytes per device.

    `library` makes the parts on GPUs. Without one, the devices are emulated.
    """
    array = Latest(Pattern.array)
    parts_of = Latest(lambda pattern: on_devices(pattern, found, library))

    def group(measure: str, pattern: Pattern, parts: int, repeats: int = repeats) -> Group:
        case = {"measure": measure, "dtype": pattern.dtype, "n": parts * pattern.n,
                "nbytes": parts * pattern.nbytes, "devices": parts}  # fmt: skip

        def contenders() -> Iterator[Contender]:
            if measure == "host":
                return of_host(found, array(pattern))
            return of_parts(library, parts_of(pattern)[:parts], strategies)

        name = f"{measure} {pattern.dtype} {size_text(pattern.nbytes)} x {parts}"
        check = functools.partial(pattern.check, parts=parts)
        return Group(name, case, contenders, Turns(repeats), check)

    usual, host = (_ON_CARD, _HOST_ON_CARD) if library else (_EMULATED, _HOST_EMULATED)
    fitting = [n for n in usual if all(n < 0.8 * device.memory_bytes for device in found)]
    jobs = [("call", dtype, _SMALL * named(dtype).itemsize) for dtype in dtypes]
    jobs += [("parts", dtype, size) for dtype in dtypes for size in nbytes or fitting]
    for measure, dtype, size in jobs:
        pattern = Pattern(dtype, size)
        yield from (group(measure, pattern, count) for count in counts(len(found)))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for size in host:
        if size <= memory // 4:
            yield group("host", Pattern(dtypes[0], size), 1,
                        repeats if size < _LARGE_HOST else ROUNDS)  # fmt: skip


def scaled(made: Row) -> Row:
    """The record with two more fields of each row.

    `linear` is the time on one device, of a part of the same size, over this one; 1 is ideal.
    `added_us` are the microseconds that each further device added.
    """
    alone: dict[tuple[str, str, int, str], float] = {}
    rows = []
    for row in made["rows"]:
        linear = added = None
        if row["measure"] != "host":
            count, us = row["devices"], row["median_us"]
            by = "torch" if row["strategy"] == "nccl" else row["strategy"]
            first = alone.setdefault((row["measure"], row["dtype"], row["nbytes"] // count, by), us)
            linear = first / us
            added = (us - first) / (count - 1) if count > 1 else None
        rows.append(row | {"linear": linear, "added_us": added})
    return made | {"rows": rows}


_HEAD: dict[str, Cell] = {
    "by": of("strategy"), "dtype": of("dtype"), "bytes": BYTES, "devices": of("devices"),
    "median us": of("median_us", ".1f"), "low": of("low_us", ".1f"), "high": of("high_us", ".1f"),
}  # fmt: skip
_MORE: dict[str, tuple[str, dict[str, Cell]]] = {
    "parts": ("Sums of equal parts, one on each device",
              {"GB/s": GB_S, "of linear": of("linear", ".3f")}),
    "call": ("Calls for small parts", {"us per further device": of("added_us", ".2f")}),
    "host": ("Host arrays", {"GB/s": of("gb_s", ".1f")}),
}  # fmt: skip


def as_text(made: Row) -> str:

    def text(more: dict[str, Cell], rows: Sequence[Row]) -> str:
        return as_table(listing(rows, _HEAD | more), ("by", "dtype"))

    return render.as_text(made, {measure: (title, functools.partial(text, more))
                                 for measure, (title, more) in _MORE.items()})  # fmt: skip


def devices_of(names: Sequence[str]) -> list[devices.Device]:
    """The devices that are measured."""
    wanted = list(names) or [f"{devices.default_backend()}:*"]
    found = [one for one in devices.several(wanted) or [] if one]
    if len(found) < len(wanted) or len({one.backend for one in found}) > 1:
        raise ValueError("--devices takes real or emulated GPUs, such as cuda:0 cuda:1 or cuda:*")
    return found


def suite(arguments: argparse.Namespace) -> Suite:
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # multicast is not to be had on every machine
    dtypes = arguments.dtypes or _DTYPES
    nbytes = [n * named(dtypes[0]).itemsize for n in arguments.sizes or ()]
    found = devices_of(arguments.devices)
    strategies, repeats = arguments.strategies or _STRATEGIES, arguments.repeats or _REPEATS
    peers = ("torch", "cupy") if found[0].backend == "cuda" else ()
    here = [name for name in libraries.installed(("all",)) if name in peers]
    if peers and not here:
        raise ValueError(
            "--devices needs PyTorch or CuPy to put the parts on the GPUs: install one of them"
        )
    library = min(here, key=peers.index, default="")
    chosen = groups(found, library, nbytes, dtypes, strategies, repeats)
    more = {"cards": [device.name for device in found]}
    return Suite("devices", found[0], list(chosen), as_text, tuple(here), more, scaled)
