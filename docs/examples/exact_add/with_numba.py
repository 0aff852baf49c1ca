"""A histogram of weights by a Numba CUDA kernel, with the same bits in every run.

for_numba.cu is compiled once, with the header:

    nvcc -rdc=true -ptx -arch=sm_80 -I$(gpureduce include) for_numba.cu
"""

from pathlib import Path

import cffi
import numpy as np
from numba import cuda, types

PTX = str(Path(__file__).with_name("for_numba.ptx"))
words = types.CPointer(types.int64)
exact_add = cuda.declare_device("exact_add_float", types.int32(words, types.int64, types.float32))
exact_value = cuda.declare_device("exact_value_float", types.float32(words, types.int64))
ffi = cffi.FFI()


@cuda.jit(link=[PTX])
def add(sums, bin, weight):
    """Adds the weights to the bins' words."""
    i = cuda.grid(1)
    if i < bin.size:
        exact_add(ffi.from_buffer(sums), bin[i], weight[i])


@cuda.jit(link=[PTX])
def finish(out, sums):
    """Rounds each sum once."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = exact_value(ffi.from_buffer(sums), i)


def histogram(bin, weight, count):
    """The sum of the weights of each bin."""
    sums = cuda.to_device(np.zeros((count, 9), np.int64))
    out = cuda.device_array(count, np.float32)
    add[(bin.size + 255) // 256, 256](sums, bin, weight)
    finish[(count + 255) // 256, 256](out, sums)
    return out.copy_to_host()


if __name__ == "__main__":
    rng = np.random.default_rng(1)
    bin = cuda.to_device(rng.integers(0, 1000, 1 << 22))
    weight = cuda.to_device(rng.standard_normal(1 << 22).astype(np.float32))
    found = {histogram(bin, weight, 1000).tobytes() for _ in range(20)}
    print(len(found), "histogram in 20 runs")
    assert len(found) == 1
