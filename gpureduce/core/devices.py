"""The builds of the engine: which ones exist, which one a call uses, and why one is missing."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from gpureduce import _host
from gpureduce.core.checks import shown
from gpureduce.core.registry import Strategy
from gpureduce.errors import CudaError
from gpureduce.lazy_import import load
from gpureduce.version import VERSION

BACKENDS = ("cuda", "emulator")

# `auto` adds up smaller host arrays on the processors, without looking for a GPU.
LEAST_SHARED_BYTES = 1 << 26


@dataclass(frozen=True)
class Device:
    """A device that kernels can run on; see `devices`.

    Attributes
    ----------
    id
        The value for `device=`: ``"cuda:0"`` or ``"emulator"``, or ``"emulator:1"`` where the
        emulator plays several devices.
    backend
        ``"cuda"`` or ``"emulator"``.
    name
        The card's name.
    capability
        Its compute capability, as two numbers.
    sms
        The number of its multiprocessors.
    memory_bytes, l2_bytes
        The size of its memory and of its L2 cache.
    peak_gb_s
        Memory clock times bus width, in GB/s; None for the emulator.
    clock_mhz
        The clock of its multiprocessors; None for the emulator.

    Examples
    --------
    >>> import gpureduce
    >>> device = gpureduce.devices()[-1]
    >>> device.id, device.backend, device.capability, device.sms
    ('emulator', 'emulator', (9, 0), 4)
    """

    id: str
    backend: str
    name: str
    capability: tuple[int, int]
    sms: int
    memory_bytes: int
    l2_bytes: int
    peak_gb_s: float | None
    clock_mhz: float | None

    @property
    def index(self) -> int:
        """CUDA's device number."""
        return int(self.id.partition(":")[2] or 0)


@functools.cache
def build() -> dict[str, Any]:
    """The facts that setup.py recorded when it built the backends."""
    text = (Path(__file__).parents[1] / "_build.json").read_text()
    result: dict[str, Any] = json.loads(text)
    return result


@functools.cache
def load_cuda() -> ModuleType | str:
    """The module of the CUDA build, or a sentence that says why there is none."""
    why = build().get("why")
    if not build()["cuda"]:
        return f"gpureduce was built without CUDA: {why}"
    try:
        return load("_cuda")
    except ImportError as error:
        return f"the CUDA build cannot be loaded: {error}"


@functools.cache
def _cuda_devices() -> tuple[tuple[Device, ...], str]:
    """Returns the GPUs, and the reason if there is none."""
    module = load_cuda()
    if isinstance(module, str):
        return (), module
    try:
        found = tuple(_device("cuda", i, row) for i, row in enumerate(module.devices()))
    except CudaError as error:
        if not module.build()["driver"]:  # CUDA reports a missing driver as "insufficient"
            return (), "there is no NVIDIA driver"
        return (), str(error)
    load("core.table_files").load_for(module, [device.name for device in found])
    return found, "" if found else "no NVIDIA GPU was found"


def _device(backend: str, index: int, row: dict[str, Any]) -> Device:
    return Device(
        id=f"{backend}:{index}",
        backend=backend,
        name=row["name"],
        capability=(row["major"], row["minor"]),
        sms=row["sms"],
        memory_bytes=row["memory_bytes"],
        l2_bytes=row["l2_bytes"],
        peak_gb_s=row["peak_gb_s"] or None,
        clock_mhz=row["clock_mhz"] or None,
    )


EMULATED = "GPUREDUCE_EMULATED_DEVICES"
_MOST_EMULATED = 64


def _emulated_count() -> int:
    """The value of GPUREDUCE_EMULATED_DEVICES, checked; 1 if unset."""
    named = os.environ.get(EMULATED) or "1"
    count = int(named) if re.fullmatch("[0-9]{1,2}", named) else 0
    if not 1 <= count <= _MOST_EMULATED:
        raise ValueError(
            f"{EMULATED} must be a number of devices from 1 to {_MOST_EMULATED}, not {shown(named)}"
        )
    return count


def emulator(*, traced: bool = False) -> ModuleType:
    """The emulated GPU, loaded when a kernel is first emulated."""
    return _emulator("_emulator_traced" if traced else "_emulator")


@functools.cache
def _emulator(name: str) -> ModuleType:
    count = _emulated_count()
    module = load(name)
    module.set_device_count(count)
    return module


def _emulator_devices() -> tuple[Device, ...]:
    return _emulated(emulator().device_count())


@functools.cache
def _emulated(count: int) -> tuple[Device, ...]:
    found = tuple(_device("emulator", i, row) for i, row in enumerate(emulator().devices()))
    return (replace(found[0], id="emulator"),) if count == 1 else found


def devices() -> list[Device]:
    """The devices that kernels can run on: the GPUs first, then the emulator.

    The emulator plays as many devices as the environment variable GPUREDUCE_EMULATED_DEVICES says
    when it is first used.

    >>> import gpureduce
    >>> gpureduce.devices()[-1].id
    'emulator'
    """
    return [*_cuda_devices()[0], *_emulator_devices()]


def build_info() -> dict[str, Any]:
    """How this gpureduce was built, and the devices it found. Look here if a GPU is missing.

    Keys: ``version``, ``cuda`` (was the CUDA backend built), ``why`` (if there is no usable GPU,
    the reason), ``cuda_archs`` (machine code for these), ``cuda_ptx``, ``nvcc``, ``runtime``,
    ``driver``, ``compiler``, ``sanitize``, ``devices``.

    >>> import gpureduce
    >>> info = gpureduce.build_info()
    >>> info["version"] == gpureduce.__version__, "emulator" in info["devices"]
    (True, True)
    """
    info = {"version": VERSION, **copy.deepcopy(build()), "compiler": _host.COMPILER}
    found, why = _cuda_devices()
    module = load_cuda()
    if not isinstance(module, str):
        versions = module.build()
        info["runtime"] = _version(versions["runtime"])
        info["driver"] = _version(versions["driver"])
    info["why"] = why
    info["devices"] = [device.id for device in (*found, *_emulator_devices())]
    return info


def _version(number: int) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def named_backend() -> str | None:
    """The value of GPUREDUCE_BACKEND, checked; None if unset."""
    named = _host.environment("GPUREDUCE_BACKEND")
    if named and named not in BACKENDS:
        raise ValueError(
            f"GPUREDUCE_BACKEND must be one of {', '.join(BACKENDS)}, not {shown(named)}"
        )
    return named or None


def default_backend() -> str:
    """The backend for kernels if no device is named."""
    return named_backend() or ("cuda" if _cuda_devices()[0] else "emulator")


def _is_thread_count(text: str) -> bool:
    """Whether C's strtol reads the text as a whole number from 1 to 2**31 - 1."""
    found = re.fullmatch(r"[ \t\n\v\f\r]*\+?0*([0-9]{1,10})", text)
    return found is not None and 0 < int(found[1]) < 2**31


def warn_of_threads() -> None:
    """Warns if GPUREDUCE_THREADS is not a number. C reads and ignores it when it starts threads."""
    named = os.environ.get("GPUREDUCE_THREADS")
    if named and not _is_thread_count(named):
        shown = named if len(named) <= 40 else f"{named[:37]}..."
        warnings.warn(
            f"GPUREDUCE_THREADS must be a number of threads, 1 or more, not {shown!a}: "
            "all processors are used",
            RuntimeWarning,
            stacklevel=2,
        )


def choose_device(wanted: str | None, *, or_cpu: bool = False) -> Device:
    """The device for a kernel: the one asked for, or the first GPU, or the emulator.

    With `or_cpu`, error messages list "cpu" as well. The caller accepts "cpu" and has handled it.
    """
    if wanted is None:
        wanted = default_backend()
    backend, colon, index = wanted.partition(":") if isinstance(wanted, str) else ("", "", "")
    if backend not in BACKENDS or (colon and not re.fullmatch("[0-9]{1,4}", index)):
        names = ["cpu"] * or_cpu + ["cuda"] + [device.id for device in devices()]
        why = _cuda_devices()[1]
        absent = f"; 'cuda:0', 'cuda:1' and so on name GPUs, but {why}" if why else ""
        raise ValueError(
            f"device must be None, {', '.join(map(repr, names))}, not {shown(wanted)}{absent}"
        )
    found, why = _cuda_devices() if backend == "cuda" else (_emulator_devices(), "")
    if not found:
        raise CudaError(f"device={wanted!r} cannot be used: {why}", "cudaErrorNoDevice")
    if int(index or 0) >= len(found):
        known = ", ".join(device.id for device in found)
        raise ValueError(f"there is no device {wanted!r}; the devices are {known}")
    return found[int(index or 0)]


def is_emulator(wanted: str | None) -> bool:
    """Whether a checked `device=` names an emulated GPU."""
    return wanted is not None and wanted.partition(":")[0] == "emulator"


def several(wanted: Any) -> list[Device | None] | None:
    """The devices of a list, or of ``"cuda:*"``, of which None stands for the processors.

    None for anything that names one device.
    """
    every = {f"{backend}:*": backend for backend in BACKENDS}
    if isinstance(wanted, str) and wanted in every:
        wanted = [wanted]
    if not isinstance(wanted, (list, tuple)):
        return None
    found: list[Device | None] = []
    for name in wanted:
        if isinstance(name, str) and name in every:
            first = choose_device(every[name])  # raises if there is none
            found += [one for one in devices() if one.backend == first.backend]
        else:
            found.append(None if name == "cpu" else choose_device(name or "", or_cpu=True))
    if len(set(found)) < len(found) or not found:
        raise ValueError(
            f"device must name at least one device, and each device once, not {shown(wanted)}"
        )
    return found


def check_device(wanted: str | None) -> None:
    """Raises if `wanted` is not an available device. For None, no device is looked up."""
    if wanted is not None and (not isinstance(wanted, str) or wanted != "cpu"):
        choose_device(wanted, or_cpu=True)


def check_can_run(device: Device, strategy: Strategy) -> None:
    """Raises if the strategy is a compiled library and the device is the emulator."""
    if strategy.kind == "library" and device.backend == "emulator":
        raise CudaError(
            f"{strategy.name} needs {strategy.needs}; the emulator cannot run a "
            f"compiled library ({build_info()['why']})",
            "cudaErrorNoDevice",
        )


def free_scratch() -> None:
    """Free the device memory that is kept from call to call, on all devices.

    >>> import gpureduce, numpy as np
    >>> result = gpureduce.sum(np.ones(1000), "sequential", device="emulator")
    >>> gpureduce.free_scratch()
    >>> gpureduce.emulator.live_bytes()
    0
    """
    names = ("gpureduce._emulator", "gpureduce._emulator_traced", "gpureduce._cuda")
    for name in names:
        if name in sys.modules:
            sys.modules[name].free_scratch()


def module_of(device: Device, *, traced: bool = False) -> ModuleType:
    """The build that runs kernels on `device`."""
    if device.backend == "emulator":
        return emulator(traced=traced)
    module = load_cuda()
    if isinstance(module, str):
        raise CudaError(module, "cudaErrorNoDevice")
    return module
