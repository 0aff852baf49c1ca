"""Sums of parts on several devices, and of host arrays by several devices."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpureduce.bench.clocks import Run, of_calls
from gpureduce.bench.runner import Contender
from gpureduce.core import arrays, device_array, devices
from gpureduce.core.dtypes import named
from gpureduce.core.summation import sum as sum_of
from gpureduce.lazy_import import load_other
from gpureduce.several.parts import sum_parts


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
            load_other("torch").cuda.synchronize(device.index)
        elif library == "cupy":
            load_other("cupy").cuda.Device(device.index).synchronize()
    return made


def _on_device(pattern: Pattern, device: devices.Device, library: str) -> Any:
    if library == "torch":
        base = load_other("torch").from_numpy(pattern.base)
        return base.to(f"cuda:{device.index}").repeat(pattern.count)
    if library == "cupy":
        cupy = load_other("cupy")
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
    torch = load_other("torch")

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
