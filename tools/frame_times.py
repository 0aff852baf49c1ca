"""Times statistics by group beside pandas, Polars and xarray, and Dask's along an axis.

    python tools/frame_times.py --output notebooks/data/frames_cpu.json

The calls of a case take turns, so that other programs slow all of them.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import xarray as xr

import gpureduce.dask
import gpureduce.pandas
import gpureduce.polars
import gpureduce.xarray
from gpureduce.bench import clocks, command, record
from gpureduce.bench.render import US, as_table, listing, of
from gpureduce.bench.runner import Contender, Group, Row, one_by_one

SIZES = ((1000, 10), (100_000, 100), (100_000, 50_000), (1_000_000, 100), (1_000_000, 50_000))
DAYS, GRID = 3650, (90, 180)  # ten years by day
SIDE, CHUNKS = 4096, ((4096, 256), (256, 4096), (1024, 1024))
WORDS = ("measure", "operation", "ids", "axis", "way", "strategy")
COLUMNS = {name: of(name) for name in ("measure", "operation", "ids", "rows", "segments", "axis",
           "way", "strategy")} | {"median us": US}  # fmt: skip


def group(case: Row, n: int, calls: dict[str, Callable[[], Any]], dtype: str = "float64") -> Group:
    size = n * np.dtype(dtype).itemsize
    case |= {"dtype": dtype, "n": n, "nbytes": size, "source": "perf_counter"}
    made = [Contender(name, clocks.of_calls(call), call) for name, call in calls.items()]
    return Group(" ".join(map(str, case.values())), case, lambda: made, one_by_one(11))


def by_group(rows: int, segments: int) -> Iterator[Group]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"k": rng.integers(0, segments, rows), "x": rng.standard_normal(rows)})
    category = frame.assign(k=pd.Categorical(frame["k"], categories=range(segments)))
    table = pl.DataFrame({name: frame[name].to_numpy() for name in frame})
    for kind in ("sum", "mean", "var", "std", "count"):

        def pandas_of(module: Any, data: Any, kind: str = kind) -> Any:
            return getattr(module(data, "k", observed=False), kind)()

        size = {"operation": kind, "rows": rows, "segments": segments}
        for ids, data in (("integers", frame), ("categories", category)):
            calls = {
                "gpureduce": functools.partial(pandas_of, gpureduce.pandas.groupby, data),
                "pandas": functools.partial(pandas_of, pd.DataFrame.groupby, data),
            }
            yield group({"measure": "pandas", "ids": ids} | size, rows, calls)
        how = getattr(pl.all(), kind)()
        ours = getattr(gpureduce.polars.GroupBy, kind)
        calls = {
            "gpureduce": lambda ours=ours: ours(gpureduce.polars.group_by(table, "k")),
            "pandas": functools.partial(pandas_of, pd.DataFrame.groupby, frame),
            "polars": lambda how=how: table.group_by("k", maintain_order=True).agg(how),
        }
        yield group({"measure": "polars", "ids": "integers"} | size, rows, calls)


def climatologies() -> Iterator[Group]:
    """Means of the same month or day of all years. `missing`: half of the columns are nan."""
    rng = np.random.default_rng(0)
    days = np.arange("2001-01-01", "2011-01-01", dtype="M8[D]")[:DAYS].astype("M8[ns]")
    full = rng.normal(280, 10, (DAYS, *GRID)).astype(np.float32)
    some = full.copy()
    some[:, ::2] = np.nan
    some[::7, 1::8] = np.nan

    def of_period(of: Any, ids: str, kind: str) -> Any:
        return getattr(of.groupby(f"time.{ids}"), kind)()

    for way, values in (("all", full), ("missing", some)):
        x = xr.DataArray(values, {"time": days}, ("time", "lat", "lon"))
        for ids, segments in (("month", 12), ("dayofyear", 366)):
            for kind in ("sum", "mean", "var", "std") if way == "all" else ("mean", "var"):
                calls = {
                    "gpureduce": functools.partial(of_period, x.exact, ids, kind),
                    "xarray": functools.partial(of_period, x, ids, kind),
                }
                case = {"measure": "xarray", "operation": kind, "ids": ids, "way": way,
                        "rows": DAYS, "segments": segments}  # fmt: skip
                yield group(case, x.size, calls, "float32")


def along_axes() -> Iterator[Group]:
    numbers = np.random.default_rng(0).standard_normal((SIDE, SIDE))
    for chunks in CHUNKS:
        x = da.from_array(numbers, chunks=chunks)
        for kind, theirs in (("mean", da.mean), ("var", da.var), ("norm", da.linalg.norm)):
            for axis in (0, 1, None):
                calls = {
                    "gpureduce": getattr(gpureduce.dask, kind)(x, axis=axis).compute,
                    "dask": theirs(x, axis=axis).compute,
                }
                case = {"measure": "dask", "operation": kind, "way": f"chunks of {chunks}",
                        "axis": "all" if axis is None else axis}  # fmt: skip
                yield group(case, x.size, calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    dask.config.set(scheduler="threads")
    xr.set_options(use_flox=False)  # takes longer without numbagg
    groups = [one for size in SIZES for one in by_group(*size)] + [*climatologies(), *along_axes()]
    suite = command.Suite(
        "frames", None, groups, lambda made: as_table(listing(made["rows"], COLUMNS), WORDS),
        ("pandas", "polars", "xarray", "dask"), {"load_average": os.getloadavg()[0]},
    )  # fmt: skip
    made = command.measured(suite, asked.output)
    if asked.output:
        record.write(asked.output, made)
    print(suite.text(made))


if __name__ == "__main__":
    main()
