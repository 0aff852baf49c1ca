"""Sums by segment beside other libraries: ``gpureduce bench --segments``.

On a card the L2 cache is flushed before every call, and CUDA events around the call give its time.
The card is kept busy meanwhile, so that the launches of a call do not wait for Python. Calls of
JAX, which has streams of its own, are timed by the processor's clock until their result is there.
Elsewhere all are timed by that clock.

For sorted ids, some calls of other libraries take offsets; the time to compute the offsets is not
counted. CUB's sums by key leave out the segments without elements.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from gpureduce.bench import libraries, render
from gpureduce.bench.clocks import Run
from gpureduce.bench.command import REPEATS, Suite
from gpureduce.bench.contenders.places import Place, close_to_first, place_of, unable
from gpureduce.bench.render import By, Pivot, as_table, quickest, ratio
from gpureduce.bench.runner import Contender, Group, Row, one_by_one
from gpureduce.core import arrays
from gpureduce.core.dtypes import Array, is_here, named
from gpureduce.core.segments import segment_sum
from gpureduce.lazy_import import load_other

IDS = ("unsorted", "sorted", "offsets", "zipf", "half", "one", "nearly sorted")
DATA = ("normal", "uniform", "bits")
SORTED = ("sorted", "offsets", "one")
_OF_CUB = ("CUB DeviceSegmentedReduce", "CUB ReduceByKey")
LIMIT = "limit"  # the least that has to be done


@dataclass(frozen=True)
class Case:
    """The input of a measurement: `n` elements in rows of `columns`, and the segments."""

    n: int
    segments: int
    ids: str = "unsorted"
    dtype: str = "float32"
    columns: int = 1
    data: str = "normal"
    index: str = "int64"

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.n // self.columns


def cases(n: int, dtypes: Sequence[str] | None = None) -> list[Case]:
    """The cases at `n` elements: the table of segments and ids first, then what differs from it."""
    counts = [100, 10_000, 1_000_000, 16_000_000]
    counts = [count for count in counts if count <= n] or [max(1, n // 100)]
    found = [Case(n, count, ids) for count in counts for ids in ("unsorted", "sorted", "offsets")]
    middle, many = counts[min(1, len(counts) - 1)], counts[min(2, len(counts) - 1)]
    found += [Case(n, many, ids) for ids in ("zipf", "half", "one", "nearly sorted")]
    found += [Case(n, many, data=data) for data in ("uniform", "bits")]
    for dtype in ("float16", "bfloat16", "float64", "int64"):
        for count in dict.fromkeys((middle, many)):
            found += [Case(n, count, ids, dtype) for ids in ("unsorted", "offsets")]
    for columns in (64, 256):
        for count in dict.fromkeys((counts[0], middle)):
            if count * columns <= n:
                found += [Case(n, count, ids, columns=columns) for ids in ("unsorted", "offsets")]
    found += [Case(n, count, index="int32") for count in dict.fromkeys((many, counts[-1]))]
    chosen = [case for case in dict.fromkeys(found) if dtypes is None or case.dtype in dtypes]
    if not chosen:
        known = ", ".join(dict.fromkeys(case.dtype for case in found))
        raise ValueError(f"--dtypes: the benchmark of segment sums takes {known}")
    return chosen


# --- the arrays --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A case's arrays, in a library's form. `offsets` is None unless the ids are sorted."""

    values: Any
    ids: Any
    offsets: Any
    out: Any

    def put(self, put: Callable[[Any], Any]) -> Given:
        """The arrays elsewhere."""
        parts = (self.values, self.ids, self.offsets, self.out)
        return Given(*(None if array is None else put(array) for array in parts))


def _values(rng: np.random.Generator, case: Case) -> Array:
    kind = named(case.dtype)
    shape = (case.rows,) if case.columns == 1 else (case.rows, case.columns)
    if kind.kind in "iu":
        return rng.integers(-1000, 1000, shape, dtype=kind)
    if case.data == "bits":
        bits = rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
        return np.where(np.isfinite(bits), bits, np.float32(1))
    make: Any = rng.random if case.data == "uniform" else rng.standard_normal
    found = make(shape, dtype=np.float64 if kind == np.float64 else np.float32)
    return cast(Array, found.astype(kind, copy=False))


def _ids(rng: np.random.Generator, case: Case) -> Array:
    rows, count = case.rows, case.segments
    if case.ids == "one":
        return np.full(rows, count // 2, case.index)
    if case.ids == "zipf":  # by its inverse distribution: rng.zipf knows no largest number
        weights = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -1.1)
        ranks = np.searchsorted(weights, rng.random(rows) * weights[-1])
        return cast(Array, rng.permutation(count)[ranks].astype(named(case.index)))
    found: Array = rng.integers(0, count, rows).astype(named(case.index))
    if case.ids == "half":
        return np.where(rng.random(rows) < 0.5, count // 2, found)
    if case.ids in ("sorted", "offsets", "nearly sorted"):
        found = np.sort(found)
    if case.ids == "nearly sorted":
        places = rng.integers(0, rows, max(1, rows // 1000))
        found[places] = found[places[::-1]]
    return found


def given(case: Case) -> Given:
    """A case's NumPy arrays."""
    rng = arrays.random_numbers(case.segments)
    values, ids = _values(rng, case), _ids(rng, case)
    offsets = None
    if case.ids in SORTED:
        counts = np.bincount(ids, minlength=case.segments)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(named(case.index))
    return Given(values, ids, offsets, np.empty((case.segments, *values.shape[1:]), values.dtype))


# --- the calls ---------------------------------------------------------------------------------


def _ours(of: Given, case: Case, device: str | None) -> dict[str, Run]:
    """Our calls: as quick as they get, and as they are made by default."""
    how: dict[str, Any] = {"segment_ids": of.ids, "num_segments": case.segments}
    if case.ids == "offsets":
        how = {"offsets": of.offsets}
    add = functools.partial(segment_sum, of.values, device=device, **how)
    quick = functools.partial(add, out=of.out, check=False, timing=False)
    found: dict[str, Run] = {
        "exact": lambda: quick().value,
        "exact, as called by default": lambda: add().value,
    }
    if case.ids == "offsets":
        found["fast"] = lambda: quick(strategy="fast").value
    if case.ids == "sorted":
        found["exact, sorted=True"] = lambda: quick(sorted=True).value
    return found


def deterministic(torch: Any, run: Run) -> Run:
    """The call by PyTorch's deterministic algorithms."""

    def call() -> Any:
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            return run()
        finally:
            torch.use_deterministic_algorithms(before)

    return call


def _of_torch(torch: Any, of: Given) -> dict[str, Run]:
    values, shape = of.values, tuple(of.out.shape)

    def add() -> Any:
        sums = torch.zeros(shape, dtype=values.dtype, device=values.device)
        return sums.index_add_(0, of.ids, values)

    found = {"torch index_add": add}
    if values.device.type == "cuda":
        found["torch deterministic"] = deterministic(torch, add)
    if of.offsets is not None and values.is_floating_point():
        found["torch segment_reduce"] = lambda: torch.segment_reduce(
            values, "sum", offsets=of.offsets, axis=0, unsafe=True
        )
    return found


def _at(tensor: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(0 if tensor is None else tensor.data_ptr())


class _Cub:
    """A build of tools/cub_segments.cu: CUB's sums for sorted ids, and the limit."""

    def __init__(self, torch: Any, of: Given, case: Case, library: Path) -> None:
        self.torch, self.of, self.case = torch, of, case
        self.library = ctypes.CDLL(str(library))
        self.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def call(self, name: str, *arguments: Any) -> None:
        function = getattr(self.library, name)
        function.restype = ctypes.c_char_p
        if wrong := function(*arguments, self.stream):
            raise RuntimeError(wrong.decode())

    def _with_scratch(self, name: str, keep: tuple[Any, ...], *arguments: Any) -> Run:
        nbytes = ctypes.c_size_t(0)
        given = (ctypes.byref(nbytes), self.of.values.element_size(), *arguments)
        self.call(name, None, *given)
        room = self.torch.empty(nbytes.value + 1, dtype=self.torch.uint8, device="cuda")

        def run() -> Any:
            self.call(name, _at(room), *given)
            return keep  # what must stay in memory

        return run

    def sums(self) -> dict[str, Run]:
        """CUB's sums by offsets and by key."""
        torch, of, case = self.torch, self.of, self.case
        plain = case.dtype in ("float32", "float64") and case.columns == 1
        if not plain or of.offsets is None or case.index != "int64":
            return {}
        sums, found = torch.empty_like(of.values), torch.empty_like(of.ids)
        count = torch.empty(1, dtype=torch.int64, device="cuda")
        segments, n = ctypes.c_size_t(case.segments), ctypes.c_size_t(case.n)
        by_key = (_at(of.values), _at(of.ids), _at(found), _at(sums), _at(count), n)
        by_offsets = (_at(of.values), _at(of.offsets), _at(of.out), segments)
        return {
            _OF_CUB[0]: self._with_scratch("cub_by_offsets", (), *by_offsets),
            _OF_CUB[1]: self._with_scratch("cub_by_key", (sums, found, count), *by_key),
        }

    def limit(self) -> dict[str, Run]:
        """The least that these sums have to do. Of rows, to read them."""
        torch, of, case = self.torch, self.of, self.case
        if case.index != "int64":
            return {}
        wide = case.columns > 1
        ids = None if wide or case.ids == "offsets" else of.ids
        words = None
        if not wide and case.ids not in SORTED:
            words = torch.zeros(case.segments, dtype=torch.int64, device="cuda")
        given = (of.values.element_size(), _at(of.values), _at(ids), _at(words))

        def run() -> Any:
            self.call("limit_of", *given, ctypes.c_size_t(of.values.numel()))
            return words  # which must stay in memory

        return {LIMIT: run}


def _of_cupy(place: Place, of: Given) -> dict[str, Run]:
    cupy, cupyx = libraries.load("cupy")[1], load_other("cupyx")
    values, ids, out = (cupy.from_dlpack(x) for x in (of.values, of.ids, of.out))

    def add() -> Any:
        sums = cupy.zeros(out.shape, out.dtype)
        cupyx.scatter_add(sums, ids, values)
        return sums

    return {"cupy scatter_add": place.on_stream(add)}


def _of_jax(of: Given, segments: int) -> dict[str, Run]:
    jax = libraries.load("jax")[1]
    values, ids = (jax.dlpack.from_dlpack(x) for x in (of.values, of.ids.int()))
    how = {"num_segments": segments, "indices_are_sorted": of.offsets is not None}
    call = jax.jit(lambda values, ids: jax.ops.segment_sum(values, ids, **how))
    return {"jax segment_sum": lambda: call(values, ids).block_until_ready()}


def _of_numpy(of: Given) -> dict[str, Run]:
    def add_at() -> Any:
        out = np.zeros_like(of.out)
        np.add.at(out, of.ids, of.values)
        return out

    found: dict[str, Run] = {"numpy.add.at": add_at}
    if of.values.ndim == 1 and of.values.dtype == np.float64:
        found["numpy.bincount"] = lambda: np.bincount(of.ids, of.values, len(of.out))
    return found


def _others(
    place: Place, case: Case, of: Given, cub: Path | None
) -> Iterator[tuple[str, Callable[[], dict[str, Run]]]]:
    """Each library, with the function that makes its calls."""
    if "numpy" in place.names:
        yield "numpy", lambda: _of_numpy(of)
    if "torch" in place.names:
        torch = load_other("torch")
        put = functools.partial(libraries.torch_tensor, torch)
        yield "torch", lambda: _of_torch(torch, of if place.card else of.put(put))
    if cub and place.card:
        theirs = _Cub(place.torch, of, case, cub)
        yield from (("CUB", theirs.sums), ("limit", theirs.limit))
    # Both add 16-bit floats by compare-and-swap: sorted ids, which meet at few addresses, take them
    # a minute and more.
    is_endless = case.dtype in ("float16", "bfloat16") and of.offsets is not None
    if "cupy" in place.names and case.dtype not in ("bfloat16", "int64") and not is_endless:
        yield "cupy", lambda: _of_cupy(place, of)
    if "jax" in place.names and case.dtype not in ("float64", "int64") and not is_endless:
        yield "jax", lambda: _of_jax(of, case.segments)


def contenders(place: Place, case: Case, cub: Path | None) -> Iterator[Contender]:
    """The calls of a case. `cub` is a build of tools/cub_segments.cu."""
    of = given(case).put(place.put)
    for name, run in _ours(of, case, place.own).items():
        yield place.contender(name, run)
    for library, make in _others(place, case, of, cub):
        try:
            runs = make()
        except Exception as error:  # a library that cannot take these arrays
            yield unable(library, error)
            continue
        for name, run in runs.items():
            yield place.contender(name, run, own_stream=library == "jax")


def comparison(case: Case) -> Callable[[str, Any], None]:
    """Compares the sums of the calls with ours, the first."""
    if case.data == "bits" or case.dtype not in ("float32", "float64", "int64"):
        return lambda *_: None
    return close_to_first(case, case.rows, (LIMIT, *_OF_CUB))


def groups(place: Place, chosen: Sequence[Case], repeats: int, cub: Path | None) -> list[Group]:
    return [
        Group(
            f"{case.dtype} {case.segments} {case.ids}",
            {"measure": "segments", **vars(case), "nbytes": case.n * named(case.dtype).itemsize},
            functools.partial(contenders, place, case, cub),
            one_by_one(repeats),
            comparison(case),
        )
        for case in chosen
        if is_here(case.dtype)
    ]


# --- the record as text --------------------------------------------------------------------------

# Columns of the table: the calls' names, and the heads.
_HEADS = {
    "exact": "exact",
    "exact, as called by default": "as called",
    "exact, sorted=True": "sorted=True",
    "fast": "fast",
    "torch index_add": "index_add",
    "torch deterministic": "determ.",
    "torch segment_reduce": "segm._reduce",
    "cupy scatter_add": "CuPy",
    "jax segment_sum": "JAX*",
    "CUB DeviceSegmentedReduce": "CUB segm.",
    "CUB ReduceByKey": "CUB by key",
    "numpy.add.at": "add.at",
    "numpy.bincount": "bincount",
    LIMIT: "limit",
}
_OURS = ("exact", "exact, as called by default", "exact, sorted=True", "fast", LIMIT)
# Sums by offsets are compared with other sums by offsets.
_BY_OFFSETS = ("torch segment_reduce", "CUB DeviceSegmentedReduce")
CASE = ("n", "segments", "ids", "dtype", "columns", "data", "index")


def best_other(by: By) -> str:
    """The quickest other call of the same kind; "" without one."""
    others = [name for name in by if name not in _OURS and "deterministic" not in name]
    if next(iter(by.values()))["ids"] == "offsets":
        others = [name for name in others if name in _BY_OFFSETS] or others
    return quickest(by, others)


def kind(row: Row) -> str:
    """The properties of the values and ids that differ from the usual ones."""
    more = [row["data"]] * (row["data"] != "normal")
    more += [f"rows of {row['columns']}"] * (row["columns"] > 1)
    more += [f"{row['index']} ids"] * (row["index"] != "int64")
    return ", ".join([row["dtype"], *more])


def table(rows: Sequence[Row]) -> str:
    """A line for each case: milliseconds of each call, and ratios."""
    more = {
        "exact/best": lambda by: ratio("exact", best_other(by))(by),
        "determ./exact": ratio("torch deterministic", "exact", ".1f"),
    }
    here = {row["strategy"] for row in rows}
    if LIMIT in here:
        more["exact/limit"] = ratio("exact", LIMIT)
    head = {"values": kind, "ids": render.of("ids"), "segments": render.of("segments", ",")}
    pivot = Pivot(head, lambda row: f"{row['median_us'] / 1e3:.3f}", more=more, key=CASE)
    heads, body = pivot.lines(rows, [name for name in _HEADS if name in here])
    return as_table(([_HEADS.get(head, head) for head in heads], body), ("values", "ids"))


def as_text(made: Row) -> str:
    rows = made["rows"]
    sizes = ", ".join(f"{n:,}" for n in dict.fromkeys(row["n"] for row in rows))
    clocked = made["device"] == "cuda" and any(row["source"] == "perf_counter" for row in rows)
    notes = ["* whole calls, by the processor's clock"] * clocked
    if failed := {f"{row['strategy']}: {row['failed']}" for row in made.get("failed", [])}:
        notes += ["Left out:", *sorted(failed)]
    title = f"Milliseconds for {sizes} numbers"
    return render.as_text(made, {"segments": (title, table)}, notes)


def suite(arguments: argparse.Namespace) -> Suite:
    place = place_of(arguments.device, "--segments", ("numpy", "torch"), "cpu")
    cub = arguments.cub and Path(arguments.cub).resolve()
    if cub and not cub.is_file():
        raise ValueError(f"--cub: there is no file {arguments.cub}")
    sizes = arguments.sizes or [1 << 26 if place.card else 1 << 16]
    chosen = [case for n in sizes for case in cases(n, arguments.dtypes)]
    repeats = REPEATS if arguments.repeats is None else arguments.repeats
    return Suite("segments", place.on, groups(place, chosen, repeats, cub), as_text, place.names)
