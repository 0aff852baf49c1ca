"""Rows of a tensor that are added to rows of another: each sum is rounded once, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gpureduce import _host
from gpureduce.core import segments_on_device
from gpureduce.core.dtypes import Array, line_of, named


def host_array(x: torch.Tensor) -> Array:
    """A tensor in host memory as a NumPy array of the same memory."""
    if x.dtype != torch.bfloat16:
        return x.numpy(force=True)  # copies only conjugates that are still to be computed
    return x.detach().view(torch.int16).numpy().view(named("bfloat16"))


def from_host(sums: Any, result: torch.dtype) -> torch.Tensor:
    """A tensor of NumPy's sums, in their memory."""
    numbers = np.asarray(sums, order="C")
    if result == torch.bfloat16:
        return torch.from_numpy(numbers.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(numbers)


def add(to: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor, check: bool = False) -> None:
    """Adds row i of `rows` to row ``ids[i]`` of `to`. Rows of `to` without an id are not touched.

    A wrong id raises an IndexError. On a GPU, with `check`, it is a ValueError, for which the call
    waits. Without, it ends the kernels of the process, as a failed assertion of PyTorch's own
    kernels does.
    """
    if not rows.numel():
        return
    if to.is_cuda:
        segments_on_device.add_rows(to, ids, rows, check)
        return
    _add_on_host(host_array(to), ids.numpy(), host_array(rows))


def _add_on_host(to: Array, ids: Array, rows: Array) -> None:
    count, (least, most) = len(to), (ids.min(), ids.max())
    if least < 0 or most >= count:
        wrong = least if least < 0 else most
        raise IndexError(f"index {wrong} is out of range for {count} rows")
    if count <= 32 * ids.size:  # then there is no need to sort
        occurs = np.zeros(count, np.bool_)
        occurs[ids] = True
        places = occurs.nonzero()[0]
        number = np.empty(count, np.int64)
        number[places] = np.arange(places.size)
        ids = number[ids]
    else:
        places, ids = np.unique(ids, return_inverse=True)
    every = np.concatenate([ids, np.arange(places.size)])
    values = np.concatenate([rows, to[places]])
    sums = np.empty((places.size, *to.shape[1:]), to.dtype)
    line = line_of(to.dtype)
    _host.sum_segments(values, every, None, sums, line, line, ((), ()))
    to[places] = sums


@torch.library.custom_op("gpureduce::add_rows", mutates_args=())
def added(
    to: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor, check: bool = False
) -> torch.Tensor:
    """The same as a new tensor, for compiled programs."""
    found = to.clone(memory_format=torch.contiguous_format)
    add(found, ids, rows, check)
    return found


@added.register_fake
def _(to: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor, check: bool = False) -> torch.Tensor:
    return torch.empty_like(to, memory_format=torch.contiguous_format)
