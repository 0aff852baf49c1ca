"""The results of a call, as arrays by their paths, and the differences between calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gpureduce.auditing.libraries import library_of
from gpureduce.core.checks import shown
from gpureduce.core.device_array import DeviceArray
from gpureduce.core.dtypes import Array
from gpureduce.core.results import SumResult

Results = dict[str, Array]  # by paths: "" of a single array, or such as ['a'][1]


def error_text(error: BaseException) -> str:
    """An error as one short line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:70]}".rstrip(": ")


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
    values: Array = library.own("host", found) if library else np.asarray(found)
    kind, size = values.dtype.kind, values.itemsize
    is_known = kind in "biumM" or (kind == "c" and size <= 16) or (kind == "f" and size <= 8)
    if not is_known and values.dtype.name != "bfloat16":
        raise TypeError(
            f"{where} has the dtype {values.dtype}, which cannot be audited: use float64, for "
            "example"
        )
    return {path: np.array(values, values.dtype.newbyteorder("="), order="C", subok=False)}


def element(path: str, index: Any, shape: tuple[int, ...]) -> str:
    """An element of a result, such as ['a'][3, 1], by its index in the flat array."""
    return path + (str([int(i) for i in np.unravel_index(index, shape)]) if shape else "")


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


def _taken(values: Array, rows: Any, axes: tuple[int, ...]) -> Array:
    """The rows along each of the axes."""
    for axis in axes:
        values = np.take(values, rows, axis)
    return values


class Differences:
    """The results that differ from a reference in at least one of several calls."""

    def __init__(self, reference: Results) -> None:
        self.reference = reference
        self.masks = {path: np.zeros(one.size, np.bool_) for path, one in reference.items()}
        self.ulps = 0.0
        self.form = ""  # another number of results, another shape or dtype
        self.first = (len(reference), 0, "", "")  # a result's number, an element, and both as text

    def add(self, found: Results, rows: Any, axes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the results in `axes` with these rows of the reference."""
        if found.keys() != self.reference.keys():
            self.form = f"{len(found)} results in place of {len(self.reference)}, or other keys"
            return
        for number, path in enumerate(axes):
            got, before = found[path], self.reference[path]
            wanted = _taken(before, rows, axes[path])
            forms = [f"{one.dtype}{list(one.shape)}" for one in (got, wanted)]
            if forms[0] != forms[1]:
                self.form = f"{forms[0]} in place of {forms[1]} {path}".rstrip()
            elif not np.array_equal(got.ravel().view("u1"), wanted.ravel().view("u1")):
                differ, far = compared(got, wanted)
                indexes = _taken(np.arange(before.size).reshape(before.shape), rows, axes[path])
                self.masks[path][indexes[differ]] = True
                self.ulps = float(np.max(far[differ], initial=self.ulps))
                if differ.any():
                    at = np.where(differ, indexes, indexes.max() + 1).argmin()
                    where = element(path, first := indexes.flat[at], before.shape)
                    note = f"{got.flat[at]} in place of {wanted.flat[at]}"
                    new = (number, int(first), where, note)
                    self.first = min(self.first, new, key=lambda one: one[:2])
