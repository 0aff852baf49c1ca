"""Inputs that are refused: missing entries, and objects that are no numbers.

Each error says what to pass instead. Other libraries are recognized by the methods of their
objects, and none of them is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpureduce.core.checks import shown

Array = np.ndarray[Any, Any]

_NUMBERS = {int, float, complex, bool, *(np.dtype(code).type for code in "?bhilqBHILQefdFD")}
_MISSING = ("NoneType", "NAType", "NaTType", "MaskedConstant")  # types of missing numbers
_MOST_LISTS = 64  # nesting depth: NumPy's limit

_MASKED = (
    "pass arr.compressed(), or arr.data with where=~arr.mask, to leave them out, or arr.filled(0)"
)
_PANDAS = "pass arr.dropna() to leave them out, or arr.fillna(0)"
_POLARS = "pass arr.drop_nulls() to leave them out, or arr.fill_null(0)"
_ARROW = "pass arr.drop_null() to leave them out, or arr.fill_null(0)"
_NONE = np.zeros((), bool)
_OBJECTS = "leave them out, or put a number there"


def refuse_missing(arr: Any, cure: str = "", outer: tuple[int, ...] = ()) -> None:
    """Raises TypeError for missing entries, which NumPy would turn into nan or into any number.

    `cure` replaces the advice to leave them out. `outer` are the indexes in lists that have `arr`.
    """
    if isinstance(arr, (list, tuple)):
        kinds = set(map(type, arr)) - _NUMBERS
        names = {kind.__name__ for kind in kinds}
        if names.intersection(_MISSING):
            missing = np.array([type(one).__name__ in _MISSING for one in arr])
            _raise_at(arr, missing, cure or _OBJECTS, outer)
        if kinds - {str} and len(outer) < _MOST_LISTS:
            for place, one in enumerate(arr):
                refuse_missing(one, cure, (*outer, place))
    elif (masked := _masked_entries(arr)) is not None:
        _raise_at(arr, masked, cure or _MASKED, outer, "masked")
    elif callable(getattr(arr, "isna", None)):
        _raise_at(arr, _missing_in_pandas(arr), cure or _PANDAS, outer)
    else:
        found, usual = _nulls(arr)
        _raise_at(arr, found, cure or usual, outer)


def _masked_entries(arr: Any) -> Array | None:
    """Where a masked array has entries that are masked; None for other objects."""
    # Not np.ma: its first use makes NumPy import that module in a module-level __getattr__, which
    # recurses forever if a signal handler raises inside it.
    ma: Any = sys.modules.get("numpy.ma")
    masked: Any = getattr(ma, "MaskedArray", ())
    if not isinstance(arr, masked) or arr.dtype.names:
        return None
    return np.asarray(ma.getmaskarray(arr), bool)


def _missing_in_pandas(arr: Any) -> Array:
    """Where pandas columns with NA or categories lack entries. A nan of float64 is a number."""
    is_frame = hasattr(arr, "dtypes") and getattr(arr, "ndim", 1) == 2
    dtypes = list(arr.dtypes) if is_frame else [getattr(arr, "dtype", None)]
    with_na = [
        type(getattr(one, "na_value", None)).__name__ == "NAType" or hasattr(one, "ordered")
        for one in dtypes
    ]  # fmt: skip
    if not any(with_na):
        return _NONE
    return np.asarray(arr.isna(), bool) & (with_na if is_frame else True)


def _nulls(arr: Any) -> tuple[Array, str]:
    """Where Polars or Arrow have null, in an array or in columns, and the cure."""
    for name, cure in (("get_columns", _POLARS), ("itercolumns", _ARROW)):
        if callable(columns := getattr(arr, name, None)):
            found = [np.asarray(one.is_null(), bool) for one in columns()]
            return np.stack(found, -1) if found else _NONE, cure
    is_null, count = getattr(arr, "is_null", None), getattr(arr, "null_count", None)
    if count is None or not callable(is_null):
        return _NONE, ""
    return np.asarray(is_null(), bool), _POLARS if callable(count) else _ARROW


def _raise_at(
    arr: object, missing: Array, cure: str, outer: tuple[int, ...] = (), kind: str = "missing"
) -> None:
    """Raises the error for the entries where `missing` is True, if there are any."""
    count = int(np.count_nonzero(missing))
    if not count:
        return
    at = (*outer, *map(int, np.unravel_index(int(np.argmax(missing)), missing.shape)))
    where = f", the first at {at[0] if len(at) == 1 else at}" if at else ""
    entries = "entry" if count == 1 else "entries"
    raise TypeError(f"{type(arr).__name__} has {count} {kind} {entries}{where}: {cure}")


def refuse_objects(array: Array) -> None:
    """Raises TypeError for an array of Python objects, with a sentence for its first one."""
    every = array.reshape(-1)
    if not array.ndim:
        raise TypeError(_sentence(every[0]))
    missing = np.array([type(one).__name__ in _MISSING for one in every], bool)
    _raise_at(array, missing.reshape(array.shape), _OBJECTS)
    for place, one in enumerate(every):
        if type(one) not in _NUMBERS or (isinstance(one, int) and not -(2**63) <= one < 2**64):
            raise TypeError(f"element {place}: {_sentence(one)}")
    raise TypeError(
        "an array of dtype object cannot be summed: pass arr.astype(float), or "
        "arr.astype('int64') for integers"
    )


def refuse_rounded(arr: object, array: Array) -> None:
    """Raises TypeError for a list of integers of which NumPy made an array of floats."""
    if not isinstance(arr, (list, tuple)) or array.dtype != np.float64 or not array.size:
        return
    whole = array.max() >= 2.0**63 and all(
        isinstance(one, (int, np.integer)) for one in np.array(arr, object).flat
    )
    if whole:
        raise TypeError(
            "NumPy would round this list to floats, as it has integers from 2**63 on beside "
            "smaller ones: pass numpy.array(arr, numpy.uint64), or, if some are negative, use "
            "Python's sum"
        )


def _sentence(one: Any) -> str:
    """What is wrong with an object, and what to pass instead."""
    name = type(one).__name__
    if words := getattr(type(one), "_not_a_number", None):
        return str(words)
    if one is None:
        return "None is no number: pass an array, a list or a number"
    if isinstance(one, (int, np.integer)):
        return (
            f"the integer {shown(one)} is beyond 64 bits, and integers are added up in 64: "
            "Python's sum adds longer ones"
        )
    if hasattr(one, "as_integer_ratio") and not isinstance(one, type):  # Decimal, Fraction
        return (
            f"{name} is neither an integer nor a float of at most 64 bits: pass "
            "numpy.array(values, float), which rounds each one; Python's sum adds them as they are"
        )
    if hasattr(one, "total_seconds"):
        return f"a {name} is no number: pass numpy.array(values, 'm8[us]')"
    if isinstance(one, Mapping):
        return f"a {name} has keys and values: pass list(arr.values())"
    if hasattr(one, "__next__"):
        return f"a {name} can be read only once: pass list(arr), or numpy.fromiter(arr, float)"
    if hasattr(one, "nnz") and hasattr(one, "toarray"):
        return (
            f"a {name} is sparse: pass arr.data for the sum of all elements, arr.toarray(), or, "
            "for sums of the rows of a CSR one, gpureduce.segment_sum(arr.data, offsets=arr.indptr)"
        )
    if hasattr(one, "__iter__") and not hasattr(one, "__getitem__"):  # a set, a view of a dict
        return f"a {name} is no array: pass list(arr)"
    return f"{name} is no number: {shown(one)}"
