"""`gpureduce.sum`. Makes the sums that take one call of C; any_array.py makes all others.

A sum of a NumPy array with default arguments needs no other module than those imported here. The
others are imported when they are first needed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Never, cast

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import devices, dtypes, registry
from gpureduce.core.checks import refuse_unknown
from gpureduce.core.devices import LEAST_SHARED_BYTES
from gpureduce.core.results import SumResult, ran_on
from gpureduce.lazy_import import load

_NOTHING, _HOST = 0, "host"  # the defaults of `initial` and `result`, compared by `is`


def sum(
    arr: npt.ArrayLike,
    strategy: str | registry.UserKernel = "auto",
    dtype: npt.DTypeLike | None = None,
    block: int | None = None,
    grid: int | None = None,
    finish: str | None = None,
    device: str | Sequence[str] | None = None,
    allow_broken: bool = False,
    stream: object = None,
    timing: bool = True,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    initial: Any = _NOTHING,
    where: Any = True,
    out: npt.NDArray[Any] | None = None,
    result: str = _HOST,
    **_unknown: Never,
) -> SumResult:
    """Add up the elements of `arr`, all or along axes, by the named strategy.

    Parameters
    ----------
    arr
        Anything NumPy can view: any shape, stride, byte order or alignment, read-only,
        memory-mapped or empty. Or an array on a GPU (CuPy, PyTorch, JAX, Numba, anything with
        DLPack or ``__cuda_array_interface__``), which is read in place.
    strategy
        A name or alias out of `strategies`. ``"auto"`` takes what is right and quickest: ``exact``
        for floats and complex numbers, ``fast`` or ``cpu`` for integers.

        Or a kernel of yours, out of `kernel`: compiled for the card when it is first used, or for
        the emulator, where it runs in a process of its own.

        ``"exact"`` is the real-number sum of floats or complex numbers, rounded once, to nearest,
        ties to even; see Notes. It runs on the CPU, or by its kernel if `device` names one.
    dtype
        The dtype to add up in and return, as in numpy.sum; by default NumPy's own choice (int64 for
        signed integers, uint64 for unsigned ones, the same type for floats). ``exact`` does not
        cast elements: it rounds their sum to this dtype, a wider or a narrower one. The other
        strategies accumulate float16 and bfloat16 in float32 and round once.
    block
        Threads per block: a multiple of 32 from 32 to 1024; 256 by default. The kernel of ``exact``
        takes at most 384 for float64 and 512 for bfloat16, as its threads need more registers and
        shared memory. Of integers, ``exact`` is ``fast``, which chooses block and grid itself.
    grid
        Blocks. By default as many as the input needs, or, for kernels with a grid-stride loop, as
        many as the card holds at once. ``exact`` takes at most 16383.
    finish
        How block sums become one number: ``"relaunch"`` (the same kernel again), ``"host"``, or
        ``"single"`` for strategies that finish by themselves.
    device
        ``"cuda"``, ``"cuda:1"``, ``"emulator"`` or ``"cpu"``. By default the first GPU if there is
        one and the emulator otherwise; the environment's GPUREDUCE_BACKEND overrides that.

        For an array in host memory also a list, such as ``["cpu", "cuda:0"]``, or ``"cuda:*"`` for
        all GPUs: they add up the array between them, at the rates that they reach. `sum_parts` adds
        up arrays that lie on several GPUs.
    allow_broken
        Whether to run the strategies that are wrong on purpose.
    stream
        For arrays on a GPU: the CUDA stream to work on, as a number or as CuPy, PyTorch or Numba
        have them. By default the one that the array's producer works on, which is waited for and
        nothing else.
    timing
        False saves the little time that timing takes; the result's `timing` is then None.
    axis
        The axes to add up along, as in numpy.sum: a number, a tuple of numbers, or None for all. An
        empty tuple adds up nothing: it converts each element to the dtype of the sum.
    keepdims
        Whether the reduced axes stay in the result, with size 1.
    initial
        A number that is added to each sum, once. Under ``exact`` it takes part in the sum that is
        rounded once.
    where
        A boolean mask that broadcasts to the array. Elements where it is False are not added.
    out
        An array for the sums, with the shape and the dtype of the result, where the input lies. It
        must not overlap the input.
    result
        ``"device"`` leaves the sum of all elements of an array on a GPU there. Sums along axes of
        such an array always stay there.

    Returns
    -------
    SumResult
        The value and its `Timing`. With an axis, `keepdims` or `out`, the value is
        an array; without dimensions it is a scalar, except for `out` itself.

    Raises
    ------
    ValueError
        A name, block, grid or finish does not exist. The message lists the valid ones. An axis is
        named twice, or `out` or `where` has another shape.
    numpy.exceptions.AxisError
        An axis does not exist.
    TypeError
        The array or the dtype cannot be summed that way.
    MemoryError
        The host or the device has too little memory.
    CudaError
        A call of CUDA failed, or there is no GPU. After any of these errors the next call works.

    Notes
    -----
    The result of ``exact`` depends on the elements alone. It has the same bits for any order,
    device, block, grid, number of threads and number of pieces:

    - Finite elements: their sum as real numbers, rounded once. Subnormal elements count in full,
      and a subnormal sum is rounded as such.
    - Overflow: inf or -inf only if the exact sum rounds to it, even if partial sums overflow.
    - Any nan, or inf and -inf together: nan, always the quiet positive one. Infinities of one sign:
      that infinity.
    - Zeros: the sum of nothing, of zeros of either sign, and one that cancels is +0. A sum below
      zero that rounds to zero, which takes a narrower `dtype`, is -0.
    - Complex numbers: these rules apply to the real and the imaginary part separately.
    - Integers and booleans: exact in any case; with a float `dtype`, their sum rounded once.

    Where math.fsum returns, it returns the same float64. Where fsum raises, this returns the
    rounded sum (intermediate overflow) or nan (inf and -inf together). `Accumulator` is the same
    piece by piece.

    Along axes, an exact sum depends on its own elements alone: it has the bits of the sum of these
    elements, whatever the shape, the strides, the other rows and the device.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> value, timing = gpureduce.sum(np.arange(1000), strategy="warp_shfl")
    >>> int(value), timing.strategy
    (499500, 'warp_shfl')

    Along an axis:

    >>> gpureduce.sum(np.array([[1.0, 1e100], [1.0, 2.0]]), axis=0).value
    array([2.e+000, 1.e+100])
    """
    if _unknown:
        refuse_unknown("sum", _unknown, inspect.signature(sum).parameters)
    is_whole = (
        axis is None
        and out is None
        and where is True
        and keepdims is False
        and initial is _NOTHING
        and result is _HOST
    )
    chooses_launch = block is None and grid is None and finish is None
    shortest: SumResult | None = None
    if is_whole and chooses_launch:
        if (  # as _by_one_call does; to call it would take a tenth of the time
            not timing
            and type(arr) is np.ndarray
            and dtype is device is stream is None
            and type(strategy) is str
            and strategy in _ON_HOST
            and arr.nbytes < LEAST_SHARED_BYTES
        ):
            shortest = _host.sum_array(arr, strategy != "cpu", None)
        elif dtype is None or type(arr) is not np.ndarray:
            shortest = _by_one_call(arr, strategy, dtype, device, stream, timing)
    elif (
        not is_whole
        and chooses_launch
        and type(strategy) is str
        and device is None
        and stream is None
        and initial is _NOTHING
        and where is True
        and not allow_broken
        and type(keepdims) is bool
    ):
        shortest = _along_axes(arr, strategy, dtype, timing, axis, keepdims, out, result)
    if shortest is not None:
        return shortest
    if isinstance(strategy, registry.UserKernel):
        if not is_whole:
            raise TypeError(
                f"{strategy.name} is your own kernel, which sums whole arrays only: leave out "
                "axis, keepdims, initial, where, out and result"
            )
        rest = (block, grid, finish, device, allow_broken, stream, timing)
        return cast(SumResult, strategy.call("sum", arr, dtype, *rest))
    how = (strategy, dtype, block, grid, finish, device, allow_broken, stream, timing)
    any_array = _module("any_array")
    along = None if is_whole else any_array.Reduction(axis, keepdims, initial, where, out, result)
    return cast(SumResult, any_array.add(any_array.Arguments(*how), arr, along))


_shown = inspect.signature(sum)
cast(Any, sum).__signature__ = _shown.replace(parameters=list(_shown.parameters.values())[:-1])


@functools.cache
def _module(name: str) -> ModuleType:
    """A module of `core`, imported when it is first used."""
    return load(f"core.{name}")


def _by_one_call(
    arr: Any, strategy: Any, dtype: Any, device: Any, stream: object, timing: bool
) -> SumResult | None:
    """The sum with a default launch, by one call of C; None if that call cannot add it up.

    `dtype` is for arrays that are not NumPy's.
    """
    if type(strategy) is not str:
        return None
    if type(arr) is not np.ndarray:
        if device is not None:
            return None
        return cast(
            SumResult | None,
            _module("gpu_arrays").by_one_call(arr, strategy, dtype, stream, timing),
        )
    if stream is not None:
        return None
    if device is not None or strategy not in _ON_HOST:
        if timing:
            return None
        backend = device or devices.default_backend()
        return cast(
            SumResult | None, _module("gpu_arrays").sent_by_one_call(arr, strategy, backend)
        )
    if strategy == "auto" and arr.nbytes >= LEAST_SHARED_BYTES:
        return None  # a GPU may be faster
    return _host.sum_array(arr, strategy != "cpu", _fields_on_host if timing else None)


def _along_axes(
    arr: Any, strategy: str, dtype: Any, timing: bool, axis: Any, keepdims: bool, out: Any,
    result: str,
) -> SumResult | None:  # fmt: skip
    """The sums along axes by one call of C; None if that call cannot make them."""
    shortest: SumResult | None = None
    if type(arr) is not np.ndarray:
        if result in (_HOST, "device"):
            by_one_call = _module("axis_on_device").by_one_call
            shortest = by_one_call(arr, strategy, dtype, timing, axis, keepdims, out)
    elif dtype is None and out is None and result == _HOST and strategy in _ON_HOST:
        common = _fields_on_host if timing else None
        shortest = _host.sum_axis(arr, axis, keepdims, strategy != "cpu", common)
    return shortest


_ON_HOST = ("auto", "exact", "cpu")


def _fields_on_host(source: np.dtype[Any], exactly: bool) -> dict[str, Any]:
    """The fields of a timing that all sums of arrays of a dtype have in common."""
    row = registry.STRATEGIES["exact" if exactly else "cpu"]
    return ran_on(None, strategy=row.name, dtype=dtypes.name_of(source), finish=row.finishes[0])
