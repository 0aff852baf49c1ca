"""`gpureduce.sum`: arguments in, result out; the work is done by the backends."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gpureduce import _emulator
from gpureduce.core import arrays, calibration, devices, exact, gpu_arrays, registry
from gpureduce.core.results import SumResult, Timing
from gpureduce.core.schedule import current

_SLAB_BYTES = 1 << 30  # of a sum by processors and card: between two of them Ctrl-C is heard


@dataclass
class _Tally:
    """What the launches of one sum add up to."""

    kernel_ms: float = 0.0
    h2d_ms: float = 0.0
    d2h_ms: float = 0.0
    init_ms: float = 0.0
    block: int | None = None
    grid: int | None = None
    launches: int = 0
    pieces: int = 0
    strategy: str | None = None  # what a choice came to


class _Done(NamedTuple):
    """A sum, and where and how it was made."""

    value: Any
    tally: _Tally
    source: str
    backend: str
    device: str
    peak_gb_s: float | None = None


@dataclass(frozen=True)
class _Call:
    """The checked arguments of one call."""

    strategy: registry.Strategy
    array: arrays.Array
    conversion: arrays.Conversion
    plain: bool  # NumPy's own choice of dtype
    block: int
    grid: int
    finish: str | None
    into: _emulator.Exact | None = None  # an exact sum that this one is added to
    timed: bool = True  # a card's parts, which takes some microseconds


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
    ValueError, TypeError, MemoryError, CudaError
        For arguments that do not exist, dtypes that cannot be, and what the device says. The next
        call works.

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
        quick = _quickly(arr, strategy, device, stream)
        if quick is not None:
            return quick
    return sum_into(
        None, arr, strategy, dtype, block, grid, finish, device, allow_broken, stream, timing
    )


def sum_into(
    into: _emulator.Exact | None,
    arr: npt.ArrayLike,
    strategy: str,
    dtype: npt.DTypeLike | None = None,
    block: int | None = None,
    grid: int | None = None,
    finish: str | None = None,
    device: str | None = None,
    allow_broken: bool = False,
    stream: object = None,
    timing: bool = True,
) -> SumResult:
    """As `sum`; an exact sum of a host array is also added to `into`, before it is rounded."""
    start = time.perf_counter()
    chosen = registry.find(strategy)
    registry.check_allowed(chosen, allow_broken)
    if not isinstance(arr, np.ndarray):
        on_gpu = _on_gpu(arr, chosen, dtype, (block, grid, finish), device, stream, timing, start)
        if on_gpu is not None:
            return on_gpu
    array = arrays.as_array(arr)
    if stream is not None:
        raise ValueError("stream is for arrays on a GPU; this one is in host memory")
    conversion = arrays.convert(array.dtype, dtype)
    if conversion.is_complex and "complex64" not in chosen.dtypes:
        able = [s.name for s in registry.strategies() if "complex64" in s.dtypes]
        raise TypeError(f"{chosen.name} cannot add complex numbers; {', '.join(able)} can")
    launch = _launch_arguments(chosen, block, grid, finish)
    share = 1.0
    if chosen.name == "auto" and device is None:
        device, share = calibration.way_for(array.nbytes)
    chosen, device = _resolve(chosen, device, conversion.result)
    on_host = chosen.kind == "host" or (chosen.kind == "everywhere" and device in (None, "cpu"))
    if on_host and (block is not None or grid is not None):
        raise ValueError(
            f"{strategy} has no block and grid on the CPU: name a device, or leave them out"
        )
    call = _Call(chosen, array, conversion, dtype is None, *launch, into=into, timed=timing)

    if on_host:
        done = _ON_HOST[chosen.name](call)
    elif share < 1:
        done = _on_both(call, devices.choose_device(device, or_cpu=True), share)
    else:
        done = _on_device(call, devices.choose_device(device, or_cpu=True))
    if not timing:
        return SumResult(done.value, cast(Timing, None))
    return SumResult(done.value, _timing(call, done, (time.perf_counter() - start) * 1e3))


def _quickly(arr: object, strategy: str, device: str | None, stream: object) -> SumResult | None:
    """The sum by defaults, in one call of C; None if this takes the long way."""
    if type(arr) is not np.ndarray:
        return gpu_arrays.quick_sum(arr, strategy, stream) if device is None else None
    if stream is not None:
        return None
    if device is None and strategy == "cpu":
        return _emulator.quick_sum(arr, False, False)
    if device is None and strategy in ("auto", "exact"):
        if strategy == "auto" and arr.nbytes >= calibration.LEAST_BYTES:
            return None  # a card may be quicker
        return _emulator.quick_sum(arr, True, False)
    if device is None:
        device = devices.default_backend()
    return gpu_arrays.quick_sum_sent(arr, strategy, device)


def _on_gpu(
    arr: object,
    chosen: registry.Strategy,
    dtype: npt.DTypeLike | None,
    launch: tuple[int | None, int | None, str | None],
    device: str | None,
    stream: object,
    timing: bool,
    start: float,
) -> SumResult | None:
    """The sum of an array that lies on a GPU; None if it does not."""
    module = gpu_arrays.module_for(device)
    if module is None or chosen.kind == "host" or device == "cpu":
        return None
    number = gpu_arrays.stream_number(stream)
    arguments = _launch_arguments(chosen, *launch)
    found = gpu_arrays.sum_described(module, arr, chosen, dtype, arguments, device, number, timing)
    if found is None:
        return None
    value, facts = found
    if not timing:
        return SumResult(value, cast(Timing, None))
    backend = "emulator" if module is _emulator else "cuda"
    ran = devices.choose_device("emulator" if module is _emulator else f"cuda:{facts['device']}")
    finish = launch[2] or registry.STRATEGIES[facts["strategy"]].finishes[0]
    facts |= {"device": ran.name, "peak_gb_s": ran.peak_gb_s, "finish": finish}
    return SumResult(
        value,
        Timing(
            **facts,
            h2d_ms=0.0,
            init_ms=0.0,
            total_ms=(time.perf_counter() - start) * 1e3,
            source="emulator" if module is _emulator else "cuda_event",
            backend=backend,
        ),
    )


def _resolve(
    chosen: registry.Strategy, device: str | None, result: np.dtype[Any]
) -> tuple[registry.Strategy, str | None]:
    """Turn a choice into a strategy, and refuse a device that a strategy cannot use."""
    on_host = device in (None, "cpu")
    if chosen.name == "auto":
        chosen = registry.STRATEGIES["exact"]
    if chosen.name == "exact" and not exact.is_exact(result):
        chosen = registry.STRATEGIES["cpu" if on_host else "fast"]  # integers are never rounded
    if chosen.kind == "host":
        if device not in (None, "cpu"):
            raise ValueError(f"{chosen.name} runs on the CPU; device={device!r} cannot run it")
        return chosen, None
    if chosen.kind == "everywhere":
        return chosen, device
    if device == "cpu":
        raise ValueError(
            f"{chosen.name} is a GPU kernel: device must be 'cuda' or 'emulator', or left out"
        )
    return chosen, device


def _launch_arguments(
    chosen: registry.Strategy, block: int | None, grid: int | None, finish: str | None
) -> tuple[int, int, str | None]:
    if finish is not None and not (isinstance(finish, str) and finish in registry.FINISHES):
        raise ValueError(f"finish must be one of {', '.join(registry.FINISHES)}, not {finish!r}")
    if finish is not None and finish not in chosen.finishes:
        raise ValueError(
            f"finish={finish!r} is not for {chosen.name}, which takes "
            f"{' or '.join(map(repr, chosen.finishes))}"
        )
    for name, number in (("block", block), ("grid", grid)):
        if number is not None and not chosen.launches_kernels:
            raise ValueError(f"{chosen.name} chooses its own launch: leave {name} out")
    # What a choice finishes in a single call may take several launches of what it chooses.
    finish = None if chosen.kind == "choice" else finish
    return *launch_sizes(block, grid), finish


def launch_sizes(block: int | None, grid: int | None) -> tuple[int, int]:
    """Block and grid as the engine counts them, where 0 is the default."""
    return (
        0 if block is None else arrays.count("block", block, 1024),
        0 if grid is None else arrays.count("grid", grid, 2**31 - 1),
    )


def _rounds_between(array: arrays.Array, result: np.dtype[Any]) -> bool:
    """Whether NumPy rounds partial sums to that 16-bit float.

    It adds up bfloat16 in bfloat16. It adds up float16 in float32, but rounds to float16 after each
    row or buffer of an array that is not contiguous or is cast.
    """
    if result.name == "bfloat16":
        return True
    return result == np.float16 and not (array.dtype == result and arrays.is_flat(array))


def _numpy(call: _Call) -> _Done:
    start = time.perf_counter()
    result = call.conversion.result
    if _rounds_between(call.array, result):
        total = np.sum(call.array, dtype=np.float32)
        with np.errstate(over="ignore"):
            value = total.astype(result)
    else:
        value = np.sum(call.array, dtype=result)
    tally = _Tally(kernel_ms=(time.perf_counter() - start) * 1e3)
    return _Done(value, tally, "perf_counter", "numpy", "cpu")


def _plainly(call: _Call, exactly: bool) -> _Done | None:
    """The shortest way, for arrays that it is for."""
    found = _emulator.quick_sum(call.array, exactly, True) if call.plain else None
    if found is None:
        return None
    value, ms = found
    return _Done(value, _Tally(ms), "perf_counter", "cpu", "cpu")


def _cpu(call: _Call) -> _Done:
    if quick := _plainly(call, False):
        return quick
    tally = _Tally()

    def add(piece: arrays.Array) -> bytes:
        bits, ms = _emulator.cpu_sum(piece, call.conversion.load, call.conversion.acc, 1, 0)
        tally.kernel_ms += ms
        tally.pieces += 1
        return bits

    array, conversion = call.array, call.conversion
    paired = array.dtype.kind == "c" and conversion.cast is None
    if paired and arrays.is_flat(array):
        flat = array.reshape(-1, order="A")
        bits, tally.kernel_ms = _emulator.cpu_sum(flat, conversion.load, conversion.acc, 2, 0)
        half = len(bits) // 2
        value = _join(conversion, conversion.value(bits[:half]), conversion.value(bits[half:]))
    else:
        value = _add_pieces(call, add)
    return _Done(value, tally, "perf_counter", "cpu", "cpu")


def _exactly(call: _Call) -> _Done:
    if not call.into and (quick := _plainly(call, True)):
        return quick
    total = call.into or exact.new(call.conversion.result)
    tally = _Tally(kernel_ms=exact.feed(total, call.array))
    value = exact.value(total, call.conversion.result)
    return _Done(value, tally, "perf_counter", "cpu", "cpu")


_ON_HOST = {"numpy": _numpy, "cpu": _cpu, "exact": _exactly}


def _on_device(call: _Call, device: devices.Device) -> _Done:
    schedule = current()
    module = devices.module_of(device, traced=schedule.traced)
    devices.check_can_run(device, call.strategy)
    tally = _Tally()

    def add(piece: arrays.Array, load: int = call.conversion.load) -> bytes:
        strategy, block, grid = call.strategy.index, call.block, call.grid
        if call.strategy.kind == "choice":
            strategy = -1
            if tally.strategy:  # all pieces run alike, as the timing describes them
                strategy = registry.STRATEGIES[tally.strategy].index
                block, grid = tally.block or 0, tally.grid or 0
        bits, kernel_ms, h2d_ms, d2h_ms, init_ms, block, grid, launches, _, ran = module.sum(
            piece,
            load,
            call.conversion.acc,
            strategy,
            block,
            grid,
            registry.finish_number(call.finish),
            device.index,
            schedule.number,
            schedule.seed,
            call.timed,
        )
        tally.kernel_ms += kernel_ms
        tally.h2d_ms += h2d_ms
        tally.d2h_ms += d2h_ms
        tally.init_ms += init_ms
        tally.block = tally.block or block or None
        tally.grid = tally.grid or grid or None
        tally.launches += launches
        tally.pieces += 1
        tally.strategy = tally.strategy or gpu_arrays.NAMES[ran]
        return bytes(bits)

    if call.strategy.kind == "everywhere":
        total = call.into or exact.new(call.conversion.result)
        exact.feed_by(total, call.array, add)
        value = exact.value(total, call.conversion.result)
    else:
        value = _add_pieces(call, add)
    source = "emulator" if device.backend == "emulator" else "cuda_event"
    return _Done(value, tally, source, device.backend, device.name, device.peak_gb_s)


def sum_by_both(array: arrays.Array, device: devices.Device, share: float) -> Any:
    """The sum of a flat array of integers, for measuring."""
    conversion = arrays.convert(array.dtype, None)
    call = _Call(registry.STRATEGIES["fast"], array, conversion, True, 0, 0, None, timed=False)
    return _on_both(call, device, share).value


def _on_both(call: _Call, device: devices.Device, share: float) -> _Done:
    """The card adds up its share of the array while the processors add up the rest.

    One slab after the other, for the card's part cannot be broken off by Ctrl-C.
    """
    on_host = "exact" if call.strategy.kind == "everywhere" else "cpu"
    if not arrays.is_flat(call.array):  # packing takes the processors longer than adding up
        return _ON_HOST[on_host](replace(call, strategy=registry.STRATEGIES[on_host]))
    start = time.perf_counter()
    flat, result = call.array.reshape(-1, order="A"), call.conversion.result
    by_card, by_host = call, replace(call, strategy=registry.STRATEGIES[on_host])
    if on_host == "exact":
        by_card, by_host = (replace(c, into=exact.new(result)) for c in (by_card, by_host))
    slab = max(1, _SLAB_BYTES // flat.itemsize)
    tally, values = _Tally(), []
    with concurrent.futures.ThreadPoolExecutor(1) as meanwhile:
        for first in range(0, flat.size, slab):
            part = flat[first : first + slab]
            cut = int(part.size * share)
            job = meanwhile.submit(_on_device, replace(by_card, array=part[:cut]), device)
            values.append(_ON_HOST[on_host](replace(by_host, array=part[cut:])).value)
            done = job.result()
            values.append(done.value)
            tally.launches += done.tally.launches
    if by_card.into and by_host.into:
        by_card.into.merge(by_host.into)
        value = exact.value(by_card.into, result)
        if call.into:
            call.into.merge(by_card.into)
    else:
        value = np.array(values, result).sum(dtype=result)  # which wraps around
        tally.strategy = f"cpu+{done.tally.strategy}"
    tally.block, tally.grid = done.tally.block, done.tally.grid
    tally.kernel_ms = (time.perf_counter() - start) * 1e3
    where = (f"cpu+{device.backend}", f"cpu + {device.name}")
    return _Done(value, tally, "perf_counter", *where)


def _add_pieces(call: _Call, add: Callable[[arrays.Array], bytes]) -> Any:
    """Add up an array piece by piece; complex numbers, their real and imaginary parts apart."""
    conversion = call.conversion
    if not conversion.is_complex:
        return conversion.value(_total(call.array, conversion, add))
    real = conversion.value(_total(call.array.real, conversion, add))
    if call.array.dtype.kind != "c":
        return conversion.result.type(real)
    return _join(conversion, real, conversion.value(_total(call.array.imag, conversion, add)))


def _total(
    array: arrays.Array, conversion: arrays.Conversion, add: Callable[[arrays.Array], bytes]
) -> bytes:
    pieces = arrays.pieces(array, conversion)
    bits = add(next(pieces))  # mostly, that is all
    for piece in pieces:
        more = conversion.total(add(piece))
        with np.errstate(over="ignore", invalid="ignore"):
            bits = (conversion.total(bits) + more).tobytes()
    return bits


def _join(conversion: arrays.Conversion, real: Any, imaginary: Any) -> Any:
    """A complex scalar from its parts; ``real + 1j * imaginary`` would turn inf into nan."""
    parts = np.array([real, imaginary])
    return parts.view(conversion.result)[0]


def _timing(call: _Call, done: _Done, total_ms: float) -> Timing:
    tally = done.tally
    return Timing(
        kernel_ms=tally.kernel_ms,
        h2d_ms=tally.h2d_ms,
        d2h_ms=tally.d2h_ms,
        init_ms=tally.init_ms,
        total_ms=total_ms,
        source=done.source,
        backend=done.backend,
        device=done.device,
        strategy=tally.strategy or call.strategy.name,
        dtype=arrays.name_of(call.array.dtype),
        block=tally.block,
        grid=tally.grid,
        finish=call.finish or call.strategy.finishes[0],
        launches=tally.launches,
        n=call.array.size,
        nbytes=call.array.size * call.array.dtype.itemsize,
        peak_gb_s=done.peak_gb_s,
        pieces=max(tally.pieces, 1),
    )
