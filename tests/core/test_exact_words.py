"""Words of kernels that include exact_add.cuh, in Python: layouts, errors, and where they lie."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpureduce


def test_layouts_are_those_of_the_header():
    shapes = [gpureduce.exact_words((2, 3), d).array.shape
              for d in ("float16", "bfloat16", "float32", "float64", "int64")]  # fmt: skip
    assert shapes == [(2, 3, 2), (2, 3, 9), (2, 3, 9), (2, 3, 38), (2, 3, 2)]
    assert gpureduce.exact_words(4, low=-20).array.shape == (4, 2)
    assert repr(gpureduce.exact_words(4, "float64", low=-20)) == "<ExactWords float64[4]>"


def test_empty_sums_are_zeros():
    for dtype in ("float16", "bfloat16", "float32", "float64", "int64"):
        made = gpureduce.exact_words((2, 3), dtype)
        assert made.sums().shape == (2, 3) and made.sums().dtype == made.dtype
        assert not made.sums().any() and not made.is_outside().any()
        assert gpureduce.from_digits(made.digits(), "float64").shape == (2, 3)
        assert gpureduce.Accumulator.from_words(made.array[0, 0], dtype).count == 0


def test_digits_of_several_words_merge():
    """The digits of ranks or cards add up like this: 1e30 + 1 - 1e30."""
    one = gpureduce.exact_words(1, "float32", low=-10)
    parts = []
    for value in (2**70, 1, -(2**70)):
        low, high = (value << 14) & 2**56 - 1, value << 14 >> 56
        one.array[0] = low, high
        parts.append(one.digits())
    assert gpureduce.from_digits(sum(parts)).tolist() == [1.0]


def test_many_sums():
    """More than are rounded at once, and a single one."""
    made = gpureduce.exact_words((3, 7000), "float32", low=-10)
    made.array[..., 0] = np.arange(21000).reshape(3, 7000) << 14
    assert made.sums().tolist() == np.arange(21000.0).reshape(3, 7000).tolist()
    assert gpureduce.exact_words((), "float64").sums() == 0.0


def test_sums_round_to_another_type():
    made = gpureduce.exact_words(1, "int64")
    made.array[0] = (2**24 + 1) << 4, 0
    assert made.sums().tolist() == [2**24 + 1]
    assert made.sums("float32").tolist() == [2.0**24]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"dtype": "int32"}, TypeError, "exact words are made of float16, .*, not of int32"),
        ({"k": 24}, ValueError, "pass low"),
        ({"low": -150}, ValueError, "low must be"),
        ({"low": -20, "k": 38}, ValueError, "k must be"),
        ({"low": -20, "dtype": "float64", "k": 9}, ValueError, "k must be"),
        ({"like": [1.0]}, TypeError, "NumPy, CuPy or PyTorch array, not list"),
        ({"lowest": 1}, TypeError, "unexpected keyword argument 'lowest': did you mean low"),
    ],
)
def test_errors(arguments, error, said):
    with pytest.raises(error, match=said):
        gpureduce.exact_words(3, **arguments)


@pytest.mark.parametrize("words", [np.zeros(8, np.int64), np.zeros(9), np.int64(3)])
def test_words_that_are_none(words):
    with pytest.raises(ValueError, match=r"words of float32 must be int64 of shape \(\.\.\., 9\)"):
        gpureduce.Accumulator.from_words(words)


def test_the_command_names_the_folder():
    run = [sys.executable, "-P", "-m", "gpureduce", "include"]
    said = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    assert said == f"{gpureduce.include_path()}\n"
    more = subprocess.run([*run, "--json"], check=True, capture_output=True, text=True).stdout
    assert json.loads(more) == {"include": gpureduce.include_path()}


def test_the_header_includes_nothing_and_is_short():
    text = (Path(gpureduce.include_path()) / "gpureduce" / "exact_add.cuh").read_text()
    assert "#include" not in text and len(text.splitlines()) <= 400


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_words_lie_where_the_array_does(library):
    module = pytest.importorskip(library)
    like = module.zeros(1, device="cuda") if library == "torch" else module.zeros(1)
    made = gpureduce.exact_words(5, "float32", like=like)
    assert type(made.array) is type(like) and made.array.shape == (5, 9)
    made.array[2, 4] = 1 << 25
    assert made.sums().tolist() == [0, 0, 1, 0, 0]
