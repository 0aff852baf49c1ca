"""Additions by index in PyTorch programs, and steps of training: ``gpureduce bench --torch``.

Each is timed as PyTorch does it, by PyTorch's deterministic algorithms, and in the mode of
`gpureduce.torch.reproducible`. On a card the L2 cache is flushed before every call. Steps are timed
on a card only. They are replayed as CUDA graphs if they can be captured, so the times are those of
the card's work.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpureduce.bench import render
from gpureduce.bench.command import REPEATS, Suite
from gpureduce.bench.contenders.places import Place, close_to_first, place_of, unable
from gpureduce.bench.render import Pivot, as_table, of, ratio
from gpureduce.bench.runner import Contender, Group, Row, one_by_one
from gpureduce.bench.suites.segments import deterministic
from gpureduce.core.dtypes import named
from gpureduce.lazy_import import load, load_other

OURS, DETERMINISTIC = "exact", "torch deterministic"
_CASE = ("operation", "n", "columns", "table", "dtype", "skew")


@dataclass(frozen=True)
class Case:
    """`n` rows that are added to the rows of a table. A `skew` above 1 repeats small indices."""

    operation: str
    n: int
    columns: int
    table: int
    dtype: str
    skew: int = 1

    @property
    def model(self) -> str:
        """The model that is trained; empty for an addition."""
        return self.operation.removeprefix("train ") if " " in self.operation else ""

    @property
    def nbytes(self) -> int:
        """Of the rows."""
        return self.n * self.columns * named(self.dtype).itemsize

    def within(self, most: int) -> Case:
        """The same with at most so many elements. Models are not cut."""
        if self.model:
            return self
        share = max(1, -(-self.n * self.columns // most))
        return replace(self, n=max(1, self.n // share), table=max(1, self.table // share))


CASES = (
    Case("index_add", 2_000_000, 128, 100_000, "float32"),
    Case("index_add", 32_768, 7_168, 4_096, "bfloat16"),
    Case("index_add", 8_192, 1_024, 128_000, "float32"),
    Case("index_add", 1_000_000, 1, 100_000, "float32"),
    Case("index_add", 4_096, 128, 4_096, "float32"),
    Case("index_add", 64, 128, 64, "float32"),
    Case("embedding", 16_384, 4_096, 32_000, "bfloat16"),
    Case("embedding", 16_384, 4_096, 32_000, "bfloat16", skew=4),
    Case("embedding", 8_192, 8_192, 128_000, "bfloat16"),
    Case("embedding", 8_192, 8_192, 256_000, "bfloat16"),
    Case("scatter_add", 65_536, 64, 4_096, "float32"),
    Case("train graph", 32_000, 32, 3_200, "float32", skew=2),
    Case("train recommender", 16_384, 16, 8_000, "float32", skew=3),
    Case("train transformer", 512, 256, 4_000, "float32", skew=3),
    Case("train experts", 2_048, 256, 1_024, "float32"),
    Case("train graph", 2_000_000, 64, 100_000, "float32", skew=2),
    Case("train recommender", 131_072, 64, 1_000_000, "float32", skew=3),
    Case("train transformer", 4_096, 512, 32_000, "float32", skew=3),
    Case("train experts", 32_768, 1_024, 16_384, "float32"),
)


def _call(torch: Any, case: Case, device: str) -> Any:
    """The operation on random rows. It adds to its own table in place."""
    seed = torch.Generator(device).manual_seed(0)
    make = functools.partial(torch.randn, generator=seed, device=device)
    rows = make(case.n, case.columns).to(getattr(torch, case.dtype))
    index = torch.rand(case.n, generator=seed, device=device).pow(case.skew)
    ids = (index * case.table).long()
    if case.operation == "embedding":
        gradient = torch.ops.aten.embedding_dense_backward
        return lambda: gradient(rows, ids, case.table, -1, False)
    table = make(case.table, case.columns).to(rows.dtype)
    if case.operation == "index_add":
        return lambda: table.index_add_(0, ids, rows)
    columns = torch.arange(case.columns, device=device)
    own = (ids.unsqueeze(1) + columns) % case.table
    return lambda: table.scatter_add_(0, own, rows)


def _some_rows(table: Any) -> Any:
    """Rows to compare: to copy a whole table would take longer than to make it."""
    return (table[:: -(-len(table) // 1000)] if table.dim() else table).float()  # or a loss


def _captured(torch: Any, step: Any) -> Any:
    """The same step as a replay of a CUDA graph, or the step itself if it cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # first, what PyTorch does once
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            loss = step()
    except RuntimeError:
        torch.cuda.synchronize()
        return step

    def replay(kept: Any = step) -> Any:  # the graph uses its tensors, but owns none
        graph.replay()
        return loss

    return replay


def _contenders(place: Place, case: Case) -> Iterator[Contender]:
    torch, mode = load_other("torch"), load("training.mode")  # the command line imports neither
    with mode.reproducible():
        pass  # what the first call would import
    kinds = {
        "torch": lambda call: call,
        DETERMINISTIC: lambda call: deterministic(torch, call),
        OURS: lambda call: mode.reproducible()(call),
    }
    device = "cuda" if place.card else "cpu"
    for name, by in kinds.items():
        if not case.model:
            yield place.contender(name, by(_call(torch, case, device)))
            continue
        models = load("training.models")
        size = models.Size(case.n, case.columns, case.table)
        step = by(models.step_of(case.model, device, size)[1])
        try:
            yield place.contender(name, _captured(torch, step) if place.card else step)
        except RuntimeError as error:  # PyTorch has no deterministic algorithm
            if name == OURS:
                raise
            yield unable(name, error)


def as_text(made: Row) -> str:
    """A record as text."""
    head = {name: of(name, "," if name in ("n", "columns", "table") else "") for name in _CASE}
    more = {f"{name} / {OURS}": ratio(name, OURS) for name in ("torch", DETERMINISTIC)}
    pivot = Pivot(head, of("median_us", ".1f"), more=more, key=_CASE)

    def table(rows: Sequence[Row]) -> str:
        return as_table(pivot.lines(rows), ("operation", "dtype"))

    return render.as_text(
        made, {"torch": ("Microseconds of additions by index and of training steps", table)}, ()
    )


def suite(arguments: argparse.Namespace) -> Suite:
    """The suite of the command's options."""
    place = place_of(arguments.device, "--torch", ("torch",), "cpu")
    if "torch" not in place.names:
        raise ValueError("bench --torch needs PyTorch: pip install torch")
    if place.device not in ("cpu", None) and not place.card:
        raise ValueError("bench --torch runs on a card or on processors: use --device cuda or cpu")
    most = (arguments.sizes or [1 << 31 if place.card else 1 << 18])[0]
    chosen = dict.fromkeys(case.within(most) for case in CASES if place.card or not case.model)
    repeats = REPEATS if arguments.repeats is None else arguments.repeats
    groups = [
        Group(
            f"{case.operation} {case.n} x {case.columns}",
            {"measure": "torch", **vars(case), "nbytes": case.nbytes},
            functools.partial(_contenders, place, case),
            one_by_one(repeats),
            # PyTorch rounds to bfloat16 at every addition.
            close_to_first(case, case.n * (64 if case.dtype == "bfloat16" else 1), part=_some_rows),
        )
        for case in chosen
    ]
    return Suite("torch", place.on, groups, as_text, place.names)
