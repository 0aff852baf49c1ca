"""Times gpureduce.dask.sum beside dask.array.sum on one cluster of this machine.

    python tools/dask_times.py --mib 4096 --workers 4 --rounds 7

The array lies in the workers' memory. Both sums take turns, so that other programs slow both of
them. With --cupy, the chunks are CuPy arrays, and each worker has a card of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import gpureduce.dask

CHUNK = 1 << 26  # bytes


def array(dtype: str, mib: int, on_card: bool) -> Any:
    """Random numbers in chunks of 64 MiB, each of which repeats its own."""
    n, chunk = (size // np.dtype(dtype).itemsize for size in (mib << 20, CHUNK))

    def numbers(block: Any, block_info: Any = None) -> Any:
        rng = np.random.default_rng(block_info[0]["chunk-location"])
        made = np.resize(rng.standard_normal(1 << 16, dtype), block.shape)  # quickly made
        if not on_card:
            return made
        import cupy

        return cupy.asarray(made)

    return da.zeros(n, dtype=dtype, chunks=chunk).map_blocks(numbers, dtype=dtype)


def take_card(dask_worker: Any) -> None:
    """Workers are numbered from 0. Before the first use of CUDA in this process."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(dask_worker.name)


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cupy", action="store_true")
    asked = parser.parse_args()
    with (
        dask.config.set({"distributed.worker.memory.spill": False}),
        LocalCluster(
            n_workers=asked.workers, threads_per_worker=1, memory_limit=0, dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        if asked.cupy:
            client.run(take_card)
        for dtype in ("float32", "float64"):
            x = array(dtype, asked.mib, asked.cupy).persist()
            wait(x)
            ways = {"gpureduce.dask": gpureduce.dask.sum(x), "dask.array": x.sum()}
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(asked.rounds + 1):
                for name, lazy in ways.items():
                    times[name].append(seconds(lazy.compute))
            medians = {name: statistics.median(some[1:]) for name, some in times.items()}
            ours, theirs = medians.values()
            said = ", ".join(f"{name} {1e3 * s:.0f} ms" for name, s in medians.items())
            print(f"{dtype} {asked.mib} MiB: {said}, ratio {ours / theirs:.3f}", flush=True)
            del x, ways


if __name__ == "__main__":
    main()
