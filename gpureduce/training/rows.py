"""Rows of a tensor that are added to rows of another: each sum is rounded once, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gpureduce.core import segments_on_device
from gpureduce.core.dtypes import Array, named
from gpureduce.core.segments import segment_sum


def host_array(x: torch.Tensor) -> Array:
    """A tensor in host memory as a NumPy array of the same memory."""
    if x.dtype != torch.bfloat16:
        return x.detach().resolve_conj().resolve_neg().numpy()
    return x.detach().view(torch.int16).numpy().view(named("bfloat16"))


def from_host(sums: Any, result: torch.dtype) -> torch.Tensor:
    """A new tensor of NumPy's sums."""
    numbers = np.array(sums, order="C")
    if result == torch.bfloat16:
        return torch.from_numpy(numbers.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(numbers)


def add(to: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> None:
    """Adds row i of `rows` to row ``ids[i]`` of `to`. Rows of `to` without an id are not touched.

    A wrong id raises an IndexError. On a GPU, where nothing waits for the sums, it ends the kernels
    of the process, as a failed assertion of PyTorch's own kernels does.
    """
    if not rows.numel():
        return
    if to.is_cuda:
        segments_on_device.add_rows(to, ids, rows)
        return
    places, ids = ids.unique(return_inverse=True)
    if places[0] < 0 or places[-1] >= to.shape[0]:
        wrong = int(places[0] if places[0] < 0 else places[-1])
        raise IndexError(f"index {wrong} is out of range for {to.shape[0]} rows")
    every = torch.cat([ids, torch.arange(len(places))]).numpy()
    values = host_array(torch.cat([rows, to[places]]))
    sums = segment_sum(values, every, num_segments=len(places), dtype=values.dtype, timing=False)
    to[places] = from_host(sums.value, to.dtype)


@torch.library.custom_op("gpureduce::add_rows", mutates_args=())
def added(to: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The same as a new tensor, for compiled programs."""
    found = to.clone(memory_format=torch.contiguous_format)
    add(found, ids, rows)
    return found


@added.register_fake
def _(to: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(to, memory_format=torch.contiguous_format)
