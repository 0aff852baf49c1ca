"""The scoreboard: ratios out of rows, and tables out of a record."""

from __future__ import annotations

import types

import numpy as np
import pytest

from gpureduce.bench import report, scoreboard, targets
from gpureduce.bench.benchmark import Measurement
from gpureduce.bench.contenders import arrays as contenders
from gpureduce.core import dtypes
from gpureduce.text import size_text

PROVENANCE = {
    "card": "Some Card", "device": "cuda", "processor": "Some Processor", "processors": 16,
    "driver": "1.2", "toolkit": "13.0", "versions": {"numpy": "2.5", "python": "3.12"},
    "date": "2026-01-02", "commit": "0123456789abcdef",
}  # fmt: skip


def row(strategy, us, measure="kernel", dtype="float32", n=1024, producer="", offset=0, way=""):
    size = {"float32": 4, "int8": 1}[dtype]
    found = Measurement(
        strategy, dtype, n, n * size, 64, 1, "Some Card", "cuda_event", "cold", 3, us, us, us,
        1000.0, measure, producer, offset, way=way,
    )  # fmt: skip
    return report.rows_of([found], None)[0]


ROWS = [
    row("fast", 2.0), row("cub", 3.0),
    row("fast", 4.0, n=4096), row("cub", 3.0, n=4096),
    row("fast", 1.0, dtype="int8", n=4096), row("cub", 2.0, dtype="int8", n=4096),
    row("fast", 2.5, offset=1),
    row("fast", 10.0, "call", producer="cupy"), row("cupy", 25.0, "call", producer="cupy"),
    row("fast", 8.0, "call", producer="torch"), row("torch", 12.0, "call", producer="torch"),
    row("auto", 5.0, "host", producer="numpy"), row("numpy", 10.0, "host", producer="numpy"),
    row("torch", 4.0, "host", producer="numpy"),
    row("pinned copy", 1.0, "host", producer="torch"),
]  # fmt: skip


def test_ratios():
    found = targets.ratios(ROWS, "kernel", "fast", ["cub"])
    assert [r["ratio"] for r in found] == [1.5, 0.75, 2.0]
    assert targets.mean(found) == pytest.approx((1.5 * 0.75 * 2) ** (1 / 3))
    (host,) = targets.ratios(ROWS, "host", "auto", ["numpy", "torch", "absent"])
    assert host["best"] == "torch" and host["ratio"] == 0.8 and host["best_us"] == 4.0
    assert [r["ratio"] for r in targets.ratios(ROWS, "call", "fast", ["cupy"])] == [2.5]
    assert [r["ratio"] for r in targets.misaligned(ROWS)] == [1.25]
    assert targets.ratios(ROWS, "kernel", "fast", ["torch"]) == []


def test_a_card_without_a_known_bandwidth():
    rows = [{**r, "percent_of_peak": None} for r in (*ROWS, row("fast", 1.0, n=2**31))]
    rows += [{**row("cub", 1.0, n=2**31), "percent_of_peak": None}]
    assert "| 4 KiB | 2.00 |  | 1.50" in scoreboard.markdown(PROVENANCE | {"rows": rows})
    assert not any("of peak" in text for text in targets.missed(PROVENANCE | {"rows": rows}))


def test_sums_apart_come_first():
    rows = [
        row("fast", 4.0, "apart"), row("cub", 3.0, "apart"), row("exact", 6.0, "apart"),
        row("load_only", 2.0, "apart"), row("fast", 1.0, "apart", n=4096),
        row("cub", 2.0, "apart", n=4096), row("fast", 1.0, "apart", dtype="int8", n=4096),
        row("cub", 4.0, "apart", dtype="int8", n=4096),
    ]  # fmt: skip
    text = scoreboard.markdown(PROVENANCE | {"rows": [*ROWS, *rows]})
    assert text.index("**One sum at a time**") < text.index("**Back to back**")
    assert "of `fast`: geometric mean 1.82, least 0.75 (float32, 4 KiB)." in text
    assert "| bytes | us, float32 | limit, us | of limit | `float32` | `int8` |" in text
    assert "| 4 KiB | 4.00 | 2.00 | 50% | 0.75 | 4.00 |" in text
    assert "| 16 KiB | 1.00 |  |  | 2.00 |  |" in text
    assert "of `exact`: geometric mean 0.50, least 0.50 (float32, 4 KiB)." in text
    assert "the limit's: geometric mean 1.50; by that of `fast`, for the same arrays: 0.75." in text
    assert "| 4 KiB | 6.00 | 2.00 | 33% | 0.50 |" in text
    without = scoreboard.markdown(PROVENANCE | {"rows": [r for r in rows if r["n"] == 4096]})
    assert "| bytes | us, float32 | `float32` | `int8` |" in without and "limit" not in without
    assert "One sum" not in scoreboard.markdown(PROVENANCE | {"rows": ROWS})
    assert [r["ratio"] for r in targets.ratios([*ROWS, *rows], "kernel", "fast", ["cub"])] == [
        1.5, 0.75, 2.0,
    ]  # fmt: skip
    assert missed(*rows) == [
        "float32, 4 KiB, one sum at a time: `fast` is 0.750 times as quick as cub, not 1"
    ]


def test_headline():
    rows = [
        row("fast", 1.0, "apart"), row("cub", 2.0, "apart"), row("exact", 4.0, "apart"),
        row("fast", 1.0, "apart", "int8", n=4096), row("cub", 8.0, "apart", "int8", n=4096),
    ]  # fmt: skip
    text = scoreboard.headline(PROVENANCE | {"rows": rows})
    assert "geometric means over float32, int8:" in text and "|  | 4 KiB |" in text
    assert "| CUB's time / that of `fast` | 4.00 |" in text
    assert "| CUB's time / that of `exact` | 0.50 |" in text
    assert "Over all: `fast`: geometric mean 4.00, least 2.00 (float32, 4 KiB); `exact`: " in text
    many = [row(name, 1.0, "apart", n=4**i) for i in range(5, 14) for name in ("fast", "cub")]
    assert "|  | 4 KiB | 64 KiB | 1 MiB | 16 MiB | 256 MiB |" in scoreboard.headline(
        PROVENANCE | {"rows": many}
    )
    assert scoreboard.headline(PROVENANCE | {"rows": ROWS}) == ""


def test_calls():
    """Old rows have no way: they are untimed calls."""
    called = {"measure": "call", "producer": "torch", "n": 1}
    rows = [
        row("auto", 9.0, **called, way="default"), row("torch", 18.0, **called, way="default"),
        row("auto", 3.0, **called, way="cast"),
        row("fast", 5.0, **called), row("torch", 7.0, **called),
        row("warp_shfl", 6.0, **called, way="timing=False"),
        row("warp_shfl", 8.0, **called, way="default"),
    ]  # fmt: skip
    del rows[3]["way"]
    text = scoreboard.markdown(PROVENANCE | {"rows": rows})
    assert "| array of | dtype | n | strategy | `default` | `timing=False` | `cast` |" in text
    assert "| torch | float32 | 1 | `auto` | 9.0 (18.0) |  | 3.0 |" in text
    assert "| torch | float32 | 1 | `fast` |  | 5.0 (7.0) |  |" in text
    assert "| strategy | torch, n = 1 |" in text and "| `warp_shfl` | 8.0, 6.0 |" in text


CALIBRATION = {
    "cpu": {"card_share": 0.0, "gb_s": 100.25, "latency_us": 9.0},
    "cuda": {"card_share": 1.0, "gb_s": 50.0, "latency_us": 9.0},
    "both": {"card_share": 0.333, "gb_s": 120.0, "latency_us": 9.0},
}


def test_tables():
    text = scoreboard.markdown(PROVENANCE | {"rows": ROWS, "calibration": CALIBRATION})
    assert "100 GB/s by the processors, 50 by the card" in text
    assert "120 by both at once, the card taking 33%" in text
    assert "2026-01-02: Some Card, 16 processors, driver 1.2, CUDA 13.0, numpy 2.5" in text
    assert "geometric mean 1.31, least 0.75 (float32, 16 KiB)." in text
    assert "| 4 KiB | 2.00 | 0% | 1.50 | 2.00 |" in text
    assert "| 16 KiB | 4.00 | 0% | 0.75 |  |" in text
    assert "take 1.250 times as long, at most 1.250 (float32, 4 KiB)" in text
    assert "| cupy | float32 | 1024 | `fast` | 10.0 (25.0) |" in text
    assert "`auto` 0.80 (float32, 4 KiB, torch)" in text
    assert "| bytes | `auto` | `numpy` | `torch` | `pinned copy` |" in text


def missed(*rows, **more):
    return targets.missed(PROVENANCE | more | {"rows": list(rows)})


def test_missed_targets_are_named():
    told = missed(*ROWS)
    assert told == [
        "float32, 16 KiB: `fast` is 0.750 times as quick as cub, not 1.3",
        "float32, 4 KiB of a call: `fast` is 1.500 times as quick as torch, not 1.54",
        "float32, 4 KiB of a host array: `auto` is 0.800 times as quick as torch, not 0.95",
        "float32, 4 KiB, one element off: 1.2500 times as long, not 1.03",
    ]
    text = scoreboard.markdown(PROVENANCE | {"rows": ROWS})
    listed = "\n".join(f"- {one}" for one in told)
    assert text.endswith(f"Short of what it aims at:\n\n{listed}")


def test_targets_hold_for_certain_sizes_only():
    def peak(percent):
        rows = [row("fast", 1.0, n=2**31), row("cub", 1.2, n=2**31)]
        more = {"percent_of_peak": percent, "percent_of_ceiling": 99.5}
        return missed(*(r | more for r in rows))

    limit = "(99.5% of what this card can be read at)"
    assert peak(97.0) == [] and peak(96.9) == [f"float32, 8 GiB: 96.9% of peak, not 97% {limit}"]
    at_4_kib = (row("fast", 1.0), row("cub", 1.1))
    assert missed(*at_4_kib) == ["geometric mean of CUB's time by ours: 1.100, not 1.15"]
    assert missed(row("fast", 1.0), row("cub", 1.2)) == []
    large = (row("cpu", 1.0, "host", n=2**24), row("numpy", 1.7, "host", n=2**24))
    assert missed(*large) == []
    (told,) = missed(*large, device="emulator")
    assert told == (
        "float32, 64 MiB of a host array: `cpu` is 1.700 times as quick as numpy, not 1.8"
    )
    assert missed(row("cpu", 1.0, "host"), row("numpy", 1.0, "host"), device="emulator") == []
    calls = (row("fast", 1.0, "call", n=2**17), row("torch", 1.0, "call", n=2**17))
    assert missed(*calls) == []
    (told,) = missed(row("fast", 2.0, "host"), row("pinned copy", 1.0, "host"))
    assert told.endswith("`fast` is 0.500 times as quick as pinned copy, not 0.85")


def test_the_way_through_the_card_is_judged_by_its_limits():
    ours = row("fast", 2.0, "host", producer="numpy")
    copy = row("pinned copy", 1.0, "host", producer="torch")
    (told,) = missed(ours, copy)
    assert told == (
        "float32, 4 KiB of a host array: `fast` is 0.500 times as quick as pinned copy, not 0.85"
    )
    limits = {"fast of pinned": 1.25, "write to pinned": 0.4, "write, pinned copy": 2.0}
    (told,) = missed(
        ours, copy, *(row(name, us, "host", producer="torch") for name, us in limits.items())
    )
    assert told.endswith(
        "not 0.85 (the sum of a pinned array 0.800, writing it there 2.500, a copy of what has "
        "just been written 0.625, writing and then adding up 0.606)"
    )
    assert missed(row("fast", 1.1, "host", producer="numpy"), copy) == []
    torch = row("torch", 1.0, "host", producer="numpy")
    (told,) = missed(row("cpu", 1.25, "host", producer="numpy"), torch)
    assert told.endswith("`cpu` is 0.800 times as quick as torch, not 0.95")


def test_the_table_names_the_cost_of_exactness():
    rows = [
        row(name, us, "host", n=n, producer="numpy")
        for n, times in ((1024, (2.0, 1.0, 4.0)), (4096, (3.0, 2.0, 4.0)))
        for name, us in zip(("auto", "cpu", "numpy"), times, strict=True)
    ]
    limit = row("fast of pinned", 1.0, "host", producer="torch")
    text = scoreboard.markdown(PROVENANCE | {"rows": [*rows, limit]})
    assert "up to 2.00 times as long as `cpu` (4 KiB), of 16 KiB 1.50 times." in text
    assert "our speed divided by that of numpy is at least: " in text
    assert "| `fast of pinned` |" in text
    assert "beside it: `fast of pinned`, the sum of an array that lies in pinned" in text
    assert "correctly rounded" not in scoreboard.markdown(PROVENANCE | {"rows": rows[1:3]})


def test_medians_that_were_disturbed_are_named():
    rows = [row(name, 6.0, "host", producer="numpy") for name in ("auto", "numpy", "torch")]
    assert "Disturbed" not in scoreboard.markdown(PROVENANCE | {"rows": rows})
    rows[2]["low_us"] = 1.0
    text = scoreboard.markdown(PROVENANCE | {"rows": rows})
    assert "(which is in brackets): `torch` of 4 KiB of float32 (4.1 GB/s)." in text


class FakePinned:
    """The part of a pinned tensor that a copy uses."""

    def __init__(self, nbytes, **options):
        self.bytes, self.options = np.zeros(nbytes, np.uint8), options

    def numpy(self):
        return self.bytes

    def copy_(self, other, non_blocking=False):
        self.bytes[:] = getattr(other, "bytes", other)


def test_limits_of_the_way_through_the_card(monkeypatch):
    torch = types.SimpleNamespace(
        empty=FakePinned,
        uint8=np.uint8,
        from_numpy=lambda array: array,
        cuda=types.SimpleNamespace(
            current_stream=lambda: types.SimpleNamespace(synchronize=lambda: None)
        ),
    )
    monkeypatch.setattr(contenders.libraries, "load", lambda name: (None, torch))
    array = np.arange(1000, dtype=np.int32)
    conversion = dtypes.convert(array.dtype, None)
    given = contenders.Input(array, conversion, None, "emulator")
    limits = contenders.through_pinned(given)
    assert [c.strategy for c in limits] == list(targets.LIMITS)
    assert [len(c.run(3)) for c in limits] == [3, 3, 3, 3]
    copy, adding, writing, both = limits
    assert adding.value() == array.sum() and np.isnan(copy.value())
    array[:] = 1  # which is in pinned memory once it is written there
    assert np.isnan([writing.value(), both.value()]).all() and adding.value() == 1000


def test_a_part_that_was_not_measured_is_left_out():
    text = scoreboard.markdown(PROVENANCE | {"rows": ROWS[-4:]})
    assert "Kernels" not in text and "Calls" not in text and "host memory" in text


def test_sizes():
    assert [size_text(n) for n in (1, 4096, 3 * 2**19, 2**33)] == [
        "1 B", "4 KiB", "1.5 MiB", "8 GiB",
    ]  # fmt: skip
    apart = scoreboard.ON_CARD[0]
    assert apart.measure == "apart" and apart.nbytes[0] == 4096
    assert apart.nbytes[-2:] == (2**32, 2**33)
