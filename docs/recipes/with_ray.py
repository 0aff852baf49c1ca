"""An exact sum by Ray's tasks: each returns its digits, which the driver adds as they arrive."""

import numpy as np
import ray

import gpureduce

COUNT = 4


@ray.remote
def digits_of(rank: int) -> np.ndarray:
    numbers = np.random.default_rng(1).standard_normal(100_000)
    share = numbers[rank::COUNT]  # what this task adds up
    return gpureduce.Accumulator("float64").add(share).to_digits()


ray.init(num_cpus=2, include_dashboard=False)
waiting = [digits_of.remote(rank) for rank in range(COUNT)]
total = np.zeros(75, np.int64)
while waiting:
    (done,), waiting = ray.wait(waiting)
    total = total + ray.get(done)
print(gpureduce.Accumulator.from_digits(total).value().hex())
ray.shutdown()
