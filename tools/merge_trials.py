"""Merges exact sums of a thousand simulated ranks in random trees; messages get lost.

    python tools/merge_trials.py --trials 10000 --ranks 1000 --seed 1

In each trial, the elements of an array are dealt to the ranks in random shares. Ranks then send
their sums up a random tree, as digits or as bytes. A message may get lost, and is sent again; it
may arrive twice, and the second copy is dropped. Each trial must give the bits of one sum of the
array.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Iterator

import numpy as np

import gpureduce
from gpureduce import Accumulator

LOST, TWICE = 0.1, 0.05


def numbers(rng: np.random.Generator, n: int) -> np.ndarray:
    half = rng.standard_normal(n // 2) * 2.0 ** rng.integers(-1000, 1000, n // 2)
    return np.concatenate([half, -half[: n // 2 - 3], rng.standard_normal(n - 2 * (n // 2) + 3)])


def shares(rng: np.random.Generator, array: np.ndarray, ranks: int) -> list[np.ndarray]:
    """The elements in random order, dealt to the ranks. Some ranks have none."""
    order = rng.permutation(array.size)
    ends = np.sort(rng.integers(0, array.size + 1, ranks - 1))
    return np.split(array[order], ends)


class Rank:
    """A rank with a sum, which takes each message once."""

    def __init__(self, total: Accumulator) -> None:
        self.total = total
        self.seen: set[int] = set()

    def message(self, rng: random.Random) -> np.ndarray | bytes:
        return self.total.to_digits() if rng.random() < 0.5 else self.total.to_bytes()

    def receive(self, number: int, message: np.ndarray | bytes) -> None:
        if number in self.seen:
            return
        self.seen.add(number)
        if isinstance(message, bytes):
            self.total += Accumulator.from_bytes(message)
        else:
            self.total = Accumulator.from_digits(self.total.to_digits() + message)


def deliveries(rng: random.Random) -> Iterator[None]:
    """One item for each time that a message arrives, which is once at least."""
    while rng.random() < LOST:
        pass  # lost, and sent again
    yield
    if rng.random() < TWICE:
        yield


def trial(array: np.ndarray, ranks: int, seed: int) -> Accumulator:
    rng, chance, messages = np.random.default_rng(seed), random.Random(seed), itertools.count()
    parts = [Rank(Accumulator(array.dtype).add(part)) for part in shares(rng, array, ranks)]
    chance.shuffle(parts)
    while len(parts) > 1:
        children = [parts.pop() for _ in range(min(chance.randint(1, 8), len(parts) - 1))]
        parent = chance.choice(parts)
        sent = [(next(messages), child.message(chance)) for child in children]
        arrived = [one for one in sent for _ in deliveries(chance)]
        chance.shuffle(arrived)
        for number, message in arrived:
            parent.receive(number, message)
    return parts[0].total


def run(trials: int, ranks: int, seed: int, elements: int = 5000) -> int:
    wrong = 0
    for number in range(trials):
        if number % 100 == 0:
            array = numbers(np.random.default_rng([seed, number]), elements)
            right = Accumulator(array.dtype).add(array)
        found = trial(array, ranks, seed * trials + number)
        same = found.value().tobytes() == gpureduce.sum(array).value.tobytes()
        wrong += found != right or not same
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    start = time.perf_counter()
    wrong = run(asked.trials, asked.ranks, asked.seed)
    took = time.perf_counter() - start
    print(f"{asked.trials} trials of {asked.ranks} ranks, {wrong} with other bits, {took:.0f} s")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
