"""Missing entries, objects that are no numbers, and arguments that a user may mistake."""

from __future__ import annotations

import collections
import datetime
import importlib
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import gpureduce

NA = type("NAType", (), {"__repr__": lambda _: "<NA>"})()
NA_DTYPE = type("Int64Dtype", (), {"na_value": NA})()
FLOAT_DTYPE = type("Float64", (), {"na_value": float("nan")})()
CATEGORIES = type("CategoricalDtype", (), {"categories": ["x", "y", "z"], "ordered": False})()


class Pandas:
    """A pandas Series or DataFrame, as far as it is looked at."""

    def __init__(self, array, missing, *dtypes):
        self.array, self.missing, self.ndim = np.array(array, float), np.array(missing, bool), 1
        self.dtype = dtypes[0] if len(dtypes) == 1 else None
        if len(dtypes) > 1:
            self.dtypes, self.ndim = dtypes, 2

    def isna(self):
        return self.missing

    def __array__(self, dtype=None, copy=None):
        return self.array


class Arrow:
    """A pyarrow.Array, likewise: null_count is a number."""

    def __init__(self, array, missing=()):
        self.array, self.missing = np.array(array, float), np.array(missing, bool)
        self.null_count = int(self.missing.sum())

    def is_null(self):
        return self.missing

    def __array__(self, dtype=None, copy=None):
        return self.array


class Polars(Arrow):
    """A polars.Series: null_count is a method."""

    def __init__(self, array, missing=()):
        super().__init__(array, missing)
        count = self.null_count
        self.null_count = lambda: count


class Columns:
    """A frame of columns, whose method is called `name`."""

    def __init__(self, name, *columns):
        self.columns_ = columns
        setattr(self, name, lambda: columns)

    def __array__(self, dtype=None, copy=None):
        return np.stack([column.array for column in self.columns_], -1)


MASKED = np.ma.array([1.0, 2, 3, 4], mask=[0, 1, 1, 0])
NAN = float("nan")
MISSING = {
    "pandas": (Pandas([1, NAN, NAN], [0, 1, 1], NA_DTYPE), 2, 1, r"arr.dropna\(\).*fillna\(0\)"),
    "pandas, a frame": (
        Pandas([[NAN, 1], [2, NAN]], [[1, 0], [0, 1]], FLOAT_DTYPE, NA_DTYPE), 1, (1, 1),
        r"arr.dropna\(\)",
    ),
    "pandas, categories": (Pandas([1, NAN], [0, 1], CATEGORIES), 1, 1, r"arr.dropna\(\)"),
    "Polars": (Polars([1, NAN], [0, 1]), 1, 1, r"arr.drop_nulls\(\).*arr.fill_null\(0\)"),
    "Polars, a frame": (
        Columns("get_columns", Polars([1, 2], [0, 0]), Polars([1, NAN], [0, 1])), 1, (1, 1),
        r"arr.drop_nulls\(\)",
    ),
    "Arrow": (Arrow([NAN, NAN, 1], [1, 1, 0]), 2, 0, r"arr.drop_null\(\).*arr.fill_null\(0\)"),
    "Arrow, a table": (Columns("itercolumns", Arrow([NAN, 2], [1, 0])), 1, (0, 0), "drop_null"),
    "masked": (MASKED, 2, 1, r"arr.compressed\(\).*where=~arr.mask.*arr.filled\(0\)"),
    "masked, a matrix": (MASKED.reshape(2, 2), 2, (0, 1), "compressed"),
    "masked alone": (np.ma.masked, 1, None, "compressed"),
    "a producer of a masked array": (type("P", (), {"__array__": lambda *_, **__: MASKED})(), 2, 1,
                                     "compressed"),
    "a list of masked arrays": ([np.ma.array([1.0, 2]), MASKED[:2]], 1, (1, 1), "compressed"),
    "a list with masked": ([1.0, np.ma.masked, np.ma.masked], 2, 1, "leave them out"),
    "a list in a list": ([[1.0, 2], [3, np.ma.masked]], 1, (1, 1), "leave them out"),
    "a tuple with None": ((None, 1.0, None), 2, 0, "leave them out, or put a number there"),
    "a list of pandas": ([Pandas([1, NAN], [0, 1], NA_DTYPE)], 1, (0, 1), "dropna"),
    "objects": (np.array([[1, NA], [None, 2]], object), 2, (0, 1), "leave them out"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("call", [gpureduce.sum, lambda a: gpureduce.sum(a, axis=0),
                                  lambda a: gpureduce.Accumulator().add(a), gpureduce.digits,
                                  lambda a: gpureduce.sum_parts([a])],
                         ids=["sum", "axis", "Accumulator", "digits", "sum_parts"])  # fmt: skip
def test_missing_entries_are_counted_and_the_first_is_told(name, call):
    given, count, first, cure = MISSING[name]
    entries = "entry" if count == 1 else "entries"
    where = "" if first is None else f", the first at {first}"
    wanted = rf"^(part 0: )?\w+ has {count} (missing|masked) {entries}{re.escape(where)}: .*{cure}"
    with pytest.raises(TypeError, match=wanted):
        call(given)


@pytest.mark.parametrize(
    "given",
    [
        Pandas([1, 2], [0, 0], NA_DTYPE),
        Polars([1, 2], [0, 0]),
        Columns("itercolumns", Arrow([1], [0]), Arrow([2], [0])),
        np.ma.array([1.0, 2.0]),
        [[1.0], [2.0]],
        [np.float64(1), 2],
        collections.deque([1, 2]),
        range(1, 3),
    ],
    ids=lambda given: type(given).__name__,
)
def test_without_missing_entries(given):
    assert gpureduce.sum(given) == 3


def test_nan_of_a_column_of_floats_is_a_number():
    assert np.isnan(gpureduce.sum(Pandas([1, NAN], [0, 1], FLOAT_DTYPE)).value)


REAL = {
    "pandas": [
        "pandas.Series([1, None], dtype='Int64')",
        "pandas.array([1.5, None], dtype='Float64')",
        "pandas.Series([True, None], dtype='boolean')",
        "pandas.Series([1, None], dtype='category')",
        "pandas.DataFrame({'a': pandas.array([1, None], dtype='Int64')})",
    ],
    "polars": ["polars.Series([1, None])", "polars.DataFrame({'a': [1.5, None]})"],
    "pyarrow": [
        "pyarrow.array([1, None])",
        "pyarrow.chunked_array([[1.5], [None]])",
        "pyarrow.table({'a': [1, None]})",
    ],
}


@pytest.mark.parametrize("expression", [one for every in REAL.values() for one in every])
def test_missing_entries_of_the_libraries_themselves(expression):
    name = expression.partition(".")[0]
    library = pytest.importorskip(name)
    with pytest.raises(TypeError, match=r"has 1 missing entry, the first at (1|\(1, 0\)): "):
        gpureduce.sum(eval(expression, {name: library}))


@pytest.mark.parametrize("name", ["pandas", "Polars", "Arrow", "masked", "a tuple with None"])
def test_masks_that_miss_entries(name):
    """Those of a masked array counted as they lay in memory."""
    given, count, first, _ = MISSING[name]
    entries = "entry" if count == 1 else "entries"
    wanted = f"has {count} (missing|masked) {entries}, the first at {first}: where needs True or"
    for options in ({}, {"axis": 0}, {"device": "emulator"}):
        with pytest.raises(TypeError, match=wanted):
            gpureduce.sum(np.ones(4), where=given, **options)
    assert gpureduce.sum([1, 2, 4], where=np.ma.array([True, False, True])) == 5


class Sparse:
    nnz, shape = 3, (2, 2)

    def toarray(self):
        raise AssertionError("a sparse matrix is not made dense silently")


OBJECTS = {
    "None is no number: pass an array": None,
    r"a generator can be read only once: pass list\(arr\), or numpy.fromiter": (x for x in "12"),
    r"a map can be read only once: pass list\(arr\)": map(int, "12"),
    r"a set is no array: pass list\(arr\)": {1, 2},
    r"a frozenset is no array: pass list\(arr\)": frozenset({1}),
    r"a dict_values is no array: pass list\(arr\)": {"a": 1}.values(),
    r"a dict has keys and values: pass list\(arr.values\(\)\)": {"a": 1},
    r"^Decimal is neither .* pass numpy.array\(values, float\)": Decimal("1.5"),
    "element 1: Decimal is neither an integer nor a float": [1, Decimal("1.5")],
    "element 0: Fraction is neither": [Fraction(1, 2)],
    r"^the integer 18446744073709551616 is beyond 64 bits.*Python's sum": 2**64,
    "element 1: the integer -9223372036854775809 is beyond 64 bits": [1, -(2**63) - 1],
    "element 0: the integer a far larger number is beyond": [2**200],
    r"NumPy would round this list to floats, .* numpy.array\(arr, numpy.uint64\)": [
        2**63,
        1,
    ],
    "NumPy would round this list to floats": [[np.uint64(2**64 - 1), np.int64(-5)]],
    r"Sparse is sparse: pass arr.data.*arr.toarray\(\).*offsets=arr.indptr": Sparse(),
    "element 0: a timedelta is no number: pass numpy.array": [datetime.timedelta(1)],
    r"element 1: str is no number: 'a'": np.array([1, "a"], object),
    r"^object is no number": object(),
    r"^type is no number": int,
    r"dtype object cannot be summed: pass arr.astype\(float\)": np.array([1, 2.5], object),
    "an Accumulator is not an array": [gpureduce.Accumulator()],
}


@pytest.mark.parametrize("words", OBJECTS)
def test_each_object_has_a_sentence(words):
    for options in ({}, {"axis": 0}, {"timing": False}, {"strategy": "sequential"}):
        with pytest.raises(TypeError, match=words):
            gpureduce.sum(OBJECTS[words], **options)
    assert gpureduce.sum([1, 2]) == 3


def test_sparse_matrices_of_scipy():
    matrix = pytest.importorskip("scipy.sparse").csr_matrix(np.eye(3))
    with pytest.raises(TypeError, match=r"a csr_matrix is sparse: pass arr\.data"):
        gpureduce.sum(matrix)
    assert gpureduce.sum(matrix.data) == 3
    assert gpureduce.segment_sum(matrix.data, offsets=matrix.indptr).tolist() == [1, 1, 1]


# --- segment ids --------------------------------------------------------------------------------


class Categorical:
    dtype = CATEGORIES

    def __init__(self, *codes):
        self.codes = np.array(codes, np.int8)


class SeriesOfCategories:
    dtype = CATEGORIES

    def __init__(self, *codes):
        self.cat = Categorical(*codes)


@pytest.mark.parametrize("kind", [Categorical, SeriesOfCategories])
def test_ids_that_are_categories(kind):
    sums = gpureduce.segment_sum([1.0, 2.0, 4.0], kind(1, 0, 1))
    assert sums.tolist() == [2, 5, 0]  # one for each category
    assert gpureduce.segment_sum([1.0, 2.0], kind(1, 0), num_segments=2).tolist() == [2, 1]
    for strategy, device in (("auto", "emulator"), ("numpy", None), ("key_atomic", "emulator")):
        values = np.array([1, 2, 4], np.float32)
        sums = gpureduce.segment_sum(values, kind(1, 0, 1), strategy=strategy, device=device)
        assert sums.tolist() == [2, 5, 0]
    wanted = r"2 segment_ids have no category \(code -1\), the first at 1: .*segment_ids.notna\(\)"
    with pytest.raises(ValueError, match=wanted):
        gpureduce.segment_sum([1.0, 2.0, 3.0], kind(0, -1, -1))


def test_categories_of_pandas():
    pandas = pytest.importorskip("pandas")
    ids = pandas.Series(["b", "a", "b"]).astype("category")
    for given in (ids, pandas.Categorical(ids), pandas.CategoricalIndex(ids)):
        assert gpureduce.segment_sum([1, 2, 4], given).tolist() == [2, 5]
    with pytest.raises(ValueError, match="1 segment_ids have no category"):
        gpureduce.segment_sum([1, 2], pandas.Categorical(["a", None]))


@pytest.mark.parametrize(
    "ids",
    [["a", "b"], np.array(["a", "b"], object), np.array([b"a", b"b"]), ("a", 1),
     np.array(["a", float("nan")], object)],
    ids=str,
)  # fmt: skip
def test_ids_that_are_strings(ids):
    with pytest.raises(
        TypeError, match=r"names, segment_ids = numpy.unique\(segment_ids, return_inv"
    ):
        gpureduce.segment_sum([1.0, 2.0], ids)


def test_ids_that_are_missing():
    wanted = r"has 1 missing entry, the first at 1: leave out these rows of values and segment_ids"
    for ids in ([0, None], Pandas([0, NAN], [0, 1], NA_DTYPE), Arrow([0, NAN], [0, 1]),
                np.ma.array([0, 1], mask=[0, 1])):  # fmt: skip
        with pytest.raises(TypeError, match=wanted.replace("missing", "m(iss|ask)(ing|ed)")):
            gpureduce.segment_sum([1.0, 2.0], ids)
    with pytest.raises(TypeError, match="element 0: Decimal"):
        gpureduce.segment_sum([1.0], np.array([Decimal(1)], object))


# --- arguments ----------------------------------------------------------------------------------

A = np.ones((3, 4))


@pytest.mark.parametrize("axis", [0, -1, (0, 1), None, np.int64(1)], ids=str)
def test_an_axis_in_the_place_of_the_strategy(axis):
    for options in ({}, {"timing": False}, {"keepdims": True}):
        with pytest.raises(TypeError, match=re.escape(f"write axis={axis!r}")):
            gpureduce.sum(A, axis, **options)


@pytest.mark.parametrize("axis", [True, False, (True,), (0, True), np.True_], ids=str)
@pytest.mark.parametrize("options", [{}, {"device": "emulator"}, {"where": A > 0}], ids=str)
def test_an_axis_that_is_a_bool(axis, options):
    with pytest.raises(TypeError, match="axis must be a whole number, a tuple of them or None"):
        gpureduce.sum(A, axis=axis, **options)


@pytest.mark.parametrize(
    ("call", "keyword", "hint"),
    [
        (gpureduce.sum, "axes", "did you mean axis?"),
        (gpureduce.sum, "keepdim", "did you mean keepdims?"),
        (gpureduce.sum, "dim", "did you mean axis?"),
        (gpureduce.sum, "xyz", "there are arr, strategy, dtype, "),
        (gpureduce.segment_sum, "num_segment", "did you mean num_segments?"),
        (gpureduce.segment_sum, "segments", "did you mean segment_ids"),
        (gpureduce.sum_parts, "part_axis", "did you mean parts_axis"),
        (gpureduce.digits, "axes", "did you mean axis?"),
        (gpureduce.segment_digits, "offset", "did you mean offsets?"),
        (gpureduce.integrate, "strat", "did you mean strategy?"),
        (gpureduce.trapezoid, "where", "there are y, x, dx, strategy, "),
        (gpureduce.trapezoid, "devise", "did you mean device?"),
        (gpureduce.explain, "blok", "did you mean block?"),
        (gpureduce.races, "schedule", "did you mean schedules?"),
        (gpureduce.benchmark, "strategy", "did you mean strategies?"),
        (gpureduce.tune, "divice", "did you mean device?"),
        (gpureduce.kernel, "element", "did you mean elements?"),
        (gpureduce.check, "sizs", "did you mean sizes?"),
        (gpureduce.grade, "sed", "did you mean seed?"),
    ],
)
def test_an_unknown_keyword_suggests_the_nearest(call, keyword, hint):
    wanted = f"{call.__name__}() got an unexpected keyword argument {keyword!r}: {hint}"
    with pytest.raises(TypeError, match=re.escape(wanted)):
        call([1.0], **{keyword: 0})


def test_a_dict_in_the_place_of_a_list():
    """Its keys were added up."""
    with pytest.raises(TypeError, match="parts must be a list"):
        gpureduce.sum_parts({0: np.ones(3), 1: np.ones(3)})


def test_a_choice_that_is_a_string():
    """Any string counted as True."""
    with pytest.raises(TypeError, match="allow_broken must be True or False, not 'no'"):
        gpureduce.sum([1.0], "missing_barrier", allow_broken="no")
    with pytest.raises(TypeError, match="internal must be True or False, not 'keys'"):
        gpureduce.strategies("keys")


def test_a_public_name_that_does_not_exist():
    with pytest.raises(AttributeError) as raised:
        gpureduce.segmentsum  # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("segmentsum", gpureduce)


def test_the_libraries_are_not_imported():
    for name in ("pandas", "polars", "pyarrow"):
        assert name not in vars(importlib.import_module("gpureduce.core.refusals"))
