"""What ``gpureduce bench --axis`` times: the cases, our calls, and those of other libraries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpureduce import _host
from gpureduce.bench import libraries
from gpureduce.bench.benchmark import array_of
from gpureduce.bench.in_turns import Run
from gpureduce.core import arrays, registry, summation
from gpureduce.core.dtypes import Array, named
from gpureduce.lazy_import import load_other

PARTS = ("shapes", "middle", "rungs", "small", "hard", "calls")
JAX, CUB = "JAX, whole call", "CUB segmented"
USUAL = "exact, usual rows"

_COLUMNS = (3, 33, 255, 1000, 2683)  # besides powers of two
_ROWS = 7
_SMALL = ((1, 4096), (8, 4096), (32, 8192), (128, 8192), (1024, 1024), (4096, 4096))
_CALLED = (32, 1024)
_IN_GRAPH = 20  # sums of small matrices in one graph
_SHARE = 16  # a thread that adds up a long row alone takes too long for the whole size


@dataclass(frozen=True)
class Case:
    """A matrix, or several one after another, and the axis along which it is added up."""

    rows: int
    columns: int
    axis: int
    dtype: str = "float32"
    batches: int = 1
    part: str = "shapes"

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape: of three axes if there are several matrices."""
        whole = (self.batches, self.rows, self.columns)
        return whole if self.batches > 1 else whole[1:]

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.batches * self.rows * self.columns

    @property
    def is_float(self) -> bool:
        """Whether sums are rounded, so that `exact` is something else than `fast`."""
        return "float" in self.dtype

    @property
    def has_rows(self) -> bool:
        """Whether the elements of a sum are neighbours in memory."""
        return self.axis == len(self.shape) - 1


# --- cases -------------------------------------------------------------------------------------


def shapes(n: int) -> list[tuple[int, int]]:
    """Matrices of some `n` elements, from the narrowest to the widest."""
    columns = [2**k for k in (*range(1, 9), *range(10, 60, 2)) if 2**k < n]
    columns += [c for c in _COLUMNS if c < n] + [n // 4, n // 2, n // _ROWS, n]
    return [(n // c, c) for c in sorted({c for c in columns if c})]


def _shape_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    """All shapes of the first dtype, and every third shape of the others."""
    found = shapes(n)
    for i, dtype in enumerate(dtypes):
        for rows, columns in found[::3] if i else found:
            yield from (Case(rows, columns, axis, dtype) for axis in (1, 0))


def _middle_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    """The middle axis between a few long axes, and between a long one and a short one."""
    (few, wide), (tall, narrow) = ((64, 1024), (1024, 16)) if n >= 1 << 22 else ((4, 64), (16, 4))
    for dtype in dtypes:
        yield Case(n // (few * wide), wide, 1, dtype, few, "middle")
        yield Case(tall, narrow, 1, dtype, n // (tall * narrow), "middle")


def _three_shapes(n: int) -> list[tuple[int, int]]:
    """A narrow, a square and a wide matrix, of a share of `n` elements if these are many."""
    n = n // _SHARE if n > 1 << 20 else n
    side = 1 << (n.bit_length() - 1) // 2
    return [(n // 16, 16), (side, n // side), (16, n // 16)]


def _rung_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    shapes = _three_shapes(n)
    for shape in shapes:
        yield from (Case(*shape, axis, dtypes[0], part="rungs") for axis in (1, 0))
    rows, columns = shapes[0]
    yield Case(rows * columns // 2, 2, 1, dtypes[0], part="rungs")  # rows that are parts of a pack


def _small_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    return (Case(*shape, 1, dtypes[0], part="small") for shape in _SMALL)


def _hard_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    narrow, square, wide = _three_shapes(n)
    for dtype in dtypes:
        if dtype in ("float32", "float64"):  # sums of float16 are proven whatever they are
            for shape, axis in ((narrow, 1), (square, 1), (wide, 1), (square, 0)):
                yield Case(*shape, axis, dtype, part="hard")


def _call_cases(n: int, dtypes: Sequence[str]) -> Iterator[Case]:
    yield Case(*_CALLED, 1, dtypes[0], part="calls")


_CASES: dict[str, Callable[[int, Sequence[str]], Iterator[Case]]] = {
    "shapes": _shape_cases, "middle": _middle_cases, "rungs": _rung_cases,
    "small": _small_cases, "hard": _hard_cases, "calls": _call_cases,
}  # fmt: skip


def cases(n: int, dtypes: Sequence[str], parts: Sequence[str] = PARTS) -> list[Case]:
    """The cases of these parts at `n` elements, by dtype. Those of more than `n` are left out."""
    found = [case for part in parts for case in _CASES[part](n, dtypes) if 0 < case.size <= n]
    return sorted(dict.fromkeys(found), key=lambda case: dtypes.index(case.dtype))


# --- calls -------------------------------------------------------------------------------------


@dataclass
class Calls:
    """The calls of a case by name, and what is known of them.

    Those in `clocked` run on streams of their own. A time is that of `count` sums.
    """

    runs: dict[str, Run]
    nbytes: int
    kernel: str
    clocked: set[str] = field(default_factory=set)
    count: int = 1


@dataclass(frozen=True)
class Bench:
    """Where sums are timed. `torch` is PyTorch for arrays on a card, and None elsewhere.

    `capture` makes a CUDA graph of a call, and returns its replay.
    """

    device: str | None
    names: Sequence[str]  # other libraries
    torch: Any = None
    capture: Callable[[Run], Run] = lambda run: run

    @property
    def plain(self) -> str:
        """The strategy whose sums may be rounded at every addition."""
        return "cpu" if self.device == "cpu" else "fast"

    def add(self, matrix: Any, strategy: str, **how: Any) -> Any:
        """A sum of ours. Arrays on a card need no device."""
        device = self.device if self.torch is None else None
        return summation.sum(matrix, strategy, device=device, **how)

    def put(self, array: Array) -> Any:
        """The array on the device."""
        return array if self.torch is None else self.torch.from_numpy(array).cuda()

    def elements(self, n: int, dtype: str) -> Any:
        """Random elements on the device."""
        if self.torch is None:
            return array_of(dtype, n)
        kind = getattr(self.torch, dtype)
        if kind.is_floating_point:
            return self.torch.randn(n, device="cuda").to(kind)
        return self.torch.randint(-100, 100, (n,), device="cuda", dtype=kind)


def _nbytes(case: Case, out: Any) -> int:
    return int(case.size * named(case.dtype).itemsize + out.nbytes)


def _strategies(bench: Bench, case: Case) -> list[str]:
    return [bench.plain, "exact"] if case.is_float else [bench.plain]


def _peers(bench: Bench, case: Case, matrix: Any, out: Any) -> tuple[dict[str, Run], set[str]]:
    """Other libraries' calls, and the names of those on streams of their own."""
    runs: dict[str, Run] = {}
    if "numpy" in bench.names:
        runs["NumPy"] = lambda: np.sum(matrix, axis=case.axis)
    if "torch" in bench.names:
        runs |= _torch_runs(load_other("torch"), case, matrix, out)
    if "cupy" in bench.names and case.dtype != "bfloat16":
        runs["CuPy"] = _cupy_run(case, matrix, out)
    if "jax" in bench.names:
        runs[JAX] = _jax_run(case, matrix)
    return runs, {JAX} & runs.keys()


def _torch_runs(torch: Any, case: Case, matrix: Any, out: Any) -> dict[str, Run]:
    found: dict[str, Run] = {"torch": lambda: torch.sum(matrix, case.axis, out=out)}
    if not (case.is_float and case.has_rows):
        return found

    # Of a flat array this is one call of CUB's DeviceSegmentedReduce.
    @functools.cache
    def offsets() -> Any:
        return torch.arange(0, case.size + 1, case.columns, device=matrix.device)

    found[CUB] = lambda: torch.segment_reduce(
        matrix.reshape(-1), "sum", offsets=offsets(), axis=0, unsafe=True
    )
    return found


def _cupy_run(case: Case, matrix: Any, out: Any) -> Run:
    cupy, torch = libraries.load("cupy")[1], load_other("torch")
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    theirs, sums = cupy.from_dlpack(matrix), cupy.from_dlpack(out)

    def run() -> None:
        with stream:
            theirs.sum(case.axis, out=sums)

    return run


def _jax_run(case: Case, matrix: Any) -> Run:
    jax = libraries.load("jax")[1]
    jax.config.update("jax_enable_x64", True)  # otherwise float64 becomes float32
    theirs = functools.cache(lambda: jax.dlpack.from_dlpack(matrix))
    return lambda: theirs().sum(case.axis).block_until_ready()


def _of_shape(bench: Bench, case: Case, base: Any) -> Calls:
    matrix = base[: case.size].reshape(case.shape)
    first = bench.add(matrix, bench.plain, axis=case.axis)
    out = first.value

    def ours(strategy: str) -> Run:
        return bench.capture(
            lambda: bench.add(matrix, strategy, axis=case.axis, out=out, timing=False)
        )

    runs = {name: ours(name) for name in _strategies(bench, case)}
    theirs, clocked = _peers(bench, case, matrix, out)
    return Calls(runs | theirs, _nbytes(case, out), first.timing.strategy, clocked)


def _of_rungs(bench: Bench, case: Case, base: Any) -> Calls:
    """Every kernel that takes this matrix, by name."""
    matrix = base[: case.size].reshape(case.shape)
    out = bench.add(matrix, "fast", axis=case.axis).value
    wanted = _host.ROWS if case.has_rows else _host.COLUMNS
    runs: dict[str, Run] = {}
    for row in registry.strategies(internal=True):
        if row.kind != "axis" or not row.traits & wanted or row.name == "exact_levels":
            continue

        def run(name: str = row.name) -> Any:
            return bench.add(matrix, name, axis=case.axis, out=out, timing=False)

        try:
            run()
        except (ValueError, TypeError):  # rows that are too long, too short or unaligned for it
            continue
        runs[row.name] = bench.capture(run)
    return Calls(runs, _nbytes(case, out), "")


def _of_small(bench: Bench, case: Case, base: Any) -> Calls:
    """Several sums in one graph, each of another part of `base`, so that none is in the cache."""
    count = max(1, min(_IN_GRAPH, len(base) // case.size))
    parts = [base[i * case.size : (i + 1) * case.size].reshape(case.shape) for i in range(count)]
    firsts = [bench.add(part, bench.plain, axis=case.axis) for part in parts]
    outs = [first.value for first in firsts]

    def several(add: Callable[[Any, Any], Any]) -> Run:
        def run() -> None:
            for part, out in zip(parts, outs, strict=True):
                add(part, out)

        return bench.capture(run)

    def ours(strategy: str) -> Run:
        return several(
            lambda part, out: bench.add(part, strategy, axis=case.axis, out=out, timing=False)
        )

    runs = {name: ours(name) for name in _strategies(bench, case)}
    if "torch" in bench.names:
        torch = load_other("torch")
        runs["torch"] = several(lambda part, out: torch.sum(part, case.axis, out=out))
    if "numpy" in bench.names:
        runs["NumPy"] = several(lambda part, out: np.sum(part, axis=case.axis))
    return Calls(runs, _nbytes(case, outs[0]), firsts[0].timing.strategy, count=count)


def hard_matrix(case: Case) -> Array:
    """A matrix whose every sum is 0 and takes `exact` the slow way.

    Elements of three sizes, 2^60 apart, and their negatives, in random order: the float64 numbers
    in which `exact` first adds up lose the smallest, which are larger than the sum.
    """
    rng = arrays.random_numbers(25)
    terms = case.shape[case.axis]
    sums = case.size // terms
    width = np.float64 if case.dtype == "float64" else np.float32
    half = rng.standard_normal((sums, terms // 2), width)
    half *= np.resize(np.array([1, 2.0**60, 2.0**120], width), terms // 2)
    rows = np.concatenate([half, -half, np.zeros((sums, terms % 2), width)], axis=1)
    rows = rows[:, rng.permutation(terms)]
    return np.ascontiguousarray(rows if case.axis == 1 else rows.T)


def _of_hard(bench: Bench, case: Case, base: Any) -> Calls:
    hard, usual = bench.put(hard_matrix(case)), base[: case.size].reshape(case.shape)
    out = bench.add(hard, "exact", axis=case.axis).value

    def ours(matrix: Any) -> Run:
        return bench.capture(
            lambda: bench.add(matrix, "exact", axis=case.axis, out=out, timing=False)
        )

    return Calls({"exact": ours(hard), USUAL: ours(usual)}, _nbytes(case, out), "")


def _of_calls(bench: Bench, case: Case, base: Any) -> Calls:
    """Calls that make their result, and do not wait for it on a card."""
    matrix = base[: case.size].reshape(case.shape)
    first = bench.add(matrix, bench.plain, axis=case.axis)
    runs: dict[str, Run] = {
        name: lambda name=name: bench.add(matrix, name, axis=case.axis, timing=False)  # type: ignore[misc]
        for name in _strategies(bench, case)
    }
    if bench.torch is not None:
        runs["fast, whole array"] = lambda: bench.add(matrix, "fast", result="device", timing=False)
    if "torch" in bench.names:
        runs["torch"] = lambda: load_other("torch").sum(matrix, case.axis)
    if "cupy" in bench.names:
        theirs = libraries.load("cupy")[1].from_dlpack(matrix)
        runs["CuPy"] = lambda: theirs.sum(case.axis)
    if "numpy" in bench.names:
        runs["NumPy"] = lambda: np.sum(matrix, axis=case.axis)
    return Calls(runs, _nbytes(case, first.value), first.timing.strategy)


_CALLS: dict[str, Callable[[Bench, Case, Any], Calls]] = {
    "shapes": _of_shape, "middle": _of_shape, "rungs": _of_rungs,
    "small": _of_small, "hard": _of_hard, "calls": _of_calls,
}  # fmt: skip


def calls_of(bench: Bench, case: Case, base: Any) -> Calls:
    """The calls of a case. `base` is a flat array on the device, long enough for it."""
    return _CALLS[case.part](bench, case, base)
