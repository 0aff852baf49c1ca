"""The shortest way for arrays in host memory gives what the long way gives, bit for bit."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from cases import DTYPES, array_of, run_python, same_bits
from gpureduce import _emulator, _host
from gpureduce.core.plan import Launch

SIZES = (0, 1, 2, 3, 31, 33, 127, 1000, 1025, 16_385, 33_000, 70_001, 300_001)
ALL = (*DTYPES, "complex64", "complex128")


def without_times(timing):
    times = ("kernel_ms", "h2d_ms", "d2h_ms", "init_ms", "total_ms")
    return dataclasses.replace(timing, **dict.fromkeys(times, 0.0))


def ways(array, strategy):
    """The value by one call of C, by `gpureduce.sum` untimed and timed, and by the long way."""
    quick = _host.sum_array(array, strategy != "cpu", None).value
    untimed = gpureduce.sum(array, strategy, timing=False)
    timed = gpureduce.sum(array, strategy)
    named = np.sum(array[:0]).dtype if array.ndim else np.sum(array).dtype
    long, long_timing = gpureduce.sum(array, strategy, dtype=named)
    assert untimed.timing is None and without_times(timed.timing) == without_times(long_timing)
    assert timed.timing.n == array.size and timed.timing.nbytes == array.nbytes
    assert 0 < timed.timing.kernel_ms <= timed.timing.total_ms
    return quick, untimed.value, timed.value, long


@pytest.mark.parametrize("strategy", ["cpu", "exact", "auto"])
@pytest.mark.parametrize("dtype", ALL)
def test_the_same_bits(dtype, strategy):
    for n in SIZES:
        array = array_of(dtype, n)
        quick, *others = ways(array, strategy)
        assert all(same_bits(quick, other) for other in others), (n, quick, others)


@pytest.mark.parametrize("strategy", ["cpu", "exact"])
@pytest.mark.parametrize("dtype", [d for d in ALL if d.startswith(("f", "bf", "c"))])
def test_special_values(dtype, strategy):
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    many = float(ml_dtypes.finfo(kind).max)
    for values in (
        [np.inf, 1], [-np.inf, 1], [np.inf, -np.inf], [np.nan], [-0.0], [-0.0, -0.0],
        [many, many], [many, many, -many], [float(ml_dtypes.finfo(kind).tiny) / 2] * 3,
        [1, float(ml_dtypes.finfo(kind).eps) / 2, float(ml_dtypes.finfo(kind).eps) ** 2],
    ):  # fmt: skip
        array = np.array(values).astype(kind)
        quick, *others = ways(array, strategy)
        assert all(same_bits(quick, other) for other in others), (values, quick, others)


def test_every_layout():
    base = array_of("float32", 6000).reshape(60, 100)
    raw = np.frombuffer(b"x" + base.tobytes(), np.uint8)[1:]
    readonly = base.copy()
    readonly.flags.writeable = False
    quickly = {"plain": base, "F": np.asfortranarray(base), "0-d": np.array(1.5, np.float32)}
    quickly |= {"read-only": readonly, "piece": base[3:7], "3-d": base.reshape(3, 20, 100)}
    slowly = {"strided": base[:, ::2], "reversed": base[::-1], "unaligned": raw.view(np.float32)}
    slowly |= {"swapped": base.astype(">f4"), "subclass": np.asarray(base).view(np.recarray)}
    for name, array in (quickly | slowly).items():
        quick = _host.sum_array(array, True, None)
        assert (quick is not None) == (name in quickly), name
        want = gpureduce.sum(np.ascontiguousarray(array, np.float32), "exact").value
        assert same_bits(gpureduce.sum(array, "exact", timing=False).value, want), name
        assert same_bits(gpureduce.sum(array, "exact").value, want), name


def test_wrong_arguments():
    array = np.ones(3, np.float32)
    with pytest.raises(TypeError, match="a truth value, and what makes"):
        _host.sum_array(array)
    with pytest.raises(TypeError, match="a launch, a stream"):
        _emulator.sum_gpu(array, None, Launch(0), 0)
    with pytest.raises(TypeError):
        _emulator.sum_gpu(array, None, Launch(0), "stream", None)


def test_a_dtype_that_numpy_takes_for_none_is_no_default():
    float64 = np.dtype(np.float64)  # == None, says NumPy
    array = np.array([1, 2**-30], np.float32)
    assert gpureduce.sum(array, "cpu", float64, timing=False).value == 1 + 2**-30


SMALL_SUM = """
import sys
import numpy as np
import gpureduce

def ours():
    return {name for name in sys.modules if name.partition(".")[0] == "gpureduce"}

imported = ours()
gpureduce.sum(np.arange(10.0))
gpureduce.sum(np.arange(10), timing=False)
assert ours() == imported, ours() - imported
print(len(imported))
"""


def test_a_small_sum_needs_few_modules():
    assert int(run_python(SMALL_SUM)) <= 12
