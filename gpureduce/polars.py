"""Sums, means and variances by group of Polars frames: each rounded once, in any order of the rows.

>>> import gpureduce.polars, polars as pl
>>> frame = pl.DataFrame({"city": ["a", "b", "a", "a"], "x": [1e16, 2.0, 1.0, -1e16]})
>>> gpureduce.polars.group_by(frame, "city").sum().rows()
[('a', 1.0), ('b', 2.0)]

`import gpureduce` alone does not import Polars. Polars finds the groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gpureduce import _host, exact
from gpureduce.core.checks import named_type
from gpureduce.core.groups import SomeRows, some_rows

__all__ = ["GroupBy", "group_by"]

_ROW = "gpureduce row"


def group_by(data: pl.DataFrame, *by: Any, maintain_order: bool = True, **named_by: Any) -> GroupBy:
    """Group the rows of a frame, as ``data.group_by(*by)`` does.

    Parameters
    ----------
    data
        A DataFrame.
    by, named_by
        Names of columns, lists of them, or expressions.
    maintain_order
        Has no effect: groups are always in the order of their first rows.

    Returns
    -------
    GroupBy
        An object with `sum`, `mean`, `var`, `std` and `count`. ``[...]`` selects columns.

    Examples
    --------
    >>> import gpureduce.polars, polars as pl
    >>> frame = pl.DataFrame({"k": ["b", None, "b"], "x": [1.0, 5.0, 4.0]})
    >>> gpureduce.polars.group_by(frame, "k").mean().rows()
    [('b', 2.5), (None, 5.0)]
    """
    if not isinstance(data, pl.DataFrame):
        raise TypeError(f"data must be a polars.DataFrame, not {named_type(data)}")
    keys = data.select(*by, **named_by)
    if not keys.width:
        raise ValueError("name at least one column as the key")
    rows, first = _numbered(keys)
    others = pl.DataFrame([column for column in data if column.name not in keys.columns])
    return GroupBy(keys[first], rows, others)


def _numbered(keys: pl.DataFrame) -> tuple[SomeRows, Any]:
    """The group of each row, and the first row of each group. The order is that of first rows."""
    codes, count = keys.to_series(), keys.height
    codes = codes if codes.dtype.is_integer() else codes.to_physical()
    has_numbers = keys.width == 1 and codes.dtype.is_integer() and codes.null_count() < count
    least: Any = codes.min() if has_numbers else 0
    most: Any = codes.max() if has_numbers else max(count, 1)
    if has_numbers and most - least <= 2 * count and least > -(2**62) and most < 2**62:
        most += 1  # null
        codes = codes.cast(pl.Int64)
        codes = codes.fill_null(most) if codes.null_count() else codes
    else:  # as Polars finds groups
        rows, least, most = pl.int_range(count, eager=True).alias(_ROW), 0, max(count, 1)
        codes = keys.with_columns(rows).select(pl.col(_ROW).first().over(keys.columns)).to_series()
    ids = np.empty(count, np.int32 if count < 2**31 else np.int64)
    counts, first = np.empty((2, min(count, most - least + 1)), np.int64)
    numbers = np.full(most - least + 1, -1)
    groups = _host.number_groups(codes.to_numpy(), least, ids, counts, first, numbers)
    return SomeRows(ids, counts[:groups]), first[:groups]


class GroupBy:
    """Rows by group. Made by `group_by`.

    A null value is left out, and a nan makes a nan, as in Polars. The mean of no values is null.
    Groups come in the order of their first rows. A null key is a group.

    >>> import gpureduce.polars, polars as pl
    >>> frame = pl.DataFrame({"k": [1, 1, 2], "x": [1e8, 1e8 + 2, None], "s": ["a", "b", "c"]})
    >>> gpureduce.polars.group_by(frame, "k")["x"].var().rows()
    [(1, 2.0), (2, None)]
    """

    def __init__(self, keys: pl.DataFrame, rows: SomeRows, data: pl.DataFrame) -> None:
        self._keys, self._rows, self._data = keys, rows, data

    def __getitem__(self, columns: str | list[str]) -> GroupBy:
        """The same groups of one column, or of a list of columns."""
        return GroupBy(self._keys, self._rows, self._data.select(columns))

    def sum(self) -> pl.DataFrame:
        """The sums. Sums of integers have 64 bits."""
        return self._made("sum", 0)

    def mean(self) -> pl.DataFrame:
        """The means."""
        return self._made("mean", 1)

    def var(self, ddof: int = 1) -> pl.DataFrame:
        """The variances, by default with ddof=1."""
        return self._made("var", ddof + 1, ddof=ddof)

    def std(self, ddof: int = 1) -> pl.DataFrame:
        """The standard deviations, by default with ddof=1."""
        return self._made("std", ddof + 1, ddof=ddof)

    def count(self) -> pl.DataFrame:
        """The numbers of values that are not null, of columns of any dtype."""
        return self._made("count", 0)

    def _made(self, kind: str, least: int, **how: Any) -> pl.DataFrame:
        columns = [self._one(kind, least, column, how) for column in self._data]
        return self._keys.hstack(columns)

    def _one(self, kind: str, least: int, column: pl.Series, how: dict[str, Any]) -> pl.Series:
        dtype, rows, size = column.dtype, self._rows, self._keys.height
        is_wide = dtype in (pl.Int128, getattr(pl, "UInt128", None))
        is_number = dtype.is_float() or dtype.is_integer() or dtype == pl.Boolean
        if (is_wide or not is_number) and kind != "count":
            raise TypeError(
                f"column {column.name!r} has the dtype {dtype}, which has no exact {kind}: select "
                "other columns"
            )
        if column.null_count():
            rows = some_rows(rows.ids[column.is_not_null().to_numpy()], size)
            column = column.drop_nulls()
        if kind == "count":
            return pl.Series(column.name, rows.counts)
        made = getattr(exact, f"segment_{kind}")(column.to_numpy(), rows, num_segments=size, **how)
        found = pl.Series(column.name, made)
        few = rows.counts < least
        return found.set(pl.Series(few), None) if few.any() else found
