"""Ids and offsets of sums by segment: checked on the emulated device, as on processors."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import broken_off_after
from producers import ByInterface
from segment_calls import assert_same, by_host, by_kernels, in_place, on_device


@pytest.mark.parametrize("place", [0, 1, 4000, 69_999])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_an_id_out_of_range_is_named_and_nothing_written(place, is_sorted):
    n = 70_000
    ids = np.arange(n) % 50 if not is_sorted else np.sort(np.arange(n) % 50)
    values = np.ones(n, np.float32)
    for wrong in (-3, 50, 2**62):
        bad = ids.copy()
        bad[place] = wrong
        into = np.full(50, 7, np.float32)
        message = rf"segment_ids\[{place}\] is {wrong}, which is out of range: "
        with pytest.raises(ValueError, match=message):
            by_kernels(values, bad, out=into)
        with pytest.raises(ValueError, match=message):
            by_kernels(on_device(values), on_device(bad), out=on_device(into))
        silent = on_device(into)
        assert by_kernels(on_device(values), on_device(bad), out=silent, check=False) is silent
        assert (into == 7).all()


def test_offsets_that_are_wrong():
    values, out = np.ones(9, np.float32), np.full(3, 7, np.float32)
    for offsets, message in [
        ([0, 5, 4, 9], r"offsets must not decrease: offsets\[1\] is 5 and offsets\[2\] is 4"),
        ([1, 4, 5, 9], r"from 0 to the number of rows, 9, but offsets\[0\] is 1"),
        ([0, 4, 5, 8], r"from 0 to the number of rows, 9, but offsets\[3\] is 8"),
        ([0, 4, -5, 9], r"from 0 to the number of rows, 9, but offsets\[2\] is -5"),
    ]:
        numbers = on_device(np.array(offsets))
        with pytest.raises(ValueError, match=message):
            by_kernels(on_device(values), offsets=numbers, out=on_device(out))
        by_kernels(on_device(values), offsets=numbers, out=on_device(out), check=False)
        assert (out == 7).all()
    with pytest.raises(ValueError, match="3 offsets are for 2 segments, not for num_segments=4"):
        in_place(values, offsets=np.array([0, 1, 9]), num_segments=4)
    with pytest.raises(ValueError, match="offsets must have one number more"):
        in_place(values, offsets=np.array([], np.int64))


def test_ids_that_are_not_sorted_though_said_to_be():
    ids = np.array([0, 2, 1])
    message = r"sorted=True, but segment_ids\[2\] is 1 and segment_ids\[1\] is 2"
    for call in (by_kernels, in_place, by_host):
        with pytest.raises(ValueError, match=message):
            call(np.ones(3), ids, sorted=True)


def test_the_largest_of_many_repeated_ids_is_broken_off():
    ids = np.broadcast_to(np.zeros(1, np.int32), (2**44,))
    values = ByInterface(np.broadcast_to(np.float32(1), ids.shape))
    seconds = broken_off_after(
        0.3, lambda: gpureduce.segment_sum(values, ByInterface(ids), device="emulator")
    )
    assert seconds is not None and seconds < 5


def test_the_check_of_many_repeated_ids_without_sums_is_broken_off():
    ids = np.broadcast_to(np.zeros(1, np.int32), (2**44,))
    values = np.broadcast_to(np.empty((1, 0)), (2**44, 0))
    for call in (by_kernels, in_place):
        seconds = broken_off_after(0.3, lambda call=call: call(values, ids, num_segments=3))
        assert seconds is not None and seconds < 5


def test_the_largest_id_is_found_in_every_piece():
    ids = np.zeros(2**23 + 5, np.int8)
    for place in (2**23 - 1, 2**23, 2**23 + 4):
        ids[:] = 0
        ids[place] = 9
        found = gpureduce.core.devices.emulator().describe_index(
            ByInterface(ids), "segment_ids", 0, 1, len(ids)
        )
        assert found == (len(ids), 9)


def test_ids_of_another_number_than_rows_are_refused_before_they_are_searched():
    ids = np.broadcast_to(np.int8(1), 2**40)  # which takes hours to search
    for n in (0, 3):
        for values in (np.ones(n), np.ones((n, 2)), np.empty((n, 0))):
            with pytest.raises(ValueError, match=rf"{2**40} segment_ids for {n} rows"):
                in_place(values, ids)


@pytest.mark.parametrize("call", [by_host, by_kernels, in_place])
def test_ids_and_offsets_without_sums_are_checked(call):
    """Of rows without columns, and of no rows."""
    n = 70_000
    ids = np.arange(n) % 50
    for count, values in ((50, np.empty((n, 0))), (60, np.empty((n, 0), np.int8))):
        assert call(values, ids, num_segments=count).shape == (count, 0)
        assert call(values, np.sort(ids), num_segments=count, sorted=True).shape == (count, 0)
        with pytest.raises(ValueError, match=r"sorted=True, but segment_ids\[50\] is 0"):
            call(values, ids, num_segments=count, sorted=True)
        for place, wrong in ((0, count), (4000, -1), (n - 1, 2**62)):
            bad = ids.copy()
            bad[place] = wrong
            message = rf"segment_ids\[{place}\] is {wrong}, which is out of range"
            with pytest.raises(ValueError, match=message):
                call(values, bad, num_segments=count)
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is 0, which is out of range"):
        call(np.empty((3, 0)), np.zeros(3, int), num_segments=0)
    values = np.empty((9, 0))
    assert call(values, offsets=np.array([0, 4, 9])).shape == (2, 0)
    with pytest.raises(ValueError, match=r"must not decrease: offsets\[1\] is 5 and offsets\[2\]"):
        call(values, offsets=np.array([0, 5, 4, 9]))
    for values in (np.empty((0, 0)), np.empty(0), np.empty((0, 2))):
        assert call(values, offsets=np.array([0])).shape == (0, *values.shape[1:])
        for offsets in ([5], [0, 5]):
            with pytest.raises(ValueError, match="offsets must go from 0 to the number of rows, 0"):
                call(values, offsets=np.array(offsets))
        assert call(values, np.empty(0, int), num_segments=3).shape == (3, *values.shape[1:])


def test_ids_without_sums_are_not_checked_where_nothing_waits():
    ids = np.array([7, -2])
    found = in_place(np.empty((2, 0)), ids, num_segments=3, check=False)
    assert found.shape == (3, 0)
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is 7"):
        gpureduce.segment_digits(
            on_device(np.empty((2, 0))), on_device(ids), num_segments=3, device="emulator"
        )


def test_wrong_ids_without_sums_are_found_in_every_piece():
    ids = np.zeros(2**23 + 5, np.int8)
    values = np.broadcast_to(np.empty((1, 0)), (len(ids), 0))
    for place in (2**23 - 1, 2**23, 2**23 + 4):
        ids[:] = 0
        ids[place] = 9
        with pytest.raises(ValueError, match=rf"segment_ids\[{place}\] is 9"):
            in_place(values, ids, num_segments=9)


def test_the_number_of_segments_is_found():
    values = np.arange(5.0)
    for ids in (np.array([3, 0, 0, 3, 1]), np.array([3, 0, 0, 3, 1], np.uint8)):
        assert_same(in_place(values, ids), by_host(values, ids))
    with pytest.raises(ValueError, match=r"segment_ids\[1\] is -1.*not negative"):
        in_place(values, np.array([3, -1, 0, 3, 1]))
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is -3.*not negative"):
        in_place(values, np.array([-3, -1, -2, -3, -1]))
    assert in_place(np.ones(0), np.zeros(0, np.int64)).shape == (0,)
