"""The libraries whose arrays an audit copies, moves and runs. None of them is imported here."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce.core.arrays import as_array
from gpureduce.core.dtypes import Array


class NotApplicable(Exception):
    """A check does not apply. The message says why."""


@dataclass(frozen=True)
class Library:
    """A library's functions. Those that a library lacks are texts, which say why.

    `zeros` makes a one-dimensional array at a multiple of 64 bytes, `host` copies to host memory.
    From `stream` on, a function takes the module, an array, a function and its arguments, and
    makes this call in another way.
    """

    name: str
    module: str
    host: Callable[[Any], Array] = np.asarray
    zeros: Callable[..., Any] = lambda module, x, n: module.zeros(n, x.dtype)
    strides: Callable[..., Any] | str = lambda module, x: x.strides
    stream: Callable[..., Any] | str = "the library has no streams that a caller chooses"
    graph: Callable[..., Any] | str = "only functions of PyTorch are captured"
    compiled: Callable[..., Any] | str = "the library has no compiler of functions"
    device: Callable[..., Any] | str = "the library's arrays lie in host memory only"

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
        if isinstance(self.strides, str) and (shift, step, reverse) == (0, 1, False):
            return x.copy()
        sizes = [abs(one) or math.inf for one in self.own("strides", like)]
        order = sorted(range(len(sizes)), key=lambda axis: -sizes[axis])[:: -1 if reverse else 1]
        flat = self.own("zeros", x, shift + step * math.prod(x.shape))[shift::step]
        copy = flat.reshape([x.shape[axis] for axis in order])
        copy = sys.modules[self.module].moveaxis(copy, tuple(range(len(order))), tuple(order))
        copy[...] = x
        return copy


def _numpy_zeros(module: Any, x: Any, n: int) -> Any:
    buffer = np.zeros(n * x.itemsize + 64, np.uint8)
    return buffer[-buffer.ctypes.data % 64 :][: n * x.itemsize].view(x.dtype)


def _cupy_stream(cupy: Any, x: Any, f: Callable[..., Any], *arrays: Any) -> Any:
    with x.device:
        cupy.cuda.get_current_stream().synchronize()
        with cupy.cuda.Stream(non_blocking=True) as side:
            found = f(*arrays)
            side.synchronize()
    return found


def _torch_stream(torch: Any, x: Any, f: Callable[..., Any], *arrays: Any) -> Any:
    if not x.is_cuda:
        raise NotApplicable("the arrays are in host memory")
    with torch.cuda.device(x.device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found = f(*arrays)
        side.synchronize()
    return found


def _torch_graph(torch: Any, x: Any, f: Callable[..., Any], *arrays: Any) -> Any:
    for _ in range(3):  # PyTorch's manual wants calls on another stream before the capture
        _torch_stream(torch, x, f, *(one.clone() for one in arrays))
    with torch.cuda.device(x.device):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = f(*arrays)
        graph.replay()
        torch.cuda.synchronize()
    return found


def _torch_compiled(torch: Any, x: Any, f: Callable[..., Any], *arrays: Any) -> Any:
    """By code of its own: PyTorch stops to compile code after eight functions.

    With fixed sizes: PyTorch would make those variable that another audit had changed.
    """
    own = eval("lambda *arrays: f(*arrays)", {"f": f})
    return torch.compile(own, dynamic=False)(*arrays)


def _torch_device(torch: Any, x: Any, f: Callable[..., Any], *arrays: Any) -> Any:
    if not torch.cuda.is_available():
        raise NotApplicable("PyTorch finds no GPU")
    other = "cpu" if x.is_cuda else "cuda"
    return f(*(one.to(other) for one in arrays))


def _jax_device(jax: Any, x: Any, f: Callable[..., Any], *arrays: Any) -> Any:
    (now,) = {device.platform for device in x.devices()}
    try:
        other = jax.devices("gpu" if now == "cpu" else "cpu")[0]
    except RuntimeError:
        raise NotApplicable("JAX finds no GPU") from None
    return f(*jax.device_put(arrays, other))


NUMPY = Library("NumPy", "numpy", zeros=_numpy_zeros)
_CUPY = Library(
    "CuPy", "cupy", host=lambda x: x.get(), stream=_cupy_stream,
    device=lambda cupy, x, f, *arrays: f(*map(cupy.asnumpy, arrays)),
)  # fmt: skip
_TORCH = Library(
    "PyTorch", "torch", host=lambda x: as_array(x.detach().cpu().resolve_conj().resolve_neg()),
    zeros=lambda torch, x, n: x.new_zeros(n), strides=lambda torch, x: x.stride(),
    stream=_torch_stream, graph=_torch_graph, compiled=_torch_compiled,
    device=_torch_device,
)  # fmt: skip
_JAX = Library(
    "JAX", "jax", strides="JAX decides on the layout of its arrays", device=_jax_device,
    compiled=lambda jax, x, f, *arrays: jax.jit(lambda *of: f(*of))(*arrays),
)  # fmt: skip
_BY_PACKAGE = {"numpy": NUMPY, "cupy": _CUPY, "torch": _TORCH, "jax": _JAX, "jaxlib": _JAX}


def library_of(x: object) -> Library | None:
    """The library of an array or a scalar; None of other objects, and subclasses such as masked."""
    is_subclass = isinstance(x, np.ndarray) and type(x) not in (np.ndarray, np.memmap)
    if is_subclass or not hasattr(x, "dtype") or not hasattr(x, "shape"):
        return None
    packages = [one.__module__.partition(".")[0] for one in type(x).__mro__]
    return next((_BY_PACKAGE[one] for one in packages if one in _BY_PACKAGE), None)
