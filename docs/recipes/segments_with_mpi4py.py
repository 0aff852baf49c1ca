"""mpirun -n 4 python segments_with_mpi4py.py: sums by segment over MPI's ranks, by one all-reduce.

Each rank has some elements of every segment. The sums have the bits of one segment_sum of all.
"""

import numpy as np
from mpi4py import MPI

import gpureduce

SEGMENTS = 5
world = MPI.COMM_WORLD
rng = np.random.default_rng(1)
numbers, segment_ids = rng.standard_normal(100_000), rng.integers(0, SEGMENTS, 100_000)
mine = slice(world.rank, None, world.size)  # what this rank adds up

digits = gpureduce.segment_digits(numbers[mine], segment_ids[mine], num_segments=SEGMENTS)
world.Allreduce(MPI.IN_PLACE, digits, op=MPI.SUM)
sums = gpureduce.from_digits(digits)
print(f"rank {world.rank} of {world.size}:", *(value.hex() for value in sums), flush=True)
