"""Groups of Polars frames: keys and nulls of Polars, and the bits of exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpureduce import _host, exact

pl = pytest.importorskip("polars")
pytest.importorskip("polars.testing")
gp = pytest.importorskip("gpureduce.polars")

RNG = np.random.default_rng(6)
N = 300
X = RNG.standard_normal(N)
FRAME = pl.DataFrame({
    "city": RNG.choice(["Bern", "Basel", "Genf"], N), "day": RNG.integers(0, 3, N),
    "f": RNG.choice([0.5, np.nan, -0.0, 0.0], N), "x": X, "x4": X.astype("f4"),
    "i": RNG.integers(-9, 9, N), "u": RNG.integers(0, 9, N).astype("u4"), "b": X > 0,
}).with_columns(pl.when(pl.col("x") < 1).then(pl.col("city")).alias("city"),
                pl.when(pl.col("x") < 0.8).then(pl.col("x", "i")).name.keep())  # fmt: skip


@pytest.mark.parametrize("kind", ["sum", "mean", "var", "std", "count"])
@pytest.mark.parametrize(
    "keys", [["city"], ["day", "city"], ["f"], [pl.col("day") % 2]], ids=range(4)
)
def test_frames_are_those_of_polars(keys, kind):
    data = FRAME.drop({"city", "day", "f"} - {str(key) for key in keys} - {"day"})
    for how in ({}, {"ddof": 0}, {"ddof": 2}) if kind in ("var", "std") else ({},):
        every = [getattr(pl.all(), kind)(**how)]
        right = data.group_by(keys, maintain_order=True).agg(*every)
        found = getattr(gp.group_by(data, keys), kind)(**how)
        pl.testing.assert_frame_equal(found, right, rel_tol=1e-5, abs_tol=1e-5, check_dtypes=False)


def test_bits_are_those_of_each_group_in_any_order():
    big = np.tile([2.0**60, 3.0, -(2.0**60), 2.0**-9], 60)
    data = pl.DataFrame({"k": np.arange(240) * 7 % 11, "x": big, "y": big[::-1].astype("f4")})
    for name, column in itertools.product(("sum", "mean", "var", "std"), "xy"):
        how = {"ddof": 1} if name in ("var", "std") else {}
        parts = [data.filter(pl.col("k") == k)[column].to_numpy() for k in range(11)]
        right = [getattr(exact, name)(part, **how) for part in parts]
        for seed in range(3):
            some = data.sample(fraction=1, shuffle=True, seed=seed)
            found = getattr(gp.group_by(some, "k")[column], name)().sort("k")[column]
            np.testing.assert_array_equal(found.to_numpy(), np.array(right))


KEYS = {
    "close": [5, 3, 5, 4], "far apart": [-(2**62), 7, 2**62, 7],
    "above int64": [2**63, 2**63 + 1, 2**63, 2**63], "text": list("baab"),
    "small": pl.Series([9, 8, 9, 9], dtype=pl.Int8), "lists": [[1], [2], [1], [1]],
    "wide": pl.Series([2, 1, 1, 2], dtype=pl.Int128),
    "categories": pl.Series(list("baab")).cast(pl.Categorical),
    "dates": pl.Series([3, 1, 1, 3], dtype=pl.Int32).cast(pl.Date),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("missing", [(), (1,), (0, 2), range(4)])
def test_keys_of_any_dtype_and_nulls(name, missing):
    data = pl.DataFrame({"k": pl.Series(KEYS[name]), "x": [1.0, 2.0, 4.0, 8.0]})
    known = [i not in missing for i in range(4)]
    data = data.with_columns(pl.when(pl.Series(known)).then("k").alias("k"))
    right = data.group_by("k", maintain_order=True).agg(pl.col("x").sum())
    pl.testing.assert_frame_equal(gp.group_by(data, "k").sum(), right)
    assert gp.group_by(data[["k"]], "k").sum().shape == (len(right), 1)


def test_groups_have_numbers_of_keys_in_range():
    ids, rest = np.zeros(3, np.int32), (np.zeros(2, np.int64), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="changed"):
        _host.number_groups(np.array([4, 9, 5]), 4, ids, *rest, np.full(2, -1))
    assert _host.number_groups(np.array([5, 4, 5]), 4, ids, *rest, np.full(2, -1)) == 2
    assert (ids.tolist(), *(one.tolist() for one in rest)) == ([0, 1, 0], [2, 1], [0, 1])


def test_empty_frames_and_errors():
    assert gp.group_by(FRAME[:0], "day")["x"].mean().shape == (0, 2)
    from decimal import Decimal

    odd = pl.DataFrame({"k": [1, 1], "s": ["a", None], "d": [Decimal(1), Decimal(2)]})
    for name in "sd":
        with pytest.raises(TypeError, match=f"column '{name}' has the dtype .* no exact mean"):
            gp.group_by(odd, "k")[name].mean()
    assert gp.group_by(odd, "k").count().rows() == [(1, 1, 2)]
    with pytest.raises(TypeError, match=r"must be a polars.DataFrame, not polars.LazyFrame"):
        gp.group_by(FRAME.lazy(), "day")
    with pytest.raises(ValueError, match="at least one column"):
        gp.group_by(FRAME)
    for keeps in (True, False):
        named = gp.group_by(FRAME, "day", maintain_order=keeps).count()
        assert named.equals(gp.group_by(FRAME, "day").count())
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="nope"):
        gp.group_by(FRAME, "nope")
