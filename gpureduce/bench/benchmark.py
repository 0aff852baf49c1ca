"""Benchmarks strategies and other libraries side by side.

Measures:

``kernel``
    Only the launches: no Python, no copies, no transfer of the result. On a GPU, a CUDA graph of
    many sums is replayed between two events; on the emulator, the clock is read. Several copies of
    the input are read in turn, so that it does not stay in the L2 cache (``cold``). On the emulator
    and for very small inputs it does stay there (``warm``). Kernels that can overlap do so.
``apart``
    Like ``kernel``, but sums do not overlap: a word is written between any two. The time of the
    writes alone is subtracted. Strategies without launches are left out.
``call``
    From an array of a library, on a GPU or (NumPy's) in host memory, to a Python number.
``host``
    From a NumPy array to a number, with all copies. With PyTorch and a GPU, four references for
    sums on the GPU are measured, too: a copy from pinned memory, `fast` of a pinned array, and the
    write to pinned memory, without and with a copy to the GPU.
``explain``, ``count``
    A call of `gpureduce.explain`. ``explain`` counts sampled blocks, ``count`` runs every block.
    Both use one processor.

Contenders alternate, several times, so that clock drift and other load affect all of them equally.
Launches on arrays of 1 GiB and more are measured one contender after the other: each round copies
the array to the card, which takes longer than its sums.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpureduce.bench import libraries
from gpureduce.bench.contenders import arrays as _contenders
from gpureduce.bench.contenders.arrays import WAYS, Contender, Input, array_of
from gpureduce.core import devices, registry
from gpureduce.core.checks import listed, one_of, whole
from gpureduce.core.dtypes import convert, named
from gpureduce.core.request import launch_sizes
from gpureduce.core.summation import sum as sum_of

if TYPE_CHECKING:
    from gpureduce.kernels.kernel import Kernel

MEASURES = ("kernel", "apart", "call", "host", "explain", "count")
MOST_REPEATS = 2**31 - 1
_ROUNDS = 3
_LARGE_BYTES = 2**30


@dataclass(frozen=True)
class Measurement:
    """The time of one sum, over several runs; see `benchmark`.

    Attributes
    ----------
    strategy
        The strategy, or the library.
    dtype, n, nbytes
        The dtype of the elements, how many there are, and their bytes.
    block, grid
        Threads per block and blocks; None where there are none.
    device, source
        The device's name, and the clock: see `Timing`.
    cache
        ``"cold"`` or ``"warm"``: whether the input was in the L2 cache.
    repeats
        The number of runs.
    median_us, low_us, high_us
        Microseconds: the median, the fastest and the slowest run.
    peak_gb_s
        The card's bandwidth by its data sheet; None off a GPU.
    measure
        The measure, as in `benchmark`.
    producer
        The library whose array was added up.
    offset
        Elements between the array's start and a 512-byte boundary.
    error_ulps
        The distance of the sum from the exact one, in units in its last place; None where that has
        no meaning.
    way
        How `sum` is called, where calls are measured: see `benchmark`.

    Examples
    --------
    >>> import gpureduce
    >>> row, = gpureduce.benchmark(["sequential"], [1000], repeats=3, device="emulator")
    >>> row.strategy, row.n, row.block, row.grid, row.error_ulps
    ('sequential', 1000, 256, 4, 0.0)
    >>> row.low_us <= row.median_us <= row.high_us
    True
    """

    strategy: str
    dtype: str
    n: int
    nbytes: int
    block: int | None
    grid: int | None
    device: str
    source: str
    cache: str
    repeats: int
    median_us: float
    low_us: float
    high_us: float
    peak_gb_s: float | None
    measure: str = "kernel"
    producer: str = ""
    offset: int = 0
    error_ulps: float | None = None
    way: str = ""

    @property
    def gb_s(self) -> float:
        """Bytes of the input by the median time."""
        return self.nbytes / self.median_us / 1e3

    @property
    def elements_per_us(self) -> float:
        """Millions of elements a second."""
        return self.n / self.median_us

    @property
    def percent_of_peak(self) -> float | None:
        """`gb_s` in percent of the card's theoretical bandwidth; None without a GPU."""
        return 100 * self.gb_s / self.peak_gb_s if self.peak_gb_s else None


@dataclass(frozen=True)
class _Plan:
    """The arguments of `benchmark` that are the same for all groups."""

    strategies: tuple[Any, ...]
    blocks: tuple[int | None, ...]
    grids: tuple[int | None, ...]
    repeats: int
    peers: tuple[str, ...]
    ways: tuple[str, ...]


def _kernels(given: Input, plan: _Plan, *, apart: bool = False) -> Iterator[Contender]:
    names = [*plan.strategies, *(["cub"] if "cub" in plan.peers else [])]
    every = dict.fromkeys(map(_row, names))
    rows = [row for row in every if not apart or _launches(row) or row.kind != "host"]
    if every and not rows:
        told = ", ".join(row.name for row in every)
        raise ValueError(f"{told} launches nothing that could be measured apart")
    for row in rows:
        launched = _launches(row)
        for block in plan.blocks if launched else (None,):
            for grid in plan.grids if launched else (None,):
                yield _contenders.kernel(given, row, block, grid, apart=apart)
    if libraries.LOAD_ONLY in plan.peers and not given.offset:
        yield _contenders.load_only(given, apart=apart)


def _row(strategy: Any) -> Any:
    """The line of the registry, or a user's kernel as it is."""
    return strategy if isinstance(strategy, registry.UserKernel) else registry.find(strategy)


def _launches(row: Any) -> bool:
    return isinstance(row, registry.UserKernel) or row.launches_kernels


def _producers(given: Input, plan: _Plan) -> list[str]:
    """The libraries whose arrays are added up by calls: NumPy, if no other one is named."""
    dtype, device = given.array.dtype.name, devices.choose_device(given.device)
    named = [
        peer.name
        for peer in libraries.PEERS
        if peer.name in plan.peers
        and libraries.takes(peer.name, dtype)
        and (device.backend == "cuda" or peer.needs_card)  # without a card, only if it is named
    ]
    return named + ["numpy"] * ("numpy" in plan.peers or not named)


def _calls(given: Input, plan: _Plan) -> Iterator[Contender]:
    for producer in _producers(given, plan):
        ours = [
            name
            for name in plan.strategies
            if producer == "numpy" or _launches(_row(name)) or _row(name).kind != "host"
        ]
        for way, name in itertools.product(plan.ways, dict.fromkeys((*ours, producer))):
            made = _contenders.call(given, name, producer, way)
            if made:
                yield made


def _hosts(given: Input, plan: _Plan) -> Iterator[Contender]:
    others = [
        p
        for p in plan.peers
        if p not in ("cub", libraries.LOAD_ONLY) and libraries.takes_host(p, given.array.dtype.name)
    ]
    for name in dict.fromkeys((*plan.strategies, *others)):
        yield _contenders.on_host(given, name)
    if "torch" in plan.peers and devices.choose_device(given.device).backend == "cuda":
        yield from _contenders.through_pinned(given)


def _explanations(given: Input, plan: _Plan, *, sample: bool) -> Iterator[Contender]:
    for row in map(_row, plan.strategies):
        for block in plan.blocks if _launches(row) else ():
            for grid in plan.grids:
                yield _contenders.explaining(given, row, block, grid, sample=sample)


def in_turns(
    contenders: Sequence[Contender], repeats: int, most: int = _ROUNDS
) -> list[list[float]]:
    """The times of each contender. Contenders alternate in several rounds, at most `most`."""
    times: list[list[float]] = [[] for _ in contenders]
    quick = all(c.source == "emulator" for c in contenders) or len(contenders) == 1
    rounds = 1 if quick else min(most, repeats)
    for turn in range(rounds):
        share = repeats // rounds + (turn < repeats % rounds)
        for i, contender in enumerate(contenders):
            times[i] += contender.run(share)
    return times


def _exact(given: Input) -> Any:
    """The correctly rounded sum."""
    return sum_of(given.array, "exact", given.accumulate and given.conversion.result).value


def _error_ulps(value: Any, exact: Any) -> float | None:
    value, exact = np.asarray(value), np.asarray(exact)
    if not np.isfinite(exact) or not np.isfinite(value):
        return None
    if exact.dtype.kind in "iub":
        return float(abs(int(value) - int(exact)))
    if exact.dtype.kind == "c":
        parts = (_error_ulps(v, e) for v, e in ((value.real, exact.real), (value.imag, exact.imag)))
        return max((part for part in parts if part is not None), default=None)
    precision = {2: 10 if exact.dtype.kind == "f" else 7, 4: 23, 8: 52}[exact.dtype.itemsize]
    _, exponent = np.frexp(float(exact))
    return float(abs(float(value) - float(exact)) / 2.0 ** (int(exponent) - 1 - precision))


def _measurement(
    given: Input, contender: Contender, measure: str, times: list[float], exact: Any
) -> Measurement:
    array = given.array
    return Measurement(
        strategy=contender.strategy,
        dtype=str(array.dtype),
        n=array.size,
        nbytes=array.nbytes,
        block=contender.block,
        grid=contender.grid,
        device=contender.device,
        source=contender.source,
        cache=contender.cache,
        repeats=len(times),
        median_us=statistics.median(times),
        low_us=min(times),
        high_us=max(times),
        peak_gb_s=contender.peak_gb_s,
        measure=measure,
        producer=contender.producer,
        offset=given.offset,
        error_ulps=_error_ulps(contender.value(), exact),
        way=contender.way,
    )


_MAKERS: dict[str, Callable[[Input, _Plan], Iterator[Contender]]] = {
    "kernel": _kernels,
    "apart": functools.partial(_kernels, apart=True),
    "call": _calls,
    "host": _hosts,
    "explain": functools.partial(_explanations, sample=True),
    "count": functools.partial(_explanations, sample=False),
}


def _group(given: Input, measure: str, plan: _Plan) -> Iterator[Measurement]:
    contenders = list(_MAKERS[measure](given, plan))
    in_one = measure in ("kernel", "apart") and given.array.nbytes >= _LARGE_BYTES
    times = in_turns(contenders, plan.repeats, 1 if in_one else _ROUNDS)
    exact = _exact(given)
    for contender, found in zip(contenders, times, strict=True):
        yield _measurement(given, contender, measure, found, exact)
    contenders.clear()
    libraries.free(plan.peers)


def benchmark(
    strategies: Sequence[str | Kernel],
    sizes: Sequence[int] = (2**20,),
    dtypes: Sequence[str] = ("int32",),
    blocks: Sequence[int | None] = (None,),
    grids: Sequence[int | None] = (None,),
    device: str | None = None,
    repeats: int = 11,
    accumulate: str | None = None,
    *,
    measure: Sequence[str] = ("kernel",),
    peers: Sequence[str] = (),
    ways: Sequence[str] = ("timing=False",),
    offset: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> Iterator[Measurement]:
    """Measure every combination. Those of one dtype and size alternate.

    Parameters
    ----------
    strategies
        Names or aliases out of `gpureduce.strategies`, or kernels of yours, out of `kernel`.
    sizes, dtypes
        Numbers of elements, and their dtypes.
    blocks, grids
        Launch sizes for kernels that take them.
    device
        As in `gpureduce.sum`.
    repeats
        Runs that follow a warm-up.
    accumulate
        The dtype to add up in, as `dtype=` of `gpureduce.sum` (``"int32"`` for the lectures'
        ladder).
    measure
        ``"kernel"``: the launches alone, back to back. ``"apart"``: the launches, with a write
        between two sums. ``"call"``: from an array of each of the peers, or of NumPy, to a Python
        number, in the named ways. ``"host"``: from a NumPy array to a number, copies included.
        ``"explain"`` and ``"count"``: a call of `explain`, by sampled blocks or by all.
    peers
        Other libraries to measure: ``"cub"``, ``"numpy"``, ``"cupy"``, ``"torch"``, ``"jax"``, or
        ``"all"`` that are installed. ``"load_only"`` is the limit: a kernel that loads the array
        and stores one word.
    ways
        How to call `sum`: ``"default"``, ``"timing=False"``, ``"dtype="`` (the default result's
        dtype, named), ``"strided"`` (every second element), ``"cast"`` (another dtype). All but the
        first have ``timing=False``. A strategy that cannot be called so is left out.
    offset
        The number of elements between a 512-byte boundary and the array's start (kernels only).
    progress
        Called with the number of groups that are done, the number of all, and the next one's name.

    Examples
    --------
    >>> import gpureduce
    >>> names = ["interleaved_mod", "sequential"]
    >>> rows = gpureduce.benchmark(names, sizes=[1000, 2000], repeats=3, device="emulator")
    >>> [row.n for row in rows if row.strategy == "sequential"]
    [1000, 2000]
    """
    strategies, sizes = listed("strategies", strategies), listed("sizes", sizes)
    dtypes, measure = listed("dtypes", dtypes), listed("measure", measure)
    blocks, grids = listed("blocks", blocks), listed("grids", grids)
    peers = listed("peers", peers)
    if device is not None:  # host strategies would ignore a wrong device
        devices.choose_device(device)
    for block, grid in itertools.product(blocks, grids):
        launch_sizes(block, grid)
    sizes = [whole("sizes", n, 1, 2**63 - 1) for n in sizes]
    offset = whole("offset", offset, 0, 2**31 - 1)
    plan = _Plan(
        tuple(
            registry.find(name).name if isinstance(name, str) else _row(name) for name in strategies
        ),
        blocks,
        grids,
        whole("repeats", repeats, 1, MOST_REPEATS),
        libraries.installed(peers, device),
        listed("ways", ways),
    )
    for name in measure:
        one_of("measure", name, MEASURES)
    for name in plan.ways:
        one_of("ways", name, WAYS)
    groups = [(d, n, m) for d in dtypes for n in sizes for m in measure]
    for done, (dtype, n, what) in enumerate(groups):
        if progress:
            progress(done, len(groups), f"{what} {dtype} {n}")
        conversion = convert(named(dtype), accumulate)
        if conversion.cast is not None:
            raise TypeError(f"{dtype} cannot be added up in {accumulate} without a cast")
        if conversion.is_complex and what != "host":
            raise TypeError(f"{dtype} can be measured as host arrays only: measure=['host']")
        given = Input(array_of(dtype, n), conversion, accumulate, device, offset)
        yield from _group(given, what, plan)
    if progress:
        progress(len(groups), len(groups), "")
