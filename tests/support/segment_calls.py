"""Sums by segment of the same arrays by processors, by kernels, and on an emulated device."""

from __future__ import annotations

import gpureduce
from gpureduce.core.device_array import DeviceArray
from producers import ByDLPack, ByInterface


def on_device(array):
    """The array as one on the device, which has what all libraries' arrays have."""
    shown = (
        ByDLPack(array)
        if array.dtype.name == "bfloat16"
        else ByInterface(array, data=(array.ctypes.data, False))
    )
    shown.dtype, shown.shape = array.dtype, array.shape
    return shown


def by_host(values, ids=None, **how):
    return gpureduce.segment_sum(values, ids, **how).value


def by_kernels(values, segment_ids=None, **how):
    return gpureduce.segment_sum(values, segment_ids, device="emulator", **how).value


def in_place(values, ids=None, *, offsets=None, **how):
    """The same of arrays on the device, whose sums stay there."""
    numbers = {"offsets": on_device(offsets)} if ids is None else {"segment_ids": on_device(ids)}
    found = by_kernels(on_device(values), **numbers, **how)
    assert isinstance(found, DeviceArray)
    return found.to_numpy()


def assert_same(found, want):
    assert found.shape == want.shape and found.dtype == want.dtype
    assert found.tobytes() == want.tobytes()
