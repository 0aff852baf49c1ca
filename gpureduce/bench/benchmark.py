"""Benchmarks strategies and other libraries side by side.

`benchmark` lists the measures. On a GPU, kernels are timed as a CUDA graph of many sums, replayed
between two events. Several copies of the input are read in turn, so that it does not stay in the L2
cache (``cold``). On the emulator and for very small inputs it does stay there (``warm``). For
``apart``, the time of the writes alone is subtracted. For ``host``, PyTorch and a GPU, `LIMITS` of
arrays.py are measured, too. ``explain`` and ``count`` use one processor.

Contenders alternate, several times, so that clock drift and other load affect all of them equally.
Launches on arrays of 1 GiB and more are measured one contender after the other: each round copies
the array to the card, which takes longer than its sums.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpureduce.bench import libraries
from gpureduce.bench.contenders import arrays
from gpureduce.bench.contenders.arrays import WAYS, Input, row_of
from gpureduce.bench.runner import ROUNDS, Contender, Group, Latest, Turns
from gpureduce.bench.runner import measure as measured
from gpureduce.core import devices, registry
from gpureduce.core.checks import listed, named_keywords, one_of, whole
from gpureduce.core.dtypes import Array, convert, is_here, named
from gpureduce.core.plan import launch_sizes
from gpureduce.core.summation import sum as sum_of
from gpureduce.errors import CudaError

MOST_REPEATS = 2**31 - 1
EVERY = "every strategy"
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
class Part:
    """Something to measure: contenders at every dtype and size, in bytes, on some kind of data."""

    measure: str
    strategies: Sequence[Any]
    peers: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    nbytes: Sequence[int] = ()
    offset: int = 0
    repeats: int = 12
    ways: Sequence[str] = ("timing=False",)
    blocks: Sequence[int | None] = (None,)
    grids: Sequence[int | None] = (None,)
    data: str = ""
    rounds: int | None = None


# --- the contenders of each measure ---------------------------------------------------------------


def _kernels(given: Input, part: Part) -> Iterator[Contender]:
    apart = part.measure == "apart"
    names = [*part.strategies, *(["cub"] if "cub" in part.peers else [])]
    every = dict.fromkeys(map(row_of, names))
    rows = [row for row in every if not (apart and arrays.on_processors(row))]
    if every and not rows:
        listed = ", ".join(row.name for row in every)
        raise ValueError(f"measure='apart' times kernels one by one, and {listed} launches none")
    for row in rows:
        for block, grid in (
            itertools.product(part.blocks, part.grids) if arrays.launches(row) else [(None, None)]
        ):
            yield arrays.kernel(given, row, block, grid, apart=apart)
    if libraries.LOAD_ONLY in part.peers and not given.offset:
        yield arrays.kernel(given, "fast", apart=apart, load_only=True)


def _producers(given: Input, peers: Sequence[str]) -> list[str]:
    """The libraries whose arrays are added up by calls: NumPy, if no other one is named."""
    dtype, device = given.array.dtype.name, devices.choose_device(given.device)
    found = [
        peer.name
        for peer in libraries.PEERS
        if peer.name in peers
        and dtype not in peer.lacks
        and (device.backend == "cuda" or peer.needs_card)  # without a card, only if it is named
    ]
    return found + ["numpy"] * ("numpy" in peers or not found)


def _calls(given: Input, part: Part) -> Iterator[Contender]:
    for producer in _producers(given, part.peers):
        ours = [
            name
            for name in part.strategies
            if producer == "numpy" or not arrays.on_processors(name)
        ]
        for way, name in itertools.product(part.ways, dict.fromkeys((*ours, producer))):
            if made := arrays.call(given, name, producer, way):
                yield made


def _hosts(given: Input, part: Part) -> Iterator[Contender]:
    others = [
        peer
        for peer in part.peers
        if peer not in ("cub", libraries.LOAD_ONLY)
        and libraries.takes_host(peer, given.array.dtype.name)
    ]
    for name in dict.fromkeys((*part.strategies, *others)):
        yield arrays.on_host(given, name)
    if "torch" in part.peers and devices.choose_device(given.device).backend == "cuda":
        yield from arrays.through_pinned(given)


def _explanations(given: Input, part: Part) -> Iterator[Contender]:
    for name in filter(arrays.launches, part.strategies):
        for block, grid in itertools.product(part.blocks, part.grids):
            yield arrays.explaining(given, name, block, grid, sample=part.measure == "explain")


_MAKERS: dict[str, Callable[[Input, Part], Iterator[Contender]]] = {
    "kernel": _kernels, "apart": _kernels, "call": _calls, "host": _hosts,
    "explain": _explanations, "count": _explanations,
}  # fmt: skip
MEASURES = tuple(_MAKERS)


def every_strategy(dtype: str, device: str | None) -> list[str]:
    """The strategies that can add up this dtype there, `warp_shfl` first; no choices, no hosts."""
    one = np.ones(1, named(dtype))
    found = []
    for row in sorted(registry.strategies(), key=lambda row: row.name != "warp_shfl"):
        if row.kind in ("kernel", "library", "everywhere"):
            try:
                sum_of(one, row.name, device=devices.choose_device(device).id)
            except (TypeError, CudaError):  # takes other dtypes, or needs another card
                continue
            found.append(row.name)
    return found


# --- groups ---------------------------------------------------------------------------------------


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


class Maker:
    """Makes groups of sums on one device. They share the array that is measured.

    `make` makes it from its dtype, its size and the kind of its data.
    """

    def __init__(
        self, device: str | None, accumulate: str | None = None,
        make: Callable[[str, int, str], Array] = arrays.array_of,
    ) -> None:  # fmt: skip
        self.device, self.accumulate = device, accumulate
        self._array = Latest(make)

    def group(self, part: Part, dtype: str, n: int) -> Group:
        """The contenders of one dtype and size."""
        conversion = convert(named(dtype), self.accumulate)
        if conversion.cast is not None:
            raise TypeError(f"{dtype} cannot be summed in {self.accumulate} without a cast")
        if conversion.is_complex and part.measure != "host":
            raise TypeError(f"{dtype} can be measured as host arrays only: measure=['host']")
        nbytes = n * named(dtype).itemsize
        in_one = part.measure in ("kernel", "apart") and nbytes >= _LARGE_BYTES
        case = {"measure": part.measure, "dtype": named(dtype).name, "n": n, "nbytes": nbytes}

        def given() -> Input:
            array = self._array(dtype, n, part.data)
            return Input(array, conversion, self.accumulate, self.device, part.offset)

        @functools.cache
        def exact() -> Any:
            return sum_of(given().array, "exact", given().dtype).value

        def contenders() -> Iterator[Contender]:
            names = [
                name
                for one in part.strategies
                for name in (every_strategy(dtype, self.device) if one == EVERY else [one])
            ]
            return _MAKERS[part.measure](given(), replace(part, strategies=names))

        return Group(
            f"{part.measure} {dtype} {n}",
            case | {"offset": part.offset} | ({"data": part.data} if part.data else {}),
            contenders,
            Turns(part.repeats, part.rounds or (1 if in_one else ROUNDS)),
            after=lambda one: {"error_ulps": _error_ulps(one.value(), exact())},
        )

    def groups(self, parts: Iterable[Part]) -> Iterator[Group]:
        """The groups of parts. Dtypes and libraries that are not installed are left out."""
        here = libraries.installed(("all",), self.device)
        for part in parts:
            part = replace(part, peers=[peer for peer in part.peers if peer in here])
            for dtype in filter(is_here, part.dtypes):
                for nbytes in part.nbytes:
                    yield self.group(part, dtype, max(1, nbytes // named(dtype).itemsize))


def combinations(
    part: Part, sizes: Sequence[int], measure: Sequence[str], device: str | None,
    accumulate: str | None,
) -> list[Group]:  # fmt: skip
    """The groups of a part at several sizes, in elements, by several measures. Checks all."""
    names = ("strategies", "peers", "dtypes", "ways", "blocks", "grids")
    given: dict[str, Any] = {name: listed(name, getattr(part, name)) for name in names}
    sizes, measure = listed("sizes", sizes), listed("measure", measure)
    if device is not None:  # host strategies would ignore a wrong device
        devices.choose_device(device)
    for block, grid in itertools.product(given["blocks"], given["grids"]):
        launch_sizes(block, grid)
    sizes = [whole("sizes", n, 1, 2**63 - 1) for n in sizes]
    for name in measure:
        one_of("measure", name, MEASURES)
    for name in given["ways"]:
        one_of("ways", name, WAYS)
    given["strategies"] = tuple(
        registry.find(name).name if isinstance(name, str) else row_of(name)
        for name in given["strategies"]
    )
    given["peers"] = libraries.installed(given["peers"], device)
    offset = whole("offset", part.offset, 0, 2**31 - 1)
    repeats = whole("repeats", part.repeats, 1, MOST_REPEATS)
    maker = Maker(device, accumulate)
    return [
        maker.group(Part(what, offset=offset, repeats=repeats, **given), dtype, n)
        for dtype in given["dtypes"]
        for n in sizes
        for what in measure
    ]


@named_keywords
def benchmark(
    strategies: Sequence[str | registry.UserKernel],
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
    part = Part("", strategies, peers, dtypes, (), offset, repeats, ways, blocks, grids)
    for row in measured(combinations(part, sizes, measure, device, accumulate), progress):
        yield Measurement(**row)
