"""Wrong arguments of sums along axes of host arrays."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce

A = np.ones((3, 4))


@pytest.mark.parametrize(
    ("error", "match", "keywords"),
    [
        (np.exceptions.AxisError, "axis 2 is out of bounds", {"axis": 2}),
        (np.exceptions.AxisError, "axis -3 is out of bounds", {"axis": (0, -3)}),
        (ValueError, "names an axis twice", {"axis": (0, -2)}),
        (TypeError, "axis must be a whole number", {"axis": 1.0}),
        (TypeError, "axis must be a whole number", {"axis": "rows"}),
        (TypeError, "axis must be a whole number", {"axis": [0]}),
        (TypeError, "array of booleans, not of int64", {"axis": 0, "where": [1, 0, 1, 0]}),
        (ValueError, "does not broadcast", {"axis": 0, "where": np.ones(5, bool)}),
        (TypeError, "initial must be a real number", {"axis": 0, "initial": "1"}),
        (TypeError, "initial must be a real number", {"axis": 0, "initial": 1j}),
        (ValueError, "must be finite in float64", {"axis": 0, "initial": 10**400}),
        (TypeError, "initial must be a whole number", {"axis": 0, "dtype": "complex64", "out": A}),
        (TypeError, r"out must be a NumPy array of shape \(4,\)", {"axis": 0, "out": [0] * 4}),
        (TypeError, "dtype of the sum, float64", {"axis": 0, "out": np.ones(4, np.float32)}),
        (TypeError, "dtype of the sum, float64", {"axis": 0, "out": np.ones(4, ">f8")}),
        (ValueError, r"shape of the sum, \(4,\), not \(3,\)", {"axis": 0, "out": np.ones(3)}),
        (ValueError, "out overlaps the array", {"axis": 0, "out": A[1]}),
        (ValueError, "out is read-only", {"axis": 0, "out": np.broadcast_to(1.0, 4)}),
        (ValueError, "one of host, device", {"axis": 0, "result": "card"}),
        (ValueError, "leave result out", {"axis": 0, "result": "device"}),
        (ValueError, "leave result out", {"result": "device"}),
        (ValueError, "stream is for arrays on a GPU", {"axis": 0, "stream": 1}),
        (ValueError, "chooses its own launch", {"axis": 0, "strategy": "cpu", "block": 32}),
        (
            ValueError,
            "warp_shfl makes no sums along an axis, and takes no initial, where or out; auto, ",
            {"axis": 0, "strategy": "warp_shfl"},
        ),
        (
            ValueError,
            "device must be None, 'cpu', 'cuda', .*not 'gpu'",
            {"axis": 0, "device": "gpu"},
        ),
        (ValueError, "there is no", {"axis": 0, "strategy": "exaxt"}),
    ],
)
def test_errors(error, match, keywords):
    if "dtype" in keywords:
        error, match = TypeError, "dtype of the sum, complex64"
    with pytest.raises(error, match=match):
        gpureduce.sum(A, **keywords)
    assert gpureduce.sum(A, axis=0).value.tolist() == [3, 3, 3, 3]


def test_differences_from_numpy():
    """Those that the table in docs/axis.md tells of, and no test before this one."""
    large, infinite = np.full(2, 1e308), np.array([np.inf, -np.inf])
    for options in ({}, {"strategy": "cpu"}, {"device": "emulator"}):  # a warning is an error
        assert gpureduce.sum(large, axis=0, **options) == np.inf
        assert np.isnan(gpureduce.sum(infinite, axis=0, **options))
    with pytest.warns(RuntimeWarning, match="overflow"):
        gpureduce.sum(large, "numpy", axis=0)
    with pytest.raises(TypeError, match="out must be a NumPy array"):
        gpureduce.sum(A, axis=0, out=...)
    with pytest.raises(TypeError, match="dtype=bool cannot hold a sum"):
        gpureduce.sum(A, axis=0, dtype=bool)
    assert gpureduce.sum(np.ones(1), axis=0, initial=2**53 + 1) == 2**53 + 2
    with pytest.raises(ValueError, match="kernels take an initial number that is a float64"):
        gpureduce.sum(np.ones(1), "fast", axis=0, initial=2**53 + 1)


def test_errors_of_integers_and_gpu_arrays():
    ones = np.ones((2, 2), np.int8)
    with pytest.raises(TypeError, match="initial must be a whole number for a sum in int64"):
        gpureduce.sum(ones, axis=0, initial=1.5)
    with pytest.raises(ValueError, match="initial must be from -128 to 127"):
        gpureduce.sum(ones, axis=0, dtype="int8", initial=128)
    with pytest.raises(TypeError, match="cannot be summed"):
        gpureduce.sum(np.array(["a"]), axis=0)
