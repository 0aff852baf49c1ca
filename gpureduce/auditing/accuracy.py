"""The distance of results from exact ones."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce import exact
from gpureduce.auditing.results import Result, results_of
from gpureduce.core.dtypes import Array, quietly

Truth = str | Callable[..., Any]

TRUTHS = ("sum", "mean", "var", "std", "norm", "dot")
_HOMES = ("numpy", "cupy", "torch", "jax.numpy", "gpureduce", "gpureduce.exact", "gpureduce.torch")


@dataclass(frozen=True)
class Accuracy:
    """The greatest and the mean distance in ulps from the exact results, each rounded once.

    `first` is the index of the greatest one.
    """

    truth: str
    greatest: float
    mean: float
    first: str


def recognised(f: Any) -> str | None:
    """The truth of a function of a known library, also of one with bound arguments."""
    while isinstance(f, functools.partial):
        f = f.func
    modules = [sys.modules.get(home) for home in _HOMES]
    modules += [getattr(module, "linalg", None) for module in modules]
    name = getattr(f, "__name__", "")
    is_known = name in TRUTHS and any(getattr(module, name, None) is f for module in modules)
    return name if is_known else None


def measured(truth: Truth, arrays: Sequence[Array], results: Sequence[Result]) -> Accuracy:
    """The distances. Of the axes and degrees of freedom that fit the results, the nearest count."""
    name = truth if isinstance(truth, str) else getattr(truth, "__name__", "truth")
    if len(results) != 1:
        raise ValueError(f"truth={name} is for one array of results; f returns {len(results)}")
    got = results[0]
    every = (
        _candidates(truth, arrays, got.values)
        if isinstance(truth, str)
        else [np.asarray(truth(*(x.copy() for x in arrays)))]
    )
    shape = got.values.shape
    tried = [quietly(_distance, name, one, got) for one in every if np.shape(one) == shape]
    if not tried:
        raise ValueError(
            f"truth={name} has no result of the shape {shape}, which f returns: pass a function "
            "that returns the exact results"
        )
    return min(tried, key=lambda one: one.greatest)


def _candidates(truth: str, arrays: Sequence[Array], got: Array) -> Iterator[Array]:
    x, dtype = arrays[0], got.dtype
    wide = [one.astype(np.promote_types(one.dtype, dtype)) for one in arrays]
    counts = range(1, x.ndim + 1)
    for axes in itertools.chain(*(itertools.combinations(range(x.ndim), k) for k in counts)):
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
        if got.shape not in (kept, tuple(np.delete(x.shape, axes))):
            continue
        if truth in ("sum", "mean"):
            found = [getattr(exact, truth)(x, axes, dtype)]
        elif truth in ("var", "std"):
            found = [getattr(exact, truth)(x, axes, dtype, ddof=ddof) for ddof in (0, 1)]
        elif truth == "norm":
            found = [exact.norm(wide[0], axis=axes)]
        else:
            found = [exact.vecdot(wide[0], wide[1], axes[0])] if len(axes) == 1 < len(wide) else []
        yield from (np.reshape(one, got.shape) for one in found)


def _distance(name: str, wanted: Array, got: Result) -> Accuracy:
    (exactly,) = results_of(wanted.astype(got.values.dtype))
    far = np.nan_to_num(got.ulps(exactly), nan=np.inf)
    if not far.any():
        return Accuracy(name, 0.0, 0.0, "")
    at = [int(i) for i in np.unravel_index(np.argmax(far), far.shape)]
    return Accuracy(name, float(far.max()), float(far.mean()), got.path + (str(at) if at else ""))
