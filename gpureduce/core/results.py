"""What a sum gives back: the value, and where the time went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Timing:
    """Where the time of one sum went, in milliseconds, and what ran.

    `kernel_ms` is the adding alone: CUDA events around the launches (`source` is
    ``"cuda_event"``), the processor's clock around a host strategy (``"perf_counter"``), or the
    time the emulator took (``"emulator"``), which says nothing about a GPU. Copies are `h2d_ms`
    and `d2h_ms`; `init_ms` is the first use of a device, paid once per process; `total_ms` is the
    whole call as the caller sees it. Where processors and card add up an array between them,
    `kernel_ms` is by the processor's clock and the copies are in it.

    `pieces` counts the parts that were added up one after the other: large arrays that are strided,
    byte-swapped or cast are packed piece by piece. `integral` is True for results of
    `gpureduce.trapezoid` and `gpureduce.integrate`, which are not plain sums.
    """

    kernel_ms: float
    h2d_ms: float
    d2h_ms: float
    init_ms: float
    total_ms: float
    source: str
    backend: str
    device: str
    strategy: str
    dtype: str
    block: int | None
    grid: int | None
    finish: str
    launches: int
    n: int
    nbytes: int
    peak_gb_s: float | None = field(default=None, repr=False)
    pieces: int = field(default=1, repr=False)
    integral: bool = field(default=False, repr=False)

    @property
    def gb_s(self) -> float | None:
        """Bytes of the input per kernel time, in 10^9 bytes a second."""
        return self.nbytes / self.kernel_ms / 1e6 if self.kernel_ms else None

    @property
    def percent_of_peak(self) -> float | None:
        """`gb_s` in percent of the card's memory bandwidth on paper; None off a GPU."""
        if self.source != "cuda_event" or not self.peak_gb_s or self.gb_s is None:
            return None
        return 100 * self.gb_s / self.peak_gb_s


@dataclass
class Outcome:
    """The value of a sum, how long its parts took, and where it was made.

    `strategy` is what a choice came to; None where nothing was chosen.
    """

    value: Any
    source: str
    backend: str
    device: str
    strategy: str | None = None
    kernel_ms: float = 0.0
    h2d_ms: float = 0.0
    d2h_ms: float = 0.0
    init_ms: float = 0.0
    block: int | None = None
    grid: int | None = None
    launches: int = 0
    pieces: int = 1
    peak_gb_s: float | None = None

    def timing(
        self, strategy: str, dtype: str, finish: str, n: int, nbytes: int, total_ms: float
    ) -> Timing:
        """The `Timing` for users. `strategy` is the one of the request."""
        return Timing(
            self.kernel_ms,
            self.h2d_ms,
            self.d2h_ms,
            self.init_ms,
            total_ms,
            self.source,
            self.backend,
            self.device,
            self.strategy or strategy,
            dtype,
            self.block,
            self.grid,
            finish,
            self.launches,
            n,
            nbytes,
            self.peak_gb_s,
            self.pieces,
        )


class SumResult(NamedTuple):
    """The sum, a NumPy scalar, and its timing: ``value, timing = gpureduce.sum(a)``.

    `timing` is None where ``timing=False`` was asked for.
    """

    value: Any
    timing: Timing

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)
