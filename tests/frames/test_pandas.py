"""Groups of pandas frames: index, dtypes and missing values of pandas, and the bits of exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpureduce import exact

pd = pytest.importorskip("pandas")
gp = pytest.importorskip("gpureduce.pandas")

RNG = np.random.default_rng(5)
N = 400


def frame():
    x = RNG.standard_normal(N)
    return pd.DataFrame(
        {
            "city": RNG.choice(["Bern", "Basel", None, "Genf"], N),
            "kind": pd.Categorical(RNG.choice(["b", "a"], N), categories=["z", "b", "a"]),
            "day": pd.Series(RNG.integers(1, 4, N)).where(RNG.random(N) < 0.9),
            "x": np.where(RNG.random(N) < 0.1, np.nan, x),
            "f4": x.astype("f4"),
            "i": RNG.integers(-50, 50, N),
            "u1": RNG.integers(0, 255, N).astype("u1"),
            "b": x > 0,
            "I64": pd.array(np.where(x > 1, None, RNG.integers(0, 9, N)), dtype="Int64"),
            "F64": pd.array(np.where(x > 1, np.nan, x), dtype="Float64"),
            "B": pd.array(x > 0, dtype="boolean"),
        }
    )


FRAME = frame()
UNSORTED = FRAME[["x", "f4"]].assign(t=pd.Timestamp("2020") - pd.to_timedelta(FRAME.i, "D"))
WIDE = pd.DataFrame(
    RNG.standard_normal((9, 4)), columns=pd.MultiIndex.from_product([["a", "b"], ["x", "y"]])
)
WIDE.attrs["unit"] = "m"
KEYS = ["city", "kind", "day", "u1", ["i"], ["city", "kind"], ["day", "kind", "city"], ["kind"]]
KINDS = {"sum": [{}, {"min_count": 20}], "mean": [{}], "count": [{}],
         "var": [{}, {"ddof": 0}, {"ddof": 3}], "std": [{}]}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys", KEYS, ids=str)
def test_frames_are_those_of_pandas(keys, kind):
    data = FRAME.drop(columns={"city", "kind", "day", "u1"} - {*np.atleast_1d(keys)})
    # Of the 16 products eight, which have each pair of values of each two options.
    cases = [case for case in itertools.product((True, False), repeat=4) if sum(case) % 2 == 0]
    for (sort, dropna, observed, as_index), how in itertools.product(cases, KINDS[kind]):
        given = {"sort": sort, "dropna": dropna, "observed": observed, "as_index": as_index}
        right = getattr(data.groupby(keys, **given), kind)(**how)
        found = getattr(gp.groupby(data, keys, **given), kind)(**how)
        pd.testing.assert_frame_equal(found, right, rtol=1e-5, atol=1e-5)


def test_series_selections_and_other_keys():
    for call in (
        lambda g, d: g(d, "kind", observed=False)["x"].mean(),
        lambda g, d: g(d, "kind", observed=False)[["x", "i"]].mean(),
        lambda g, d: g(d.x, d.day).std(),
        lambda g, d: g(d.set_index(["city", "day"]).x, level=["day", "city"]).sum(),
        lambda g, d: g(d[["x"]], lambda row: row % 7).var(),
        lambda g, d: g(d[["x", "i"]], np.arange(N) // 9).mean(),
        lambda g, d: g(d[:0], "day")[["x"]].sum(),
        lambda g, d: g(d[["x", "day"]], pd.Grouper(key="day")).mean(),
        lambda g, d: g(UNSORTED, pd.Grouper(key="t", freq="D")).sum(),
        lambda g, d: g(UNSORTED, UNSORTED.t.where(UNSORTED.x > 1)).var(ddof=2, numeric_only=True),
        lambda g, d: g(d, "day").mean(numeric_only=True),
        lambda g, d: g(d, "day", as_index=False)["x"].mean(),
        lambda g, d: g(WIDE, WIDE.index % 3)["a"].mean(),
        lambda g, d: g(WIDE, WIDE.index % 3)[[("a", "y")]].mean(),
    ):
        right, found = (
            call(lambda d, by=None, **how: d.groupby(by, **how), FRAME),
            call(gp.groupby, FRAME),
        )
        same = pd.testing.assert_series_equal if right.ndim == 1 else pd.testing.assert_frame_equal
        same(found, right, rtol=1e-5, atol=1e-5)
        assert found.attrs == right.attrs


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integer_keys_from_end_to_end_of_their_range(dtype):
    info = np.iinfo(dtype)
    for keys in ([info.max, info.max - 2, info.max], [info.min, info.min + 3, info.min],
                 [info.max, info.min, info.max], [5], range(info.min, info.min + 256)):  # fmt: skip
        data = pd.DataFrame({"k": np.array(keys, dtype), "x": np.arange(1.0, len(keys) + 1)})
        grouped = gp.groupby(data, "k")
        pd.testing.assert_frame_equal(grouped.mean(), data.groupby("k").mean())
        data["k"] = data.k.iloc[0]  # the groups stay as they were
        assert len(grouped.sum()) == len({*keys})


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "int64", "uint64", "complex128", "float16"]
)
def test_bits_are_those_of_each_group_in_any_order(dtype):
    big = np.array([2.0**40, 3.0, -(2.0**40), 2.0**-9]) if dtype[0] != "u" else np.arange(1.0, 5)
    with np.errstate(over="ignore"):
        values = np.tile(big, 60).astype(dtype)
    data = pd.DataFrame({"k": np.arange(240) * 7 % 11, "x": values})
    for name in ("sum", "mean", "var", "std"):
        how = {"ddof": 1} if name in ("var", "std") else {}
        with np.errstate(invalid="ignore"):
            right = [getattr(exact, name)(data.x[data.k == k].to_numpy(), **how) for k in range(11)]
        for seed in range(3):
            some = data.sample(frac=1, random_state=seed)
            found = getattr(gp.groupby(some, "k")["x"], name)()
            np.testing.assert_array_equal(found.to_numpy(), np.array(right))


NULLABLE = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt32", "UInt64", "boolean", "Float32",
            "Float64", *(f"{name}[pyarrow]" for name in ("int8", "int32", "uint16", "int64", "bool",
            "float", "double"))]  # fmt: skip


@pytest.mark.parametrize("dtype", [*NULLABLE, "int8", "uint16", "int32", "uint64", "bool", "f8"])
@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "count"])
def test_dtypes_are_those_of_pandas(dtype, name):
    """A sum of integers has the dtype of its column, or 64 bits if one of the sums needs more."""
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    for big in (1, 100, 2**30):
        values = [big, 0, big, 1, None, None] if dtype in NULLABLE else [big, 0, big, 1, 1, 0]
        try:
            column = pd.Series(values, dtype=dtype)
        except (OverflowError, TypeError, ValueError):  # too big
            continue
        for k in ([0, 0, 0, 1, 1, 2], pd.Categorical([1] * 6, categories=[0, 1])):
            data = pd.DataFrame({"k": k, "x": column})
            for how in [{}, {"min_count": 1}] if name == "sum" else [{}]:
                right = getattr(data.groupby("k", observed=False)["x"], name)(**how)
                found = getattr(gp.groupby(data, "k", observed=False)["x"], name)(**how)
                keeps = name != "std" or not dtype.lower().startswith("float")
                pd.testing.assert_series_equal(found, right, rtol=1e-6, check_dtype=keeps)


@pytest.mark.parametrize("rows", [9, 90_000])  # whose columns are added up together, or not
def test_each_column_of_sums_has_its_own_dtype(rows):
    k = np.arange(rows) % 2
    data = pd.DataFrame(
        {"k": k, "x": np.full(rows, 100, "i1"), "y": (k - 1).astype("i1") * (k > 5)}
    )
    found = gp.groupby(data, "k").sum()
    assert [str(one) for one in found.dtypes] == ["int64", "int8"]


def test_arrow_and_wide_integers():
    pytest.importorskip("pyarrow")
    data = FRAME[["city", "F64", "I64"]].astype({"F64": "double[pyarrow]", "I64": "int64[pyarrow]"})
    for name in ("sum", "mean", "std", "count"):
        right = getattr(data.groupby("city"), name)()
        found = getattr(gp.groupby(data, "city"), name)()
        pd.testing.assert_frame_equal(found, right, rtol=1e-9, atol=1e-12)
    wide = pd.DataFrame({"k": [1, 1, 1], "x": pd.array([2**62 + 1, None, 2**61], dtype="Int64")})
    assert gp.groupby(wide, "k").sum()["x"].tolist() == [2**62 + 2**61 + 1]


@pytest.mark.parametrize("values", [
    list("abcd"), pd.date_range("2020", periods=4), pd.to_timedelta(range(4)),
    pd.Categorical([1, 2, 1, 2]), np.ones(4, "g"), np.array([1, None, 2, 3], object),
], ids=["text", "dates", "times", "categories", "long doubles", "objects"])  # fmt: skip
def test_columns_without_numbers_are_named(values):
    data = pd.DataFrame({"k": [1, 2, 1, 1], "odd": values, "x": 1.0})
    with pytest.raises(TypeError, match=r"column 'odd' has the dtype .* numeric_only=True"):
        gp.groupby(data, "k").mean()
    assert list(gp.groupby(data, "k").mean(numeric_only=True)) == ["x"]
    pd.testing.assert_frame_equal(gp.groupby(data, "k").count(), data.groupby("k").count())


def test_errors():
    with pytest.raises(KeyError, match="nope"):
        gp.groupby(FRAME, "nope")
    with pytest.raises(KeyError, match="nope"):
        gp.groupby(FRAME, "day")["nope"]
    with pytest.raises(TypeError, match=r"must be a pandas.DataFrame or Series, not list"):
        gp.groupby([1], "day")
    with pytest.raises(TypeError, match="ddof must be a real number"):
        gp.groupby(FRAME, "day")["x"].var(ddof="1")
    with pytest.raises(ValueError, match="numeric_only must be True or False, not 'x'"):
        gp.groupby(FRAME, "day").mean("x")


def test_columns_in_place_of_keys():
    data = pd.DataFrame({"k": [1, 2, 2], "j": [3, 3, 4], "x": [1.0, 2.0, 3.0]})
    for keys, columns in (
        (["k"], "k"),
        (["k"], ["k", "x"]),
        (["k", "j"], ["j", "x"]),
        (["k"], "x"),
    ):
        for kind in ("sum", "mean", "count"):
            found = getattr(gp.groupby(data, keys, as_index=False)[columns], kind)()
            want = getattr(data.groupby(keys, as_index=False)[columns], kind)()
            pd.testing.assert_frame_equal(found, want)
