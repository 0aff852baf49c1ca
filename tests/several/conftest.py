"""Four emulated devices."""

from __future__ import annotations

import pytest

import gpureduce
from gpureduce.core import devices


@pytest.fixture(params=[1, 2, 4])
def device_count(request):
    """The emulator plays so many devices for the length of a test."""
    yield from _played(request.param)


@pytest.fixture
def four_devices():
    """The emulator plays four devices for the length of a test."""
    yield from _played(4)


def _played(count: int):
    modules = devices.emulator(), devices.emulator(traced=True)
    for module in modules:
        module.set_device_count(count)
    try:
        yield count
    finally:
        gpureduce.free_scratch()  # a device that is no longer played is not freed
        for module in modules:
            module.set_device_count(1)
