"""The result of a sum: the value and its timing. C makes `SumResult`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from gpureduce._host import SumResult as SumResult

if TYPE_CHECKING:
    from gpureduce.core.devices import Device


@dataclass(frozen=True)
class Timing:
    """The times of one sum, and its device, strategy and launch.

    Attributes
    ----------
    kernel_ms
        Milliseconds of the additions alone. On a GPU without copies; where processors and a GPU add
        up an array between them, copies included. For an array on a GPU, this and `d2h_ms` are read
        when one of them is first looked at.
    h2d_ms, d2h_ms
        Milliseconds of the copies to the device and back. Most kernels write the sum to host memory
        themselves: then `d2h_ms` is 0.
    init_ms
        Milliseconds of the first use of a device, paid once per process.
    total_ms
        Milliseconds of the call, until its sum is there.
    source
        The clock behind `kernel_ms`: ``"cuda_event"``, ``"perf_counter"`` (the processor's clock)
        or ``"emulator"``. Emulated time says nothing about a GPU.
    backend
        ``"cuda"``, ``"emulator"``, ``"cpu"``, or a mixture such as ``"cpu+cuda"``.
    device
        The device's name.
    strategy
        The strategy that ran, where ``"auto"`` or ``"fast"`` chose one.
    dtype
        The dtype of the elements.
    block, grid
        Threads per block and blocks of the first launch; None where no kernel ran.
    finish
        How block sums became one number.
    launches
        Kernel launches.
    n, nbytes
        Elements and bytes of the input.
    peak_gb_s
        The card's memory bandwidth by its data sheet; None off a GPU.
    pieces
        Parts that were added up one after the other: large arrays that are strided, byte-swapped or
        cast are packed piece by piece.
    integral
        Whether this belongs to `gpureduce.trapezoid` or `gpureduce.integrate`.
    initial
        Whether `initial` was another number than 0.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> timing = gpureduce.sum(np.ones(2**16), "sequential", device="emulator").timing
    >>> timing.strategy, timing.block, timing.grid, timing.launches, timing.source
    ('sequential', 256, 256, 2, 'emulator')
    >>> timing.kernel_ms <= timing.total_ms
    True
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
    initial: bool = field(default=False, repr=False)

    # Of an array on a GPU, C makes a timing without kernel_ms and d2h_ms. They are read from CUDA's
    # events when one of them is first looked at, because that takes longer than a small sum.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> float:
            fields = self.__dict__
            elapsed = fields.get("_elapsed")
            if elapsed is not None and name in ("kernel_ms", "d2h_ms"):
                fields["kernel_ms"], fields["d2h_ms"] = elapsed.read()
                fields.pop("_elapsed", None)
            if name in fields:  # another thread may have been first
                return fields[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        """One line; ``repr`` has every field."""
        is_emulated = self.source == "emulator"
        rate = f" ({self.gb_s:.3g} GB/s)" if (self.gb_s or 0) >= 1 and not is_emulated else ""
        return (
            f"{self.n} {self.dtype} by {self.strategy} on {self.device}: "
            f"{'emulated in ' if is_emulated else ''}{self.kernel_ms:.3g} ms{rate}, "
            f"the call {self.total_ms:.3g} ms"
        )

    def __getstate__(self) -> dict[str, Any]:
        """The fields, for pickle and copy."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def gb_s(self) -> float | None:
        """Bytes of the input per kernel time, in 10^9 bytes a second."""
        return self.nbytes / self.kernel_ms / 1e6 if self.kernel_ms and self.nbytes else None

    @property
    def percent_of_peak(self) -> float | None:
        """`gb_s` in percent of the card's theoretical memory bandwidth; None without a GPU."""
        if self.source != "cuda_event" or not self.peak_gb_s or self.gb_s is None:
            return None
        return 100 * self.gb_s / self.peak_gb_s


@dataclass
class Outcome:
    """The value of a sum, and the fields of its timing that only the run determines."""

    value: Any
    fields: dict[str, Any]


_ZEROS = {"kernel_ms": 0.0, "h2d_ms": 0.0, "d2h_ms": 0.0, "init_ms": 0.0, "block": None,
          "grid": None, "launches": 0, "peak_gb_s": None, "pieces": 1, "integral": False,
          "initial": False}  # fmt: skip
_PROCESSORS = {"source": "perf_counter", "backend": "cpu", "device": "cpu"}


def ran_on(device: Device | None, /, **measured: Any) -> dict[str, Any]:
    """Fields of a timing: those of a device, or of the processors, and what was measured."""
    if device is None:
        return _ZEROS | _PROCESSORS | measured
    clock = "emulator" if device.backend == "emulator" else "cuda_event"
    return _ZEROS | measured | {"source": clock, "backend": device.backend, "device": device.name,
                                "peak_gb_s": device.peak_gb_s}  # fmt: skip


def launched(block: int, grid: int, launches: int) -> dict[str, Any]:
    """Fields of a timing: the launch that C reports."""
    return {"block": block or None, "grid": grid or None, "launches": launches}


def timing_of(fields: dict[str, Any], start: float) -> Timing:
    """The timing of a call that began at `start`. Sets attributes as C does, which is quicker."""
    timing = Timing.__new__(Timing)
    vars(timing).update(fields, total_ms=(time.perf_counter() - start) * 1e3)
    return timing
