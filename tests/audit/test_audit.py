"""Audits: each check finds the function that breaks it, and only that one; hostile functions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import threading
import tracemalloc

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


def failed(found):
    return [one.check for one in found.findings if one.holds is False]


def applied(found):
    return {one.check for one in found.findings if one.holds is not None}


class Moved(np.ndarray):
    """An array on another device."""


@pytest.fixture
def now(monkeypatch):
    """The context of the running call. NumPy gets the methods of other libraries, which set it."""
    now: set[str] = set()

    @contextlib.contextmanager
    def within(name):
        now.add(name)
        yield
        now.discard(name)

    def by(name):
        def call(module, x, f, *arrays):
            here = name if threading.current_thread() is MAIN else "its own"
            with within(here):
                return f(*arrays)

        return call

    fake = dataclasses.replace(
        libraries.NUMPY,
        device=lambda module, x, f, *arrays: f(*(one.view(Moved) for one in arrays)),
        **{name: by(name) for name in ("stream", "graph", "compiled")},
    )
    monkeypatch.setitem(libraries._BY_PACKAGE, "numpy", fake)
    return now


MAIN = threading.main_thread()
# By check: whether a call is one of that check's.
FAULTS = {
    "permuted": lambda x: len(x) == N and x[0, 0] > x[-1, 0],
    "cut": lambda x: 1 < len(x) < N,
    "rows": lambda x: len(x) == 1,
    "padded": lambda x: len(x) > N,
    "shifted": lambda x: x.ctypes.data % 64 != 0,
    "strides": lambda x: not x.flags.c_contiguous,
    "load": lambda x: threading.current_thread() is not MAIN,
    "device": lambda x: isinstance(x, Moved),
}


@pytest.mark.parametrize("name", [*NAMES[2:], "none"])
def test_a_fault_fails_its_check_alone(name, now):
    def f(x):
        is_off = name in now or FAULTS.get(name, lambda x: False)(x)
        return np.asarray(x).max(axis=1) + np.float32(is_off)

    found = gpureduce.audit(f, X)
    assert applied(found) == {*NAMES}
    if name == "none":
        assert found and not failed(found)
        gpureduce.assert_reproducible(f, X)
        return
    assert failed(found) == [name] and not found
    (one,) = (one for one in found.findings if one.check == name)
    assert one.differ and one.results and one.first.startswith("[") and one.ulps > 1
    assert "in place of" in one.note
    with pytest.raises(AssertionError, match=f"fails 1 of {len(NAMES)} checks: {name}"):
        gpureduce.assert_reproducible(f, X)


def test_changed_arguments_and_other_runs():
    def change(x):
        found = x.max(axis=1)
        x[0, 3] += 1
        return found

    before, calls = X.copy(), []
    found = gpureduce.audit(change, X)
    assert failed(found) == ["arguments"] and found.findings[0].first == "argument [0][0, 3]"
    assert (before == X).all()
    f = lambda x: calls.append(0) or x.max(axis=1) + (len(calls) == 4)  # noqa: E731
    assert failed(gpureduce.audit(f, X)) == ["twice"]


OURS = {
    "sum": lambda x: gpureduce.sum(x, axis=1),
    "total": lambda x: gpureduce.sum(x),
    "mean": lambda x: exact.mean(x, 1),
    "var": lambda x: exact.var(x, 1, ddof=1),
    "std": lambda x: exact.std(x, 1),
    "norm": lambda x: exact.norm(x, axis=1),
    "gram": lambda x: exact.vecdot(x[:, None], x[None]),
    "cumsum": lambda x: exact.cumsum(x, 1),
    "moments": lambda x: exact.moments(x, 1),
}


@pytest.mark.parametrize("name", OURS)
def test_ours_hold(name):
    found = gpureduce.audit(OURS[name], X)
    assert found and applied(found) >= {"twice", "permuted", "shifted", "strides", "load"}


def scattered(values, ids):
    sums = np.zeros((4, 700), np.float32)
    np.add.at(sums, ids, values)
    return sums


def test_sums_by_segment():
    ids = np.arange(N) % 4
    assert gpureduce.audit(lambda v, i: gpureduce.segment_sum(v, i, num_segments=4), X, ids)
    assert failed(gpureduce.audit(scattered, X, ids)) == ["permuted"]


@pytest.mark.parametrize(
    ("f", "along"), [(np.sum, 0), (np.sum, 1), (np.mean, 0), (np.mean, 1), (np.sum, None)]
)
def test_numpy_depends_on_layout_and_batch(f, along):
    x = np.ascontiguousarray(X.T) if along else X
    bound = f if along is None else functools.partial(f, axis=1 - along)
    found = gpureduce.audit(bound, x, along=along or 0)
    expected = {0: "strides", 1: "rows", None: "permuted"}[along]
    assert expected in failed(found) and found.accuracy.truth == f.__name__


def test_distances():
    for values, expected in [
        (np.array([1, np.nextafter(1, 2)]), 1), (np.array([0.0, -0.0]), 0), (np.array([1, 4]), 3),
        (np.array([np.inf, np.finfo("f8").max]), 1), (np.array([1.0, np.nan]), math.nan),
        (np.array([1j, np.nextafter(1, 2) * 1j]), 1), (np.array([0, 2**64 - 1], "u8"), 2**64),
        (np.array([-(2**63), 2**63 - 1]), 2.0**64), (np.array([-1e-45, 1e-45], "f4"), 2),
        (np.array([1, 1.0078125], ml_dtypes.bfloat16), 1), (np.array([False, True]), 1),
        (np.array(["NaT", 0], "m8[s]"), math.nan),
    ]:  # fmt: skip
        left = iter([values[:1], *[values[1:]] * 99])
        (found,) = gpureduce.audit(lambda x, left=left: next(left), X, checks=["twice"]).findings
        assert found.holds is False and (found.differ, found.first) == (3, "[0]"), values
        np.testing.assert_equal(found.ulps, expected)
    bits = iter(range(0x7FC00000, 0x7FC00100))
    assert gpureduce.audit(lambda x: np.array([next(bits)], "u4").view("f4"), X)  # nans


@pytest.mark.parametrize(
    ("f", "kind", "words"),
    [
        (lambda x: 1 / 0, RuntimeError, "the function raises ZeroDivisionError: division"),
        (lambda x: exit(0), RuntimeError, "the function raises SystemExit: 0"),
        (lambda x: None, TypeError, "the result is None: a function must"),
        (lambda x: {"a": [1, "b"]}, TypeError, r"\['a'\]\[1\] is 'b'"),
        (lambda x: np.array([None]), TypeError, "the result has the dtype object"),
        (lambda x: x.astype("g"), TypeError, "has the dtype .*: return float64"),
        (lambda x: iter(x), TypeError, "a function must return arrays or numbers"),
        (
            lambda x: {"a": []},
            TypeError,
            "the function returned {'a': .*, which contains no arrays",
        ),
        (lambda x: np.ma.masked_array(x, x > 0), TypeError, "the result is masked_array"),
    ],
)
def test_hostile_functions(f, kind, words):
    with pytest.raises(kind, match=words):
        gpureduce.audit(f, X)


W = np.linspace(1, 2, N, dtype=np.float32)[:, None]
# Functions that give the same bits, and of which the audit cannot know the rows of the results.
WITHOUT_ROWS = {
    "flat": lambda x: np.exp(x).ravel(),
    "merged": lambda x: np.exp(x).reshape(-1, 7),
    "weights": lambda x: exact.sum(x * W[:N], 1),
    "two weights": lambda x: exact.sum(x * W[:2], 1),
    "weighted": lambda x: exact.sum(x * W, 0),
    "columns": lambda x: exact.sum(x, 0) if len(x) == N else 1 / 0,
    "list": lambda x: [one.max() for one in x],
}


@pytest.mark.parametrize("name", WITHOUT_ROWS)
def test_results_of_unknown_rows(name):
    x = X[:2] if name == "two weights" else X[:, :N] if name == "columns" else X
    found = gpureduce.audit(WITHOUT_ROWS[name], x)
    assert found and not {"permuted", "cut", "rows", "padded"} & applied(found), str(found)


def test_batches_of_a_multiple():
    grouped = lambda x: x.reshape(-1, 3, 700).max(2).ravel()  # noqa: E731
    found = gpureduce.audit(grouped, X)
    assert found and "permuted" in applied(found)
    found = gpureduce.audit(lambda x: grouped(x) + (x[0, 0] > x[-1, 0]), X)
    assert failed(found) == ["permuted"]


def test_keys():
    calls: list[int] = []

    def f(x):
        calls.append(0)
        return dict([("a", x.max()), ("b", x.min())][:: (-1) ** len(calls)])

    assert gpureduce.audit(f, X)
    found = gpureduce.audit(lambda x: calls.append(0) or {len(calls): x.max()}, X)
    assert "twice" in failed(found) and "KeyError" in str(found)


def in_threads(x, do):
    if threading.current_thread() is not MAIN:
        do()
    return x.max(axis=1)


def test_threads_that_raise():
    for do, words in [(lambda: 1 / 0, "a thread raises ZeroDivisionError"), (exit, "SystemExit")]:
        found = gpureduce.audit(lambda x, do=do: in_threads(x, do), X)
        assert failed(found) == ["load"] and words in str(found)


def test_other_shapes_and_late_errors():
    calls: list[int] = []
    found = gpureduce.audit(lambda x: calls.append(0) or np.zeros(2 + len(calls) % 2), X)
    assert "twice" in failed(found) and "float64[2] in place of float64[3]" in str(found)
    found = gpureduce.audit(lambda x: x.max(axis=1) if len(x) > 1 else 1 / 0, X)
    assert found and "rows" not in applied(found) and "it raises ZeroDivisionError" in str(found)
    calls.clear()
    f = lambda x: calls.append(0) or (x.max(axis=1) if len(calls) < 4 else 1 / 0)  # noqa: E731
    assert {*failed(gpureduce.audit(f, X))} == {"twice", "load"}


@pytest.mark.parametrize(
    "x",
    [X.T.copy().T, X[::-2, ::3], X.astype(">f4"), X[:1], np.broadcast_to(X[0], (5, 700)), X[:, :0],
     X.astype(int), X * (1 + 2j), X > 0, X.astype(ml_dtypes.bfloat16), X[:, :1]],
)  # fmt: skip
def test_arrays_of_any_layout(x):
    assert gpureduce.audit(lambda x: (exact.sum(x, 1), {"all": exact.sum(x)}), x)


@pytest.mark.parametrize(
    ("arrays", "options", "words"),
    [
        (([1, 2],), {}, "argument 0 is a list: pass arrays"),
        ((np.ma.array(X),), {}, "is a MaskedArray: pass .* numpy.asarray"),
        ((X, np.array([None] * N)), {}, r"argument \[1\] has the dtype object"),
        ((np.float32(1),), {}, "argument 0 is a float32: pass arrays .* with axes"),
        ((X[:0],), {}, r"have \[0\] rows along the batch"),
        ((X, X[:3]), {}, r"have \[9, 3\] rows .* functools.partial"),
        ((), {}, r"have \[\] rows"),
        ((X,), {"along": 2}, "along must be from -2 to 1, not 2"),
        ((X,), {"along": (0, 0)}, r"along must be a whole number, not \(0, 0\)"),
        ((X,), {"checks": ["twise"]}, "checks must be one of arguments, twice"),
        ((X,), {"truth": "summ"}, "truth must be one of sum, mean"),
        ((X,), {"truth": "sum"}, r"truth='sum' has other shapes than f returns: .\(9, 700\)"),
        ((X,), {"axis": 1}, "there are f, arrays, along"),
    ],
)
def test_refused(arrays, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        gpureduce.audit(lambda *x: x[0], *arrays, **options)


def test_arrays_outside_the_batch():
    w = np.ones((N, 700), np.float32)
    assert gpureduce.audit(lambda x: exact.sum(x[:, None] * w, 2), X)
    assert not gpureduce.audit(lambda x, w: x.max(1) + w[:1].max(), X, X.copy())


@pytest.mark.parametrize(
    ("truth", "f"),
    [("sum", lambda x: x.sum(1)), ("mean", lambda x: x.mean(1)), ("std", lambda x: x.std(1)),
     ("var", lambda x: x.var(1, ddof=1)), ("norm", lambda x: np.linalg.norm(x, axis=1))],
)  # fmt: skip
def test_accuracy(truth, f):
    found = gpureduce.audit(f, X, truth=truth, checks=["twice"]).accuracy
    exactly = np.asarray(OURS[truth](X))
    assert found.truth == truth and 0 <= found.mean <= found.greatest < 100
    assert (found.greatest == 0) == np.array_equal(f(X), exactly)
    assert not gpureduce.audit(exact.vecdot, X, X, truth="dot", checks=["cut"]).accuracy.greatest
    f = lambda x: x.std(1, keepdims=True)  # noqa: E731
    assert gpureduce.audit(f, X, truth="std", checks=["cut"]).accuracy.greatest < 9


@pytest.mark.parametrize(
    ("f", "is_known"),
    [
        (functools.partial(np.sum, axis=1, keepdims=True), True),
        (functools.partial(np.var, axis=1), True),
        (functools.partial(np.var, axis=1, ddof=2), False),
        (functools.partial(np.sum, axis=1, initial=5), False),
        (functools.partial(np.sum, axis=1, where=X > 0), False),
        (functools.partial(np.linalg.norm, axis=1), True),
        (functools.partial(np.linalg.norm, axis=1, ord=1), False),
        (functools.partial(gpureduce.sum, axis=1, strategy="cpu"), True),
        (functools.partial(np.dot, X), False),
    ],
)
def test_known_functions(f, is_known):
    x = X.T if f.func is np.dot else X
    found = gpureduce.audit(f, x, checks=["arguments"]).accuracy
    assert (found is not None) == is_known
    assert not is_known or found.greatest < 100


def test_along_of_numpy():
    assert gpureduce.audit(lambda x: x.max(1), X, along=np.int64(-2))


def test_large_arguments_need_little_memory():
    x = np.zeros((1000, 5000), np.uint8)
    tracemalloc.start()
    assert gpureduce.audit(lambda x: x[:, 0], x, checks=["arguments", "twice"])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * x.nbytes


def test_reports():
    found = gpureduce.audit(functools.partial(np.sum, axis=1), X)
    assert str(found).startswith("sum(axis=1) fails 1 of 9 checks: strides\n")
    assert "from the exact sum: " in str(found) and "NumPy float32 (9, 700), batch" in str(found)
    row = json.loads(found.to_json())
    assert (row["kind"], row["holds"], row["function"]) == ("audit", False, "sum(axis=1)")
    assert {one["check"]: one["holds"] for one in row["findings"]}["graph"] is None
    assert "<td" in found._repr_html_()

    def hostile(x):
        if len(x) != N:
            raise ValueError("<script>\x1b[2J")
        return x

    found = gpureduce.audit(hostile, X)
    page = found._repr_html_()
    assert "<script>" not in page and "\x1b" not in page + str(found)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torch(device):
    torch = pytest.importorskip("torch")
    ours = pytest.importorskip("gpureduce.torch")
    x = torch.randn(4, 128_256, generator=torch.Generator().manual_seed(0)).to(device)
    found = gpureduce.audit(functools.partial(ours.sum, dim=1), x.requires_grad_())
    expected = {"stream", "graph", "device"} if device == "cuda" else set()
    assert found and applied(found) >= expected | {"cut", "strides", "load", "compiled"}
    assert found.accuracy.greatest == 0
    assert gpureduce.audit(functools.partial(ours.sum, dim=1), x.bfloat16(), checks=["permuted"])
    found = gpureduce.audit(functools.partial(torch.sum, dim=1), x, checks=["cut", "strides"])
    assert failed(found) and found.accuracy.greatest > 0


@pytest.mark.parametrize("name", ["jax", pytest.param("cupy", marks=pytest.mark.gpu)])
def test_jax_and_cupy(name):
    module = pytest.importorskip("jax.numpy" if name == "jax" else name)
    found = gpureduce.audit(functools.partial(module.sum, axis=1), module.asarray(X))
    assert found.accuracy and {"twice", "cut", "rows", "padded", "load"} <= applied(found)
    assert ("compiled" if name == "jax" else "stream") in applied(found)
    assert gpureduce.audit(lambda x: gpureduce.sum(x, axis=1), module.asarray(X))


def test_donated_arrays_of_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    found = gpureduce.audit(jax.jit(lambda x: x * 2, donate_argnums=0), x)
    assert found and "cut" in applied(found) and "arguments" not in applied(found)
    assert (np.asarray(x) == X).all()


def test_audits_of_compiled_functions_are_independent():
    torch = pytest.importorskip("torch")
    x = torch.randn(4, 128_256, generator=torch.Generator().manual_seed(0))
    for _ in range(10):  # PyTorch's limit is 8
        f = eval("lambda x: torch.sum(x, dim=1)", {"torch": torch})
        assert not gpureduce.audit(f, x, checks=["compiled"])
    found = [gpureduce.audit(f, x[:, :n], checks=["compiled"]) for n in (1000, 2000, 128_000)]
    torch.compiler.reset()
    assert gpureduce.audit(f, x[:, :128_000], checks=["compiled"]).findings == found[-1].findings


def test_no_library_is_imported():
    code = (
        "import sys, numpy as np, gpureduce; gpureduce.audit(np.sum, np.ones((3, 4)));"
        "print({'torch', 'jax', 'cupy', 'ml_dtypes'} & {*sys.modules})"
    )
    assert run_python(code).strip() == "set()"
