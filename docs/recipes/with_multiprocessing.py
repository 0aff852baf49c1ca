"""An exact sum by processes of this machine: each sends its digits, which are added."""

from multiprocessing import get_context

import numpy as np

import gpureduce

COUNT = 4


def share(rank: int) -> np.ndarray:
    """What one process adds up; here a part of an array that all of them can make."""
    numbers = np.random.default_rng(1).standard_normal(100_000)
    return numbers[rank::COUNT]


def digits_of(rank: int) -> np.ndarray:
    return gpureduce.Accumulator("float64").add(share(rank)).to_digits()


if __name__ == "__main__":
    with get_context("spawn").Pool(COUNT) as pool:
        total = sum(pool.imap_unordered(digits_of, range(COUNT)))  # in any order
    print(gpureduce.Accumulator.from_digits(total).value().hex())
