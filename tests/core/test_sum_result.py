"""SumResult: the pair (value, timing) where it is unpacked, and otherwise its value."""

from __future__ import annotations

import ast
import base64
import copy
import gc
import pickle
import re
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.mixins import NDArrayOperatorsMixin

import gpureduce
from gpureduce import SumResult

FLOAT, WHOLE = np.float64(66.5), np.int64(6)
ROWS = np.array([3.0, 5.0, 7.0])
TIMING = gpureduce.sum(np.ones(2)).timing
F, W, R = (SumResult(value, TIMING) for value in (FLOAT, WHOLE, ROWS))

NAMES = {"np": np, "gpureduce": gpureduce, "SumResult": SumResult, "ROWS": ROWS}
NAMES |= {name: __import__(name) for name in ("math", "cmath", "operator", "fractions")}
RESULTS, VALUES = {"F": F, "W": W, "R": R}, {"F": FLOAT, "W": WHOLE, "R": ROWS}

# An expression of the results F, W and R has the value and the type that it has of their values.
EXPRESSIONS = """
    F == 66.5; F != 66.5; F < 67; F <= 66.5; F > 66; F >= 67; 66.5 == F; 66 < F
    F == F; W < F; np.float64(66.5) == F; np.float32(1) < F; F == fractions.Fraction(133, 2)
    R == ROWS; R == [3, 5, 7]; R < 6; ROWS == R; ROWS <= R; R == R; 5 in R; 4.0 in R
    F + 1; F - 1; F * 2; F / 2; F // 2; F % 2; F ** 2; divmod(F, 2); divmod(200, F)
    1 + F; 1 - F; 2 * F; 2 / F; 200 // F; 200 % F; 2 ** W; F + F; F - W
    np.float64(2) * F; np.float32(2) * F; np.int64(2) + W; 2j * F; True + W
    ROWS + F; F + ROWS; ROWS - R; R - ROWS; ROWS / R; R / 2; R @ R; ROWS @ R; R @ ROWS; -R
    W << 1; W >> 1; W & 3; W | 8; W ^ 1; 1 << W; 100 >> W; 3 & W; 8 | W; 1 ^ W; ~W
    -F; +F; abs(-F); hash(F); hash(W); bool(F); bool(F - F); not F
    int(F); float(F); complex(F); float(W); operator.index(W); range(W); "abcdefg"[W]; [1] * W
    round(F); round(F, 1); round(F, -1); math.trunc(F)
    math.floor(F); math.ceil(F); math.sqrt(F); math.isclose(F, 66.5); math.gcd(W, 4)
    math.fsum([F, F]); cmath.sqrt(F); "%d" % W; "%x" % W; "%.2f" % F; "%d %5.1f" % (W, F)
    f"{F}"; f"{F:.3f}"; f"{W:>5d}"; f"{R}"; "{0} {0:e}".format(F); format(F, "")
    np.asarray(F); np.asarray(R); np.asarray(R, np.float32); np.asarray(F, dtype="f4")
    np.array(R, copy=True); np.array([F, F]); np.float64(F); np.int64(W); np.result_type(F)
    np.isclose(F, 66.5); np.isclose(R, ROWS); np.allclose(R, ROWS); np.sqrt(R); np.add(F, 1)
    np.add.reduce(R); np.multiply.outer(R, R); np.concatenate([R, R]); np.where(R > 4, R, F)
    np.sum(R); np.mean(R); np.shape(R); np.ndim(F); np.full(2, F);
    np.exp(F, dtype=np.float32); np.add(ROWS, 1, where=R > 4, out=np.zeros(3))
    sum([F, W]); max(float(F), float(W)); sorted([3, W, 9])[0]; R.shape; R.tolist(); F.item()
    R.sum(); R.dtype; F.is_integer(); R.mean(axis=0); gpureduce.sum(R).value
    gpureduce.sum(ROWS, axis=0, initial=F).value
"""


@pytest.mark.parametrize(
    "expression", [one.strip() for one in EXPRESSIONS.replace("\n", ";").split(";") if one.strip()]
)
def test_everything_else_is_the_value(expression):
    found, wanted = (eval(expression, NAMES | names) for names in (RESULTS, VALUES))
    assert type(found) is type(wanted)
    np.testing.assert_equal(found, wanted)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("bool(R)", "truth value"),
        ("hash(R)", "unhashable"),
        ("operator.index(F)", "cannot be interpreted as an integer"),
        ("range(F)", "cannot be interpreted as an integer"),
        ("float(R)", "scalar|only"),
        ("round(R)", "ndarray doesn't define __round__"),
        ("F << 1", "not supported|unsupported operand"),
        ("F + 'a'", "."),
        ("F < None", "not supported between"),
    ],
)
def test_errors_are_the_values(expression, error):
    for names in (RESULTS, VALUES):
        with pytest.raises((TypeError, ValueError), match=error):
            eval(expression, NAMES | names)


@pytest.mark.parametrize("result", [F, W, R], ids=["float", "integer", "array"])
def test_the_pair(result):
    value, timing = result
    assert value is result.value is result[0] is result[-2] is next(iter(result))
    assert timing is result.timing is result[1] is result[-1] is result[np.int64(1)]
    assert len(result) == 2 and len([*result]) == 2
    match result:
        case first, second:
            assert first is value and second is timing
        case _:
            raise AssertionError("a result matches a pair")
    match result:
        case SumResult(value=first, timing=second):
            assert first is value and second is timing
    match result:
        case SumResult(first, second):
            assert first is value and second is timing


def test_items_that_are_none():
    for key, error in ((2, IndexError), (-3, IndexError), (2**100, IndexError)):
        with pytest.raises(error, match=r"two items, \[0\] the value and \[1\] the timing"):
            R[key]
    for key in (slice(1), (0, 1), "value", None, ..., ROWS > 4, np.array([0, 1])):
        with pytest.raises(TypeError, match=r"for elements of the value write .value\[...\]"):
            R[key]


def test_changes_in_place_are_those_of_the_array():
    array = np.ones(3)
    same = array
    array += R
    array *= W
    assert array is same and array.tolist() == [24, 36, 48]
    array[0] = F
    array[1:] = W
    assert array.tolist() == [66.5, 6, 6]
    total = F
    total += 1
    assert type(total) is np.float64 and total == 67.5 and F == 66.5
    written = SumResult(np.zeros(3), None)
    assert np.add(ROWS, 1, out=written) is written.value and written.value.tolist() == [4, 6, 8]


def test_only_str_and_repr_show_the_timing():
    line = str(TIMING)
    assert re.fullmatch(r"2 float64 by exact on cpu: [\d.e-]+ ms, the call [\d.e-]+ ms", line)
    assert str(F) == f"{F!s}" == f"66.5\n{line}"
    assert repr(F) == f"SumResult({FLOAT!r}, {line})"
    assert str(R) == f"{ROWS}\n{line}" and repr(R) == f"SumResult({ROWS!r}, {line})"
    untimed = SumResult(FLOAT, None)
    assert str(untimed) == "66.5" and repr(untimed) == f"SumResult({FLOAT!r}, None)"
    large = replace(TIMING, kernel_ms=0.5, nbytes=2**20, total_ms=0.75)
    assert str(large).endswith(": 0.5 ms (2.1 GB/s), the call 0.75 ms")
    emulated = gpureduce.sum(np.ones(64), "sequential", device="emulator").timing
    assert ": emulated in " in str(emulated) and "GB/s" not in str(emulated)


class _OnAGpu:
    """A value of another library, which NumPy cannot read."""

    @property
    def __cuda_array_interface__(self):
        return {"version": 3}

    def __dlpack__(self, **how):
        return how

    def __dlpack_device__(self):
        return 2, 0

    def __array__(self, *_, **__):
        raise TypeError("copy it to the host first")

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return ufunc.__name__, method, inputs, options

    def __add__(self, other):
        return "sum", other


def test_protocols_of_arrays_that_the_value_has():
    there = SumResult(_OnAGpu(), None)
    assert there.__cuda_array_interface__ == {"version": 3}
    assert there.__dlpack__(stream=1) == {"stream": 1} and there.__dlpack_device__() == (2, 0)
    assert R.__dlpack_device__() == (1, 0) and hasattr(R, "__dlpack__")
    for result in (F, W, R):
        assert not hasattr(result, "__cuda_array_interface__")
    assert not hasattr(F, "__dlpack__") and not hasattr(F, "__dlpack_device__")
    with pytest.raises(TypeError, match="to the host first"):
        np.asarray(there)
    assert there + 1 == ("sum", 1)
    assert (np.float64(2) * there)[0] == "multiply"
    assert np.subtract(ROWS, there)[2] == (ROWS, there.value)
    assert np.asarray(R) is ROWS
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # before, it asked the type
        assert np.from_dlpack(R).tolist() == ROWS.tolist()
    with pytest.raises(ValueError, match="copy"):
        np.asarray(F, copy=False)


def test_attributes():
    for name, error in (("timming", "Did you mean|timming"), ("_asdict", "_asdict"), ("_x", "_x")):
        with pytest.raises(AttributeError, match=error):
            getattr(F, name)
    for name in ("value", "timing", "shape"):
        with pytest.raises(AttributeError):
            setattr(F, name, 1)
    assert not hasattr(F, "__deepcopy__") and not hasattr(R, "__array_interface__")


def _untimed(text: str) -> SumResult:
    return pickle.loads(base64.b64decode(text))


# Pickles of the named tuple that SumResult was before, by protocols 2 and 5.
OLD = [
    "gAJjZ3B1cmVkdWNlLmNvcmUucmVzdWx0cwpTdW1SZXN1bHQKcQBjbnVtcHkuX2NvcmUubXVsdGlhcnJheQpzY2FsYXIKcQ"
    "FjbnVtcHkKZHR5cGUKcQJYAgAAAGY4cQOJiIdxBFJxBShLA1gBAAAAPHEGTk5OSv////9K/////0sAdHEHYmNfY29kZWNz"
    "CmVuY29kZQpxCFgIAAAAAAAAAAAAEEBxCVgGAAAAbGF0aW4xcQqGcQtScQyGcQ1ScQ5OhnEPgXEQLg==",
    "gAWVlgAAAAAAAACMFmdwdXJlZHVjZS5jb3JlLnJlc3VsdHOUjAlTdW1SZXN1bHSUk5SMFm51bXB5Ll9jb3JlLm11bHRpYX"
    "JyYXmUjAZzY2FsYXKUk5SMBW51bXB5lIwFZHR5cGWUk5SMAmY4lImIh5RSlChLA4wBPJROTk5K/////0r/////SwB0lGJD"
    "CAAAAAAAABBAlIaUUpROhpSBlC4=",
]
OLD_AND_TIMED = (
    "gASV0gEAAAAAAACMFmdwdXJlZHVjZS5jb3JlLnJlc3VsdHOUjAlTdW1SZXN1bHSUk5SMFm51bXB5Ll9jb3JlLm11bHRpYX"
    "JyYXmUjAZzY2FsYXKUk5SMBW51bXB5lIwFZHR5cGWUk5SMAmY4lImIh5RSlChLA4wBPJROTk5K/////0r/////SwB0lGJD"
    "CAAAAAAAABBAlIaUUpRoAIwGVGltaW5nlJOUKYGUfZQojAlrZXJuZWxfbXOURz99IGyIAAAAjAZoMmRfbXOURwAAAAAAAA"
    "AAjAZkMmhfbXOURwAAAAAAAAAAjAdpbml0X21zlEcAAAAAAAAAAIwIdG90YWxfbXOURz+sP4EfAAAAjAZzb3VyY2WUjAxw"
    "ZXJmX2NvdW50ZXKUjAdiYWNrZW5klIwDY3B1lIwGZGV2aWNllGgdjAhzdHJhdGVneZSMBWV4YWN0lIwFZHR5cGWUjAdmbG"
    "9hdDY0lIwFYmxvY2uUTowEZ3JpZJROjAZmaW5pc2iUjAZzaW5nbGWUjAhsYXVuY2hlc5RLAIwBbpRLAowGbmJ5dGVzlEsQ"
    "jAlwZWFrX2diX3OUTowGcGllY2VzlEsBjAhpbnRlZ3JhbJSJjAdpbml0aWFslIl1YoaUgZQu"
)


@pytest.mark.parametrize("text", OLD, ids=["protocol 2", "5"])
def test_old_pickles_load(text):
    assert tuple(_untimed(text)) == (4.0, None)


def test_an_old_pickle_with_its_timing_loads():
    result = _untimed(OLD_AND_TIMED)
    assert type(result) is SumResult and result == 4 and result.timing.strategy == "exact"
    assert (result.timing.n, result.timing.nbytes) == (2, 16)


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy]
    + [lambda one, p=p: pickle.loads(pickle.dumps(one, p)) for p in range(6)],
    ids=["copy", "deepcopy", *(f"pickle {p}" for p in range(6))],
)
def test_copies(again):
    for result in (F, W, R):
        made = again(result)
        assert type(made) is SumResult and made.timing == result.timing
        assert type(made.value) is type(result.value)
        np.testing.assert_array_equal(made, result)
    assert copy.copy(R).value is ROWS and copy.deepcopy(R).value is not ROWS


def test_the_type():
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Mine", (SumResult,), {})
    with pytest.raises(TypeError, match="timing"):
        SumResult(1)
    with pytest.raises(TypeError, match="must be a Timing or None"):
        SumResult(1, F)
    assert SumResult(value=F, timing=None).value is FLOAT  # never a result within another
    assert not isinstance(F, tuple) and SumResult.__module__ == "gpureduce.core.results"
    assert SumResult is type(gpureduce.sum(np.ones(3))) is gpureduce.core.results.SumResult


def test_cycles_are_collected():
    class Marked(list):
        pass

    held = Marked()
    result = SumResult(held, None)
    held.append(result)
    alive = weakref.ref(held)
    del held, result
    gc.collect()
    assert alive() is None


def test_the_stub_has_the_methods_of_the_type():
    stub = ast.parse((Path(gpureduce.__file__).parent / "_host.pyi").read_text())
    (body,) = (one.body for one in stub.body if getattr(one, "name", "") == "SumResult")
    stated = {one.name for one in body if isinstance(one, ast.FunctionDef)} - {"__getattr__"}
    stated |= {*vars(NDArrayOperatorsMixin)} & {*dir(SumResult)}
    own = {
        name for name in dir(SumResult) if getattr(object, name, 0) is not getattr(SumResult, name)
    }
    assert stated <= own
    assert own - stated <= {
        "__class__", "__delattr__", "__dir__", "__doc__", "__format__", "__getattribute__",
        "__getstate__", "__hash__", "__init__", "__init_subclass__", "__match_args__",
        "__module__", "__reduce__", "__reduce_ex__", "__repr__", "__rdivmod__", "__setattr__",
        "__sizeof__", "__str__", "__subclasshook__",
    }  # fmt: skip
