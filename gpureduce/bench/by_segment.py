"""Sums by segment beside other libraries: ``gpureduce bench --segments``.

On a card the L2 cache is flushed before every call, and CUDA events around the call give its time.
The card is kept busy meanwhile, so that the launches of a call do not wait for Python. Calls of
JAX, which has streams of its own, are timed by the processor's clock until their result is there.
Elsewhere all are timed by that clock.

For sorted ids, the other libraries' calls by offsets get these for nothing. CUB's sums by key leave
out the segments without elements.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce.bench import libraries, report
from gpureduce.bench.in_turns import OnCard, Run, medians, without_failing
from gpureduce.bench.provenance import provenance
from gpureduce.bench.segment_cases import SORTED, Case, Given, cases, given, given_on_card
from gpureduce.core import devices, json_files
from gpureduce.core.dtypes import Array, is_here, quietly
from gpureduce.core.segments import segment_sum
from gpureduce.lazy_import import load_other
from gpureduce.text import EMULATED, Table, table

__all__ = [
    "Case",
    "Given",
    "as_table",
    "as_text",
    "cases",
    "command",
    "given",
    "measure",
    "missed",
    "recorded",
]

_LIMIT = "limit"  # the least that has to be done

# --- who adds up -------------------------------------------------------------------------------


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


def _cub_runs(torch: Any, of: Given, library: Path) -> dict[str, Run]:
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

    def at(tensor: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(tensor.data_ptr())

    def run(call: Any, *arguments: Any) -> Run:
        nbytes = ctypes.c_size_t(0)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def add(scratch: ctypes.c_void_p | None) -> None:
            wrong = call(scratch, ctypes.byref(nbytes), element, *arguments, stream)
            if wrong:
                raise RuntimeError(wrong.decode())

        add(None)
        room = torch.empty(nbytes.value + 1, dtype=torch.uint8, device="cuda")

        def again() -> Any:
            add(at(room))
            return sums, found, count  # which must stay in memory

        return again

    segments, n = ctypes.c_size_t(of.segments), ctypes.c_size_t(len(of.values))
    by_key = (at(of.values), at(of.ids), at(found), at(sums), at(count), n)
    by_offsets = (at(of.values), at(of.offsets), at(of.out), segments)
    return {
        "CUB DeviceSegmentedReduce": run(cub.cub_by_offsets, *by_offsets),
        "CUB ReduceByKey": run(cub.cub_by_key, *by_key),
    }


def _limit_runs(torch: Any, of: Given, case: Case, library: Path) -> dict[str, Run]:
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
    given = [ctypes.c_void_p(x.data_ptr() if x is not None else 0) for x in (of.values, ids, words)]
    n = ctypes.c_size_t(of.values.numel())
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def run() -> Any:
        wrong = call(of.values.element_size(), *given, n, stream)
        if wrong:
            raise RuntimeError(wrong.decode())
        return words  # which must stay in memory

    return {_LIMIT: run}


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


def _runs_on_card(
    case: Case, names: Sequence[str], cub: Path | None
) -> tuple[dict[str, Run], set[str], dict[str, str]]:
    """Calls by name, the names of those that no event times, and why libraries have none."""
    clocked: set[str] = set()
    failed: dict[str, str] = {}
    torch = load_other("torch")
    of = given_on_card(torch, case)
    runs = _ours(of, case, None)
    makers: dict[str, Callable[[], dict[str, Run]]] = {}
    if "torch" in names:
        makers["torch"] = lambda: _torch_runs(torch, of)
    if cub:
        makers["CUB"] = lambda: _cub_runs(torch, of, cub)
        makers["limit"] = lambda: _limit_runs(torch, of, case, cub)
    # Both add 16-bit floats by compare-and-swap: sorted ids, which meet at few addresses, take them
    # a minute and more.
    is_endless = case.dtype in ("float16", "bfloat16") and of.offsets is not None
    if "cupy" in names and case.dtype != "bfloat16" and not is_endless:
        makers["cupy"] = lambda: _cupy_runs_beside(torch, of)
    if "jax" in names and case.dtype not in ("float64", "int64") and not is_endless:
        makers["jax"] = lambda: _jax_runs_beside(of, case)
    for name, make in makers.items():
        try:
            found = make()
        except Exception as error:  # a library that cannot take these arrays
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            continue
        runs |= found
        clocked |= found.keys() if name == "jax" else set()
    return runs, clocked, failed


def _cupy_runs_beside(torch: Any, of: Given) -> dict[str, Run]:
    cupy = libraries.load("cupy")[1]
    values, ids, out = (cupy.from_dlpack(x) for x in (of.values, of.ids, of.out))
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    runs = _cupy_runs(cupy, Given(values, ids, None, out, of.segments))
    return {name: _on_stream(stream, run) for name, run in runs.items()}


def _jax_runs_beside(of: Given, case: Case) -> dict[str, Run]:
    jax = libraries.load("jax")[1]
    values, ids = (jax.dlpack.from_dlpack(x) for x in (of.values, of.ids.int()))
    is_sorted = of.offsets is not None
    return _jax_runs(jax, Given(values, ids, None, None, case.segments), is_sorted)


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


def _comparison(case: Case) -> Callable[[str, Any], None]:
    """Raises if a call's sums are far from ours, the first: it would measure something else."""
    ours: list[Any] = []

    def compare(name: str, sums: Any) -> None:
        if case.data == "bits" or case.dtype not in ("float32", "float64", "int64"):
            return
        if "CUB" in name or name == _LIMIT:
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


def measure(
    chosen: Sequence[Case], device: str | None, names: Sequence[str], repeats: int,
    progress: Callable[[int, int, str], None] | None = None, cub: Path | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A row for each case: its fields, and milliseconds by name."""
    on_card = device != "cpu" and devices.choose_device(device).backend == "cuda"
    card = OnCard(load_other("torch")) if on_card else None
    for done, case in enumerate(chosen):
        if progress:
            progress(done, len(chosen), f"{case.dtype} {case.segments} {case.ids}")
        if not is_here(case.dtype):
            continue
        failed: dict[str, str] = {}
        if on_card:
            runs, clocked, failed = _runs_on_card(case, names, cub)
        else:
            runs, clocked = _runs_elsewhere(case, names, device)
        # NumPy warns of sums of random bits, which overflow.
        failed |= quietly(without_failing, runs, _comparison(case))
        found = quietly(medians, runs, clocked, card, repeats)
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


# Columns of the table: the heads, and the calls' names.
_COLUMNS = {
    "exact": "exact",
    "as called": "exact, as called by default",
    "sorted=True": "exact, sorted=True",
    "fast": "fast",
    "index_add": "torch index_add",
    "determ.": "torch deterministic",
    "segm._reduce": "torch segment_reduce",
    "CuPy": "cupy scatter_add",
    "JAX*": "jax segment_sum",
    "CUB segm.": "CUB DeviceSegmentedReduce",
    "CUB by key": "CUB ReduceByKey",
    "add.at": "numpy.add.at",
    "bincount": "numpy.bincount",
    "limit": _LIMIT,
}
_OURS = ("exact", "exact, as called by default", "exact, sorted=True", "fast", _LIMIT)
# Sums by offsets are held against other sums by offsets.
_BY_OFFSETS = ("torch segment_reduce", "CUB DeviceSegmentedReduce")


def _best_peer(row: dict[str, Any]) -> float | None:
    """Milliseconds of the quickest other call of the same kind."""
    ms = {name: value for name, value in row["ms"].items() if name not in _OURS}
    if row["ids"] == "offsets" and any(name in ms for name in _BY_OFFSETS):
        ms = {name: value for name, value in ms.items() if name in _BY_OFFSETS}
    return min((value for name, value in ms.items() if "deterministic" not in name), default=None)


def _kind(row: dict[str, Any]) -> str:
    """The properties of the values and ids that differ from the usual ones."""
    more = [row["data"]] * (row["data"] != "normal")
    more += [f"rows of {row['columns']}"] * (row["columns"] > 1)
    more += [f"{row['index']} ids"] * (row["index"] != "int64")
    return ", ".join([row["dtype"], *more])


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text: milliseconds of each call, and ratios."""
    heads = [head for head, name in _COLUMNS.items() if any(name in row["ms"] for row in rows)]
    ratios = ["exact/best", "determ./exact", *["exact/limit"] * (_LIMIT in heads)]
    lines = []
    for row in rows:
        ms, best = row["ms"], _best_peer(row)
        times = [f"{ms[_COLUMNS[h]]:.3f}" if _COLUMNS[h] in ms else "" for h in heads]
        certain = ms.get("torch deterministic")
        over = f"{ms['exact'] / best:.2f}" if best else ""
        under = f"{certain / ms['exact']:.1f}" if certain else ""
        least = f"{ms['exact'] / ms[_LIMIT]:.2f}" if _LIMIT in ms else ""
        found = [over, under, least][: len(ratios)]
        lines.append([_kind(row), row["ids"], f"{row['segments']:,}", *times, *found])
    columns = ["values", "ids", "segments", *heads, *ratios]
    return table(columns, lines, list(range(2, len(columns))))


def as_text(made: dict[str, Any]) -> str:
    """A record as text."""
    rows = made["rows"]
    sizes = ", ".join(f"{n:,}" for n in dict.fromkeys(row["n"] for row in rows))
    blocks = [f"Milliseconds for {sizes} numbers", as_table(rows)]
    clocked = any(row["clocked"] for row in rows)
    blocks += ["* whole calls, by the processor's clock"] * clocked
    failed = {f"{name}: {why}" for row in rows for name, why in row["failed"].items()}
    blocks += ["\n".join(["Left out:", *sorted(failed)])] * bool(failed)
    return "\n\n".join(blocks + [EMULATED] * (made["device"] == "emulator"))


def recorded(path: str | Path = "data/segments_h100.json") -> Table:
    """The float32 sums of a record, unsorted and sorted: who takes how long, in milliseconds.

    Without that file the table says that it is not recorded yet.
    """
    title, path = "Sums by key on a card, in milliseconds", Path(path)
    head = ["keys", "ids", "index_add", "its deterministic mode", "exact", "exact over index_add"]
    if not path.exists():
        card = path.stem.partition("_")[2].upper()
        return Table(title, head, [], [f"{card}: not recorded yet. `gpureduce bench --segments`."])
    record = json_files.read(path)
    rows = []
    for row in record["rows"]:
        ms = row["ms"]
        if _kind(row) != "float32" or row["ids"] == "offsets" or "torch index_add" not in ms:
            continue
        names = ("torch index_add", "torch deterministic", "exact")
        times = [f"{ms[name]:.3f}" if name in ms else "" for name in names]
        ratio = f"{ms['exact'] / ms['torch index_add']:.2f}"
        rows.append([f"{row['segments']:,}", row["ids"], *times, ratio])
    size = f"{record['rows'][0]['n']:,} elements"
    made = f"{record['card']}: driver {record['driver']}, {record['date']}; {size}."
    return Table(title, head, rows, [made])


# The least that float32 sums of 2^26 numbers by int64 ids are to reach on an H200. By segments: the
# time over that of torch's index_add at most, how many times its deterministic mode takes at least,
# the time by offsets and by sorted ids over that of the best other call at most.
_TARGETS = {
    100: (0.03, 250, 1.1, 2),
    10_000: (0.65, 15, 1.1, 3),
    1_000_000: (1.0, 20, 0.12, 0.4),
    16_000_000: (1.3, 7, 0.02, 0.7),
}


def missed(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the rows of a card miss of the targets, worst first."""
    found = []
    for row in rows:
        usual = (row["dtype"], row["columns"], row["data"], row["index"])
        wanted = _TARGETS.get(row["segments"])
        if usual != ("float32", 1, "normal", "int64") or row["n"] != 1 << 26 or not wanted:
            continue
        ms, best = row["ms"], _best_peer(row)
        add, certain = ms.get("torch index_add"), ms.get("torch deterministic")
        checks: list[tuple[float, str]] = []
        if row["ids"] == "unsorted" and add and certain:
            over, under = ms["exact"] / add, certain / ms["exact"]
            checks.append((over / wanted[0], f"{over:.3g} of index_add, not {wanted[0]}"))
            said = f"the deterministic index_add takes {under:.3g} times as long, not {wanted[1]}"
            checks.append((wanted[1] / under, said))
        most = {"offsets": wanted[2], "sorted": wanted[3]}.get(row["ids"])
        if most and best:
            ratio = ms["exact"] / best
            checks.append((ratio / most, f"{ratio:.3g} of the best other call, not {most}"))
        name = f"{row['segments']:,} segments, {row['ids']}"
        found += [(by, f"{name}: {said}") for by, said in checks if by > 1]
    return [f"{said} ({by:.2f} times off)" for by, said in sorted(found, reverse=True)]


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce bench --segments``: measures, prints, and writes a record if asked to."""
    target = report.output_of(arguments, "segments")
    device = arguments.device
    if device is None and devices.choose_device(None).backend != "cuda":
        device = "cpu"  # as by segment_sum
    names = _peers(device)
    on = None if device == "cpu" else devices.choose_device(device)
    sizes = arguments.sizes or [1 << 26 if on is not None and on.backend == "cuda" else 1 << 16]
    chosen = [case for n in sizes for case in cases(n, arguments.dtypes)]
    repeats = report.REPEATS if arguments.repeats is None else arguments.repeats
    made = provenance("segments", on)
    made["device"] = "cpu" if on is None else on.backend
    made["versions"] |= libraries.versions(tuple(n for n in names if n != "numpy"))
    cub = arguments.cub and Path(arguments.cub).resolve()
    if cub and not cub.is_file():
        raise ValueError(f"--cub: there is no file {arguments.cub}")
    found = measure(chosen, device, names, repeats, report.progress(), cub)
    made["rows"] = report.keeping(found, target, lambda rows: made | {"rows": rows})
    if target:
        report.write(target, made)
    if arguments.json:
        print(json.dumps(made, indent=1))
        return
    print(as_text(made))
    for text in missed(made["rows"]) if made["device"] == "cuda" else ():
        print(f"missed: {text}")
