"""Sums by segment: by processors and by kernels, held against sums of each segment alone."""

from __future__ import annotations

import itertools
import os

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce
from cases import numpy_dtype
from exact_cases import FLOATS, FORMATS, bits_of, expected_bits, expected_rows, short_sums
from segment_calls import (
    COMPLEX,
    INDEXES,
    INTEGERS,
    assert_same,
    by_host,
    by_kernels,
    each_place,
    in_order,
    in_place,
    random_ids,
    random_values,
    segment_by_segment,
)

EXAMPLES = int(os.environ.get("GPUREDUCE_SEGMENT_EXAMPLES", "20"))
KINDS = ["any", "one", "half", "zipf", "few", "sorted", "falling", "runs"]


def laid_out(rng, array, *, swapped):
    """The same array with other strides or another byte order."""
    how = rng.integers(0, 5)
    if how == 1:
        return np.repeat(array, 2, axis=0)[::2]
    if how == 2:
        return array[::-1].copy()[::-1]
    if how == 3:
        return np.asfortranarray(array)
    if how == 4 and array.dtype.name != "bfloat16" and swapped:
        return array.astype(array.dtype.newbyteorder())
    return array


@each_place
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([*INTEGERS, *FLOATS, *FLOATS, *COMPLEX]),
    n=st.sampled_from([0, 1, 255, 257, 3000, 9000]),
    count=st.sampled_from([1, 2, 7, 100, 127, 5000]),
    columns=st.sampled_from([None, None, 1, 2, 3, 9, 33, 300]),
    kind=st.sampled_from(KINDS),
    index=st.sampled_from([*INDEXES, ">i2", ">u8"]),
)
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_sums_are_those_of_each_segment(call, seed, dtype, n, count, columns, kind, index):
    rng, on_device = np.random.default_rng(seed), call is in_place
    index = index[1:] if on_device and index[0] == ">" else index  # no producer has such elements
    n = n if columns is None else n // columns
    count = min(count, 100) if np.dtype(index).itemsize == 1 else count
    values = random_values(rng, dtype, n if columns is None else (n, columns))
    ids = random_ids(rng, kind, n, count).astype(index)
    how = {"initial": int(rng.integers(0, 9))} if rng.random() < 0.3 else {}
    native = ids.astype(ids.dtype.newbyteorder("="))
    dtype_of_sums = gpureduce.sum(values[:0]).value.dtype
    want = np.full((count, *values.shape[1:]), how.get("initial", 0), dtype_of_sums)
    for k in np.unique(native):
        want[k] = gpureduce.sum(values[native == k], "auto", axis=0, **how).value
    known = rng.choice([None, bool(np.all(native[1:] >= native[:-1]))])
    given_ = [laid_out(rng, one, swapped=not on_device) for one in (values, ids)]
    assert_same(call(*given_, num_segments=count, sorted=known, **how), want)
    ordered, offsets = in_order(values, native, count)
    found = call(laid_out(rng, ordered, swapped=not on_device), offsets=offsets, **how)
    assert_same(found, want)
    if dtype in INTEGERS:
        added = np.full_like(want, how.get("initial", 0))
        np.add.at(added, native.astype(np.intp), values.astype(want.dtype))
        assert_same(added, want)


@each_place
@pytest.mark.parametrize("dtype", [*FLOATS, "complex64"])
@pytest.mark.parametrize("count", [7, 700])
def test_shuffled_elements_have_one_bit_pattern(call, count, dtype):
    rng = np.random.default_rng(13)
    wide = rng.standard_normal(600) * 2.0 ** rng.integers(-12, 12, 600)
    values = (wide + 1j * wide[::-1] if dtype == "complex64" else wide).astype(numpy_dtype(dtype))
    ids = rng.integers(0, count, 600)
    first = call(values, ids, num_segments=count).tobytes()
    for i in range(100):
        order = rng.permutation(600)
        threads = ("forward", "reverse", "lockstep", "random")[i % 4] if i % 10 == 0 else "random"
        with gpureduce.emulator.schedule(threads, seed=i):
            assert call(values[order], ids[order], num_segments=count).tobytes() == first
    rename = rng.permutation(count)
    assert call(values, rename[ids], num_segments=count)[rename].tobytes() == first


@pytest.mark.parametrize(
    ("call", "count", "limits"),
    [(by_host, 6_000_000, [4096]), (by_kernels, 12_000_000, [4096, 800])],
)
def test_passes_over_ranges_of_segments_where_memory_is_short(call, count, limits):
    """Kernels take a quarter of the free memory at most, and processors 64 MiB for few values."""
    rng, n = np.random.default_rng(16), 3000
    ids = np.concatenate([rng.integers(0, count, n), [0, count - 1, count - 1, count // 2]])
    values = rng.standard_normal(ids.size) * 2.0 ** rng.integers(-30, 30, ids.size)
    values[:3] = 1e300, np.inf, 1e-300
    used = np.unique(ids)
    expected = segment_by_segment(values, np.searchsorted(used, ids), used.size)
    how, launches = {"num_segments": count}, []
    if call is by_kernels:
        how["device"] = "emulator"
    for mib in limits:
        gpureduce.free_scratch()  # what is kept would be used again
        with gpureduce.emulator.memory_limit(mib << 20):
            found = gpureduce.segment_sum(values, ids, **how)
        assert_same(found.value[used], expected)
        assert np.count_nonzero(found.value) == np.count_nonzero(expected)
        launches.append(found.timing.launches)
    assert sorted(set(launches)) == launches  # more passes, where memory is shorter
    ids[7] = count
    with pytest.raises(ValueError, match=rf"segment_ids\[7\] is {count}"):
        call(values, ids, num_segments=count)


@pytest.mark.parametrize(
    ("call", "power"), [(by_host, 14), (by_host, 27), (by_kernels, 14), (by_kernels, 20)]
)
def test_no_digit_overflows(call, power):
    """Equal ids of the largest elements that a digit holds, and one that sets the lowest bit.

    csrc/shared/segment_sums.h proves it for kernels and any number of rows: 2^20 elements of 43
    bits stay just below 2^63. Of 57 bits a checked word overflows, and two words take its place.
    csrc/segments/pairs.c has the lemma for the processors. The ids have a stride of 0.
    """
    n, large = 1 << power, np.float32(2.0**30 - 2.0**6)
    values, ids = np.full(n, large), np.broadcast_to(np.int8(0), n)
    for bits in (63 - power, 57) if power < 27 else (63 - power,):
        smallest = 2.0 ** (30 - bits)
        values[n // 2] = smallest
        found = call(values, ids, num_segments=3, sorted=False)
        assert found.tolist() == [np.float32((n - 1) * float(large) + smallest), 0, 0]


def hard_numbers(rng, dtype, n):
    """Numbers whose sums are hard to round: ties, cancellation, subnormal numbers, inf, nan."""
    info = ml_dtypes.finfo(numpy_dtype(dtype))
    half = 2.0 ** -(info.nmant + 1)
    choice = rng.choice([0.0, -0.0, 1.0, -1.0, half, -half, half * half, float(info.tiny)], n)
    found = np.where(rng.random(n) < 0.3, rng.standard_normal(n), choice)
    found[rng.random(n) < 0.002] = rng.choice([np.inf, -np.inf, np.nan])
    return found.astype(numpy_dtype(dtype))


@each_place
@pytest.mark.parametrize("most", [3, 60, 120])
@pytest.mark.parametrize("dtype", FLOATS)
def test_segments_of_any_length_have_the_bits_of_their_own_sums(call, dtype, most):
    """Processors add up short, longer and long segments by other code."""
    rng = np.random.default_rng(most)
    lengths = rng.integers(0, most + 1, 400)
    lengths[rng.integers(0, 400, 4)] = rng.integers(180, 1200, 4)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = hard_numbers(rng, dtype, int(offsets[-1]))
    parts = [values[a:b] for a, b in itertools.pairwise(offsets)]
    for initial in (0, 0.1):
        expected = [gpureduce.sum(part, "exact", initial=initial).value for part in parts]
        found = call(values, offsets=offsets, initial=initial)
        nan = np.isnan(found)
        assert (nan == np.isnan(np.array(expected))).all()
        assert_same(found[~nan], np.array(expected, found.dtype)[~nan])


# --- processors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_as_floats_are_rounded_once(dtype):
    rng = np.random.default_rng(6)
    values, ids = random_values(rng, dtype, 900), rng.integers(0, 30, 900)
    found = by_host(values, ids, dtype="float64", initial=0.25)
    for k in range(30):
        whole = sum(int(x) for x in values[ids == k])
        assert found[k] == (4 * whole + 1) / 4  # a quotient of integers is rounded once
    as_complex = by_host(values, ids, dtype="complex128", initial=0.25 + 1j)
    assert_same(as_complex, found + 1j)
    ordered, offsets = in_order(values, ids, 30)
    for target, expected in (("float64", found), ("complex128", as_complex)):
        initial = 0.25 if target == "float64" else 0.25 + 1j
        assert_same(by_host(ordered, offsets=offsets, dtype=target, initial=initial), expected)


def test_many_equal_ids():
    """2^27 of the largest significands in one segment: no word of a sum overflows."""
    large = np.nextafter(2.0, 0)
    values, ids = np.broadcast_to(large, 2**27), np.broadcast_to(np.int8(0), 2**27)
    assert by_host(values, ids).tolist() == [large * 2.0**27]
    wide = np.broadcast_to(np.array([[large, 1e300, -large, 5e-324]]), (2**23, 4))
    expected = [large * 2.0**23, 1e300 * 2.0**23, -large * 2.0**23, 5e-324 * 2.0**23]
    assert by_host(wide, ids[: 2**23]).tolist() == [expected]
    assert by_host(np.broadcast_to(np.int64(2**62), 2**25), ids[: 2**25], dtype="f8") == 2.0**87


@pytest.mark.parametrize(
    ("dtype", "n", "gap"),
    [*(("float64", 2**23 - 65, gap) for gap in range(48, 55)),
     *(("float32", 2**20 - 65, gap) for gap in (0, *range(13, 24)))],
)  # fmt: skip
def test_numbers_as_far_apart_as_a_cell_can_hold(dtype, n, gap):
    """Cells of 128 and 64 bits: the largest numbers of their window, and rows up to its width."""
    digits = np.finfo(dtype).nmant
    values = np.full(n, (2 - 2.0**-digits) * 2.0**gap, dtype)
    values[::20] = 1 + 2.0**-digits
    small = len(values[::20])
    whole = small * (2**digits + 1) + (n - small) * ((2 ** (digits + 1) - 1) << gap)
    ids = np.broadcast_to(np.int8(0), n)
    assert by_host(values, ids, dtype="f8").tolist() == [whole / 2**digits]
    assert by_host(-values, ids, dtype="f8").tolist() == [-whole / 2**digits]
    if dtype == "float32":
        with_initial = float(np.float32((whole + 2**21) / 2**23))
        assert by_host(values, ids, initial=0.25).tolist() == [with_initial]
        rows = np.stack([values, -values, np.zeros_like(values)], axis=1)
        assert by_host(rows, ids, dtype="f8").tolist() == [[whole / 2**23, -whole / 2**23, 0]]


@pytest.mark.parametrize(
    ("dtype", "power"),
    [("float16", 12), ("bfloat16", 40), ("float32", 12), ("float32", 100), ("complex64", 40)],
)
def test_exponents_that_a_sample_does_not_show(dtype, power):
    """Few such numbers are outliers. If there are many, others than short cells add up."""
    rng = np.random.default_rng(15)
    n, count = 512 * 400, 700
    some = rng.uniform(1, 2, n)
    ids = rng.integers(0, count, n)
    step, places = n // 512, np.arange(512)
    unsampled = places * step + (places * 7919 + 1) % step
    many = (unsampled[:, None] + np.arange(20)).reshape(-1)
    many = many[(many % step != many // step * 7919 % step) & (many < n)]
    for where in (unsampled[:3], unsampled, many):
        values = some.copy()
        values[where] *= 2.0 ** (rng.integers(-1, 2, len(where)) * power)
        with np.errstate(over="ignore"):
            values = values.astype(numpy_dtype(dtype))
        values[where[0]], values[where[1]] = np.inf, np.nan
        assert_same(by_host(values, ids), segment_by_segment(values, ids, count))


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_sums_at_all_places_of_a_pair(dtype, target):
    """Zeros, powers of two and their neighbours, ties and nearly ties, of 1 to 120 bits."""
    rows = short_sums(np.random.default_rng(12), 9001, dtype)
    ids = np.repeat(np.arange(len(rows)), 4)
    found = by_host(rows.reshape(-1), ids, dtype=target)
    fmt, to = FORMATS[dtype], FORMATS[target]
    assert to.bits(found).tolist() == expected_rows(fmt, rows, target)
    initial = by_host(rows.reshape(-1), ids, dtype=target, initial=1.5)
    more = np.hstack([rows, np.full((len(rows), 1), 1.5, dtype)])
    assert to.bits(initial).tolist() == expected_rows(fmt, more, target)


def test_ties_are_broken_by_bits_far_below():
    for k in range(54, 110):
        for sign in (1, -1):
            values = [1, 2.0**-53, sign * 2.0**-k, 1 + 2.0**-52, 2.0**-53, sign * 2.0**-k]
            values = np.array(values * 2) * np.repeat([1, -1], 6)
            expected = [expected_bits(row) for row in values.reshape(4, 3)]
            found = by_host(values, np.repeat(np.arange(4), 3))
            assert FORMATS["float64"].bits(found).tolist() == expected


def test_sums_that_two_numbers_and_a_bound_cannot_prove():
    """They are added up again in digits, and nothing else is."""
    rng = np.random.default_rng(8)
    values = 10.0 ** rng.integers(-300, 300, 9000)
    ids = rng.integers(0, 300, 9000)
    for k in (3, 77, 299):
        values[ids == k] = 0
        at = np.flatnonzero(ids == k)[:4]
        values[at] = [1e300, 1.0, -1e300, 1e-300 * k]
    both = np.stack([values, -values[::-1]], axis=1)
    for some in (values, both):
        assert_same(by_host(some, ids), segment_by_segment(some, ids, 300))


# --- arguments and results -----------------------------------------------------------------------


def test_lists_empty_input_and_inferred_counts():
    assert by_host([1, 2, 3], [2, 0, 2]).tolist() == [2, 0, 4]
    assert by_host([], []).shape == (0,)
    assert by_host([], [], num_segments=2).tolist() == [0, 0]
    none = by_host(np.empty((0, 3)), [], num_segments=2, initial=1.5)
    assert none.tolist() == [[1.5] * 3] * 2
    assert by_host(np.empty((2, 0)), [1, 0]).shape == (2, 0)
    assert by_host([1.0], offsets=[0, 0, 1]).tolist() == [0.0, 1.0]
    assert by_host([1.0], [1], out=np.ones(3)).tolist() == [0.0, 1.0, 0.0]
    assert by_host([], offsets=[0]).shape == (0,)
    halves = np.array([1, 2, 3], ml_dtypes.bfloat16)
    assert by_host(halves, [0, 1, 0]).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("strategy", ["auto", "exact", "fast", "cpu", "numpy"])
def test_strategies_agree_where_nothing_is_rounded(strategy):
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 50, 4000)
    for dtype in ["int8", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"]:
        for shape in (4000, (4000, 3)):
            values = rng.integers(0, 2, shape).astype(numpy_dtype(dtype))
            expected = by_host(values, ids)
            assert_same(by_host(values, ids, strategy=strategy), expected)
            ordered, offsets = in_order(values, ids, 50)
            assert_same(by_host(ordered, offsets=offsets, strategy=strategy), expected)


@pytest.mark.parametrize("strategy", ["exact", "numpy"])
def test_initial_and_out(strategy):
    out = np.full((4, 6), 9.0)[::2, ::3]
    found = gpureduce.segment_sum(np.ones((3, 2)), [0, 0, 1], initial=2, out=out, strategy=strategy)
    assert found.value is out and out.tolist() == [[4, 4], [3, 3]]
    assert by_host([1, 2], [1, 1], initial=7, dtype="int8").tolist() == [7, 10]
    assert by_host([1e16], [0], initial=1).tolist() == [1e16]
    assert by_host([1e16, 1.0], [0, 0], initial=2**60 + 1).tolist() == [1e16 + 2**60 + 2]
    values, ids = np.array([1.0, 2.0**-60]), np.array([0, 0])
    for initial in (2.0**-53, 1e-320, 1e300, float("inf"), float("nan"), 10**300):
        expected = gpureduce.sum(values, "exact", axis=0, initial=initial).value
        assert bits_of(by_host(values, ids, initial=initial)[0]) == bits_of(expected)


def test_a_timing():
    values, ids = np.ones((10, 3), np.float32), np.zeros(10, np.int16)
    timing = gpureduce.segment_sum(values, ids).timing
    assert (timing.strategy, timing.dtype, timing.n, timing.nbytes) == ("exact", "float32", 30, 140)
    assert timing.kernel_ms <= timing.total_ms and timing.source == "perf_counter"
    assert gpureduce.segment_sum([1], [0]).timing.strategy == "cpu"
    assert gpureduce.segment_sum([1], [0], strategy="numpy").timing.backend == "numpy"
    assert gpureduce.segment_sum([1], [0], timing=False).timing is None


@pytest.mark.parametrize(
    ("error", "match", "values", "keywords"),
    [
        (TypeError, "either segment_ids or offsets, not neither", [1], {}),
        (TypeError, "not both", [1], {"segment_ids": [0], "offsets": [0, 1]}),
        (TypeError, "segment_ids must be integers, not float64", [1], {"segment_ids": [0.0]}),
        (TypeError, "segment_ids must be integers, not bool", [1], {"segment_ids": [True]}),
        (ValueError, "segment_ids must have 1 dimension, not 2", [1], {"segment_ids": [[0]]}),
        (ValueError, "values has 1 rows, but segment_ids 2 ids", [1], {"segment_ids": [0, 0]}),
        (ValueError, "1 or 2 dimensions", 1.0, {"segment_ids": [0]}),
        (ValueError, "1 or 2 dimensions", np.ones((1, 1, 1)), {"segment_ids": [0]}),
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
        (ValueError, "one number more than there are segments", [1], {"offsets": []}),
        (ValueError, "from 0 to the number of rows, 1, not from 0 to 2", [1], {"offsets": [0, 2]}),
        (ValueError, "not from -1 to 1", [1], {"offsets": [-1, 1]}),
        (ValueError, r"offsets\[1\] is 2 and offsets\[2\] is 1", [1, 2], {"offsets": [0, 2, 1, 2]}),
        (ValueError, "3 offsets define 2 segments, but num_segments=3", [1],
         {"offsets": [0, 1, 1], "num_segments": 3}),
        (TypeError, "offsets must be integers", [1], {"offsets": [0.0, 1.0]}),
        (TypeError, "cannot be summed", ["a"], {"segment_ids": [0]}),
        (TypeError, "masked", np.ma.masked_array([1.0], [True]), {"segment_ids": [0]}),
        (TypeError, "out must be a NumPy array", [1.0], {"segment_ids": [0], "out": [0.0]}),
        (TypeError, "out must have the dtype", [1.0],
         {"segment_ids": [0], "out": np.zeros(1, np.float32)}),
        (ValueError, "out must have the shape", [1.0],
         {"segment_ids": [0], "out": np.zeros((1, 1))}),
        (ValueError, "read-only", [1.0], {"segment_ids": [0], "out": np.broadcast_to(0.0, 1)}),
        (ValueError, "initial must be from -128", [1],
         {"segment_ids": [0], "dtype": "int8", "initial": 128}),
        (ValueError, "no strategy 'nothing'; there are auto, exact, fast, cpu, "
         "numpy, key_atomic", [1.0], {"segment_ids": [0], "strategy": "nothing"}),
        (ValueError, "segment_packs is an internal step of segment_sum: leave", [1.0],
         {"segment_ids": [0], "strategy": "segment_packs"}),
        (ValueError, "warp_shfl cannot make segment sums: use one of auto, ", [1.0],
         {"segment_ids": [0], "strategy": "warp_shfl"}),
        (ValueError, "numpy runs on the CPU", [1.0],
         {"segment_ids": [0], "strategy": "numpy", "device": "emulator"}),
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
    assert by_host([1.5, 2.5], [0, 0]).tolist() == [4.0]


def test_subclasses_and_files(tmp_path):
    values = np.arange(6.0)
    np.save(tmp_path / "v.npy", values)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    out = np.zeros(2).view(type("Sub", (np.ndarray,), {}))
    ids = [0, 1, 0, 1, 0, 1]
    assert gpureduce.segment_sum(mapped, ids, out=out).value is out and out.tolist() == [6, 9]
    unaligned = np.frombuffer(b"\0" + values.tobytes(), np.float64, offset=1)
    assert by_host(unaligned, np.frombuffer(b"\0" + bytes(48), np.int64, offset=1)) == [15]


def test_arguments_that_change_the_array():
    class Count:
        def __index__(self):
            values.shape = (2, 3)
            ids.shape = (1, 6)
            return 4

    values, ids = np.arange(6.0), np.zeros(6, np.int64)
    assert by_host(values, ids.copy(), num_segments=Count()).tolist() == [15, 0, 0, 0]
