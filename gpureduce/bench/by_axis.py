"""Sums along an axis beside other libraries: ``gpureduce bench --axis``.

Times are taken as in :mod:`gpureduce.bench.in_turns`. Our sums are replayed as CUDA graphs, so that
all times but JAX's are of the work on the card. Bandwidths count the bytes of the matrix and of its
sums. A copy of the matrix, whose reads and writes count, is the limit.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpureduce.bench import libraries, report
from gpureduce.bench.axis_runs import (
    CUB,
    JAX,
    PARTS,
    USUAL,
    Bench,
    Calls,
    Case,
    calls_of,
    cases,
)
from gpureduce.bench.contenders.arrays import timed_calls
from gpureduce.bench.in_turns import OnCard, Run, medians, without_failing
from gpureduce.bench.provenance import provenance
from gpureduce.core import devices, json_files
from gpureduce.core.dtypes import is_here
from gpureduce.lazy_import import load_other
from gpureduce.text import EMULATED, rate_text, table

_OURS = ("copy", "fast", "exact", "cpu", "fast, whole array")


def load(path: Path) -> dict[str, Any]:
    """Reads a record of this command. ValueError names the file and a wrong field."""
    return json_files.read_record(path, "axis", rows=list[dict[str, Any]], card=str)


# --- measuring ---------------------------------------------------------------------------------


def _graph_of(torch: Any, run: Run) -> Run:
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay  # type: ignore[no-any-return]


def bench_for(device: str | None, names: Sequence[str]) -> Bench:
    """Where sums are timed: a card, the emulator or the processors."""
    if device == "cpu" or devices.choose_device(device).backend != "cuda":
        return Bench(device, names)
    torch = load_other("torch")
    return Bench(device, names, torch, lambda run: _graph_of(torch, run))


def _milliseconds(of: Calls, part: str, card: OnCard | None, repeats: int) -> dict[str, float]:
    if part == "calls":
        found = {name: timed_calls(run, repeats) for name, run in of.runs.items()}
        return {name: statistics.median(times) / 1e3 for name, times in found.items()}
    clocked = of.clocked if card else set(of.runs)
    return {name: ms / of.count for name, ms in medians(of.runs, clocked, card, repeats).items()}


def _measured(
    bench: Bench, case: Case, base: Any, card: OnCard | None, repeats: int
) -> dict[str, Any]:
    of = calls_of(bench, case, base)
    failed = without_failing(of.runs)
    row = vars(case) | {"nbytes": of.nbytes, "kernel": of.kernel}
    row["ms"] = _milliseconds(of, case.part, card, repeats)
    return row | ({"failed": failed} if failed else {})


def _copied(base: Any, torch: Any, dtype: str, card: OnCard, repeats: int) -> dict[str, Any]:
    to = torch.empty_like(base)
    ms = medians({"copy": lambda: to.copy_(base)}, set(), card, repeats)
    return {"dtype": dtype, "nbytes": 2 * base.nbytes, "ms": ms}


def measure(
    chosen: Sequence[Case], bench: Bench, repeats: int,
    progress: Callable[[int, int, str], None] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A row for each case: its fields, the bytes, and milliseconds by name."""
    card = OnCard(bench.torch) if bench.torch else None
    base: Any = None
    held = ""
    for done, case in enumerate(chosen):
        if progress:
            shape = " x ".join(map(str, case.shape))
            progress(done, len(chosen), f"{case.part}: {case.dtype} {shape}")
        if not is_here(case.dtype):
            continue
        if held != case.dtype:
            base, held = None, case.dtype
            base = bench.elements(max(c.size for c in chosen if c.dtype == held), held)
            if card and case.part == "shapes":
                yield _copied(base, bench.torch, held, card, repeats)
        yield _measured(bench, case, base, card, repeats)
        if card:
            libraries.free(tuple(n for n in bench.names if n in ("torch", "cupy")))


# --- the record as text ------------------------------------------------------------------------


def _part(row: dict[str, Any]) -> str:
    return str(row.get("part", "shapes"))


def of_part(rows: Sequence[dict[str, Any]], part: str) -> list[dict[str, Any]]:
    """The rows of a part, without those of the copy."""
    return [row for row in rows if "rows" in row and _part(row) == part]


def _shape(row: dict[str, Any]) -> str:
    if "rows" not in row:
        return "the matrix"
    sizes = (row["rows"], row["columns"])
    return " x ".join(map(str, (row["batches"], *sizes) if row.get("batches", 1) > 1 else sizes))


def speeds(rows: Sequence[dict[str, Any]], axis: int) -> dict[str, dict[int, float]]:
    """GB/s of float32 matrices of all shapes along an axis, by name and by columns."""
    found: dict[str, dict[int, float]] = {}
    for row in of_part(rows, "shapes"):
        if row["axis"] == axis and row["dtype"] == "float32":
            for name, ms in row["ms"].items():
                found.setdefault(name, {})[row["columns"]] = row["nbytes"] / ms / 1e6
    return found


_Row = dict[str, Any]
_Cell = Callable[[_Row, str], str]


def _names(rows: Sequence[_Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["ms"]))


def _gb_s(row: _Row, name: str) -> str:
    return rate_text(row["nbytes"] / row["ms"][name] / 1e6) if name in row["ms"] else ""


def _us(row: _Row, name: str) -> str:
    return f"{1e3 * row['ms'][name]:.2f}" if name in row["ms"] else ""


def _over(ms: dict[str, float], slower: str, quicker: str) -> str:
    return f"{ms[slower] / ms[quicker]:.2f}" if {slower, quicker} <= ms.keys() else ""


def _fast_over_the_best(row: _Row) -> str:
    ms = row["ms"]
    peers = [name for name in ms if name not in _OURS]
    best = min(peers, key=ms.__getitem__, default="")
    return _over(ms, best, "fast" if "fast" in ms else "cpu")


def _exact_over_fast(row: _Row) -> str:
    ms = row["ms"]
    return _over(ms, "fast" if "fast" in ms else "cpu", "exact")


def _over_a_copy(row: _Row, copies: Mapping[str, float]) -> str:
    """The bandwidth of `fast` in parts of that of a copy, which reads and writes."""
    if "fast" not in row["ms"] or row["dtype"] not in copies:
        return ""
    return f"{row['nbytes'] / row['ms']['fast'] / copies[row['dtype']]:.2f}"


_BESIDE: dict[str, Callable[[_Row], str]] = {
    "fast over the best library": _fast_over_the_best,
    "exact over fast": _exact_over_fast,
}


def as_table(
    rows: Sequence[_Row], cell: _Cell = _gb_s,
    ratios: dict[str, Callable[[_Row], str]] = _BESIDE,
) -> str:  # fmt: skip
    """A line of text for each case, a column for each call."""
    copies = {
        row["dtype"]: row["nbytes"] / row["ms"]["copy"] for row in rows if "copy" in row["ms"]
    }
    if copies:
        ratios = ratios | {"fast over a copy": lambda row: _over_a_copy(row, copies)}
    names = _names(rows)
    kernels = any(row.get("kernel") for row in rows)
    heads = ["dtype", "shape", "axis", *(["kernel of fast"] * kernels), *names, *ratios]
    lines = [
        [row["dtype"], _shape(row), str(row.get("axis", ""))]
        + [row.get("kernel", "")] * kernels
        + [cell(row, name) for name in names]
        + [ratio(row) for ratio in ratios.values()]
        for row in rows
    ]
    return table(heads, lines, [2, *range(3 + kernels, len(heads))])


def _rungs_table(rows: Sequence[_Row]) -> str:
    """A line of text for each kernel, a column for each case."""
    heads = ["kernel", *(f"{_shape(row)}, axis {row['axis']}" for row in rows)]
    lines = [[name, *(_gb_s(row, name) for row in rows)] for name in _names(rows)]
    return table(heads, lines, range(1, len(heads)))


def _hard_table(rows: Sequence[_Row]) -> str:
    return as_table(rows, _us, {"times as long": lambda row: _over(row["ms"], "exact", USUAL)})


_TEXTS: dict[str, tuple[str, Callable[[Sequence[_Row]], str]]] = {
    "shapes": ("GB/s of the matrix and its sums together", as_table),
    "middle": ("GB/s along the middle axis", as_table),
    "rungs": ("GB/s of each kernel, float32", _rungs_table),
    "small": ("Microseconds of a sum of a small matrix, several one after another",
              lambda rows: as_table(rows, _us)),
    "hard": ("Microseconds if exact has to add up each sum a second time", _hard_table),
    "calls": ("Microseconds of the processor for a call that does not wait for its sums",
              lambda rows: as_table(rows, _us, {})),
}  # fmt: skip


def as_text(made: dict[str, Any]) -> str:
    """A record as text."""
    blocks = []
    for part, (title, text_of) in _TEXTS.items():
        if rows := [row for row in made["rows"] if _part(row) == part]:
            blocks += [title, text_of(rows)]
    names = _names(made["rows"])
    notes = [f"{JAX}: from the call until its result is there."] * (JAX in names)
    notes += [f"{CUB}: CUB's DeviceSegmentedReduce, by torch.segment_reduce."] * (CUB in names)
    failed = {name: why for row in made["rows"] for name, why in row.get("failed", {}).items()}
    notes += [f"{name} failed: {why}" for name, why in failed.items()]
    notes += [EMULATED] * (made["device"] == "emulator")
    return "\n\n".join(blocks + ["\n".join(notes)] * bool(notes))


# --- the command -------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gpureduce bench --axis``."""
    parser.add_argument(
        "--axis",
        action="store_true",
        help="time sums along both axes of matrices of all shapes beside other libraries; takes "
        "--sizes, --dtypes, --parts, --device, --repeats and --output",
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, help="with --axis: what to time (default: all)"
    )


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce bench --axis``: measures, prints, and writes a record if asked to."""
    target = report.output_of(arguments, "axis")
    on = None if arguments.device == "cpu" else devices.choose_device(arguments.device)
    on_card = on is not None and on.backend == "cuda"
    if on_card and not importlib.util.find_spec("torch"):
        raise ValueError("bench --axis on a card needs PyTorch, whose events it takes times by")
    wanted = ("torch", "cupy", "jax") if on_card else ("numpy",)
    names = tuple(name for name in wanted if importlib.util.find_spec(name))
    sizes = arguments.sizes or [1 << 28 if on_card else 1 << 16]
    usual = ("float32", "float16", "bfloat16", "float64", "int8", "int32")
    parts = arguments.parts or [part for part in PARTS if on is not None or part != "rungs"]
    chosen = [case for n in sizes for case in cases(n, arguments.dtypes or usual, parts)]
    repeats = report.REPEATS if arguments.repeats is None else arguments.repeats
    made = provenance("axis", on)
    made["device"] = "cpu" if on is None else on.backend
    made["versions"] |= libraries.versions(names)
    bench = bench_for(arguments.device, names)
    found = measure(chosen, bench, repeats, report.progress())
    made["rows"] = report.keeping(found, target, lambda rows: made | {"rows": rows})
    if target:
        report.write(target, made)
    if arguments.json:
        print(json.dumps(made, indent=1))
        return
    print(as_text(made))
