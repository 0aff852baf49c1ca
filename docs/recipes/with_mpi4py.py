"""mpirun -n 4 python with_mpi4py.py: an exact sum over MPI's ranks, by an integer all-reduce."""

import numpy as np
from mpi4py import MPI

import gpureduce

world = MPI.COMM_WORLD
numbers = np.random.default_rng(1).standard_normal(100_000)
share = numbers[world.rank :: world.size]  # what this rank adds up

digits = gpureduce.Accumulator("float64").add(share).to_digits()
world.Allreduce(MPI.IN_PLACE, digits, op=MPI.SUM)
value = gpureduce.Accumulator.from_digits(digits).value()
print(f"rank {world.rank} of {world.size}: {value.hex()}", flush=True)  # the same on every rank
