"""Statistics of Dask arrays: one bit pattern for any chunks and trees, that of gpureduce.exact."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from cases import array_of
from gpureduce import exact
from gpureduce.core import chunk_sums, digits

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")
gd = pytest.importorskip("gpureduce.dask")

NAMES = ["mean", "var", "std", "norm", "nansum", "nanmean", "nanvar", "nanstd"]
DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "bool"]
CHUNKS = [((5, 8, 2), 2), ((12, 3, 3), None), ((4, 3, 3), {0: 3, 1: 2, 2: 2})]
AXES = [None, 0, -1, (0, 2), ()]


@pytest.fixture(autouse=True)
def in_this_process():
    with dask.config.set(scheduler="synchronous"):
        yield


def numbers(dtype):
    x = array_of(dtype, 12 * 8 * 3).reshape(12, 8, 3).copy()
    if np.dtype(dtype).kind in "fc":
        x[2, 3, 1] = x[4, :, 2] = np.nan
        x[:, 6, 0] = np.nan
    return x


def options(name):
    return [{}] if name[-3:] not in ("var", "std") else [{}, {"ddof": 1}]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_bits_are_those_of_the_whole_array(name, dtype):
    array = numbers(dtype)
    if not name.startswith("nan"):
        array = np.nan_to_num(array).astype(dtype)
    # Each axis has other chunks than for the dtype before; all three come of three dtypes.
    cases = itertools.product(AXES, options(name))
    for number, (axis, how) in enumerate(cases, DTYPES.index(dtype)):
        right = np.asarray(getattr(exact, name)(array, axis=axis, **how))
        chunks, split_every = CHUNKS[number % 3]
        x = da.from_array(array, chunks=chunks)
        lazy = getattr(gd, name)(x, axis=axis, split_every=split_every, **how)
        found = np.asarray(lazy.compute())
        assert lazy.dtype == found.dtype == right.dtype and lazy.shape == right.shape
        same = (found == right) | ((found != found) & (right != right))
        assert same.all(), (axis, how, chunks)


@pytest.mark.parametrize("values", [
    [1e300, -1e300, 1e-300, 5e-324], [2**63 - 1, -(2**63), 2**60 + 1, 3], [np.inf, 1.0, 2.0, 3.0],
    [np.inf, -np.inf, np.nan, 3.0], [1e8, 1e8 + 1, 1e8 + 2, 1e8 + 3], [-0.0, -0.0, -0.0, -0.0],
])  # fmt: skip
def test_edges(values):
    x = np.array(values)
    for name, ord in [("norm", 1), ("norm", np.inf), *((n, None) for n in NAMES)]:
        how = {} if ord is None else {"ord": ord}
        with np.errstate(invalid="ignore"):
            right = getattr(exact, name)(x, **how)
            for chunks in (1, -1):
                lazy = getattr(gd, name)(da.from_array(x, chunks=chunks), split_every=2, **how)
                np.testing.assert_array_equal(lazy.compute(), right, err_msg=name)


def test_norm_of_a_complex_inf_with_nan_is_nan():
    x = da.from_array(np.array([1, complex(np.inf, np.nan), 2]), chunks=1)
    assert np.isnan(gd.norm(x).compute())


def test_chunks_whose_sums_are_floats_and_chunks_of_digits():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((40, 100)).astype(np.float32)
    x[:10] *= 2.0 ** rng.integers(-100, 100, (10, 100))
    x[25, 7], x[30:, 8] = np.inf, np.nan
    kinds = [gd._partial(x[k : k + 10], (0,), True).dtype for k in range(0, 40, 10)]
    assert kinds == [np.int64, np.float64, np.float64, np.float64]
    for name, split_every in itertools.product(("sum", "mean"), (2, 3, 4)):
        for array, axis in ((x, 0), (x.T, 1)):
            with np.errstate(invalid="ignore"):
                right = getattr(exact, name)(array, axis)
            y = da.from_array(array, chunks=(10, 100) if axis == 0 else (100, 10))
            lazy = getattr(gd, name)(y, axis, split_every=split_every)
            np.testing.assert_array_equal(lazy.compute(), right)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16"])
@pytest.mark.parametrize(("shape", "axis"), [((300, 70), 0), ((40, 3000), 1), ((7, 200, 20), 1)])
def test_squares_of_chunks_are_floats(dtype, shape, axis):
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(shape) * 50).astype(dtype)
    wide = x[..., ::-1].astype("f8") * 2.0 ** rng.integers(-200, 200, shape)
    kind = digits.VAR
    assert chunk_sums.of_chunk(x, (axis,), kind).dtype == np.float64
    assert chunk_sums.of_chunk(wide, (axis,), kind).dtype == np.int64
    special = x.astype("f8")
    special[0, ..., 1], special[-1, ..., 0], special[0, ..., 0] = np.nan, np.inf, -np.inf
    assert chunk_sums.of_chunk(special, (axis,), kind).dtype == np.float64
    names = ("var", "std", "norm", "nanvar")
    for number, array in enumerate((x, x.T, wide, special)):
        at = axis if array.shape == shape else array.ndim - 1 - axis
        for k, name in enumerate(names, number):
            k = 2 + k % 2
            y = da.from_array(array, chunks=tuple(-(-n // k) for n in array.shape))
            found = getattr(gd, name)(y, axis=at, split_every=k).compute()
            np.testing.assert_array_equal(found, getattr(exact, name)(array, axis=at))


@pytest.mark.parametrize("tiny", [0.0, 2.0**-470, 2.0**-490, 2.0**-600, 5e-324])
def test_squares_that_float64_may_not_hold(tiny):
    array = np.full((3, 40, 40), tiny)
    array[1, ::7] = 2.0**-300
    array[2, 20:, 20:] = [[1.0] * 20] * 19 + [[3e7] * 20]  # far above the first row
    for axes, name in itertools.product([(1,), (2,), (1, 2), (0, 1, 2)], ["norm", "std"]):
        for part in (array, array[:, ::2], np.asfortranarray(array)):
            kind = digits.NORM if name == "norm" else digits.STD
            block = chunk_sums.of_chunk(part, axes, kind)
            found = chunk_sums.finished(chunk_sums.merged([block]), kind, np.dtype("f8"))
            right = getattr(exact, name)(part, axis=axes, keepdims=True)
            np.testing.assert_array_equal(found, right)


# As dask/array/tests/test_reductions.py does: shapes, `_meta` and values beside NumPy's.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_dasks_own_checks(name, keepdims):
    array = np.random.default_rng(3).standard_normal((10, 11, 2))
    array[3, 4] = np.nan if name.startswith("nan") else 0
    x = da.from_array(array, chunks=(4, 6, 1))
    for axis in (None, 0, 1, -1, (0, 1), (1, 2)):
        right = (np.linalg.vector_norm if name == "norm" else getattr(np, name))(
            array, axis=axis, keepdims=keepdims
        )
        for split_every in (None, 2, {0: 2, 1: 4}):
            found = getattr(gd, name)(x, axis=axis, keepdims=keepdims, split_every=split_every)
            assert found._meta.ndim == np.ndim(right) and found._meta.dtype == right.dtype
            da.utils.assert_eq(found, right)
    unknown = x[:, 0, 0][x[:, 0, 0] > 0]
    da.utils.assert_eq(getattr(gd, name)(unknown), getattr(gd, name)(unknown.compute()))


@pytest.mark.slow
def test_dasks_own_tests(tmp_path):
    pytest.importorskip("dask.array.tests.test_reductions")
    tests = "reductions_ or names or tree_reduce or 3940 or independence or (nan and object)"
    left_out = "datetime or (x0 and c8)"  # NumPy: (inf + 0j) / 1 is inf + nan j
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "dask_shim", "-p", "no:cacheprovider",
         "--pyargs", "dask.array.tests.test_reductions", "-k", f"({tests}) and not ({left_out})"],
        check=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda x: gd.var(x, dtype="i4"), TypeError, "must be a float or complex dtype"),
    (lambda x: gd.var(x, ddof="1"), TypeError, "ddof must be a real number"),
    (lambda x: gd.mean(x, axis=2), np.exceptions.AxisError, "2"),
    (lambda x: gd.norm(x, ord=3), ValueError, "ord must be 1, 2 or inf, not 3"),
    (lambda x: gd.norm(x + 1j, ord=1), TypeError, "order 1 of complex"),
    (lambda x: gd.std(x.astype("M8[s]")), TypeError, "cannot be summed"),
])  # fmt: skip
def test_errors_come_before_anything_is_computed(call, kind, text):
    with pytest.raises(kind, match=text):
        call(da.ones(10, chunks=3))
