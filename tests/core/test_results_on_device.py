"""The library of sums that stay on a device. JAX itself runs in test_axis_on_card.py."""

import types

import numpy as np
import pytest

import gpureduce
from gpureduce.core import device_results
from producers import OnDevice

ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


class InJax(OnDevice):
    __module__ = "jaxlib._jax"


@pytest.fixture
def jax(monkeypatch):
    """A stand-in for JAX: from_dlpack returns a label and the array. It has no 64-bit types."""
    found = types.SimpleNamespace(
        config=types.SimpleNamespace(jax_enable_x64=False),
        dlpack=types.SimpleNamespace(from_dlpack=lambda array: ("JAX", array)),
    )
    monkeypatch.setattr(device_results, "load_other", lambda name: {"jax": found}[name])
    return found


def test_sums_of_a_jax_array_are_one(jax):
    name, found = gpureduce.sum(InJax(ARRAY), axis=1, device="emulator").value
    assert name == "JAX" and found.to_numpy().tolist() == [6, 22, 38]
    name, found = gpureduce.sum(InJax(ARRAY), device="emulator", result="device").value
    assert name == "JAX" and float(found) == 66
    assert gpureduce.sum(InJax(ARRAY), device="emulator").value == 66
    ids = InJax(np.array([1, 0, 1], np.int32))
    name, found = gpureduce.segment_sum(InJax(ARRAY), ids, device="emulator").value
    assert name == "JAX" and found.to_numpy().tolist() == [[4, 5, 6, 7], [8, 10, 12, 14]]


def test_sums_that_jax_would_cut_to_32_bits_are_no_jax_array(jax):
    large = InJax(np.full(4, 2**31 - 1, np.int32))

    def sums():
        digits = gpureduce.digits(InJax(ARRAY), axis=1, device="emulator")
        return [gpureduce.sum(large, axis=0, device="emulator").value, digits]

    whole, digits = sums()
    assert isinstance(whole, gpureduce.DeviceArray) and int(whole) == 4 * (2**31 - 1)
    assert isinstance(digits, gpureduce.DeviceArray) and digits.dtype == "int64"
    jax.config.jax_enable_x64 = True
    for name, found in sums():
        assert name == "JAX" and found.dtype == "int64"


def test_a_jax_array_is_no_out(jax):
    out = InJax(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="out cannot be a JAX array, which is immutable"):
        gpureduce.sum(InJax(ARRAY), axis=1, out=out, device="emulator")
    ids = InJax(np.array([1, 0, 1], np.int32))
    with pytest.raises(TypeError, match="out cannot be a JAX array, which is immutable"):
        gpureduce.segment_sum(InJax(ARRAY[:, 0]), ids, out=out, device="emulator")


def test_other_libraries_get_a_device_array():
    found = gpureduce.sum(OnDevice(ARRAY), axis=0, device="emulator").value
    assert isinstance(found, gpureduce.DeviceArray)
    assert found.to_numpy().tolist() == [12, 15, 18, 21]
