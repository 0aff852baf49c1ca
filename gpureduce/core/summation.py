"""`gpureduce.sum`: arguments in, result out."""

from __future__ import annotations

import time
from typing import cast

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import (
    arrays,
    calibration,
    devices,
    dtypes,
    gpu_arrays,
    on_both,
    on_device,
    on_host,
)
from gpureduce.core.request import LEAST_SHARED_BYTES, Arguments, Request, resolve, strategy_of
from gpureduce.core.results import Outcome, SumResult, Timing


def sum(
    arr: npt.ArrayLike,
    strategy: str = "auto",
    dtype: npt.DTypeLike | None = None,
    block: int | None = None,
    grid: int | None = None,
    finish: str | None = None,
    device: str | None = None,
    allow_broken: bool = False,
    stream: object = None,
    timing: bool = True,
) -> SumResult:
    """Add up all elements of `arr` by the named strategy.

    Parameters
    ----------
    arr
        Anything NumPy can view: any shape, stride, byte order or alignment, read-only,
        memory-mapped or empty. Or an array on a GPU (CuPy, PyTorch, JAX, Numba, anything with
        DLPack or ``__cuda_array_interface__``), which is read in place.
    strategy
        A name or alias out of `strategies`. ``"auto"`` takes what is right and quickest: ``exact``
        for floats and complex numbers, ``fast`` or ``cpu`` for integers.

        ``"exact"`` is the real-number sum of floats or complex numbers, rounded once, to nearest,
        ties to even; see Notes. It runs on the CPU, or by its kernel if `device` names one.
    dtype
        The dtype to add up in and return, as in numpy.sum; by default NumPy's own choice (int64 for
        signed integers, uint64 for unsigned ones, the same type for floats). float16 and bfloat16
        are accumulated in float32 and rounded once. ``exact`` does not cast elements: it rounds
        their sum to this dtype, a wider or a narrower one.
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
    allow_broken
        Whether to run the strategies that are wrong on purpose.
    stream
        For arrays on a GPU: the CUDA stream to work on, as a number or as CuPy, PyTorch or Numba
        have them. By default the one that the array's producer works on, which is waited for and
        nothing else.
    timing
        False saves the microseconds that timing takes; the result's `timing` is then None.

    Returns
    -------
    SumResult
        A named tuple of the value and its `Timing`.

    Raises
    ------
    ValueError
        A name, block, grid or finish does not exist. The message lists what does.
    TypeError
        The array or the dtype cannot be summed that way.
    MemoryError
        The host or the device has too little memory.
    CudaError
        A call of CUDA failed, or there is no GPU. After any of these errors the next call works.

    Notes
    -----
    What ``exact`` returns is defined by the elements alone, so it has the same bits whatever their
    order, the device, block, grid, number of threads or pieces:

    - Finite elements: their sum as real numbers, rounded once. Subnormal elements count in full,
      and a subnormal sum is rounded as such.
    - Overflow: inf or -inf only if the sum itself rounds to that, whatever partial sums would do.
    - Any nan, or inf and -inf together: nan, always the quiet positive one. Infinities of one sign:
      that infinity.
    - Zeros: the sum of nothing, of zeros of either sign, and one that cancels is +0. A sum below
      zero that rounds to zero, which takes a narrower `dtype`, is -0.
    - Complex numbers: all this for the real and the imaginary parts apart.
    - Integers and booleans: exact in any case; with a float `dtype`, their sum rounded once.

    Where math.fsum returns, it returns the same float64. Where fsum raises, this returns the
    rounded sum (intermediate overflow) or nan (inf and -inf together). `Accumulator` is the same
    piece by piece.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> value, timing = gpureduce.sum(np.arange(1000), strategy="warp_shfl")
    >>> int(value), timing.strategy
    (499500, 'warp_shfl')
    """
    plain = dtype is None and block is None and grid is None and finish is None
    if plain and not timing and type(strategy) is str:
        shortest = _by_one_call(arr, strategy, device, stream)
        if shortest is not None:
            return shortest
    asked = Arguments(strategy, dtype, block, grid, finish, device, allow_broken, stream, timing)
    return add(asked, arr)


def add(asked: Arguments, arr: npt.ArrayLike, into: _host.Exact | None = None) -> SumResult:
    """As `sum`; an exact sum of a host array is also added to `into`, before it is rounded."""
    start = time.perf_counter()
    strategy = strategy_of(asked.strategy, asked.allow_broken)
    if not isinstance(arr, np.ndarray):
        result = gpu_arrays.add(asked, strategy, arr, start)
        if result is not None:
            return result
    array = arrays.as_array(arr)
    if asked.stream is not None:
        raise ValueError("stream is for arrays on a GPU; this one is in host memory")
    share = 1.0
    if strategy.name == "auto" and asked.device is None and array.nbytes >= LEAST_SHARED_BYTES:
        device, share = calibration.way_for(array.nbytes)
        asked = asked._replace(device=device)
    request = resolve(asked, strategy, array.dtype)
    outcome = _add_host_array(request, array, share, asked, into)
    if not asked.timing:
        return SumResult(outcome.value, cast(Timing, None))
    return SumResult(outcome.value, _timing(request, array, outcome, start))


def _add_host_array(
    request: Request,
    array: dtypes.Array,
    share: float,
    asked: Arguments,
    into: _host.Exact | None,
) -> Outcome:
    if request.on_host:
        if asked.all_default and not into and request.strategy.name != "numpy":
            shortest = _host.sum_array(array, request.strategy.name == "exact", True)
            if shortest is not None:
                value, ms = shortest
                return Outcome(value, "perf_counter", "cpu", "cpu", kernel_ms=ms)
        return on_host.add(request, array, into)
    device = devices.choose_device(request.device, or_cpu=True)
    if share < 1:
        return on_both.add(request, array, device, share, into)
    return on_device.add(request, array, device, into)


def _by_one_call(
    arr: object, strategy: str, device: str | None, stream: object
) -> SumResult | None:
    """The sum by defaults, in one call of C; None for arrays and strategies that it cannot take."""
    if type(arr) is not np.ndarray:
        return gpu_arrays.by_one_call(arr, strategy, stream) if device is None else None
    if stream is not None:
        return None
    if device is None and strategy == "cpu":
        return _host.sum_array(arr, False, False)
    if device is None and strategy in ("auto", "exact"):
        if strategy == "auto" and arr.nbytes >= LEAST_SHARED_BYTES:
            return None  # a card may be quicker
        return _host.sum_array(arr, True, False)
    if device is None:
        device = devices.default_backend()
    return gpu_arrays.sent_by_one_call(arr, strategy, device)


def _timing(request: Request, array: dtypes.Array, outcome: Outcome, start: float) -> Timing:
    return outcome.timing(
        request.strategy.name,
        dtypes.name_of(array.dtype),
        request.finish or request.strategy.finishes[0],
        array.size,
        array.size * array.dtype.itemsize,
        (time.perf_counter() - start) * 1e3,
    )
