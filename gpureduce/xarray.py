"""Statistics of xarray, each rounded once: importing this module adds the accessor ``exact``.

>>> import gpureduce.xarray, numpy as np, xarray as xr
>>> x = xr.DataArray(np.array([1e16, 1.0, -1e16, 2.0]), dims="time", name="x")
>>> float(x.exact.sum("time")), float(x.sum("time"))
(3.0, 2.0)

`DataArray.exact` and `Dataset.exact` are an `ExactAccessor`. xarray itself makes names, dimensions,
coordinates and attributes. Dask arrays stay lazy. `import gpureduce` alone does not import xarray.
"""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
import xarray as xr

from gpureduce import exact
from gpureduce.core.checks import finite, whole
from gpureduce.core.moments import MEAN, STD, VAR
from gpureduce.core.statistics import Rows, of_segments

__all__ = ["ExactAccessor", "Statistics", "Weighted"]

_NAME = "gpureduce values"
_OF_GROUPS = (  # of xarray's groups: without all of these, groups are reduced one by one
    "encoded", "_obj", "_group_dim", "_restore_dim_order", "_maybe_unstack", "_maybe_reindex",
)  # fmt: skip
_AT_ONCE = 1 << 21  # numbers of a block of columns, which is copied in the order of the groups
_LEAST_COLUMNS = 64

Dims = Any  # a name, an iterable of names, ... or None, as in xarray


class Statistics:
    """Sums, means, variances and standard deviations of what xarray reduces.

    `dim`, `skipna`, `keep_attrs` and other keywords are those of xarray's own methods: by default
    a nan counts as missing. Each result is rounded once, and has the bits of `gpureduce.exact` in
    any order of the elements and for any chunks.

    >>> import gpureduce.xarray, xarray as xr
    >>> x = xr.DataArray([1e8, 1e8 + 2, float("nan")], dims="t")
    >>> float(x.exact.var()), float(x.exact.coarsen(t=3).mean()[0])
    (1.0, 100000001.0)
    """

    def __init__(self, of: Any) -> None:
        self._of = of

    def sum(self, dim: Dims = None, *, skipna: bool | None = None, min_count: int | None = None,
            keep_attrs: bool | None = None, **how: Any) -> Any:  # fmt: skip
        """The sums. With fewer than `min_count` numbers, the sum is nan."""
        least = 0 if min_count is None else whole("min_count", min_count, 0, 2**62)
        return self._made("sum", dim, skipna, keep_attrs, how, min_count=least)

    def mean(self, dim: Dims = None, *, skipna: bool | None = None,
             keep_attrs: bool | None = None, **how: Any) -> Any:  # fmt: skip
        """The means."""
        return self._made("mean", dim, skipna, keep_attrs, how)

    def var(self, dim: Dims = None, *, skipna: bool | None = None, ddof: float = 0,
            keep_attrs: bool | None = None, **how: Any) -> Any:  # fmt: skip
        """The variances."""
        return self._made("var", dim, skipna, keep_attrs, how, ddof=finite("ddof", ddof))

    def std(self, dim: Dims = None, *, skipna: bool | None = None, ddof: float = 0,
            keep_attrs: bool | None = None, **how: Any) -> Any:  # fmt: skip
        """The standard deviations."""
        return self._made("std", dim, skipna, keep_attrs, how, ddof=finite("ddof", ddof))

    def _made(
        self, kind: str, dim: Dims, skipna: bool | None, keep_attrs: bool | None,
        more: dict[str, Any], **how: Any,
    ) -> Any:  # fmt: skip
        obj = getattr(self._of, "_obj", getattr(self._of, "obj", self._of))
        is_frame = isinstance(obj, xr.Dataset)
        for name, one in (obj.data_vars if is_frame else {obj.name: obj}).items():
            if one.dtype.kind in "mM" or (one.dtype.kind not in "biufc" and not is_frame):
                raise _no_numbers(name, one.dtype, kind)
        if not hasattr(self._of, "boundary"):  # coarsen takes no dimensions
            more = more | {"dim": dim} | ({"numeric_only": True} if is_frame else {})
        elif dim is not None:
            raise TypeError("pass dim to coarsen(...), not to its statistics")
        made = functools.partial(_reduced, kind=kind, skipna=skipna, **how)
        is_plain = not more.keys() - {"dim", "numeric_only"}
        found = _by_segment(self._of, dim, keep_attrs, made) if is_plain else None
        return self._of.reduce(made, keep_attrs=keep_attrs, **more) if found is None else found


class ExactAccessor(Statistics):
    """Exact statistics of a DataArray or Dataset: ``ds.exact.mean("time")``.

    >>> import gpureduce.xarray, xarray as xr
    >>> x = xr.DataArray([1.0, 2.0, 6.0], dims="t", coords={"k": ("t", ["a", "b", "a"])})
    >>> x.exact.groupby("k").mean().values.tolist()
    [3.5, 2.0]
    """

    def groupby(self, *group: Any, **how: Any) -> Statistics:
        """The statistics of groups: arguments as of xarray's `groupby`."""
        return Statistics(self._of.groupby(*group, **how))

    def groupby_bins(self, *group: Any, **how: Any) -> Statistics:
        """The statistics of bins: arguments as of xarray's `groupby_bins`."""
        return Statistics(self._of.groupby_bins(*group, **how))

    def resample(self, *indexer: Any, **how: Any) -> Statistics:
        """The statistics of periods: arguments as of xarray's `resample`."""
        return Statistics(self._of.resample(*indexer, **how))

    def coarsen(self, *dim: Any, **how: Any) -> Statistics:
        """The statistics of blocks: arguments as of xarray's `coarsen`."""
        return Statistics(self._of.coarsen(*dim, **how))

    def weighted(self, weights: xr.DataArray) -> Weighted:
        """Weighted sums and means: `weights` as of xarray's `weighted`."""
        return Weighted(self._of, weights)


for _kind, _register in (
    (xr.DataArray, xr.register_dataarray_accessor),
    (xr.Dataset, xr.register_dataset_accessor),
):
    if not hasattr(_kind, "exact"):  # a reload would warn
        _register("exact")(ExactAccessor)


class Weighted:
    """Weighted sums and means, each rounded once. Made by `ExactAccessor.weighted`.

    >>> import gpureduce.xarray, xarray as xr
    >>> x, w = (xr.DataArray(v, dims="t") for v in ([1.0, 2.0, 4.0], [1.0, 1.0, 2.0]))
    >>> float(x.exact.weighted(w).mean("t"))
    2.75
    """

    def __init__(self, of: Any, weights: xr.DataArray) -> None:
        self._of, self._weights = of, of.weighted(weights).weights  # xarray checks them

    def sum(self, dim: Dims = None, *, skipna: bool | None = None,
            keep_attrs: bool | None = None) -> Any:  # fmt: skip
        """The sums of weight times value."""
        return self._made("sum", dim, skipna, keep_attrs)

    def mean(self, dim: Dims = None, *, skipna: bool | None = None,
             keep_attrs: bool | None = None) -> Any:  # fmt: skip
        """The sums of weight times value over the sums of the weights of values."""
        return self._made("mean", dim, skipna, keep_attrs)

    def sum_of_weights(self, dim: Dims = None, *, keep_attrs: bool | None = None) -> Any:
        """The sums of the weights of values that are not missing; nan where they are 0."""
        return self._made("weights", dim, True, keep_attrs)

    def _made(self, kind: str, dim: Dims, skipna: bool | None, keep_attrs: bool | None) -> Any:
        self._of.weighted(self._weights)._check_dim(dim)

        def one(x: xr.DataArray) -> Any:
            if x.dtype.kind not in "biuf":
                raise _no_numbers(x.name, x.dtype, f"weighted {kind}")
            both = xr.broadcast(x, self._weights)
            every: list[Hashable] = list(both[0].dims)
            named = [dim] if isinstance(dim, str) else every if dim in (None, ...) else list(dim)
            core = [one for one in every if one in named]
            return xr.apply_ufunc(
                _weighted, *both, input_core_dims=[core, core], keep_attrs=keep_attrs,
                dask="parallelized", dask_gufunc_kwargs={"allow_rechunk": True},
                output_dtypes=[np.result_type(x.dtype, self._weights.dtype, _least(x.dtype))],
                kwargs={"kind": kind, "count": len(core), "skipna": skipna},
            )  # fmt: skip

        if isinstance(self._of, xr.Dataset):
            return self._of.map(one, keep_attrs=keep_attrs)
        return one(self._of)


def _least(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64 if dtype.kind in "biu" else dtype)


def _no_numbers(name: Any, dtype: object, kind: str) -> TypeError:
    return TypeError(
        f"{name!r} has the dtype {dtype}, of which there is no exact {kind}: leave it out, or take "
        f"xarray's own {kind}"
    )


def _by_segment(groups: Any, dim: Dims, keep_attrs: bool | None, reduce: Any) -> Any:
    """What `groups.reduce` returns for arrays in memory, in one go. None of anything else."""
    if not all(hasattr(groups, one) for one in _OF_GROUPS):
        return None
    obj, along, encoded = groups._obj, groups._group_dim, groups.encoded
    is_frame = isinstance(obj, xr.Dataset)
    data = obj if is_frame else obj.to_dataset(name=_NAME)
    dim = [along] if dim is None else data.dims if dim is ... else dim
    reduced = {dim} if isinstance(dim, str) else {*dim}
    kept = {
        name: x.variable for name, x in data.data_vars.items()
        if x.dtype.kind in "biufc" or not reduced & {*x.dims}  # text, which stays as it is
    }  # fmt: skip
    in_memory = all(isinstance(x.data, np.ndarray) and x.size for x in kept.values())
    all_rows = np.arange(data.sizes[along])
    rows = [all_rows[one] for one in encoded.group_indices or () if one]
    if along not in reduced or not reduced <= {*data.dims} or not in_memory:
        return None
    if all(len(one) == 1 for one in rows):  # then xarray keeps more coordinates
        return None
    offsets, order = np.cumsum([0, *map(len, rows)]), np.concatenate(rows)
    is_in_order = (np.diff(order) == 1).all()
    which = slice(order[0], order[-1] + 1) if is_in_order else order  # a slice copies nothing
    keeps = keep_attrs if keep_attrs is not None else xr.get_options()["keep_attrs"]
    made: dict[Hashable, Any] = {}
    for name, x in kept.items():
        kinds = [along], [*reduced - {along}], [one for one in x.dims if one not in reduced]
        first, others, last = ([one for one in some if one in x.dims] for some in kinds)
        cells = x.transpose(*first, *others, *last).data
        if first:
            sizes = (math.prod(x.sizes[one] for one in some) for some in (first, others, last))
            found = _segments(cells.reshape(*sizes), which, offsets, **reduce.keywords)
        else:  # the same for all groups
            axes = tuple(range(len(others))) if x.ndim else None  # as xarray
            found = np.repeat(np.asarray(reduce(cells, axes))[None], len(rows), axis=0)
        found = found.reshape(len(rows), *(x.sizes[one] for one in last))
        made[name] = [*encoded.unique_coord.dims, *last], found, x.attrs if keeps else {}
    found = data.drop_dims(reduced).drop_vars(data.data_vars, errors="ignore").assign(made)
    found.attrs = data.attrs if keeps else {}
    if not is_frame:
        found = groups._restore_dim_order(found[_NAME].rename(obj.name))
    found = groups._maybe_unstack(found.assign_coords(encoded.coords))
    found = groups._maybe_reindex(found)
    periods = getattr(groups, "_dim", None)  # of resample
    return found if periods is None else found.rename({encoded.unique_coord.dims[0]: periods})


def _segments(
    x: Any, some: Any, offsets: Any, kind: str, skipna: bool | None, min_count: int = 0,
    ddof: float = 0,
) -> Any:  # fmt: skip
    """Sums and statistics of segments of some rows along the first two of three axes."""
    found, skips = [], (skipna is None or skipna) and x.dtype.kind in "fc"
    step = max(_LEAST_COLUMNS, _AT_ONCE // (x.shape[1] * int(offsets[-1])))
    for first in range(0, x.shape[2], step):
        columns, mask = x[some, :, first : first + step], None
        if skips and (missing := np.isnan(columns)).any():
            columns = columns.copy() if isinstance(some, slice) else columns
            columns[missing] = 0
            mask = ~missing.reshape(-1, columns.shape[2])
        columns = columns.reshape(-1, columns.shape[2])
        rows = Rows(columns, None, offsets * x.shape[1], None, None, mask)
        rows.warns, rows.call.skips_nan = False, skips
        if kind == "mean":
            found.append(of_segments(rows, MEAN))
        elif kind != "sum":
            found.append(of_segments(rows, STD if kind == "std" else VAR, ddof))
        else:
            found.append(exact.segment_sum(columns, offsets=rows.segments.offsets))
        if kind == "sum" and skips and min_count:
            present = np.ones(columns.shape, np.bool_) if mask is None else mask
            counts = exact.segment_sum(present, offsets=rows.segments.offsets)
            found[-1][counts < min_count] = np.nan
    return np.concatenate(found, axis=1)


def _reduced(
    x: Any, axis: Any = None, *, kind: str, skipna: bool | None, min_count: int = 0, **how: Any
) -> Any:
    """What `reduce` calls with an array of NumPy or Dask."""
    if axis == () and kind in ("sum", "mean"):  # as xarray does
        return x
    skips = (skipna is None or skipna) and x.dtype.kind in "fc"
    axis = tuple(axis) if isinstance(axis, list) else axis
    of: Any = exact
    if type(x).__module__.startswith("dask."):
        import gpureduce.dask

        of = gpureduce.dask
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of groups with too few numbers
        found = getattr(of, f"nan{kind}" if skips else kind)(x, axis=axis, **how)
    if min_count and skips:
        numpy: Any = sys.modules["dask.array"] if of is not exact else np
        found = numpy.where((~numpy.isnan(x)).sum(axis=axis) < min_count, np.nan, found)
        found = found.astype(x.dtype)
    return found


def _weighted(x: Any, w: Any, kind: str, count: int, skipna: bool | None) -> Any:
    """What is made of values and weights of one shape along the last `count` axes."""
    result = np.result_type(x.dtype, w.dtype, _least(x.dtype))
    x, w = (one.astype(_least(one.dtype), copy=False) for one in (x, w))
    if (skipna is None or skipna) and x.dtype.kind == "f" and (missing := np.isnan(x)).any():
        x, w = np.where(missing, 0, x), np.where(missing, 0, w)
    shape = (*x.shape[: x.ndim - count], -1 if x.size else 0)
    x, w = (one.reshape(shape).astype(result, copy=False) for one in (x, w))
    if kind == "sum":
        return exact.vecdot(x, w)
    scale = np.asarray(exact.sum(w, axis=-1))
    if kind == "weights":
        return np.where(scale == 0, np.nan, scale).astype(result)
    if (none := scale == 0).any():  # 0 / 0
        w, x = np.where(none[..., None], 1, w), np.where(none[..., None], np.nan, x)
    return exact.average(x.astype(result), -1, w.astype(result))
