"""The results of a call as integers that count floats, and the differences between calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpureduce.auditing.libraries import library_of
from gpureduce.core.checks import shown
from gpureduce.core.device_array import DeviceArray
from gpureduce.core.dtypes import Array
from gpureduce.core.results import SumResult


@dataclass(frozen=True)
class Result:
    """An array that a function returned.

    `keys` are its elements as int64 numbers, in the order of the floats: neighbours differ by 1,
    and so do -0.0 and 0.0. A complex number has two. All nans have one key.
    """

    path: str
    values: Array
    keys: Array

    def rows(self, rows: Array, axes: Sequence[int]) -> Result:
        """The rows along each of the axes."""
        values, keys = self.values, self.keys
        for axis in axes:
            values, keys = np.take(values, rows, axis), np.take(keys, rows, axis)
        return Result(self.path, values, keys)

    def ulps(self, other: Result) -> Array:
        """How many floats or integers lie between the elements; nan if one of both is nan."""
        a, b = self.keys, other.keys
        if self.values.dtype.kind not in "fcV":
            is_nan: Any = False
        else:
            a, b = a + (a < 0), b + (b < 0)  # -0.0 equals 0.0
            is_nan = np.isnan(self.values) != np.isnan(other.values)
        far = np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64)
        found: Array = np.where(is_nan, np.nan, far.astype(np.float64).max(-1))
        return found


def results_of(found: Any, path: str = "") -> list[Result]:
    """The arrays in what a function returned: an array, a number, or a list or dict of them."""
    found = found.value if isinstance(found, SumResult) else found
    found = found.to_numpy() if isinstance(found, DeviceArray) else found
    if isinstance(found, (Mapping, tuple, list)):
        pairs = found.items() if isinstance(found, Mapping) else enumerate(found)
        return [one for key, each in pairs for one in results_of(each, f"{path}[{key!r}]")]
    library = library_of(found)
    if library is None and not isinstance(found, (bool, int, float, complex)):
        raise TypeError(
            f"the function returned {shown(found)}{path and ' as result '}{path}: it must return "
            "arrays or numbers of NumPy, CuPy, PyTorch or JAX, or a list or dict of them"
        )
    values: Array = library.own("host", found) if library else np.asarray(found)
    kind, size = values.dtype.kind, values.itemsize
    is_known = kind in "biumM" or (kind == "c" and size <= 16) or (kind == "f" and size <= 8)
    if not is_known and values.dtype.name != "bfloat16":
        raise TypeError(
            f"an array of dtype {values.dtype} cannot be audited: use float64, for example"
        )
    values = np.array(values, values.dtype.newbyteorder("="), order="C", subok=False)
    return [Result(path, values, _keys(values))]


def _keys(values: Array) -> Array:
    kind = values.dtype.kind
    if kind in "imM":
        return values.astype(np.int64)[..., None]
    if kind in "bu":
        return (values.astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)[..., None]
    parts = np.stack([values.real, values.imag], -1) if kind == "c" else values[..., None]
    bits = parts.view(f"u{parts.itemsize}").astype(np.uint64)
    sign = np.uint64(1 << (8 * parts.itemsize - 1))
    size = (bits & (sign - np.uint64(1))).astype(np.int64)
    keys = np.where(bits & sign, -size - 1, size)
    found: Array = np.where(np.isnan(parts), np.iinfo(np.int64).max, keys)
    return found


class Differences:
    """The results that differ from the reference's in at least one of several calls."""

    def __init__(self, reference: list[Result], axes: list[tuple[int, ...]]) -> None:
        self.reference, self.axes = reference, axes
        self.masks = [np.zeros(one.values.shape, np.bool_) for one in reference]
        self.got = [one.values.copy() for one in reference]
        self.size = sum(mask.size for mask in self.masks)
        self.ulps = 0.0
        self.form = ""  # another number of results, another shape or dtype

    def add(self, found: list[Result], rows: Array | None, whole: bool) -> None:
        """Compares a call. Its batch was these rows of the reference's: all of them if `whole`."""
        if len(found) != len(self.reference):
            self.form = f"{len(found)} results in place of {len(self.reference)}"
            return
        for got, before, axes, mask, kept in zip(
            found, self.reference, self.axes, self.masks, self.got, strict=True
        ):
            if not axes and not whole:
                continue  # a result of all rows
            wanted = before if rows is None else before.rows(rows, axes)
            forms = [f"{one.values.dtype}{list(one.values.shape)}" for one in (got, wanted)]
            if forms[0] != forms[1]:
                self.form = f"{forms[0]} in place of {forms[1]} {got.path}".rstrip()
                continue
            differ = (got.keys != wanted.keys).any(-1)
            if not differ.any():
                continue
            at = np.nonzero(differ) if differ.ndim else ()
            to = tuple(
                rows[where] if rows is not None and axis in axes else where
                for axis, where in enumerate(at)
            )
            mask[to], kept[to] = True, got.values[at]
            self.ulps = float(np.max([self.ulps, np.max(got.ulps(wanted)[at])]))

    @property
    def count(self) -> int:
        """How many results differ."""
        return sum(int(np.count_nonzero(mask)) for mask in self.masks)

    def first(self) -> tuple[str, str]:
        """The index of the first difference, and the two values."""
        for mask, got, before in zip(self.masks, self.got, self.reference, strict=True):
            if mask.any():
                at = tuple(map(int, np.unravel_index(np.argmax(mask), mask.shape)))
                where = before.path + (str(list(at)) if at else "")
                return where, f"{got[at]} in place of {before.values[at]}"
        return "", ""
