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
from gpureduce.auditing.results import Results, compared, element, results_of, running
from gpureduce.core.dtypes import Array, quietly

Truth = str | Callable[..., Any]

# The exact results along axes, with each number of degrees of freedom.
_EXACT: dict[str, Callable[..., list[Any]]] = {
    "sum": lambda axes, dtype, x, *_: [exact.sum(x, axes, dtype)],
    "mean": lambda axes, dtype, x, *_: [exact.mean(x, axes, dtype)],
    "var": lambda axes, dtype, x, *_: [exact.var(x, axes, dtype, ddof=n) for n in (0, 1)],
    "std": lambda axes, dtype, x, *_: [exact.std(x, axes, dtype, ddof=n) for n in (0, 1)],
    "norm": lambda axes, dtype, x, *_: [exact.norm(x, axis=axes)],
    "dot": lambda axes, dtype, *pair: [exact.vecdot(*pair, *axes)] if len(axes) == 1 else [],
}
TRUTHS = tuple(_EXACT)
_HOMES = ("numpy", "cupy", "torch", "jax.numpy", "gpureduce", "gpureduce.exact", "gpureduce.torch")
# Bound arguments with which a function has one of the exact results.
_FORM = {"axis", "dim", "keepdims", "keepdim", "dtype", "strategy", "device"}
_DDOF = {"ddof", "correction", "unbiased"}


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
    if isinstance(f, functools.partial):
        others = {name: value for name, value in f.keywords.items() if name not in _FORM}
        if f.args or any(k not in _DDOF or v not in (0, 1) for k, v in others.items()):
            return None
        f = f.func
    modules = [sys.modules.get(home) for home in _HOMES]
    modules += [getattr(module, "linalg", None) for module in modules]
    name = getattr(f, "__name__", "")
    is_known = name in TRUTHS and any(getattr(module, name, None) is f for module in modules)
    return name if is_known else None


def measured(truth: Truth, arrays: Sequence[Array], results: Results) -> Accuracy:
    """The distances. Of the axes and degrees of freedom that fit the results, the nearest count."""
    name = truth if isinstance(truth, str) else getattr(truth, "__name__", "truth")
    if len(results) != 1:
        raise ValueError(f"truth={name} is for one array of results; f returns {len(results)}")
    ((path, got),) = results.items()
    if isinstance(truth, str):
        every = [*_along_axes(truth, arrays, got)]
    else:
        with running(f"truth={name}"):
            found = truth(*(x.copy() for x in arrays))
        every = [
            one for one in results_of(found, f"truth={name}").values() if one.shape == got.shape
        ]
    wanted = (quietly(one.astype, got.dtype) for one in every)
    distances = [np.nan_to_num(compared(got, one)[1], nan=np.inf) for one in wanted]
    if not distances:
        raise ValueError(
            f"truth={name} has no result of the shape {got.shape}, which f returns: pass a "
            "function that returns the exact results"
        )
    far = min(distances, key=lambda one: float(one.max(initial=0)))
    first = element(path, np.argmax(far), far.shape) if far.any() else ""
    return Accuracy(name, float(far.max(initial=0)), float(far.sum() / max(far.size, 1)), first)


def _along_axes(truth: str, arrays: Sequence[Array], got: Array) -> Iterator[Array]:
    """The exact results along all axes that fit the results of the function."""
    shape = arrays[0].shape
    wide = [x.astype(np.promote_types(x.dtype, got.dtype)) for x in arrays]
    numbers = wide if truth in ("norm", "dot") else arrays
    for k in range(len(shape)):
        for axes in itertools.combinations(range(len(shape)), k + 1):
            kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
            if got.shape in (kept, tuple(np.delete(shape, axes))):
                found = _EXACT[truth](axes, got.dtype, *numbers)
                yield from (np.reshape(one, got.shape) for one in found)
