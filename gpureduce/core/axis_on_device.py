"""Sums along axes by kernels, of arrays on a GPU and of host arrays.

The sums of an array on a GPU lie on the same GPU, in an array of the same library, whose allocator
provides the memory. The launches are put on a stream, and nothing waits for them.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpureduce import _host
from gpureduce.core import (
    arrays,
    device_array,
    device_results,
    digits,
    dtypes,
    gpu_arrays,
    groups,
    registry,
)
from gpureduce.core.dtypes import Array
from gpureduce.core.groups import Reduction
from gpureduce.core.moments import DEVIATION, PRODUCT, SQUARE, WEIGHTED
from gpureduce.core.plan import (
    ROUND_ONCE,
    Arguments,
    Plan,
    check_levels,
    launch_sizes,
    strategy_of,
)  # fmt: skip
from gpureduce.core.results import Outcome, SumResult, Timing

_MOST_KNOWN = 256  # array descriptions that a _Plan caches


def check_strategy(strategy: registry.Strategy, *others: str) -> None:
    """Raises if the strategy has no kernel for sums along an axis.

    The error also lists `others`, which add up along axes without a kernel.
    """
    if strategy.name not in ("auto", "exact", "fast") and strategy.kind != "axis":
        able = [s.name for s in registry.strategies(internal=True) if s.kind == "axis"]
        where = "" if others else " of an array on a GPU"
        raise ValueError(
            f"{strategy.name} cannot sum along an axis or take initial, where or out{where}: use "
            f"one of {', '.join(('auto', 'exact', 'fast', *others, *able))}"
        )


def _along(
    strategy: registry.Strategy, axes: tuple[int, ...], keepdims: object, block: int, grid: int,
    as_digits: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The part of C's request that describes the axes and the launch."""
    how: dict[str, Any] = {"axes": groups.bits(axes)}
    if keepdims:
        how["keepdims"] = True
    if strategy.kind == "axis":
        how["strategy"] = strategy.index
    if block or grid:
        how |= {"block": block, "grid": grid}
    if as_digits:
        how["as_digits"] = True
    return how


def _name(strategy: registry.Strategy, exactly: bool, ran: int, launches: int) -> str:
    """The strategy for a timing: the named one, or the kernel that `fast` chose."""
    if strategy.kind == "axis" or not launches:
        return strategy.name
    return "exact" if exactly else registry.name_at(ran)


def _sums_in_memory(
    shape: tuple[int, ...], steps: tuple[int, ...], axes: tuple[int, ...], keepdims: object,
    transpose: device_results.Transpose,
) -> tuple[tuple[int, ...], Callable[[Any], Any] | None]:  # fmt: skip
    """The shape to allocate for the sums, and a function that gives them the result's shape.

    In memory, the sums are in the order of the array's kept axes.
    """
    kept = [i for i in range(len(steps)) if i not in axes]
    order = sorted(kept, key=lambda i: -abs(steps[i]))
    made = tuple(shape[i] for i in order)
    permuted = tuple(order.index(i) for i in kept)
    if keepdims and shape:
        index = tuple(None if i in axes else slice(None) for i in range(len(shape)))
        return made, lambda sums: transpose(sums, permuted)[index]
    return made, None if order == kept else lambda sums: transpose(sums, permuted)


# --- host arrays -------------------------------------------------------------------------------


def add_host(plan: Plan, array: Array, how: Reduction) -> Outcome:
    """The sums of a host array: it is copied to the device, and the sums are copied back."""
    conversion, result = plan.conversion, plan.conversion.result
    check_strategy(plan.strategy, "cpu", "numpy")
    job = groups.checked(how, array, result)
    array = arrays.without_gaps(array, conversion.elements or array.dtype)
    mask = None if job.mask is None else arrays.without_gaps(job.mask, job.mask.dtype)
    shape, arrange = _sums_in_memory(
        array.shape, array.strides, job.axes, job.keepdims, np.transpose
    )
    made = np.empty(shape, result)
    sums = arrange(made) if arrange else made
    along = _along(plan.strategy, job.axes, job.keepdims, plan.block, plan.grid)
    ran, fields, _ = device_results.send(plan, array, mask, sums, how.initial, along)
    fields["strategy"] = _name(plan.strategy, conversion.exactly, ran, fields["launches"])
    if job.out is not None:
        job.out[...] = sums
    return Outcome(how.out if job.out is not None else sums if sums.ndim else sums[()], fields)


# --- arrays on a GPU ---------------------------------------------------------------------------


class _Known(NamedTuple):
    """The cached request for arrays of one description, and the layout of their sums."""

    make: device_results.Make
    beside: Callable[[str], device_results.Make]  # makes arrays of a dtype, laid out as the sums
    shape: tuple[int, ...]
    dtype: str
    request: object  # for C
    exactly: bool


OVER_ONE, OVER_COUNT, OVER_WEIGHTS = range(3)  # gr_over


class Made(NamedTuple):
    """A quotient, variance or root of exact sums, rounded once: see csrc/exact/finish.h."""

    kind: int
    root: bool
    term: int
    over: int
    ddof: float = 0.0
    mean: float = 0.0
    least: int = 0  # with element counts: groups of fewer elements give nan


class _Plan:
    """Adds up arrays of one type by the same call. Caches a request for each description."""

    def __init__(
        self, call: Arguments, strategy: registry.Strategy, how: Reduction, like: type,
        module: Any, as_digits: bool = False, made: Made | None = None,
    ) -> None:  # fmt: skip
        self.call, self.strategy, self.how, self.like, self.module = (
            call, strategy, how, like, module,
        )  # fmt: skip
        self.as_digits, self.made = as_digits, made
        self.library = device_results.library_of(like, module)
        self.known: dict[bytes, _Known] = {}  # by the arrays' descriptions

    def run(
        self, view: Any, out: Any, start: float, other: Any = None, mean: Any = None
    ) -> tuple[Any, Timing | None, _Known]:  # fmt: skip
        """Adds up the array that `view` describes. `other` has the second factors of products.

        `mean` is an array of given means, for variances about them.
        Returns the sums, their timing (None without timing), and the _Known of such arrays.
        """
        known = self.known.get(view.key)
        if known is None:
            known = self._learn(view)
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[view.key] = known
        if self.how.where is not True:
            other = _mask(self.how.where, view.shape)
        if out is not None:
            device_results.check_out(out, self.like, known.dtype, known.shape)
        if self.made is not None and (self.how.where is not True or mean is not None):
            value = known.make(view.stream)
            numbers = self._numbers(known, view, other, mean)
            found = self.module.run(known.request, view, other, value, 0, 0, 0, *numbers)
            if out is not None:
                out[...] = value
                value = out
        else:
            value = known.make(view.stream) if out is None else out
            found = self.module.run(known.request, view, other, value)
        if not self.call.timing:
            return value, None, known
        ran, *launch, _ = found
        name = _name(self.strategy, known.exactly, ran, launch[2])
        timing = device_results.timing_of(self.module.BACKEND, view, name, launch, start)
        vars(timing)["initial"] = bool(self.how.initial)
        return value, timing, known

    def _numbers(self, known: _Known, view: Any, mask: Any, mean: Any) -> list[Any]:
        """Arrays of the element counts and of the means of the results; None without them."""
        if mean is not None:
            axes = groups.reduced_axes(self.how.axis, len(view.shape))
            mean = broadcast(mean, groups.shape_of_result(view.shape, axes, True), "mean")
        found: list[Any] = []
        for source, dtype in ((mask, "int64"), (mean, "float64")):
            if source is None:
                found.append(None)
                continue
            call = self.call._replace(dtype=None if source is mask else dtype, timing=False)
            how = Reduction(self.how.axis, self.how.keepdims)
            plan = _Plan(call, self.strategy, how, type(source), self.module)
            of = gpu_arrays.ask(self.module.view, source, view.stream)
            if of is None:
                name = "where" if source is mask else "mean"
                raise TypeError(f"{name} must lie on the same GPU as the array")
            found.append(known.beside(dtype)(view.stream))
            self.module.run(plan._learn(of).request, of, None, found[-1])
        return found

    def _learn(self, view: Any) -> _Known:
        call, how, kind, shape = self.call, self.how, view.kind, view.shape
        check_strategy(self.strategy)
        if self.made is not None:
            conversion, name = result_of(self.made, kind, view.bytes, call.dtype)
        else:
            wanted = digits.dtype_for(kind) if self.as_digits else call.dtype
            conversion, name = device_results.conversion_of(
                kind, view.bytes, wanted, self.strategy.name in ROUND_ONCE, _host.AXES
            )
        check_levels(self.strategy, conversion)
        axes = groups.reduced_axes(how.axis, len(shape))
        target = device_results.target_of(conversion, name)
        sizes = launch_sizes(call.block, call.grid)
        along = _along(self.strategy, axes, how.keepdims, *sizes, self.as_digits)
        if self.made is not None:
            along["made"] = self.made
        request = device_results.request_of(
            self.module, (kind, view.bytes), conversion, target, bool(call.timing), how.initial,
            along,
        )  # fmt: skip
        sums = groups.shape_of_result(shape, axes, how.keepdims)
        first, arrange = _sums_in_memory(
            shape, view.steps, axes, how.keepdims, self.library.transpose
        )
        if self.as_digits:
            first, arrange, name = (*sums, digits.numbers_of(kind)), None, "int64"

        device = view.device  # _Known keeps no view, which would keep its array alive

        def beside(dtype: str) -> device_results.Make:
            made = self.library.maker(first, dtype, device)
            return (lambda stream: arrange(made(stream))) if arrange else made

        return _Known(beside(name), beside, sums, name, request, conversion.exactly)


def result_of(made: Made, kind: str, nbytes: int, dtype: Any) -> tuple[dtypes.Conversion, str]:
    """How such elements are converted, and the name of the result's dtype.

    Raises if the result or its dtype is not supported.
    """
    if kind == "c" and made.kind == DEVIATION:
        raise TypeError(
            "on a GPU, variances with mean= take real arrays only: compute them from the real and "
            "imaginary parts"
        )
    is_average = made.term == WEIGHTED
    if kind in "biu" and made.term >= PRODUCT and (nbytes > 4 or not is_average):
        what = "averages" if is_average else "products"
        raise TypeError(
            f"on a GPU, exact {what} do not take {gpu_arrays.source(kind, nbytes)}: convert the "
            "array to float64 first, which holds integers up to 2^53 exactly"
        )
    is_joined = kind == "c" and made.term == SQUARE  # both parts give one real result
    part = None if dtype is None or not is_joined else dtypes.rounded_to(dtype)
    if part is not None and part.kind == "c":
        raise TypeError(f"variances are real numbers: dtype must be a real dtype, not {part}")
    if dtype is None and kind in "biu":
        dtype = "float64"
    elif is_joined:
        dtype = None
    width = min(nbytes, 4) if kind in "iu" else nbytes  # integers of 64 bits are exact here, too
    conversion, name = device_results.conversion_of(kind, width, dtype, True, _host.AXES)
    if is_joined:
        result = part or dtypes.part_of(conversion.result)
        conversion = dataclasses.replace(conversion, result=result)
        name = dtypes.name_of(conversion.result)
    return conversion, name


def numbers_in(arr: Any, where: Any = True) -> Any:
    """A mask, on the same GPU, of the elements that are not nan and that another mask selects."""
    mask = compared(arr, arr == arr)
    return mask if where is True else mask & _mask(where, tuple(arr.shape))


def compared(arr: Any, mask: Any) -> Any:
    """Returns the mask. Raises if the array's library did not compare element by element."""
    if str(getattr(mask, "dtype", "")).rpartition(".")[2] != "bool":
        raise TypeError(
            f"nan functions and counts on a GPU compare the elements, which {type(arr).__name__} "
            "cannot do: pass an array of CuPy, PyTorch or JAX"
        )
    return mask


def library_of(arr: Any) -> Any:
    """The module with the functions of an array's library."""
    found = device_results.namespace_of(type(arr))
    if found is None:
        raise TypeError(
            f"{type(arr).__name__} belongs to a library that gpureduce does not know: pass an "
            "array of CuPy, PyTorch or JAX"
        )
    return found


def spread_weights(weights: Any, shape: tuple[int, ...], axis: Any) -> Any:
    """Weights of an array of this shape, or of its axes, in the array's shape."""
    axes, own = groups.reduced_axes(axis, len(shape)), tuple(getattr(weights, "shape", ()))
    if own == shape:
        return weights
    given = axes if axis is None else [i % len(shape) for i in np.atleast_1d(axis).tolist()]
    if own != tuple(shape[i] for i in given):
        raise ValueError(
            f"weights has the shape {own}: it must lie where the array lies and have the array's "
            f"shape, {shape}, or the shape of the axes {tuple(given)}"
        )
    ranks = tuple(sorted(given).index(i) for i in given)
    if ranks != tuple(range(len(ranks))):
        weights = library_of(weights).moveaxis(weights, tuple(range(len(ranks))), ranks)
    weights = weights.reshape(tuple(n if i in axes else 1 for i, n in enumerate(shape)))
    return broadcast(weights, shape, "weights")


def _mask(where: Any, shape: tuple[int, ...]) -> Any:
    """The mask in the array's shape, as a view by its own library."""
    dtype = str(getattr(where, "dtype", "")).rpartition(".")[2]
    if dtype != "bool":
        wrong = f" of {dtype}" if dtype else ", which has no attribute dtype"
        raise TypeError(
            f"where must be an array of booleans on the same GPU, not {type(where).__name__}{wrong}"
        )
    return broadcast(where, shape, "where")


def broadcast(array: Any, shape: tuple[int, ...], name: str) -> Any:
    """An array of this shape, as a view by its own library."""
    own = getattr(array, "shape", None)
    if not isinstance(own, tuple):
        raise TypeError(f"{name} must be an array with a shape, not {type(array).__name__}")
    if own == shape:
        return array
    library = device_results.namespace_of(type(array))
    if library is None or device_results.root_of(type(array)) == "jaxlib":  # which would copy it
        raise ValueError(
            f"{name} has the shape {tuple(own)}; as a {type(array).__name__} it must have {shape}"
        )
    try:
        return library.broadcast_to(array, shape)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"{name} has the shape {tuple(own)}, which does not broadcast to {shape}"
        ) from error


def add_gpu(
    call: Arguments, strategy: registry.Strategy, arr: Any, how: Reduction, start: float,
    as_digits: bool = False, made: Made | None = None, other: Any = None, mean: Any = None,
) -> SumResult:  # fmt: skip
    """Sums of an array on a GPU, or quotients, variances or roots of them, on the same GPU."""
    waits = how.axis is None and not how.keepdims and how.out is None and how.result == "host"
    of = device_results.OnGpu.of(call, arr, waits=waits)
    plan = _Plan(call, strategy, how, of.like, of.module, as_digits, made)
    value, timing, known = plan.run(of.view, how.out, start, other, mean)
    value = _on_host(value, known.dtype) if waits else of.library.result(value)
    return SumResult(value, timing)


def by_one_call(
    arr: Any, strategy: str, dtype: Any, timing: bool, axis: Any, keepdims: bool, out: object,
    made: Made | None = None, other: Any = None,
) -> SumResult | None:  # fmt: skip
    """The sums along an axis of an array on a GPU; None if this shortcut does not apply."""
    start = time.perf_counter() if timing else 0.0
    if not (type(axis) is int or axis is None) and (
        type(axis) is not tuple or not all(type(one) is int for one in axis)
    ):
        return None  # True == 1: the cache of _plan_for would take axis=True for axis=1
    if dtype is not None and not gpu_arrays.is_quick(dtype):
        return None
    like: Any = type(arr)  # to mypy, a type is not hashable
    plan = _plan_for(like, strategy, dtype, bool(timing), axis, keepdims, made)
    if plan is None:
        return None
    view = gpu_arrays.ask(plan.module.view, arr, 0)
    if view is None:
        return None
    return SumResult(*plan.run(view, out, start, other)[:2])


@functools.lru_cache(256)
def _plan_for(
    like: type, strategy: str, dtype: Any, timing: bool, axis: Any, keepdims: bool,
    made: Made | None,
) -> _Plan | None:  # fmt: skip
    """The plan for arrays of a type; None if C cannot find the stream that uses them."""
    module, root = gpu_arrays.module_for(None), device_results.root_of(like)
    names_its_stream = root == "cupy" or hasattr(like, "__dlpack_c_exchange_api__")
    if module is None or root not in device_results.LIBRARIES or not names_its_stream:
        return None
    call, how = Arguments(strategy, dtype, timing=timing), Reduction(axis, keepdims)
    return _Plan(call, strategy_of(strategy), how, like, module, made=made)


def made_gpu(
    arr: Any, made: Made, axis: Any, dtype: Any = None, out: Any = None, keepdims: Any = False,
    other: Any = None, device: str | None = None, where: Any = True, mean: Any = None,
) -> Any:  # fmt: skip
    """Means, variances or norms along axes of an array on a GPU, which stay on that GPU."""
    call = Arguments("exact", dtype, device=device, timing=False)
    how = Reduction(axis, keepdims, 0, where, out, "device")
    exact = strategy_of("exact")
    return add_gpu(call, exact, arr, how, 0.0, made=made, other=other, mean=mean).value


def digits_gpu(arr: Any, axis: object, device: str | None, stream: object) -> Any:
    """The digits of the exact sums of an array on a GPU, along a last axis, on that GPU."""
    call = Arguments("exact", device=device, stream=stream, timing=False)
    how = Reduction(axis, result="device")
    return add_gpu(call, strategy_of("exact"), arr, how, 0.0, as_digits=True).value


def _on_host(value: Any, result: str) -> Any:
    """Copies a single sum to the host, as a NumPy scalar. Waits for it."""
    if isinstance(value, device_array.DeviceArray):
        return value.to_numpy()[()]
    return dtypes.named(result).type(value.item())
