"""Exact sums, means and variances of pandas: by group, of windows, and running sums.

Each is rounded once. Importing this module adds the accessor ``exact``.

>>> import gpureduce.pandas, pandas as pd
>>> frame = pd.DataFrame({"city": ["a", "b", "a", "a"], "x": [1e16, 2.0, 1.0, -1e16]})
>>> gpureduce.pandas.groupby(frame, "city")["x"].sum().to_dict()
{'a': 1.0, 'b': 2.0}
>>> frame["x"].exact.rolling(2).mean().tolist()
[nan, 5000000000000001.0, 1.5, -5000000000000000.0]

`import gpureduce` alone does not import pandas. pandas numbers the groups, and makes their index.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pandas as pd

from gpureduce import exact
from gpureduce.core.checks import named_type, shown, whole
from gpureduce.core.dtypes import Array, number_name
from gpureduce.core.groups import SomeRows, some_rows
from gpureduce.core.registry import NUMBERS

__all__ = ["ExactAccessor", "GroupBy", "Rolling", "groupby"]

_AT_ONCE = 1 << 16  # values of a frame whose columns are added up by one call


def groupby(data: Any, by: Any = None, **how: Any) -> GroupBy:
    """Group the rows of a frame or of a series, as ``data.groupby(by, **how)`` does.

    Parameters
    ----------
    data
        A DataFrame or Series.
    by
        What pandas takes: names of columns, functions, mappings, arrays, `pandas.Grouper`.
    how
        Keywords of pandas: ``level``, ``as_index``, ``sort``, ``dropna``, ``observed``.

    Returns
    -------
    GroupBy
        An object with `sum`, `mean`, `var`, `std` and `count`. ``[...]`` selects columns.

    Examples
    --------
    >>> import gpureduce.pandas, pandas as pd
    >>> frame = pd.DataFrame({"k": ["b", "a", "b"], "x": [1.0, 5.0, 4.0], "y": [1, 2, 4]})
    >>> gpureduce.pandas.groupby(frame, "k")["x"].mean().to_dict()
    {'a': 5.0, 'b': 2.5}
    """
    if not isinstance(data, (pd.DataFrame, pd.Series)):
        raise TypeError(f"data must be a pandas.DataFrame or Series, not {named_type(data)}")
    as_index = how.pop("as_index", True)
    if isinstance(data, pd.Series) and not as_index:
        raise TypeError("as_index=False is for a DataFrame")
    grouped = data.groupby(by, **how)
    return GroupBy(grouped, grouped.obj, as_index)  # in the order of the groups' rows


class _Statistics:
    """The methods that groups and windows share."""

    _made: Callable[..., Any]

    def mean(self, numeric_only: bool = False) -> Any:
        """The means."""
        return self._made("mean", numeric_only)

    def var(self, ddof: float = 1, numeric_only: bool = False) -> Any:
        """The variances, by default with ddof=1."""
        return self._made("var", numeric_only, ddof=ddof)

    def std(self, ddof: float = 1, numeric_only: bool = False) -> Any:
        """The standard deviations, by default with ddof=1."""
        return self._made("std", numeric_only, ddof=ddof)


class GroupBy(_Statistics):
    """Rows by group. Made by `groupby`.

    Missing values are left out, as in pandas. Results have pandas' dtypes and index.

    >>> import gpureduce.pandas, pandas as pd
    >>> frame = pd.DataFrame({"k": [1, 1, 2], "x": [1e8, 1e8 + 2, 7.0]})
    >>> gpureduce.pandas.groupby(frame, "k").var()["x"].tolist()
    [2.0, nan]
    """

    def __init__(self, grouped: Any, data: Any, as_index: bool, has_keys: bool = True) -> None:
        self._grouped, self._data, self._as_index = grouped, data, as_index
        self._keys = grouped.exclusions if has_keys else ()

    def __getitem__(self, columns: Any) -> GroupBy:
        """The same groups of one column, or of a list of columns."""
        self._grouped[columns]  # raises for a column that does not exist
        data = self._grouped.obj[columns]
        if data.ndim == 2 and not isinstance(columns, list):  # of a MultiIndex, as pandas has it
            data = self._grouped.obj[[columns]]
        return GroupBy(self._grouped, data, self._as_index, False)

    def sum(self, numeric_only: bool = False, min_count: int = 0) -> Any:
        """The sums. With fewer than `min_count` values, the sum is missing."""
        return self._made("sum", numeric_only, min_count=whole("min_count", min_count, -1, 2**62))

    def count(self) -> Any:
        """The numbers of values that are not missing, of columns of any dtype."""
        return self._made("count", False)

    def _made(self, kind: str, numeric_only: bool, **how: Any) -> Any:
        if numeric_only not in (True, False):
            raise ValueError(f"numeric_only must be True or False, not {shown(numeric_only)}")
        rows, index = self._groups
        size = len(index)

        def all_of(columns: list[pd.Series]) -> list[Any]:
            width, kinds = len(columns), {column.dtype for column in columns}
            is_small = width > 1 and width * len(rows.ids) <= _AT_ONCE
            if is_small and len(kinds) == 1 and _numbers(*kinds) in kinds:
                ids = rows.ids + size * np.arange(width)[:, None]
                ids = np.where(rows.ids < 0, -1, ids).reshape(-1)
                all_rows = SomeRows(ids, np.tile(rows.counts, width))
                flat = pd.Series(np.concatenate([one.to_numpy() for one in columns]), copy=False)
                made = np.split(self._one(kind, flat, all_rows, size * width, how), width)
            else:
                made = [self._one(kind, column, rows, size, how) for column in columns]
            own = [one.dtype for one in columns]
            return [*map(_narrowed, made, own)] if kind == "sum" else made

        found = _by_column(self._data, all_of, numeric_only, index, self._keys)
        found.attrs = dict(self._data.attrs)
        if self._as_index:
            return found
        found = found.to_frame() if isinstance(found, pd.Series) else found
        held = [name for name in found.index.names if name in found.columns]  # these keys go
        if len(held) == found.index.nlevels:
            return found.reset_index(drop=True)
        return found.droplevel(held).reset_index()

    @functools.cached_property
    def _groups(self) -> tuple[SomeRows, pd.Index]:
        """The group of each row, -1 for a missing key, and the index of the groups."""
        grouper = self._grouped._grouper
        if len(grouper.groupings) == 1 and getattr(grouper, "_sort", False):
            soon = _of_small_range(grouper.groupings[0])
            if soon:
                return soon
        found = getattr(grouper, "result_index_and_ids", None)  # of pandas 3
        if found is None:
            sizes = self._grouped.size()
            ids = self._grouped.ngroup().fillna(-1).to_numpy(np.intp)  # of groups that have rows
            found = sizes.index, np.append(np.flatnonzero(sizes.to_numpy()), -1)[ids]
        return some_rows(found[1], len(found[0])), found[0]

    def _one(self, kind: str, column: Any, rows: SomeRows, size: int, how: dict[str, Any]) -> Any:
        dtype = column.dtype
        is_extension = isinstance(dtype, _Extension)
        own = _numbers(dtype) if kind == "count" else _numbers_of(column, kind)
        missing = np.asarray(pd.isna(column.values))
        if (own is None or is_extension or own.kind not in "biu") and missing.any():
            lost = some_rows(rows.ids[missing], size)
            rows = SomeRows(np.where(missing, -1, rows.ids), rows.counts - lost.counts)
        if kind == "count":
            found = np.array(rows.counts)
        else:
            zero = np.zeros((), own)[()]
            values = column.to_numpy(own, na_value=zero) if is_extension else column.to_numpy()
            options = {k: v for k, v in how.items() if k == "ddof"}
            found = getattr(exact, f"segment_{kind}")(values, rows, num_segments=size, **options)
        if is_extension and own is not None:
            found = _narrowed(found, own) if kind == "sum" else found
            found = pd.array(found, _extension_of(found.dtype, dtype))
        ddof, least = how.get("ddof", 0), how.get("min_count", 0)
        if kind == "count" or not (is_extension or ddof > 1 or least > 0):
            return found  # exact's result of too few values is nan
        few = rows.counts < least if kind == "sum" else rows.counts <= ddof
        made = pd.Series(found).mask(few)
        return made.array if is_extension else made.to_numpy()


class ExactAccessor:
    """Exact results of a Series or DataFrame: ``s.exact.cumsum()``, ``s.exact.rolling(7).mean()``.

    >>> import gpureduce.pandas, pandas as pd
    >>> pd.Series([1e16, 1.0, None, -1e16]).exact.cumsum().tolist()
    [1e+16, 1e+16, nan, 1.0]
    """

    def __init__(self, of: Any) -> None:
        self._of = of

    def cumsum(self, skipna: bool = True, numeric_only: bool = False) -> Any:
        """The sums of the values up to each, by column. `skipna`: a missing one is left out."""

        def one(column: pd.Series) -> Any:
            own = _numbers_of(column, "cumsum")
            values = column.to_numpy(own, na_value=own.type(0))
            found = pd.Series(exact.cumsum(values))
            if isinstance(column.dtype, _Extension):
                found = found.astype(_extension_of(found.dtype, column.dtype))
            missing = column.isna().to_numpy()
            missing = missing if skipna else np.maximum.accumulate(missing)
            return found.mask(missing).array

        of = self._of
        found = _by_column(of, lambda some: [*map(one, some)], numeric_only, of.index)
        return found.__finalize__(of)

    def rolling(self, window: Any, min_periods: int | None = None, center: bool = False,
                **how: Any) -> Rolling:  # fmt: skip
        """The windows of pandas' `rolling`: numbers of rows, times, or `BaseIndexer`.

        `how` has pandas' ``on``, ``closed`` and ``step``.
        """
        return Rolling(self._of.rolling(window, min_periods, center, **how))


class Rolling(_Statistics):
    """Windows of rows. Made by `ExactAccessor.rolling`.

    Results have pandas' index and dtype, float64. As in pandas, missing values and infinities are
    left out, and a result is nan if fewer than `min_periods` values are left.

    >>> import gpureduce.pandas, pandas as pd
    >>> pd.Series([1e16, 1.0, 2.0, 4.0]).exact.rolling(2).mean().tolist()[2:]
    [1.5, 3.0]
    """

    def __init__(self, rolling: Any) -> None:
        if not isinstance(rolling, pd.api.typing.Rolling):
            raise TypeError("windows with a win_type have no exact results: leave win_type out")
        self._rolling = rolling

    def sum(self, numeric_only: bool = False) -> Any:
        """The sums."""
        return self._made("sum", numeric_only)

    def _made(self, kind: str, numeric_only: bool, **how: Any) -> Any:
        rolling, of = self._rolling, getattr(exact, f"rolling_{kind}")
        size, is_dense = rolling.window, rolling.closed is None and rolling.step in (None, 1)
        has_size = is_dense and isinstance(size, int) and size > 0

        def one(values: Array, starts: Array, ends: Array, least: int) -> Array:
            if has_size:  # sooner than other windows
                how["center"] = bool(rolling.center)
            return of(values, size if has_size else (starts, ends), min_periods=least, **how)

        for name, column in pd.DataFrame(rolling.obj).items():
            some = column.dropna() if column.dtype.kind in "iu" else column[:0]
            if len(some) and max(-int(some.min()), int(some.max())) > 2**53:
                raise ValueError(f"{name!r} has integers beyond 2^53: windows are made of float64")
        return rolling._apply(one, kind, numeric_only)  # pandas makes index, columns and float64


for _kind, _register in (
    (pd.Series, pd.api.extensions.register_series_accessor),
    (pd.DataFrame, pd.api.extensions.register_dataframe_accessor),
):
    if not hasattr(_kind, "exact"):  # a reload would warn
        _register("exact")(ExactAccessor)


def _by_column(
    data: Any, all_of: Callable[[list[pd.Series]], list[Any]], numeric_only: bool, index: pd.Index,
    keys: Collection[Any] = (),
) -> Any:  # fmt: skip
    """What `all_of` makes of a series, or of the columns of a frame except the keys."""
    if isinstance(data, pd.Series):
        return pd.Series(*all_of([data]), index, name=data.name, copy=False)
    kept = {
        i: column for i, (name, column) in enumerate(data.items())
        if name not in keys and (not numeric_only or _numbers(column.dtype))
    }  # fmt: skip
    made, names = all_of([*kept.values()]), data.columns.take([*kept])
    if len({one.dtype for one in made}) == 1 and isinstance(made[0], np.ndarray):
        block = made[0][None] if len(made) == 1 else np.array(made)
        return pd.DataFrame(block.T, index, names, copy=False)
    return pd.DataFrame(dict(enumerate(made)), index, copy=False).set_axis(names, axis=1)


def _of_small_range(grouping: Any) -> tuple[SomeRows, pd.Index] | None:
    """The groups of integers of a small range: sooner than by the hash table of pandas."""
    keys = grouping.grouping_vector
    if not isinstance(keys, np.ndarray) or keys.dtype.kind not in "iu" or not keys.size:
        return None
    least, most = keys.min(), keys.max()
    if int(most) - int(least) >= 2 * keys.size:
        return None
    wide = keys if keys.dtype.itemsize == 8 else keys.astype(np.intp)
    ids = (wide - wide.dtype.type(least)).astype(np.intp, copy=False)
    counts = np.bincount(ids)
    values = np.flatnonzero(counts)
    if len(values) < len(counts):
        place = np.zeros(len(counts), np.intp)
        place[values] = np.arange(len(values))
        ids, counts = place[ids], counts[values]
    index = pd.Index(values.astype(keys.dtype) + least, name=grouping.name)
    return SomeRows(ids, counts), index


_Extension = pd.api.extensions.ExtensionDtype


def _numbers(dtype: Any) -> np.dtype[Any] | None:
    """The NumPy dtype of a column of numbers; None of other columns."""
    own = getattr(dtype, "numpy_dtype", dtype)
    return own if isinstance(own, np.dtype) and number_name(own) in NUMBERS else None


def _numbers_of(column: pd.Series, kind: str) -> np.dtype[Any]:
    own = _numbers(column.dtype)
    if own is None:
        raise TypeError(
            f"column {column.name!r} has the dtype {column.dtype}, which has no exact {kind}: "
            "select other columns, or pass numeric_only=True"
        )
    return own


def _narrowed(sums: Any, own: Any) -> Any:
    """Sums of integers in the dtype of their column if it holds them all, as in pandas."""
    if not isinstance(own, np.dtype) or own.kind not in "iu" or sums.dtype.kind != own.kind:
        return sums
    found = sums.astype(own)
    return found if (found == sums).all() else sums


def _extension_of(found: np.dtype[Any], like: Any) -> str:
    """The name of a dtype with missing values, of pandas or of Arrow."""
    if isinstance(like, pd.ArrowDtype):
        return f"{found.name}[pyarrow]"
    return found.name.capitalize().replace("Uint", "UInt")
