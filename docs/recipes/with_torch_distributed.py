"""torchrun --nproc-per-node 4 with_torch_distributed.py: an exact sum over its ranks.

The backend is NCCL where each rank has a GPU of its own, and gloo otherwise. Both add 64-bit
integers.
"""

import os

import numpy as np
import torch
import torch.distributed as dist

import gpureduce

on_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
dist.init_process_group("nccl" if on_gpus else "gloo")
rank, size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpus else torch.device("cpu")
numbers = torch.from_numpy(np.random.default_rng(1).standard_normal(100_000))
share = numbers[rank::size].to(device)  # what this rank adds up, where it lies

digits = torch.from_numpy(gpureduce.Accumulator("float64").add(share).to_digits()).to(device)
dist.all_reduce(digits)  # the sum of int64 numbers
value = gpureduce.Accumulator.from_digits(digits.cpu().numpy()).value()
print(f"rank {rank} of {size}: {value.hex()}", flush=True)  # the same on every rank
dist.destroy_process_group()
