"""The libraries whose arrays an audit copies, moves and runs. None of them is imported here."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gpureduce.core.arrays import as_array
from gpureduce.core.dtypes import Array

_ALIGNMENT = 64  # bytes


class NotApplicable(Exception):
    """A check does not apply. The message says why."""


@dataclass(frozen=True)
class Library:
    """The functions of a library, which take its module and an array. A text says why it has none.

    `zeros` makes a one-dimensional array at a multiple of 64 bytes. `host` copies to host memory.
    `threads` and `stream` are contexts, `graph` and `compiled` change a function, and `moved` is on
    the other side: a card, or host memory.
    """

    name: str
    module: str
    take: Callable[..., Any] = lambda module, x, rows, axis: module.take(x, rows, axis)
    strides: Callable[..., Any] | str = lambda module, x: x.strides
    zeros: Callable[..., Any] = lambda module, x, n: module.zeros(n, x.dtype)
    host: Callable[..., Array] = lambda module, x: np.asarray(x)
    threads: Callable[..., Any] | str = "no call sets the number of the library's threads"
    stream: Callable[..., Any] | str = "the library has no streams that a caller chooses"
    graph: Callable[..., Any] | str = "only functions of PyTorch are captured"
    compiled: Callable[..., Any] | str = "the library has no compiler of functions"
    moved: Callable[..., Any] | str = "the library's arrays lie in host memory only"

    def own(self, method: str, *arguments: Any) -> Any:
        """What one of the functions returns. The library is imported: it has made an array."""
        function = getattr(self, method)
        if isinstance(function, str):
            raise NotApplicable(function)
        return function(sys.modules[self.module], *arguments)

    def copy(self, x: Any, like: Any, shift: int = 0, step: int = 1, reverse: bool = False) -> Any:
        """A copy in a new buffer: from element `shift` on, elements `step` apart.

        It has the order of axes in memory that `like` has, or the reverse one.
        """
        if isinstance(self.strides, str):
            return x.copy()
        sizes = [abs(one) or math.inf for one in self.own("strides", like)]
        order = sorted(range(len(sizes)), key=lambda axis: -sizes[axis])[:: -1 if reverse else 1]
        flat = self.own("zeros", x, shift + step * math.prod(x.shape))[shift::step]
        copy = flat.reshape([x.shape[axis] for axis in order])
        copy = sys.modules[self.module].moveaxis(copy, tuple(range(len(order))), tuple(order))
        copy[...] = x
        return copy


def _numpy_zeros(module: Any, x: Any, n: int) -> Any:
    buffer = np.zeros(n * x.itemsize + _ALIGNMENT, np.uint8)
    return buffer[-buffer.ctypes.data % _ALIGNMENT :][: n * x.itemsize].view(x.dtype)


@contextlib.contextmanager
def _cupy_stream(cupy: Any, x: Any) -> Iterator[None]:
    with x.device:
        cupy.cuda.get_current_stream().synchronize()
        with cupy.cuda.Stream(non_blocking=True) as side:
            yield
            side.synchronize()


@contextlib.contextmanager
def _torch_threads(torch: Any, x: Any) -> Iterator[None]:
    """One thread, or two where PyTorch has one."""
    if x.is_cuda:
        raise NotApplicable("the arrays are on a GPU")
    before = torch.get_num_threads()
    torch.set_num_threads(1 if before > 1 else 2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _torch_stream(torch: Any, x: Any) -> Iterator[None]:
    if not x.is_cuda:
        raise NotApplicable("the arrays are in host memory")
    with torch.cuda.device(x.device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            yield
        side.synchronize()


def _torch_graph(torch: Any, x: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that captures each call, and plays it."""

    def call(*arrays: Any) -> Any:
        with _torch_stream(torch, x):
            for _ in range(3):  # PyTorch's manual wants calls on another stream before the capture
                f(*(one.clone() if isinstance(one, torch.Tensor) else one.copy() for one in arrays))
        with torch.cuda.device(x.device):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = f(*arrays)
            graph.replay()
            torch.cuda.synchronize()
        return found

    return call


def _torch_compiled(torch: Any, x: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    """A function with code of its own: PyTorch stops to compile code after eight functions.

    With fixed sizes: PyTorch would make those variable that another audit had changed.
    """
    own = eval("lambda *arrays: f(*arrays)", {"f": f})
    return cast(Callable[..., Any], torch.compile(own, dynamic=False))


def _torch_moved(torch: Any, x: Any) -> Any:
    if not torch.cuda.is_available():
        raise NotApplicable("PyTorch finds no GPU")
    return x.to("cpu" if x.is_cuda else "cuda")


def _jax_moved(jax: Any, x: Any) -> Any:
    on_cpu = all(device.platform == "cpu" for device in x.devices())
    try:
        return jax.device_put(x, jax.devices("gpu" if on_cpu else "cpu")[0])
    except RuntimeError:
        raise NotApplicable("JAX finds no GPU") from None


NUMPY = Library("NumPy", "numpy", zeros=_numpy_zeros)
_CUPY = Library(
    "CuPy", "cupy", host=lambda cupy, x: cupy.asnumpy(x), stream=_cupy_stream,
    moved=lambda cupy, x: cupy.asnumpy(x),
)  # fmt: skip
_TORCH = Library(
    "PyTorch", "torch",
    take=lambda torch, x, rows, axis: x.index_select(axis, torch.as_tensor(rows, device=x.device)),
    strides=lambda torch, x: x.stride(),
    zeros=lambda torch, x, n: torch.zeros(n, dtype=x.dtype, device=x.device),
    host=lambda torch, x: as_array(x.detach().cpu().resolve_conj().resolve_neg()),
    threads=_torch_threads, stream=_torch_stream, graph=_torch_graph, moved=_torch_moved,
    compiled=_torch_compiled,
)  # fmt: skip
_JAX = Library(
    "JAX", "jax", take=lambda jax, x, rows, axis: jax.numpy.take(x, rows, axis),
    strides="JAX decides on the layout of its arrays", moved=_jax_moved,
    compiled=lambda jax, x, f: jax.jit(lambda *arrays: f(*arrays)),
)  # fmt: skip
_BY_PACKAGE = {"numpy": NUMPY, "cupy": _CUPY, "torch": _TORCH, "jax": _JAX, "jaxlib": _JAX}


def library_of(x: object) -> Library | None:
    """The library of an array or a scalar; None of other objects."""
    if not hasattr(x, "dtype") or not hasattr(x, "shape") or isinstance(x, np.ma.MaskedArray):
        return None
    packages = [one.__module__.partition(".")[0] for one in type(x).__mro__]
    return next((_BY_PACKAGE[one] for one in packages if one in _BY_PACKAGE), None)
