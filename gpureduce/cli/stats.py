"""`gpureduce stats` on the command line."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

from gpureduce import exact
from gpureduce.cli import npy_files, progress
from gpureduce.core.dtypes import is_float, quietly
from gpureduce.text import show_json, table

_MOST_ROWS = 20  # that a terminal shows


def statistics(array: Any, axis: int | None, ddof: float) -> dict[str, Any]:
    """Of the elements that are no nan. Extremes of none are nan."""
    total = exact.nansum(array, axis)  # refuses what has no sums
    is_nan = quietly(np.isnan, array) if is_float(array.dtype) else np.zeros(1, np.bool_)
    some = ~is_nan if is_nan.any() else True
    count = array.size if axis is None else array.shape[axis]
    missing = np.count_nonzero(is_nan, axis) if some is not True else 0
    found = {"n": count - missing, "nan": missing + 0 * (count - missing)}
    if array.dtype.kind != "c":  # complex numbers have no order
        kept = array if some is True else np.where(some, array, np.nan)
        for name, extreme in (("min", np.fmin), ("max", np.fmax)):
            has_any = kept.size > 0 and count > 0
            found[name] = quietly(extreme.reduce, kept, axis) if has_any else np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the results say it: nan
        found["sum"] = total
        found["mean"] = exact.nanmean(array, axis)
        found["std"] = exact.nanstd(array, axis, ddof=ddof)
    found["norm"] = exact.norm(array if some is True else np.where(some, array, 0), axis=axis)
    return found


def _run(arguments: argparse.Namespace) -> None:
    array = npy_files.load(arguments.file)
    with progress.reading(array):
        found = statistics(array, arguments.axis, arguments.ddof)
    if arguments.json:
        where = {"file": arguments.file, "dtype": str(array.dtype), "shape": array.shape}
        show_json(where | {"axis": arguments.axis, "ddof": arguments.ddof} | found)
        return
    shape = "x".join(map(str, array.shape)) or "a number"
    print(f"{arguments.file}: {array.dtype}, {shape}\n")
    if np.ndim(found["sum"]) == 0:
        print(table(["", "value"], [[name, str(value)] for name, value in found.items()], [1]))
        return
    columns = np.broadcast_arrays(*found.values())
    places = list(np.ndindex(columns[0].shape))
    rows = [
        [", ".join(map(str, at)), *(str(one[at]) for one in columns)] for at in places[:_MOST_ROWS]
    ]
    print(table(["at", *found], rows, range(1, len(found) + 1)))
    if len(places) > _MOST_ROWS:
        print(f"... and {len(places) - _MOST_ROWS} more: --json shows all")


COMMAND = ("stats", _run, "count, extremes, sum, mean, deviation and norm of a .npy file", {
    "file": {"metavar": "FILE.npy"},
    "--axis": {"type": int, "help": "statistics along this axis, not of all elements"},
    "--ddof": {"type": float, "default": 0, "help": "of the deviation (default: 0)"},
})  # fmt: skip
