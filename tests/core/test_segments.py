"""Sums by segment of host arrays, held against sums of each segment by an oracle of integers."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce
from cases import broken_off_after, numpy_dtype
from exact_cases import FORMATS, GENERATORS, bits_of, expected_bits, expected_rows
from fuzz_groups import fuzz

INTEGERS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
IDS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ">i2", ">u8"]
EXAMPLES = int(os.environ.get("GPUREDUCE_SEGMENT_EXAMPLES", "60"))

seeds = st.integers(0, 2**32 - 1)


def segment_sum(values, *arguments, **keywords):
    return gpureduce.segment_sum(values, *arguments, **keywords).value


def random_values(rng, dtype, shape):
    kind = numpy_dtype(dtype)
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
    if kind.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    wide = 8 if rng.random() < 0.5 else FORMATS[dtype].bias - 20
    exponents = rng.integers(-wide, wide, shape) if wide > 8 else rng.integers(-8, 8, shape)
    values = (rng.standard_normal(shape) * 2.0 ** (exponents / 2)).astype(kind)
    if rng.random() < 0.3 and values.size:
        some = rng.integers(0, values.size, 3)
        values.reshape(-1)[some] = rng.choice([np.nan, np.inf, -np.inf, -0.0], 3)
    return values


def random_ids(rng, n, count, dtype):
    """Uniform, skewed, all the same, sorted, or of a few segments."""
    count = min(count, 127)
    how = rng.integers(0, 5)
    ids = rng.integers(0, count, n)
    if how == 1:
        ids = np.minimum(rng.zipf(1.3, n) - 1, count - 1)
    elif how == 2:
        ids[:] = rng.integers(0, count)
    elif how == 3:
        ids.sort()
    elif how == 4:
        ids = ids // 3
    return ids.astype(dtype)


def laid_out(rng, array):
    """The same array with other strides and another byte order."""
    how = rng.integers(0, 5)
    if how == 1:
        return np.repeat(array, 2, axis=0)[::2]
    if how == 2:
        return array[::-1].copy()[::-1]
    if how == 3:
        return np.asfortranarray(array)
    if how == 4 and array.dtype.name != "bfloat16":
        return array.astype(array.dtype.newbyteorder())
    return array


def segment_by_segment(values, ids, count, **keywords):
    """The same by a sum for each segment and column."""
    rows = [gpureduce.sum(values[ids == k], "auto", axis=0, **keywords).value for k in range(count)]
    return np.array(rows).reshape((count, *values.shape[1:]))


def assert_same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes(), (found, expected)


# --- the sums ------------------------------------------------------------------------------------


@given(seed=seeds, n=st.integers(0, 3000), count=st.integers(1, 127), d=st.integers(0, 9))
@settings(max_examples=EXAMPLES, deadline=None)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX])
def test_sums_are_those_of_each_segment(dtype, seed, n, count, d):
    rng = np.random.default_rng(seed)
    values = random_values(rng, dtype, (n, d) if rng.random() < 0.4 else n)
    ids = random_ids(rng, n, count, IDS[rng.integers(len(IDS))])
    found = segment_sum(laid_out(rng, values), laid_out(rng, ids), num_segments=count)
    assert_same(found, segment_by_segment(values, ids, count))
    if dtype in INTEGERS:
        expected = np.zeros(found.shape, found.dtype)
        np.add.at(expected, ids.astype(np.intp), values.astype(found.dtype))
        assert_same(found, expected)


@given(seed=seeds, count=st.integers(0, 60), d=st.integers(1, 700))
@settings(max_examples=EXAMPLES, deadline=None)
@pytest.mark.parametrize("dtype", ["int16", "uint64", *FLOATS, "complex64"])
def test_offsets_are_ids_in_order(dtype, seed, count, d):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 40, count) * (rng.random(count) < 0.8)
    if count and d < 9:
        lengths[rng.integers(count)] = rng.integers(0, 9000)  # a long one
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(IDS[rng.integers(2, 8)])
    n = int(offsets[-1])
    values = random_values(rng, dtype, (n, d) if rng.random() < 0.5 else n)
    ids = np.repeat(np.arange(count), lengths)
    expected = segment_sum(values, ids, num_segments=count)
    assert_same(segment_sum(laid_out(rng, values), offsets=laid_out(rng, offsets)), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("generate", GENERATORS, ids=lambda g: g.__name__)
def test_hard_segments_are_rounded_once(generate, dtype):
    fmt, rng = FORMATS[dtype], np.random.default_rng(3)
    rows = generate(fmt, rng, 200, 11)
    order = rng.permutation(rows.size)
    ids = np.repeat(np.arange(200), 11)[order]
    found = segment_sum(rows.reshape(-1)[order], ids)
    assert fmt.bits(found).tolist() == expected_rows(fmt, rows)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_few_fuzzed_segments(dtype):
    """tools/fuzz_groups.py tries as many as you like."""
    assert fuzz("segments", dtype, 1500, 11) == (1500, 0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("target", FLOATS)
def test_other_results_are_rounded_once(dtype, target):
    fmt, rng = FORMATS[dtype], np.random.default_rng(5)
    for generate in GENERATORS:
        rows = generate(fmt, rng, 20, 9)
        kind = numpy_dtype(target)
        found = segment_sum(rows.reshape(-1), np.repeat(np.arange(20), 9), dtype=kind)
        expected = [expected_bits(row, kind.name) for row in rows]
        assert FORMATS[kind.name].bits(found).tolist() == expected


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_as_floats_are_rounded_once(dtype):
    rng = np.random.default_rng(6)
    values, ids = random_values(rng, dtype, 900), rng.integers(0, 30, 900)
    found = segment_sum(values, ids, dtype="float64", initial=0.25)
    for k in range(30):
        whole = sum(int(x) for x in values[ids == k])
        assert found[k] == (4 * whole + 1) / 4  # a quotient of integers is rounded once
    as_complex = segment_sum(values, ids, dtype="complex128", initial=0.25 + 1j)
    assert_same(as_complex, found + 1j)
    offsets, order = np.searchsorted(np.sort(ids), np.arange(31)), np.argsort(ids)
    for target, expected in (("float64", found), ("complex128", as_complex)):
        initial = 0.25 if target == "float64" else 0.25 + 1j
        some = segment_sum(values[order], offsets=offsets, dtype=target, initial=initial)
        assert_same(some, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_order_of_elements_and_segments_changes_no_bit(dtype):
    rng = np.random.default_rng(7)
    values = (rng.standard_normal(20_000) * 2.0 ** rng.integers(-12, 12, 20_000)).astype(
        numpy_dtype(dtype)
    )
    ids = rng.integers(0, 500, values.size)
    first = segment_sum(values, ids).tobytes()
    for _ in range(50):
        order = rng.permutation(values.size)
        assert segment_sum(values[order], ids[order]).tobytes() == first
    rename = rng.permutation(500)
    assert segment_sum(values, rename[ids])[rename].tobytes() == first


def test_many_equal_ids():
    """2^27 of the largest significands in one segment: no word of a sum overflows."""
    large = np.nextafter(2.0, 0)
    values, ids = np.broadcast_to(large, 2**27), np.broadcast_to(np.int8(0), 2**27)
    assert segment_sum(values, ids).tolist() == [large * 2.0**27]
    wide = np.broadcast_to(np.array([[large, 1e300, -large, 5e-324]]), (2**23, 4))
    expected = [large * 2.0**23, 1e300 * 2.0**23, -large * 2.0**23, 5e-324 * 2.0**23]
    assert segment_sum(wide, ids[: 2**23]).tolist() == [expected]
    assert segment_sum(np.broadcast_to(np.int64(2**62), 2**25), ids[: 2**25], dtype="f8") == 2.0**87


@pytest.mark.parametrize("gap", range(48, 55))
def test_numbers_as_far_apart_as_a_pair_can_hold(gap):
    """As many rows of the largest numbers of the window as its width allows, and one more."""
    n = 2**23 - 65
    values = np.full(n, (2 - 2.0**-52) * 2.0**gap)
    values[::20] = 1 + 2.0**-52
    small = len(values[::20])
    whole = small * (2**52 + 1) + (n - small) * ((2**53 - 1) << gap)
    ids = np.broadcast_to(np.int8(0), n)
    assert segment_sum(values, ids).tolist() == [whole / 2**52]
    assert segment_sum(-values, ids).tolist() == [-whole / 2**52]


def test_ties_are_broken_by_bits_far_below():
    for k in range(54, 110):
        for sign in (1, -1):
            values = [1, 2.0**-53, sign * 2.0**-k, 1 + 2.0**-52, 2.0**-53, sign * 2.0**-k]
            values = np.array(values * 2) * np.repeat([1, -1], 6)
            ids = np.repeat(np.arange(4), 3)
            expected = [expected_bits(row) for row in values.reshape(4, 3)]
            assert FORMATS["float64"].bits(segment_sum(values, ids)).tolist() == expected


@pytest.mark.parametrize("target", ["float16", "float32"])
def test_results_about_half_of_the_least_number(target):
    least = 2.0 ** FORMATS[target].least
    shares = np.array([0.25, 0.4999, 0.5, 0.5001, 0.75, 0.9999, 1, 1.4999, 1.5, 1.5001, 2.5])
    values = np.concatenate([least * shares, -least * shares])
    found = segment_sum(values, np.arange(values.size), dtype=target)
    expected = [expected_bits(values[i : i + 1], target) for i in range(values.size)]
    assert FORMATS[target].bits(found).tolist() == expected


def test_sums_that_two_numbers_and_a_bound_cannot_prove():
    """They are added up again in digits, and nothing else is."""
    rng = np.random.default_rng(8)
    values = 10.0 ** rng.integers(-300, 300, 9000)
    ids = rng.integers(0, 300, 9000)
    for k in (3, 77, 299):
        values[ids == k] = 0
        at = np.flatnonzero(ids == k)[:4]
        values[at] = [1e300, 1.0, -1e300, 1e-300 * k]
    assert_same(segment_sum(values, ids), segment_by_segment(values, ids, 300))
    both = np.stack([values, -values[::-1]], axis=1)
    assert_same(segment_sum(both, ids), segment_by_segment(both, ids, 300))


def test_passes_over_ranges_of_segments():
    """Cells of more segments than fit into 64 MiB: outliers and all."""
    rng = np.random.default_rng(9)
    count, n = 6_000_000, 5000
    ids = np.concatenate([rng.integers(0, count, n), [0, count - 1, count - 1]])
    values = np.concatenate([rng.standard_normal(n), [1e300, np.inf, 1e-300]])
    found = segment_sum(values, ids, num_segments=count)
    used = np.unique(ids)
    compact = segment_sum(values, np.searchsorted(used, ids))
    assert_same(found[used], compact)
    assert np.count_nonzero(found) == np.count_nonzero(compact)
    for bad in (n, 2):
        ids[bad] = count
        with pytest.raises(ValueError, match=rf"segment_ids\[{bad}\] is {count}"):
            segment_sum(values, ids, num_segments=count)


# --- arguments and results -----------------------------------------------------------------------


def test_lists_empty_input_and_inferred_counts():
    assert segment_sum([1, 2, 3], [2, 0, 2]).tolist() == [2, 0, 4]
    assert segment_sum([], []).shape == (0,)
    assert segment_sum([], [], num_segments=2).tolist() == [0, 0]
    assert (
        segment_sum(np.empty((0, 3)), [], num_segments=2, initial=1.5).tolist() == [[1.5] * 3] * 2
    )
    assert segment_sum(np.empty((2, 0)), [1, 0]).shape == (2, 0)
    assert segment_sum([1.0], offsets=[0, 0, 1]).tolist() == [0.0, 1.0]
    assert segment_sum([1.0], [1], out=np.ones(3)).tolist() == [0.0, 1.0, 0.0]
    assert segment_sum([], offsets=[0]).shape == (0,)


@pytest.mark.parametrize("strategy", ["auto", "exact", "fast", "cpu", "numpy"])
def test_strategies_agree_where_nothing_is_rounded(strategy):
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 50, 4000)
    offsets = np.searchsorted(np.sort(ids), np.arange(51))
    for dtype in ["int8", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"]:
        for shape in (4000, (4000, 3)):
            values = rng.integers(0, 2, shape).astype(numpy_dtype(dtype))
            expected = segment_sum(values, ids)
            assert_same(segment_sum(values, ids, strategy=strategy), expected)
            some = segment_sum(values[np.argsort(ids, kind="stable")], offsets=offsets,
                               strategy=strategy)  # fmt: skip
            assert_same(some, expected)


@pytest.mark.parametrize("strategy", ["exact", "numpy"])
def test_initial_and_out(strategy):
    out = np.full((4, 6), 9.0)[::2, ::3]
    found = gpureduce.segment_sum(np.ones((3, 2)), [0, 0, 1], initial=2, out=out, strategy=strategy)
    assert found.value is out and out.tolist() == [[4, 4], [3, 3]]
    assert segment_sum([1, 2], [1, 1], initial=7, dtype="int8").tolist() == [7, 10]
    assert segment_sum([1e16], [0], initial=1).tolist() == [1e16]
    assert segment_sum([1e16, 1.0], [0, 0], initial=2**60 + 1).tolist() == [1e16 + 2**60 + 2]


def test_an_initial_number_is_rounded_with_the_sum():
    values, ids = np.array([1.0, 2.0**-60]), np.array([0, 0])
    for initial in (2.0**-53, 1e-320, 1e300, float("inf"), float("nan"), 10**300):
        expected = gpureduce.sum(values, "exact", axis=0, initial=initial).value
        assert bits_of(segment_sum(values, ids, initial=initial)[0]) == bits_of(expected)


def test_a_timing():
    values, ids = np.ones((10, 3), np.float32), np.zeros(10, np.int16)
    timing = gpureduce.segment_sum(values, ids).timing
    assert (timing.strategy, timing.dtype, timing.n, timing.nbytes) == ("exact", "float32", 30, 140)
    assert timing.kernel_ms <= timing.total_ms and timing.source == "perf_counter"
    assert gpureduce.segment_sum([1], [0]).timing.strategy == "cpu"
    assert gpureduce.segment_sum([1], [0], strategy="numpy").timing.backend == "numpy"
    assert gpureduce.segment_sum([1], [0], timing=False).timing is None


@pytest.mark.parametrize("strategy", ["exact", "numpy"])
@pytest.mark.parametrize("n", [5, 200_000])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "uint64"])
def test_the_first_id_out_of_range_is_named_and_nothing_is_written(dtype, n, strategy):
    values, out = np.ones(n), np.full(100, 7.0)
    good = np.zeros(n, dtype)
    for places in ((n // 2, n - 1), (0,), (n - 1,), (3, 4)):
        for wrong in (100, -1):
            if wrong < 0 and dtype.startswith("u"):
                wrong = int(np.iinfo(dtype).max)
            ids = good.copy()
            ids[list(places)] = wrong
            allowed = "ids are not negative" if wrong < 0 else "num_segments=100 .*from 0 to 99"
            with pytest.raises(
                ValueError, match=rf"segment_ids\[{places[0]}\] is {wrong}, .*{allowed}"
            ):
                segment_sum(values, ids, num_segments=100, out=out, strategy=strategy)
    assert np.all(out == 7)
    assert segment_sum(values, good, num_segments=100, strategy=strategy)[0] == n
    with pytest.raises(ValueError, match=r"num_segments=0 allows no ids"):
        segment_sum(values, good, num_segments=0)


@pytest.mark.parametrize(
    ("error", "match", "values", "keywords"),
    [
        (TypeError, "either segment_ids or offsets, not neither", [1], {}),
        (TypeError, "not both", [1], {"segment_ids": [0], "offsets": [0, 1]}),
        (TypeError, "segment_ids must be integers, not float64", [1], {"segment_ids": [0.0]}),
        (TypeError, "segment_ids must be integers, not bool", [1], {"segment_ids": [True]}),
        (ValueError, "segment_ids must have 1 dimension, not 2", [1], {"segment_ids": [[0]]}),
        (ValueError, "2 segment_ids for 1 rows of values", [1], {"segment_ids": [0, 0]}),
        (ValueError, "1 or 2 dimensions", 1.0, {"segment_ids": [0]}),
        (ValueError, "1 or 2 dimensions", np.ones((1, 1, 1)), {"segment_ids": [0]}),
        (ValueError, r"segment_ids\[0\] is -1, .*: ids are not negative", [1],
         {"segment_ids": [-1]}),
        (ValueError, "num_segments must be from 0", [1], {"segment_ids": [0], "num_segments": -1}),
        (TypeError, "num_segments must be a whole", [1], {"segment_ids": [0], "num_segments": 1.5}),
        (MemoryError, "the largest id, 4611686018427387904: number the segments from 0 on", [1],
         {"segment_ids": [2**62]}),
        (MemoryError, "the largest id, 9223372036854775808:", [1],
         {"segment_ids": np.array([2**63], np.uint64)}),
        (MemoryError, "no memory for the sums of num_segments=4611686018427387904", [1],
         {"segment_ids": [0], "num_segments": 2**62}),
        (ValueError, r"segment_ids\[0\] is 18446744073709551615|no memory", [1],
         {"segment_ids": np.array([2**64 - 1], np.uint64), "num_segments": 5}),
        (MemoryError, "no memory", [1], {"segment_ids": [0], "num_segments": 2**62}),
        (ValueError, "one number more than there are segments", [1], {"offsets": []}),
        (ValueError, "from 0 to the number of rows, 1, not from 0 to 2", [1], {"offsets": [0, 2]}),
        (ValueError, "not from -1 to 1", [1], {"offsets": [-1, 1]}),
        (ValueError, r"offsets\[1\] is 2 and offsets\[2\] is 1", [1, 2], {"offsets": [0, 2, 1, 2]}),
        (ValueError, "3 offsets are for 2 segments, not for num_segments=3", [1],
         {"offsets": [0, 1, 1], "num_segments": 3}),
        (TypeError, "offsets must be integers", [1], {"offsets": [0.0, 1.0]}),
        (TypeError, "cannot be summed", ["a"], {"segment_ids": [0]}),
        (TypeError, "would lose part", [1.0], {"segment_ids": [0], "dtype": "int64"}),
        (TypeError, "out must be a NumPy array", [1.0], {"segment_ids": [0], "out": [0.0]}),
        (TypeError, "out must have the dtype", [1.0],
         {"segment_ids": [0], "out": np.zeros(1, np.float32)}),
        (ValueError, "out must have the shape", [1.0],
         {"segment_ids": [0], "out": np.zeros((1, 1))}),
        (TypeError, "initial must be", [1.0], {"segment_ids": [0], "initial": "1"}),
        (ValueError, "initial must be from -128", [1],
         {"segment_ids": [0], "dtype": "int8", "initial": 128}),
        (ValueError, "no strategy 'nothing'; there are auto, exact, fast, cpu, "
         "numpy, key_atomic", [1.0], {"segment_ids": [0], "strategy": "nothing"}),
        (ValueError, "device must be None, 'cpu', 'cuda', .*not 'gpu'", [1.0],
         {"segment_ids": [0], "device": "gpu"}),
        (ValueError, "segment_packs is a step that segment_sum takes by itself: name no", [1.0],
         {"segment_ids": [0], "strategy": "segment_packs"}),
        (ValueError, "warp_shfl makes no sums by segment; auto, exact, fast, cpu, numpy, ", [1.0],
         {"segment_ids": [0], "strategy": "warp_shfl"}),
        (ValueError, "numpy runs on the CPU", [1.0],
         {"segment_ids": [0], "strategy": "numpy", "device": "emulator"}),
        (ValueError, r"sorted=True, but segment_ids\[2\] is 0 and segment_ids\[1\] is 1",
         [1.0, 2.0, 3.0], {"segment_ids": [0, 1, 0], "sorted": True}),
        (TypeError, "sorted must be True or False, not 'yes'", [1.0],
         {"segment_ids": [0], "sorted": "yes"}),
        (TypeError, "check must be True or False, not 'no'", [1.0],
         {"segment_ids": [0], "check": "no"}),
        (ValueError, "stream is for arrays on a GPU", [1.0], {"segment_ids": [0], "stream": 1}),
    ],
)  # fmt: skip
def test_errors(error, match, values, keywords):
    with pytest.raises(error, match=match):
        gpureduce.segment_sum(values, **keywords)
    assert segment_sum([1.5, 2.5], [0, 0]).tolist() == [4.0]


def test_out_may_not_overlap_values_or_ids():
    values, ids = np.zeros(8), np.zeros(8, np.int64)
    for out, name in ((values[:4], "the array"), (ids[:4].view(np.float64), "segment_ids")):
        with pytest.raises(ValueError, match=f"out overlaps {name}"):
            segment_sum(values, ids, num_segments=4, out=out)
    readonly = np.zeros(1)
    readonly.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        segment_sum(values, ids, out=readonly)


def test_subclasses_and_files(tmp_path):
    values = np.arange(6.0)
    np.save(tmp_path / "v.npy", values)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    out = np.zeros(2).view(type("Sub", (np.ndarray,), {}))
    ids = [0, 1, 0, 1, 0, 1]
    assert gpureduce.segment_sum(mapped, ids, out=out).value is out and out.tolist() == [6, 9]
    with pytest.raises(TypeError, match="masked"):
        segment_sum(np.ma.masked_array(values, values > 3), ids)
    unaligned = np.frombuffer(b"\0" + values.tobytes(), np.float64, offset=1)
    assert segment_sum(unaligned, np.frombuffer(b"\0" + bytes(48), np.int64, offset=1)) == [15]


def test_arguments_that_change_the_array():
    class Count:
        def __index__(self):
            values.shape = (2, 3)
            ids.shape = (1, 6)
            return 4

    values, ids = np.arange(6.0), np.zeros(6, np.int64)
    assert segment_sum(values, ids.copy(), num_segments=Count()).tolist() == [15, 0, 0, 0]


@pytest.mark.parametrize("strategy", ["auto", "key_atomic", "key_sorted"])
def test_checks_of_many_repeated_ids_are_broken_off_and_other_threads_run(strategy):
    n = 2**34 if strategy == "auto" else 2**31
    ids = np.broadcast_to(np.int8(0), (n,))
    values = np.empty((1, 0)) if strategy == "auto" else np.zeros((), np.float32)
    values = np.broadcast_to(values, (n, *values.shape[1:]))
    turns, ended = [], threading.Event()

    def turn():
        while not ended.wait(0.05):
            turns.append(time.monotonic())

    thread = threading.Thread(target=turn)
    thread.start()
    seconds = broken_off_after(
        0.5, lambda: gpureduce.segment_sum(values, ids, num_segments=1, strategy=strategy)
    )
    ended.set()
    thread.join()
    # With sanitizers, and another process beside it, the time until the next look takes longer.
    assert seconds is not None and seconds < (12 if gpureduce.build_info()["sanitize"] else 3)
    assert len(turns) > 1
