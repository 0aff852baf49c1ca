"""Audits: each check finds the function that breaks it, and only that one; hostile functions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import threading

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from cases import run_python
from gpureduce import exact
from gpureduce.auditing import libraries
from gpureduce.auditing.checks import CHECKS

N = 9
X = np.random.default_rng(0).standard_normal((N, 700)).astype(np.float32)
X = X[np.argsort(X[:, 0])]
NAMES = [check.name for check in CHECKS]
ON_NUMPY = NAMES[: NAMES.index("threads")]


def failed(found):
    return [one.check for one in found.findings if one.holds is False]


def applied(found):
    return [one.check for one in found.findings if one.holds is not None]


# By check: whether a call is one of that check's.
FAULTS = {
    "permuted": lambda x, state: len(x) == N and x[0, 0] > x[-1, 0],
    "cut": lambda x, state: 1 < len(x) < N,
    "rows": lambda x, state: len(x) == 1,
    "padded": lambda x, state: len(x) > N,
    "shifted": lambda x, state: x.ctypes.data % 64 != 0,
    "strides": lambda x, state: not x.flags.c_contiguous,
    "load": lambda x, state: threading.current_thread() is not threading.main_thread(),
    **{name: lambda x, state, name=name: name in state
       for name in ("threads", "stream", "graph", "compiled", "device")},
}  # fmt: skip


@pytest.fixture
def state(monkeypatch):
    """What is true during a call; NumPy gets what other libraries have, which sets it."""
    now: set[str] = set()

    @contextlib.contextmanager
    def within(name, *_):
        now.add(name)
        yield
        now.discard(name)

    def graph(module, x, f, arrays, read):
        with within("graph"):
            return read(f(*arrays))

    def compiled(module, f):
        def call(*arrays):
            with within("compiled"):
                return f(*arrays)

        return call

    def moved(module, x):
        return x.view(Moved)

    fake = dataclasses.replace(
        libraries.NUMPY, threads=lambda *_: within("threads"), stream=lambda *_: within("stream"),
        graph=graph, compiled=compiled, moved=moved,
    )  # fmt: skip
    monkeypatch.setitem(libraries._BY_PACKAGE, "numpy", fake)
    return now


class Moved(np.ndarray):
    """An array on another device."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_its_check_alone(name, state):
    def f(x):
        there = state | ({"device"} if isinstance(x, Moved) else set())
        there -= {"stream"} if threading.current_thread() is not threading.main_thread() else set()
        return np.asarray(x).max(axis=1) + np.float32(FAULTS[name](x, there))

    found = gpureduce.audit(f, X)
    assert failed(found) == [name] and applied(found) == NAMES and not found
    (one,) = (one for one in found.findings if one.check == name)
    assert one.differ and one.results == N and one.first.startswith("[") and one.ulps > 1
    assert "in place of" in one.note
    with pytest.raises(AssertionError, match=f"fails 1 of {len(NAMES)} checks: {name}"):
        gpureduce.assert_reproducible(f, X)


def test_a_right_function_passes_all(state):
    found = gpureduce.audit(lambda x: np.asarray(x).max(axis=1), X)
    assert found and applied(found) == NAMES
    gpureduce.assert_reproducible(lambda x: np.asarray(x).max(axis=1), X)


def test_changed_arguments():
    def f(x):
        found = x.max(axis=1)
        x[0, 3] += 1
        return found

    before = X.copy()
    found = gpureduce.audit(f, X)
    assert failed(found) == ["arguments"] and found.findings[0].first == "[0][0, 3]"
    assert (before == X).all()


def test_two_runs():
    calls = []

    def f(x):
        calls.append(len(x))
        return x.max(axis=1) + (len(calls) == 4)

    found = gpureduce.audit(f, X)
    assert failed(found) == ["twice"]
    assert failed(gpureduce.audit(lambda x: x.max() + np.random.random(), X, checks=["twice"]))


OURS = {
    "sum": lambda x: gpureduce.sum(x, axis=1),
    "total": lambda x: gpureduce.sum(x),
    "columns": lambda x: exact.sum(x, 0),
    "mean": lambda x: exact.mean(x, 1),
    "var": lambda x: exact.var(x, 1, ddof=1),
    "std": lambda x: exact.std(x, 1),
    "norm": lambda x: exact.norm(x, axis=1),
    "vecdot": lambda x: exact.vecdot(x, x[:, ::-1]),
    "gram": lambda x: exact.vecdot(x[:, None], x[None]),
    "cumsum": lambda x: exact.cumsum(x, 1),
    "moments": lambda x: exact.moments(x, 1),
    "ids": lambda x: gpureduce.segment_sum(x.T, np.arange(700) % 7, num_segments=7).value.T,
}


@pytest.mark.parametrize("name", OURS)
def test_ours_hold(name):
    found = gpureduce.audit(OURS[name], X)
    assert found and set(applied(found)) >= {"twice", "permuted", "shifted", "strides", "load"}


def test_segments_in_any_order():
    ids = np.arange(N) % 4
    ours = gpureduce.audit(lambda v, i: gpureduce.segment_sum(v, i, num_segments=4), X, ids)

    def scattered(v, i):
        sums = np.zeros((4, 700), np.float32)
        np.add.at(sums, i, v)
        return sums

    assert ours and failed(gpureduce.audit(scattered, X, ids)) == ["permuted"]


THEIRS = {
    "rows": (functools.partial(np.sum, axis=1), 0, ["strides"]),
    "columns": (functools.partial(np.sum, axis=0), 1, ["rows", "strides"]),
    "means": (functools.partial(np.mean, axis=0), 1, ["rows", "strides"]),
    "total": (np.sum, 0, ["permuted", "strides"]),
    "matrix": (lambda x: x @ np.ones((700, 3), np.float32), 0, None),
}


@pytest.mark.parametrize("name", THEIRS)
def test_numpy_depends_on_layout_and_batch(name):
    f, along, expected = THEIRS[name]
    x = np.ascontiguousarray(X.T) if along else X
    found = gpureduce.audit(f, x, along=along)
    assert set(failed(found)) & set(expected or ["rows", "strides"])
    assert (found.accuracy is not None) == (name != "matrix")


def test_distances():
    one = np.float32(1)
    cases = [
        (np.array([one, np.nextafter(one, 2)]), 1), (np.array([0.0, -0.0]), 0), (np.array([1, 4]), 3),
        (np.array([np.inf, np.finfo("f8").max]), 1), (np.array([1.0, np.nan]), math.nan),
        (np.array([1 + 1j, 1 + np.nextafter(1, 2) * 1j]), 1), (np.array([0, 2**64 - 1], "u8"), 2**64),
        (np.array([-(2**63), 2**63 - 1]), 2.0**64), (np.array([-1e-45, 1e-45], "f4"), 2),
        (np.array([1, 1.0078125], ml_dtypes.bfloat16), 1), (np.array([False, True]), 1),
        (np.array(["NaT", 0], "m8[s]"), 2.0**63),
    ]  # fmt: skip
    for values, expected in cases:
        left = iter([values[:1], *[values[1:]] * 99])
        (found,) = gpureduce.audit(lambda x, left=left: next(left), X, checks=["twice"]).findings
        assert found.holds is False and (found.differ, found.first) == (1, "[0]"), values
        assert found.ulps == expected or (math.isnan(expected) and math.isnan(found.ulps)), values


def test_nans_are_equal():
    bits = iter(range(0x7FC00000, 0x7FC00100))
    f = lambda x: np.array([next(bits)], np.uint32).view(np.float32)  # noqa: E731
    assert gpureduce.audit(f, X)


HOSTILE = {
    "raises": (lambda x: 1 / 0, RuntimeError, "the function raises ZeroDivisionError: division"),
    "exits": (lambda x: exit(0), RuntimeError, "the function raises SystemExit: 0"),
    "none": (lambda x: None, TypeError, "returned None"),
    "text": (lambda x: {"a": [1, "b"]}, TypeError, r"returned 'b' as result \['a'\]\[1\]"),
    "objects": (lambda x: np.array([None]), TypeError, "dtype object cannot be audited"),
    "wide": (lambda x: x.astype("g"), TypeError, "cannot be audited: use float64"),
    "generator": (lambda x: iter(x), TypeError, "it must return arrays or numbers"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_functions(name):
    f, kind, words = HOSTILE[name]
    with pytest.raises(kind, match=words):
        gpureduce.audit(f, X)


def test_other_shapes_and_late_errors():
    calls = []

    def shapes(x):
        calls.append(0)
        return np.zeros(2 + len(calls) % 2)

    found = gpureduce.audit(shapes, X)
    assert "twice" in failed(found) and "float64[2] in place of float64[3]" in str(found)
    late = lambda x: x.max(axis=1) if len(x) == N else 1 / 0  # noqa: E731
    found = gpureduce.audit(late, X)
    assert found and "cut" not in applied(found) and "it raises ZeroDivisionError" in str(found)
    calls.clear()
    fails = lambda x: calls.append(0) or (x.max(axis=1) if len(calls) < 4 else 1 / 0)  # noqa: E731
    assert set(failed(gpureduce.audit(fails, X))) == {"twice", "load"}


LAYOUTS = {
    "columns": X.T.copy().T, "gaps": X[::-2, ::3], "big endian": X.astype(">f4"), "one row": X[:1],
    "repeated": np.broadcast_to(X[0], (5, 700)), "no elements": X[:, :0], "integers": X.astype(int),
    "complex": X * (1 + 2j), "booleans": X > 0, "bfloat16": X.astype(ml_dtypes.bfloat16),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_of_any_layout(name):
    assert gpureduce.audit(lambda x: exact.sum(x, 1), LAYOUTS[name])


REFUSED = {
    "a list": (([1, 2],), {}, TypeError, "argument 0 is a list: pass arrays"),
    "masked": ((np.ma.array(X),), {}, TypeError, "is a MaskedArray: pass numpy.asarray"),
    "a number": ((np.float32(1),), {}, TypeError, "argument 0 has no axes"),
    "no rows": ((X[:0],), {}, ValueError, "have 0 rows along the batch"),
    "two sizes": ((X, X[:3]), {}, ValueError, r"have 9, 3 rows .* along=\(0, None\)"),
    "no arrays": ((), {}, ValueError, "at least one array"),
    "an axis": ((X,), {"along": 2}, ValueError, "along of argument 0 must be from -2 to 1, not 2"),
    "axes": ((X,), {"along": (0, 0)}, ValueError, "along has 2 entries for 1 array"),
    "a check": ((X,), {"checks": ["twise"]}, ValueError, "checks must be one of arguments, twice"),
    "a truth": ((X,), {"truth": "summ"}, ValueError, "truth must be one of sum, mean"),
    "no truth": ((X,), {"truth": "sum"}, ValueError, r"truth=sum has no result of the shape \(9, 7"),
    "a keyword": ((X,), {"axis": 1}, TypeError, "there are f, arrays, along"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    arrays, options, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        gpureduce.audit(lambda *x: x[0], *arrays, **options)


def test_arrays_outside_the_batch():
    weights = np.ones((N, 700), np.float32)
    f = lambda x, w: exact.sum(x[:, None] * w, 2)  # noqa: E731
    assert gpureduce.audit(f, X, weights, along=(0, None))
    assert not gpureduce.audit(lambda x, w: x.max(1) + w[:1].max(), X, X.copy())


TRUTHS = {
    "sum": lambda x: x.sum(1), "mean": lambda x: x.mean((0, 1)), "var": lambda x: x.var(1, ddof=1),
    "std": lambda x: x.std(1, keepdims=True), "norm": lambda x: np.linalg.norm(x, axis=1),
}  # fmt: skip


@pytest.mark.parametrize("truth", TRUTHS)
def test_accuracy(truth):
    found = gpureduce.audit(TRUTHS[truth], X, truth=truth, checks=["twice"]).accuracy
    got = TRUTHS[truth](X)
    exactly = exact.mean(X) if truth == "mean" else np.asarray(OURS[truth](X)).reshape(got.shape)
    assert found.truth == truth and 0 <= found.mean <= found.greatest < 100
    assert (found.greatest == 0) == np.array_equal(got, exactly)


def test_accuracy_of_other_functions():
    found = gpureduce.audit(lambda x: x.sum(1), X, truth=lambda x: exact.sum(x, 1)).accuracy
    assert found.truth == "<lambda>" and found.greatest > 0 and found.first.startswith("[")
    found = gpureduce.audit(exact.vecdot, X, X[::-1].copy()).accuracy
    assert found is None
    found = gpureduce.audit(exact.vecdot, X, X[::-1].copy(), truth="dot").accuracy
    assert found.greatest == found.mean == 0


def test_reports():
    found = gpureduce.audit(functools.partial(np.sum, axis=1), X)
    assert str(found).startswith("sum(axis=1) fails 1 of 9 checks: strides\n")
    assert "from the exact sum: " in str(found) and "NumPy float32 (9, 700), batch along" in str(
        found
    )
    row = json.loads(found.to_json())
    assert (row["kind"], row["holds"], row["function"]) == ("audit", False, "sum(axis=1)")
    assert {one["check"]: one["holds"] for one in row["findings"]}["graph"] is None
    assert found.page().startswith("<!DOCTYPE html>") and "<td" in found._repr_html_()

    def hostile(x):
        if len(x) != N:
            raise ValueError("<script>\x1b[2J")
        return x

    found = gpureduce.audit(hostile, X)
    assert "<script>" not in found.page() and "\x1b" not in found.page() + str(found)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torch(device):
    torch = pytest.importorskip("torch")
    ours = pytest.importorskip("gpureduce.torch")
    x = torch.randn(4, 128_256, generator=torch.Generator().manual_seed(0)).to(device)
    x.requires_grad_()
    found = gpureduce.audit(functools.partial(ours.sum, dim=1), x)
    assert found and found.accuracy.greatest == 0
    expected = {"twice", "cut", "strides", "load", "compiled"}
    expected |= {"stream", "graph", "device"} if device == "cuda" else {"threads"}
    assert set(applied(found)) >= expected
    assert gpureduce.audit(functools.partial(ours.sum, dim=1), x.bfloat16(), checks=["permuted"])
    found = gpureduce.audit(functools.partial(torch.sum, dim=1), x, checks=["cut", "strides"])
    assert failed(found) and found.accuracy.greatest > 0


@pytest.mark.parametrize("name", ["jax", pytest.param("cupy", marks=pytest.mark.gpu)])
def test_jax_and_cupy(name):
    module = pytest.importorskip("jax.numpy" if name == "jax" else name)
    found = gpureduce.audit(functools.partial(module.sum, axis=1), module.asarray(X))
    assert found.accuracy and {"twice", "cut", "rows", "padded", "load"} <= {*applied(found)}
    assert ("compiled" if name == "jax" else "stream") in applied(found)
    assert gpureduce.audit(lambda x: gpureduce.sum(x, axis=1), module.asarray(X), checks=ON_NUMPY)


def test_no_library_is_imported():
    code = (
        "import sys, numpy as np, gpureduce; gpureduce.audit(np.sum, np.ones((3, 4)));"
        "print({'torch', 'jax', 'cupy', 'ml_dtypes'} & {*sys.modules})"
    )
    assert run_python(code).strip() == "set()"
