"""The other libraries of the benchmark. Each is imported only if it is measured."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from gpureduce.core import devices, dtypes, registry
from gpureduce.core.checks import no_such
from gpureduce.lazy_import import load_other

Run = Callable[[], Any]


@dataclass(frozen=True)
class Peer:
    """A library's functions for sums. A function is None if the library lacks it.

    `put` copies a NumPy array to the library's GPU array. `add` adds up such an array to a Python
    number, in a named dtype or in the library's default. `add_host` adds up a NumPy array.
    """

    name: str
    put: Callable[[ModuleType, dtypes.Array], Any] | None
    add: Callable[[ModuleType, Any, str | None], Run] | None
    add_host: Callable[[ModuleType, dtypes.Array], Run] | None
    free: Callable[[ModuleType], None] = lambda module: None
    lacks: frozenset[str] = frozenset()  # dtypes that the library lacks
    needs_card: bool = False  # needs a GPU even for arrays in host memory
    strides: bool = True  # whether a slice is a view


def torch_tensor(torch: ModuleType, array: dtypes.Array) -> Any:
    """The array as a tensor in host memory."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _torch_host(torch: ModuleType, array: dtypes.Array) -> Run:
    tensor = torch_tensor(torch, array)
    return lambda: tensor.sum().item()


def _torch_add(torch: ModuleType, tensor: Any, dtype: str | None) -> Run:
    kind = dtype and getattr(torch, dtype)
    return lambda: tensor.sum(dtype=kind).item()


def _jax_add(jax: ModuleType, array: Any, dtype: str | None) -> Run:
    if dtype and dtype.endswith("64"):
        jax.config.update("jax_enable_x64", True)
    return lambda: array.sum(dtype=dtype).item()


def _jax_put(jax: ModuleType, array: dtypes.Array) -> Any:
    if array.itemsize == 8:
        jax.config.update("jax_enable_x64", True)
    placed = jax.device_put(array, jax.devices("gpu")[0])
    placed.block_until_ready()
    return placed


PEERS = (
    Peer(
        "cupy",
        put=lambda cupy, array: cupy.asarray(array),
        add=lambda cupy, array, dtype: lambda: array.sum(dtype=dtype).item(),
        add_host=lambda cupy, array: lambda: cupy.asarray(array).sum().item(),
        free=lambda cupy: cupy.get_default_memory_pool().free_all_blocks(),
        lacks=frozenset({"bfloat16"}),
        needs_card=True,
    ),
    Peer(
        "torch",
        put=lambda torch, array: torch_tensor(torch, array).cuda(),
        add=_torch_add,
        add_host=_torch_host,
        free=lambda torch: torch.cuda.empty_cache(),
        lacks=frozenset({"uint16", "uint32", "uint64"}),
    ),
    Peer(
        "jax",
        put=_jax_put,
        add=_jax_add,
        add_host=None,
        strides=False,
    ),
)
# Its arrays lie in host memory.
NUMPY = Peer(
    "numpy",
    put=lambda numpy, array: array,
    add=lambda numpy, array, dtype: lambda: array.sum(dtype=dtype).item(),
    add_host=None,
)
# Not a library: a kernel that loads the array and stores one word. No sum can be faster.
LOAD_ONLY = "load_only"
_loaded: dict[str, ModuleType] = {}
NAMES = ("cub", LOAD_ONLY, "numpy", *(peer.name for peer in PEERS))


def installed(wanted: tuple[str, ...], device: str | None = None) -> tuple[str, ...]:
    """The wanted libraries, checked to be installed. ``all`` means all that are installed.

    If no GPU is measured, ``all`` omits libraries that need one.
    """
    unknown = [name for name in wanted if name not in (*NAMES, "all")]
    if unknown:
        raise ValueError(no_such("peer", unknown[0], (*NAMES, "all")))
    names = NAMES if "all" in wanted else wanted
    modules = [peer.name for peer in PEERS]
    missing = [n for n in names if n in modules and not importlib.util.find_spec(n)]
    if missing and "all" not in wanted:
        raise ValueError(f"the peer {missing[0]} is not installed")
    if "all" in wanted and devices.choose_device(device).backend != "cuda":
        missing += ["cub", LOAD_ONLY, *(peer.name for peer in PEERS if peer.needs_card)]
    return tuple(n for n in names if n not in missing)


def load(name: str) -> tuple[Peer, ModuleType]:
    """Another library that is measured beside gpureduce, and its imported module."""
    peer = next(peer for peer in (*PEERS, NUMPY) if peer.name == name)
    # By default JAX reserves three quarters of the GPU's memory, which the others need.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    _loaded[name] = load_other(peer.name)
    return peer, _loaded[name]


def versions(names: tuple[str, ...]) -> dict[str, str]:
    """The versions of the libraries."""
    modules = [n for n in names if n not in ("cub", LOAD_ONLY, "numpy")]
    found = {n: load(n)[1] if n in NAMES else load_other(n) for n in modules}
    return {name: str(module.__version__) for name, module in found.items()}


def takes_host(name: str, dtype: str) -> bool:
    """Whether a library can add up a NumPy array of this dtype."""
    return all(peer.add_host and dtype not in peer.lacks for peer in PEERS if peer.name == name)


def free() -> None:
    """Frees the memory that the loaded libraries keep."""
    for peer in PEERS:
        if peer.name in _loaded:
            peer.free(_loaded[peer.name])


def is_ours(name: object) -> bool:
    """Whether `name` is one of our strategies or a user's kernel, rather than a library."""
    if isinstance(name, registry.UserKernel):
        return True
    return name in registry.STRATEGIES and name not in ("cub", "numpy")
