"""Calls of gpureduce and of other libraries that sum along an axis.

On a card our sums are replayed as CUDA graphs, so that all times but JAX's are of the card's work.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce import _host, exact
from gpureduce.bench import libraries
from gpureduce.bench.clocks import Run, of_calls
from gpureduce.bench.contenders.places import Place
from gpureduce.bench.runner import Contender
from gpureduce.core import arrays, registry, summation
from gpureduce.core.dtypes import Array, named

JAX, CUB = "JAX, whole call", "CUB segmented"
USUAL = "exact, usual rows"
_IN_GRAPH = 20  # sums of small matrices in one graph


@dataclass(frozen=True)
class Case:
    """A matrix, or several one after another, and the axis along which it is added up."""

    rows: int
    columns: int
    axis: int | tuple[int, ...]
    dtype: str = "float32"
    batches: int = 1
    measure: str = "shapes"
    blocks: int = 1
    step: int = 1  # from one column to the next
    window: int = 0  # its elements, if windows are measured

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape: of three axes if there are several matrices, or of four."""
        whole = (self.blocks, self.batches, self.rows, self.columns)
        return whole if self.blocks > 1 else whole[1:] if self.batches > 1 else whole[2:]

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.blocks * self.batches * self.rows * self.columns

    def of(self, base: Any) -> Any:
        """The matrix, of the first elements of an array."""
        whole = base[: self.size * self.step].reshape(*self.shape[:-1], -1)
        return whole[..., :: self.step] if self.step > 1 else whole

    @property
    def is_float(self) -> bool:
        """Whether sums are rounded, so that `exact` differs from `fast`."""
        return "float" in self.dtype

    @property
    def has_rows(self) -> bool:
        """Whether the elements of a sum are neighbours in memory."""
        return self.axis == len(self.shape) - 1


class _Sums:
    """The sums of a case: of `count` matrices that lie one after another in `base`."""

    def __init__(self, place: Place, case: Case, base: Any, count: int = 1) -> None:
        self.place, self.case = place, case
        self.plain = "cpu" if place.device == "cpu" else "fast"
        self.matrices = [case.of(base[at:]) for at in range(0, count * case.size, case.size)]
        firsts = [self.add(matrix, self.plain) for matrix in self.matrices]
        self.outs = [first.value if place.card else np.asarray(first.value) for first in firsts]
        self.kernel = str(firsts[0].timing.strategy)

    def add(self, matrix: Any, strategy: str, **how: Any) -> Any:
        """A sum of ours along the axis."""
        how |= {"result": "device"} if self.place.card else {}
        return summation.sum(matrix, strategy, device=self.place.own, axis=self.case.axis, **how)

    def strategies(self) -> list[str]:
        """Ours, the quickest first."""
        return [self.plain, "exact"] if self.case.is_float else [self.plain]

    def each(self, add: Callable[[Any, Any], Any]) -> Run:
        """The sums of all matrices, by a function of a matrix and the array for its sums."""
        pairs = list(zip(self.matrices, self.outs, strict=True))
        if len(pairs) == 1:
            return functools.partial(add, *pairs[0])

        def run() -> None:
            for matrix, out in pairs:
                add(matrix, out)

        return run

    def ours(self, strategy: str) -> Run:
        """Our sums as a graph."""
        return self.place.captured(
            self.each(lambda m, out: self.add(m, strategy, out=out, timing=False))
        )

    def contender(self, name: str, run: Run, kernel: bool = True, **how: Any) -> Contender:
        """A contender whose row has the bytes of a matrix and its sums, and the kernel of ours."""
        nbytes = self.case.size * named(self.case.dtype).itemsize + self.outs[0].nbytes
        how |= {"nbytes": int(nbytes), "kernel": self.kernel if kernel else ""}
        return self.place.contender(name, run, count=len(self.matrices), **how)


def of_torch(torch: Any, of: _Sums) -> dict[str, Run]:
    """PyTorch's sums, and by way of PyTorch CUB's DeviceSegmentedReduce."""
    case = of.case
    found = {"torch": of.each(lambda matrix, out: torch.sum(matrix, case.axis, out=out))}
    if not (case.is_float and case.has_rows and case.step == 1):
        return found

    @functools.cache
    def offsets() -> Any:
        return torch.arange(0, case.size + 1, case.columns, device=of.matrices[0].device)

    found[CUB] = lambda: torch.segment_reduce(  # one call for a flat array
        of.matrices[0].reshape(-1), "sum", offsets=offsets(), axis=0, unsafe=True
    )
    return found


def of_jax(case: Case, matrix: Any, method: str = "sum") -> Run:
    """JAX's sum along the axis, or another method, until its result is there."""
    jax = libraries.load("jax")[1]
    jax.config.update("jax_enable_x64", True)  # otherwise float64 becomes float32
    theirs = functools.cache(lambda: jax.dlpack.from_dlpack(matrix))
    return lambda: getattr(theirs(), method)(case.axis).block_until_ready()


def _of_shape(place: Place, case: Case, base: Any) -> Iterator[Contender]:
    of = _Sums(place, case, base)
    for name in of.strategies():
        yield of.contender(name, of.ours(name))
    if "numpy" in place.names:
        yield of.contender("NumPy", of.each(lambda matrix, _: np.sum(matrix, axis=case.axis)))
    if "torch" in place.names:
        for name, run in of_torch(place.torch, of).items():
            yield of.contender(name, run)
    if "cupy" in place.names and case.dtype != "bfloat16":
        cupy = libraries.load("cupy")[1]
        theirs, sums = cupy.from_dlpack(of.matrices[0]), cupy.from_dlpack(of.outs[0])
        yield of.contender("CuPy", place.on_stream(lambda: theirs.sum(case.axis, out=sums)))
    if "jax" in place.names:
        yield of.contender(JAX, of_jax(case, of.matrices[0]), own_stream=True)


def _of_small(place: Place, case: Case, base: Any) -> Iterator[Contender]:
    """Several sums in one graph, each of another part of `base`, so that none is in the cache."""
    of = _Sums(place, case, base, max(1, min(_IN_GRAPH, len(base) // case.size)))
    for name in of.strategies():
        yield of.contender(name, of.ours(name))
    if "torch" in place.names:
        yield of.contender("torch", place.captured(of_torch(place.torch, of)["torch"]))
    if "numpy" in place.names:
        yield of.contender("NumPy", of.each(lambda matrix, _: np.sum(matrix, axis=case.axis)))


def _of_rungs(place: Place, case: Case, base: Any) -> Iterator[Contender]:
    """Every kernel that takes this matrix, by name."""
    of = _Sums(place, case, base)
    wanted = _host.ROWS if case.has_rows else _host.COLUMNS
    for row in registry.strategies(internal=True):
        if row.kind == "axis" and row.traits & wanted and row.name != "exact_levels":
            try:
                run = of.ours(row.name)
                run()
            except (ValueError, TypeError):  # rows too long, too short or unaligned for it
                continue
            yield of.contender(row.name, run, kernel=False)


def hard_matrix(case: Case) -> Array:
    """A matrix whose every sum is 0 and takes `exact` the slow way.

    Elements of three sizes, 2^60 apart, and their negatives, in random order: the float64 numbers
    in which `exact` first adds up lose the smallest, which are larger than the sum.
    """
    rng = arrays.random_numbers(25)
    terms = math.prod(np.take(case.shape, case.axis, 0).flat)
    sums = case.size // terms
    width = np.float64 if case.dtype == "float64" else np.float32
    half = rng.standard_normal((sums, terms // 2), width)
    half *= np.resize(np.array([1, 2.0**60, 2.0**120], width), terms // 2)
    rows = np.concatenate([half, -half, np.zeros((sums, terms % 2), width)], axis=1)
    rows = rows[:, rng.permutation(terms)]
    return np.ascontiguousarray(rows if case.axis == 1 else rows.T)


def _of_hard(place: Place, case: Case, base: Any) -> Iterator[Contender]:
    hard = place.put(hard_matrix(case).reshape(-1))
    for name, elements in (("exact", hard), (USUAL, base)):
        of = _Sums(place, case, elements)
        yield of.contender(name, of.ours("exact"), kernel=False)


def _of_statistics(place: Place, case: Case, base: Any) -> Iterator[Contender]:
    """What is made of exact sums, beside the sum. Of one row also its product with itself."""
    of = _Sums(place, case, base)
    runs = {"exact": of.ours("exact")}
    made: dict[str, Callable[[Any, Any], Any]] = {
        "mean": lambda m, out: exact.mean(m, case.axis, out=out),
        "var": lambda m, out: exact.var(m, case.axis, out=out),
        "norm": lambda m, _: exact.norm(m, 2, case.axis),
    }
    if case.rows == 1:
        made["vecdot"] = lambda m, _: exact.vecdot(m, m)
    runs |= {f"exact {name}": place.captured(of.each(make)) for name, make in made.items()}

    def theirs(function: Callable[..., Any], **more: Any) -> Run:
        return of.each(lambda m, _: function(m, case.axis, **more))

    for name, library, more in (("torch", place.torch, {"correction": 0}), ("NumPy", np, {})):
        if name.lower() in place.names:
            runs[f"{name} mean"] = theirs(library.mean)
            runs[f"{name} var"] = theirs(library.var, **more)
    for name, run in runs.items():
        yield of.contender(name, run, kernel=False)


def _of_calls(place: Place, case: Case, base: Any) -> Iterator[Contender]:
    """Calls that make their result, and do not wait for it on a card."""
    of = _Sums(place, case, base)
    matrix = of.matrices[0]
    runs: dict[str, Run] = {
        name: functools.partial(of.add, matrix, name, timing=False) for name in of.strategies()
    }
    if place.card:
        runs["fast, whole array"] = functools.partial(
            summation.sum, matrix, "fast", result="device", timing=False
        )
    if "torch" in place.names:
        runs["torch"] = lambda: place.torch.sum(matrix, case.axis)
    if "cupy" in place.names and case.dtype != "bfloat16":
        theirs = libraries.load("cupy")[1].from_dlpack(matrix)
        runs["CuPy"] = lambda: theirs.sum(case.axis)
    if "numpy" in place.names:
        runs["NumPy"] = lambda: np.sum(matrix, axis=case.axis)
    for name, run in runs.items():
        made = of.contender(name, run)
        made.timed, made.fields["source"] = of_calls(run), "perf_counter"
        yield made


def copy(place: Place, _: Any, base: Any) -> Iterator[Contender]:
    """A copy of the matrix on a card: the limit."""
    to = place.torch.empty_like(base)
    yield place.contender("copy", lambda: to.copy_(base))


Maker = Callable[[Place, Case, Any], Iterator[Contender]]
_OF: dict[str, Maker] = {
    "shapes": _of_shape, "middle": _of_shape, "rungs": _of_rungs, "patterns": _of_shape,
    "small": _of_small, "hard": _of_hard, "calls": _of_calls, "statistics": _of_statistics,
}  # fmt: skip


def contenders(place: Place, case: Case, base: Any) -> Iterator[Contender]:
    """The contenders of a case, whose matrix is in `base`."""
    return _OF[case.measure](place, case, base)
