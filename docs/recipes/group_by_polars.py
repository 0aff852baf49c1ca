"""Sums by group of a Polars frame: the same bits for any order of the rows."""

import numpy as np
import polars as pl

import gpureduce


def group_sums(frame: pl.DataFrame, key: str, value: str) -> pl.DataFrame:
    """frame.group_by(key).agg(pl.col(value).sum()), with each sum rounded once, sorted by key.

    Null values count as 0, as by Polars. Rows with a null key are left out.
    """
    frame = frame.drop_nulls([key])
    ids = frame[key].rank("dense").to_numpy() - 1  # 0 for the least key
    groups = frame[key].unique().sort()
    sums = gpureduce.segment_sum(
        frame[value].fill_null(0).to_numpy(), ids, num_segments=len(groups)
    ).value
    return pl.DataFrame({key: groups, value: sums})


rng = np.random.default_rng(1)
frame = pl.DataFrame(
    {
        "city": rng.choice(["Bern", "Basel", "Genève"], 100_000),
        "amount": rng.lognormal(0, 3, 100_000),
    }
)
for seed in range(3):
    some_order = frame.sample(fraction=1, shuffle=True, seed=seed)
    sums = group_sums(some_order, "city", "amount")
    print(f"order {seed}:", *(f"{city} {amount.hex()}" for city, amount in sums.iter_rows()))
