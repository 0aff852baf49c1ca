"""Results on a GPU, for sums along axes and by segment.

They lie on the array's GPU, in an array of the same library, whose allocator provides the memory.
JAX has no allocator to call: its arrays share the memory of a DeviceArray.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from gpureduce import _host
from gpureduce.core import device_array, dtypes, gpu_arrays, groups, results
from gpureduce.core.checks import shown
from gpureduce.core.devices import choose_device, module_of
from gpureduce.core.dtypes import Array
from gpureduce.core.plan import Arguments, Plan
from gpureduce.core.registry import Strategy
from gpureduce.core.results import SumResult, Timing, launched, ran_on
from gpureduce.core.schedule import current
from gpureduce.lazy_import import load_other

Make = Callable[[int], Any]  # allocates an array for work on a stream
Transpose = Callable[[Any, tuple[int, ...]], Any]


class Library(NamedTuple):
    """What an array library provides: allocation, transpose, stream, and the type for users."""

    maker: Callable[[tuple[int, ...], str, int], Make]  # for a shape, a dtype and a GPU
    transpose: Transpose
    stream: Callable[[Any], object] = lambda like: None  # None: the one that the array names
    result: Callable[[Any], Any] = lambda made: made  # converts what `maker` made


@functools.cache
def _torch_like(dtype: str, device: int) -> Any:
    """The method new_empty of a tensor without elements. It is quicker than torch.empty."""
    torch = load_other("torch")
    like = torch.empty((0,), dtype=getattr(torch, dtype), device=torch.device("cuda", device))
    if type(like) is not torch.Tensor:
        raise TypeError(f"PyTorch creates a {type(like).__name__} here, which has no memory")
    return like.new_empty


def _torch(shape: tuple[int, ...], dtype: str, device: int) -> Make:
    new_empty, sizes = _torch_like(dtype, device), shape or ((),)  # a tuple takes longer to read
    return lambda stream: new_empty(*sizes)


def _cupy(shape: tuple[int, ...], dtype: str, device: int) -> Make:
    cupy, kind = load_other("cupy"), dtypes.named(dtype)

    def make(stream: int) -> Any:
        with cupy.cuda.Device(device):
            return cupy.empty(shape, kind)

    return make


_JAX_WIDE = ("int64", "uint64", "float64", "complex128")


def _jax(made: device_array.DeviceArray) -> Any:
    """A JAX array in the same memory. Without 64-bit types, JAX would cut such sums to 32 bits."""
    jax = load_other("jax")
    if made.dtype in _JAX_WIDE and not jax.config.jax_enable_x64:
        return made
    return jax.dlpack.from_dlpack(made)


LIBRARIES = {
    "torch": Library(
        _torch,
        lambda array, order: array.permute(order),
        lambda like: load_other("torch")._C._cuda_getCurrentRawStream(like.device.index),
    ),
    "cupy": Library(
        _cupy,
        lambda array, order: array.transpose(order),
        lambda like: load_other("cupy").cuda.get_current_stream(),
    ),
}


_NAMESPACES = {"numpy": "numpy", "torch": "torch", "cupy": "cupy", "jaxlib": "jax.numpy"}


def root_of(kind: type) -> str:
    """The package that a type comes from."""
    return kind.__module__.partition(".")[0]


def namespace_of(kind: type) -> Any:
    """The module with the functions of a library's arrays; None if the library is unknown."""
    name = _NAMESPACES.get(root_of(kind))
    return None if name is None else load_other(name)


def awaited(result: Any, like: type) -> Any:
    """Returns a result that was computed from arrays which are freed now.

    JAX may reuse their memory before kernels on another stream have read it, so its results are
    waited for. The other libraries reuse memory in the order of the stream that we work on.
    """
    if root_of(like) == "jaxlib":
        wait = getattr(result, "block_until_ready", None) or getattr(result, "to_numpy", None)
        if wait is not None:
            wait()
    return result


def library_of(like: type, module: Any) -> Library:
    """The library that allocates the sums: the arrays' own, or DeviceArray if that is unknown."""

    def maker(shape: tuple[int, ...], dtype: str, device: int) -> Make:
        return lambda stream: device_array.empty(module, shape, dtype, device, stream)

    root = root_of(like)
    if root in LIBRARIES:
        return LIBRARIES[root]
    made = Library(maker, lambda array, order: array.transpose(order))
    return made._replace(result=_jax) if root == "jaxlib" else made


def conversion_of(
    kind: str, nbytes: int, wanted: Any, exactly: bool, groups: int
) -> tuple[dtypes.Conversion, str]:
    """How elements are added up, and the name of the sums' dtype."""
    try:
        source = gpu_arrays.source(kind, nbytes)
    except TypeError:
        raise TypeError(
            f"arrays on a GPU with elements of kind {kind!r} and {nbytes} bytes cannot be summed"
        ) from None
    conversion = dtypes.convert(source, wanted, exactly, _host.ON_GPU, groups)
    plain = kind == "B" and wanted is None
    return conversion, "bfloat16" if plain else dtypes.name_of(conversion.result)


def target_of(conversion: dtypes.Conversion, name: str) -> int:
    """C's number of the sums' dtype, which has this name."""
    return _host.LOAD_BF16 if name == "bfloat16" else dtypes.load_of(conversion.result)


def initial_of(initial: object, result: np.dtype[Any]) -> tuple[Any, Any]:
    """The initial number's real and imaginary part."""
    if type(initial) is int and initial == 0:
        return 0, 0
    if result.kind in "iu":
        return groups.initial_integer(initial, result), 0
    parts = groups.initial_floats(initial, result)
    if any(len(part) > 1 for part in parts):
        raise ValueError(
            f"on a GPU, initial must be exactly a float64, such as {float(sum(parts[0]))!r}, not "
            f"{shown(initial)}"
        )
    return sum(parts[0]), sum(parts[1])


@functools.lru_cache(256)
def _dtype_name(dtype: object) -> str:
    """The name of a library's dtype, such as ``torch.float32``, without the library's."""
    return str(dtype).rpartition(".")[2]


def check_out(out: Any, like: type, name: str, shape: tuple[int, ...]) -> None:
    """Raises if the sums of an array cannot be written to `out`. C checks where it lies."""
    dtype = _dtype_name(getattr(out, "dtype", ""))
    if root_of(type(out)) == "jaxlib":
        raise TypeError("out cannot be a JAX array, which is immutable: leave out unset")
    if isinstance(out, np.ndarray) or root_of(type(out)) != root_of(like):
        raise TypeError(
            f"out must be of type {like.__name__}, shape {shape} and dtype {name}, on the same "
            f"GPU as the array, not of type {type(out).__name__}"
        )
    if not dtype or not hasattr(out, "shape"):
        raise TypeError(
            f"out must have the attributes dtype and shape, which {type(out).__name__} lacks"
        )
    if dtype != name:
        raise TypeError(f"out must have the dtype of the sum, {name}, not {dtype}")
    if tuple(out.shape) != shape:
        raise ValueError(f"out must have the shape of the sum, {shape}, not {tuple(out.shape)}")


def finish_of(launches: int) -> str:
    """The finish of a timing: whether a second launch added up partial sums."""
    return "relaunch" if launches > 1 else "single"


def timing_of(backend: str, view: Any, name: str, found: Any, start: float) -> Timing:
    """The timing of sums that may still run on a stream. Times are read at the first access.

    `view` describes the array, and `found` is (block, grid, launches, times).
    """
    block, grid, launches, elapsed = found
    element = view.kind, view.bytes
    common = gpu_arrays.common_fields(backend, view.device, *element, name, finish_of(launches))
    fields = common | launched(block, grid, launches)
    fields["n"], fields["nbytes"] = view.count, view.count * view.bytes
    if elapsed is None:
        fields["kernel_ms"] = fields["d2h_ms"] = 0.0
    else:  # read at the first access: results.py
        fields["_elapsed"] = elapsed
    return results.timing_of(fields, start)


def request_of(
    module: Any, element: tuple[str, int], conversion: dtypes.Conversion, target: int, timed: bool,
    initial: object, how: dict[str, Any],
) -> Any:  # fmt: skip
    """C's request for sums of elements of a kind and so many bytes: csrc/bindings/device/groups.c.

    `how` says along which axes or by which segments.
    """
    first = initial_of(initial, conversion.result)
    return module.request(*element, conversion.acc, conversion.exactly, target, first, timed, **how)


@dataclass(frozen=True)
class OnGpu:
    """An array on a GPU that a call reads: its description by C, its library, and C's module."""

    call: Arguments
    like: type
    module: ModuleType
    library: Library
    view: Any

    @classmethod
    def of(cls, call: Arguments, arr: Any, waits: bool = False, beside: str = "") -> OnGpu:
        """Describes the array. `waits`: refuses a stream that is being captured.

        `beside` names another array, which lies on a GPU where these values may not.
        """
        module, like = gpu_arrays.needed_module(arr, call.device), type(arr)
        library = library_of(like, module)
        given = library.stream(arr) if call.stream is None else call.stream
        view = gpu_arrays.ask(module.view, arr, gpu_arrays.stream_number(given), waits)
        if view is None:
            raise TypeError(
                f"{beside} is on a GPU, and values, {like.__name__}, is not: copy one of them to "
                "the memory of the other"
                if beside
                else f"{like.__name__} is not on a GPU"
            )
        gpu_arrays.check_same_device(call.device, view.device)
        return cls(call, like, module, library, view)

    @property
    def element(self) -> tuple[str, int]:
        """The kind and the bytes of an element."""
        return self.view.kind, self.view.bytes

    def request(
        self, conversion: dtypes.Conversion, name: str, how: dict[str, Any], initial: object = 0
    ) -> Any:
        """C's request for results of a dtype with this name."""
        timed, target = bool(self.call.timing), target_of(conversion, name)
        return request_of(self.module, self.element, conversion, target, timed, initial, how)

    def array(self, shape: tuple[int, ...], name: str, out: Any = None) -> Any:
        """A new array for results, or `out`, checked."""
        if out is None:
            return self.library.maker(shape, name, self.view.device)(self.view.stream)
        check_out(out, self.like, name, shape)
        return out

    def result(self, value: Any, found: Any, ran: str, start: float) -> SumResult:
        """The results, with the timing of what C's run() returned."""
        value = self.library.result(value)
        if not self.call.timing:
            return SumResult(value, None)
        timing = timing_of(self.module.BACKEND, self.view, ran, found[1:-1], start)
        return SumResult(value, timing)


def send(
    plan: Plan,
    values: Array,
    other: Array | None,
    sums: Array,
    initial: object,
    how: dict[str, Any],
    conversion: dtypes.Conversion | None = None,
) -> tuple[int, dict[str, Any], Any]:
    """Adds up host arrays, which are copied to the device; `other` is a mask, ids or offsets.

    Stores the results in `sums`. `conversion` replaces the plan's. Returns the number of the
    strategy that ran, the fields of the timing, and the fault in the ids or offsets.
    """
    schedule, device = current(), choose_device(plan.device, or_cpu=True)
    module = module_of(device, traced=schedule.traced)
    by = conversion or plan.conversion
    request = request_of(
        module, element_of(values.dtype), by, dtypes.load_of(by.result), plan.timed, initial, how,
    )  # fmt: skip
    place = device.index, schedule.number, schedule.seed
    into = sums  # C writes to contiguous arrays only
    if not (sums.flags.c_contiguous and sums.flags.aligned):
        into = np.empty(sums.shape, sums.dtype)
    ran, *launch, ms, problem = module.run(request, values, other, into, *place)
    if into is not sums and problem is None:
        sums[...] = into
    h2d, kernel, d2h = ms or (0.0, 0.0, 0.0)
    times = {"h2d_ms": h2d, "kernel_ms": kernel, "d2h_ms": d2h, "finish": finish_of(launch[2])}
    return ran, ran_on(device, **times, **launched(*launch)), problem


def of_lesson(chosen: Strategy, block: int, grid: int) -> dict[str, Any]:
    """The part of C's request for a lesson's kernel."""
    if grid and not chosen.traits & _host.MANY:
        raise ValueError(f"{chosen.name} chooses its grid from the array's size: leave grid out")
    return {"strategy": chosen.index, "block": block, "grid": grid}


def element_of(dtype: np.dtype[Any]) -> tuple[str, int]:
    """The kind and the bytes of elements, for C."""
    return "B" if dtypes.is_bfloat16(dtype) else dtype.kind, dtype.itemsize
