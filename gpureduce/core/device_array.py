"""Arrays on a GPU, for results where the library of the input has no allocator to call."""

from __future__ import annotations

import math
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np

from gpureduce.core import dtypes

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5}  # DLPack's
_BFLOAT16 = 4
_CUDA = 2


class DeviceArray:
    """Sums on a GPU of an array whose library is none of PyTorch, CuPy and JAX.

    It speaks ``__cuda_array_interface__`` and DLPack, so other libraries take it without a copy:
    ``numba.cuda.as_cuda_array(array)``, ``cupy.from_dlpack(array)``. `to_numpy` copies it to the
    host. `float`, `int` and `complex` copy a single number.

    Attributes
    ----------
    shape, strides
        As in NumPy; strides in bytes.
    dtype
        The dtype's name.
    device
        The number of the GPU.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> class OnDevice:  # an array of another library, here on the emulated GPU
    ...     array = np.ones((3, 4), np.float32)
    ...     __cuda_array_interface__ = array.__array_interface__
    >>> rows = gpureduce.sum(OnDevice(), "fast", axis=1, device="emulator").value
    >>> rows
    DeviceArray(shape=(3,), dtype='float32', device=0)
    >>> rows.to_numpy()
    array([4., 4., 4.], dtype=float32)
    """

    def __init__(
        self, memory: Any, backend: str, dtype: str, shape: tuple[int, ...],
        strides: tuple[int, ...], device: int, stream: int,
    ) -> None:  # fmt: skip
        self._memory, self._backend, self._stream = memory, backend, stream
        self._dtype, self._shape, self._strides, self._device = dtype, shape, strides, device

    # Read only: other values would describe memory that is not there.
    shape = property(attrgetter("_shape"))
    strides = property(attrgetter("_strides"))
    dtype = property(attrgetter("_dtype"))
    device = property(attrgetter("_device"))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype!r}, device={self.device})"

    def transpose(self, order: tuple[int, ...]) -> DeviceArray:
        """A view with the axes in another order."""
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"order must name each of {self.ndim} axes once, not {order}")
        shape = tuple(self.shape[i] for i in order)
        return self._view(shape, tuple(self.strides[i] for i in order))

    def __getitem__(self, key: tuple[slice | None, ...]) -> DeviceArray:
        """A view with an axis of length 1 for each None in `key`, which names all axes."""
        if (
            not isinstance(key, tuple)
            or [k for k in key if k is not None] != [slice(None)] * self.ndim
        ):
            raise TypeError("a DeviceArray takes only : for each axis, and None for a new axis")
        shape, strides = iter(self.shape), iter(self.strides)
        return self._view(
            tuple(1 if k is None else next(shape) for k in key),
            tuple(_itemsize(self.dtype) if k is None else next(strides) for k in key),
        )

    def _view(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        place = self.device, self._stream
        return DeviceArray(self._memory, self._backend, self.dtype, shape, strides, *place)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("__cuda_array_interface__ cannot describe bfloat16: use DLPack")
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": np.dtype(self.dtype).str,
            "data": (self._memory.pointer, False),
            "stream": self._stream if self._backend == "cuda" else None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self.device

    def __dlpack__(
        self, *, stream: int | None = None, max_version: Any = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:  # fmt: skip
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("a DeviceArray is exported on its own GPU and without a copy")
        if stream is not None and not (isinstance(stream, int) and -1 <= stream < 2**63):
            raise ValueError(f"stream must be None, -1 or a cudaStream_t, not {stream!r}")
        size = _itemsize(self.dtype)
        code = _BFLOAT16 if self.dtype == "bfloat16" else _CODES[np.dtype(self.dtype).kind]
        strides = tuple(step // size for step in self.strides)
        consumer = 1 if stream is None else stream
        return self._memory.dlpack(code, 8 * size, self.shape, strides, consumer)

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """A copy in host memory. Waits until the sums are there."""
        flat = np.frombuffer(self._memory.read(), dtypes.named(self.dtype))
        if flat.size == 0:
            return np.empty(self.shape, flat.dtype)
        return np.lib.stride_tricks.as_strided(flat, self.shape, self.strides)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        """Refuses: NumPy would otherwise make an array of one Python object."""
        raise TypeError(
            "a DeviceArray is in GPU memory and is never copied silently: call its to_numpy()"
        )

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __complex__(self) -> complex:
        return complex(self._number())

    def _number(self) -> Any:
        if self.shape:
            raise TypeError(
                f"only an array without dimensions is a number, not one of shape {self.shape}: "
                "call to_numpy()"
            )
        return self.to_numpy()[()]


def _itemsize(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def empty(
    module: ModuleType, shape: tuple[int, ...], dtype: str, device: int, stream: int
) -> DeviceArray:
    """An array without values, for work on a stream."""
    count = module.device_count()
    if device >= count:
        be = "is" if count == 1 else "are"
        raise ValueError(f"there is no {module.BACKEND} device {device}: there {be} {count}")
    steps = [_itemsize(dtype)]
    for size in reversed(shape):
        steps.append(steps[-1] * max(size, 1))
    nbytes = math.prod(shape) * _itemsize(dtype)
    if steps[-1] >= 2**63:  # as NumPy, also for no sums: strides have 64 bits
        raise MemoryError(f"sums of shape {shape} do not fit into memory")
    memory = module.allocate(nbytes, device, stream)
    return DeviceArray(
        memory, module.BACKEND, dtype, shape, tuple(reversed(steps[:-1])), device, stream
    )
