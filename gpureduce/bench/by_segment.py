"""Sums by segment beside other libraries: ``gpureduce bench --segments``.

On a card the L2 cache is flushed before every call, and CUDA events around the call give its time.
The card is kept busy meanwhile, so that the launches of a call do not wait for Python. Calls of
JAX, which has streams of its own, are timed by the processor's clock until their result is there.
Elsewhere all are timed by that clock.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gpureduce.bench import libraries, report
from gpureduce.bench.in_turns import OnCard, Run, medians, without_failing
from gpureduce.bench.provenance import provenance
from gpureduce.core import arrays, devices
from gpureduce.core.dtypes import Array, is_here, named
from gpureduce.core.segments import segment_sum
from gpureduce.lazy_import import load_other
from gpureduce.text import EMULATED, table

IDS = ("unsorted", "sorted", "offsets", "zipf", "half", "one", "nearly sorted")
DATA = ("normal", "uniform", "bits")


@dataclass(frozen=True)
class Case:
    """What is added up: `n` elements in rows of `columns`, to so many segments."""

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


def cases(n: int) -> list[Case]:
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
    return list(dict.fromkeys(found))


# --- the arrays --------------------------------------------------------------------------------


def _values(rng: np.random.Generator, case: Case) -> Array:
    found: Any
    kind = named(case.dtype)
    shape = (case.rows,) if case.columns == 1 else (case.rows, case.columns)
    if kind.kind in "iu":
        found = rng.integers(-1000, 1000, shape, dtype=kind)
    elif case.data == "bits":
        found = rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
        found = np.where(np.isfinite(found), found, np.float32(1))
    else:
        make = rng.random if case.data == "uniform" else rng.standard_normal
        found = make(shape, dtype=np.float64 if kind == np.float64 else np.float32)
    return cast(Array, found.astype(kind, copy=False))


def _ids(rng: np.random.Generator, case: Case, sort: Callable[[Array], Array]) -> Array:
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
        found = sort(found)
    if case.ids == "nearly sorted":
        places = rng.integers(0, rows, max(1, rows // 1000))
        found[places] = found[places[::-1]]
    return found


@dataclass(frozen=True)
class Given:
    """A case's arrays, in a library's form. `offsets` is None unless the case is by offsets."""

    values: Any
    ids: Any
    offsets: Any
    out: Any
    segments: int


def given(case: Case, sort: Callable[[Array], Array] = np.sort) -> Given:
    """A case's NumPy arrays."""
    rng = arrays.random_numbers(case.segments)
    values, ids = _values(rng, case), _ids(rng, case, sort)
    offsets = None
    if case.ids == "offsets":
        counts = np.bincount(ids, minlength=case.segments)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(named(case.index))
    shape = (case.segments, *values.shape[1:])
    return Given(values, ids, offsets, np.empty(shape, values.dtype), case.segments)


# --- who adds up -------------------------------------------------------------------------------


def _ours(of: Given, case: Case, device: str | None) -> dict[str, Run]:
    """Our calls: as quick as they get, and as they are made by default."""
    how: dict[str, Any] = {"num_segments": of.segments, "device": device}
    if of.offsets is not None:
        how = {"offsets": of.offsets, "device": device}
    else:
        how["segment_ids"] = of.ids
    quick = how | {"out": of.out, "check": False, "timing": False}
    found = {"exact": lambda: segment_sum(of.values, **quick).value}
    found["exact, as called by default"] = lambda: segment_sum(of.values, **how).value
    if of.offsets is not None:
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


def _torch_runs(torch: Any, of: Given) -> dict[str, Run]:
    values, ids = of.values, of.ids
    shape = tuple(of.out.shape)

    def add() -> Any:
        return torch.zeros(shape, dtype=values.dtype, device=values.device).index_add_(
            0, ids, values
        )

    found = {"torch index_add": add, "torch deterministic": _deterministic(torch, add)}
    if of.offsets is not None and values.is_floating_point():
        found["torch segment_reduce"] = lambda: torch.segment_reduce(
            values, "sum", offsets=of.offsets, axis=0, unsafe=True
        )
    return found


def _torch_given(torch: Any, of: Given, device: str) -> Given:
    def put(array: Array | None) -> Any:
        if array is None:
            return None
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
        return torch.from_numpy(array).to(device)

    return Given(put(of.values), put(of.ids), put(of.offsets), put(of.out), of.segments)


def _cupy_runs(cupy: Any, of: Given) -> dict[str, Run]:
    cupyx = load_other("cupyx")
    if of.values.dtype.name in ("bfloat16", "int64"):
        return {}

    def add() -> Any:
        out = cupy.zeros(of.out.shape, of.out.dtype)
        cupyx.scatter_add(out, of.ids, of.values)
        return out

    return {"cupy scatter_add": add}


def _jax_runs(jax: Any, of: Given, is_sorted: bool) -> dict[str, Run]:
    call = jax.jit(
        lambda values, ids: jax.ops.segment_sum(
            values, ids, num_segments=of.segments, indices_are_sorted=is_sorted
        )
    )
    return {"jax segment_sum": lambda: call(of.values, of.ids).block_until_ready()}


def _numpy_runs(of: Given) -> dict[str, Run]:
    def add_at() -> Any:
        out = np.zeros_like(of.out)
        np.add.at(out, of.ids, of.values)
        return out

    found: dict[str, Run] = {"numpy.add.at": add_at}
    if of.values.ndim == 1 and of.values.dtype == np.float64:
        found["numpy.bincount"] = lambda: np.bincount(of.ids, of.values, of.segments)
    return found


# --- measuring ---------------------------------------------------------------------------------


def _runs_on_card(case: Case, names: Sequence[str]) -> tuple[dict[str, Run], set[str]]:
    """Calls by name, and the names of those that no event times."""
    clocked: set[str] = set()
    torch = load_other("torch")
    host = given(case, lambda ids: torch.from_numpy(ids).cuda().sort().values.cpu().numpy())
    of = _torch_given(torch, host, "cuda")
    runs = _ours(of, case, None)
    if "torch" in names:
        runs |= _torch_runs(torch, of)
    if "cupy" in names:
        cupy = libraries.load("cupy")[1]
        in_cupy = [x if x is None else cupy.from_dlpack(x) for x in (of.values, of.ids, of.out)
                   if case.dtype != "bfloat16"]  # fmt: skip
        if in_cupy:
            values, ids, out = in_cupy
            stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
            for name, run in _cupy_runs(cupy, Given(values, ids, None, out, of.segments)).items():
                runs[name] = _on_stream(stream, run)
    if "jax" in names and case.dtype not in ("float64", "int64"):
        jax = libraries.load("jax")[1]
        placed = [jax.device_put(x, jax.devices("gpu")[0])
                  for x in (host.values, host.ids.astype(np.int32))]  # fmt: skip
        found = _jax_runs(
            jax,
            Given(placed[0], placed[1], None, None, of.segments),
            case.ids in ("sorted", "offsets", "one"),
        )
        clocked |= found.keys()
        runs |= found
    return runs, clocked


def _on_stream(stream: Any, run: Run) -> Run:
    def call() -> Any:
        with stream:
            return run()

    return call


def _runs_elsewhere(
    case: Case, names: Sequence[str], device: str | None
) -> tuple[dict[str, Run], set[str]]:
    of = given(case)
    runs = _ours(of, case, device)
    if "numpy" in names:
        runs |= _numpy_runs(of)
    if "torch" in names:
        torch = load_other("torch")
        in_torch = _torch_given(torch, of, "cpu")
        runs |= {k: v for k, v in _torch_runs(torch, in_torch).items() if "determin" not in k}
    return runs, set(runs)


def _check(runs: dict[str, Run], case: Case) -> None:
    """Raises if a call's sums are far from ours: it would measure something else."""
    if case.data == "bits" or case.dtype not in ("float32", "float64", "int64"):
        return
    found = {name: np.asarray(_to_host(run())) for name, run in runs.items()}
    for name, sums in found.items():
        if not np.allclose(sums, found["exact"], rtol=1e-3, atol=1e-2 * case.rows**0.5):
            raise ValueError(f"{name} does not add up {case}")


def _to_host(sums: Any) -> Any:
    if hasattr(sums, "cpu"):
        return sums.cpu().numpy()
    return sums.get() if hasattr(sums, "get") else sums


def measure(
    chosen: Sequence[Case], device: str | None, names: Sequence[str], repeats: int,
    progress: Callable[[int, int, str], None] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A row for each case: its fields, and milliseconds by name."""
    on_card = device != "cpu" and devices.choose_device(device).backend == "cuda"
    card = OnCard(load_other("torch")) if on_card else None
    for done, case in enumerate(chosen):
        if progress:
            progress(done, len(chosen), f"{case.dtype} {case.segments} {case.ids}")
        if not is_here(case.dtype):
            continue
        runs, clocked = (
            _runs_on_card(case, names) if on_card else _runs_elsewhere(case, names, device)
        )
        failed = without_failing(runs)
        _check(runs, case)
        found = medians(runs, clocked, card, repeats)
        del runs
        if on_card:
            libraries.free(tuple(n for n in names if n in ("torch", "cupy")))
        by_clock = sorted(clocked & found.keys()) if on_card else []
        yield vars(case) | {"ms": found, "clocked": by_clock, "failed": failed}


# --- the command -------------------------------------------------------------------------------


def _peers(device: str | None) -> tuple[str, ...]:
    on_card = device != "cpu" and devices.choose_device(device).backend == "cuda"
    wanted = ("torch", "cupy", "jax") if on_card else ("numpy", "torch")
    found = tuple(name for name in wanted if importlib.util.find_spec(name))
    if on_card and "torch" not in found:
        raise ValueError("bench --segments on a card needs PyTorch, whose events it takes times by")
    return found


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text: milliseconds, and how many times as long each call took as ours."""
    lines = []
    for row in rows:
        best = row["ms"]["exact"]
        case = f"{row['dtype']} {row['data']}, {row['n']} by {row['columns']}, {row['index']}"
        for name, ms in row["ms"].items():
            ratio = f"{ms / best:.2f}"
            lines.append([case, str(row["segments"]), row["ids"], name, f"{ms:.3f}", ratio])
    heads = ["values", "segments", "ids", "call", "ms", "of exact"]
    return table(heads, lines, [1, 4, 5])


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce bench --segments``: measures, prints, and writes a record if asked to."""
    target = report.output_of(arguments, (".json",))
    device = arguments.device
    names = _peers(device)
    on = None if device == "cpu" else devices.choose_device(device)
    sizes = arguments.sizes or [1 << 26 if on is not None and on.backend == "cuda" else 1 << 16]
    chosen = [case for n in sizes for case in cases(n)]
    if arguments.dtypes:
        chosen = [case for case in chosen if case.dtype in arguments.dtypes]
    repeats = report.REPEATS if arguments.repeats is None else arguments.repeats
    made = provenance("segments", on)
    made["device"] = "cpu" if on is None else on.backend
    made["versions"] |= libraries.versions(tuple(n for n in names if n != "numpy"))
    made["rows"] = list(measure(chosen, device, names, repeats, report.progress()))
    if target:
        target.write_text(json.dumps(made, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(made, indent=1))
        return
    print(as_table(made["rows"]))
    if made["device"] == "emulator":
        print(f"\n{EMULATED}")
