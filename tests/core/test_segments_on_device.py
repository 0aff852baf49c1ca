"""Sums by segment by kernels, on the emulator: of host arrays, and of arrays on the device."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from axis_cases import random_array
from cases import numpy_dtype, run_python
from exact_cases import FLOATS, FORMATS, expected_rows
from producers import ByInterface, on_device
from segment_calls import (
    assert_same,
    by_host,
    by_kernels,
    in_order,
    in_place,
    random_ids,
)

SAMPLED = 1 << 21  # elements, of which every other part of 32 packs is in the sample


def as_by_processors(values, ids=None, **how):
    """Adds up by kernels what processors give the same bits of. Returns the timing."""
    found = gpureduce.segment_sum(values, ids, device="emulator", **how)
    assert_same(found.value, by_host(values, ids, **how))
    return found.timing


def numbers(rng, dtype, shape):
    found = rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)
    return found.astype(numpy_dtype(dtype))


@pytest.mark.parametrize(
    ("dtype", "count", "again"),
    [("float32", 3, True), ("float64", 4000, True), ("float32", 4000, False)],
)
def test_a_checked_word_that_overflows_is_added_up_again(dtype, count, again):
    """53 bits of values and 2^11 equal signs: more than 63 bits, which no sample shows.

    Words that overlap are not checked: float32 in many segments, whose sums no block keeps.
    """
    n = 1 << 12
    values = np.full(n, 2.0**29 - 2.0**5, dtype)
    values[0] = 2.0**-23
    ids = np.zeros(n, np.int64)
    ids[-1] = 1
    want = by_host(values, ids, num_segments=count)
    found = gpureduce.segment_sum(values, ids, num_segments=count, device="emulator")
    assert_same(found.value, want)
    spread = np.arange(n) % 7 % count
    usual = gpureduce.segment_sum(values, spread, num_segments=count, device="emulator")
    assert_same(usual.value, by_host(values, spread, num_segments=count))
    assert_same(in_place(values, ids, num_segments=count, check=False), want)
    assert (found.timing.launches > usual.timing.launches) == again


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [3, 500])
def test_elements_of_any_width(dtype, count):
    """Widths at which a sum gets another word, or a checked one."""
    rng = np.random.default_rng(12)
    n, digits = 1 << 12, np.finfo(dtype).nmant + 1
    full = np.ldexp(2.0**digits - 1, 0)  # all bits are set
    ids = rng.integers(0, count, n)
    for width in range(digits, 128):
        high = np.where(rng.random(n) < 0.5, full, -full) * 2.0 ** (width - digits)
        values = np.where(rng.random(n) < 0.7, high, 1.0).astype(dtype)
        want = by_host(values, ids, num_segments=count)
        assert_same(by_kernels(values, ids, num_segments=count), want)


def test_a_checked_word_that_overflows_in_shared_memory():
    """One lane in 32 has large elements, all of them positive: one copy of a sum overflows."""
    n = 1 << 17
    values = np.where(np.arange(n) % 32 == 0, (2.0**24 - 1) * 2.0**33, 1.0).astype(np.float32)
    ids = np.where(np.arange(n) % 32 == 0, 0, 1)
    found = gpureduce.segment_sum(values, ids, num_segments=3, device="emulator", sorted=False)
    assert_same(found.value, by_host(values, ids, num_segments=3))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_a_rest_far_below_breaks_a_tie(dtype):
    """Of words that hold all exponents, a rest may be in any below those that are rounded."""
    fmt = FORMATS[dtype]
    top = fmt.most_field - fmt.bias - 3
    rest = np.ldexp(1.0, np.arange(fmt.least, top - fmt.fraction - 1, 7))
    rows = np.zeros((2, 2, rest.size, 4))
    rows[..., 0], rows[..., 1] = 2.0**top, 2.0 ** (top - fmt.fraction - 1)
    rows[:, 1, :, 3] = 2.0 ** (top - fmt.fraction)  # a tie that is rounded up without a rest
    rows[..., 2] = rest
    rows[1, :, :, 2] *= -1
    rows = np.concatenate([rows, -rows]).reshape(-1, 4).astype(fmt.dtype)
    values, ids = rows.T.reshape(-1), np.tile(np.arange(len(rows)), 4)
    found = by_kernels(values, ids, num_segments=len(rows))
    assert fmt.bits(found).tolist() == expected_rows(fmt, rows)


@pytest.mark.parametrize("order", ["forward", "reverse", "random", "lockstep"])
@pytest.mark.parametrize("columns", [None, 40])
def test_no_order_of_threads_shows(order, columns):
    """Few segments of wide rows are counted in shared memory."""
    rng = np.random.default_rng(5)
    for n, count in ((300, 12), (2500, 2)) if columns else ((9000, 130),):
        values = numbers(rng, "float32", n if columns is None else (n, columns))
        ids = rng.integers(0, count, n)
        with gpureduce.emulator.schedule(order, seed=3):
            as_by_processors(values, ids, num_segments=count)
            ordered, offsets = in_order(values, ids, count)
            as_by_processors(ordered, offsets=offsets)
            as_by_processors(ordered, np.sort(ids), sorted=True, num_segments=count)
            fast = by_kernels(values, ids, num_segments=count, strategy="fast")
        if columns:
            assert_same(fast, by_host(values, ids, num_segments=count))


@pytest.mark.parametrize("is_sorted", [True, False])
def test_many_rows_are_tried_for_being_sorted(is_sorted):
    rng = np.random.default_rng(7)
    ids = random_ids(rng, "sorted" if is_sorted else "any", 1 << 16, 300)
    as_by_processors(numbers(rng, "float32", (ids.size, 32)), ids, num_segments=300)


# --- rows of packs of 16 bytes, and of a few neighbouring numbers, by offsets ---------------------


def offsets_of(rng, count):
    lengths = rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 40, 300], count)
    return np.concatenate(([0], np.cumsum(lengths)))


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64", "complex128"])
@pytest.mark.parametrize("d", [None, 1, 2, 4, 8, 12, 16, 40, 64, 132, 260])
def test_segments_of_many_lengths(dtype, d):
    rng = np.random.default_rng(d or 0)
    offsets = offsets_of(rng, 60)
    values = numbers(rng, dtype, int(offsets[-1]) if d is None else (int(offsets[-1]), d))
    as_by_processors(values, offsets=offsets)
    wide = "float64" if d == 4 and values.dtype.kind != "c" else None
    as_by_processors(values, offsets=offsets.astype(np.int32), dtype=wide, initial=-2.5)
    if values.dtype.kind != "c":
        positive = np.abs(values)
        how = {"offsets": offsets, "strategy": "fast", "device": "emulator"}
        found = gpureduce.segment_sum(positive, **how)
        assert found.timing.strategy in ("segment_rows", "segment_packs")
        want = by_host(positive.astype(np.float64), offsets=offsets)
        np.testing.assert_allclose(found.value.astype(np.float64), want, rtol=1e-2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_rows_anywhere_in_memory(dtype):
    """Rows that do not lie in packs, and sums that are not neighbours, take another kernel."""
    rng = np.random.default_rng(1)
    offsets = offsets_of(rng, 30)
    wide = numbers(rng, dtype, (int(offsets[-1]), 96))
    for values in (wide[:, :64], wide[:, 1:65], wide[:, 8:40], wide[::-1, :32], wide[:, ::3],
                   wide[:, :33], np.asfortranarray(wide)):  # fmt: skip
        as_by_processors(values, offsets=offsets)
    expected = by_host(wide, offsets=offsets)
    for room in (np.empty((30, 200), wide.dtype)[:, 3:99], np.empty((30, 192), wide.dtype)[:, ::2],
                 np.empty((96, 30), wide.dtype).T):  # fmt: skip
        by_kernels(wide, offsets=offsets, out=room)
        assert np.array_equal(room, expected)


@pytest.mark.parametrize("d", [None, 64])
def test_a_long_segment_among_short_ones(d):
    offsets = np.concatenate(([0], np.cumsum([3] * 40 + [9000] + [0, 2] * 20)))
    shape = int(offsets[-1]) if d is None else (int(offsets[-1]), d)
    as_by_processors(numbers(np.random.default_rng(5), "float32", shape), offsets=offsets)


# --- many values, whose words are planned by a sample of them -------------------------------------


def usual(dtype, scale=1.0):
    rng = np.random.default_rng(1)
    return (rng.standard_normal(SAMPLED) * scale).astype(numpy_dtype(dtype))


def unsampled(dtype):
    """A place in the third part from the end."""
    return SAMPLED - 96 * 16 // numpy_dtype(dtype).itemsize + 3


def check_sampled(values, count, seed=0):
    ids = np.random.default_rng(seed).integers(0, count, len(values))
    if values.ndim == 1:  # two rare values have sums of their own
        ids[unsampled(values.dtype.name) :][:2] = count, count + 1
    as_by_processors(values, ids, num_segments=count + 2)


@pytest.mark.parametrize(
    ("dtype", "count", "large", "small"),
    [("float16", 40_000, 2.0**15, np.inf), ("bfloat16", 600_000, 2.0**120, 2.0**-130),
     ("float32", 40_000, 2.0**120, 2.0**-149), ("float64", 40_000, 2.0**1000, np.inf)],
)  # fmt: skip
def test_a_value_beyond_the_sample(dtype, count, large, small):
    values = usual(dtype, 2.0**-3)
    for rare in (large, small):
        values[unsampled(dtype)] = rare
        check_sampled(values, count)


@pytest.mark.parametrize(("up", "more"), [(-2, 24), (10, 0)])
def test_values_at_the_ends_of_the_words(up, more):
    """Exponents at the borders of the words, above and below the exponents of the sample."""
    values, at = np.ones(SAMPLED, np.float32), unsampled("float32")
    values[at], values[at + 1] = 2.0 ** (up + more), 2.0 ** (-up - more)
    check_sampled(values, 90_000 if more else 200_000, up + 9)


def test_zeros_rows_and_gaps_in_the_sample():
    values = np.zeros(SAMPLED, np.float32)
    values[unsampled("float32")] = 1.5
    check_sampled(values, 200_000)
    values = usual("float32").reshape(-1, 8)
    values[unsampled("float32") // 8] = 2.0**90
    check_sampled(values, 9000)
    check_sampled(values[:, ::2], 9000)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_that_overflow_a_word_planned_by_a_sample(dtype):
    """Elements of one sign, and one segment that is far longer than all other segments."""
    ids = np.random.default_rng(2).integers(0, 300_000, SAMPLED)
    ids[: SAMPLED // 2] = 5
    as_by_processors(np.abs(usual(dtype)) + 1, ids, num_segments=300_000)


def test_sums_of_a_frequent_id_are_added_up_once():
    """A long sum needs the bits of a checked word that a sample would leave to small values."""
    values, rng = usual("float32"), np.random.default_rng(3)
    launches = []
    for kind in ("any", "half"):
        ids = random_ids(rng, kind, SAMPLED, 40_000)
        launches.append(as_by_processors(values, ids, num_segments=40_000).launches)
    assert launches[0] == launches[1]


# --- other ways -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "dtype"), [("half", "float32"), ("zipf", "float32"),
                                             ("half", "float64"), ("zipf", "int32")])  # fmt: skip
def test_frequent_ids_are_found_in_a_sample(kind, dtype):
    rng = np.random.default_rng(8)
    n, count = 1 << 20, 40_000
    ids = random_ids(rng, kind, n, count)
    as_by_processors(random_array(rng, dtype, n), ids, num_segments=count)


@pytest.mark.parametrize(
    ("error", "match", "values", "keywords"),
    [
        (ValueError, "1 or 2 dimensions", np.ones((1, 1, 1)), {"segment_ids": np.zeros(1, int)}),
        (ValueError, "but segment_ids 2 ids", np.ones(3), {"segment_ids": np.zeros(2, int)}),
        (TypeError, "must be integers", np.ones(2), {"segment_ids": np.zeros(2)}),
        (TypeError, "must be integers", np.ones(2), {"segment_ids": np.zeros((2, 1), int)}),
        (MemoryError, "the largest id, 1099511627776: number the segments", np.ones(2),
         {"segment_ids": np.array([0, 2**40])}),
    ],
)  # fmt: skip
def test_errors(error, match, values, keywords):
    shown = {k: on_device(v) if isinstance(v, np.ndarray) else v for k, v in keywords.items()}
    with pytest.raises(error, match=match):
        by_kernels(on_device(values), **shown)
    assert in_place(np.array([1.5, 2.5]), np.array([0, 0])).tolist() == [4.0]


def test_out_must_fit():
    values, ids = np.ones(4, np.float32), np.zeros(4, np.int64)
    wrong = [
        (np.zeros(2), TypeError, "out must have the dtype of the sum, float32"),
        (np.zeros((1, 1), np.float32), ValueError, "out must have the shape"),
        (values[:1], ValueError, "out overlaps the array"),
        (ids[:1].view(np.float32)[:1], ValueError, "out overlaps segment_ids"),
    ]
    for out, error, match in wrong:
        with pytest.raises(error, match=match):
            by_kernels(on_device(values), on_device(ids), out=on_device(out))
    with pytest.raises(TypeError, match="segment_ids must lie on the same GPU"):
        by_kernels(on_device(values), ids)
    with pytest.raises(TypeError, match="values, ndarray, is not"):
        by_kernels(values, on_device(ids))
    out = np.zeros((8, 2), np.float32)[::2, 1]
    found = by_kernels(on_device(values), on_device(ids), out=on_device(out))
    assert out.tolist() == [4, 0, 0, 0] and found.array is out


def test_timing():
    values, ids = np.ones(100, np.float32), np.zeros(100, np.int64)
    timing = gpureduce.segment_sum(values, ids, device="emulator").timing
    assert timing.source == "emulator" and timing.strategy == "exact" and timing.n == 100
    assert timing.launches > 2 and timing.kernel_ms > 0 and timing.block == 256
    later = gpureduce.segment_sum(on_device(values), on_device(ids), device="emulator").timing
    assert later.kernel_ms > 0 and later.backend == "emulator"
    none = gpureduce.segment_sum(values, ids, device="emulator", timing=False)
    assert none.timing is None


@pytest.mark.parametrize(("n", "launches"), [(1, 1), (4096, 1), (4097, 5), (65535, 5), (65536, 13)])
@pytest.mark.parametrize(("dtype", "most"), [("bfloat16", 120), ("float32", 120), ("float64", 990)])
def test_few_unchecked_values_take_one_attempt(dtype, most, n, launches):
    """Without a checked word, there are words for values of all exponents. 4096 need no words."""
    rng = np.random.default_rng(n)
    values = rng.standard_normal(n) * 2.0 ** rng.integers(-most, most, n)
    ids = rng.integers(0, 5, n)
    launches -= n == 65536 and dtype == "float64"  # not added up in runs, so without segment_digits
    for special in ([], [np.inf, np.nan]):
        some = np.append(values, special)[-n:].astype(numpy_dtype(dtype))
        found = gpureduce.segment_sum(
            on_device(some), on_device(ids), num_segments=5, device="emulator", check=False
        )
        assert_same(found.value.to_numpy(), by_host(some, ids, num_segments=5))
        assert found.timing.launches == launches


def test_memory_is_given_back():
    before = gpureduce.emulator.live_bytes()
    values, ids = np.ones(100_000, np.float32), np.arange(100_000) % 77
    for _ in range(3):
        by_kernels(values, ids)
        in_place(values, ids)
    with pytest.raises(ValueError, match="out of range"):
        in_place(values, ids, num_segments=3)
    gpureduce.free_scratch()
    assert gpureduce.emulator.live_bytes() <= before


@pytest.mark.parametrize("kind", ["uniform", "wide", "special"])
def test_more_sums_than_stay_in_the_l2_cache(kind):
    """Each pass has a range of the segments: 2^17 words are the emulator's L2 cache."""
    random, segments = np.random.default_rng(5), 300_000
    ids = random.integers(0, segments, 20_000)
    values = random.random(ids.size).astype(np.float32)
    if kind == "wide":
        values *= np.exp2(random.integers(-60, 60, ids.size)).astype(np.float32)
    if kind == "special":
        values[::1000], values[7::1000] = np.nan, -np.inf
    assert_same(
        by_kernels(values, ids, num_segments=segments), by_host(values, ids, num_segments=segments)
    )
    ids[7] = segments
    with pytest.raises(ValueError, match=r"segment_ids\[7\] is 300000"):
        by_kernels(values, ids, num_segments=segments)


def test_the_error_names_the_array_that_lies_on_a_gpu_without_one():
    ids = ByInterface(np.array([0, 1]))
    if gpureduce.devices()[0].backend == "cuda":
        pytest.skip("there is a GPU")
    with pytest.raises(TypeError, match="ByInterface is on a GPU"):
        gpureduce.segment_sum([1.0, 2.0], ids)


@pytest.mark.skipif(
    bool(gpureduce.build_info()["sanitize"]), reason="a sanitizer takes more address space"
)
def test_digits_of_too_many_segments_are_refused_before_elements_are_counted():
    limits = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({2**32}, {2**32}))\n"
    call = "gpureduce.segment_digits([1.0], [0], num_segments=2**28)"
    text = run_python(
        f"{limits}import time, gpureduce\nstart = time.process_time()\ntry: {call}\n"
        "except MemoryError as error: print(error)\nprint(time.process_time() - start < 1)"
    )
    assert text.splitlines() == [
        "there is no memory for the sums of num_segments=268435456",
        "True",
    ]
