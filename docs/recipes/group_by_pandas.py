"""Sums by group of a pandas frame: the same bits for any order of the rows."""

import numpy as np
import pandas as pd

import gpureduce


def group_sums(frame: pd.DataFrame, key: str, value: str) -> pd.Series:
    """frame.groupby(key)[value].sum(), with each sum rounded once.

    Missing keys and values are left out, as by pandas.
    """
    ids, groups = pd.factorize(frame[key], sort=True)  # missing keys have the id -1
    known = (ids >= 0) & frame[value].notna().to_numpy()
    values = frame[value][known].to_numpy()  # integers stay integers, if none is missing
    sums = gpureduce.segment_sum(values, ids[known], num_segments=len(groups)).value
    return pd.Series(sums, index=pd.Index(groups, name=key), name=value)


rng = np.random.default_rng(1)
frame = pd.DataFrame(
    {
        "city": rng.choice(["Bern", "Basel", "Genève"], 100_000),
        "amount": rng.lognormal(0, 3, 100_000),
    }
)
for seed in range(3):
    some_order = frame.sample(frac=1, random_state=seed)
    sums = group_sums(some_order, "city", "amount")
    print(f"order {seed}:", *(f"{city} {amount.hex()}" for city, amount in sums.items()))
