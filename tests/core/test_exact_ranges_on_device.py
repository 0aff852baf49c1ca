"""Segments and windows of arrays on a device: the bits of those in host memory."""

from __future__ import annotations

import numpy as np
import pytest
from test_exact_functions_on_device import MAKERS, each_kind, made
from test_exact_masks_on_device import card_arrays, compare, emulator, on_host  # noqa: F401

from cases import numpy_dtype
from gpureduce import exact
from gpureduce.core import running_on_device
from producers import OfLibrary

SEGMENTS = {
    "mean": (exact.segment_mean, {}),
    "var": (exact.segment_var, {"ddof": 1}),
    "std": (exact.segment_std, {}),
}
WINDOWS = {
    "sum": (exact.rolling_sum, {}),
    "mean": (exact.rolling_mean, {}),
    "var": (exact.rolling_var, {"ddof": 1.5}),
    "std": (exact.rolling_std, {}),
}


def compare_segments(there, x, ids, offsets, count):
    """`there` takes an array to the device."""
    for function, how in SEGMENTS.values():
        compare(function, there(x), x, num_segments=count, **how,
                segment_ids=(there(ids), ids))  # fmt: skip
        compare(function, there(x), x, offsets=(there(offsets), offsets), **how)


def segments_of(rng, n, count):
    """Ids in any order; and offsets, of segments without elements too."""
    ids = rng.integers(0, max(count - 1, 1), n)
    offsets = np.sort(rng.integers(0, n + 1, count + 1))
    offsets[[0, -1]] = 0, n
    return ids, offsets


@each_kind
def test_segments(dtype, make):
    rng = np.random.default_rng(1)
    for shape, count in [((0,), 2), ((1,), 1), ((1000,), 20), ((3000,), 2), ((60, 7), 9),
                         ((40, 1), 3), ((6, 0), 2)]:  # fmt: skip
        x = made(rng, make, shape, dtype)
        for view in [x, x[::-1], *([x.T.copy().T] if x.ndim == 2 else [])]:
            compare_segments(OfLibrary, view, *segments_of(rng, len(x), count), count)


def test_integers_complex_numbers_and_dtypes_of_segments():
    rng = np.random.default_rng(2)
    ids, offsets = segments_of(rng, 500, 12)
    for dtype in ("bool", "int8", "uint16", "int32", "int64", "complex64"):
        x = rng.integers(0, 2 if dtype == "bool" else 100, 500).astype(dtype)
        compare_segments(OfLibrary, x, ids.astype(np.int16), offsets.astype(np.int32), 12)
    x = (rng.standard_normal(500) + 1j * rng.standard_normal(500)).astype(np.complex64)
    mean = SEGMENTS["mean"][0]
    compare_segments(OfLibrary, x, ids, offsets, 12)
    compare(mean, OfLibrary(x.reshape(250, 2)), x.reshape(250, 2),
            offsets=(OfLibrary(offsets // 2), offsets // 2))  # fmt: skip
    compare(mean, OfLibrary(x.real), x.real, dtype="float64",
            offsets=(OfLibrary(offsets), offsets))  # fmt: skip


@pytest.fixture
def entries_of_library(monkeypatch):
    """Running sums of OfLibrary are OfLibrary, as PyTorch's tensors are tensors."""
    own = running_on_device.cumsum
    monkeypatch.setattr(running_on_device, "cumsum",
                        lambda *args, **how: OfLibrary(own(*args, **how).to_numpy()))  # fmt: skip


def compare_running(there, x, ids, offsets, count):
    compare(exact.segment_cumsum, there(x), x, segment_ids=(there(ids), ids), num_segments=count)
    compare(exact.segment_cumsum, there(x), x, offsets=(there(offsets), offsets))


@each_kind
def test_running_sums_of_segments(dtype, make, entries_of_library):
    rng = np.random.default_rng(9)
    shapes = [((0,), 2), ((1,), 1), ((1000,), 20), ((9000,), 3), ((9000,), 6000), ((300, 7), 9)]
    shapes += [((400, 1), 3), ((1, 5), 1), ((3, 70), 2), ((6, 0), 2)]
    for shape, count in shapes:
        x = made(rng, make, shape, dtype)
        for view in [x, x[::-1], *([x.T.copy().T] if x.ndim == 2 else [])]:
            compare_running(OfLibrary, view, *segments_of(rng, len(x), count), count)


def test_running_sums_of_segments_of_other_elements(entries_of_library):
    rng = np.random.default_rng(10)
    ids, offsets = segments_of(rng, 5000, 40)
    for dtype in ("bool", "int8", "uint16", "int32", "int64", "complex64"):
        x = (rng.standard_normal(5000) * 50).astype(dtype)
        compare_running(OfLibrary, x, ids.astype(np.int16), offsets.astype(np.int32), 40)
    x = rng.standard_normal(5000).astype(np.float32)
    compare(exact.segment_cumsum, OfLibrary(x), x, dtype="float64",
            offsets=(OfLibrary(offsets), offsets))  # fmt: skip
    empty = np.sort(np.r_[0, np.full(300, 17), np.full(9000, 2500), 5000])
    compare(exact.segment_cumsum, OfLibrary(x), x, offsets=(OfLibrary(empty), empty))


def test_running_sums_of_long_segments_look_back(entries_of_library):
    rng = np.random.default_rng(11)
    for kind in (np.float32, np.float64):
        x = rng.standard_normal(600_000).astype(kind)
        x[400_000:] = 1e30 * rng.standard_normal(200_000)
        for offsets in ([0, 600_000], [0, 4, 299_999, 300_001, 600_000]):
            of = np.array(offsets)
            compare(exact.segment_cumsum, OfLibrary(x), x, offsets=(OfLibrary(of), of))
        wide = x.reshape(-1, 40)
        of = np.array([0, 1, 7000, 15_000])
        compare(exact.segment_cumsum, OfLibrary(wide), wide, offsets=(OfLibrary(of), of))


def test_wrong_arguments_of_running_sums_of_segments():
    x, ids = np.ones(6, np.int32), np.array([0, 1, 0, 1, 1, 0])
    for args, how, error, message in [
        ((OfLibrary(x), OfLibrary(ids)), {}, TypeError, "cannot hold int64"),
        ((OfLibrary(x), ids), {}, TypeError, "is not"),
        ((OfLibrary(x),), {}, TypeError, "segment_ids or offsets"),
        ((OfLibrary(x),), {"offsets": OfLibrary(np.array([0, 9]))}, ValueError, "offsets"),
        ((OfLibrary(x.reshape(1, 2, 3)), OfLibrary(ids)), {}, ValueError, "dimensions"),
    ]:
        with pytest.raises(error, match=message):
            exact.segment_cumsum(*args, **how)


def test_long_segments_share_blocks():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(200_000).astype(np.float32)
    x[100_000:] = 1.1
    offsets = np.array([0, 5, 100_000, 200_000])
    for function, how in SEGMENTS.values():
        compare(function, OfLibrary(x), x, offsets=(OfLibrary(offsets), offsets), **how)


@each_kind
def test_windows(dtype, make):
    rng = np.random.default_rng(4)
    for shape in [(0,), (1,), (60,), (3, 20), (2, 5, 4), (0, 3)]:
        x = made(rng, make, shape, dtype)
        x = np.where(rng.random(shape) < 0.1, numpy_dtype(dtype).type(np.nan), x)
        for view in [x, x[::-1], *([x.T] if x.ndim == 2 else [])]:
            for axis in range(x.ndim):
                for number, window in enumerate((1, 3, 50)):
                    for k, (function, how) in enumerate(WINDOWS.values(), number + axis):
                        more = {"center": True, "min_periods": 1 if axis else 0} if k % 2 else {}
                        compare(function, OfLibrary(view), view, window, axis, **more, **how)


def starts_and_ends(rng, n, count, longest):
    """Windows in any order, of which some are empty."""
    starts = rng.integers(0, n + 1, count)
    return starts, np.minimum(starts + rng.integers(0, longest + 1, count), n)


def compare_given(there, function, x, starts, ends, *args, **how):
    windows = (there(starts), there(ends)), (starts, ends)
    want = np.asarray(function(x, windows[1], *args, **how))
    found = on_host(function(there(x), windows[0], *args, **how))
    assert (found.shape, found.dtype, found.tobytes()) == (want.shape, want.dtype, want.tobytes())


@each_kind
def test_windows_from_starts_to_ends(dtype, make):
    rng = np.random.default_rng(12)
    for shape, axis in [((1,), 0), ((60,), 0), ((3, 20), 1), ((20, 5, 2), 0), ((2, 30, 3), 1)]:
        x = made(rng, make, shape, dtype)
        x = np.where(rng.random(shape) < 0.1, numpy_dtype(dtype).type(np.nan), x)
        for k, (count, longest) in enumerate([(0, 5), (1, 40), (70, 3), (90, 60)]):
            given = starts_and_ends(rng, shape[axis], count, longest)
            given = [one.astype(("int64", "int32", "uint16", "uint8")[k]) for one in given]
            for function, how in WINDOWS.values():
                compare_given(OfLibrary, function, x, *given, axis, min_periods=k % 2, **how)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_long_windows_take_sums_of_chunks(dtype):
    rng = np.random.default_rng(13)
    for shape, axis, size in [((1500,), 0, 130), ((2600,), 0, 1111), ((3, 700), 1, 200),
                              ((500, 3), 0, 128), ((2, 300, 2), 1, 599)]:  # fmt: skip
        x = (rng.standard_normal(shape) * 100).astype(dtype)
        if x.dtype.kind == "f":
            x[rng.random(shape) < 0.1] = np.nan
        n, wide = shape[axis], size
        given = starts_and_ends(rng, n, 2 * n, wide)
        for k, (function, how) in enumerate(WINDOWS.values()):
            more = {"center": True, "min_periods": 3} if k % 2 else {"min_periods": 1}
            compare(function, OfLibrary(x), x, size, axis, **more, **how)
            compare_given(OfLibrary, function, x, *given, axis, min_periods=2, **how)


def test_several_launches_for_many_windows():
    x = np.random.default_rng(8).standard_normal(180_000).astype(np.float32)
    x[::1000] = np.nan
    for window in (60, 90):  # the latter in chunks
        compare(exact.rolling_sum, OfLibrary(x), x, window, min_periods=3)


def test_windows_of_integers():
    rng = np.random.default_rng(5)
    for dtype in ("bool", "int8", "uint32"):
        x = rng.integers(0, 2 if dtype == "bool" else 100, (4, 30)).astype(dtype)
        for function, how in WINDOWS.values():
            compare(function, OfLibrary(x), x, 4, 1, min_periods=2, **how)


def test_errors():
    x = np.ones(6, np.float32)
    own, ids = OfLibrary(x), OfLibrary(np.array([0, 1, 2, 0, 1, 9]))
    first = np.array([0, 1, 2])
    decreasing = OfLibrary(np.array([0, 4, 2, 6]))
    cases = [
        (
            lambda: exact.segment_mean(own, ids, num_segments=3),
            ValueError,
            "segment_ids.5. is 9",
        ),
        (lambda: exact.segment_var(own, offsets=decreasing), ValueError, "offsets.1. is 4"),
        (lambda: exact.segment_var(own, ids.array), TypeError, "values is on a GPU"),
        (lambda: exact.segment_std(own), TypeError, "either segment_ids or offsets"),
        (lambda: exact.rolling_sum(own, ([0], [2])), TypeError, "x is on a GPU, and starts"),
        (lambda: exact.rolling_sum(own, (own, own)), TypeError, "starts must be .* integers"),
        (lambda: exact.rolling_sum(own, (ids, ids)), ValueError, "window 5 is from 9 to 9"),
        (lambda: exact.rolling_sum(own, (OfLibrary(first),)), ValueError, "not 1 arrays"),
        (lambda: exact.rolling_sum(own, (OfLibrary(first), ids)), ValueError, "3 starts and 6"),
        (lambda: exact.rolling_sum(own, (ids, OfLibrary(first[[0] * 6]))), ValueError, "window 1"),
        (lambda: exact.rolling_sum(own, 0), ValueError, "window"),
        (lambda: exact.rolling_mean(own, 2, axis=1), ValueError, "axis"),
        (lambda: exact.rolling_mean(OfLibrary(x + 1j), 2), TypeError, "real"),
    ]
    for call, error, words in cases:
        with pytest.raises(error, match=words):
            call()


@pytest.mark.gpu
@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_on_the_card(library, dtype):
    rng = np.random.default_rng(6)

    def there(one):
        return card_arrays(library, one)

    for make in MAKERS:
        for shape, count in [((1000,), 20), ((5000,), 3), ((60, 7), 9), ((900, 64), 40)]:
            x = made(rng, make, shape, dtype)
            compare_segments(there, x, *segments_of(rng, len(x), count), count)
            compare_running(there, x, *segments_of(rng, len(x), count), count)
            for function, how in WINDOWS.values():
                compare(function, there(x), x, 5, 0, min_periods=2, **how)
                compare(function, there(x), x, 70, -1, center=True, **how)
                compare(function, there(x), x, 200, 0, min_periods=20, **how)
                given = starts_and_ends(rng, len(x), 2 * len(x), len(x) // 2)
                compare_given(there, function, x, *given, 0, **how)


@pytest.mark.gpu
def test_large_arrays_on_the_card():
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(7)
    for n, count in [(1 << 22, 1 << 17), (1 << 22, 40), (1 << 20, 1 << 20)]:
        x = made(rng, MAKERS[0], (n,), "float32")
        compare_segments(cupy.asarray, x, *segments_of(rng, n, count), count)
        compare_running(cupy.asarray, x, *segments_of(rng, n, count), count)
    for window in (4, 300, 20_000):
        for function, how in WINDOWS.values():
            compare(function, cupy.asarray(x), x, window, **how)
