"""Sums by segment by kernels, on the emulator: of host arrays, and of arrays on the device."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce
from axis_cases import random_array
from cases import numpy_dtype, run_python
from exact_cases import FORMATS, expected_rows
from producers import ByInterface
from segment_calls import assert_same, by_host, by_kernels, in_place, on_device

REAL = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]  # fmt: skip
FLOATS = ["float16", "bfloat16", "float32", "float64"]
EXAMPLES = int(os.environ.get("GPUREDUCE_SEGMENT_EXAMPLES", "60"))
seeds = st.integers(0, 2**32 - 1)


def hard_floats(rng, dtype, shape, kind):
    """Floats that are hard to add up: of any exponents, cancelling, infinite, or tiny."""
    part = np.dtype(dtype)
    if kind == "bits":
        size = part.itemsize
        return rng.integers(0, 2 ** (8 * size) - 1, shape, f"u{size}", endpoint=True).view(part)
    values = rng.standard_normal(shape)
    with np.errstate(over="ignore", under="ignore"):
        if kind == "wide":
            values = values * 2.0 ** rng.integers(-60, 60, shape)
        if kind == "large":
            values = np.where(values > 0, 1.0, -1.0) * np.finfo(part).max
        if kind == "small":
            values = np.round(values) * np.finfo(part).smallest_subnormal
        return values.astype(part)


def ids_of(rng, n, count, kind):
    if kind == "one":
        return np.full(n, count // 2)
    if kind == "half":
        return np.where(rng.random(n) < 0.5, count // 2, rng.integers(0, count, n))
    found = rng.integers(0, count, n)
    return np.sort(found) if kind == "sorted" else found


def sorted_case(values, ids, count):
    """The same elements segment by segment, with their offsets."""
    order = np.argsort(ids, kind="stable")
    return values[order], np.searchsorted(ids[order], np.arange(count + 1))


@given(
    seed=seeds,
    dtype=st.sampled_from(REAL),
    n=st.integers(0, 3000),
    count=st.sampled_from([1, 2, 7, 100, 5000]),
    columns=st.sampled_from([None, None, 1, 2, 3, 32, 33]),
    kind=st.sampled_from(["any", "sorted", "one", "half"]),
    index=st.sampled_from(["int8", "uint16", "int32", "uint32", "int64", "uint64"]),
)
@settings(max_examples=5 * EXAMPLES, deadline=None)
def test_all_ways_have_the_processors_bits(seed, dtype, n, count, columns, kind, index):
    rng = np.random.default_rng(seed)
    n = n if columns is None else n // columns
    count = min(count, 100) if index == "int8" else count
    values = random_array(rng, dtype, n if columns is None else (n, columns))
    if rng.random() < 0.3 and n:
        values = values[::-1] if rng.random() < 0.5 else np.repeat(values, 2, 0)[::2]
    if values.ndim == 2 and rng.random() < 0.3:
        values = np.asfortranarray(values)
    ids = ids_of(rng, n, count, kind).astype(index)
    ids = np.repeat(ids, 3)[::3] if rng.random() < 0.3 else ids
    how = {"initial": int(rng.integers(0, 9))} if rng.random() < 0.3 else {}
    want = by_host(values, ids, num_segments=count, **how)
    assert_same(by_kernels(values, ids, num_segments=count, **how), want)
    known = rng.choice([None, kind in ("sorted", "one")])
    assert_same(in_place(values, ids, num_segments=count, sorted=known, **how), want)
    ordered, offsets = sorted_case(values, ids, count)
    assert_same(in_place(ordered, offsets=offsets, **how), want)


@pytest.mark.parametrize("kind", ["bits", "wide", "large", "small"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_that_are_hard_to_add_up(dtype, kind):
    rng = np.random.default_rng(11)
    for n, count in ((300, 2), (3000, 40), (3000, 5000)):
        values, ids = hard_floats(rng, dtype, n, kind), rng.integers(0, count, n)
        for some in (values, np.where(np.isfinite(values), values, 0).astype(dtype)):
            for how in ({}, {"initial": 0.1}):
                want = by_host(some, ids, num_segments=count, **how)
                assert_same(by_kernels(some, ids, num_segments=count, **how), want)
                ordered, offsets = sorted_case(some, ids, count)
                assert_same(by_kernels(ordered, offsets=offsets, **how), want)


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


def test_sums_are_rounded_once_to_narrower_floats():
    for wide, narrow, least in (("float64", "float32", -149), ("float32", "float16", -24)):
        parts = np.array([0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.5, -0.5, -0.75, -1.5])
        values = (parts * 2.0**least).astype(wide)
        ids = np.arange(parts.size)
        want = by_host(values, ids, dtype=narrow)
        assert np.count_nonzero(want) < parts.size
        assert_same(by_kernels(values, ids, dtype=narrow), want)
        assert_same(in_place(values, ids, dtype=narrow), want)


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


def test_the_lowest_bit_of_all_values_is_found():
    values = np.array([1.0, 2.0**22 + 0.5, 1.0, 2.0**22 + 0.5], np.float32)
    ids = np.array([0, 1, 0, 1])
    assert by_kernels(values, ids).tolist() == [2, 2.0**23 + 1]


@pytest.mark.parametrize("order", ["forward", "reverse", "random", "lockstep"])
def test_no_order_of_threads_or_elements_shows(order):
    rng = np.random.default_rng(5)
    values = (rng.standard_normal(9000) * 2.0 ** rng.integers(-30, 30, 9000)).astype(np.float32)
    ids = rng.integers(0, 130, 9000)
    want = by_host(values, ids, num_segments=130)
    with gpureduce.emulator.schedule(order, seed=3):
        assert_same(by_kernels(values, ids, num_segments=130), want)
        shuffled = rng.permutation(9000)
        assert_same(by_kernels(values[shuffled], ids[shuffled], num_segments=130), want)
        ordered, offsets = sorted_case(values, ids, 130)
        assert_same(by_kernels(ordered, offsets=offsets), want)
        assert_same(by_kernels(ordered, np.sort(ids), sorted=True), want)


def test_sorted_ids_are_found_and_empty_segments_filled():
    rng = np.random.default_rng(6)
    n = 70_000
    for count in (3, 90_000):
        ids = np.sort(rng.integers(0, count, n))
        ids[n // 2 :] = count - 1  # a long gap, then a long segment
        values = rng.standard_normal(n).astype(np.float32)
        want = by_host(values, ids, num_segments=count)
        assert_same(by_kernels(values, ids, num_segments=count), want)
        assert_same(by_kernels(values, ids, num_segments=count, sorted=True), want)
        assert_same(by_kernels(values, ids, num_segments=count, sorted=False), want)
        ids[-1] = 0
        want = by_host(values, ids, num_segments=count)
        assert_same(by_kernels(values, ids, num_segments=count), want)


@pytest.mark.parametrize(("kind", "dtype"), [("half", "float32"), ("zipf", "float32"),
                                             ("half", "float64"), ("zipf", "int32")])  # fmt: skip
def test_frequent_ids_are_found_in_a_sample(kind, dtype):
    rng = np.random.default_rng(8)
    n, count = 1 << 20, 40_000
    ids = rng.integers(0, count, n)
    if kind == "half":
        ids[rng.random(n) < 0.5] = 12_345
    else:
        ids = np.minimum((count ** rng.random(n)).astype(np.int64), count - 1)
    values = random_array(rng, dtype, n)
    want = by_host(values, ids, num_segments=count)
    assert_same(by_kernels(values, ids, num_segments=count), want)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fast_by_offsets_is_near(dtype):
    rng = np.random.default_rng(7)
    values = rng.random(20_000).astype(numpy_dtype(dtype))
    offsets = np.array([0, 5, 5, 100, 9000, 20_000])
    found = gpureduce.segment_sum(values, offsets=offsets, strategy="fast", device="emulator")
    assert found.timing.strategy == "segment_rows"
    want = by_host(values.astype(np.float64), offsets=offsets)
    np.testing.assert_allclose(found.value.astype(np.float64), want, rtol=1e-2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["bool", "int32", "float16", "float64"])
def test_fast_sums_of_another_dtype(kind, dtype):
    """By offsets, elements that no kernel adds up in float32 are added up in float64."""
    values, offsets, ids = (
        np.arange(7).astype(kind),
        np.array([0, 2, 7]),
        np.array([0, 0] + [1] * 5),
    )
    how = {"strategy": "fast", "dtype": dtype, "initial": 0.5}
    want = by_host(values, offsets=offsets, **how)
    assert_same(by_kernels(values, offsets=offsets, **how), want)
    assert_same(by_kernels(values, ids, num_segments=2, **how), want)
    if (kind, dtype) in (("float64", "float32"), ("float16", "float32"), ("float16", "float64")):
        assert_same(in_place(values, offsets=offsets, **how), want)


def test_dtype_and_casts():
    values, ids = np.array([0.1, 0.2, 0.3], np.float32), np.array([0, 1, 0])
    for dtype in ("float64", "float32"):
        assert_same(in_place(values, ids, dtype=dtype), by_host(values, ids, dtype=dtype))
    halves = values.astype(np.float16)
    for dtype in ("float16", "float32", "float64"):
        assert_same(in_place(halves, ids, dtype=dtype), by_host(halves, ids, dtype=dtype))
    whole = np.array([200, 100, 90], np.uint8)
    for dtype in ("int8", "uint16", "int32", "uint64"):
        assert_same(in_place(whole, ids, dtype=dtype), by_host(whole, ids, dtype=dtype))
    assert_same(by_kernels(whole, ids, dtype="float32"), by_host(whole, ids, dtype="float32"))
    assert_same(by_kernels(values, ids, dtype="complex64"), by_host(values, ids, dtype="complex64"))
    with pytest.raises(TypeError, match="cast the array first"):
        in_place(whole, ids, dtype="float32")
    with pytest.raises(TypeError, match="64-bit integers exactly as floats"):
        by_kernels(np.array([1, 2, 3]), ids, dtype="float64")


@pytest.mark.parametrize(
    ("error", "match", "values", "keywords"),
    [
        (ValueError, "1 or 2 dimensions", np.ones((1, 1, 1)), {"segment_ids": np.zeros(1, int)}),
        (ValueError, "2 segment_ids for 3 rows", np.ones(3), {"segment_ids": np.zeros(2, int)}),
        (TypeError, "must be integers", np.ones(2), {"segment_ids": np.zeros(2)}),
        (TypeError, "must be integers", np.ones(2), {"segment_ids": np.zeros((2, 1), int)}),
        (TypeError, "would lose part", np.ones(2),
         {"segment_ids": np.zeros(2, int), "dtype": "int32"}),
        (ValueError, "numpy makes no sums by segment of arrays on a GPU", np.ones(2),
         {"segment_ids": np.zeros(2, int), "strategy": "numpy"}),
        (TypeError, "initial must be", np.ones(2),
         {"segment_ids": np.zeros(2, int), "initial": "1"}),
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
    with pytest.raises(TypeError, match="values, ndarray, do not"):
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
    with pytest.raises(TypeError, match="ByInterface lies on a GPU"):
        gpureduce.segment_sum([1.0, 2.0], ids)


@pytest.mark.skipif(
    bool(gpureduce.build_info()["sanitize"]), reason="a sanitizer takes more address space"
)
def test_digits_of_too_many_segments_are_refused_before_elements_are_counted():
    limits = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({2**32}, {2**32}))\n"
    call = "gpureduce.segment_digits([1.0], [0], num_segments=2**28)"
    text = run_python(
        f"{limits}import time, gpureduce\nstart = time.perf_counter()\ntry: {call}\n"
        "except MemoryError as error: print(error)\nprint(time.perf_counter() - start < 1)"
    )
    assert text.splitlines() == [
        "there is no memory for the sums of num_segments=268435456",
        "True",
    ]
