"""The libraries whose arrays an audit copies, moves and runs. None of them is imported here."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gpureduce.core.arrays import as_array
from gpureduce.core.dtypes import Array
from gpureduce.lazy_import import load_other

_ALIGNMENT = 64  # bytes

# The methods of some libraries, and why a check that needs them does not apply to the others.
_LACKS = {
    "threads": "no call sets the number of {}'s threads",
    "stream": "{} has no streams that a caller chooses",
    "graph": "only PyTorch's functions are captured",
    "compiled": "{} has no compiler of functions",
    "moved": "{}'s arrays lie in host memory only",
}


class NotApplicable(Exception):
    """A check does not apply. The message says why."""


class Library:
    """NumPy. The other libraries differ where their classes say so."""

    name, module_name = "NumPy", "numpy"

    def __init__(self) -> None:
        self.module: Any = load_other(self.module_name)  # it made the array, so it is there

    def __getattr__(self, name: str) -> Any:
        """Raises for a method that the library lacks."""
        raise NotApplicable(_LACKS[name].format(self.name))

    def take(self, x: Any, rows: Array, axis: int) -> Any:
        """Rows of an array."""
        return self.module.take(x, rows, axis)

    def order(self, x: Any) -> list[int] | None:
        """The axes, outermost in memory first; None where the library decides on the layout."""
        return sorted(range(len(x.shape)), key=lambda axis: -abs(x.strides[axis]))

    def place(self, values: Any, order: Sequence[int], shift: int, step: int) -> Any:
        """A copy in a new buffer: from element `shift` on, elements `step` apart."""
        n = step * math.prod(values.shape)
        flat = self.zeros(shift + n, values)[shift::step]
        copy = flat.reshape([values.shape[axis] for axis in order])
        copy = self.module.moveaxis(copy, tuple(range(len(order))), tuple(order))
        copy[...] = values
        return copy

    def zeros(self, n: int, like: Any) -> Any:
        """A one-dimensional array whose address is a multiple of 64."""
        buffer = np.zeros(n * like.itemsize + _ALIGNMENT, np.uint8)
        return buffer[-buffer.ctypes.data % _ALIGNMENT :][: n * like.itemsize].view(like.dtype)

    def host(self, x: Any) -> Array:
        """The array in host memory."""
        return np.asarray(x)


class CuPy(Library):
    """CuPy, whose arrays lie on a card. Its buffers begin at multiples of 512 bytes."""

    name, module_name = "CuPy", "cupy"

    def zeros(self, n: int, like: Any) -> Any:
        return self.module.zeros(n, like.dtype)

    def host(self, x: Any) -> Any:
        return self.module.asnumpy(x)

    @contextlib.contextmanager
    def stream(self, x: Any) -> Iterator[None]:
        with x.device:
            self.module.cuda.get_current_stream().synchronize()
            with self.module.cuda.Stream(non_blocking=True) as side:
                yield
                side.synchronize()

    def moved(self, x: Any) -> Any:
        return self.module.asnumpy(x)


class Torch(Library):
    """PyTorch. Its buffers begin at multiples of 64 bytes."""

    name, module_name = "PyTorch", "torch"

    def take(self, x: Any, rows: Array, axis: int) -> Any:
        return x.index_select(axis, self.module.as_tensor(rows, device=x.device))

    def order(self, x: Any) -> list[int] | None:
        return sorted(range(x.dim()), key=lambda axis: -x.stride(axis))

    def place(self, values: Any, order: Sequence[int], shift: int, step: int) -> Any:
        return super().place(values.detach(), order, shift, step)

    def zeros(self, n: int, like: Any) -> Any:
        return self.module.zeros(n, dtype=like.dtype, device=like.device)

    def host(self, x: Any) -> Array:
        return as_array(x.detach().cpu().resolve_conj().resolve_neg())

    @contextlib.contextmanager
    def threads(self, x: Any) -> Iterator[None]:
        """One thread, or two where PyTorch has one."""
        if x.is_cuda:
            raise NotApplicable("the arrays lie on a card")
        before = self.module.get_num_threads()
        self.module.set_num_threads(1 if before > 1 else 2)
        try:
            yield
        finally:
            self.module.set_num_threads(before)

    @contextlib.contextmanager
    def stream(self, x: Any) -> Iterator[None]:
        if not x.is_cuda:
            raise NotApplicable("the arrays lie in host memory")
        cuda = self.module.cuda
        with cuda.device(x.device):
            side = cuda.Stream()
            side.wait_stream(cuda.current_stream())
            with cuda.stream(side):
                yield
            side.synchronize()

    def graph(self, f: Callable[..., Any], arrays: list[Any], read: Callable[[Any], Any]) -> Any:
        """The results of a call that was captured and played. The manual wants some calls before
        the capture, on another stream.
        """  # fmt: skip
        with self.stream(arrays[0]):
            for _ in range(3):
                f(*arrays)
        cuda, graph = self.module.cuda, self.module.cuda.CUDAGraph()
        with cuda.device(arrays[0].device):
            with cuda.graph(graph):
                found = f(*arrays)
            graph.replay()
            return read(found)

    def compiled(self, f: Callable[..., Any]) -> Any:
        return self.module.compile(lambda *arrays: f(*arrays))

    def moved(self, x: Any) -> Any:
        if not self.module.cuda.is_available():
            raise NotApplicable("PyTorch sees no card")
        return x.to("cpu" if x.is_cuda else "cuda")


class Jax(Library):
    """JAX, whose arrays cannot be changed and have no strides."""

    name, module_name = "JAX", "jax"

    def take(self, x: Any, rows: Array, axis: int) -> Any:
        return self.module.numpy.take(x, rows, axis)

    def order(self, x: Any) -> None:
        return None

    def compiled(self, f: Callable[..., Any]) -> Any:
        return self.module.jit(lambda *arrays: f(*arrays))

    def moved(self, x: Any) -> Any:
        on_cpu = all(device.platform == "cpu" for device in x.devices())
        try:
            return self.module.device_put(x, self.module.devices("gpu" if on_cpu else "cpu")[0])
        except RuntimeError:
            raise NotApplicable("JAX sees no card") from None


_LIBRARIES = {"numpy": Library, "cupy": CuPy, "torch": Torch, "jax": Jax, "jaxlib": Jax}


def library_of(x: object) -> Library | None:
    """The library of an array or a scalar; None of other objects."""
    for each in type(x).__mro__ if hasattr(x, "dtype") and hasattr(x, "shape") else ():
        if found := _LIBRARIES.get(each.__module__.partition(".")[0]):
            return found()
    return None
