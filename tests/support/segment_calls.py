"""Sums by segment of the same arrays by processors, by kernels, and on an emulated device."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from axis_cases import random_array
from cases import numpy_dtype
from gpureduce.core.device_array import DeviceArray
from producers import on_device

INTEGERS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
COMPLEX = ["complex64", "complex128"]
INDEXES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def by_host(values, ids=None, **how):
    return gpureduce.segment_sum(values, ids, **how).value


def by_kernels(values, segment_ids=None, **how):
    return gpureduce.segment_sum(values, segment_ids, device="emulator", **how).value


def in_place(values, ids=None, *, offsets=None, **how):
    """The same of arrays on the device, whose sums stay there."""
    numbers = {"offsets": on_device(offsets)} if ids is None else {"segment_ids": on_device(ids)}
    if isinstance(how.get("out"), np.ndarray):
        how["out"] = on_device(how["out"])
    found = by_kernels(on_device(values), **numbers, **how)
    assert isinstance(found, DeviceArray) or found is how.get("out")
    return found.to_numpy() if isinstance(found, DeviceArray) else found.array


PLACES = {"cpu": by_host, "emulator": by_kernels, "device": in_place}
each_place = pytest.mark.parametrize("call", PLACES.values(), ids=PLACES)


def segment_by_segment(values, ids, count, **how):
    """The same by a sum for each segment and column."""
    rows = [gpureduce.sum(values[ids == k], "auto", axis=0, **how).value for k in range(count)]
    return np.array(rows).reshape((count, *values.shape[1:]))


def in_order(values, ids, count):
    """The elements segment by segment, and their offsets."""
    order = np.argsort(ids, kind="stable")
    return values[order], np.searchsorted(ids[order], np.arange(count + 1))


def assert_same(found, want):
    assert found.shape == want.shape and found.dtype == want.dtype
    assert found.tobytes() == want.tobytes()


def random_values(rng, dtype, shape):
    """Numbers of usual sizes or of all, among them some that are not finite."""
    kind = numpy_dtype(dtype)
    if kind.kind in "biu":
        return random_array(rng, dtype, shape)
    if kind.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    most = {"float16": 7, "float64": 500}.get(dtype, 60)
    exponents = rng.integers(-most, most + 1, shape) if rng.random() < 0.5 else 0
    values = (rng.standard_normal(shape) * 2.0**exponents).astype(kind)
    if rng.random() < 0.3 and values.size:
        some = rng.integers(0, values.size, 3)
        values.reshape(-1)[some] = rng.choice([np.nan, np.inf, -np.inf, -0.0], 3)
    return values


def random_ids(rng, kind, n, count):
    """`n` ids below `count`."""
    ids = rng.integers(0, count, n)
    if kind == "one":
        ids[:] = count // 2
    elif kind == "half":
        ids[rng.random(n) < 0.5] = count // 2
    elif kind == "zipf":
        ids = np.minimum(rng.zipf(1.3, n) - 1, count - 1)
    elif kind == "few":
        ids //= 3
    elif kind in ("sorted", "falling"):
        ids = np.sort(ids)[:: 1 if kind == "sorted" else -1]
    elif kind == "runs":  # short and long ones
        lengths = rng.choice([1, 3, 40, 300, 2500], n)
        ids = np.sort(np.repeat(ids, lengths)[:n])
    return ids
