"""The lessons on sums by key: their sums, their counts, and whether they race."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gpureduce
from gpureduce import _emulator_traced as traced
from gpureduce.core import arrays, dtypes, registry, segments_on_device
from gpureduce.core.groups import Segments

LESSONS = [s.name for s in gpureduce.strategies() if s.kind == "keys"]
SIZES = [(1, 1), (31, 3), (256, 1), (5000, 50), (5000, 4999), (70_000, 300)]


def case(name, n, count, dtype="float32"):
    rng = np.random.default_rng(n)
    ids = rng.integers(0, count, n)
    ids = np.sort(ids) if name == "key_sorted" else ids
    return rng.integers(-100, 100, n).astype(dtype) / 4, ids


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LESSONS)
def test_sums(name, dtype):
    for n, count in SIZES:
        values, ids = case(name, n, count, dtype)
        want = gpureduce.segment_sum(values, ids, num_segments=count).value
        orders = ("forward", "reverse", "lockstep", "random")
        # Each dtype has two of the orders for many elements.
        for order in orders if n < 5000 else orders[dtype == "float64" :: 2]:
            with gpureduce.emulator.schedule(order):
                found = gpureduce.segment_sum(values, ids, num_segments=count, strategy=name)
            assert found.value.dtype == dtype and found.value.tobytes() == want.tobytes()
            assert found.timing.strategy == name and found.timing.launches == 1


@pytest.mark.parametrize("name", LESSONS)
def test_nothing_races(name):
    for n, count in ((700, 5), (2100, 300)):
        values, ids = case(name, n, count)
        conversion = dtypes.convert(values.dtype, None)
        arguments = segments_on_device.counted_arguments(
            registry.find(name), conversion, values, Segments(ids, None, count), (0, 0)
        )
        reports = []
        traced.watched(*arguments, reports)
        assert json.loads(reports[0])["races"] == []
        want = gpureduce.segment_sum(values, ids, num_segments=count).value
        assert arguments[3].tobytes() == want.tobytes()


def test_fixed_point_loses_what_is_below_its_unit():
    values = np.array([2.0**-33, 2.0**-33, 1.0, 3 * 2.0**-33], np.float32)
    found = gpureduce.segment_sum(values, [0, 0, 1, 2], strategy="key_fixed").value
    assert found.tolist() == [0, 1, 2.0**-31]  # ties to even


@pytest.mark.parametrize(
    ("error", "match", "values", "ids", "how"),
    [
        (TypeError, "key_warp takes float32 or float64, not int64", [1], [0], {}),
        (TypeError, "cannot add complex", [1j], [0], {}),
        (TypeError, "key_warp does not take offsets", [1.0], None, {"offsets": [0, 1]}),
        (ValueError, "takes values of 1 dimension, .n,., not rows", [[1.0]], [0], {}),
        (ValueError, "key_warp does not support initial", [1.0], [0], {"initial": 1}),
        (ValueError, r"segment_ids\[1\] is 5.*num_segments=3", [1.0, 2.0], [0, 5],
         {"num_segments": 3}),
        (ValueError, r"segment_ids\[0\] is -1", [1.0], [-1], {}),
        (ValueError, "is a GPU kernel", [1.0], [0], {"device": "cpu"}),
    ],
)  # fmt: skip
def test_errors(error, match, values, ids, how):
    with pytest.raises(error, match=match):
        gpureduce.segment_sum(values, ids, strategy="key_warp", **how)


def test_errors_of_one_lesson():
    with pytest.raises(
        ValueError, match=r"in ascending order, but segment_ids\[2\] is 0 after .*1\], which is 1"
    ):
        gpureduce.segment_sum([1.0, 2.0, 3.0], [0, 1, 0], strategy="key_sorted")
    with pytest.raises(ValueError, match=r"holds at most \d+ of them, not num_segments=100000"):
        gpureduce.segment_sum([1.0], [0], num_segments=100_000, strategy="key_shared")
    with pytest.raises(ValueError, match="key_atomic makes segment sums"):
        gpureduce.sum([1.0], "key_atomic")
    assert gpureduce.segment_sum([1.5, 2.0], [0, 0], strategy="key_shared").value.tolist() == [3.5]


def test_counts_of_exact_are_those_of_all_its_launches():
    ids = np.arange(6000) % 3000
    found = gpureduce.explain("exact", dtype="float32", segment_ids=ids)
    files = {line.file.rpartition("/")[2] for line in found.lines}
    assert {"segment_clear.cu", "segment_atomics.cu", "segment_round.cu"} <= files
    assert found.contention["global"].atomics >= 6000 and found.segments == 3000
    few = gpureduce.explain("exact", dtype="float64", segment_ids=ids % 3)
    assert few.contention["shared"].atomics >= 6000


def test_explained_lessons_as_text_and_picture():
    ids = np.arange(3000) % 7
    found = gpureduce.explain("key_shared", dtype="float32", segment_ids=ids)
    assert "n = 3,000 by 7 keys: float32 added up in float32" in str(found)
    assert "Atomics in shared memory: 3,000 to " in str(found)
    assert found.as_dict()["contention"]["shared"]["atomics"] == 3000
    assert "svg" in found._repr_html_()
    both = gpureduce.explain("key_atomic", "key_warp", dtype="float32", segment_ids=ids)
    assert both.after.contention["global"].atomics < both.before.contention["global"].atomics
    assert "atomics" in str(both) and "svg" in both._repr_html_()


@pytest.mark.parametrize(
    ("match", "how"),
    [
        ("segment_atomics takes no segment_ids: leave them out, or use key_atomic", {
            "strategy": "segment_atomics", "segment_ids": [0]}),
        ("must be integers, not float64", {"strategy": "key_warp", "segment_ids": [0.5]}),
        ("must be 1 to 2.22 integers", {"strategy": "key_warp", "segment_ids": []}),
        (r"segment_ids\[0\] is 3", {
            "strategy": "key_warp", "segment_ids": [3], "num_segments": 2, "dtype": "float32"}),
        (r"call explain\('key_warp', segment_ids=ids\)", {"strategy": "key_warp"}),
        ("leave n and shape out", {"strategy": "key_warp", "segment_ids": [0], "n": 3}),
        ("leave n and shape out", {"strategy": "exact", "segment_ids": [0], "shape": (3, 4)}),
        ("num_segments needs segment_ids", {"strategy": "sequential", "num_segments": 3}),
        ("key_warp chooses its grid.*leave grid out", {
            "strategy": "key_warp", "segment_ids": [0], "grid": 2}),
        ("block must be", {"strategy": "key_warp", "segment_ids": [0], "block": 33}),
    ],
)  # fmt: skip
def test_what_is_not_explained(match, how):
    with pytest.raises((ValueError, TypeError), match=match):
        gpureduce.explain(**how)


def test_keys_are_checked_in_every_piece():
    n = arrays.PACK_ELEMENTS + 3
    values = np.zeros(n, np.float32)
    for place in (arrays.PACK_ELEMENTS - 1, arrays.PACK_ELEMENTS, n - 1):
        ids = np.full(n, 3, np.int16)
        ids[place] = -1
        with pytest.raises(ValueError, match=rf"segment_ids\[{place}\] is -1, which is out"):
            gpureduce.segment_sum(values, ids, num_segments=4, strategy="key_atomic")
        ids[place] = 2
        message = rf"segment_ids\[{place}\] is 2 after segment_ids\[{place - 1}\], which is 3"
        with pytest.raises(ValueError, match=message):
            gpureduce.segment_sum(values, ids, num_segments=4, strategy="key_sorted")
