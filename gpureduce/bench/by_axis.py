"""Sums along an axis beside other libraries: ``gpureduce bench --axis``.

Times are taken as in :mod:`gpureduce.bench.in_turns`. Our sums are replayed as CUDA graphs, so that
all times are of the work on the card. Bandwidths count the bytes of the matrix and of its sums. A
copy of the matrix, whose reads and writes count, is the limit.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce.bench import libraries, report
from gpureduce.bench.benchmark import array_of
from gpureduce.bench.in_turns import OnCard, Run, medians
from gpureduce.bench.provenance import provenance
from gpureduce.core import devices, summation
from gpureduce.core.dtypes import is_here
from gpureduce.lazy_import import load_other
from gpureduce.text import EMULATED, table

_COLUMNS = (3, 33, 255, 1000, 2683)  # besides powers of two
_ROWS = 7


@dataclass(frozen=True)
class Case:
    """A matrix, and the axis along which it is added up."""

    rows: int
    columns: int
    axis: int
    dtype: str = "float32"


def shapes(n: int) -> list[tuple[int, int]]:
    """Matrices of some `n` elements, from the narrowest to the widest."""
    columns = [2**k for k in (*range(1, 9), *range(10, 60, 2)) if 2**k < n]
    columns += [c for c in _COLUMNS if c < n] + [n // 4, n // 2, n // _ROWS, n]
    return [(n // c, c) for c in sorted({c for c in columns if c})]


def cases(n: int, dtypes: Sequence[str]) -> list[Case]:
    """All shapes of the first dtype, and every third shape of the others."""
    found = shapes(n)
    return [
        Case(rows, columns, axis, dtype)
        for i, dtype in enumerate(dtypes)
        for rows, columns in (found[::3] if i else found)
        for axis in (1, 0)
    ]


# --- calls -------------------------------------------------------------------------------------


def _graph_of(torch: Any, run: Run) -> Run:
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay  # type: ignore[no-any-return]


def _runs_on_card(case: Case, base: Any, names: Sequence[str]) -> tuple[dict[str, Run], int, str]:
    """Calls by name, the bytes read and written, and the kernel that `fast` takes."""
    torch, axis = load_other("torch"), case.axis
    matrix = base[: case.rows * case.columns].view(case.rows, case.columns)
    first = summation.sum(matrix, "fast", axis=axis)
    out = torch.empty_like(first.value)

    def ours(strategy: str) -> Run:
        return _graph_of(
            torch, lambda: summation.sum(matrix, strategy, axis=axis, out=out, timing=False)
        )

    runs = {"fast": ours("fast")}
    if matrix.is_floating_point():
        runs["exact"] = ours("exact")
    if "torch" in names:
        runs["torch"] = lambda: torch.sum(matrix, axis, out=out)
    if "cupy" in names and case.dtype != "bfloat16":
        cupy = libraries.load("cupy")[1]
        stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
        theirs, sums = cupy.from_dlpack(matrix), cupy.from_dlpack(out)

        def by_cupy() -> None:
            with stream:
                theirs.sum(axis, out=sums)

        runs["CuPy"] = by_cupy
    nbytes = matrix.numel() * matrix.element_size() + out.numel() * out.element_size()
    return runs, nbytes, first.timing.strategy


def _runs_elsewhere(case: Case, device: str | None) -> tuple[dict[str, Run], int, str]:
    matrix = array_of(case.dtype, case.rows * case.columns).reshape(case.rows, case.columns)
    names = ["exact"] if matrix.dtype.kind not in "iu" else []
    names.append("cpu" if device == "cpu" else "fast")
    runs: dict[str, Run] = {
        name: lambda name=name: summation.sum(matrix, name, axis=case.axis, device=device)  # type: ignore[misc]
        for name in names
    }
    runs["NumPy"] = lambda: np.sum(matrix, axis=case.axis)
    found = summation.sum(matrix, names[-1], axis=case.axis, device=device)
    return runs, matrix.nbytes + found.value.nbytes, found.timing.strategy


def _elements(torch: Any, n: int, dtype: str) -> Any:
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        return torch.randn(n, device="cuda").to(kind)
    return torch.randint(-100, 100, (n,), device="cuda", dtype=kind)


def measure(
    chosen: Sequence[Case], device: str | None, names: Sequence[str], repeats: int,
    progress: Callable[[int, int, str], None] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A row for each case: its fields, the bytes, and milliseconds by name."""
    on_card = device != "cpu" and devices.choose_device(device).backend == "cuda"
    torch = load_other("torch") if on_card else None
    card = OnCard(torch) if on_card else None
    base: Any = None
    held = ""
    for done, case in enumerate(chosen):
        if progress:
            progress(done, len(chosen), f"{case.dtype} {case.rows} x {case.columns}")
        if not is_here(case.dtype):
            continue
        if card and held != case.dtype:
            base, held = None, case.dtype
            most = max(c.rows * c.columns for c in chosen if c.dtype == held)
            base = _elements(torch, most, held)
            copied = load_other("torch").empty_like(base)
            copies: dict[str, Run] = {"copy": lambda to=copied, of=base: to.copy_(of)}  # type: ignore[misc]
            copy_ms = medians(copies, set(), card, repeats)
            yield {"dtype": held, "nbytes": 2 * base.nbytes, "ms": copy_ms}
            del copied, copies
        if card:
            runs, nbytes, kernel = _runs_on_card(case, base, names)
        else:
            runs, nbytes, kernel = _runs_elsewhere(case, device)
        found = medians(runs, set() if card else set(runs), card, repeats)
        yield vars(case) | {"nbytes": nbytes, "kernel": kernel, "ms": found}


# --- the command -------------------------------------------------------------------------------


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text: GB/s of each call, and how `fast` and `exact` compare."""
    names = list(dict.fromkeys(name for row in rows for name in row["ms"]))
    peers = [name for name in names if name not in ("copy", "fast", "exact", "cpu")]
    lines = []
    for row in rows:
        ms = row["ms"]
        shape = f"{row['rows']} x {row['columns']}" if "rows" in row else "the matrix"
        ours = ms.get("fast") or ms.get("cpu")
        best = min((ms[name] for name in peers if name in ms), default=None)
        lines.append(
            [row["dtype"], shape, str(row.get("axis", "")), row.get("kernel", "")]
            + [f"{row['nbytes'] / ms[n] / 1e6:.0f}" if n in ms else "" for n in names]
            + [f"{best / ours:.2f}" if ours and best else ""]
            + [f"{ours / ms['exact']:.2f}" if ours and "exact" in ms else ""]
        )
    ratios = ["fast over the best library", "exact over fast"]
    heads = ["dtype", "shape", "axis", "kernel of fast", *names, *ratios]
    return table(heads, lines, [2, *range(4, len(heads))])


def as_text(made: dict[str, Any]) -> str:
    """A record as text."""
    blocks = ["GB/s of the matrix and its sums together", as_table(made["rows"])]
    return "\n\n".join(blocks + [EMULATED] * (made["device"] == "emulator"))


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce bench --axis``: measures, prints, and writes a record if asked to."""
    target = report.output_of(arguments, (".json",))
    on = None if arguments.device == "cpu" else devices.choose_device(arguments.device)
    on_card = on is not None and on.backend == "cuda"
    names = tuple(n for n in ("torch", "cupy") if on_card and importlib.util.find_spec(n))
    if on_card and "torch" not in names:
        raise ValueError("bench --axis on a card needs PyTorch, whose events it takes times by")
    sizes = arguments.sizes or [1 << 28 if on_card else 1 << 16]
    usual = ("float32", "float16", "bfloat16", "float64", "int8", "int32")
    chosen = [case for n in sizes for case in cases(n, arguments.dtypes or usual)]
    repeats = report.REPEATS if arguments.repeats is None else arguments.repeats
    made = provenance("axis", on)
    made["device"] = "cpu" if on is None else on.backend
    made["versions"] |= libraries.versions(names)
    made["rows"] = list(measure(chosen, arguments.device, names, repeats, report.progress()))
    if target:
        target.write_text(json.dumps(made, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(made, indent=1))
        return
    print(as_text(made))
