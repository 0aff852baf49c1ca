"""Running sums and windows of pandas: index, dtypes and missing values of pandas, bits of exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpureduce import exact

pd = pytest.importorskip("pandas")
gp = pytest.importorskip("gpureduce.pandas")

N = 90
RNG = np.random.default_rng(8)
X = RNG.standard_normal(N)
DAYS = pd.DatetimeIndex(pd.Timestamp("2024-02-01") + pd.to_timedelta(np.sort(
    RNG.integers(0, 400, N)), unit="h"))  # fmt: skip
FRAME = pd.DataFrame(
    {
        "x": np.where(RNG.random(N) < 0.2, np.nan, X),
        "f2": X.astype("f2"),
        "f4": X.astype("f4"),
        "i1": RNG.integers(0, 9, N).astype("i1"),
        "u4": RNG.integers(0, 9, N).astype("u4"),
        "b": X > 0,
        "I8": pd.array(np.where(X > 1, None, RNG.integers(0, 9, N)), dtype="Int8"),
        "F64": pd.array(np.where(X > 1, None, X), dtype="Float64"),
        "B": pd.array(np.where(X > 1, None, X > 0), dtype="boolean"),
        "s": ["a"] * N,
    },
    index=pd.Index(RNG.integers(0, 9, N), name="day"),  # with duplicates
)
NUMBERS = FRAME.drop(columns="s")
KINDS = [("sum", {}), ("mean", {}), ("var", {}), ("var", {"ddof": 0}), ("std", {}),
         ("std", {"ddof": 3})]  # fmt: skip


@pytest.mark.parametrize("skipna", [True, False])
def test_running_sums_are_those_of_pandas(skipna):
    for data in (NUMBERS, NUMBERS.iloc[:0], NUMBERS.set_axis(["k"] * 9, axis=1), NUMBERS[[]]):
        pd.testing.assert_frame_equal(data.exact.cumsum(skipna), data.cumsum(skipna=skipna),
                                      rtol=0.05)  # fmt: skip
    found = FRAME.exact.cumsum(skipna, numeric_only=True)
    pd.testing.assert_frame_equal(found, NUMBERS.exact.cumsum(skipna))
    for name in NUMBERS:
        right = NUMBERS[name].cumsum(skipna=skipna)
        pd.testing.assert_series_equal(NUMBERS[name].exact.cumsum(skipna), right, rtol=0.05)


def test_running_sums_have_the_bits_of_exact():
    x = NUMBERS.x * 10.0 ** RNG.integers(-20, 20, N)
    right = np.where(x.isna(), np.nan, exact.nancumsum(x))
    np.testing.assert_array_equal(x.exact.cumsum(), right)
    wide = pd.Series([2**62, None, 2**60 + 1], dtype="Int64")
    assert wide.exact.cumsum()[2] == 2**62 + 2**60 + 1


@pytest.mark.parametrize(("kind", "how"), KINDS)
def test_windows_are_those_of_pandas(kind, how):
    frame = NUMBERS.drop(columns="f2")
    dated = frame.set_index(DAYS)
    ahead = pd.api.indexers.FixedForwardWindowIndexer(window_size=5)
    cases = [
        (frame, {"window": w, "min_periods": m, "center": c, **more})
        for w, m, c in itertools.product((1, 4, 200), (None, 0, 1), (False, True))
        for more in ({}, {"closed": "neither"}, {"step": 3})
    ]
    cases += [
        (dated, {"window": "2D", "center": c, "closed": closed, "min_periods": m})
        for c, closed, m in itertools.product((False, True), (None, "left", "both"), (None, 3))
    ]
    cases += [(frame, {"window": ahead, "min_periods": 2}), (frame, {"window": 0}),
              (frame.iloc[:0], {"window": 3})]  # fmt: skip
    for data, given in cases:
        right = getattr(data.rolling(**given), kind)(**how)
        found = getattr(data.exact.rolling(**given), kind)(**how)
        pd.testing.assert_frame_equal(found, right, rtol=1e-5, atol=1e-6)
        right = getattr(data["I8"].rolling(**given), kind)(**how)
        found = getattr(data["I8"].exact.rolling(**given), kind)(**how)
        pd.testing.assert_series_equal(found, right, rtol=1e-5, atol=1e-6)


def test_other_columns():
    frame = FRAME[["s", "x"]].assign(t=DAYS)
    pd.testing.assert_frame_equal(frame.exact.rolling("3D", on="t").sum(numeric_only=True),
                                  frame.rolling("3D", on="t").sum(numeric_only=True))  # fmt: skip


def test_windows_have_the_bits_of_exact():
    x = pd.Series(X * 10.0 ** RNG.integers(-20, 20, N), DAYS)
    for kind in ("sum", "mean", "var", "std"):
        of = getattr(exact, f"rolling_{kind}")
        for size, least, center in itertools.product((3, 8), (None, 2), (False, True)):
            found = getattr(x.exact.rolling(size, least, center), kind)()
            right = of(x.to_numpy(), size, min_periods=least, center=center)
            np.testing.assert_array_equal(found, right)
        found = getattr(x.exact.rolling("40h"), kind)()
        starts = DAYS.searchsorted(DAYS - pd.Timedelta("40h"), side="right")
        right = of(x.to_numpy(), (starts, np.arange(1, N + 1)))
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: FRAME.exact.cumsum(), TypeError, "'s' has the dtype .* no exact cumsum"),
    (lambda: FRAME.s.exact.cumsum(), TypeError, "'s' has the dtype .* no exact cumsum"),
    (lambda: FRAME.exact.rolling(2).sum(), pd.errors.DataError, "non-numeric"),
    (lambda: FRAME.x.exact.rolling(2, win_type="triang"), TypeError, "leave win_type out"),
    (lambda: FRAME.x.exact.rolling(2, 3), ValueError, "min_periods"),
    (lambda: pd.Series([1, 2**60 + 1]).exact.rolling(2).sum(), ValueError, "beyond 2"),
])  # fmt: skip
def test_errors(call, error, text):
    if "win_type" in text:
        pytest.importorskip("scipy")
    with pytest.raises(error, match=text):
        call()
