"""The accessor of xarray: xarray's names, coordinates and attributes, and the bits of exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpureduce import exact
from user_kernels import some

xr = pytest.importorskip("xarray")
gx = pytest.importorskip("gpureduce.xarray")

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(8)
TIME = np.arange("2000-01", "2002-01", dtype="M8[M]").astype("M8[ns]")


def dataset(chunks=None):
    x = RNG.standard_normal((24, 4, 5))
    x[3], x[:, 1, 2], x[7, 2, 3] = np.nan, np.nan, np.inf
    found = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), x, {"units": "K"}),
            "f4": (("time", "lat"), x[:, :, 0].astype("f4")),
            "n": ("time", np.arange(24)),
            "ok": (("lat",), x[0, :, 0] > 0),
            "z": (("time", "lat"), x[:, :, 0] + 1j),
            "height": ((), 2.0),
        },
        {
            "time": TIME,
            "lat": [0.0, 1, 2, 3],
            "area": (("lat", "lon"), np.arange(1, 21.0).reshape(4, 5)),
        },
        {"title": "a test"},
    )
    return found.chunk(chunks) if chunks else found


def chunked():
    return [{}, pytest.param({"time": 5, "lat": 3}, id="dask")]


@pytest.fixture(params=[None, {"time": 5, "lat": 3, "lon": 2}], ids=["numpy", "dask"])
def data(request):
    if request.param:
        pytest.importorskip("dask.array")
    return dataset(request.param)


def close(found, right):
    xr.testing.assert_allclose(found.compute(), right.compute(), rtol=1e-5, atol=1e-6)
    assert type(found) is type(right)
    pairs = found.data_vars.items() if isinstance(found, xr.Dataset) else [(found.name, found)]
    for name, one in pairs:
        other = right[name] if isinstance(right, xr.Dataset) else right
        assert (one.dims, one.dtype, one.attrs) == (other.dims, other.dtype, other.attrs), name
        assert list(one.coords) == list(other.coords) and one.chunks == other.chunks
    assert found.attrs == right.attrs


KINDS = {"sum": [{}, {"min_count": 20}, {"skipna": False}], "mean": [{}, {"skipna": False}],
         "var": [{}, {"ddof": 1}], "std": [{"ddof": 1}, {"skipna": True}]}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_xarray(data, kind):
    keeps = (None,) if data.chunks else (None, True, False)
    dims = [None, ..., "time", ["time"], ("time", "lat"), [], "lon"]
    cases = itertools.product(dims, KINDS[kind], keeps)
    for number, (dim, how, keep) in enumerate(cases, [*KINDS].index(kind)):
        every = (data.drop_vars(["z"]), data.t2m, data.f4[:, 0])
        for of in every[number % 3 :][:1] if data.chunks else every:  # Dask takes long
            if dim is not None and dim is not ... and not set(np.atleast_1d(dim)) <= set(of.dims):
                with pytest.raises(ValueError, match="not found"):
                    getattr(of.exact, kind)(dim, **how)
                continue
            if how.get("min_count") and isinstance(of, xr.Dataset):
                of = of[["t2m"]]
            right = getattr(of, kind)(dim, keep_attrs=keep, **how)
            close(getattr(of.exact, kind)(dim, keep_attrs=keep, **how), right)
    close(getattr(data.t2m.exact, kind)("lat", keepdims=True),
          getattr(data.t2m, kind)("lat", keepdims=True))  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_those_of_xarray(data, kind):
    calls = [
        lambda x: x.groupby("time.month"),
        lambda x: x.groupby_bins("lat", [-1, 0.5, 2.5, 9]),
        lambda x: x.groupby("time.season"),
        lambda x: x.coarsen(time=6),
        lambda x: x.resample(time="QS"),
    ]
    for of in (data[["t2m", "f4"]],) if data.chunks else (data[["t2m", "f4"]], data.t2m):
        for call in calls[[*KINDS].index(kind) % 2 :: 2] if data.chunks else calls:
            close(getattr(call(of.exact), kind)(), getattr(call(of), kind)())
    close(getattr(data.t2m.exact.groupby("time.month"), kind)(...),
          getattr(data.t2m.groupby("time.month"), kind)(...))  # fmt: skip


GROUPINGS = {
    "month": lambda x: x.groupby("time.month"),
    "missing labels": lambda x: x.groupby("label"),
    "missing numbers": lambda x: x.groupby("number"),
    "two dimensions": lambda x: x.groupby("area"),
    "two dimensions, missing": lambda x: x.groupby_bins("area", [3, 6, 7, 7.5, 30]),
    "empty bins": lambda x: x.groupby_bins("lat", [-9, -5, 0.5, 1, 9], labels=[*"dcba"]),
    "by itself": lambda x: x.groupby("lat"),
    "labels": lambda x: x.groupby(number=xr.groupers.UniqueGrouper(labels=[5.0, 2.0, 1.0])),
    "absent labels": lambda x: x.groupby(number=xr.groupers.UniqueGrouper(labels=[7.0, 1.0])),
    "two groupers": lambda x: x.groupby({
        "label": xr.groupers.UniqueGrouper(), "lat": xr.groupers.BinGrouper([-1, 1.5, 9])}),
    "two along one": lambda x: x.groupby(["label", "time.season"]),
    "overlap": lambda x: x.groupby(time=xr.groupers.SeasonGrouper(["DJF", "JFM", "JJAS"])),
    "seasons": lambda x: x.resample(time=xr.groupers.SeasonResampler(["DJF", "MAM", "JJASON"])),
    "periods": lambda x: x.resample(time="QS-FEB"),
    "more periods": lambda x: x.resample(time="7D"),
}  # fmt: skip
# Groups of one element each, which are reduced one by one; and labels that xarray refuses.
ALONE = ("by itself", "two dimensions", "more periods", "absent labels")


def same(found, right):
    xr.testing.assert_identical(found, right)
    assert [*found.coords] == [*right.coords] and found.dims == right.dims
    if isinstance(right, xr.Dataset):
        assert [*found] == [*right]
        for name in right.variables:
            assert found[name].dims == right[name].dims and found[name].dtype == right[name].dtype
    else:
        assert found.dtype == right.dtype


# Without --slow, each grouping has one kind of result, and the next grouping the next kind.
@pytest.mark.parametrize(("grouping", "kind"), [
    pytest.param(grouping, kind, marks=() if i % len(KINDS) == j else pytest.mark.slow)
    for i, grouping in enumerate(GROUPINGS) for j, kind in enumerate(KINDS)])  # fmt: skip
def test_all_groups_at_once_are_those_one_by_one(kind, grouping, monkeypatch):
    """By segments of one call: the bits, names and coordinates of groups that are reduced alone."""
    data = dataset().assign_coords(
        label=("time", np.array([*"abcabd"] * 4, object)), scalar=3.0,
        number=("time", np.array([2, 1, 5, np.nan] * 6)),
    )  # fmt: skip
    data["label"][[3, 9]] = None
    data["small"] = data.t2m.astype("f2")
    data["still"] = ("lat", np.arange(4) / 3)
    data["text"] = ("time", np.array([*"text"] * 6))
    swapped = data.t2m.transpose("lon", "lat", "time")
    whole = data.t2m.fillna(1.25)[:, ::-1, ::2]
    at_once, made = gx._by_segment, []  # of each call: whether all groups went at once
    monkeypatch.setattr(gx, "_by_segment", lambda *args: made.append(at_once(*args)) or made[-1])
    calls = [(of, {}) for of in (data, data.t2m, swapped, data.z, data.ok)]
    calls += [(data.t2m, {"dim": dim}) for dim in (..., ["time", "lat"], [])]
    calls += [(of, how | {"keep_attrs": False}) for of in (whole, data) for how in KINDS[kind]]
    for of, how in calls:
        try:
            groups = GROUPINGS[grouping](of.exact)
        except (AttributeError, KeyError, ValueError):  # older than the grouper, or not of these
            continue
        with monkeypatch.context() as alone:
            alone.setattr(gx, "_by_segment", lambda *args: None)
            try:
                right = getattr(groups, kind)(**how)
            except (TypeError, ValueError) as error:  # of text, dims or absent labels
                with pytest.raises(type(error)):
                    getattr(groups, kind)(**how)
                continue
        same(getattr(groups, kind)(**how), right)
    assert any(one is not None for one in made) != (grouping in ALONE)


def test_weights_are_those_of_xarray(data):
    area, days = data.area, data.time.dt.days_in_month
    zero = days * (data.n > 99)
    every = (zero,) if data.chunks else (area, days, area * days, zero)
    for weights, of in itertools.product(every, (data[["t2m", "f4"]], data.t2m)):
        for dim, kind in itertools.product((None, ["lat", "time"]),
                                           ("sum", "mean", "sum_of_weights")):  # fmt: skip
            found = getattr(of.exact.weighted(weights), kind)(dim)
            right = getattr(of.weighted(weights), kind)(dim)
            xr.testing.assert_allclose(found.compute(), right.compute(), rtol=1e-5)
            assert found.attrs == right.attrs
    with pytest.raises(ValueError, match="cannot contain missing"):
        data.t2m.exact.weighted(data.t2m).mean().compute()


def test_bits_do_not_depend_on_chunks():
    pytest.importorskip("dask.array")
    x = xr.DataArray(RNG.standard_normal((50, 6)) * 10.0 ** RNG.integers(-9, 9, (50, 6)),
                     dims=("t", "y"), coords={"k": ("t", np.arange(50) * 7 % 4)})  # fmt: skip
    w = abs(x[:, 0])
    for kind in KINDS:
        right = getattr(exact, kind)(x.values, axis=0)
        parts = [getattr(exact, kind)(x.values[x.k == k], axis=0) for k in range(4)]
        for chunks in (None, 17, {"t": 9, "y": 4}):
            some = x.copy(data=x.chunk(chunks).data) if chunks else x
            np.testing.assert_array_equal(getattr(some.exact, kind)("t"), right)
            found = getattr(some.exact.groupby("k"), kind)().transpose("k", "y")
            np.testing.assert_array_equal(found, np.array(parts))
            mean = some.exact.weighted(w).mean("t")
            np.testing.assert_array_equal(mean, exact.average(x.values, 0, w.values))


@pytest.mark.parametrize(
    ("groups", "is_rare", "scale"),  # long groups and short ones
    some(itertools.product([5, 500], [False, True], [0.125, 1e-9, 1e200]), 2),
)
def test_missing_numbers_beside_close_ones(scale, groups, is_rare):
    """Missing numbers become zeros, which are far from all other numbers of their sums."""
    x = 1e8 + scale * RNG.integers(0, 9, (4000, 3))
    x[[7, 3001], [0, 2]] = np.nan
    if not is_rare:
        x[1::7, 0], x[3990:, 1], x[5::250, 2] = np.nan, np.nan, np.inf
    data = xr.DataArray(x, dims=("t", "y"), coords={"k": ("t", np.arange(4000) * 7 % groups)})
    for dtype, kind in itertools.product(("f8", "f4", "c16"), KINDS):
        some, of = data.astype(dtype), getattr(exact, f"nan{kind}")
        parts = [of(some.values[some.k.values == k], axis=0) for k in range(groups)]
        found = getattr(some.exact.groupby("k"), kind)()
        np.testing.assert_array_equal(found, np.array(parts))


def test_issue_10026_of_xarray():
    """A float32 mean of 0.5 was 0.125 with bottleneck."""
    x = xr.DataArray(np.full(2**26, 0.5, np.float32), dims="t")
    assert float(x.exact.mean()) == 0.5


@pytest.mark.parametrize("dtype", ["M8[ns]", "m8[ns]", "U3", "O"])
def test_variables_without_numbers_are_named(dtype):
    x = xr.DataArray(np.zeros(3, "i8").astype(dtype), dims="t", name="odd")
    with pytest.raises(TypeError, match=r"'odd' has the dtype .* no exact mean"):
        x.exact.mean()
    both = xr.Dataset({"x": ("t", np.ones(3)), "odd": x})
    if dtype[0] in "mM":
        with pytest.raises(TypeError, match="'odd' has the dtype"):
            both.exact.mean()
    else:
        assert list(both.exact.mean()) == list(both.mean()) == ["x"]


def test_groups_of_nothing_and_of_one_element_each():
    none = xr.DataArray(np.zeros((4, 0)), dims=("t", "y"), coords={"k": ("t", [1, 2, 1, 1])})
    one = xr.DataArray([1.0, 2.0], dims="y", coords={"y": [1, 2], "w": ("y", [7, 8])})
    for x, key in ((none, "k"), (one, "y")):
        for kind in ("mean", "sum", "std"):
            want = getattr(x.groupby(key), kind)()
            xr.testing.assert_identical(getattr(x.exact.groupby(key), kind)(), want)
