"""The cases of ``gpureduce bench --segments``, and their arrays, by NumPy or by PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gpureduce.core import arrays
from gpureduce.core.dtypes import Array, named

IDS = ("unsorted", "sorted", "offsets", "zipf", "half", "one", "nearly sorted")
DATA = ("normal", "uniform", "bits")
SORTED = ("sorted", "offsets", "one")


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
        raise ValueError(f"--dtypes: sums by segment are timed of {known}")
    return chosen


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


@dataclass(frozen=True)
class Given:
    """A case's arrays, in a library's form. `offsets` is None unless the ids are sorted."""

    values: Any
    ids: Any
    offsets: Any
    out: Any
    segments: int


def given(case: Case) -> Given:
    """A case's NumPy arrays."""
    rng = arrays.random_numbers(case.segments)
    values, ids = _values(rng, case), _ids(rng, case)
    offsets = None
    if case.ids in SORTED:
        counts = np.bincount(ids, minlength=case.segments)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(named(case.index))
    shape = (case.segments, *values.shape[1:])
    return Given(values, ids, offsets, np.empty(shape, values.dtype), case.segments)


def _tensor_of_values(torch: Any, case: Case, how: dict[str, Any]) -> Any:
    kind = getattr(torch, case.dtype)
    shape = (case.rows,) if case.columns == 1 else (case.rows, case.columns)
    if not kind.is_floating_point:
        return torch.randint(-1000, 1000, shape, dtype=kind, **how)
    if case.data == "bits":
        bits = torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, **how).view(torch.float32)
        return torch.where(torch.isfinite(bits), bits, torch.ones_like(bits))
    make = torch.rand if case.data == "uniform" else torch.randn
    wide = torch.float64 if kind == torch.float64 else torch.float32
    return make(shape, dtype=wide, **how).to(kind)


def _tensor_of_ids(torch: Any, case: Case, how: dict[str, Any]) -> Any:
    rows, count, index = case.rows, case.segments, getattr(torch, case.index)
    if case.ids == "one":
        return torch.full((rows,), count // 2, dtype=index, device=how["device"])
    if case.ids == "zipf":
        ranks = torch.arange(1, count + 1, dtype=torch.float64, device=how["device"])
        weights = (ranks**-1.1).cumsum(0)
        drawn = torch.rand(rows, dtype=torch.float64, **how) * weights[-1]
        ranks = torch.searchsorted(weights, drawn).clamp_(max=count - 1)
        return torch.randperm(count, **how)[ranks].to(index)
    found = torch.randint(0, count, (rows,), dtype=index, **how)
    if case.ids == "half":
        half = torch.rand(rows, **how) < 0.5
        return torch.where(half, torch.full_like(found, count // 2), found)
    if case.ids in ("sorted", "offsets", "nearly sorted"):
        found = found.sort().values
    if case.ids == "nearly sorted":
        places = torch.randint(0, rows, (max(1, rows // 1000),), **how)
        found[places] = found[places.flip(0)]
    return found


def given_on_card(torch: Any, case: Case, device: str = "cuda") -> Given:
    """A case's tensors, made on the card: to make them in host memory takes many times longer."""
    how = {"device": device, "generator": torch.Generator(device).manual_seed(case.segments)}
    values, ids = _tensor_of_values(torch, case, how), _tensor_of_ids(torch, case, how)
    offsets = None
    if case.ids in SORTED:
        ends = torch.bincount(ids, minlength=case.segments).cumsum(0)
        offsets = torch.cat([ends.new_zeros(1), ends]).to(ids.dtype)
    out = torch.empty((case.segments, *values.shape[1:]), dtype=values.dtype, device=device)
    return Given(values, ids, offsets, out, case.segments)
