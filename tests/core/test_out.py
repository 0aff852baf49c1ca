"""`out` that must not be written to: a subclass that lies about it, and memory of an input."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import run_python

LYING = """
import sys, tempfile
import numpy as np
import gpureduce

class Lying(np.ndarray):
    flags = property(lambda _: type("Flags", (), {"writeable": True, "c_contiguous": True})())
    shape = property(lambda _: (3,))
    dtype = property(lambda _: np.dtype(float))

    def view(self, *_):
        return self

CALLS = {
    "sum": lambda out, **how: gpureduce.sum(np.ones((3, 4)), axis=1, out=out, **how),
    "segment_sum": lambda out, **how: gpureduce.segment_sum(np.ones(3), [0, 1, 2], out=out, **how),
}
with tempfile.NamedTemporaryFile() as file:
    file.write(bytes(24))
    file.flush()
    for size in (3, 2):
        out = np.memmap(file.name, float, "r", shape=(size,)).view(Lying)
        for call in CALLS.values():
            for how in ({}, {"strategy": "numpy"}, {"device": "emulator"}):
                try:
                    call(out, **how)
                except ValueError as error:
                    assert "out is read-only" in str(error) or "shape of the sum" in str(error)
                else:
                    raise AssertionError("it was written to")
"""


def test_a_subclass_whose_attributes_lie():
    """It was written to, which for a read-only mapping of a file ended the process."""
    run_python(LYING)


@pytest.mark.parametrize("how", [{}, {"strategy": "numpy"}, {"device": "emulator"}], ids=str)
def test_memory_of_offsets_or_ids(how):
    offsets = np.array([0, 1, 3])
    for out in (offsets[:2], offsets[1:]):
        with pytest.raises(ValueError, match="out overlaps offsets: pass an array with memory of"):
            gpureduce.segment_sum(np.arange(3), offsets=offsets, out=out, **how)
    assert offsets.tolist() == [0, 1, 3]
    ids = np.array([0, 1, 1])
    with pytest.raises(ValueError, match="out overlaps segment_ids"):
        gpureduce.segment_sum(np.arange(3), ids, out=ids[:2], **how)
    values = np.arange(3)
    with pytest.raises(ValueError, match="out overlaps the array"):
        gpureduce.segment_sum(values, offsets=offsets, out=values[:2], **how)
    apart = np.zeros(6, int)
    apart[::2] = offsets
    found = gpureduce.segment_sum(values, offsets=apart[::2], out=apart[1:4:2], **how)
    assert found.value.tolist() == [0, 3] and apart[::2].tolist() == [0, 1, 3]
