"""Sums of timedelta64 equal NumPy's, NaT included."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

import gpureduce
from segment_calls import assert_same

HOWS = [{}, {"strategy": "numpy"}, {"device": "emulator"}]


def _array(dtype, share_of_nat):
    rng = np.random.default_rng(7)
    array = rng.integers(-1000, 1000, (7, 11)).astype(dtype)
    array[rng.random(array.shape) < share_of_nat] = "NaT"
    return array, rng.random(array.shape) < 0.8


@pytest.mark.parametrize("dtype", ["m8[s]", "m8[ns]", ">m8[D]", "m8"])
@pytest.mark.parametrize("share_of_nat", [0, 0.1])
def test_sums_are_numpys(dtype, share_of_nat):
    array, mask = _array(dtype, share_of_nat)
    native = array.astype(array.dtype.newbyteorder("="))
    for how in (*HOWS, {"strategy": "sequential"}, {"device": ["cpu", "emulator"]}):
        assert_same(gpureduce.sum(array, **how).value, native.sum())
        assert_same(gpureduce.sum(array[::2, ::-3], **how).value, native[::2, ::-3].sum())
    for how in HOWS:
        for axis in (0, 1, (0, 1), None, ()):
            for more in ({"keepdims": True}, {"where": mask}, {"initial": native[0, 0]},
                         {"initial": 5}):  # fmt: skip
                wanted = np.sum(native, axis=axis, **more)
                assert_same(gpureduce.sum(array, axis=axis, **more, **how).value, wanted)
                out = np.zeros(np.shape(wanted), native.dtype)
                assert gpureduce.sum(array, axis=axis, out=out, **more, **how).value is out
                assert_same(out, wanted)


@pytest.mark.parametrize("how", HOWS, ids=str)
@pytest.mark.parametrize("share_of_nat", [0, 0.1])
def test_sums_by_segment_are_numpys(how, share_of_nat):
    array, _ = _array("m8[us]", share_of_nat)
    ids = np.array([3, 0, 1, 3, 4, 0, 1])
    wanted = np.zeros((6, 11), array.dtype)
    np.add.at(wanted, ids, array)
    assert_same(gpureduce.segment_sum(array, ids, num_segments=6, **how).value, wanted)
    assert_same(gpureduce.segment_sum(array, ids, **how).value, wanted[:5])
    out = np.ones_like(wanted)
    assert gpureduce.segment_sum(array, ids, out=out, **how).value is out
    assert_same(out, wanted)
    by_offsets = np.stack([array[:2].sum(0), array[2:2].sum(0), array[2:].sum(0)])
    assert_same(gpureduce.segment_sum(array, offsets=[0, 2, 2, 7], **how).value, by_offsets)


def test_initial_and_timing():
    array = np.array([1, 2], "m8[s]")
    for initial in (np.timedelta64(3, "s"), np.timedelta64(3000, "ms"), datetime.timedelta(0, 3)):
        assert gpureduce.sum(array, axis=0, initial=initial) == np.timedelta64(6, "s")
        sums = gpureduce.segment_sum(array, [0, 0], initial=initial)
        assert sums.tolist() == [datetime.timedelta(0, 6)]
    assert np.isnat(gpureduce.sum(array, axis=0, initial=np.timedelta64("NaT")).value)
    result = gpureduce.sum(array)
    assert (result.timing.dtype, result.timing.n) == ("timedelta64[s]", 2)
    assert gpureduce.error_bound(result, 3) == 0
    assert gpureduce.sum(array, timing=False).timing is None
    assert gpureduce.sum(array, dtype="m8[s]") == np.timedelta64(3, "s")
    assert gpureduce.sum([np.timedelta64(1, "h"), np.timedelta64("NaT")]).value is not None
    assert np.isnat(gpureduce.sum([np.timedelta64(1, "h"), np.timedelta64("NaT")]).value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "f8"}, r"dtype must be that of the elements, timedelta64\[s\]"),
        ({"initial": np.timedelta64(1500, "ms")}, r"initial must be a timedelta64 of whole time"),
        ({"initial": np.timedelta64(1, "Y")}, "initial must be a timedelta64 of whole"),
        ({"initial": 2.5}, "initial must be a timedelta64"),
        ({"initial": "x"}, "initial must be a timedelta64"),
        ({"out": np.zeros((), np.int64)}, r"out must be a NumPy array of dtype timedelta64\[s\]"),
    ],
)
def test_errors(options, words):
    array = np.array([1, 2], "m8[s]")
    with pytest.raises(TypeError, match=words):
        gpureduce.sum(array, axis=0, **options)
    with pytest.raises(TypeError, match=words):
        gpureduce.segment_sum(array, [0, 0], **options)
    for call in (gpureduce.digits, gpureduce.Accumulator().add):
        with pytest.raises(TypeError, match="cannot be summed"):
            call(array)
