"""A plugin of pytest: gpureduce.dask makes the reductions of Dask's own tests.

Dask's functions still make what gpureduce refuses, objects and dtypes that lose something, and
store to `out`.
"""

import functools

import dask.array as da
from dask.array import reductions

import gpureduce.dask

SUMS = ("sum", "mean", "nansum", "nanmean")
SPREADS = ("var", "std", "nanvar", "nanstd")


def shim(name):
    own, exact = getattr(da, name), getattr(gpureduce.dask, name)

    @functools.wraps(own)
    def call(a, axis=None, dtype=None, keepdims=False, ddof=0, split_every=None, out=None):
        how = {"axis": axis, "dtype": dtype, "keepdims": keepdims, "split_every": split_every}
        how |= {"ddof": ddof} if name in SPREADS else {}
        try:
            return exact(a, **how) if out is None else own(a, **how, out=out)
        except TypeError:
            return own(a, **how)

    return call


for name in SUMS + SPREADS:
    setattr(da, name, shim(name))
    setattr(reductions, name, getattr(da, name))
    if hasattr(da.Array, name):
        setattr(da.Array, name, getattr(da, name))
