"""The results of a call, as arrays by their paths, and their distances from exact ones."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce import exact
from gpureduce.auditing.libraries import library_of
from gpureduce.core.checks import shown
from gpureduce.core.device_array import DeviceArray
from gpureduce.core.dtypes import Array, quietly
from gpureduce.core.results import SumResult

Results = dict[str, Array]  # by paths: "" of a single array, or such as ['a'][1]

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
_PACKAGES = ("numpy", "cupy", "torch", "jax", "gpureduce")
# Bound arguments with which a function has one of the exact results.
_FORM = {"axis", "dim", "keepdims", "keepdim", "dtype", "strategy", "device"}


def error_text(error: BaseException) -> str:
    """An error as one short line."""
    line, _, _ = str(error).strip().partition("\n")
    return f"{type(error).__name__}: {line[:70]}".rstrip(": ")


@contextlib.contextmanager
def running(what: str) -> Iterator[None]:
    """For code of the user's, which may raise anything, or exit."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise RuntimeError(f"{what} raises {error_text(error)}") from error


def results_of(found: Any, path: str = "") -> Results:
    """Copies in host memory of an array, a number, or a list or dict of them."""
    found = found.value if isinstance(found, SumResult) else found
    found = found.to_numpy() if isinstance(found, DeviceArray) else found
    if isinstance(found, (Mapping, tuple, list)):
        pairs = found.items() if isinstance(found, Mapping) else enumerate(found)
        parts = [results_of(each, f"{path}[{key!r}]") for key, each in pairs]
        return {name: values for part in parts for name, values in part.items()}
    library, where = library_of(found), path or "the result"
    if library is None and not isinstance(found, (bool, int, float, complex)):
        raise TypeError(
            f"{where} is {shown(found)}: a function must return arrays or numbers of NumPy, CuPy, "
            "PyTorch or JAX, or a list or dict of them"
        )
    values = library.host(found) if library else np.asarray(found)
    if values.dtype.char not in "?bhilqpBHILQPefdFDmM" and values.dtype.name != "bfloat16":
        raise TypeError(f"{where} has the dtype {values.dtype}: return float64, for example")
    return {path: np.array(values, values.dtype.newbyteorder("="), order="C", subok=False)}


def compared(got: Array, wanted: Array) -> tuple[Array, Array]:
    """Which elements have other bits, and how many floats or integers lie between two elements.

    All nans are equal; between a nan and a number lie nan.
    """
    kind = got.dtype.kind
    a, b = (np.stack([x.real, x.imag] if kind == "c" else [x], -1) for x in (got, wanted))
    nans = np.isnan(a).astype(np.int8) + np.isnan(b)
    integer = np.dtype(f"{'u' if kind in 'bu' else 'i'}{a.itemsize}")
    a, b = a.view(integer), b.view(integer)
    differ = ((a != b) & (nans < 2)).any(-1)
    if kind in "fcV":  # in the order of the floats; -0.0 and 0.0 become 0
        a, b = (np.where(x < 0, np.iinfo(integer).min - x, x) for x in (a, b))
    far = np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)
    return differ, np.choose(nans, [far.astype(np.float64), np.nan, 0.0]).max(-1)


@dataclass(frozen=True)
class Accuracy:
    """The greatest and the mean distance in ulps from the exact results, each rounded once."""

    truth: str
    greatest: float
    mean: float


def recognised(f: Any) -> str | None:
    """The truth of a function of a known library, also of one with bound arguments."""
    if isinstance(f, functools.partial) and not f.args and f.keywords.keys() <= _FORM:
        f = f.func
    package = str(getattr(f, "__module__", None) or "torch").partition(".")[0]
    name = str(getattr(f, "__name__", ""))
    return name if name in TRUTHS and package in _PACKAGES else None


def measured(truth: str, arrays: Sequence[Array], results: Results) -> Accuracy:
    """The distances. Of the axes and degrees of freedom that fit the results, the nearest count."""
    got = next(iter(results.values()))
    wanted = (quietly(one.astype, got.dtype) for one in _along_axes(truth, arrays, got))
    distances = [np.nan_to_num(compared(got, one)[1], nan=np.inf) for one in wanted]
    if not distances or len(results) > 1:
        shapes = [one.shape for one in results.values()]
        raise ValueError(f"truth={truth!r} has other shapes than f returns: {shapes}")
    far = min(distances, key=lambda one: float(one.max(initial=0)))
    return Accuracy(truth, float(far.max(initial=0)), float(far.sum() / max(far.size, 1)))


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
