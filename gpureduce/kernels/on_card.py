"""Kernels of users on a card: loaded into the CUDA build, and launched as its own kernels are."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpureduce.core import any_array, arrays, devices, dtypes, gpu_arrays, registry
from gpureduce.core.devices import Device
from gpureduce.core.plan import Arguments
from gpureduce.core.results import SumResult
from gpureduce.kernels import cubins
from gpureduce.kernels.types import ACC_OF, LOAD_OF, Pair

_Kernel = Any  # a kernel.Kernel, whose module imports this one

_lock = threading.Lock()
# By text, headers, launch and architecture: the strategy, and the pairs of types that are loaded.
_known: dict[tuple[Any, ...], tuple[registry.Strategy, set[Pair]]] = {}


def architecture(device: Device) -> int:
    """A card's architecture as compilers number it: 90 for compute capability 9.0."""
    major, minor = device.capability
    return 10 * major + minor


def strategy(kernel: _Kernel, device: Device, pairs: Sequence[Pair]) -> registry.Strategy:
    """The strategy that runs a kernel on a card. Compiles and loads it for these pairs of types."""
    module, arch = devices.module_of(device), architecture(device)
    key = (kernel.text, *kernel.source.included(), kernel.name, kernel.traits, arch)
    with _lock:
        if key not in _known:
            index = module.add_kernel(kernel.name, kernel.traits, ())
            added = (kernel.name, kernel.dtypes, kernel.finishes, index, kernel.traits)
            _known[key] = registry.added(*added, kernel.pair), set()
        row, loaded = _known[key]
        for load, acc in pairs:
            if (load, acc) not in loaded:
                made = cubins.cubin(kernel.source, kernel.signature, (load, acc), arch)
                numbers = (LOAD_OF[load], ACC_OF[acc])
                kernels = tuple((symbol, *numbers, block) for block, symbol in made.symbols)
                module.load_kernels(row.index, made.path.read_bytes(), kernels)
                loaded.add((load, acc))
    return row


@dataclass(frozen=True)
class OnCard:
    """A kernel for a job of the process for kernels, to run on a card there."""

    kernel: _Kernel
    device: str
    pairs: tuple[Pair, ...]
    on_card: ClassVar[bool] = True
    compiled_text: ClassVar[str] = ""

    def strategy(self) -> registry.Strategy:
        """Loads it onto the card."""
        return strategy(self.kernel, devices.choose_device(self.device), self.pairs)


def place(kernel: _Kernel, device: Device, source: np.dtype[Any], wanted: Any) -> registry.Strategy:
    """The strategy that adds up arrays of a dtype on a card."""
    return strategy(kernel, device, kernel.pairs(source, wanted))


def _add_gpu_array(kernel: _Kernel, arr: Any, call: Arguments) -> SumResult | None:
    """The sum of an array that lies on a GPU; None for other arrays."""
    cards = [device for device in devices.devices() if device.backend == "cuda"]
    may_lie_there = hasattr(arr, "__cuda_array_interface__") or hasattr(arr, "__dlpack_device__")
    if not cards or not may_lie_there:
        return None
    first = devices.choose_device(call.device) if call.device else cards[0]
    row = strategy(kernel, first, [])

    wanted = None if call.dtype is None else dtypes.named(call.dtype)

    def prepare(kind: str, nbytes: int, index: int) -> None:
        gpu_arrays.check_same_device(call.device, index)
        card = devices.choose_device(f"cuda:{index}")
        if card.capability != first.capability:
            raise ValueError(
                f"the array is on {card.id}, another kind of GPU than {first.id}: pass "
                f"device={card.id!r}"
            )
        elements = dtypes.named("bfloat16") if kind == "B" else gpu_arrays.source(kind, nbytes)
        place(kernel, card, elements, wanted)

    return gpu_arrays.add(call._replace(strategy=row), row, arr, prepare)  # type: ignore[arg-type]


def add(kernel: _Kernel, arr: Any, call: Arguments) -> SumResult | None:
    """The sum of an array on a card; None if it is to be added up on the emulator."""
    if not isinstance(arr, np.ndarray):
        result = _add_gpu_array(kernel, arr, call)
        if result is not None:
            return result
    device = devices.choose_device(call.device)
    if device.backend == "emulator":
        return None
    array = arrays.as_array(arr)
    wanted = None if call.dtype is None else dtypes.named(call.dtype)
    row = place(kernel, device, array.dtype, wanted)
    return any_array.add(call._replace(strategy=row), array)  # type: ignore[arg-type]
