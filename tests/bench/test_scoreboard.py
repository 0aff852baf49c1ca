"""The scoreboard: ratios out of rows, and tables out of a record."""

from __future__ import annotations

import types

import numpy as np
import pytest

import readme
from cases import MADE, timed_rows
from gpureduce.bench import ratios as of
from gpureduce.bench.contenders import arrays
from gpureduce.bench.suites import scoreboard
from gpureduce.core import dtypes
from gpureduce.text import size_text


def row(strategy, us, measure="kernel", dtype="float32", n=1024, producer="", offset=0, way=""):
    case = {"measure": measure, "dtype": dtype, "n": n, "nbytes": n * dtypes.named(dtype).itemsize,
            "producer": producer, "offset": offset, "way": way, "peak_gb_s": 1000.0}  # fmt: skip
    return timed_rows(case, {strategy: us})[0]


ROWS = [
    row("fast", 2.0), row("cub", 3.0),
    row("fast", 4.0, n=4096), row("cub", 3.0, n=4096),
    row("fast", 1.0, dtype="int8", n=4096), row("cub", 2.0, dtype="int8", n=4096),
    row("fast", 2.5, offset=1),
    row("fast", 10.0, "call", producer="cupy", way="timing=False"),
    row("cupy", 25.0, "call", producer="cupy", way="timing=False"),
    row("fast", 8.0, "call", producer="torch", way="timing=False"),
    row("torch", 12.0, "call", producer="torch", way="timing=False"),
    row("auto", 5.0, "host", producer="numpy"), row("numpy", 10.0, "host", producer="numpy"),
    row("torch", 4.0, "host", producer="numpy"),
    row("pinned copy", 1.0, "host", producer="torch"),
]  # fmt: skip


def text_of(rows, **more):
    return scoreboard.markdown(MADE | more | {"rows": rows})


def test_ratios():
    found = of.ratios(ROWS, "kernel", "fast", ["cub"])
    assert [r["ratio"] for r in found] == [1.5, 0.75, 2.0] and of.least(found)["n"] == 4096
    assert of.mean(found) == pytest.approx((1.5 * 0.75 * 2) ** (1 / 3))
    (host,) = of.ratios(ROWS, "host", "auto", ["numpy", "torch", "absent"])
    assert host["best"] == "torch" and host["ratio"] == 0.8 and host["best_us"] == 4.0
    assert [r["ratio"] for r in of.ratios(ROWS, "call", "fast", ["cupy"])] == [2.5]
    assert [r["ratio"] for r in of.misaligned(ROWS)] == [1.25]
    assert of.ratios(ROWS, "kernel", "fast", ["torch"]) == []


APART = [
    row("fast", 4.0, "apart"), row("cub", 3.0, "apart"), row("exact", 6.0, "apart"),
    row("load_only", 2.0, "apart"), row("fast", 1.0, "apart", n=4096),
    row("cub", 2.0, "apart", n=4096), row("fast", 1.0, "apart", dtype="int8", n=4096),
    row("cub", 4.0, "apart", dtype="int8", n=4096),
]  # fmt: skip
CALLED = {"measure": "call", "producer": "torch", "n": 1}
CALLS = [
    row("auto", 9.0, **CALLED, way="default"), row("torch", 18.0, **CALLED, way="default"),
    row("auto", 3.0, **CALLED, way="cast"),
    row("fast", 5.0, **CALLED, way="timing=False"), row("torch", 7.0, **CALLED, way="timing=False"),
    row("warp_shfl", 6.0, **CALLED, way="timing=False"),
    row("warp_shfl", 8.0, **CALLED, way="default"),
]  # fmt: skip
HOST = [
    row(name, us, "host", n=n, producer="numpy")
    for n, times in ((1024, (2.0, 1.0, 4.0)), (4096, (3.0, 2.0, 4.0)))
    for name, us in zip(("auto", "cpu", "numpy"), times, strict=True)
]
PINNED = row("fast of pinned", 1.0, "host", producer="torch")
CALIBRATION = {
    "cpu": {"card_share": 0.0, "gb_s": 100.25, "latency_us": 9.0},
    "cuda": {"card_share": 1.0, "gb_s": 50.0, "latency_us": 9.0},
    "both": {"card_share": 0.333, "gb_s": 120.0, "latency_us": 9.0},
}


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (ROWS, [
            "2026-01-01: NVIDIA Test 9000, 16 processors, driver 580, CUDA 13.0, numpy 2.5",
            "100 GB/s for the processors, 50 for the GPU",
            "120 for both together, with 33% of the array",
            "geometric mean 1.31, least 0.75 (float32, 16 KiB).",
            "| 4 KiB | 2.00 | 0% | 1.50 | 2.00 |", "| 16 KiB | 4.00 | 0% | 0.75 |  |",
            "takes 1.250 times as long, at most 1.250 (float32, 4 KiB)",
            "| cupy | float32 | 1024 | `fast` | 10.0 (25.0) |",
            "`auto` 0.80 (float32, 4 KiB, torch)",
            "| bytes | `auto` | `numpy` | `torch` | `pinned copy` |",
        ]),
        ([*ROWS, *APART], [
            "of `fast`: geometric mean 1.82, least 0.75 (float32, 4 KiB).",
            "| bytes | us, float32 | limit, us | of limit | `float32` | `int8` |",
            "| 4 KiB | 4.00 | 2.00 | 50% | 0.75 | 4.00 |", "| 16 KiB | 1.00 |  |  | 2.00 |  |",
            "of `exact`: geometric mean 0.50, least 0.50 (float32, 4 KiB).",
            "the limit's: geometric mean 1.50. CUB's time divided by the time of `fast`, for ",
            "| 4 KiB | 6.00 | 2.00 | 33% | 0.50 |",
        ]),
        ([r for r in APART if r["n"] == 4096], ["| bytes | us, float32 | `float32` | `int8` |"]),
        (CALLS, [
            "| array of | dtype | n | strategy | `default` | `timing=False` | `cast` |",
            "| torch | float32 | 1 | `auto` | 9.0 (18.0) |  | 3.0 |",
            "| torch | float32 | 1 | `fast` |  | 5.0 (7.0) |  |",
            "| strategy | torch, n = 1 |", "| `warp_shfl` | 8.0, 6.0 |",
        ]),
        ([*HOST, PINNED], [
            "up to 2.00 times as long as `cpu` (4 KiB), and 1.50 times for 16 KiB.",
            "Our speed divided by the speed of numpy, least value", "| `fast of pinned` |",
            "work: `fast of pinned` is the sum of an array that is already in pinned",
        ]),
        ([HOST[0], HOST[2] | {"low_us": 1.0}], [
            "(in brackets): `numpy` of 4 KiB of float32 (4.1 GB/s)."
        ]),
        ([r | {"percent_of_peak": None} for r in ROWS], ["| 4 KiB | 2.00 |  | 1.50"]),
    ],
)  # fmt: skip
def test_tables(rows, lines):
    text = text_of(rows, calibration=CALIBRATION)
    assert [line for line in lines if line not in text] == []


@pytest.mark.parametrize(
    ("rows", "absent"),
    [
        (ROWS, ["One sum", "Disturbed", "Calls by name"]),
        ([r for r in APART if r["n"] == 4096], ["limit", "Back to back"]),
        (HOST[1:3], ["correctly rounded", "Disturbed", "Calls", "Back to back"]),
    ],
)
def test_what_was_not_measured_is_left_out(rows, absent):
    text = text_of(rows)
    assert [words for words in absent if words in text] == []


def test_sums_apart_come_first():
    text = text_of([*ROWS, *APART])
    assert text.index("**One sum at a time**") < text.index("**Back to back**")


def test_headline():
    rows = [
        row("fast", 1.0, "apart"), row("cub", 2.0, "apart"), row("exact", 4.0, "apart"),
        row("fast", 1.0, "apart", "int8", n=4096), row("cub", 8.0, "apart", "int8", n=4096),
    ]  # fmt: skip
    text = readme._headline(MADE | {"rows": rows})
    assert "geometric means over float32, int8:" in text and "|  | 4 KiB |" in text
    assert "| CUB's time / time of `fast` | 4.00 |" in text
    assert "| CUB's time / time of `exact` | 0.50 |" in text
    least = "`fast`: geometric mean 4.00, least 2.00 (float32, 4 KiB); `exact`: "
    assert f"Over all sizes and dtypes: {least}" in text
    many = [row(name, 1.0, "apart", n=4**i) for i in range(5, 14) for name in ("fast", "cub")]
    shown = "|  | 4 KiB | 64 KiB | 1 MiB | 16 MiB | 256 MiB |"
    assert shown in readme._headline(MADE | {"rows": many})
    assert readme._headline(MADE | {"rows": ROWS}) == ""


class FakePinned:
    """The part of a pinned tensor that a copy uses."""

    def __init__(self, nbytes, **options):
        self.bytes, self.options = np.zeros(nbytes, np.uint8), options

    def numpy(self):
        return self.bytes

    def copy_(self, other, non_blocking=False):
        self.bytes[:] = getattr(other, "bytes", other)


def test_limits_of_the_way_through_the_card(monkeypatch):
    stream = types.SimpleNamespace(synchronize=lambda: None)
    torch = types.SimpleNamespace(
        empty=FakePinned,
        uint8=np.uint8,
        from_numpy=lambda array: array,
        cuda=types.SimpleNamespace(current_stream=lambda: stream),
    )
    monkeypatch.setattr(arrays.libraries, "load", lambda name: (None, torch))
    array = np.arange(1000, dtype=np.int32)
    given = arrays.Input(array, dtypes.convert(array.dtype, None), None, "emulator")
    limits = list(arrays.through_pinned(given))
    assert [one.strategy for one in limits] == list(arrays.LIMITS)
    assert [len(one.timed(3)) for one in limits] == [3, 3, 3, 3]
    copy, adding, writing, both = limits
    assert adding.value() == array.sum() and np.isnan(copy.value())
    array[:] = 1  # which is in pinned memory once it is written there
    assert np.isnan([writing.value(), both.value()]).all() and adding.value() == 1000


def test_sizes():
    assert [size_text(n) for n in (1, 4096, 3 * 2**19, 2**33)] == [
        "1 B", "4 KiB", "1.5 MiB", "8 GiB",
    ]  # fmt: skip
