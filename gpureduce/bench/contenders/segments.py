"""Sums by segment: the arrays of a case, our calls, and those of other libraries.

For sorted ids, the other libraries' calls by offsets get these for nothing. CUB's sums by key leave
out the segments without elements.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce.bench import libraries
from gpureduce.bench.clocks import Run
from gpureduce.bench.contenders.places import Place, on_stream_of, unable
from gpureduce.bench.runner import Contender
from gpureduce.core import arrays
from gpureduce.core.dtypes import named
from gpureduce.core.segments import segment_sum
from gpureduce.lazy_import import load_other

IDS = ("unsorted", "sorted", "offsets", "zipf", "half", "one", "nearly sorted")
DATA = ("normal", "uniform", "bits")
SORTED = ("sorted", "offsets", "one")
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


# --- the arrays --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A case's arrays, in a library's form. `offsets` is None unless the ids are sorted."""

    values: Any
    ids: Any
    offsets: Any
    out: Any
    segments: int


@dataclass(frozen=True)
class Draw:
    """Draws random arrays. `xp` is NumPy or PyTorch, whose functions of these names agree."""

    xp: Any
    uniform: Callable[[Any, str], Any]
    normal: Callable[[Any, str], Any]
    integers: Callable[[int, int, Any, str], Any]
    permutation: Callable[[int], Any]
    sort: Callable[[Any], Any]
    cast: Callable[[Any, str], Any]
    put: Callable[[Any], Any]
    empty: Callable[[Any, Any], Any]


def by_numpy(seed: int) -> Draw:
    """Draws arrays in host memory."""
    rng = arrays.random_numbers(seed)
    return Draw(
        np,
        lambda shape, dtype: rng.random(shape, dtype=named(dtype)),
        lambda shape, dtype: rng.standard_normal(shape, dtype=named(dtype)),
        lambda low, high, shape, dtype: rng.integers(low, high, shape, dtype=named(dtype)),
        rng.permutation,
        np.sort,
        lambda array, dtype: array.astype(named(dtype), copy=False),
        lambda array: array,
        lambda shape, values: np.empty(shape, values.dtype),
    )


def by_torch(torch: Any, seed: int, device: str = "cuda") -> Draw:
    """Draws tensors on the card: to make them in host memory takes many times longer."""
    how = {"device": device, "generator": torch.Generator(device).manual_seed(seed)}

    def of(dtype: str) -> Any:
        return getattr(torch, dtype)

    return Draw(
        torch,
        lambda shape, dtype: torch.rand(shape, dtype=of(dtype), **how),
        lambda shape, dtype: torch.randn(shape, dtype=of(dtype), **how),
        lambda low, high, shape, dtype: torch.randint(low, high, shape, dtype=of(dtype), **how),
        lambda n: torch.randperm(n, **how),
        lambda tensor: tensor.sort().values,
        lambda tensor, dtype: tensor.to(of(dtype)),
        lambda array: torch.from_numpy(array).to(device),
        lambda shape, values: torch.empty(shape, dtype=values.dtype, device=device),
    )


def _values(draw: Draw, case: Case) -> Any:
    shape = (case.rows,) if case.columns == 1 else (case.rows, case.columns)
    if "int" in case.dtype:
        return draw.integers(-1000, 1000, shape, case.dtype)
    if case.data == "bits":
        bits = draw.integers(-(2**31), 2**31, shape, "int32").view(draw.xp.float32)
        return draw.xp.where(draw.xp.isfinite(bits), bits, draw.xp.ones_like(bits))
    make = draw.uniform if case.data == "uniform" else draw.normal
    return draw.cast(make(shape, "float64" if case.dtype == "float64" else "float32"), case.dtype)


def _ids(draw: Draw, case: Case) -> Any:
    rows, count = case.rows, case.segments
    if case.ids == "zipf":  # by its inverse distribution: there is no largest number otherwise
        weights = draw.put(np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -1.1))
        drawn = draw.uniform((rows,), "float64") * weights[-1]
        ranks = draw.xp.searchsorted(weights, drawn).clip(max=count - 1)
        return draw.cast(draw.permutation(count)[ranks], case.index)
    found = draw.integers(0, count, (rows,), case.index)
    middle = draw.xp.full_like(found, count // 2)
    if case.ids == "one":
        return middle
    if case.ids == "half":
        return draw.xp.where(draw.uniform((rows,), "float64") < 0.5, middle, found)
    if case.ids in ("sorted", "offsets", "nearly sorted"):
        found = draw.sort(found)
    if case.ids == "nearly sorted":
        places = draw.integers(0, rows, (max(1, rows // 1000),), "int64")
        found[places] = found[draw.xp.flip(places, (0,))]
    return found


def given(case: Case, draw: Draw) -> Given:
    """A case's arrays."""
    values, ids = _values(draw, case), _ids(draw, case)
    offsets = None
    if case.ids in SORTED:
        ends = draw.xp.cumsum(draw.xp.bincount(ids, minlength=case.segments), 0)
        ends = draw.xp.concatenate([draw.xp.zeros_like(ends[:1]), ends])
        offsets = draw.cast(ends, case.index)
    out = draw.empty((case.segments, *values.shape[1:]), values)
    return Given(values, ids, offsets, out, case.segments)


# --- the calls ---------------------------------------------------------------------------------


def _ours(of: Given, case: Case, device: str | None) -> dict[str, Run]:
    """Our calls: as quick as they get, and as they are made by default."""
    how: dict[str, Any] = {"num_segments": of.segments, "device": device}
    by_offsets = case.ids == "offsets"
    if by_offsets:
        how = {"offsets": of.offsets, "device": device}
    else:
        how["segment_ids"] = of.ids
    quick = how | {"out": of.out, "check": False, "timing": False}
    found = {"exact": lambda: segment_sum(of.values, **quick).value}
    found["exact, as called by default"] = lambda: segment_sum(of.values, **how).value
    if by_offsets:
        found["fast"] = lambda: segment_sum(of.values, strategy="fast", **quick).value
    if case.ids == "sorted":
        found["exact, sorted=True"] = lambda: segment_sum(of.values, sorted=True, **quick).value
    return found


def _deterministic(torch: Any, run: Run) -> Run:
    def call() -> Any:
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            return run()
        finally:
            torch.use_deterministic_algorithms(before)

    return call


def _of_torch(torch: Any, of: Given) -> dict[str, Run]:
    values, ids = of.values, of.ids
    shape = tuple(of.out.shape)

    def add() -> Any:
        return torch.zeros(shape, dtype=values.dtype, device=values.device).index_add_(
            0, ids, values
        )

    found = {"torch index_add": add}
    if values.device.type == "cuda":
        found["torch deterministic"] = _deterministic(torch, add)
    if of.offsets is not None and values.is_floating_point():
        found["torch segment_reduce"] = lambda: torch.segment_reduce(
            values, "sum", offsets=of.offsets, axis=0, unsafe=True
        )
    return found


def _in_host_memory(torch: Any, of: Given) -> Given:
    """The arrays as tensors."""

    def tensor(array: Any) -> Any:
        return None if array is None else libraries.torch_tensor(torch, array)

    offsets, out = tensor(of.offsets), tensor(of.out)
    return Given(tensor(of.values), tensor(of.ids), offsets, out, of.segments)


def _at(tensor: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(0 if tensor is None else tensor.data_ptr())


def _stream(torch: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def _checked(wrong: bytes | None) -> None:
    if wrong:
        raise RuntimeError(wrong.decode())


def _of_cub(torch: Any, of: Given, library: Path) -> dict[str, Run]:
    """Calls of tools/cub_segments.cu, for sorted ids."""
    element = {torch.float32: 4, torch.float64: 8}.get(of.values.dtype)
    if element is None or of.offsets is None or of.offsets.dtype != torch.int64:
        return {}
    if of.values.ndim > 1:
        return {}
    cub = ctypes.CDLL(str(library))
    cub.cub_by_offsets.restype = cub.cub_by_key.restype = ctypes.c_char_p
    sums, found = torch.empty_like(of.values), torch.empty_like(of.ids)
    count = torch.empty(1, dtype=torch.int64, device="cuda")

    def run(call: Any, *arguments: Any) -> Run:
        nbytes, stream = ctypes.c_size_t(0), _stream(torch)

        def add(scratch: ctypes.c_void_p | None) -> None:
            _checked(call(scratch, ctypes.byref(nbytes), element, *arguments, stream))

        add(None)
        room = torch.empty(nbytes.value + 1, dtype=torch.uint8, device="cuda")

        def again() -> Any:
            add(_at(room))
            return sums, found, count  # which must stay in memory

        return again

    segments, n = ctypes.c_size_t(of.segments), ctypes.c_size_t(len(of.values))
    by_key = (_at(of.values), _at(of.ids), _at(found), _at(sums), _at(count), n)
    by_offsets = (_at(of.values), _at(of.offsets), _at(of.out), segments)
    return {
        "CUB DeviceSegmentedReduce": run(cub.cub_by_offsets, *by_offsets),
        "CUB ReduceByKey": run(cub.cub_by_key, *by_key),
    }


def _limit(torch: Any, of: Given, case: Case, library: Path) -> dict[str, Run]:
    """The least that these sums have to do: tools/cub_segments.cu, too. Of rows, to read them."""
    if of.ids.dtype != torch.int64:
        return {}
    call = ctypes.CDLL(str(library)).limit_of
    call.restype = ctypes.c_char_p
    wide = of.values.ndim > 1
    ids = None if wide or case.ids == "offsets" else of.ids
    words = None
    if not wide and case.ids not in SORTED:
        words = torch.zeros(of.segments, dtype=torch.int64, device="cuda")
    n, stream = ctypes.c_size_t(of.values.numel()), _stream(torch)

    def run() -> Any:
        _checked(call(of.values.element_size(), _at(of.values), _at(ids), _at(words), n, stream))
        return words  # which must stay in memory

    return {LIMIT: run}


def _of_cupy(torch: Any, of: Given) -> dict[str, Run]:
    cupy, cupyx = libraries.load("cupy")[1], load_other("cupyx")
    values, ids, out = (cupy.from_dlpack(x) for x in (of.values, of.ids, of.out))
    if values.dtype.name == "int64":
        return {}

    def add() -> Any:
        sums = cupy.zeros(out.shape, out.dtype)
        cupyx.scatter_add(sums, ids, values)
        return sums

    return {"cupy scatter_add": on_stream_of(torch, add)}


def _of_jax(of: Given) -> dict[str, Run]:
    jax = libraries.load("jax")[1]
    values, ids = (jax.dlpack.from_dlpack(x) for x in (of.values, of.ids.int()))
    call = jax.jit(
        lambda values, ids: jax.ops.segment_sum(
            values, ids, num_segments=of.segments, indices_are_sorted=of.offsets is not None
        )
    )
    return {"jax segment_sum": lambda: call(values, ids).block_until_ready()}


def _of_numpy(of: Given) -> dict[str, Run]:
    def add_at() -> Any:
        out = np.zeros_like(of.out)
        np.add.at(out, of.ids, of.values)
        return out

    found: dict[str, Run] = {"numpy.add.at": add_at}
    if of.values.ndim == 1 and of.values.dtype == np.float64:
        found["numpy.bincount"] = lambda: np.bincount(of.ids, of.values, of.segments)
    return found


_Makers = dict[str, Callable[[], dict[str, Run]]]


def _others(place: Place, case: Case, of: Given, cub: Path | None) -> _Makers:
    """By library, the function that makes its calls."""
    found: _Makers = {}
    if not place.card:
        if "numpy" in place.names:
            found["numpy"] = lambda: _of_numpy(of)
        if "torch" in place.names:
            torch = load_other("torch")
            found["torch"] = lambda: _of_torch(torch, _in_host_memory(torch, of))
        return found
    torch = place.torch
    found["torch"] = lambda: _of_torch(torch, of)
    if cub:
        found["CUB"] = lambda: _of_cub(torch, of, cub)
        found["limit"] = lambda: _limit(torch, of, case, cub)
    # Both add 16-bit floats by compare-and-swap: sorted ids, which meet at few addresses, take them
    # a minute and more.
    is_endless = case.dtype in ("float16", "bfloat16") and of.offsets is not None
    if "cupy" in place.names and case.dtype != "bfloat16" and not is_endless:
        found["cupy"] = lambda: _of_cupy(torch, of)
    if "jax" in place.names and case.dtype not in ("float64", "int64") and not is_endless:
        found["jax"] = lambda: _of_jax(of)
    return found


def contenders(place: Place, case: Case, cub: Path | None) -> Iterator[Contender]:
    """The calls of a case. `cub` is a build of tools/cub_segments.cu."""
    seed = case.segments
    of = given(case, by_torch(place.torch, seed) if place.card else by_numpy(seed))
    for name, run in _ours(of, case, place.own).items():
        yield place.contender(name, run)
    for library, make in _others(place, case, of, cub).items():
        try:
            runs = make()
        except Exception as error:  # a library that cannot take these arrays
            yield unable(library, error)
            continue
        for name, run in runs.items():
            yield place.contender(name, run, own_stream=library == "jax")


def comparison(case: Case) -> Callable[[str, Any], None]:
    """Raises if a call's sums are far from ours, the first: it would measure something else."""
    ours: list[Any] = []

    def compare(name: str, sums: Any) -> None:
        if case.data == "bits" or case.dtype not in ("float32", "float64", "int64"):
            return
        if "CUB" in name or name == LIMIT:
            return
        sums = np.asarray(_to_host(sums))
        ours.append(sums)
        if not np.allclose(sums, ours[0], rtol=1e-3, atol=1e-2 * case.rows**0.5):
            raise ValueError(f"{name} does not add up {case}")

    return compare


def _to_host(sums: Any) -> Any:
    if hasattr(sums, "cpu"):
        return sums.cpu().numpy()
    return sums.get() if hasattr(sums, "get") else sums
