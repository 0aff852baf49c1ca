"""Measure strategies side by side: warm-up, repeats, median and spread.

Kernels are timed without Python, copies or the fetching of the result: on a card as replays of a
CUDA graph between two events, on the emulator by the clock. The input is held in several copies
that are taken in turn, so that it does not stay in the L2 cache (``cold``), unless one is enough
(``warm``).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce import _backends, _emulator, _inputs, _registry

_COLD_BYTES_OF_L2 = 3


@dataclass(frozen=True)
class Measurement:
    """The time of one sum, in microseconds, over `repeats` runs."""

    strategy: str
    dtype: str
    n: int
    nbytes: int
    block: int | None
    grid: int | None
    device: str
    source: str
    cache: str
    repeats: int
    median_us: float
    low_us: float
    high_us: float
    peak_gb_s: float | None

    @property
    def gb_s(self) -> float:
        """Bytes of the input by the median time."""
        return self.nbytes / self.median_us / 1e3

    @property
    def elements_per_us(self) -> float:
        """Millions of elements a second."""
        return self.n / self.median_us

    @property
    def percent_of_peak(self) -> float | None:
        """`gb_s` in percent of the card's bandwidth on paper; None off a GPU."""
        return 100 * self.gb_s / self.peak_gb_s if self.peak_gb_s else None


def _array(dtype: str, n: int) -> _inputs.Array:
    rng = np.random.default_rng(n)
    kind = _inputs.named(dtype)
    if kind.kind in "iu":
        return rng.integers(0, 100, n, dtype=kind)
    return rng.standard_normal(n).astype(kind)


def _on_host(run: Callable[[], Any], repeats: int) -> list[float]:
    times = []
    for i in range(repeats + 2):
        start = time.perf_counter()
        run()
        if i >= 2:
            times.append((time.perf_counter() - start) * 1e6)
    return times


def _on_device(
    array: _inputs.Array,
    conversion: _inputs.Conversion,
    row: _registry.Strategy,
    block: int,
    grid: int,
    device: _backends.Device,
    repeats: int,
) -> tuple[list[float], int, int, str]:
    copies = 1
    if device.backend == "cuda" and device.l2_bytes and array.nbytes < 2**30:
        copies += min(_COLD_BYTES_OF_L2 * device.l2_bytes // array.nbytes, 512)
    number = -1 if row.kind == "choice" else row.index
    times, block, grid, _ = _backends.module_of(device).measure(
        array, conversion.load, conversion.acc, number, block, grid, 0,
        int(device.id.partition(":")[2] or 0), copies, 2, repeats, 0,
    )  # fmt: skip
    return (np.frombuffer(times) * 1e3).tolist(), block, grid, "cold" if copies > 1 else "warm"


def benchmark(
    strategies: Sequence[str],
    sizes: Sequence[int] = (2**20,),
    dtypes: Sequence[str] = ("int32",),
    blocks: Sequence[int | None] = (None,),
    grids: Sequence[int | None] = (None,),
    device: str | None = None,
    repeats: int = 11,
    accumulate: str | None = None,
) -> Iterator[Measurement]:
    """Measure every combination, one after another.

    `sizes` are numbers of elements; `accumulate` is the dtype to add up in, as `dtype=` of
    `gpureduce.sum` (``"int32"`` for the lectures' ladder). `repeats` runs follow a warm-up.
    """
    for dtype in dtypes:
        conversion = _inputs.convert(_inputs.named(dtype), accumulate)
        if conversion.cast is not None or conversion.is_complex:
            raise TypeError(f"{dtype} cannot be added up in {accumulate} without a cast")
        for n in sizes:
            array = _array(dtype, n)
            for name in strategies:
                row = _registry.find(name)
                yield from _measure(row, array, conversion, blocks, grids, device, repeats)


def _measure(
    row: _registry.Strategy,
    array: _inputs.Array,
    conversion: _inputs.Conversion,
    blocks: Sequence[int | None],
    grids: Sequence[int | None],
    device: str | None,
    repeats: int,
) -> Iterator[Measurement]:
    on_host = row.kind == "host"
    chosen = None if on_host else _backends.choose_device(device)
    for block in blocks if row.launches_kernels else (None,):
        for grid in grids if row.launches_kernels else (None,):
            used_block, used_grid, cache = 0, 0, "warm"
            if row.name == "cpu":
                load, acc = conversion.load, conversion.acc
                times = _on_host(lambda: _emulator.cpu_sum(array, load, acc, 1, 0), repeats)  # noqa: B023
            elif on_host:
                times = _on_host(lambda: np.sum(array, dtype=conversion.result), repeats)
            else:
                assert chosen is not None
                times, used_block, used_grid, cache = _on_device(
                    array, conversion, row, block or 0, grid or 0, chosen, repeats
                )
            emulated = chosen is not None and chosen.backend == "emulator"
            yield Measurement(
                strategy=row.name,
                dtype=str(array.dtype),
                n=array.size,
                nbytes=array.nbytes,
                block=used_block or None,
                grid=used_grid or None,
                device=chosen.name if chosen else "cpu",
                source="perf_counter" if on_host else "emulator" if emulated else "cuda_event",
                cache=cache,
                repeats=repeats,
                median_us=statistics.median(times),
                low_us=min(times),
                high_us=max(times),
                peak_gb_s=chosen.peak_gb_s if chosen and not emulated else None,
            )
